/**
 * A connection that speaks `reciproc.v1`: joins an `Endpoint`, which decides, to the socket that it has at present, to the end of
 * the tick, and to the budget of each tick. What only a server does is in `server/link.ts`.
 */
import * as CloseCode from "../close-codes.js";
import { clearDeadline, setDeadline, type Expiring } from "../core/deadlines.js";
import {
  addTraffic,
  endOf,
  type CloseInfo,
  type Receiver,
  type SendHandle,
  type Traffic,
  type Transport,
} from "../core/transport.js";
import type { Socket, SocketBudget, SocketHandler } from "../link/socket.js";
import { Coalescer } from "../link/coalescer.js";
import { Endpoint, type EndpointHooks, type EndpointLimits } from "./endpoint.js";
import { longestFrame } from "./sizes.js";

/** The subprotocol's name. */
export const PROTOCOL = "reciproc.v1";

/** How often a full socket is checked for room. Not every runtime reports when a socket drains. */
export const DRAIN_CHECK_MS = 20;

/**
 * A pack of so many messages leaves at once, and so does one whenever their number has doubled. Without this bound the two sides
 * work one after the other instead of side by side (docs/PERFORMANCE.md).
 */
const PACK_MESSAGES = 16;

/** What brings a link its sockets: the client's driver, or the server's registry of sessions. */
export interface LinkDelegate {
  /** Messages flow on the present socket. */
  flows?(): void;
  /** The session has lost its socket, and the receiver knows. */
  suspended?(): void;
  /** The session cannot be resumed any more. May be called twice. */
  dropped?(): void;
  /** The connection is over. Returns the link on which the peer goes on, if there is one. */
  succeed?(end: CloseInfo): Transport | undefined;
  /** The connection is over, and no other follows. Called before the receiver is. */
  over?(): void;
  /** The other side does not have the session. On a client, the delegate calls `handOver`. */
  discarded(reason: string): void;
}

/** One connection over a socket on which `reciproc.v1` was agreed, and with a session over those that follow. */
export class PackedLink implements Transport, SocketHandler, EndpointHooks, Expiring {
  /** When a full socket is checked for room, or a session without a socket is over. */
  declare deadline: number;
  /** How many frames have come, on any socket: a connection on which it grows is alive. */
  declare heard: number;
  declare readonly endpoint: Endpoint;
  declare socket: Socket | undefined;
  /** The budget of the newest socket. It outlives that socket, as do the messages of a pack that was counted as received. */
  declare budget: SocketBudget | undefined;
  readonly delegate: LinkDelegate | undefined;
  readonly #coalescer = new Coalescer(this, PACK_MESSAGES);
  /** Undefined until `start`: sockets are started from then on. */
  #receiver: Receiver | undefined;
  /** Whether the receiver knows that the connection is suspended. */
  #isSuspended: boolean;
  /** Rule 8: when the session is over, unless messages flow before. */
  #expiresAt = Infinity;
  /** Whether the end is reported, or was asked for by `close`. */
  #isOver = false;
  /** What went over the sockets before the present one. */
  #past: Traffic | undefined;

  /** `lost`: the link in whose place this one goes on. Its receiver is suspended, and counts what went over both. */
  constructor(limits: EndpointLimits, wantsSession: boolean, delegate: LinkDelegate | undefined, lost?: PackedLink) {
    this.deadline = this.heard = 0;
    this.socket = this.budget = undefined;
    this.delegate = delegate;
    this.#isSuspended = lost !== undefined;
    if (lost !== undefined) this.#past = lost.#past;
    this.endpoint = new Endpoint(limits, wantsSession, this);
  }

  // Transport.

  start(receiver: Receiver): void {
    this.#receiver = receiver;
    this.socket?.start(this);
  }

  send(text: string, handle?: SendHandle): boolean {
    const isTaken = this.endpoint.send(text, handle);
    this.collected();
    return isTaken;
  }

  /** The endpoint may have collected a message for the end of the tick, or have found its socket full. */
  collected(): void {
    const { endpoint } = this;
    if (endpoint.length > 0) this.#coalescer.added(endpoint.length);
    if (endpoint.isWireFull) this.#watchDrain();
  }

  cancel(handle: SendHandle): boolean {
    return this.endpoint.cancel(handle);
  }

  close(code = CloseCode.Normal as number, reason = "", retryMs?: number): void {
    if (this.#isOver) return;
    this.#isOver = true;
    const { endpoint, socket } = this;
    const hasEnded = endpoint.state.kind === "ended";
    const isTold = endpoint.close({ code, reason, retryMs });
    this.#drop();
    // The socket of an ended connection closes already, or the other side is about to close it.
    if (isTold || (hasEnded && socket !== undefined)) return socket!.close(code, reason);
    this.leave(reason);
    this.#report({ code, reason });
  }

  /** The other side reads too slowly: ends the session. Returns false if there is none. */
  endSession(reason: string): boolean {
    const { state } = this.endpoint;
    if (state.session !== undefined) this.endpoint.end(CloseCode.TryAgainLater, reason);
    // The socket of a session that has ended may still be closing.
    return state.session !== undefined || state.kind === "ended";
  }

  afterRead(then: () => void): boolean {
    this.flush();
    const { isFlowing, queuedLength } = this.endpoint;
    return isFlowing && queuedLength === 0 && (this.socket?.afterRead?.(then) ?? false);
  }

  get isReciproc(): boolean {
    return this.endpoint.isToReciproc;
  }

  get maxMessageBytes(): number | undefined {
    return this.endpoint.state.session?.theirs?.maxMessageBytes;
  }

  /** What is queued without a socket waits for one, and not for a slow reader. */
  get unsentBytes(): number {
    const { endpoint, socket } = this;
    return (socket?.unsentBytes ?? 0) + (endpoint.isFlowing ? endpoint.queuedLength : 0);
  }

  get traffic(): Traffic | undefined {
    return addTraffic(this.#past, this.socket?.traffic);
  }

  // Sockets.

  /** When anything last came on the present socket, by `performance.now()`, where the socket notes it. */
  get heardAt(): number | undefined {
    return this.socket?.heardAt;
  }

  /** Whether the other side answers pings. */
  get canPing(): boolean {
    return this.endpoint.isToReciproc || this.socket?.ping !== undefined;
  }

  ping(): void {
    if (this.endpoint.isToReciproc) this.endpoint.ping();
    else this.socket?.ping?.();
  }

  /** Client: takes the first or the next socket. As `Endpoint.attach`. */
  attach(socket: Socket, isAgreed: boolean, hello: unknown, isAwaited: boolean): void {
    if (this.endpoint.state.kind === "ended") return socket.discard(CloseCode.Superseded, "the connection is over");
    this.take(socket);
    this.endpoint.attach(socket, isAgreed, hello, isAwaited);
    this.settleOutput();
    if (this.#receiver !== undefined && this.socket === socket) socket.start(this);
  }

  /** Client: the session is lost, and its socket is not. The receiver goes on with `next`, which takes the socket over. */
  handOver(next: PackedLink, reason: string, isAgreed: boolean, hello: unknown): void {
    this.#isOver = true;
    this.#drop();
    this.#receiver!.lost!(new Error(reason), next);
    // A listener of `lost` may have closed the peer.
    next.attach(this.#detach()!, isAgreed, hello, true);
  }

  /** Makes a socket the present one. */
  take(socket: Socket): void {
    const { budget } = socket;
    if (this.budget !== undefined && budget !== this.budget) budget?.adopt(this.budget);
    this.budget = budget;
    socket.maxFrameBytes = longestFrame(this.endpoint.limits.maxMessageBytes);
    this.socket = socket;
  }

  /** Closes the socket, and reads and reports nothing more of it. */
  leave(reason: string): void {
    this.#detach()?.discard(CloseCode.Superseded, reason);
  }

  /** Gives the socket up: what follows is as if it had been lost. */
  giveUp(reason: string): void {
    if (this.socket === undefined) return;
    this.leave(reason);
    this.#lost({ code: CloseCode.Abnormal, reason });
  }

  #detach(): Socket | undefined {
    const { socket } = this;
    this.#past = this.traffic;
    this.socket = undefined;
    return socket;
  }

  /** A frame came on the present socket. */
  frame(text: string): void {
    this.heard++;
    this.endpoint.receive(text);
    this.settleOutput();
  }

  /** The present socket is closed. */
  closed(end: CloseInfo): void {
    this.#detach();
    this.#lost(end);
  }

  #lost(told: CloseInfo): void {
    const { endpoint } = this;
    if (this.#isOver) return this.#report(told);
    endpoint.detach(told);
    const { state } = endpoint;
    // Only for 1009 the code that came back counts.
    if (state.kind === "ended")
      return this.#finish(state.end.code === CloseCode.MessageTooBig ? endOf(told, state.end) : state.end);
    if (this.checkExpiry()) return;
    if (this.#expiresAt === Infinity) {
      setDeadline(this, state.session!.ttlMs);
      this.#expiresAt = this.deadline;
    }
    this.#suspend();
    if (!this.#isOver) this.delegate!.suspended?.();
  }

  /** Ends a session without a socket whose time is over. Its timer may be late. Returns true if the session is over. */
  checkExpiry(): boolean {
    if (this.socket !== undefined || performance.now() < this.#expiresAt) return false;
    const { ttlMs } = this.endpoint.state.session!;
    this.endpoint.end(CloseCode.Abnormal, `the session was not resumed within ${ttlMs} ms`);
    return true;
  }

  /** Stops the timer, of a session that is resumed or over, or of a socket that is left. */
  #stopTimer(): void {
    clearDeadline(this);
    this.deadline = 0;
    this.#expiresAt = Infinity;
  }

  /** The tick ends, or the socket is about to close for what the other side did. */
  flush(): void {
    this.endpoint.flush();
    this.settleOutput();
  }

  /** What the endpoint has left for the end of the tick, or for a socket that is full. */
  settleOutput(): void {
    const { endpoint } = this;
    if (endpoint.hasOutput) this.#coalescer.schedule();
    if (endpoint.isWireFull) this.#watchDrain();
  }

  #watchDrain(): void {
    if (this.deadline === 0) setDeadline(this, DRAIN_CHECK_MS);
  }

  /** The full socket is checked for room, or the time of a session without a socket is over. */
  expire(): void {
    if (this.#expiresAt !== Infinity) return void this.checkExpiry();
    this.deadline = 0;
    this.endpoint.drained();
    this.settleOutput();
  }

  // What the endpoint reports.

  receiveText(text: string): void {
    this.#receiver!.receive(text);
  }

  /** Dispatches the messages of a pack from the one at `from` on, in as many ticks as the budget needs. */
  receivePack(messages: unknown[], from = 0): void {
    for (let i = from; i < messages.length; i++) {
      // A connection may end while it takes these.
      if (this.endpoint.state.kind === "ended") return;
      if (i > from && this.budget?.isSpent()) return this.budget.defer(() => this.receivePack(messages, i));
      this.#receiver!.dispatch(messages[i]);
    }
  }

  flows(): void {
    this.#stopTimer();
    this.delegate?.flows?.();
    if (!this.#isSuspended || this.#isOver) return;
    this.#isSuspended = false;
    this.#receiver!.resumed?.();
  }

  ended(end: CloseInfo, isRemote: boolean): void {
    this.#drop();
    // Not inside the call that has ended it.
    if (this.socket === undefined) queueMicrotask(() => this.#finish(end));
    else if (!isRemote) this.socket.close(end.code, end.reason);
  }

  discarded(reason: string): void {
    this.delegate!.discarded(reason);
  }

  /** The session cannot be resumed any more. */
  #drop(): void {
    this.#stopTimer();
    this.delegate?.dropped?.();
  }

  #suspend(): void {
    if (this.#isSuspended) return;
    this.#isSuspended = true;
    this.#receiver!.suspended?.();
  }

  /** The connection is over. The receiver goes on with another one, if the delegate has one. */
  #finish(end: CloseInfo): void {
    if (this.#isOver) return;
    this.#drop();
    const receiver = this.#receiver!;
    const next = receiver.lost && this.delegate?.succeed?.(end);
    if (next !== undefined) this.#suspend();
    // A listener of `suspend` may have closed the peer.
    if (this.#isOver) return;
    this.#isOver = true;
    if (next === undefined) this.#report(end);
    else receiver.lost!(lossOf(end), next);
  }

  #report(end: CloseInfo): void {
    this.delegate?.over?.();
    this.#receiver!.closed(end);
  }
}

/** Returns the end of a session as an error. */
function lossOf({ code, reason, error }: CloseInfo): Error {
  return error ?? new Error(`the session ended with ${code}${reason && ` (${reason})`}`);
}
