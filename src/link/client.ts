/** The client's half of a session: asks for one, brings it a new socket when the old one is lost, and begins anew when it is over. */
import { clearDeadline, setDeadline, type Expiring } from "../core/deadlines.js";
import { member } from "../core/message.js";
import type { CloseInfo, Socket } from "../core/transport.js";
import { resumedOf, sessionOf, wantsSession } from "./frames.js";
import { PackedLink } from "./packed.js";
import { notInTime, type Keeper, type OwnLimits } from "./session.js";

/** Who opens sockets for a client. */
export interface SocketOwner {
  /** Whether the connection is to end with its socket: then no session is asked for. */
  readonly endsWithSocket?: boolean;
  /** The socket is lost and the session waits: another is wanted, for `attach`. Told again when that one is lost too. */
  suspended(): void;
  /** Messages flow on the present socket. `isFresh`: nothing of an earlier one goes on. */
  flows(isFresh: boolean): void;
  /**
   * The connection is over, by `info`. True when another socket will come: the receiver is told `lost`, what is sent meanwhile
   * waits, and `attach` begins a fresh connection. Not asked after `close`, nor for a receiver that cannot be told `lost`.
   */
  over(info: CloseInfo): boolean;
}

/** A client's link, with a session wherever the server takes them. */
export class ClientSession implements Keeper, Expiring {
  deadline = 0;
  readonly limits: OwnLimits;
  readonly greeting = undefined;
  readonly link: PackedLink;
  readonly #owner: SocketOwner;
  /** What resumes the session. Never told to anybody but the server. */
  #token: string | undefined;
  #ttlMs = 0;
  #attempt = 0;
  #isSuspended = false;
  /** Whether `resume` was said on the present socket, and not answered. */
  #isAsking = false;
  /** Whether the time was up while a socket was tried. */
  #isOverdue = false;

  /**
   * `socket`: open, and its first frame is still to be told. What is known of the server already is told at once: by
   * `flowPlainly` that it did not agree to `reciproc.v1`, by `hello` what its hello holds.
   */
  constructor(socket: Socket, limits: OwnLimits, owner: SocketOwner) {
    this.limits = limits;
    this.#owner = owner;
    this.link = new PackedLink(socket, "client", this);
  }

  /** Whether the server has ever said hello, and one that offers a session. */
  wasGreeted = false;
  hadSession = false;

  /** Whether there is a session to resume: then the next socket is to offer `RESUME_OFFER`. */
  get isResumable(): boolean {
    return this.#token !== undefined;
  }

  /**
   * Takes the next socket, which has opened and not been started. `isGreeted`: the server agreed to `reciproc.v1` and its
   * first frame is a hello, which is still to be told.
   */
  attach(socket: Socket, isGreeted: boolean): void {
    const handler = this.link.attach(socket);
    if (!isGreeted && this.#letGo("the server knows no sessions any more")) this.flowPlainly();
    socket.start(handler);
  }

  /** Whoever is at the present socket speaks nothing but JSON-RPC. */
  flowPlainly(): void {
    this.link.flowPlainly();
    this.#owner.flows(true);
  }

  hello(hello: unknown): void {
    this.wasGreeted = true;
    const isOffered = wantsSession(hello) && this.#owner.endsWithSocket !== true;
    if (this.isResumable && isOffered) return this.#ask();
    if (!this.#letGo("the server takes no sessions any more")) return;
    if (isOffered) return this.#want();
    this.link.greet();
    this.#owner.flows(true);
  }

  control(frame: object): void {
    if ("session" in frame) this.#opened(frame.session);
    else if ("resumed" in frame && this.#isAsking) this.#resumed(frame.resumed);
  }

  acked(): void {}

  suspend(): boolean {
    this.#isAsking = false;
    if (!this.isResumable || this.#isOverdue) return false;
    if (this.#isSuspended) return true;
    this.#isSuspended = true;
    setDeadline(this, this.#ttlMs);
    return true;
  }

  suspended(): void {
    this.#owner.suspended();
  }

  grew(): void {}

  takesBroadcast(): boolean {
    return true;
  }

  drop(): void {
    this.#token = undefined;
    this.#found();
  }

  over(info: CloseInfo): boolean {
    return this.#owner.over(info);
  }

  /** The time is up. While a socket is tried, what the server answers on it decides. */
  expire(): void {
    if (this.link.hasSocket) this.#isOverdue = true;
    else this.link.expire(1006, notInTime(this.#ttlMs));
  }

  /** Asks for a session. What is sent behind this is counted. */
  #want(): void {
    this.hadSession = true;
    const { maxMessageBytes, logFrames, logLength } = this.limits;
    this.link.open({ hello: { session: true, limits: { maxMessageBytes, logFrames, logLength } } });
  }

  #opened(value: unknown): void {
    const { session } = this.link;
    if (session === undefined || this.isResumable) return;
    const opened = sessionOf(value);
    if (opened === undefined) return this.link.breakOff("`session` breaks its rules");
    session.theirs = opened.limits;
    this.#token = opened.token;
    this.#ttlMs = opened.ttlMs;
    this.#attempt = 0;
    // At once: until then the server does not know that the token came, and the session ends with this socket.
    this.link.ack();
    this.#owner.flows(true);
  }

  #ask(): void {
    this.#isAsking = true;
    // The old socket was left when this one was attached, so nothing is received between this count and the answer.
    const received = this.link.session!.ack();
    this.link.ask({ resume: { token: this.#token, received, attempt: ++this.#attempt } });
  }

  #resumed(value: unknown): void {
    if (member(value, "refused") !== undefined) return this.#refused();
    const resumed = resumedOf(value);
    if (resumed === undefined || !this.link.session!.covers(resumed.received)) {
      return this.link.breakOff("`resumed` breaks its rules");
    }
    this.#token = resumed.token;
    this.#found();
    this.link.ack();
    this.link.resume(resumed.received);
    this.#owner.flows(false);
  }

  /** Goes on without it, on the same socket. */
  #refused(): void {
    if (this.#letGo("the server has no such session any more")) this.#want();
  }

  /** The session, where there is one, is over; whether the present socket is not. */
  #letGo(reason: string): boolean {
    if (!this.isResumable) return true;
    this.drop();
    return this.link.renew(reason);
  }

  /** The session is no longer without a socket, or no longer there. */
  #found(): void {
    this.#isSuspended = this.#isAsking = this.#isOverdue = false;
    clearDeadline(this);
  }
}
