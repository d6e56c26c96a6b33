/** The server's half of all sessions: gives tokens, finds the session of a client that returns, and bounds those that wait. */
import { clearDeadline, setDeadline, type Expiring } from "../core/deadlines.js";
import { List, unlink, type Linked } from "../core/list.js";
import { member } from "../core/message.js";
import { cutReason, type CloseInfo, type Socket, type SocketHandler } from "../core/transport.js";
import {
  helloOf,
  LEFT,
  limitsOf,
  parse,
  resumeOf,
  sayBye,
  wantsSession,
  type Bye,
  type ResumeFrame,
} from "./frames.js";
import { PackedLink } from "./packed.js";
import { notInTime, type Keeper, type OwnLimits } from "./session.js";
import { longestFrame } from "./sizes.js";

/** How a server keeps sessions. */
export interface SessionsOptions {
  readonly limits: OwnLimits;
  /** How long a session lasts without a socket, in milliseconds. */
  readonly ttlMs: number;
  /** Makes a token: at least 128 random bits, at most 256 characters. */
  makeToken(): string;
  /** A one-way hash. Only hashes are kept, so that what leaks from here resumes nothing. */
  hash(token: string): string;
  /** Most suspended sessions of one principal; beyond them its oldest ends. */
  readonly maxSuspendedPerPrincipal: number;
  /** Most that all suspended sessions hold together, in UTF-16 code units; beyond it the one that holds most ends. */
  readonly maxHeldLength: number;
  /** Told when a session goes on over another socket. */
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

const DEAF: SocketHandler = { frame() {}, closed() {} };
const GREETING = '{"hello":{"session":true}}';

/** All sessions of one server. */
export class Sessions {
  readonly options: SessionsOptions;
  /** By the hash of each token that is accepted. */
  readonly #byHash = new Map<string, ServerSession>();
  /**
   * The suspended sessions without a principal, and those with one, each in the order of suspension. Not Sets: the first
   * member of a Set is found behind the places of all that were deleted before it.
   */
  readonly #unnamed = new List<Place>();
  readonly #named = new List<Place>();
  #suspended = 0;
  /** How many sessions have a token that is known to their client. */
  #resumable = 0;
  readonly #byPrincipal = new Map<string, Set<ServerSession>>();
  /** Sockets of which it is not known yet whose they are. */
  readonly #arrivals = new Set<Arrival>();
  #held = 0;
  /** The length of the broadcasts that wait in suspended sessions. It ends none of them, and has a bound of its own. */
  #heldBroadcasts = 0;

  constructor(options: SessionsOptions) {
    this.options = options;
  }

  /** How many sessions wait for a socket. They count as connections. */
  get suspended(): number {
    return this.#suspended;
  }

  /** How many sessions have a socket and can be resumed over another. */
  get live(): number {
    return this.#resumable - this.#suspended;
  }

  /** What those hold, in UTF-16 code units. */
  get held(): number {
    return this.#held + this.#heldBroadcasts;
  }

  /** How many tokens are accepted. For tests. */
  get tokens(): number {
    return this.#byHash.size;
  }

  /**
   * The link of a client that does not say it returns. `principal` names who it is: only the same may resume its session.
   * `undefined` where nobody is told apart; then the token alone decides, and no bound for each principal applies.
   */
  link(socket: Socket, principal: string | undefined): PackedLink {
    return new ServerSession(this, principal, socket).link;
  }

  /**
   * Takes a socket, open and not started, whose client says that it returns. Its session goes on, on the link that it has; or
   * the client begins anew, and `welcome` is given a link, which it must start before it returns. A client that says neither
   * within `patienceMs` is closed. A session that is resumed has a connection slot. For a new one, `claim` must return one.
   */
  admit(
    socket: Socket,
    principal: string | undefined,
    patienceMs: number,
    welcome: (link: PackedLink) => void,
    claim: Claim = () => undefined,
  ): void {
    socket.send(GREETING);
    // `resume` may be longer than any message.
    socket.maxFrameBytes = longestFrame(this.options.limits.maxMessageBytes);
    const arrival = new Arrival(this, socket, principal, patienceMs, welcome, claim);
    this.#arrivals.add(arrival);
    socket.start(arrival);
  }

  /** An arrival is one no longer. */
  settled(arrival: Arrival): void {
    this.#arrivals.delete(arrival);
  }

  /** Closes the sockets of whoever has not said yet whether it returns. */
  shut(code: number, reason: string): void {
    for (const arrival of this.#arrivals) arrival.close(code, reason);
  }

  /** The session that a token resumes, for that principal. */
  find(hash: string, principal: string | undefined): ServerSession | undefined {
    const session = this.#byHash.get(hash);
    if (session === undefined || session.principal !== principal) return undefined;
    if (session.place === undefined || performance.now() < session.deadline) return session;
    // Its timer is late.
    session.expire();
    return undefined;
  }

  /** Ends the oldest suspended session with 1013 and this reason: one without a principal, if there is any. */
  evict(reason: string): void {
    (this.#unnamed.first ?? this.#named.first)?.session.link.expire(1013, reason);
  }

  /** Counts a session that can be resumed from now on, or no more. */
  countResumable(by: 1 | -1): void {
    this.#resumable += by;
  }

  /** Accepts a token. */
  accept(hash: string, session: ServerSession): void {
    this.#byHash.set(hash, session);
  }

  /** Accepts it no more. */
  reject(hash: string | undefined): void {
    if (hash !== undefined) this.#byHash.delete(hash);
  }

  /** A session has lost its socket. */
  suspend(session: ServerSession): void {
    session.place = { session };
    (session.principal === undefined ? this.#unnamed : this.#named).add(session.place);
    this.#suspended++;
    this.#held += session.link.held;
    this.#heldBroadcasts += session.link.heldBroadcasts;
    setDeadline(session, this.options.ttlMs);
    this.#boundPrincipal(session);
    this.#boundAll();
  }

  /** A session has found a socket, or is over. */
  release(session: ServerSession): void {
    if (session.place === undefined) return;
    unlink(session.place);
    session.place = undefined;
    this.#suspended--;
    clearDeadline(session);
    this.#held -= session.link.held;
    this.#heldBroadcasts -= session.link.heldBroadcasts;
    const { principal } = session;
    const siblings = principal === undefined ? undefined : this.#byPrincipal.get(principal);
    siblings?.delete(session);
    if (siblings?.size === 0) this.#byPrincipal.delete(principal!);
  }

  /** What a session holds has changed by so much. */
  grew(session: ServerSession, by: number): void {
    if (session.place === undefined) return;
    this.#held += by;
    this.#boundAll();
  }

  /** Whether a session may hold one more broadcast of that length. */
  takesBroadcast(session: ServerSession, length: number): boolean {
    if (session.place === undefined) return true;
    if (this.#heldBroadcasts + length > this.options.maxHeldLength / 4) return false;
    this.#heldBroadcasts += length;
    return true;
  }

  #boundAll(): void {
    while (this.#held > this.options.maxHeldLength) {
      const suspended = [...this.#unnamed.toArray(), ...this.#named.toArray()];
      const largest = suspended.reduce((most, other) =>
        other.session.link.held > most.session.link.held ? other : most,
      );
      largest.session.link.expire(1013, "suspended sessions hold more than `maxSuspendedBytes` together");
    }
  }

  #boundPrincipal(session: ServerSession): void {
    const { principal } = session;
    if (principal === undefined) return;
    let siblings = this.#byPrincipal.get(principal);
    if (siblings === undefined) this.#byPrincipal.set(principal, (siblings = new Set()));
    siblings.add(session);
    const [oldest] = siblings;
    if (siblings.size > this.options.maxSuspendedPerPrincipal) {
      oldest!.link.expire(1013, "the principal has more suspended sessions than `maxSuspendedPerPrincipal`");
    }
  }
}

/** One client's session, or as yet the possibility of one. */
class ServerSession implements Keeper, Expiring {
  deadline = 0;
  /** Set while the session is suspended. */
  place: Place | undefined;
  readonly principal: string | undefined;
  readonly link: PackedLink;
  readonly #sessions: Sessions;
  /** Hashes of the token that the client is known to have, and of the newest it was given since. */
  #confirmed: string | undefined;
  #successor: string | undefined;
  /** The highest that came. */
  #attempt = 0;

  constructor(sessions: Sessions, principal: string | undefined, socket: Socket | undefined) {
    this.principal = principal;
    this.#sessions = sessions;
    this.link = new PackedLink(socket, "server", this);
  }

  get limits(): OwnLimits {
    return this.#sessions.options.limits;
  }

  get greeting(): string {
    return GREETING;
  }

  hello(hello: unknown): void {
    if (!wantsSession(hello)) return;
    const theirs = limitsOf(member(hello, "limits"));
    if (theirs === undefined) return this.link.breakOff("`limits` of a hello break their rules");
    const { maxMessageBytes, logFrames, logLength } = this.limits;
    const { ttlMs } = this.#sessions.options;
    const limits = { maxMessageBytes, logFrames, logLength };
    this.link.open({ session: { token: this.#nextToken(), ttlMs, limits } }, theirs);
  }

  control(frame: object): void {
    if ("resume" in frame) this.link.breakOff("`resume` on a socket that did not say it would");
  }

  /** Acks come on the newest socket only, and its client sends one as soon as it has the token. */
  acked(): void {
    if (this.#successor === undefined) return;
    if (this.#confirmed === undefined) this.#sessions.countResumable(1);
    this.#sessions.reject(this.#confirmed);
    this.#confirmed = this.#successor;
    this.#successor = undefined;
  }

  suspend(): boolean {
    // Who never acked a token may not have it.
    return this.#confirmed !== undefined;
  }

  suspended(): void {
    this.#sessions.suspend(this);
  }

  grew(by: number): void {
    this.#sessions.grew(this, by);
  }

  takesBroadcast(length: number): boolean {
    return this.#sessions.takesBroadcast(this, length);
  }

  drop(): void {
    this.#sessions.release(this);
    if (this.#confirmed !== undefined) this.#sessions.countResumable(-1);
    this.#sessions.reject(this.#confirmed);
    this.#sessions.reject(this.#successor);
    this.#confirmed = this.#successor = undefined;
  }

  over(_info: CloseInfo): boolean {
    return false;
  }

  expire(): void {
    this.link.expire(1006, notInTime(this.#sessions.options.ttlMs));
  }

  /** Whether no later attempt came before this one. */
  isNewest(attempt: number): boolean {
    if (attempt <= this.#attempt) return false;
    this.#attempt = attempt;
    return true;
  }

  /** Goes on over `socket`; `hash` is that of the token which was accepted. Answers what the socket's frames go to. */
  resume(socket: Socket, hash: string, received: number): SocketHandler {
    // First: what the old socket still holds must not be counted once the count is read.
    const handler = this.link.attach(socket);
    this.#sessions.release(this);
    if (hash === this.#successor) this.acked();
    const { options } = this.#sessions;
    this.link.say({ resumed: { token: this.#nextToken(), received: this.link.session!.ack() } });
    this.link.resume(received);
    options.resumed?.();
    return handler;
  }

  /** A new token, in place of the one that was given last and not acked. */
  #nextToken(): string {
    const { options } = this.#sessions;
    const token = options.makeToken();
    this.#sessions.reject(this.#successor);
    this.#successor = options.hash(token);
    this.#sessions.accept(this.#successor, this);
    return token;
  }
}

/** A socket whose client says that it returns, until it is known whose it is; from then on it passes frames on. */
class Arrival implements SocketHandler, Expiring {
  deadline = 0;
  readonly #sessions: Sessions;
  readonly #socket: Socket;
  readonly #principal: string | undefined;
  readonly #welcome: (link: PackedLink) => void;
  readonly #claim: Claim;
  #next: SocketHandler | undefined;
  #isRefused = false;

  constructor(
    sessions: Sessions,
    socket: Socket,
    principal: string | undefined,
    patienceMs: number,
    welcome: (link: PackedLink) => void,
    claim: Claim,
  ) {
    this.#sessions = sessions;
    this.#socket = socket;
    this.#principal = principal;
    this.#welcome = welcome;
    this.#claim = claim;
    setDeadline(this, patienceMs);
  }

  frame(text: string): void {
    if (this.#next !== undefined) this.#next.frame(text);
    else if (helloOf(text) !== undefined) this.#begin(text);
    else this.#resume(resumeOf(member(parse(text), "resume")));
  }

  closed(info: CloseInfo): void {
    this.#settle();
    this.#next?.closed(info);
  }

  expire(): void {
    this.close(LEFT, "neither `resume` nor a hello came in time");
  }

  #begin(hello: string): void {
    const bye = this.#claim(false);
    if (bye !== undefined) {
      this.#socket.send(sayBye(bye));
      return this.close(bye.code, cutReason(bye.reason));
    }
    const { link } = new ServerSession(this.#sessions, this.#principal, undefined);
    const next = link.attach(this.#socket);
    this.#pass(next);
    this.#welcome(link);
    next.frame(hello);
  }

  #resume(resume: ResumeFrame | undefined): void {
    if (resume === undefined || this.#isRefused) return this.close(1002, "neither `resume` nor a hello");
    const hash = this.#sessions.options.hash(resume.token);
    const session = this.#sessions.find(hash, this.#principal);
    if (session === undefined) return this.#refuse();
    if (!session.isNewest(resume.attempt)) return this.close(LEFT, "a later attempt came before this one");
    if (!session.link.session!.covers(resume.received)) {
      session.link.expire(1002, "`received` is no count of the frames sent");
      return this.#refuse();
    }
    this.#pass(session.resume(this.#socket, hash, resume.received));
  }

  /** Only a hello may follow: anything else would be of the session that is no more. */
  #refuse(): void {
    // Without a bye the client keeps its session, which another server may know, and tries again.
    const bye = this.#claim(true);
    if (bye !== undefined) return this.close(bye.code, cutReason(bye.reason));
    this.#isRefused = true;
    this.#socket.send('{"resumed":{"refused":"unknown-session"}}');
  }

  /** Closes the socket; nothing more of it is read. */
  close(code: number, reason: string): void {
    this.#pass(DEAF);
    this.#socket.close(code, reason);
  }

  #pass(next: SocketHandler): void {
    this.#settle();
    this.#next = next;
  }

  #settle(): void {
    clearDeadline(this);
    this.#sessions.settled(this);
  }
}
