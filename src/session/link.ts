/**
 * A link whose ends have agreed to `reciproc.v1`, or to plain frames: an endpoint with sockets, timers and a receiver. `node-link.ts`
 * adds what only the sockets of Node have, and `server/link.ts` the parts of a server.
 */
import * as CloseCode from "../message/close-codes.js";
import { clearDeadline, setDeadline, type Expiring } from "../base/deadlines.js";
import {
  endOf,
  errorOfEnd,
  type CloseInfo,
  type SocketSource,
  type LinkReceiver,
  type Link,
} from "../message/transport.js";
import { CLOSE_TIMEOUT_MS, type Socket, type SocketHandler } from "../socket/socket.js";
import { Coalescer } from "../socket/coalescer.js";
import { Endpoint } from "./endpoint.js";
import { Attachment, type AttachedKind, type EndpointLimits } from "./state.js";
import { longestFrame } from "./sizes.js";
import { inMicrotask } from "../base/promises.js";

/** The name of the subprotocol. */
export const PROTOCOL = "reciproc.v1";

/** The interval between checks of a full socket. Not every runtime reports when a socket has drained. */
export const DRAIN_CHECK_MS = 20;

/**
 * A pack of this many messages is sent at once, and another one whenever the number of messages in the tick has doubled. Without this
 * bound, the two sides would work one after the other instead of at the same time (docs/PERFORMANCE.md).
 */
const PACK_MESSAGES = 16;

/** The object that gives links their sockets: the driver of one client, or the sessions of a server. */
export interface LinkDelegate extends SocketSource {
  /** Reports that messages flow on the present socket. */
  ready?(): void;
  /** Reports that the link has lost its socket, because of `end`, and waits for another. Called after the receiver was notified. */
  suspended?(end: CloseInfo, link: NegotiatedLink): void;
  /** Reports that the session cannot be resumed any more. May be called twice. */
  resumptionEnded?(link: NegotiatedLink): void;
  /** Returns true if another connection follows one that has ended with `end`. */
  continues?(end: CloseInfo): boolean;
  /** Reports that the connection has ended, and no other follows. Called before the receiver is notified. */
  closed?(): void;
  /** Takes a control frame that the endpoint does not know. */
  control?(frame: object): void;
  /** Server: reports that the client has the newest token. */
  confirmed?(link: NegotiatedLink): void;
  /** Server: reports that the memory of a suspended session may have changed. */
  storedChanged?(link: NegotiatedLink): void;
  /** Server: returns true if a broadcast of that length may be queued for this suspended session. */
  acceptsBroadcast?(length: number): boolean;
}

/**
 * A link that speaks `reciproc.v1`, or plain JSON-RPC if the server does. That of a client carries one connection after the other, each
 * over one or more sockets. That of a server carries one.
 */
export class NegotiatedLink extends Endpoint implements Link, SocketHandler, Expiring {
  /** With a socket: the next check of a full one. Suspended: the expiry of the session. Ended: when a close must have followed the bye. */
  declare deadline: number;
  declare readonly delegate: LinkDelegate | undefined;
  declare readonly tick: Endpoint["tick"];

  constructor(limits: EndpointLimits, wantsSession: boolean, delegate: LinkDelegate | undefined) {
    super(limits, wantsSession);
    this.deadline = 0;
    this.delegate = delegate;
    this.tick = new Coalescer(this, PACK_MESSAGES);
  }

  // Link.

  get isConnecting(): boolean {
    return this.state.kind === "connecting";
  }

  start(receiver: LinkReceiver): void {
    this.receiver = receiver;
    this.socket?.start(this);
  }

  /** Closes the socket, after the bye. */
  close(code = CloseCode.Normal as number, reason = ""): void {
    this.#endResumption();
    // The socket of an ended connection is closing already, or the other side is about to close it.
    if (this.socket !== undefined) this.socket.close(code, reason);
    else this.#reportClosed({ code, reason });
  }

  /** As `Link.endSession`. Returns true if the connection has ended, now or before. */
  endSession(reason: string): boolean {
    if (this.state.session !== undefined) this.end(CloseCode.TryAgainLater, reason);
    // The socket of a session that has ended before may still be closing.
    return this.state.kind === "ended";
  }

  get maxMessageBytes(): number | undefined {
    return this.state.session?.theirs.maxMessageBytes;
  }

  get unsentBytes(): number {
    return this.state.socket?.unsentBytes ?? 0;
  }

  // Sockets.

  /** When data last came on the present socket, by `performance.now()`, if the socket records it. */
  get receivedAt(): number | undefined {
    return this.socket?.receivedAt;
  }

  /** Whether the other side answers pings. */
  get canPing(): boolean {
    return this.isReciproc;
  }

  ping(): void {
    this.sendControl('{"ping":1}');
  }

  /** Client: takes the first or the next socket, which the caller starts. As `Endpoint.begin`. */
  attach(socket: Socket, isAgreed: boolean, hello: unknown, isAwaited: boolean): void {
    if (this.state.kind === "ended") return socket.discard(CloseCode.Superseded, "the connection is over");
    this.begin(this.attachSocket(socket), isAgreed, hello, isAwaited);
  }

  /** Attaches a socket. Until `kind` changes, messages flow only if it says so. */
  attachSocket(socket: Socket, kind: AttachedKind = "resuming", session = this.state.session): Attachment {
    socket.maxFrameBytes = longestFrame(this.limits.maxMessageBytes);
    return (this.state = new Attachment(socket, kind, session));
  }

  /** Drops the socket, as if it had been lost. */
  dropSocket(reason: string): void {
    if (this.socket === undefined) return;
    // First: its close sends the frames that this tick has collected.
    this.socket.discard(CloseCode.Superseded, reason);
    this.closed({ code: CloseCode.Abnormal, reason });
  }

  /** Reacts to the end of the present socket. */
  closed(info: CloseInfo): void {
    const { flowing } = this;
    this.detach(info);
    const { state } = this;
    if (this.receiver!.ended !== undefined) return this.#reportClosed(info);
    // For 1009, and for no other code, the code that the other side sent back counts.
    if (state.kind === "ended")
      return this.#finish(
        state.end.code === CloseCode.MessageTooBig ? endOf(info, state.end) : state.end,
        state.wasFlowing,
      );
    if (flowing !== undefined) {
      // Rule 8: the session expires, unless messages flow before.
      setDeadline(this, state.session!.ttlMs);
      this.receiver!.suspended();
    } else if (this.checkExpiry()) return;
    this.#reportSuspended(info);
  }

  #reportSuspended(end: CloseInfo): void {
    const { kind } = this.state;
    // A listener of the application may have ended the session, or closed the peer.
    if (kind === "suspended" || kind === "connecting") this.delegate?.suspended?.(end, this);
  }

  /** Ends a suspended session that has expired, because its timer may be late. Returns true if the session has ended. */
  checkExpiry(): boolean {
    const { state } = this;
    if (state.kind !== "suspended" || performance.now() < this.deadline) return false;
    this.end(CloseCode.Abnormal, `the session was not resumed within ${state.session.ttlMs} ms`);
    return true;
  }

  /** Stops the timer of a session that is resumed or has ended, or of a socket that is detached. */
  #stopTimer(): void {
    clearDeadline(this);
    this.deadline = 0;
  }

  socketFull(): void {
    if (this.deadline === 0) setDeadline(this, DRAIN_CHECK_MS);
  }

  /** Checks a full socket, ends a suspended session that has expired, or drops a socket that was not closed after a bye. */
  expire(): void {
    if (this.state.kind === "ended") return this.dropSocket("no close followed the bye");
    // A timer may fire up to 1 ms before its time by `performance.now`, and does not fire again.
    this.deadline = 0;
    this.drain();
    this.checkExpiry();
  }

  // What the endpoint reports.

  /** Dispatches the messages of a pack, until one ends the connection. The next connection of a client has another receiver. */
  receivePack(messages: unknown[]): void {
    const receiver = this.receiver!;
    for (const message of messages) if (this.state.kind !== "ended") receiver.dispatch(message);
  }

  reportReady(wasSuspended: boolean): void {
    this.#stopTimer();
    if (this.unsentBytes >= this.limits.highWaterBytes) this.socketFull();
    this.delegate?.ready?.();
    // `onOpen` runs inside `ready`, and may have ended the socket.
    if (wasSuspended && this.flowing !== undefined) this.receiver!.resumed();
  }

  reportEnd(end: CloseInfo, isRemote: boolean): void {
    this.#endResumption();
    // Not inside the call that ended the connection.
    if (this.socket === undefined) inMicrotask(() => this.#finish(end, false));
    else if (isRemote) setDeadline(this, CLOSE_TIMEOUT_MS);
    else this.socket.close(end.code, end.reason);
  }

  reportDiscarded(reason: string, { socket, hello }: Attachment, isAgreed: boolean): void {
    this.#endResumption();
    // First: code of the application may end the socket, whose end is that of the next connection.
    const at = this.attachSocket(socket);
    this.receiver!.lost(new Error(reason));
    // The socket or the peer may have ended inside `lost`.
    if (this.state === at) this.begin(at, isAgreed, hello, true);
  }

  control(frame: object): void {
    this.delegate?.control?.(frame);
  }

  /** Stops the timer, and reports that the session cannot be resumed any more. */
  #endResumption(): void {
    this.#stopTimer();
    this.delegate?.resumptionEnded?.(this);
  }

  /** Ends the connection. Another one follows, if the delegate says so. */
  #finish(end: CloseInfo, wasFlowing: boolean): void {
    const receiver = this.receiver!;
    if (receiver.ended !== undefined) return;
    this.#endResumption();
    if (this.delegate?.continues?.(end) !== true) return this.#reportClosed(end);
    this.state = { kind: "connecting" };
    if (wasFlowing) receiver.suspended();
    // A listener of `suspend` may have closed the peer.
    if (receiver.ended === undefined) receiver.lost(errorOfEnd("the session ended", end));
    this.#reportSuspended(end);
  }

  #reportClosed(end: CloseInfo): void {
    this.delegate?.closed?.();
    this.receiver!.closed(end);
  }
}
