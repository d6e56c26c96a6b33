/** Brings a client a socket when it has lost one, for as long as somebody wants it. */
import { clearDeadline, setDeadline, type Expiring } from "../core/deadlines.js";
import { ConnectError } from "../core/errors.js";
import type { HeartbeatTimes } from "../core/heartbeat.js";
import { tell } from "../core/tell.js";
import type { CloseInfo } from "../core/transport.js";
import { Backoff } from "../link/backoff.js";
import type { ClientSession, SocketOwner } from "../link/client.js";
import { LEFT, MAX_RETRY_MS } from "../link/frames.js";
import type { Caller } from "../peer/caller.js";
import { endPeer, openingOf, type AnyPeer } from "../peer/peer.js";
import type { Admitted, Dial } from "./open.js";
import { onLeave, onWake, Watch } from "./watch.js";

/** Says how to begin again: what the other side must hear before anything else. */
export type OnOpen = (server: Caller<any>) => unknown;

/** How a client comes back. */
export interface ReconnectPlan {
  readonly onOpen: OnOpen | undefined;
  /** Whether it does. `undefined`: where there is a session, or `onOpen` says how to begin again. */
  readonly comesBack: boolean | undefined;
  readonly heartbeat: HeartbeatTimes | undefined;
  /** How long an open connection may take until messages flow on it, in milliseconds. */
  readonly openTimeoutMs: number;
  /** Where to connect to, with what is to be offered now. */
  dial(isResumable: boolean): Dial;
}

/** Waits are multiples of this: deadlines of equal length share a queue, and many clients of a process many of them. */
const STEP_MS = 10;

/** Whether a try failed for good: the server refused this client, or it was never made, because the runtime would not. */
export function isForGood(error: unknown): boolean {
  return !(error instanceof ConnectError) || error.status === 401 || error.status === 403;
}

/** Sends what the other side must hear first, and then whatever waits. Rejects as `onOpen` does. */
export async function greet(peer: AnyPeer, onOpen: OnOpen, opening = openingOf(peer)): Promise<void> {
  await onOpen(opening.caller);
  opening.release();
}

/** Owns the sockets of one client. */
export class Reconnector implements SocketOwner, Expiring {
  deadline = 0;
  readonly #plan: ReconnectPlan;
  readonly #backoff = new Backoff();
  #session!: ClientSession;
  #peer!: AnyPeer;
  #watch: Watch | undefined;
  /** Whether the connection is the one that `connect` opened. */
  #isFirst = true;
  /** The try that is under way. */
  #dial: Dial | undefined;
  /** How long the next is put off; `undefined` when none is due. */
  #delayMs: number | undefined;
  /** Gives up a socket on which nothing begins to flow. */
  readonly #patience: Expiring = {
    deadline: 0,
    expire: () => this.#session.link.giveUp(`messages did not flow within ${this.#plan.openTimeoutMs} ms`),
  };
  #isOver = false;

  constructor(plan: ReconnectPlan) {
    this.#plan = plan;
  }

  /** From now on it looks after this client, which is connected. */
  begin(session: ClientSession, peer: AnyPeer): void {
    this.#session = session;
    this.#peer = peer;
    this.#backoff.opened();
    const { heartbeat } = this.#plan;
    if (heartbeat !== undefined) {
      this.#watch = new Watch(session.link, heartbeat);
      this.#watch.start();
    }
    const ignoreWake = onWake(() => this.#woke());
    // Otherwise its session would wait for it, and others would see somebody who is gone.
    const ignoreLeave = onLeave(() => endPeer(peer, 1001, "the page is left"));
    void peer.closed.then(() => {
      ignoreWake();
      ignoreLeave();
      this.#stop();
    });
  }

  get endsWithSocket(): boolean {
    return this.#plan.comesBack === false;
  }

  suspended(): void {
    this.#down();
    this.#retry();
  }

  flows(isFresh: boolean): void {
    clearDeadline(this.#patience);
    this.#watch?.start();
    if (this.#isFirst) return;
    this.#backoff.opened();
    const { onOpen } = this.#plan;
    if (isFresh && onOpen !== undefined) void this.#greetAgain(onOpen);
  }

  over({ code, retryMs }: CloseInfo): boolean {
    this.#down();
    if (this.#isOver || isMeant(code) || !this.#comesBack) return false;
    this.#retry(retryMs && Math.min(retryMs, MAX_RETRY_MS));
    return true;
  }

  /** Time to try. */
  expire(): void {
    this.#delayMs = undefined;
    void this.#try();
  }

  get #comesBack(): boolean {
    const { comesBack, onOpen } = this.#plan;
    return comesBack ?? (onOpen !== undefined || this.#session.hadSession);
  }

  #down(): void {
    this.#isFirst = false;
    this.#watch?.stop();
    clearDeadline(this.#patience);
  }

  /** Tries when it is time to; `windowMs`: at any time up to then. */
  #retry(windowMs?: number): void {
    if (this.#isOver || this.#dial !== undefined || this.#delayMs !== undefined) return;
    const delayMs = this.#backoff.nextDelayMs();
    this.#delayMs = Math.round((windowMs === undefined ? delayMs : Math.random() * windowMs) / STEP_MS) * STEP_MS;
    setDeadline(this, this.#delayMs);
  }

  async #try(): Promise<void> {
    const dial = (this.#dial = this.#plan.dial(this.#session.isResumable));
    try {
      const admitted = await dial.connect(this.#session.wasGreeted);
      this.#dial = undefined;
      this.#use(admitted);
    } catch (error) {
      this.#dial = undefined;
      if (this.#isOver) return;
      if (isForGood(error)) this.#failed(error as Error);
      else this.#retry();
    }
  }

  #use({ socket, hello }: Admitted): void {
    if (this.#isOver) return socket.discard(LEFT, "nobody waits for it");
    setDeadline(this.#patience, this.#plan.openTimeoutMs);
    this.#session.attach(socket, hello !== undefined);
  }

  /** There is no way back. */
  #failed(error: Error): void {
    const code = error instanceof ConnectError ? 4000 + error.status! : 1006;
    this.#session.link.expire(code, error.message, error);
    this.#isOver = true;
  }

  async #greetAgain(onOpen: OnOpen): Promise<void> {
    const opening = openingOf(this.#peer);
    try {
      await greet(this.#peer, onOpen, opening);
    } catch (error) {
      // Of what was lost meanwhile another has begun.
      if (opening.isOver()) return;
      tell(this.#peer, "error", [error]);
      const { link } = this.#session;
      const reason = "`onOpen` failed";
      // Or the server would keep the session.
      if (link.session !== undefined) link.say({ bye: { code: LEFT, reason } });
      link.expire(LEFT, reason);
    }
  }

  #woke(): void {
    this.#watch?.doubt();
    if (this.#delayMs === undefined) return;
    clearDeadline(this);
    this.expire();
  }

  #stop(): void {
    this.#isOver = true;
    this.#down();
    clearDeadline(this);
    this.#dial?.abandon("nobody waits for it");
  }
}

/** Whether an end was meant for good: closed by will, or refused. */
function isMeant(code: number): boolean {
  return code === 1000 || (code >= 4400 && code < 4500);
}
