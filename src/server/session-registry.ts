/** All sessions of one server: issues tokens, finds the session that a client resumes, and bounds the suspended sessions. */
import * as CloseCode from "../message/close-codes.js";
import type { CloseInfo } from "../message/transport.js";
import { List, unlink } from "../base/list.js";
import type { Socket } from "../socket/socket.js";
import { pickLimits, serverHello, type ResumeFrame } from "../session/frames.js";
import { Session, UNKNOWN_LIMITS } from "../session/session.js";
import type { EndpointLimits } from "../session/state.js";
import type { LinkDelegate } from "../session/link.js";
import { ServerLink, type Place } from "./link.js";
import { TokenRegistry, type TokenOptions } from "./tokens.js";

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

/** All sessions of one server. Each is in the state of its link, and this is the delegate of all these links. */
export class SessionRegistry implements LinkDelegate {
  readonly options: SessionsOptions;
  readonly tokens: TokenRegistry<ServerLink>;
  /** Number of times that a session was resumed. */
  resumed = 0;
  /** The hello to each client, with an empty token. */
  readonly #hello: string;
  /**
   * The suspended sessions without a principal, and those with one, each in the order of suspension. Not Sets: a Set finds its
   * first member only by skipping the places of all members deleted before it.
   */
  readonly #unnamed = new List<Place>();
  readonly #named = new List<Place>();
  readonly #byPrincipal = new Map<string, Set<ServerLink>>();
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
  get suspendedCount(): number {
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
    const { limits, ttlMs } = this.options;
    const link = new ServerLink(limits, this, principal);
    this.tokens.open(link, token);
    link.attachSocket(socket, "greeting", new Session(limits, { ttlMs, limits: UNKNOWN_LIMITS }));
    return link;
  }

  /** Resumes a session, which has accepted `resume`, over `socket`. */
  resume(link: ServerLink, socket: Socket, resume: ResumeFrame): void {
    this.#release(link);
    this.resumed++;
    link.resume(socket, resume, this.tokens.renew(link));
  }

  /** Ends the oldest suspended session with 1013 and this reason. Prefers sessions without a principal. */
  evict(reason: string): void {
    (this.#unnamed.first ?? this.#named.first)?.link.end(CloseCode.TryAgainLater, reason);
  }

  /** Ends the session of a token, if it is here: its client has discarded it, because another node refused it. */
  endAbandoned(hash: string, principal: string | undefined): void {
    const link = this.tokens.byHash(hash, principal);
    link?.end(CloseCode.Superseded, "the client has discarded this session, because another node refused it");
  }

  confirmed(link: ServerLink): void {
    this.tokens.confirm(link);
  }

  /** Adds a session that has lost its socket to the suspended ones, and enforces their bounds. */
  suspended(_end: CloseInfo, link: ServerLink): void {
    const place: Place = { link, length: 0, broadcastLength: 0 };
    link.place = place;
    (link.principal === undefined ? this.#unnamed : this.#named).add(place);
    this.#suspended++;
    this.#boundPrincipal(link);
    this.storedChanged(link);
  }

  resumptionEnded(link: ServerLink): void {
    this.#release(link);
    this.tokens.drop(link);
  }

  /** Removes a session that was resumed or has ended from the suspended ones. Does nothing if it is not suspended. */
  #release(link: ServerLink): void {
    const { place, principal } = link;
    if (place === undefined) return;
    unlink(place);
    link.place = undefined;
    this.#suspended--;
    this.#stored -= place.length;
    this.#storedBroadcasts -= place.broadcastLength;
    const siblings = principal === undefined ? undefined : this.#byPrincipal.get(principal);
    siblings?.delete(link);
    if (siblings?.size === 0) this.#byPrincipal.delete(principal!);
  }

  /** Updates the count of what a suspended session holds. While all together hold too much, ends the session that holds most. */
  storedChanged(link: ServerLink): void {
    const { place, storedLength, storedBroadcastLength } = link;
    if (place === undefined) return;
    this.#stored += storedLength - place.length;
    place.length = storedLength;
    this.#storedBroadcasts += storedBroadcastLength - place.broadcastLength;
    place.broadcastLength = storedBroadcastLength;
    while (this.#stored > this.options.maxStoredLength && this.#endLargest());
  }

  /** Ends the suspended session that holds most. Returns false if that released nothing. */
  #endLargest(): boolean {
    const before = this.#suspended;
    const suspended = [...this.#unnamed.toArray(), ...this.#named.toArray()];
    const { link } = suspended.reduce((most, other) => (other.length > most.length ? other : most));
    link.end(CloseCode.TryAgainLater, "suspended sessions hold more than `maxSuspendedBytes` together");
    return this.#suspended < before;
  }

  /** Returns true if suspended sessions may hold so much more of queued broadcasts. */
  acceptsBroadcast(length: number): boolean {
    return this.#storedBroadcasts + length <= this.options.maxStoredLength / 4;
  }

  #boundPrincipal(link: ServerLink): void {
    const { principal } = link;
    if (principal === undefined) return;
    let siblings = this.#byPrincipal.get(principal);
    if (siblings === undefined) this.#byPrincipal.set(principal, (siblings = new Set()));
    siblings.add(link);
    const [oldest] = siblings;
    if (siblings.size > this.options.maxSuspendedPerPrincipal) {
      const reason = "the principal has more suspended sessions than `maxSuspendedPerPrincipal`";
      oldest!.end(CloseCode.TryAgainLater, reason);
    }
  }
}
