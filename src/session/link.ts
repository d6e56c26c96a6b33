/**
 * A connection that speaks `reciproc.v1`: an endpoint with sockets, timers and a receiver. `server/link.ts` adds the parts of a server.
 */
import * as CloseCode from "../close-codes.js";
import { clearDeadline, setDeadline, type Expiring } from "../core/deadlines.js";
import type { MessageText } from "../core/codec.js";
import {
  addTraffic,
  endOf,
  errorOfEnd,
  type CloseInfo,
  type Dialer,
  type LinkReceiver,
  type SendHandle,
  type Traffic,
  type Link,
} from "../core/transport.js";
import { CLOSE_TIMEOUT_MS, type Socket, type SocketBudget, type SocketHandler } from "../link/socket.js";
import { Coalescer } from "../link/coalescer.js";
import { Endpoint } from "./endpoint.js";
import type { EndpointLimits, Tick } from "./state.js";
import { longestFrame } from "./sizes.js";
import { queueMicrotask } from "../link/tick.js";

/** The name of the subprotocol. */
export const PROTOCOL = "reciproc.v1";

/** The interval between checks of a full socket. Not every runtime reports when a socket has drained. */
export const DRAIN_CHECK_MS = 20;

/**
 * A pack of this many messages is sent at once, and another one whenever the number of messages in the tick has doubled. Without this
 * bound, the two sides would work one after the other instead of at the same time (docs/PERFORMANCE.md).
 */
const PACK_MESSAGES = 16;

/** The object that gives a link its sockets: the driver of a client, or the sessions of a server. */
export interface LinkDelegate extends Dialer {
  /** Reports that messages flow on the present socket. */
  flows?(): void;
  /** Reports that the session has lost its socket, which ended with `end`. Called after the receiver was notified. */
  suspended?(end: CloseInfo): void;
  /** Reports that the session cannot be resumed any more. May be called twice. */
  dropped?(): void;
  /** Reports that the connection has ended. Returns the link of the next connection, if there is one. */
  succeed?(end: CloseInfo): Link | undefined;
  /** Reports that the connection has ended, and no other follows. Called before the receiver is notified. */
  ended?(): void;
  /** Takes a control frame that the endpoint does not know. */
  control?(frame: object): void;
  /** Reports that the other side does not have the session. On a client, the delegate calls `handOver`. */
  discarded(reason: string): void;
}

/** One connection that speaks `reciproc.v1`, over one socket, or with a session over several, one after the other. */
export class PackedLink extends Endpoint implements Link, SocketHandler, Expiring {
  /** When a full socket is checked, a session without a socket expires, or a close must have followed a bye. */
  declare deadline: number;
  declare socket: Socket | undefined;
  /** The budget of the newest socket. It outlives the socket, because received packs are still processed after its loss. */
  declare budget: SocketBudget | undefined;
  declare readonly delegate: LinkDelegate | undefined;
  declare readonly tick: Tick;
  /** Undefined until `start`. Sockets are started after that. */
  declare receiver: LinkReceiver | undefined;
  /** Whether the receiver was notified of the suspension. */
  #isSuspended: boolean;
  /** Rule 8: when the session expires, unless messages flow before. */
  #expiresAt = Infinity;
  /** Whether the end was reported, or `close` was called. */
  #isOver = false;
  /** The traffic of the earlier sockets. */
  #past: Traffic | undefined;

  /** `lost`: the link that this one replaces. Its receiver is suspended, and counts the traffic of both. */
  constructor(limits: EndpointLimits, wantsSession: boolean, delegate: LinkDelegate | undefined, lost?: PackedLink) {
    super(limits, wantsSession);
    this.deadline = 0;
    this.budget = this.receiver = undefined;
    this.delegate = delegate;
    this.#isSuspended = lost !== undefined;
    if (lost !== undefined) this.#past = lost.#past;
    this.tick = new Coalescer(this, PACK_MESSAGES);
  }

  // Link.

  get isConnecting(): boolean {
    return this.state.kind === "connecting";
  }

  start(receiver: LinkReceiver): void {
    this.receiver = receiver;
    // A receiver without a socket is suspended, so that `resumed` is called when there is one.
    this.#isSuspended ||= this.isConnecting;
    this.socket?.start(this);
  }

  close(
    code = CloseCode.Normal as number,
    reason = "",
    retryMs?: number,
    queued?: Iterable<[SendHandle, MessageText]>,
  ): void {
    if (this.#isOver) return;
    this.#isOver = true;
    const { socket } = this;
    const hasEnded = this.state.kind === "ended";
    const wasFlowing = this.sayBye({ code, reason, retryMs }, queued);
    this.#drop();
    // The socket of an ended connection is closing already, or the other side is about to close it.
    if (wasFlowing || (hasEnded && socket !== undefined)) return socket!.close(code, reason);
    this.leave(reason);
    this.#report({ code, reason });
  }

  /** Ends the session, because the other side reads too slowly. Returns false if there is no session. */
  endSession(reason: string): boolean {
    const { state } = this;
    if (state.session !== undefined) this.end(CloseCode.TryAgainLater, reason);
    // The socket of a session that has ended may still be closing.
    return state.session !== undefined || state.kind === "ended";
  }

  afterRead(then: () => void): boolean {
    this.flush();
    return this.isFlowing && (this.socket?.afterRead?.(then) ?? false);
  }

  get maxMessageBytes(): number | undefined {
    return this.state.session?.theirs.maxMessageBytes;
  }

  get unsentBytes(): number {
    return this.socket?.unsentBytes ?? 0;
  }

  get traffic(): Traffic | undefined {
    return addTraffic(this.#past, this.socket?.traffic);
  }

  // Sockets.

  /** When data last came on the present socket, by `performance.now()`, if the socket records it. */
  get heardAt(): number | undefined {
    return this.socket?.heardAt;
  }

  /** Whether the other side answers pings. */
  get canPing(): boolean {
    return this.isReciproc || this.socket?.ping !== undefined;
  }

  ping(): void {
    if (this.isReciproc) this.sendControl('{"ping":1}');
    else this.socket?.ping?.();
  }

  /** Client: takes the first or the next socket. As `Endpoint.attach`. With `readsLater`, the caller starts the socket. */
  override attach(socket: Socket, isAgreed: boolean, hello: unknown, isAwaited: boolean, readsLater = false): void {
    if (this.state.kind === "ended") return socket.discard(CloseCode.Superseded, "the connection is over");
    this.take(socket);
    super.attach(socket, isAgreed, hello, isAwaited);
    if (this.receiver !== undefined && this.socket === socket && !readsLater) socket.start(this);
  }

  /** Client: ends this connection, whose session is lost, and gives its socket and its receiver to `next`. */
  handOver(next: PackedLink, reason: string, isAgreed: boolean, hello: unknown): void {
    this.#isOver = true;
    this.#drop();
    const socket = this.#detach()!;
    // First: code of the application may end the socket, whose end is that of the next connection.
    next.take(socket);
    socket.start(next);
    this.receiver!.lost(new Error(reason), next);
    // If the socket or the peer has ended inside `lost`, only discards the socket.
    next.attach(socket, isAgreed, hello, true);
  }

  /** Makes a socket the present one. */
  take(socket: Socket): void {
    const { budget } = socket;
    if (this.budget !== undefined && budget !== this.budget) budget?.adopt(this.budget);
    this.budget = budget;
    socket.maxFrameBytes = longestFrame(this.limits.maxMessageBytes);
    this.socket = socket;
  }

  /** Closes the socket. Reads and reports nothing more of it. */
  leave(reason: string): void {
    // First: its close sends the frames that this tick has collected.
    this.socket?.discard(CloseCode.Superseded, reason);
    this.#detach();
  }

  /** Drops the socket, as if it had been lost. */
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

  /** Reacts to the end of the present socket. */
  closed(end: CloseInfo): void {
    this.#detach();
    this.#lost(end);
  }

  #lost(info: CloseInfo): void {
    if (this.#isOver) return this.#report(info);
    this.detach(info);
    const { state } = this;
    // For 1009, and for no other code, the code that the other side sent back counts.
    if (state.kind === "ended")
      return this.#finish(state.end.code === CloseCode.MessageTooBig ? endOf(info, state.end) : state.end);
    if (this.checkExpiry()) return;
    if (this.#expiresAt === Infinity) {
      setDeadline(this, state.session!.ttlMs);
      this.#expiresAt = this.deadline;
    }
    this.#suspend();
    // A listener of `suspend` may have ended the session, or closed the peer.
    if (this.state.kind === "suspended") this.delegate!.suspended?.(info);
  }

  /** Ends a session without a socket that has expired, because its timer may be late. Returns true if the session has ended. */
  checkExpiry(): boolean {
    if (this.socket !== undefined || performance.now() < this.#expiresAt) return false;
    const { ttlMs } = this.state.session!;
    this.end(CloseCode.Abnormal, `the session was not resumed within ${ttlMs} ms`);
    return true;
  }

  /** Stops the timer of a session that is resumed or has ended, or of a socket that is detached. */
  #stopTimer(): void {
    clearDeadline(this);
    this.deadline = 0;
    this.#expiresAt = Infinity;
  }

  wireFull(): void {
    if (this.deadline === 0) setDeadline(this, DRAIN_CHECK_MS);
  }

  /** Checks a full socket, ends a session without a socket that has expired, or drops a socket that was not closed after a bye. */
  expire(): void {
    if (this.#expiresAt !== Infinity) {
      // A timer may fire up to 1 ms before its time by `performance.now`, and does not fire again.
      this.#expiresAt = 0;
      return void this.checkExpiry();
    }
    if (this.state.kind === "ended") return this.giveUp("no close followed the bye");
    this.deadline = 0;
    this.drain();
  }

  // What the endpoint reports.

  receiveText(text: string): void {
    this.receiver!.receive(text);
  }

  /** Dispatches the messages of a pack from the one at `from` on, in as many ticks as the budget needs. */
  receivePack(messages: unknown[], from = 0): void {
    for (let i = from; i < messages.length; i++) {
      // A message may end the connection.
      if (this.state.kind === "ended") return;
      if (i > from && this.budget?.isSpent()) return this.budget.defer(() => this.receivePack(messages, i));
      this.receiver!.dispatch(messages[i]);
    }
  }

  missed(count: number): void {
    this.receiver!.missed(count);
  }

  drained(): void {
    this.receiver!.drained();
  }

  flows(): void {
    this.#stopTimer();
    if ((this.socket?.unsentBytes ?? 0) >= this.limits.highWaterBytes) this.wireFull();
    this.delegate?.flows?.();
    // `onOpen` runs inside `flows`, and may have ended the socket.
    if (!this.#isSuspended || !this.isFlowing) return;
    this.#isSuspended = false;
    this.receiver!.resumed();
  }

  ended(end: CloseInfo, isRemote: boolean): void {
    this.#drop();
    // Not inside the call that ended the connection.
    if (this.socket === undefined) queueMicrotask(() => this.#finish(end));
    else if (isRemote) setDeadline(this, CLOSE_TIMEOUT_MS);
    else this.socket.close(end.code, end.reason);
  }

  discarded(reason: string): void {
    this.delegate!.discarded(reason);
  }

  control(frame: object): void {
    this.delegate?.control?.(frame);
  }

  /** Reports that the session cannot be resumed any more. */
  #drop(): void {
    this.#stopTimer();
    this.delegate?.dropped?.();
  }

  #suspend(): void {
    if (this.#isSuspended) return;
    this.#isSuspended = true;
    this.receiver!.suspended();
  }

  /** Ends the connection. The receiver continues on another link, if the delegate has one. */
  #finish(end: CloseInfo): void {
    if (this.#isOver) return;
    this.#drop();
    const receiver = this.receiver!;
    const next = this.delegate?.succeed?.(end);
    if (next !== undefined) this.#suspend();
    // A listener of `suspend` may have closed the peer.
    if (this.#isOver) return;
    this.#isOver = true;
    if (next === undefined) this.#report(end);
    else receiver.lost(errorOfEnd("the session ended", end), next);
  }

  #report(end: CloseInfo): void {
    this.delegate?.ended?.();
    this.receiver!.closed(end);
  }
}
