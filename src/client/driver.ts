/**
 * Gives a client its sockets: the first one, and another after each loss. Connects and backs off until there is a socket, the
 * server refuses the client, or the peer is closed. `message/close-codes.ts` decides by the code of a close.
 */
import * as CloseCode from "../message/close-codes.js";
import { clearDeadline, setDeadline, type Expiring } from "../base/deadlines.js";
import { ConnectError } from "../message/errors.js";
import { Heartbeat, type HeartbeatTimes } from "../socket/heartbeat.js";
import { errorOfEnd, type CloseInfo, type SocketSource } from "../message/transport.js";
import type { Config } from "../peer/config.js";
import type { Connection } from "../peer/connection.js";
import { connectionOf, endPeer, openingCaller, type AnyPeer } from "../peer/peer.js";
import type { Caller } from "../peer/caller.js";
import { PROTOCOL, type LinkDelegate, type NegotiatedLink } from "../session/link.js";
import { Backoff, type DelayRange } from "./backoff.js";
import type { Credentials } from "./credentials.js";
import { attemptConnection, type HandshakeResult, type ConnectAttempt, type ConnectPlan } from "./open.js";
import { watchPage } from "./page.js";

/** Sends the first messages of a new connection, before all others. */
export type OnOpen = (server: Caller<any>) => unknown;

/** The options by which a client connects and reconnects, without those that differ from client to client. */
export interface ClientPlan extends ConnectPlan, DelayRange {
  /** The config of its peer. */
  readonly config: Config;
  readonly onOpen: OnOpen | undefined;
  /** The timeout of an attempt, from its start until `onOpen` is done, in milliseconds. */
  readonly openTimeoutMs: number;
  /** Whether the client reconnects. `undefined`: only if it had a session, or has `onOpen`. */
  readonly reconnects: boolean | undefined;
  /** Whether the client retries until its first connection is open. Otherwise, the first failure ends the peer. */
  readonly retriesFirst: boolean;
  readonly heartbeat: HeartbeatTimes | undefined;
  /** The class of its link. */
  readonly Link: typeof NegotiatedLink;
}

/** Delays are rounded up to multiples of this, because `base/shared-timer.ts` has one list for each length. */
const STEP_MS = 10;

/** Connects and reconnects one client. Its deadline limits the delay before an attempt, and then the attempt. */
export class ClientDriver implements LinkDelegate, Expiring {
  declare deadline: number;
  declare readonly link: NegotiatedLink;
  declare readonly freshAuth: SocketSource["freshAuth"];
  readonly #plan: ClientPlan;
  readonly #credentials: Credentials;
  /** Runs while messages flow, if the other side answers pings. */
  #heartbeat: Heartbeat | undefined;
  readonly #backoff: Backoff;
  #peer!: AnyPeer;
  /** Whether the server of the present socket takes `auth`; `undefined` while there is no socket, and `#connect` runs. */
  #takesAuth: boolean | undefined;
  /** The newest connection attempt, until it has a socket. */
  #attempt: ConnectAttempt | undefined;
  /** Whether the peer is closed, or the server has refused this client. */
  #isOver = false;
  /** The number of connection attempts since the peer was last open. */
  #attempts = 0;
  /** The newest connection on which messages flowed. */
  #newest: Connection | undefined;
  /** True after the first hello of the server. */
  #hadHello = false;
  /** True after the first session. */
  #hadSession = false;
  /** Ends the delay before an attempt. */
  #skipDelay: (() => void) | undefined;
  #ignorePage: (() => void) | undefined;
  /** `retryMs` of the bye that ended the last session, until the delay after it has ended; `undefined` if the bye had none. */
  #retryMs: number | undefined;

  /** Does nothing before `run`. */
  constructor(plan: ClientPlan, credentials: Credentials) {
    this.deadline = 0;
    this.#plan = plan;
    this.#credentials = credentials;
    this.#backoff = new Backoff(plan);
    if (credentials.offersAuth)
      this.freshAuth = async () => (this.#takesAuth === true ? credentials.freshAuth() : undefined);
    this.link = new plan.Link(plan.limits, plan.reconnects !== false, this);
  }

  /** Connects `peer`, which has `link`, and reconnects it until it is closed. Does nothing for a closed peer. */
  run(peer: AnyPeer): void {
    if (this.#isOver) return;
    this.#peer = peer;
    const wake = (): void => {
      this.#heartbeat?.check();
      // A time that the server asked for is not cut short: it spreads the clients of a server that restarts.
      if (this.#retryMs === undefined) this.#skipDelay?.();
    };
    const offline = (): void => {
      // A connection that would not be made again may survive a short loss of the network.
      if (this.#mayReconnect && peer.state === "open") this.link.dropSocket("the network is offline");
      else this.#heartbeat?.check();
    };
    // Without this close, the server would keep the session of a closed page, and other users would see its peer.
    this.#ignorePage = watchPage(wake, offline, () =>
      endPeer(peer, { code: CloseCode.GoingAway, reason: "the page is left" }),
    );
    void this.#connect();
  }

  /** Ends the delay, if the client is in one. Otherwise resets the delays, and checks an open connection. */
  reconnect(): boolean {
    if (this.#isOver) return false;
    this.#heartbeat?.check();
    if (this.#skipDelay === undefined) this.#backoff.reset();
    else this.#skipDelay();
    return true;
  }

  /**
   * Connects, until there is a socket, the server refuses this client, or the peer is closed. Backs off before each attempt, except
   * the first of all, which has no `reason` and uses up the delay of 0. After a 401, makes one more attempt at once if that may have
   * fresh credentials.
   */
  async #connect(reason?: Error | CloseInfo): Promise<void> {
    const credentials = this.#credentials;
    for (let isFresh = false; ;) {
      const delayMs = isFresh ? 0 : this.#backoff.nextDelayMs(this.#retryMs);
      if (reason !== undefined) await this.#backOff(reason, delayMs);
      if (this.#isOver) return;
      const { session } = this.link.state;
      const number = ++this.#attempts;
      const attempt: ConnectAttempt = { number, reason, session, isKnown: this.#hadHello, onAbort: undefined };
      try {
        this.#attempt = attempt;
        setDeadline(this, this.#plan.openTimeoutMs);
        return this.#attach(await attemptConnection(this.#plan, credentials, attempt), session !== undefined);
      } catch (error) {
        if (this.#isOver) return;
        isFresh = !isFresh && credentials.mayChange && (error as ConnectError).status === 401;
        // Any other error is of the runtime, which refuses to connect.
        const mayRetry = error instanceof ConnectError && CloseCode.shouldRetry(error.status);
        const isLast = !mayRetry || (this.#endsByFailure && session === undefined);
        if (isLast && !isFresh) {
          this.#isOver = true;
          const { status, message } = error as ConnectError;
          const code = status === undefined ? CloseCode.Abnormal : CloseCode.fromHttpStatus(status);
          return this.link.end(code, message, error as Error);
        }
        if (error === credentials.failure) connectionOf(this.#peer).report(error, undefined, "connect");
        reason = error as Error;
      }
    }
  }

  /** Whether a failure ends the peer: it was never open, and is not to retry. */
  get #endsByFailure(): boolean {
    return !this.#plan.retriesFirst && this.#peer.state === "connecting";
  }

  /** Whether the client reconnects after a loss, unless the server says otherwise. */
  get #mayReconnect(): boolean {
    const { reconnects, onOpen } = this.#plan;
    return reconnects ?? (onOpen !== undefined || this.#hadSession);
  }

  /**
   * Resolves after the delay before the next attempt. Resolves earlier if the peer is closed, at `reconnect`, and if the page is shown
   * during a delay that no server asked for.
   */
  async #backOff(reason: Error | CloseInfo, delayMs: number): Promise<void> {
    const ms = Math.ceil(delayMs / STEP_MS) * STEP_MS;
    const delay = new Promise<void>((resolve) => {
      this.#skipDelay = resolve;
      setDeadline(this, ms);
    });
    // A socket that is lost inside an event of the peer: all listeners of that get it before `attempt`.
    await Promise.resolve();
    const error = reason instanceof Error ? reason : errorOfEnd("the connection ended", reason);
    if (!this.#isOver) connectionOf(this.#peer).emit("attempt", { number: this.#attempts + 1, delayMs: ms, error });
    await delay;
    this.#skipDelay = this.#retryMs = undefined;
  }

  /** Ends the delay before an attempt, or an attempt that has taken too long. */
  expire(): void {
    const { openTimeoutMs } = this.#plan;
    const reason = `not open within ${openTimeoutMs} ms`;
    if (this.#skipDelay !== undefined) this.#skipDelay();
    else if (this.#takesAuth === undefined) this.#attempt?.onAbort?.(reason);
    else if (this.link.flowing === undefined) this.link.dropSocket(reason);
    else {
      // An `onOpen` that awaits a call by the peer never ends.
      const hint = "`onOpen` has not ended, and calls by the peer wait for it";
      this.#openFailed(new ConnectError(this.#credentials.publicUrl, `${reason}: ${hint}`));
    }
  }

  /** Gives a new socket to the link. `isAwaited`: as in `Endpoint.begin`. */
  #attach({ socket, protocol, hello, takesAuth }: HandshakeResult, isAwaited: boolean): void {
    this.#takesAuth = takesAuth;
    this.#attempt = undefined;
    const { link } = this;
    const isFirst = this.#peer.state === "connecting";
    // If the server sent a hello on an earlier socket, its first frame must be a hello again.
    const isAgreed = protocol === PROTOCOL && (hello !== undefined || !this.#hadHello);
    link.attach(socket, isAgreed, hello, isAwaited);
    const start = (): void => {
      if (link.socket === socket) socket.start(link);
    };
    // Listeners that the application adds right after `await connect()` must miss nothing.
    if (isFirst) nextTick(start);
    else start();
  }

  // Reports of the link.

  ready(): void {
    const { state, isReciproc } = this.link;
    this.#hadHello ||= isReciproc;
    this.#hadSession ||= state.session !== undefined;
    const { onOpen, heartbeat } = this.#plan;
    this.#stopHeartbeat();
    if (heartbeat !== undefined && this.link.canPing) this.#heartbeat = new Heartbeat(this.link, heartbeat);
    const connection = connectionOf(this.#peer);
    const isNew = this.#newest !== connection;
    this.#newest = connection;
    if (onOpen === undefined || connection.flow.openingQueue === undefined) this.#recordOpen();
    else if (isNew) void this.#runOnOpen(onOpen, connection);
  }

  suspended(end: CloseInfo): void {
    this.#retryMs = end.retryMs;
    // While `#connect` runs, it gives its socket to the next connection.
    if (this.#takesAuth === undefined) return;
    this.#takesAuth = undefined;
    this.#stopHeartbeat();
    void this.#connect(end);
  }

  closed(): void {
    this.#isOver = true;
    this.#ignorePage?.();
    this.#stopHeartbeat();
    clearDeadline(this);
    this.#attempt?.onAbort?.("aborted");
    this.#skipDelay?.();
  }

  continues({ code }: CloseInfo): boolean {
    return !this.#isOver && !this.#endsByFailure && this.#mayReconnect && CloseCode.shouldReconnect(code);
  }

  control(frame: object): void {
    connectionOf(this.#peer).parts.each("control", frame);
  }

  #stopHeartbeat(): void {
    this.#heartbeat?.stop();
    this.#heartbeat = undefined;
  }

  /** Runs `onOpen`, and then sends the queued messages. */
  async #runOnOpen(onOpen: OnOpen, connection: Connection): Promise<void> {
    try {
      await onOpen(openingCaller(this.#peer));
    } catch (error) {
      return this.#openFailed(error as Error, connection);
    }
    // If the connection has ended meanwhile, the next connection runs `onOpen` again.
    if (this.#hasEnded(connection)) return;
    if (this.link.flowing !== undefined) this.#recordOpen();
    connection.release();
  }

  /** Whether a connection has ended, also if its socket is still closing. */
  #hasEnded({ ended }: Connection): boolean {
    return ended !== undefined || this.link.state.kind === "ended";
  }

  /** Messages flow, and `onOpen` is done: the attempt has succeeded. */
  #recordOpen(): void {
    clearDeadline(this);
    // The first loss of a peer has no delay, however soon it comes.
    if (this.#peer.state === "connecting") this.#backoff.reset();
    this.#backoff.succeeded();
    this.#attempts = 0;
  }

  /** Ends a connection whose `onOpen` has failed: the client connects again, unless it was never open and is not to retry. */
  #openFailed(error: Error, connection = connectionOf(this.#peer)): void {
    if (this.#hasEnded(connection)) return;
    if (this.#endsByFailure) return endPeer(this.#peer, { code: CloseCode.Normal, reason: ON_OPEN_FAILED, error });
    // There may be no peer yet to listen to: `connect` with `initial` resolves when `onOpen` is done.
    connection.report(error, undefined, "onOpen");
    this.link.restart(ON_OPEN_FAILED, error);
  }
}

const ON_OPEN_FAILED = "`onOpen` failed";

/**
 * Runs a task in the next tick. A timer of 0 ms takes at least one millisecond. `setImmediate` of Node is faster. Taken when this file
 * is loaded, so that a client opens under the fake timers of a test.
 */
const nextTick: (task: () => void) => unknown =
  (globalThis as { setImmediate?: typeof setImmediate }).setImmediate ?? setTimeout;
