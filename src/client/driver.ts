/**
 * Gives a client its sockets: takes the first one, and after each loss backs off and connects until there is another, the server
 * refuses the client, or the peer is closed. `close-codes.ts` lists the effect of each close code.
 */
import * as CloseCode from "../close-codes.js";
import { clearDeadline, setDeadline, type Expiring } from "../core/deadlines.js";
import { ConnectError } from "../core/errors.js";
import type { HeartbeatTimes } from "../link/heartbeat.js";
import { tell } from "../core/tell.js";
import type { CloseInfo, Transport } from "../core/transport.js";
import { endPeer, openingOf, type AnyPeer } from "../peer/peer.js";
import type { Caller } from "../peer/caller.js";
import type { EndpointLimits } from "../session/state.js";
import { MAX_RETRY_MS } from "../session/frames.js";
import { PackedLink, PROTOCOL, type LinkDelegate } from "../session/link.js";
import { Backoff } from "./backoff.js";
import type { Admitted } from "./open.js";
import { Watch, watchPage } from "./watch.js";

/** Sends the first messages of a new connection, before all others. */
export type OnOpen = (server: Caller<any>) => unknown;

/** The options by which a client connects and reconnects. */
export interface ClientPlan {
  readonly limits: EndpointLimits;
  readonly onOpen: OnOpen | undefined;
  /** Whether the client reconnects. `undefined`: only if it had a session, or has `onOpen`. */
  readonly reconnects: boolean | undefined;
  readonly heartbeat: HeartbeatTimes | undefined;
  /** The time from the opening of a socket until messages flow on it, at most, in milliseconds. */
  readonly openTimeoutMs: number;
  /** Makes one connection attempt. Rejects with a `ConnectError`, or with an error after which no attempt is made again. */
  connect(attempt: ConnectionAttempt): Promise<Admitted>;
}

/** One attempt of a client to open a connection. */
export interface ConnectionAttempt {
  /** Counts the attempts, from 1, since messages last flowed; for the first connection, since the peer was made. */
  readonly number: number;
  /** Why the previous attempt failed, or how the previous connection ended; `undefined` for the first attempt of all. */
  readonly reason: Error | CloseInfo | undefined;
  /** Whether there is a session to resume. */
  readonly isResumable: boolean;
  /** As in `Attempt` of `open.ts`. */
  readonly isKnown: boolean;
  /** Ends the attempt when it aborts. */
  readonly signal: AbortSignal | undefined;
}

/** Delays are multiples of this number, because deadlines of equal length share a queue. */
const STEP_MS = 10;

/** Returns true if a connection attempt must not be repeated: the server refused this client, or the runtime refused to connect. */
export function isFinal(error: unknown): boolean {
  return !(error instanceof ConnectError) || error.status === 401 || error.status === 403;
}

/** Runs `onOpen`, and then sends the queued messages. Rejects if `onOpen` does. */
export async function greet(peer: AnyPeer, onOpen: OnOpen, opening = openingOf(peer)): Promise<void> {
  await onOpen(opening.caller);
  opening.release();
}

/** Connects and reconnects one client. Its deadline limits the wait for messages on a new socket, and the delay before an attempt. */
export class ClientDriver implements LinkDelegate, Expiring {
  declare deadline: number;
  /** The link of the present connection. A new link replaces it when the connection is lost. */
  declare link: PackedLink;
  readonly #plan: ClientPlan;
  readonly #watch: Watch | undefined;
  readonly #backoff = new Backoff();
  #peer!: AnyPeer;
  /** The result of the newest connection attempt. */
  #opened: Admitted;
  /** Aborts the present connection attempt. Made for each attempt, because it takes memory. */
  #attempt: AbortController | undefined;
  /** Whether the peer is closed, or the server has refused this client. */
  #isOver = false;
  /** The number of connection attempts since messages last flowed. */
  #attempts = 0;
  /** True while there is no socket. Then `#reconnect` runs. */
  #isDown = false;
  /** True if `link` replaced a lost one, until messages flow on it. */
  #isSuccessor = false;
  /** True after the first hello of the server. */
  #wasGreeted = false;
  /** True after the first session. */
  #hadSession = false;
  /** Ends the delay before an attempt. */
  #skipDelay: (() => void) | undefined;
  #ignorePage: (() => void) | undefined;
  /** The server asked the client to reconnect after a random time up to this, in milliseconds. */
  #retryMs: number | undefined;

  /** Does nothing before `open`. `first`: the result of the attempt that `connect` made. */
  constructor(plan: ClientPlan, first: Admitted) {
    this.deadline = 0;
    this.#plan = plan;
    this.#opened = first;
    this.link = this.#makeLink();
    if (plan.heartbeat !== undefined) this.#watch = new Watch(this, plan.heartbeat);
  }

  /** Attaches the first socket. The link starts it. */
  open(): void {
    this.#attach(this.#opened, false);
  }

  /** Reconnects the client until `peer` is closed. */
  run(peer: AnyPeer): void {
    this.#peer = peer;
    const wake = (): void => {
      this.#watch?.check();
      // A time that the server asked for is not cut short: it spreads the clients of a server that restarts.
      if (this.#retryMs === undefined) this.#skipDelay?.();
    };
    // Without this close, the server would keep the session of a closed page, and other users would see its peer.
    this.#ignorePage = watchPage(wake, () => endPeer(peer, CloseCode.GoingAway, "the page is left"));
  }

  /** Backs off and connects, until there is a socket, the server refuses this client, or the peer is closed. */
  async #reconnect(lost: CloseInfo): Promise<void> {
    let reason: Error | CloseInfo = lost;
    for (;;) {
      await this.#backOff();
      if (this.#isOver) return;
      try {
        const isResumable = this.link.endpoint.state.session !== undefined;
        this.#attempt = new AbortController();
        const number = ++this.#attempts;
        const { signal } = this.#attempt;
        const opened = await this.#plan.connect({ number, reason, isResumable, isKnown: this.#wasGreeted, signal });
        this.#attempt = undefined;
        if (this.#isOver) opened.socket.discard(CloseCode.Superseded, "the peer is closed");
        else this.#attach(opened, isResumable);
        return;
      } catch (error) {
        if (this.#isOver) return;
        if (isFinal(error)) return this.#giveUp(error as Error);
        reason = error as Error;
      }
    }
  }

  /** Resolves after the delay before the next attempt, and at once if the page wakes up in a delay of its own or the peer is closed. */
  async #backOff(): Promise<void> {
    const delayMs = this.#backoff.nextDelayMs();
    const windowMs = this.#retryMs;
    const ms = windowMs === undefined ? delayMs : Math.random() * Math.min(windowMs, MAX_RETRY_MS);
    await new Promise<void>((resolve) => {
      this.#skipDelay = resolve;
      setDeadline(this, Math.round(ms / STEP_MS) * STEP_MS);
    });
    clearDeadline(this);
    this.#skipDelay = this.#retryMs = undefined;
  }

  /** Ends the delay before an attempt, or drops a new socket on which no messages flow in time. */
  expire(): void {
    if (this.#isDown) this.#skipDelay?.();
    else this.link.giveUp(`messages did not flow within ${this.#plan.openTimeoutMs} ms`);
  }

  /** Gives a new socket to the link. `isAwaited`: as in `Endpoint.attach`. */
  #attach(opened: Admitted, isAwaited: boolean): void {
    this.#isDown = false;
    this.#opened = opened;
    setDeadline(this, this.#plan.openTimeoutMs);
    this.link.attach(opened.socket, this.#isAgreed(), opened.hello, isAwaited);
  }

  /** Whether the server speaks `reciproc.v1`. If it sent a hello on an earlier socket, its first frame must be a hello again. */
  #isAgreed(): boolean {
    const { protocol, hello } = this.#opened;
    return protocol === PROTOCOL && (hello !== undefined || !this.#wasGreeted);
  }

  // Reports of the link.

  flows(): void {
    clearDeadline(this);
    const { state, isToReciproc } = this.link.endpoint;
    this.#wasGreeted ||= isToReciproc;
    this.#hadSession ||= state.session !== undefined;
    this.#backoff.opened();
    this.#attempts = 0;
    this.#watch?.start();
    const { onOpen } = this.#plan;
    const isAgain = this.#isSuccessor;
    this.#isSuccessor = false;
    if (isAgain && onOpen !== undefined) void this.#greetAgain(onOpen);
  }

  suspended(end: CloseInfo): void {
    this.#down(end);
  }

  over(): void {
    this.#isOver = true;
    this.#ignorePage?.();
    this.#watch?.stop();
    clearDeadline(this);
    this.#attempt?.abort();
    this.#skipDelay?.();
  }

  succeed(end: CloseInfo): Transport | undefined {
    const { code, retryMs } = end;
    const { reconnects, onOpen } = this.#plan;
    const mayReconnect = reconnects ?? (onOpen !== undefined || this.#hadSession);
    if (this.#isOver || !mayReconnect || !CloseCode.shouldReconnect(code)) return undefined;
    this.#retryMs = retryMs;
    this.link = this.#makeLink(this.link);
    this.#down(end);
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

  /** Begins to reconnect, because the socket is lost. */
  #down(end: CloseInfo): void {
    if (this.#isDown) return;
    this.#isDown = true;
    this.#watch?.stop();
    clearDeadline(this);
    void this.#reconnect(end);
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
      // If the connection was lost meanwhile, the next connection runs `onOpen` again.
      if (opening.isOver()) return;
      tell(this.#peer, "error", [error]);
      link.endpoint.restart("`onOpen` failed");
    }
  }
}
