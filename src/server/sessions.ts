/** All sessions of one server: gives tokens, finds the session of a client that returns, and bounds the suspended ones. */
import * as CloseCode from "../close-codes.js";
import { clearDeadline, setDeadline, type Expiring } from "../core/deadlines.js";
import { List, unlink, type Linked } from "../core/list.js";
import { member } from "../core/message.js";
import { type CloseInfo } from "../core/transport.js";
import type { Socket, SocketHandler } from "../link/socket.js";
import { cutReason } from "../close-codes.js";
import type { EndpointLimits } from "../session/endpoint.js";
import {
  byeFrame,
  helloOf,
  parse,
  pickLimits,
  REFUSED,
  resumeOf,
  serverHello,
  type Bye,
  type ResumeFrame,
} from "../session/frames.js";
import { PackedLink, type LinkOwner } from "../session/link.js";
import { Session } from "../session/session.js";
import { longestFrame } from "../session/sizes.js";
import { TokenRegistry, type TokenEntry, type TokenOptions } from "./tokens.js";

/** How a server keeps sessions. */
export interface SessionsOptions extends TokenOptions {
  readonly limits: EndpointLimits;
  /** How long a session lasts without a socket, in milliseconds. */
  readonly ttlMs: number;
  /** Most suspended sessions of one principal. Beyond them its oldest one ends. */
  readonly maxSuspendedPerPrincipal: number;
  /** Most that all suspended sessions hold together, in UTF-16 code units. Beyond it the one that holds most ends. */
  readonly maxHeldLength: number;
  /** A session goes on over another socket. */
  resumed?(): void;
}

/**
 * Claims a connection slot for a session that begins. If `isAhead`, claims nothing yet and only looks whether there is a slot
 * to claim. Returns what the client is closed with if there is none.
 */
export type Claim = (isAhead: boolean) => Bye | undefined;

/** The place of a suspended session in the order of suspension. */
interface Place extends Linked {
  readonly session: ServerSession;
}

/** The handler of a socket of which nothing more is read. */
const IGNORE: SocketHandler = { frame() {}, closed() {} };

/** All sessions of one server. */
export class Sessions {
  readonly options: SessionsOptions;
  readonly tokens: TokenRegistry<ServerSession>;
  /**
   * The suspended sessions without a principal, and those with one, each in the order of suspension. Not Sets: the first
   * member of a Set is found behind the places of all that were deleted before it.
   */
  readonly #unnamed = new List<Place>();
  readonly #named = new List<Place>();
  readonly #byPrincipal = new Map<string, Set<ServerSession>>();
  /** Sockets whose clients have said that they return, and not yet whose session they resume. */
  readonly #arrivals = new Set<Arrival>();
  #suspended = 0;
  #held = 0;
  /** The length of the broadcasts that are queued in suspended sessions. It ends none of them, and has a bound of its own. */
  #heldBroadcasts = 0;

  constructor(options: SessionsOptions) {
    this.options = options;
    this.tokens = new TokenRegistry(options);
  }

  /** How many sessions have no socket. They count as connections. */
  get suspended(): number {
    return this.#suspended;
  }

  /** How many sessions have a socket and can be resumed over another. */
  get live(): number {
    return this.tokens.resumable - this.#suspended;
  }

  /** What the suspended sessions hold, in UTF-16 code units. */
  get held(): number {
    return this.#held + this.#heldBroadcasts;
  }

  /**
   * Returns the link of a new client. `principal` names the user: only the same one may resume the session. If it is `undefined`,
   * the token alone decides, and no bound for each principal applies.
   */
  link(socket: Socket, principal: string | undefined): PackedLink {
    const token = this.tokens.makeToken();
    this.#greet(socket, token);
    return this.#begin(socket, principal, token).link;
  }

  /**
   * Takes a socket, open and not started, whose client says that it returns. Either its session goes on, on the link that it has,
   * or the client begins anew, and `welcome` is given a link, which it must start before it returns. A client that says neither
   * within `patienceMs` is closed. A session that is resumed has a connection slot. For a new one, `claim` must return one.
   */
  admit(
    socket: Socket,
    principal: string | undefined,
    patienceMs: number,
    welcome: (link: PackedLink) => void,
    claim: Claim = () => undefined,
  ): void {
    // The token is for a session that begins anew. A client that resumes one ignores it.
    const token = this.tokens.makeToken();
    this.#greet(socket, token);
    // `resume` may be longer than any message.
    socket.maxFrameBytes = longestFrame(this.options.limits.maxMessageBytes);
    const arrival = new Arrival(this, socket, principal, patienceMs, claim, () => {
      const { link } = this.#begin(socket, principal, token);
      welcome(link);
      return link;
    });
    this.#arrivals.add(arrival);
    socket.start(arrival);
  }

  #greet(socket: Socket, token: string): void {
    const { ttlMs, limits } = this.options;
    socket.send(serverHello({ token, ttlMs, limits: pickLimits(limits) }));
  }

  #begin(socket: Socket, principal: string | undefined, token: string): ServerSession {
    return new ServerSession(this, principal, socket, token);
  }

  /** An arrival has said whose session it resumes, or is closed. */
  settled(arrival: Arrival): void {
    this.#arrivals.delete(arrival);
  }

  /** Closes the sockets of the clients that have not said yet whose session they resume. */
  shut(code: number, reason: string): void {
    for (const arrival of this.#arrivals) arrival.close(code, reason);
  }

  /** Ends the oldest suspended session with 1013 and this reason: one without a principal, if there is any. */
  evict(reason: string): void {
    (this.#unnamed.first ?? this.#named.first)?.session.end(reason);
  }

  /** A session has lost its socket. */
  suspend(session: ServerSession): void {
    session.place = { session };
    (session.principal === undefined ? this.#unnamed : this.#named).add(session.place);
    this.#suspended++;
    this.#boundPrincipal(session);
    this.update(session);
  }

  /** A session has a socket again, or is over. */
  release(session: ServerSession): void {
    if (session.place === undefined) return;
    unlink(session.place);
    session.place = undefined;
    this.#suspended--;
    this.#held -= session.held;
    this.#heldBroadcasts -= session.heldBroadcasts;
    session.held = session.heldBroadcasts = 0;
    const { principal } = session;
    const siblings = principal === undefined ? undefined : this.#byPrincipal.get(principal);
    siblings?.delete(session);
    if (siblings?.size === 0) this.#byPrincipal.delete(principal!);
  }

  /** Counts what a suspended session holds now, and ends those that hold most while all hold too much. */
  update(session: ServerSession): void {
    if (session.place === undefined) return;
    const { heldLength, endpoint } = session.link;
    this.#held += heldLength - session.held;
    session.held = heldLength;
    this.#heldBroadcasts += endpoint.queuedBroadcastLength - session.heldBroadcasts;
    session.heldBroadcasts = endpoint.queuedBroadcastLength;
    while (this.#held > this.options.maxHeldLength) {
      const suspended = [...this.#unnamed.toArray(), ...this.#named.toArray()];
      const largest = suspended.reduce((most, other) => (other.session.held > most.session.held ? other : most));
      largest.session.end("suspended sessions hold more than `maxSuspendedBytes` together");
    }
  }

  /** Whether a suspended session may queue one more broadcast of that length. */
  acceptsBroadcast(length: number): boolean {
    return this.#heldBroadcasts + length <= this.options.maxHeldLength / 4;
  }

  #boundPrincipal(session: ServerSession): void {
    const { principal } = session;
    if (principal === undefined) return;
    let siblings = this.#byPrincipal.get(principal);
    if (siblings === undefined) this.#byPrincipal.set(principal, (siblings = new Set()));
    siblings.add(session);
    const [oldest] = siblings;
    if (siblings.size > this.options.maxSuspendedPerPrincipal) {
      oldest!.end("the principal has more suspended sessions than `maxSuspendedPerPrincipal`");
    }
  }
}

/** One client's session, which exists for certain once the client has confirmed its token. */
class ServerSession implements LinkOwner {
  /** Set while the session is suspended. */
  place: Place | undefined;
  /** What is counted of it among the suspended sessions. */
  held = 0;
  heldBroadcasts = 0;
  readonly principal: string | undefined;
  readonly link: PackedLink;
  readonly #sessions: Sessions;
  readonly tokens: TokenEntry<ServerSession>;

  constructor(sessions: Sessions, principal: string | undefined, socket: Socket, token: string) {
    this.principal = principal;
    this.#sessions = sessions;
    this.tokens = sessions.tokens.open(this, principal, token);
    const { limits } = sessions.options;
    this.link = new PackedLink("server", limits, true, this);
    const session = new Session(limits);
    session.ttlMs = sessions.options.ttlMs;
    this.link.accept(socket, session);
  }

  confirmed(): void {
    this.#sessions.tokens.confirm(this.tokens);
  }

  suspended(): void {
    this.#sessions.suspend(this);
  }

  heldChanged(): void {
    this.#sessions.update(this);
  }

  acceptsBroadcast(length: number): boolean {
    return this.#sessions.acceptsBroadcast(length);
  }

  dropped(): void {
    this.#sessions.release(this);
    this.#sessions.tokens.drop(this.tokens);
  }

  flows(): void {}

  discarded(): void {
    this.dropped();
  }

  succeed(_end: CloseInfo): undefined {}

  /** Ends the session for what this server must bound. */
  end(reason: string): void {
    this.link.endpoint.end(CloseCode.TryAgainLater, reason);
  }

  /** Goes on over `socket`. Returns false if `received` cannot be true, and ends the session then. */
  resume(socket: Socket, resume: ResumeFrame): boolean {
    const { link } = this;
    if (!link.endpoint.state.session!.covers(resume.received)) {
      link.endpoint.fail("`received` is no count of the frames sent");
      return false;
    }
    this.#sessions.release(this);
    link.resume(socket, resume, () => this.#sessions.tokens.renew(this.tokens, resume.token));
    this.#sessions.options.resumed?.();
    return true;
  }
}

/** A socket whose client says that it returns, until it is known whose session it resumes. */
class Arrival implements SocketHandler, Expiring {
  deadline = 0;
  readonly #sessions: Sessions;
  readonly #socket: Socket;
  readonly #principal: string | undefined;
  readonly #claim: Claim;
  readonly #begin: () => PackedLink;
  #isRefused = false;

  /** `begin` makes a new session on the socket, and returns its link, which is started. */
  constructor(
    sessions: Sessions,
    socket: Socket,
    principal: string | undefined,
    patienceMs: number,
    claim: Claim,
    begin: () => PackedLink,
  ) {
    this.#sessions = sessions;
    this.#socket = socket;
    this.#principal = principal;
    this.#claim = claim;
    this.#begin = begin;
    setDeadline(this, patienceMs);
  }

  frame(text: string): void {
    if (helloOf(text) !== undefined) this.#startAnew(text);
    else this.#resume(resumeOf(member(parse(text), "resume")));
  }

  closed(): void {
    this.#settle();
  }

  expire(): void {
    this.close(CloseCode.Superseded, "neither `resume` nor a hello came in time");
  }

  #startAnew(hello: string): void {
    const bye = this.#claim(false);
    if (bye !== undefined) {
      this.#socket.send(byeFrame(bye));
      return this.close(bye.code, cutReason(bye.reason));
    }
    this.#settle();
    this.#begin().frame(hello);
  }

  #resume(resume: ResumeFrame | undefined): void {
    // Rule 1: a client that was refused says hello, and nothing else.
    if (resume === undefined || this.#isRefused)
      return this.close(CloseCode.ProtocolError, "neither `resume` nor a hello");
    const found = this.#sessions.tokens.find(resume, this.#principal);
    if (found === "stale") return this.close(CloseCode.Superseded, "a later attempt came before this one");
    const isResumed =
      found !== "unknown" && !found.session.link.checkExpiry() && found.session.resume(this.#socket, resume);
    if (isResumed) this.#settle();
    else this.#refuse();
  }

  #refuse(): void {
    // Without a bye the client keeps its session, which another server may know, and tries again.
    const bye = this.#claim(true);
    if (bye !== undefined) return this.close(bye.code, cutReason(bye.reason));
    this.#isRefused = true;
    this.#socket.send(REFUSED);
  }

  /** Closes the socket. Nothing more of it is read. */
  close(code: number, reason: string): void {
    this.#settle();
    this.#socket.start(IGNORE);
    this.#socket.close(code, reason);
  }

  #settle(): void {
    clearDeadline(this);
    this.#sessions.settled(this);
  }
}
