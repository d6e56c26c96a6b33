/** All sessions of one server: issues tokens, finds the session that a client resumes, and bounds the suspended sessions. */
import * as CloseCode from "../close-codes.js";
import { clearDeadline, setDeadline, type Expiring } from "../core/deadlines.js";
import { List, unlink, type Linked } from "../core/list.js";
import { member } from "../core/message.js";
import type { Socket, SocketHandler } from "../link/socket.js";
import type { EndpointLimits } from "../session/state.js";
import {
  byeFrame,
  helloOf,
  parse,
  pickLimits,
  readBye,
  REFUSED,
  resumeOf,
  serverHello,
  type Bye,
  type ResumeFrame,
} from "../session/frames.js";
import { Session } from "../session/session.js";
import { longestFrame } from "../session/sizes.js";
import { closeIgnored } from "./closing.js";
import { ServerLink, type ServerLinkDelegate } from "./link.js";
import { TokenRegistry, type TokenEntry, type TokenOptions } from "./tokens.js";

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
  /** Called when a session was resumed over another socket. */
  resumed?(): void;
  /** Returns what reports that a client has discarded the session of `token`, because this server does not have it, if others may. */
  abandoned?(token: string, principal: string | undefined): (() => void) | undefined;
}

/** The part of the server in the arrival of a client that offered to resume a session. */
export interface ArrivalHooks {
  /** Claims a connection slot for a session that is about to start. Returns the bye for the client if there is none. */
  claimSlot(): Bye | undefined;
  /** Checks that a slot is available. Returns the bye for the client if there is none. */
  checkSlot(): Bye | undefined;
  /** Called when the client is about to resume the session of `link`. The function that it returns is called afterwards. */
  resuming?(link: ServerLink): (() => void) | undefined;
}

/** How long a server that closes waits for the hello of a client that it has refused. The hello follows in one round trip. */
const HELLO_WAIT_MS = 1_000;

/** Slots without a limit. */
const UNLIMITED: ArrivalHooks = { claimSlot: () => undefined, checkSlot: () => undefined };

/** The place of a suspended session in the order of suspension. */
interface Place extends Linked {
  readonly session: ServerSession;
}

/** All sessions of one server. */
export class Sessions {
  readonly options: SessionsOptions;
  readonly tokens: TokenRegistry<ServerSession>;
  /**
   * The suspended sessions without a principal, and those with one, each in the order of suspension. Not Sets: a Set finds its
   * first member only by skipping the places of all members deleted before it.
   */
  readonly #unnamed = new List<Place>();
  readonly #named = new List<Place>();
  readonly #byPrincipal = new Map<string, Set<ServerSession>>();
  /** Sockets whose clients offered to resume a session and have not sent `resume` or a hello yet. */
  readonly #arrivals = new Set<Arrival>();
  #suspended = 0;
  #stored = 0;
  /** The length of the broadcasts that are queued in suspended sessions. It has its own bound, which ends no session. */
  #storedBroadcasts = 0;

  constructor(options: SessionsOptions) {
    this.options = options;
    this.tokens = new TokenRegistry(options);
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
    const token = this.tokens.makeToken();
    this.#greet(socket, token);
    return this.#begin(socket, principal, token).link;
  }

  /**
   * Takes an open, unstarted socket whose client offered to resume a session. If the client resumes, its session continues on the
   * link that it has. If the client sends a hello, calls `accept` with a new link, which `accept` must start before it returns.
   * Closes the socket if neither comes within `timeoutMs`, or after `shut`. A resumed session already has a connection slot. A new
   * session claims one by `hooks`.
   */
  admit(
    socket: Socket,
    principal: string | undefined,
    timeoutMs: number,
    accept: (link: ServerLink) => void,
    hooks: ArrivalHooks = UNLIMITED,
  ): void {
    // The token is for a new session. A client that resumes one ignores it.
    const token = this.tokens.makeToken();
    this.#greet(socket, token);
    // `resume` may be longer than any message.
    socket.maxFrameBytes = longestFrame(this.options.limits.maxMessageBytes);
    const arrival = new Arrival(this, socket, principal, timeoutMs, hooks, () => {
      const { link } = this.#begin(socket, principal, token);
      accept(link);
      return link;
    });
    this.#arrivals.add(arrival);
    socket.start(arrival);
  }

  #greet(socket: Socket, token: string): void {
    const { ttlMs, limits, route } = this.options;
    socket.send(serverHello({ token, ttlMs, limits: pickLimits(limits), route }, limits.bytes));
  }

  #begin(socket: Socket, principal: string | undefined, token: string): ServerSession {
    return new ServerSession(this, principal, socket, token);
  }

  /** Forgets an arrival whose client has sent `resume` or a hello, or whose socket is closed. */
  settled(arrival: Arrival): void {
    this.#arrivals.delete(arrival);
  }

  /**
   * Closes the sockets of the clients that have not resumed or begun a session yet. Waits for the hellos of those that were refused,
   * and answers them with `bye`.
   */
  shut(bye: Bye): void {
    for (const arrival of this.#arrivals) arrival.shut(bye);
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
class ServerSession implements ServerLinkDelegate {
  /** Set while the session is suspended. */
  place: Place | undefined = undefined;
  /** The part of this session in the counts of all suspended sessions. */
  stored = 0;
  storedBroadcasts = 0;
  readonly principal: string | undefined;
  readonly link: ServerLink;
  readonly #sessions: Sessions;
  readonly tokens: TokenEntry<ServerSession>;

  constructor(sessions: Sessions, principal: string | undefined, socket: Socket, token: string) {
    this.principal = principal;
    this.#sessions = sessions;
    this.tokens = sessions.tokens.open(this, principal, token);
    const { limits, ttlMs } = sessions.options;
    this.link = new ServerLink(limits, this);
    this.link.accept(socket, new Session(limits, { ttlMs }));
  }

  confirmed(): void {
    this.#sessions.tokens.confirm(this.tokens);
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

  dropped(): void {
    this.#sessions.release(this);
    this.#sessions.tokens.drop(this.tokens);
  }

  discarded(): void {
    this.dropped();
  }

  /** Ends the session with 1013, because a bound of the server is exceeded. */
  end(reason: string): void {
    this.link.end(CloseCode.TryAgainLater, reason);
  }

  /** Resumes the session over `socket`. If `received` cannot be true, ends the session and returns false. */
  resume(socket: Socket, resume: ResumeFrame, hooks: ArrivalHooks): boolean {
    const { link } = this;
    if (!link.state.session!.covers(resume.received)) {
      link.fail("`received` is no count of the frames sent");
      return false;
    }
    this.#sessions.release(this);
    const resumed = hooks.resuming?.(link);
    link.resume(socket, resume, () => this.#sessions.tokens.renew(this.tokens, resume.token));
    this.#sessions.options.resumed?.();
    resumed?.();
    return true;
  }
}

/** A socket whose client offered to resume a session, until the client sends `resume` or a hello. */
class Arrival implements SocketHandler, Expiring {
  deadline = 0;
  readonly #sessions: Sessions;
  readonly #socket: Socket;
  readonly #principal: string | undefined;
  readonly #hooks: ArrivalHooks;
  readonly #begin: () => ServerLink;
  #isRefused = false;
  /** Reports that the client has discarded a session that is not here. */
  #abandoned: (() => void) | undefined;
  /** What the server answers to a hello, because it closes. */
  #bye: Bye | undefined;

  /** `begin` starts a new session on the socket, and returns its started link. */
  constructor(
    sessions: Sessions,
    socket: Socket,
    principal: string | undefined,
    timeoutMs: number,
    hooks: ArrivalHooks,
    begin: () => ServerLink,
  ) {
    this.#sessions = sessions;
    this.#socket = socket;
    this.#principal = principal;
    this.#hooks = hooks;
    this.#begin = begin;
    setDeadline(this, timeoutMs);
  }

  frame(text: string): void {
    if (helloOf(text) !== undefined) this.#startNewSession(text);
    // Rule 1: the client closed before it read the refusal. Its close follows.
    else if (this.#isRefused && readBye(text) !== undefined) return;
    else this.#resume(resumeOf(member(parse(text), "resume")));
  }

  closed(): void {
    this.#settle();
  }

  expire(): void {
    const late = { code: CloseCode.Superseded, reason: "neither `resume` nor a hello came in time" };
    this.#close(this.#bye ?? late);
  }

  /** Closes the socket: at once, or when the hello of a refused client has come, which may be on its way. */
  shut(bye: Bye): void {
    if (this.#abandoned === undefined) return this.#close(bye);
    if (this.#bye !== undefined) return;
    this.#bye = bye;
    setDeadline(this, HELLO_WAIT_MS);
  }

  #startNewSession(hello: string): void {
    // Only now: a client that has not received the refusal keeps its session.
    this.#abandoned?.();
    const bye = this.#bye ?? this.#hooks.claimSlot();
    if (bye !== undefined) {
      this.#socket.send(byeFrame(bye));
      return this.#close(bye);
    }
    this.#settle();
    const link = this.#begin();
    // A listener of `peer` may have ended the socket.
    if (link.socket === this.#socket) link.frame(hello);
  }

  #resume(resume: ResumeFrame | undefined): void {
    // Rule 1: a refused client sends a hello and nothing else.
    if (resume === undefined || this.#isRefused)
      return this.#close({ code: CloseCode.ProtocolError, reason: "neither `resume` nor a hello" });
    const found = this.#sessions.tokens.find(resume, this.#principal);
    if (found === "stale")
      return this.#close({ code: CloseCode.Superseded, reason: "a later attempt came before this one" });
    const isResumed =
      found !== "unknown" &&
      !found.session.link.checkExpiry() &&
      found.session.resume(this.#socket, resume, this.#hooks);
    if (isResumed) return this.#settle();
    const { options } = this.#sessions;
    // Rule 10: the token is not kept.
    if (found === "unknown") this.#abandoned = options.abandoned?.(resume.token, this.#principal);
    this.#refuse();
  }

  #refuse(): void {
    // Without a bye, the client keeps its session, which another server may have, and reconnects.
    const bye = this.#hooks.checkSlot();
    if (bye !== undefined) return this.#close(bye);
    this.#isRefused = true;
    this.#socket.send(REFUSED);
  }

  /** Closes the socket, and ignores further frames. */
  #close({ code, reason }: Bye): void {
    this.#settle();
    closeIgnored(this.#socket, code, reason);
  }

  #settle(): void {
    clearDeadline(this);
    this.#sessions.settled(this);
  }
}
