/** The link of a server: the hello of its client, broadcasts, the memory of a suspended session, and the resumption by its client. */
import type { Linked } from "../base/list.js";
import { PACK_LENGTH } from "../session/sizes.js";
import { currentTick } from "../socket/coalescer.js";
import * as CloseCode from "../message/close-codes.js";
import { exceeds, sentForm } from "../message/codec.js";
import { member } from "../message/message.js";
import { EncodedMessage, Frame, type EncodedFrame } from "../message/transport.js";
import type { Socket } from "../socket/socket.js";
import type { Attachment, EndpointLimits } from "../session/state.js";
import { helloOf, limitsOf, says, sessionlessHello, type ResumeFrame } from "../session/frames.js";
import type { LinkDelegate } from "../session/link.js";
import { NodeLink } from "../session/node-link.js";
import { UNKNOWN_LIMITS } from "../session/session.js";
import type { Resumable } from "./tokens.js";

/** Longest frame with `auth`, in bytes of UTF-8. */
export const MAX_AUTH_BYTES = 16 * 1024;

/** The place of a suspended session in the order of suspension, and its part in the counts of what all of them hold. */
export interface Place extends Linked {
  readonly link: ServerLink;
  length: number;
  broadcastLength: number;
}

/**
 * A server's end of a link that speaks `reciproc.v1`. Without a delegate, it has no session. Otherwise, its session certainly exists once
 * the client has confirmed its token.
 */
export class ServerLink extends NodeLink implements Resumable {
  readonly principal: string | undefined;
  confirmedHash: string | undefined = undefined;
  nextHash: string | undefined = undefined;
  attempt = 0;
  /** The place among the suspended sessions. Only `SessionRegistry` sets it. */
  place: Place | undefined = undefined;
  /** Takes each later `auth` of the client. Set if the client has sent one on the present socket. */
  declare onAuth: ((auth: unknown) => void) | undefined;
  /** The length of the data that the receiver keeps for the other side, and of the queued broadcasts. */
  #kept = 0;
  #keptBroadcasts = 0;
  /** The tick of the last message to many peers. */
  #broadcastTick = -1;
  /** The length of the frame that was received last, and what counts its parts that are in use, once that is asked for. */
  #frameLength = 0;
  #lastFrame: Frame | undefined;

  /** `principal`: as of `SessionRegistry.link`. */
  constructor(limits: EndpointLimits, delegate: LinkDelegate | undefined, principal?: string) {
    super(limits, delegate !== undefined, delegate);
    this.onAuth = undefined;
    this.principal = principal;
  }

  override receiveFrame(text: string): void {
    const { state } = this;
    this.#frameLength = text.length;
    this.#lastFrame = undefined;
    const hello = state.kind === "greeting" ? helloOf(text) : undefined;
    if (hello === undefined) super.receiveFrame(text);
    else this.#receiveClientHello(state as Attachment, hello);
  }

  override receiveBinary(frame: Uint8Array): boolean {
    this.#frameLength = frame.length;
    this.#lastFrame = undefined;
    return super.receiveBinary(frame);
  }

  /** Takes the client's hello, which accepts or declines the offered session. */
  #receiveClientHello(at: Attachment, hello: unknown): void {
    const { session } = at;
    this.takesBytes = this.limits.bytes === true && says(hello, "bytes");
    if (session !== undefined && says(hello, "session")) {
      const limits = limitsOf(member(hello, "limits"));
      if (limits === undefined) return this.fail("`limits` of a hello break their rules");
      session.theirs = limits;
      this.confirmed();
      return this.startMessages(at, "live", session);
    }
    if (session !== undefined) {
      this.sendData(at, undefined, Infinity);
      this.delegate?.resumptionEnded?.(this);
    }
    this.startMessages(at, "sessionless");
  }

  /** Returns false if the session has expired, or if `received` cannot be true, which ends the session. */
  checkResume({ received }: ResumeFrame): boolean {
    if (this.checkExpiry()) return false;
    const isTrue = this.state.session!.canHaveReceived(received);
    if (!isTrue) this.fail("`received` is no count of the frames sent");
    return isTrue;
  }

  /** Continues the session on another socket, after `checkResume`. `token`: the next one of the session. */
  resume(socket: Socket, { received, limits, bytes }: ResumeFrame, token: string): void {
    // The receiver is not suspended if its socket is not lost yet.
    const kind = this.flowing === undefined ? "resuming" : "live";
    const left = { code: CloseCode.Superseded, reason: "a newer socket took over" };
    // Rule 2: the old socket is detached before the count of received frames is read. Its close sends the frames of this tick first.
    if (this.socket !== undefined) {
      this.socket.discard(left.code, left.reason);
      this.detach(left);
    }
    const at = this.attachSocket(socket, kind);
    const session = at.session!;
    // Rule 9: the hello that confirmed the session may never have come.
    if (session.theirs === UNKNOWN_LIMITS) session.theirs = limits;
    this.takesBytes = this.limits.bytes === true && bytes === true;
    this.write([JSON.stringify({ resumed: { token, received: session.ack() } })]);
    session.rewind(received);
    this.startMessages(at, "live", session);
    socket.start(this);
  }

  /** Closes the present socket. A session continues over the next socket, and a connection without one ends. */
  closeSocket(code: number, reason: string): void {
    // First, as in `resume`.
    this.socket!.discard(code, reason);
    this.closed({ code, reason });
  }

  /** As `send`. The first message of a tick is written at once, if no other waits, and further ones in a pack. Peers with the same messages share it. */
  sendEncoded(message: EncodedMessage): boolean | "full" {
    const text = sentForm(message.source, this.takesBytes, message);
    const { session } = this.state;
    if (session !== undefined && exceeds(text, session.theirs.maxMessageBytes)) return false;
    let at = this.withRoom();
    if (at !== undefined && at.length > 0) at = this.makeRoom(at, text);
    if (at === undefined) return this.send(text);
    if (typeof text !== "string") return this.#sendFrame(at, message.binary);
    const tick = currentTick();
    const isFirst = at.length === 0 && this.#broadcastTick !== tick;
    this.#broadcastTick = tick;
    if (isFirst || text.length >= PACK_LENGTH) return this.#sendFrame(at, message.pack);
    // Without a session, no other socket follows a closed one.
    if (!at.socket.open) return false;
    const { messages } = at;
    const last = messages?.at(-1);
    if (messages === undefined) at.messages = [message];
    else if (last instanceof EncodedMessage) messages[messages.length - 1] = last.followedBy(message);
    else messages.push(message);
    at.length += text.length + 1;
    this.tick.schedule();
    return true;
  }

  /** Sends the messages of this tick. If all were for many peers, these share the frame. */
  protected override flushMessages(): void {
    const at = this.flowing;
    const messages = at?.messages;
    const first = messages?.[0];
    if (messages?.length !== 1 || !(first instanceof EncodedMessage) || at!.ackDue !== undefined)
      return super.flushMessages();
    at!.messages = undefined;
    at!.length = 0;
    this.#sendFrame(at!, first.pack);
  }

  /** Sends a data frame. All earlier ones were written. */
  #sendFrame({ session, socket }: Attachment, frame: EncodedFrame): boolean {
    const isSent = socket.sendEncoded?.(frame) ?? socket.send(frame.content);
    if (session === undefined) return isSent;
    session.push(frame.content);
    session.next++;
    return true;
  }

  keeps(by: number, isBroadcast = false): void {
    if (isBroadcast) this.#keptBroadcasts += by;
    else this.#kept += by;
    if (this.state.kind === "suspended") this.delegate?.storedChanged?.(this);
  }

  acceptsBroadcast(length: number): boolean {
    return this.delegate?.acceptsBroadcast?.(length) !== false;
  }

  /**
   * The frame that was received last, whose messages may be dispatched in later ticks too. While a part of it is in use, it counts
   * towards the memory of the session. `undefined` if the link keeps no session.
   */
  get currentFrame(): Frame | undefined {
    return this.delegate && (this.#lastFrame ??= new Frame(this.#frameLength, this));
  }

  /** The memory of the session: the log, and what the receiver keeps, such as queued messages. */
  get storedLength(): number {
    return (this.state.session?.logLength ?? 0) + this.#kept;
  }

  /** The length of the queued broadcasts. */
  get storedBroadcastLength(): number {
    return this.#keptBroadcasts;
  }

  override confirmed(): void {
    this.delegate?.confirmed?.(this);
  }

  override control(frame: object): void {
    // Rule 1: only a client that offered it resumes. Rule 3: a socket takes one `resume`.
    if ("resume" in frame) return this.fail("`resume` on a socket that did not say it would");
    if (!("auth" in frame) || this.onAuth === undefined) return;
    // The frame is longer in UTF-8 than in UTF-16. Its text is not kept, so a short one is encoded again.
    if (this.#frameLength > MAX_AUTH_BYTES || exceeds(JSON.stringify(frame), MAX_AUTH_BYTES))
      return this.end(CloseCode.MessageTooBig, CloseCode.TOO_LARGE);
    this.onAuth(frame.auth);
  }
}

/** Returns the link of a client on a server without sessions. */
export function linkWithoutSession(socket: Socket, limits: EndpointLimits): ServerLink {
  socket.send(sessionlessHello(limits.bytes));
  const link = new ServerLink(limits, undefined);
  link.attachSocket(socket, "greeting");
  return link;
}
