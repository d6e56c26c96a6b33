/**
 * A connection that speaks `reciproc.v1`: joins an `Endpoint`, which decides, to the socket that it has at present, to the end of
 * the tick, and to the budget of each tick.
 */
import * as CloseCode from "../close-codes.js";
import { clearDeadline, setDeadline, type Expiring } from "../core/deadlines.js";
import {
  addTraffic,
  endOf,
  Frame,
  type CloseInfo,
  type Receiver,
  type EncodedMessage,
  type SendHandle,
  type Traffic,
  type Transport,
} from "../core/transport.js";
import type { Socket, SocketBudget, SocketHandler } from "../link/socket.js";
import { Coalescer } from "../link/coalescer.js";
import { Endpoint, type EndpointHooks, type EndpointLimits } from "./endpoint.js";
import type { Bye, ResumeFrame } from "./frames.js";
import type { Session } from "./session.js";
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
export interface LinkOwner {
  /** Messages flow on the present socket. */
  flows(): void;
  /** The session has lost its socket, and the receiver knows. */
  suspended(): void;
  /** The session cannot be resumed any more. May be called twice. */
  dropped(): void;
  /** The connection is over. Returns the link on which the peer goes on, if there is one. */
  succeed(end: CloseInfo): Transport | undefined;
  /** The other side does not have the session. On a client, the owner calls `handOver`. */
  discarded(reason: string): void;
  /** Server: the client has the newest token. */
  confirmed(): void;
  /** Server: what a suspended session holds may have changed. */
  heldChanged(): void;
  /** Server: returns true if a broadcast of that length may be queued for this suspended session. */
  acceptsBroadcast(length: number): boolean;
}

/** One connection over a socket on which `reciproc.v1` was agreed, and with a session over those that follow. */
export class PackedLink implements Transport, SocketHandler, EndpointHooks, Expiring {
  /** When a full socket is checked for room. */
  deadline = 0;
  /** How many frames have come, on any socket: a connection on which it grows is alive. */
  heard = 0;
  readonly endpoint: Endpoint;
  readonly #role: "client" | "server";
  readonly #limits: EndpointLimits;
  readonly #owner: LinkOwner | undefined;
  readonly #coalescer: Coalescer;
  #receiver!: Receiver;
  #socket: Socket | undefined;
  /** Whether `start` was called: sockets are started from then on. */
  #isStarted = false;
  /** Whether the receiver knows that the connection is suspended. */
  #isSuspended: boolean;
  /** Rule 8: when a session without a socket is over. */
  readonly #expiry: Expiring = { deadline: Infinity, expire: () => this.#expired() };
  /** Client: whether that time has passed while a socket was there on which `resumed` may still come. */
  #isOverdue = false;
  /** Whether the end is reported, or was asked for by `close`. */
  #isOver = false;
  /** What the receiver keeps for the other side. */
  #kept = 0;
  #frameLength = 0;
  /** The frame that is received at present, once something of it stays in use. */
  #frame: Frame | undefined;
  /** The budget of the newest socket. It outlives that socket, as do the messages of a pack that was counted as received. */
  #budget: SocketBudget | undefined;
  /** What went over the sockets before the present one. */
  #past: Traffic | undefined;

  /** `lost`: the link in whose place this one goes on. Its receiver is suspended, and counts what went over both. */
  constructor(
    role: "client" | "server",
    limits: EndpointLimits,
    wantsSession: boolean,
    owner: LinkOwner | undefined,
    lost?: PackedLink,
  ) {
    this.#role = role;
    this.#limits = limits;
    this.#owner = owner;
    this.#isSuspended = lost !== undefined;
    if (lost !== undefined) this.#past = lost.#past;
    this.endpoint = new Endpoint(role, limits, wantsSession, this);
    this.#coalescer = new Coalescer(this, PACK_MESSAGES);
  }

  // Transport.

  start(receiver: Receiver): void {
    this.#receiver = receiver;
    this.#isStarted = true;
    this.#socket?.start(this);
  }

  send(text: string, handle?: SendHandle, message?: EncodedMessage): boolean {
    const { endpoint } = this;
    const isTaken = endpoint.send(text, handle, message);
    if (endpoint.length > 0) this.#coalescer.added(endpoint.length);
    else if (endpoint.state.kind === "suspended") this.#owner!.heldChanged();
    if (endpoint.isWireFull) this.#watchDrain();
    return isTaken;
  }

  cancel(handle: SendHandle): boolean {
    const wasQueued = this.endpoint.cancel(handle);
    if (wasQueued) this.#heldChanged();
    return wasQueued;
  }

  close(code = CloseCode.Normal as number, reason = "", retryMs?: number): void {
    if (this.#isOver) return;
    this.#isOver = true;
    const bye: Bye = { code, reason, retryMs };
    const hasEnded = this.endpoint.state.kind === "ended";
    const isTold = this.endpoint.close(bye);
    this.#drop();
    // The socket of an ended connection closes already, or the other side is about to close it.
    if (isTold || (hasEnded && this.#socket !== undefined)) return this.#socket!.close(code, reason);
    this.leave(reason);
    this.#receiver.closed({ code, reason });
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
    const { endpoint } = this;
    if (!endpoint.isFlowing || endpoint.queuedLength > 0) return false;
    return this.#socket?.afterRead?.(then) ?? false;
  }

  get isReciproc(): boolean {
    return this.endpoint.isToReciproc;
  }

  get maxMessageBytes(): number | undefined {
    return this.endpoint.maxMessageBytes;
  }

  /** What is queued without a socket waits for one, and not for a slow reader. */
  get unsentBytes(): number {
    const queued = this.endpoint.isFlowing ? this.endpoint.queuedLength : 0;
    return (this.#socket?.unsentBytes ?? 0) + queued;
  }

  get traffic(): Traffic | undefined {
    return addTraffic(this.#past, this.#socket?.traffic);
  }

  get budget(): SocketBudget | undefined {
    return this.#budget;
  }

  keeps(by: number): void {
    this.#kept += by;
    this.#heldChanged();
  }

  /** A client counts nothing: it has one session. */
  get currentFrame(): Frame | undefined {
    if (this.#role === "client" || this.#owner === undefined) return undefined;
    return (this.#frame ??= new Frame(this.#frameLength, this));
  }

  /** The length of what this end holds for the other: the log, the queued ordinary messages, and what the receiver keeps. */
  get heldLength(): number {
    return this.endpoint.heldLength + this.#kept;
  }

  // Sockets.

  get hasSocket(): boolean {
    return this.#socket !== undefined;
  }

  /** When anything last came on the present socket, by `performance.now()`, where the socket notes it. */
  get heardAt(): number | undefined {
    return this.#socket?.heardAt;
  }

  /** Whether the other side answers pings. */
  get canPing(): boolean {
    return this.endpoint.isToReciproc || this.#socket?.ping !== undefined;
  }

  ping(): void {
    if (this.endpoint.isToReciproc) this.endpoint.ping();
    else this.#socket?.ping?.();
  }

  /** Server: takes the first socket. As `Endpoint.accept`. */
  accept(socket: Socket, session: Session | undefined): void {
    this.#take(socket);
    this.endpoint.accept(socket, session);
  }

  /** Server: goes on over another socket. As `Endpoint.resume`. */
  resume(socket: Socket, resume: ResumeFrame, makeToken: () => string): void {
    // Rule 2: the old socket is left before the count of received frames is read.
    this.leave("a newer socket took over");
    this.#take(socket);
    this.endpoint.resume(socket, resume, makeToken());
    this.#settleOutput();
    socket.start(this);
  }

  /** Client: takes the first or the next socket. As `Endpoint.attach`. */
  attach(socket: Socket, isAgreed: boolean, hello: unknown, isAwaited: boolean): void {
    if (this.endpoint.state.kind === "ended") return socket.discard(CloseCode.Superseded, "the connection is over");
    this.#take(socket);
    this.endpoint.attach(socket, isAgreed, hello, isAwaited);
    this.#settleOutput();
    if (this.#isStarted && this.#socket === socket) socket.start(this);
  }

  /** Client: the session is lost, and its socket is not. The receiver goes on with `next`, which takes the socket over. */
  handOver(next: PackedLink, reason: string, isAgreed: boolean, hello: unknown): void {
    this.#isOver = true;
    this.#drop();
    this.#receiver.lost!(new Error(reason), next);
    const socket = this.#detach()!;
    // A listener of `lost` may have closed the peer.
    next.attach(socket, isAgreed, hello, true);
  }

  #take(socket: Socket): void {
    if (this.#budget !== undefined && socket.budget !== this.#budget) socket.budget?.adopt(this.#budget);
    this.#budget = socket.budget;
    socket.maxFrameBytes = longestFrame(this.#limits.maxMessageBytes);
    this.#socket = socket;
  }

  /** Closes the socket, and reads and reports nothing more of it. */
  leave(reason: string): void {
    this.#detach()?.discard(CloseCode.Superseded, reason);
  }

  /** Gives the socket up: what follows is as if it had been lost. */
  giveUp(reason: string): void {
    if (this.#socket === undefined) return;
    this.leave(reason);
    this.#lost({ code: CloseCode.Abnormal, reason });
  }

  #detach(): Socket | undefined {
    const socket = this.#socket;
    this.#past = this.traffic;
    this.#socket = undefined;
    clearDeadline(this);
    this.deadline = 0;
    return socket;
  }

  /** A frame came on the present socket. */
  frame(text: string): void {
    this.heard++;
    this.endpoint.receive(text);
    this.#settleOutput();
  }

  /** The present socket is closed. */
  closed(end: CloseInfo): void {
    this.#detach();
    this.#lost(end);
  }

  #lost(told: CloseInfo): void {
    const { endpoint } = this;
    if (this.#isOver) return this.#receiver.closed(told);
    endpoint.detach(told);
    const { state } = endpoint;
    if (state.kind === "ended") return this.#finish(reported(state.end, told));
    if (this.#isOverdue) return endpoint.end(CloseCode.Abnormal, this.#notInTime);
    if (this.#expiry.deadline === Infinity) setDeadline(this.#expiry, state.session!.ttlMs);
    this.#suspend();
    if (!this.#isOver) this.#owner!.suspended();
  }

  #expired(): void {
    if (this.#socket === undefined) this.endpoint.end(CloseCode.Abnormal, this.#notInTime);
    else this.#isOverdue = true;
  }

  get #notInTime(): string {
    return `the session was not resumed within ${this.endpoint.state.session!.ttlMs} ms`;
  }

  /** Ends the session of a socket that did not come in time, if its timer is late. Returns true if the session is over. */
  checkExpiry(): boolean {
    if (performance.now() < this.#expiry.deadline) return false;
    this.#expired();
    return true;
  }

  #clearExpiry(): void {
    if (this.#expiry.deadline === Infinity) return;
    clearDeadline(this.#expiry);
    this.#expiry.deadline = Infinity;
    this.#isOverdue = false;
  }

  /** The tick ends, or the socket is about to close for what the other side did. */
  flush(): void {
    this.endpoint.flush();
    if (this.endpoint.isWireFull) this.#watchDrain();
  }

  /** What the endpoint has left for the end of the tick, or for a socket that is full. */
  #settleOutput(): void {
    const { endpoint } = this;
    if (endpoint.hasOutput) this.#coalescer.schedule();
    if (endpoint.isWireFull) this.#watchDrain();
  }

  #watchDrain(): void {
    if (this.deadline === 0) setDeadline(this, DRAIN_CHECK_MS);
  }

  /** The full socket is checked for room. */
  expire(): void {
    this.deadline = 0;
    this.endpoint.drained();
    this.#settleOutput();
  }

  // What the endpoint reports.

  receiveText(text: string): void {
    // A session may begin while what was called before it runs.
    this.#frame = undefined;
    this.#frameLength = text.length;
    this.#receiver.receive(text);
  }

  receivePack(messages: unknown[], length: number): void {
    this.#frame = undefined;
    this.#frameLength = length;
    this.#dispatch(messages, 0);
  }

  /** Dispatches the messages of a pack from the one at `from` on, in as many ticks as the budget needs. */
  #dispatch(messages: unknown[], from: number): void {
    for (let i = from; i < messages.length; i++) {
      // A connection may end while it takes these.
      if (this.endpoint.state.kind === "ended") return;
      if (i > from && this.#budget?.isSpent()) return this.#budget.defer(() => this.#dispatch(messages, i));
      this.#receiver.dispatch(messages[i]);
    }
  }

  flows(): void {
    this.#clearExpiry();
    this.#owner?.flows();
    if (!this.#isSuspended || this.#isOver) return;
    this.#isSuspended = false;
    this.#receiver.resumed?.();
  }

  ended(end: CloseInfo, isRemote: boolean): void {
    this.#drop();
    if (this.#socket === undefined) {
      // Not inside the call that has ended it.
      queueMicrotask(() => this.#finish(end));
    } else if (!isRemote) this.#socket.close(end.code, end.reason);
  }

  discarded(reason: string): void {
    this.#owner!.discarded(reason);
  }

  confirmed(): void {
    this.#owner?.confirmed();
  }

  acceptsBroadcast(length: number): boolean {
    return this.#owner!.acceptsBroadcast(length);
  }

  #heldChanged(): void {
    if (this.endpoint.state.kind === "suspended") this.#owner?.heldChanged();
  }

  /** The session cannot be resumed any more. */
  #drop(): void {
    this.#clearExpiry();
    this.#owner?.dropped();
  }

  #suspend(): void {
    if (this.#isSuspended) return;
    this.#isSuspended = true;
    this.#receiver.suspended?.();
  }

  /** The connection is over. The receiver goes on with another one, if the owner has one. */
  #finish(end: CloseInfo): void {
    if (this.#isOver) return;
    this.#drop();
    const next = this.#receiver.lost === undefined ? undefined : this.#owner?.succeed(end);
    if (next === undefined) {
      this.#isOver = true;
      return this.#receiver.closed(end);
    }
    this.#suspend();
    // A listener of `suspend` may have closed the peer.
    if (this.#isOver) return;
    this.#isOver = true;
    this.#receiver.lost!(lossOf(end), next);
  }
}

/** Returns how an ended connection is reported whose socket closed with `told`. Only for 1009 the code that comes back counts. */
function reported(end: CloseInfo, told: CloseInfo): CloseInfo {
  return end.code === CloseCode.MessageTooBig ? endOf(told, end) : end;
}

/** Returns the end of a session as an error. */
function lossOf({ code, reason, error }: CloseInfo): Error {
  return error ?? new Error(`the session ended with ${code}${reason && ` (${reason})`}`);
}
