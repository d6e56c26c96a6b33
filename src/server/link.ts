/** The link of a server: broadcasts, the memory of a suspended session, and the resumption by its client. */
import * as CloseCode from "../close-codes.js";
import { exceeds, type MessageText } from "../core/codec.js";
import { Frame, type EncodedMessage } from "../core/transport.js";
import type { Socket } from "../link/socket.js";
import { ServerEndpoint } from "./endpoint.js";
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
  storedChanged(): void;
  /** Returns true if a broadcast of that length may be queued for this suspended session. */
  acceptsBroadcast(length: number): boolean;
}

/** A server's end of a connection that speaks `reciproc.v1`. Without a delegate, it has no session. */
export class ServerLink extends PackedLink implements EndpointHooks {
  declare readonly endpoint: ServerEndpoint;
  declare readonly delegate: ServerLinkDelegate | undefined;
  /** Takes each later `auth` of the client. Set if the client has sent one on the present socket. */
  declare onAuth: ((auth: unknown) => void) | undefined;
  /** The length of the data that the receiver keeps for the other side, and of the queued broadcasts. */
  #kept = 0;
  #keptBroadcasts = 0;
  /** The frame of which a part stayed in use last, and its number. */
  #frame: Frame | undefined;
  #frameNumber = 0;

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

  override send(text: MessageText, message?: EncodedMessage): boolean | "full" {
    return message === undefined ? this.endpoint.send(text) : this.endpoint.sendEncoded(message);
  }

  keeps(by: number, isBroadcast = false): void {
    if (isBroadcast) this.#keptBroadcasts += by;
    else this.#kept += by;
    if (this.endpoint.state.kind === "suspended") this.delegate?.storedChanged();
  }

  acceptsBroadcast(length: number): boolean {
    return this.delegate?.acceptsBroadcast(length) !== false;
  }

  /**
   * The frame that was received last, whose messages may be dispatched in later ticks too. While a part of it is in use, it counts
   * towards the memory of the session. `undefined` if the link keeps no session.
   */
  get currentFrame(): Frame | undefined {
    if (this.delegate === undefined) return undefined;
    if (this.#frameNumber !== this.heard) {
      this.#frameNumber = this.heard;
      this.#frame = new Frame(this.frameLength, this);
    }
    return this.#frame;
  }

  /** The memory of the session: the log, and what the receiver keeps, such as queued messages. */
  get storedLength(): number {
    return (this.endpoint.state.session?.logLength ?? 0) + this.#kept;
  }

  /** The length of the queued broadcasts. */
  get storedBroadcastLength(): number {
    return this.#keptBroadcasts;
  }

  confirmed(): void {
    this.delegate?.confirmed();
  }

  override control(frame: object): void {
    if (!("auth" in frame) || this.onAuth === undefined) return;
    // The frame is longer in UTF-8 than in UTF-16. Its text is not kept, so a short one is encoded again.
    if (this.frameLength > MAX_AUTH_BYTES || exceeds(JSON.stringify(frame), MAX_AUTH_BYTES))
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
