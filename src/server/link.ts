/** The link of a server: broadcasts, the memory of a suspended session, and the resumption by its client. */
import * as CloseCode from "../close-codes.js";
import { exceeds, type MessageText } from "../core/codec.js";
import { QUEUED_COST, type SendQueue } from "../core/send-queue.js";
import { Frame, type EncodedMessage, type SendHandle } from "../core/transport.js";
import type { Socket } from "../link/socket.js";
import { ServerEndpoint } from "./endpoint.js";
import { BroadcastHandle, HeldQueue } from "./held-queue.js";
import type { EndpointHooks, EndpointLimits } from "../session/state.js";
import { serverHello, type ResumeFrame } from "../session/frames.js";
import { PackedLink, type LinkDelegate } from "../session/link.js";
import type { Session } from "../session/session.js";

/** Longest frame with `auth`, in bytes of UTF-8. */
export const MAX_AUTH_BYTES = 16 * 1024;

/** The session of a server's link. */
export interface ServerLinkDelegate extends LinkDelegate {
  /** Reports that the client has the newest token. */
  confirmed(): void;
  /** Reports that the memory of a suspended session may have changed. */
  heldChanged(): void;
  /** Returns true if a broadcast of that length may be queued for this suspended session. */
  acceptsBroadcast(length: number): boolean;
}

/** A server's end of a connection that speaks `reciproc.v1`. Without a delegate, it has no session. */
export class ServerLink extends PackedLink implements EndpointHooks {
  declare readonly endpoint: ServerEndpoint;
  declare readonly delegate: ServerLinkDelegate | undefined;
  /** Takes each later `auth` of the client. Set if the client has sent one on the present socket. */
  declare onAuth: ((auth: unknown) => void) | undefined;
  /** The length of the data that the receiver keeps for the other side. */
  #kept = 0;
  #frameLength = 0;
  /** The present frame, if a part of it stays in use. */
  #frame: Frame | undefined;

  constructor(limits: EndpointLimits, delegate: ServerLinkDelegate | undefined) {
    super(limits, delegate !== undefined, delegate, undefined, ServerEndpoint);
    this.onAuth = undefined;
  }

  /** Takes the first socket. As `ServerEndpoint.accept`. */
  accept(socket: Socket, session: Session | undefined): void {
    this.take(socket);
    this.endpoint.accept(socket, session);
  }

  /** Continues the session on another socket. As `ServerEndpoint.resume`. */
  resume(socket: Socket, resume: ResumeFrame, makeToken: () => string): void {
    // Rule 2: the old socket is detached before the count of received frames is read.
    this.leave("a newer socket took over");
    this.take(socket);
    this.endpoint.resume(socket, resume, makeToken());
    socket.start(this);
  }

  override send(text: MessageText, handle?: SendHandle, message?: EncodedMessage): boolean {
    const isTaken = message === undefined ? this.endpoint.send(text, handle) : this.#broadcast(message, handle);
    this.#heldChanged();
    return isTaken;
  }

  /** Sends a message that goes to many peers. Returns false if it is dropped. A broadcast ends no session. */
  #broadcast(message: EncodedMessage, handle: SendHandle | undefined): boolean {
    const { endpoint } = this;
    if (endpoint.sendEncoded(message)) return true;
    const source = endpoint.formOf(message.source, message);
    if (endpoint.canSend) return endpoint.send(source);
    // Before the room is checked: the older message is obsolete, also if the newer one is dropped.
    endpoint.queue?.replace(handle);
    return this.#hasRoomFor(source) && endpoint.send(source, handle ?? new BroadcastHandle("", undefined));
  }

  /** Whether a broadcast may be queued: only while little is queued, so that broadcasts take no room from ordinary messages. */
  #hasRoomFor({ length }: MessageText): boolean {
    const { endpoint, delegate } = this;
    if (endpoint.queuedLength + length > endpoint.limits.queueLength / 2) return false;
    return endpoint.isFlowing || delegate?.acceptsBroadcast(QUEUED_COST + length) === true;
  }

  makeQueue(): SendQueue {
    return new HeldQueue();
  }

  /** Drops the queued broadcasts, and reports each to the receiver. */
  dropBroadcasts(): void {
    const dropped: string[] = [];
    for (const [handle] of this.endpoint.queue ?? [])
      if (handle instanceof BroadcastHandle && this.endpoint.cancel(handle)) dropped.push(handle.method);
    // Listeners may close the peer.
    for (const method of dropped) this.receiver!.dropped?.(method);
  }

  override cancel(handle: SendHandle): boolean {
    const wasQueued = super.cancel(handle);
    if (wasQueued) this.#heldChanged();
    return wasQueued;
  }

  override frame(text: string): void {
    this.#frame = undefined;
    this.#frameLength = text.length;
    super.frame(text);
  }

  override bytes(frame: Uint8Array): boolean {
    this.#frame = undefined;
    this.#frameLength = frame.length;
    return super.bytes(frame);
  }

  keeps(by: number): void {
    this.#kept += by;
    this.#heldChanged();
  }

  /**
   * The frame that was received last, whose messages may be dispatched in later ticks too. While a part of it is in use, it counts
   * towards the memory of the session. `undefined` if the link keeps no session.
   */
  get currentFrame(): Frame | undefined {
    if (this.delegate === undefined) return undefined;
    return (this.#frame ??= new Frame(this.#frameLength, this));
  }

  /** The memory of the session: the log, the queued ordinary messages, and the data that the receiver keeps. */
  get heldLength(): number {
    const { state, ordinaryLength } = this.endpoint;
    return (state.session?.logLength ?? 0) + ordinaryLength + this.#kept;
  }

  /** The length of the queued broadcasts. */
  get heldBroadcastLength(): number {
    return this.endpoint.queuedLength - this.endpoint.ordinaryLength;
  }

  #heldChanged(): void {
    if (this.endpoint.state.kind === "suspended") this.delegate?.heldChanged();
  }

  confirmed(): void {
    this.delegate?.confirmed();
  }

  override control(frame: object): void {
    if (!("auth" in frame) || this.onAuth === undefined) return;
    // The frame is longer in UTF-8 than in UTF-16. Its text is not kept, so a short one is encoded again.
    if (this.#frameLength > MAX_AUTH_BYTES || exceeds(JSON.stringify(frame), MAX_AUTH_BYTES))
      return this.endpoint.end(CloseCode.MessageTooBig, "message is too large");
    this.onAuth(frame.auth);
  }
}

/** Returns the link of a client on a server without sessions. */
export function linkWithoutSession(socket: Socket, limits: EndpointLimits): ServerLink {
  socket.send(serverHello(undefined, limits.bytes));
  const link = new ServerLink(limits, undefined);
  link.accept(socket, undefined);
  return link;
}
