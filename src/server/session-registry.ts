/** All sessions of one server: issues tokens, finds the session that a client resumes, and bounds the suspended sessions. */
import * as CloseCode from "../message/close-codes.js";
import { List, unlink, type Linked } from "../base/list.js";
import type { Socket } from "../socket/socket.js";
import { pickLimits, serverHello, type ResumeFrame } from "../session/frames.js";
import { Session, UNKNOWN_LIMITS } from "../session/session.js";
import type { EndpointLimits } from "../session/state.js";
import type { LinkDelegate } from "../session/link.js";
import { ServerLink } from "./link.js";
import { TokenRegistry, type Resumable, type TokenOptions } from "./tokens.js";

/** How a server keeps sessions. */
export interface SessionsOptions extends TokenOptions {
  readonly limits: EndpointLimits;
  /** How long a session lasts without a socket, in milliseconds. */
  readonly ttlMs: number;
  /** By which a load balancer finds this server. */
  readonly route?: string | undefined;
  /** Maximum number of suspended sessions of one principal. One more ends the oldest. */
  readonly maxSuspendedPerPrincipal: number;
  /** Maximum of what all suspended sessions hold together, in UTF-16 code units. Beyond it, the session that holds most ends. */
  readonly maxStoredLength: number;
}

/** The place of a suspended session in the order of suspension. */
interface Place extends Linked {
  readonly session: ServerSession;
}

/** All sessions of one server. */
export class SessionRegistry {
  readonly options: SessionsOptions;
  readonly tokens: TokenRegistry<ServerSession>;
  /** The hello to each client, with an empty token. */
  readonly #hello: string;
  /**
   * The suspended sessions without a principal, and those with one, each in the order of suspension. Not Sets: a Set finds its
   * first member only by skipping the places of all members deleted before it.
   */
  readonly #unnamed = new List<Place>();
  readonly #named = new List<Place>();
  readonly #byPrincipal = new Map<string, Set<ServerSession>>();
  #suspended = 0;
  #stored = 0;
  /** The length of the broadcasts that are queued in suspended sessions. It has its own bound, which ends no session. */
  #storedBroadcasts = 0;

  constructor(options: SessionsOptions) {
    this.options = options;
    this.tokens = new TokenRegistry(options);
    const { ttlMs, limits, route } = options;
    this.#hello = serverHello({ token: "", ttlMs, limits: pickLimits(limits), route }, limits.bytes);
  }

  /** Number of sessions without a socket. Each takes a connection slot. */
  get suspended(): number {
    return this.#suspended;
  }

  /** Number of sessions that have a socket and can be resumed over another. */
  get live(): number {
    return this.tokens.resumable - this.#suspended;
  }

  /** What the suspended sessions hold, in UTF-16 code units. */
  get stored(): number {
    return this.#stored + this.#storedBroadcasts;
  }

  /**
   * Returns the link of a new client. `principal` names the user: only the same principal may resume the session. If it is
   * `undefined`, only the token decides, and `maxSuspendedPerPrincipal` does not apply.
   */
  link(socket: Socket, principal: string | undefined): ServerLink {
    return this.begin(socket, principal, this.offer(socket));
  }

  /** Sends the hello to a client, which offers a session. Returns the token of the session. */
  offer(socket: Socket): string {
    const token = this.options.makeToken();
    // The token is the first empty text, and needs no escapes.
    socket.send(this.#hello.replace('""', `"${token}"`));
    return token;
  }

  /** Returns the link of the session that was offered with `token`. */
  begin(socket: Socket, principal: string | undefined, token: string): ServerLink {
    return new ServerSession(this, principal, socket, token).link;
  }

  /** Ends the oldest suspended session with 1013 and this reason. Prefers sessions without a principal. */
  evict(reason: string): void {
    (this.#unnamed.first ?? this.#named.first)?.session.end(reason);
  }

  /** Ends the session of a token, if it is here: its client has discarded it, because another node refused it. */
  endAbandoned(hash: string, principal: string | undefined): void {
    const session = this.tokens.byHash(hash, principal);
    session?.link.end(CloseCode.Superseded, "the client has discarded this session, because another node refused it");
  }

  /** Adds a session that has lost its socket to the suspended ones, and enforces their bounds. */
  suspend(session: ServerSession): void {
    session.place = { session };
    (session.principal === undefined ? this.#unnamed : this.#named).add(session.place);
    this.#suspended++;
    this.#boundPrincipal(session);
    this.update(session);
  }

  /** Removes a session that was resumed or has ended from the suspended ones. Does nothing if it is not suspended. */
  release(session: ServerSession): void {
    if (session.place === undefined) return;
    unlink(session.place);
    session.place = undefined;
    this.#suspended--;
    this.#stored -= session.stored;
    this.#storedBroadcasts -= session.storedBroadcasts;
    session.stored = session.storedBroadcasts = 0;
    const { principal } = session;
    const siblings = principal === undefined ? undefined : this.#byPrincipal.get(principal);
    siblings?.delete(session);
    if (siblings?.size === 0) this.#byPrincipal.delete(principal!);
  }

  /** Updates the count of what a suspended session holds. While all together hold too much, ends the session that holds most. */
  update(session: ServerSession): void {
    if (session.place === undefined) return;
    const { storedLength, storedBroadcastLength } = session.link;
    this.#stored += storedLength - session.stored;
    session.stored = storedLength;
    this.#storedBroadcasts += storedBroadcastLength - session.storedBroadcasts;
    session.storedBroadcasts = storedBroadcastLength;
    while (this.#stored > this.options.maxStoredLength && this.#endLargest());
  }

  /** Ends the suspended session that holds most. Returns false if that released nothing. */
  #endLargest(): boolean {
    const before = this.#suspended;
    const suspended = [...this.#unnamed.toArray(), ...this.#named.toArray()];
    const largest = suspended.reduce((most, other) => (other.session.stored > most.session.stored ? other : most));
    largest.session.end("suspended sessions hold more than `maxSuspendedBytes` together");
    return this.#suspended < before;
  }

  /** Returns true if suspended sessions may hold so much more of queued broadcasts. */
  acceptsBroadcast(length: number): boolean {
    return this.#storedBroadcasts + length <= this.options.maxStoredLength / 4;
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

/** The session of one client. It certainly exists once the client has confirmed its token. */
export class ServerSession implements LinkDelegate, Resumable {
  /** Set while the session is suspended. */
  place: Place | undefined = undefined;
  /** The part of this session in the counts of all suspended sessions. */
  stored = 0;
  storedBroadcasts = 0;
  readonly principal: string | undefined;
  confirmedHash: string | undefined = undefined;
  nextHash: string | undefined = undefined;
  attempt = 0;
  readonly link: ServerLink;
  readonly #sessions: SessionRegistry;

  constructor(sessions: SessionRegistry, principal: string | undefined, socket: Socket, token: string) {
    this.principal = principal;
    this.#sessions = sessions;
    sessions.tokens.open(this, token);
    const { limits, ttlMs } = sessions.options;
    this.link = new ServerLink(limits, this);
    this.link.attachSocket(socket, "greeting", new Session(limits, { ttlMs, limits: UNKNOWN_LIMITS }));
  }

  confirmed(): void {
    this.#sessions.tokens.confirm(this);
  }

  suspended(): void {
    this.#sessions.suspend(this);
  }

  storedChanged(): void {
    this.#sessions.update(this);
  }

  acceptsBroadcast(length: number): boolean {
    return this.#sessions.acceptsBroadcast(length);
  }

  resumptionEnded(): void {
    this.#sessions.release(this);
    this.#sessions.tokens.drop(this);
  }

  /** Ends the session with 1013, because a bound of the server is exceeded. */
  end(reason: string): void {
    this.link.end(CloseCode.TryAgainLater, reason);
  }

  /** Returns false if the session has expired, or if `received` cannot be true, which ends the session. */
  checkResume({ received }: ResumeFrame): boolean {
    const { link } = this;
    if (link.checkExpiry()) return false;
    const isTrue = link.state.session!.canHaveReceived(received);
    if (!isTrue) link.fail("`received` is no count of the frames sent");
    return isTrue;
  }

  /** Resumes the session over `socket`. */
  resume(socket: Socket, resume: ResumeFrame): void {
    this.#sessions.release(this);
    this.link.resume(socket, resume, () => this.#sessions.tokens.renew(this, resume.token));
  }
}
