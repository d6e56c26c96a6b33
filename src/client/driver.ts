/**
 * The life of a client: connect, run until the socket is lost, back off, and connect again, until its peer is closed. Which close
 * does what is listed in `close-codes.ts`.
 */
import * as CloseCode from "../close-codes.js";
import { clearDeadline, setDeadline, type Expiring } from "../core/deadlines.js";
import { ConnectError } from "../core/errors.js";
import type { HeartbeatTimes } from "../link/heartbeat.js";
import { tell } from "../core/tell.js";
import type { CloseInfo, Transport } from "../core/transport.js";
import { endPeer, openingOf, type AnyPeer } from "../peer/peer.js";
import type { Caller } from "../peer/caller.js";
import type { EndpointLimits } from "../session/endpoint.js";
import { MAX_RETRY_MS } from "../session/frames.js";
import { PackedLink, PROTOCOL, type LinkDelegate } from "../session/link.js";
import { Backoff } from "./backoff.js";
import type { Admitted } from "./open.js";
import { Watch, watchPage } from "./watch.js";

/** Says how to begin again: what the other side must hear before anything else. */
export type OnOpen = (server: Caller<any>) => unknown;

/** How a client connects, and connects again. */
export interface ClientPlan {
  readonly limits: EndpointLimits;
  readonly onOpen: OnOpen | undefined;
  /** Whether it reconnects. `undefined`: if there was a session, or `onOpen` says how to begin again. */
  readonly reconnects: boolean | undefined;
  readonly heartbeat: HeartbeatTimes | undefined;
  /** How long a connection that has opened may take until messages flow on it, in milliseconds. */
  readonly openTimeoutMs: number;
  /** Connects. `isResumable`: whether there is a session to resume. `isKnown`, `signal`: as of an `Attempt`. */
  connect(isResumable: boolean, isKnown: boolean, signal: AbortSignal | undefined): Promise<Admitted>;
}

/** Delays are multiples of this. Deadlines of equal length share a queue, and many clients of a process share many queues. */
const STEP_MS = 10;

/** Whether a connection attempt failed for good: the server refused this client, or the runtime refused to connect. */
export function isFinal(error: unknown): boolean {
  return !(error instanceof ConnectError) || error.status === 401 || error.status === 403;
}

/** Sends what the other side must hear first, and then what is queued. Rejects as `onOpen` does. */
export async function greet(peer: AnyPeer, onOpen: OnOpen, opening = openingOf(peer)): Promise<void> {
  await onOpen(opening.caller);
  opening.release();
}

/** Brings one client its sockets. Its deadline limits the wait for messages on a new socket, and the delay while there is none. */
export class ClientDriver implements LinkDelegate, Expiring {
  declare deadline: number;
  /** The link of the present connection. Its successor takes its place when the connection is lost. */
  declare link: PackedLink;
  readonly #plan: ClientPlan;
  readonly #watch: Watch | undefined;
  readonly #backoff = new Backoff();
  #peer!: AnyPeer;
  /** The newest socket, and the content of its hello. */
  #opened: Admitted;
  /** Ends the connection attempt that is under way. Made for each attempt: a client that is not lost has none. */
  #attempt: AbortController | undefined;
  /** Whether the peer is closed, or the server has refused this client. */
  #isOver = false;
  /** Whether another socket is needed. Then `#reconnect` runs. */
  #isDown = false;
  /** Whether `link` follows a lost one, and no messages have flowed on it yet. */
  #isSuccessor = false;
  /** Whether the server has ever sent a hello, and one that offers a session. */
  #wasGreeted = false;
  #hadSession = false;
  /** Ends the delay before an attempt. */
  #skipDelay: (() => void) | undefined;
  #ignorePage: (() => void) | undefined;
  /** The server has asked the client to reconnect at a random moment within this time. */
  #retryMs: number | undefined;

  /** Nothing happens before `open`. `first`: the socket that `connect` has opened. */
  constructor(plan: ClientPlan, first: Admitted) {
    this.deadline = 0;
    this.#plan = plan;
    this.#opened = first;
    this.link = this.#makeLink();
    if (plan.heartbeat !== undefined) this.#watch = new Watch(this, plan.heartbeat);
  }

  /** Attaches the first socket, which is started with the link. */
  open(): void {
    this.#attach(this.#opened, false);
  }

  /** Keeps the client connected until `peer`, which has the link, is closed. */
  run(peer: AnyPeer): void {
    this.#peer = peer;
    const wake = (): void => {
      this.#watch?.doubt();
      this.#skipDelay?.();
    };
    // Otherwise the server would keep the session of a page that is gone, and other users would see its peer.
    this.#ignorePage = watchPage(wake, () => endPeer(peer, CloseCode.GoingAway, "the page is left"));
  }

  /** Backs off and connects, until there is a socket, the server refuses this client, or the peer is closed. */
  async #reconnect(): Promise<void> {
    for (;;) {
      await this.#backOff();
      if (this.#isOver) return;
      try {
        const isResumable = this.link.endpoint.state.session !== undefined;
        this.#attempt = new AbortController();
        const opened = await this.#plan.connect(isResumable, this.#wasGreeted, this.#attempt.signal);
        this.#attempt = undefined;
        if (this.#isOver) opened.socket.discard(CloseCode.Superseded, "the peer is closed");
        else this.#attach(opened, isResumable);
        return;
      } catch (error) {
        if (this.#isOver) return;
        if (isFinal(error)) return this.#giveUp(error as Error);
      }
    }
  }

  /** Resolves when it is time to connect again: at once if the page wakes up, or the peer is closed. */
  async #backOff(): Promise<void> {
    const delayMs = this.#backoff.nextDelayMs();
    const windowMs = this.#retryMs;
    this.#retryMs = undefined;
    const ms = windowMs === undefined ? delayMs : Math.random() * Math.min(windowMs, MAX_RETRY_MS);
    await new Promise<void>((resolve) => {
      this.#skipDelay = resolve;
      setDeadline(this, Math.round(ms / STEP_MS) * STEP_MS);
    });
    clearDeadline(this);
    this.#skipDelay = undefined;
  }

  /** The delay is over, or no messages began to flow on the new socket. */
  expire(): void {
    if (this.#isDown) this.#skipDelay?.();
    else this.link.giveUp(`messages did not flow within ${this.#plan.openTimeoutMs} ms`);
  }

  /** `isAwaited`: as of `Endpoint.attach`. */
  #attach(opened: Admitted, isAwaited: boolean): void {
    this.#isDown = false;
    this.#opened = opened;
    setDeadline(this, this.#plan.openTimeoutMs);
    this.link.attach(opened.socket, this.#isAgreed(), opened.hello, isAwaited);
  }

  /** Whether the server speaks `reciproc.v1`. One that has sent a hello before does not only if its first frame is none. */
  #isAgreed(): boolean {
    const { protocol, hello } = this.#opened;
    return protocol === PROTOCOL && (hello !== undefined || !this.#wasGreeted);
  }

  // What the link reports.

  flows(): void {
    clearDeadline(this);
    const { state, isToReciproc } = this.link.endpoint;
    this.#wasGreeted ||= isToReciproc;
    this.#hadSession ||= state.session !== undefined;
    this.#backoff.opened();
    this.#watch?.start();
    const { onOpen } = this.#plan;
    const isAgain = this.#isSuccessor;
    this.#isSuccessor = false;
    if (isAgain && onOpen !== undefined) void this.#greetAgain(onOpen);
  }

  suspended(): void {
    this.#down();
  }

  over(): void {
    this.#isOver = true;
    this.#ignorePage?.();
    this.#watch?.stop();
    clearDeadline(this);
    this.#attempt?.abort();
    this.#skipDelay?.();
  }

  succeed({ code, retryMs }: CloseInfo): Transport | undefined {
    const { reconnects, onOpen } = this.#plan;
    const mayReconnect = reconnects ?? (onOpen !== undefined || this.#hadSession);
    if (this.#isOver || !mayReconnect || !CloseCode.shouldReconnect(code)) return undefined;
    this.#retryMs = retryMs;
    this.link = this.#makeLink(this.link);
    this.#down();
    return this.link;
  }

  discarded(reason: string): void {
    const before = this.link;
    this.link = this.#makeLink(before);
    before.handOver(this.link, reason, this.#isAgreed(), this.#opened.hello);
  }

  #makeLink(lost?: PackedLink): PackedLink {
    const { limits, reconnects } = this.#plan;
    this.#isSuccessor = lost !== undefined;
    return new PackedLink(limits, reconnects !== false, this, lost);
  }

  /** There is no socket. */
  #down(): void {
    if (this.#isDown) return;
    this.#isDown = true;
    this.#watch?.stop();
    clearDeadline(this);
    void this.#reconnect();
  }

  #giveUp(error: Error): void {
    this.#isOver = true;
    const code = error instanceof ConnectError ? CloseCode.fromHttpStatus(error.status!) : CloseCode.Abnormal;
    this.link.endpoint.end(code, error.message, error);
  }

  async #greetAgain(onOpen: OnOpen): Promise<void> {
    const opening = openingOf(this.#peer);
    const { link } = this;
    try {
      await greet(this.#peer, onOpen, opening);
    } catch (error) {
      // The connection was lost meanwhile, and another one has begun.
      if (opening.isOver()) return;
      tell(this.#peer, "error", [error]);
      link.endpoint.restart("`onOpen` failed");
    }
  }
}
