/** A server: many peers that share handlers, and the groups that notify many peers at once. The gate accepts or refuses clients. */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Duplex } from "node:stream";
import { CallContext, callOf } from "../core/incoming-call.js";
import type { ContractOptions } from "../core/checks.js";
import type { AnyMethods, Contract } from "../core/contract.js";
import { makeConfig, type Config } from "../core/config.js";
import type { Connection } from "../core/connection.js";
import { shownAs } from "../core/codec.js";
import type { FailedCall, Hooks } from "../core/hooks.js";
import type { Dialect } from "../core/dialect.js";
import type { Socket } from "../link/socket.js";
import { refuseUnknownEvents, tell } from "../core/tell.js";
import { EventEmitter } from "../core/packages.js";
import type { Transport } from "../core/transport.js";
import { fromHttpStatus, GoingAway } from "../close-codes.js";
import { AUTH_OFFER, RESUME_OFFER, type Bye } from "../session/frames.js";
import { PROTOCOL } from "../session/link.js";
import { endpointLimits, longestFrame } from "../session/sizes.js";
import { linkWithoutSession, type ServerLink } from "./link.js";
import { Sessions } from "./sessions.js";
import { plain } from "../link/plain.js";
import {
  connectionOf,
  endPeer,
  setAuth,
  startPeer,
  type AnyPeer,
  type Context,
  type MethodOptions,
  type Peer,
  type PeerOptions,
} from "../peer/peer.js";
import { AuthArrivals, takeAuth } from "./arrival.js";
import { cutLater } from "./closing.js";
import { fullRefusal, offeredBy } from "./gate.js";
import { postFeatures } from "./streams.js";
import { PeerGroup, type Group } from "./groups.js";
import type { ServerAround } from "./around.js";
import { Topics, type Topic, type TopicsHost } from "./topics.js";
import { ServerFleet, type FleetOptions, type ServerParts } from "./fleet.js";
import { engineAnswer } from "../fleet/engine.js";
import { HEALTHY } from "../fleet/local.js";
import type { FleetEvents, Health, Nodes } from "../fleet/host.js";
import type { Principal, RemotePeer } from "../fleet/remote.js";
import { checkDrain, drainPeers, type DrainOptions } from "./drain.js";
import { checkServerOptions, type Authentication, type GateOptions } from "./options.js";
import type { Platform, PostDelegate, ServerGate, ServerGateDelegate, ServerPosts } from "./platform.js";
import { randomText } from "./random.js";
import { Tally, type ServerStats } from "./stats.js";
import type { Admission, GateSocket, Refusal, Verdict } from "./upgrade.js";

/** The context of a call to a server. */
export interface ServerContext<L extends Contract<L> = any, R extends Contract<R> = any, A = unknown> extends Context<
  L,
  R,
  A
> {
  /** The server that received the call, with its topics and all its peers. */
  readonly server: Server<L, R, A>;
}

/** The options of `serve`. Exactly one of `port`, `server` and `noServer` is required. */
export type ServeOptions<L extends Contract<L>, R extends Contract<R>, A> = ServiceOptions<L, R, A> &
  InferredOptions<L, R, A>;

/** The options that `serve` infers its type arguments from. */
export type InferredOptions<L, R, A> = Partial<Authentication<A>> & ContractOptions<L, R>;

/** The options of `serve` that it infers nothing from. */
export type ServiceOptions<L extends Contract<L>, R extends Contract<R>, A> = GateOptions &
  CommonOptions<R, ServerContext<L, R, A>, A> &
  MethodOptions<L, ServerContext<L, R, A>>;

/** The options that every server has, wherever it listens and whatever it serves. */
export type CommonOptions<R, Ctx, A> = (undefined extends A ? {} : Pick<Authentication<A>, "authenticate">) &
  FleetOptions<R> &
  Omit<PeerOptions<Ctx>, "around" | "dialect" | "limits"> & {
    /** Wraps every call, incoming and outgoing, and every message to a group, whose `call.peer` is `undefined`. */
    around?: ServerAround | undefined;
    /**
     * How cancels and progress are spelled, as for a peer. If several are given, the subprotocol that a client offers selects
     * one (`mcp` selects `mcp`). A client that offers none gets the first.
     */
    dialect?: Dialect | readonly Dialect[] | undefined;
  };

/** The events of a server. A listener that throws is reported to `error`. An event without a listener throws nothing. */
export type ServerEvents<L extends Contract<L>, R extends Contract<R>, A> = {
  /**
   * A client connected. Emitted before the peer's first message is dispatched. Not emitted for `accept`, which returns its peer,
   * nor when a session is resumed: then the peer emits `resume`.
   */
  peer(peer: Peer<L, R, A>, request: IncomingMessage): void;
  /**
   * `authenticate` ran again for a client that resumed its session or called `reauthenticate()`, and `peer.auth` is its new result.
   * `oldAuth` is the result before. Emitted before further messages of the client are dispatched.
   */
  refresh(peer: Peer<L, R, A>, oldAuth: A): void;
  /** An upgrade or a POST was refused, or a client that sent `auth`. `reason` names the rule, and the option that would allow it. */
  refuse(refusal: Refusal, request: IncomingMessage): void;
  /**
   * An error that no caller receives: `authenticate` threw, the HTTP server failed, or a peer emitted `error`, which also passes
   * the peer. `call` names the call or the notification that the error came from, if it came from one.
   * If neither server nor peer has a listener, `process.emitWarning` reports the first failure of each method.
   */
  error(error: unknown, peer?: Peer<L, R, A>, call?: FailedCall): void;
  /**
   * A notification of `method` was dropped for a peer: by a topic or `server.peers`, or because of `latest` beyond 1,024 keys. The
   * peer's `stats().dropped` counts the same. Not emitted for volatile messages, nor for messages that a newer one replaced.
   */
  missed(peer: Peer<L, R, A>, method: string): void;
} & FleetEvents;

const EVENTS: Record<keyof ServerEvents<any, any, any>, 0> = {
  peer: 0,
  refresh: 0,
  refuse: 0,
  error: 0,
  missed: 0,
  engine: 0,
  gap: 0,
};

/**
 * Serves contract `L` to many peers and calls them back by contract `R`. `A` is the type of `peer.auth`. Made by `serve`.
 *
 * A server emits only the events of `ServerEvents`: `on`, `once` and `emit` throw a `TypeError` for any other name.
 */
export class Server<
  L extends Contract<L> = AnyMethods,
  R extends Contract<R> = AnyMethods,
  A = unknown,
> extends EventEmitter<ServerEvents<L, R, A>> {
  /** All open peers. */
  readonly peers: Group<L, R, A>;
  readonly #config: Config;
  /** The config of the peers of HTTP requests. */
  readonly #postConfig: Config;
  /** The configs of the dialects that a client can choose by a subprotocol. */
  readonly #configBy = new Map<string, Config>();
  readonly #hooks: Hooks;
  readonly #peers = new Set<Peer<L, R, A>>();
  readonly #topics: Topics<L, R, A>;
  readonly #fleet: ServerFleet;
  /** Open peers that `accept` made. They take no connection slot. */
  readonly #accepted = new Set<Peer<L, R, A>>();
  /** Peers of one HTTP request each. */
  readonly #postPeers = new WeakSet<AnyPeer>();
  readonly #gate: ServerGate;
  readonly #arrivals: AuthArrivals;
  /** Whether there is an `authenticate`. */
  readonly #authenticates: boolean;
  readonly #posts: ServerPosts;
  readonly #sessions: Sessions | undefined;
  /** How long a client that offered to resume a session may take to send `resume`. */
  readonly #resumeTimeoutMs: number;
  readonly #maxConnections: number;
  /** The subprotocols that can be chosen. */
  readonly #protocols: ReadonlySet<string>;
  readonly #tally = new Tally();
  #drained: Promise<void> | undefined;
  #closed: Promise<void> | undefined;

  /** Use `serve`, or `testServer` of `reciproc/testing`. Throws a `TypeError` for bad options. */
  constructor(options: ServeOptions<L, R, A>, platform: Platform) {
    super();
    const checked = checkServerOptions(options);
    this.#hooks = {
      server: this,
      Context: ServerCallContext,
      error: (error, peer, call) => this.#report(error, peer as Peer<L, R, A>, call),
      missed: (peer, method) =>
        void tell(this, "missed", [peer, method], (error) => this.#report(error, peer as AnyPeer)),
      answerFor: engineAnswer,
      hasErrorListener: () => this.listenerCount("error") > 0,
      ended: (peer) => this.#removePeer(peer as Peer<L, R, A>),
      closed: (peer, info) => this.#tally.closed(peer as AnyPeer, info),
    };
    this.#config = makeConfig(checked.peer);
    this.#postConfig = { ...this.#config, use: [...this.#config.use, ...postFeatures] };
    for (const dialect of checked.dialects) {
      if (dialect.subprotocol === undefined) continue;
      const isFirst = dialect === checked.peer.dialect;
      const config = isFirst ? this.#config : makeConfig({ ...checked.peer, dialect });
      this.#configBy.set(dialect.subprotocol, config);
    }
    const { around } = this.#config;
    const report = (error: unknown, peer?: AnyPeer, call?: FailedCall): void => void this.#report(error, peer, call);
    const groups: { -readonly [K in keyof TopicsHost<Peer<L, R, A>>]: TopicsHost<Peer<L, R, A>>[K] } = {
      around,
      report,
      canHave: (peer) => connectionOf(peer).hooks === this.#hooks || this.#fleet.node?.canHave(peer) === true,
      refusalOf: (peer) => this.#topicRefusal(peer),
      reach: undefined,
      node: undefined,
      getNode: () => this.#fleet.any,
    };
    this.peers = new PeerGroup(() => this.#peers, groups);
    this.#topics = new Topics(groups);
    const parts: ServerParts = {
      options: checked.fleet,
      config: this.#config,
      peers: this.#peers,
      groups,
      topics: this.#topics,
      endSession: (hash, principal) => this.#sessions?.endAbandoned(hash, principal),
      emit: (event, ...args) => void tell(this, event, args, (error) => this.#report(error)),
    };
    this.#fleet = new ServerFleet(parts, platform);
    this.#protocols = new Set([...(checked.link === "packed" ? [PROTOCOL] : []), ...this.#configBy.keys()]);
    const { maxMessageBytes } = this.#config.limits;
    const { limits } = checked.gate;
    this.#resumeTimeoutMs = limits.handshakeTimeoutMs;
    this.#maxConnections = limits.maxConnections;
    this.#authenticates = checked.gate.authenticate !== undefined;
    this.#arrivals = new AuthArrivals(limits.handshakeTimeoutMs);
    if (checked.session !== undefined && checked.link === "packed") {
      this.#sessions = new Sessions({
        limits: endpointLimits(this.#config.limits, this.#config.bytes),
        ...checked.session,
        makeToken: () => {
          const random = randomText(TOKEN_LENGTH);
          return this.#fleet.node?.tokenOf(random) ?? random;
        },
        hash: (token) => platform.hash(token),
        maxSuspendedPerPrincipal: limits.maxSuspendedPerPrincipal,
        maxStoredLength: limits.maxSuspendedBytes,
        resumed: () => this.#tally.resumed(),
        abandoned: (token, principal) => this.#fleet.node?.sessionOver(token, platform.hash(token), principal),
      });
    }
    const both = {
      refused: (refusal: Refusal, request: IncomingMessage) => this.#refused(refusal, request),
      failed: (error: unknown) => void this.#report(error),
    };
    const forGate: ServerGateDelegate = {
      ...both,
      maxFrameBytes: longestFrame(maxMessageBytes),
      // The session of a reconnecting client may still have its old socket, which is closed when the client resumes.
      reserved: (request) => (this.#offersResume(request) ? this.#sessions!.live : 0),
      authenticatesLater: (request) => this.#offersAuth(request),
      claimSlot: (request, admission) =>
        this.#offersAuth(request) ? undefined : this.#claimSlotFor(request, admission),
      chooseProtocol: (offered) => this.#chooseProtocol(offered),
      admit: (...accepted) => this.#acceptSocket(...accepted),
    };
    const forPosts: PostDelegate = {
      ...both,
      maxMessageBytes,
      maxUnsentBytes: this.#config.limits.maxUnsentBytes,
      handshakeTimeoutMs: limits.handshakeTimeoutMs,
      claimSlot: (admission) => this.#claimSlot(admission),
      notificationStatus: checked.notificationStatus,
      accept: (transport, admission) => this.#acceptPost(transport, admission?.auth as A),
    };
    ({ gate: this.#gate, posts: this.#posts } = platform.connect(checked, forGate, forPosts));
  }

  /** The URL of the server, such as `ws://127.0.0.1:3000/rpc`. Empty with `noServer`, and while the server does not listen. */
  get url(): string {
    return this.#gate.url;
  }

  /** Returns the topic of that name. Throws a `TypeError` unless the name is a well-formed string of 1 to 512 bytes of UTF-8. */
  topic(name: string): Topic<L, R, A> {
    return this.#topics.topic(name);
  }

  /**
   * Makes a peer of a transport, which is open or connects, with this server's handlers. No rule of the handshake applies, and
   * `auth` becomes `peer.auth`, and is not checked. `server.principal` finds the peer by it. If the server is closed, closes the peer with 1001.
   */
  accept(transport: Transport, auth: A): Peer<L, R, A> {
    const peer = this.#accept(transport, auth, this.#config);
    if (this.#peers.has(peer)) this.#accepted.add(peer);
    return peer;
  }

  #accept(transport: Transport, auth: A, config: Config, principal?: string): Peer<L, R, A> {
    const peer = this.#makePeer(transport, auth, config);
    // A transport may end as it starts. One that is still connecting belongs to the server too.
    if (peer.state !== "closed") {
      this.#peers.add(peer);
      this.#fleet.opened(peer, principal);
    }
    if (this.#closed !== undefined) endPeer(peer, GoingAway, CLOSING);
    return peer;
  }

  /**
   * Accepts or refuses an upgrade, for an application that listens itself (`noServer`). Answers and closes a refused socket.
   * Never throws.
   */
  handleUpgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void {
    this.#gate.handleUpgrade(request, socket, head);
  }

  /**
   * Answers a request by HTTP POST, for an application that routes requests itself: with `noServer`, or beside Express as
   * `app.post("/rpc", (request, response) => server.handleRequest(request, response))`. Ignores `path`. Takes a body that was
   * already read from `request.body`, parsed or as text. Never throws.
   */
  handleRequest(request: IncomingMessage, response: ServerResponse): void {
    this.#posts.handle(request, response, false);
  }

  /** Returns the counts of this server so far, and its present load. Reads the counts of every peer once. */
  stats(): ServerStats {
    return this.#tally.sum({
      peers: this.#peers.size,
      suspended: this.#sessions?.suspended ?? 0,
      suspendedBytes: this.#sessions?.stored ?? 0,
      topics: this.#topics.size,
      ...this.#fleet.stats(),
    });
  }

  /**
   * Shuts down gracefully: refuses new clients with 503, closes each peer with 1001 when none of its handlers runs, and then
   * closes the server. Closes peers in steps, and asks each client to reconnect after a random time. After `timeoutMs`, closes
   * busy peers too. Streams that are read and this side's own calls do not delay a peer. The client of a suspended peer does not
   * get its queued messages. If an option is bad, rejects with a `TypeError` and does nothing. A second call waits for the first.
   */
  async drain(options?: DrainOptions): Promise<void> {
    const checked = checkDrain(options);
    await (this.#drained ??= this.#drain(checked));
  }

  async #drain(options: ReturnType<typeof checkDrain>): Promise<void> {
    this.#shut(options.retryMs);
    await Promise.all([drainPeers(this.#peers, CLOSING, options), this.#posts.drain(options.timeoutMs)]);
    await this.close();
  }

  /**
   * Refuses new clients and closes every peer with 1001. Resolves when all peers are closed and, with `port`, the HTTP server
   * has stopped. Cuts a peer that does not answer the close within 5 seconds. Never rejects. A second call waits for the first.
   */
  close(): Promise<void> {
    return (this.#closed ??= this.#shutDown());
  }

  /** Returns `"server"`, for logs. In a message it throws a `TypeError`. */
  toJSON(key?: string): never {
    return shownAs("server", "server", "write what is needed of it", key);
  }

  /** Calls `close()`, for `await using`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** Joins the other nodes and starts listening, for `serve`. Rejects if the broker cannot be reached or the address is in use. @internal */
  async listen(): Promise<void> {
    const { node } = this.#fleet;
    if (node === undefined) return this.#gate.listen();
    try {
      await node.start(() => this.#gate.listen());
    } catch (error) {
      await this.close();
      throw error;
    }
  }

  /**
   * Returns a peer of any node, by its `id`, which names its node. Needs no round trip, and does not check that there is such a peer.
   */
  peer(id: string): RemotePeer<R> {
    return this.#fleet.any.peer<R>(id);
  }

  /** Returns all peers of one principal, on all nodes. Throws a `TypeError` without the option `principal`, and for what is no name. */
  principal(name: string): Principal<R> {
    return this.#fleet.principal<R>(name);
  }

  /** The nodes that have the same engine. Without an engine, this server is the only one. */
  get nodes(): Nodes {
    return this.#fleet.any.nodes;
  }

  /** Returns whether this server reaches the others, for monitoring. `ok` is true without an engine. */
  health(): Health {
    return this.#fleet.node?.health() ?? HEALTHY;
  }

  #makePeer(transport: Transport, auth: A, config: Config): Peer<L, R, A> {
    const peer = this.#fleet.createPeer<L, R, A>(transport, config, this.#hooks);
    setAuth(peer, auth);
    this.#tally.opened(peer);
    startPeer(peer);
    return peer;
  }

  /** Makes the peer of one HTTP request. No group has the peer, because nothing can be sent to its client. */
  #acceptPost(transport: Transport, auth: A): Peer<L, R, A> {
    const peer = this.#makePeer(transport, auth, this.#postConfig);
    this.#postPeers.add(peer);
    return peer;
  }

  #topicRefusal(peer: Peer<L, R, A>): string | undefined {
    if (this.#peers.has(peer)) return undefined;
    return this.#postPeers.has(peer)
      ? "a topic takes peers that can be notified, and this one came by HTTP POST"
      : "a topic takes peers of its own server only";
  }

  #acceptSocket(
    socket: Socket,
    protocol: string,
    admission: Admission | undefined,
    request: IncomingMessage,
    connection: GateSocket,
  ): void {
    if (!this.#offersAuth(request)) return this.#openConnection(socket, protocol, admission, request, connection);
    const authenticate = (auth: unknown): Promise<Verdict> => this.#gate.authenticate(request, auth, connection);
    this.#arrivals.take(socket, connection, {
      authenticate,
      accept: (accepted) => {
        const refusal = this.#claimSlotFor(request, accepted);
        if (refusal === undefined) this.#openConnection(socket, PROTOCOL, accepted, request, connection, authenticate);
        return refusal;
      },
      refused: (refusal) => this.#refused(refusal, request),
    });
  }

  /** Opens or resumes the connection of an accepted client. `authenticate` is given if the client sends `auth`. */
  #openConnection(
    socket: Socket,
    protocol: string,
    admission: Admission | undefined,
    request: IncomingMessage,
    connection: GateSocket,
    authenticate?: (auth: unknown) => Promise<Verdict>,
  ): void {
    const config = this.#configFor(request);
    const takeAuthOf = (link: Transport, peer: AnyPeer): void => {
      if (authenticate === undefined) return;
      takeAuth(link as ServerLink, admission?.principal, {
        authenticate,
        accept: (renewed) => this.#refresh(peer, renewed)(),
        refuse: (refusal) => {
          this.#refused(refusal, request);
          endPeer(peer, fromHttpStatus(refusal.status), refusal.reason);
        },
      });
    };
    const accept = (link: Transport): void => {
      const peer = this.#accept(link, admission?.auth as A, config, admission?.principal);
      takeAuthOf(link, peer);
      tell(this, "peer", [peer, request], (error) => this.#report(error, peer));
    };
    const sessions = this.#sessions;
    if (protocol !== PROTOCOL) accept(plain(socket));
    else if (sessions === undefined) accept(linkWithoutSession(socket, endpointLimits(config.limits, config.bytes)));
    else if (this.#offersResume(request))
      sessions.admit(socket, admission?.principal, this.#resumeTimeoutMs, accept, {
        claimSlot: () => this.#byeFor(this.#claimSlot(admission), request, connection),
        checkSlot: () => this.#byeFor(this.#checkSlot(), request, connection),
        resuming: (link) => {
          const peer = (link.receiver as Connection).peer as AnyPeer;
          // A disconnect has ended this session, or will.
          admission?.end();
          // Sets `auth` before the session is resumed, so that listeners of `resume` see the new `auth`.
          const emitRefresh = admission && this.#refresh(peer, admission);
          link.onAuth = undefined;
          return () => {
            takeAuthOf(link, peer);
            emitRefresh?.();
          };
        },
      });
    else accept(sessions.link(socket, admission?.principal));
  }

  /** Gives a peer the new result of `authenticate`. Returns a function that emits `refresh`. */
  #refresh(peer: AnyPeer, { auth }: Admission): () => void {
    const old = peer.auth as A;
    setAuth(peer, auth);
    return () => void tell(this, "refresh", [peer, old], (error) => this.#report(error, peer));
  }

  /** Peers take slots, suspended ones included, and sockets do not, so a client that resumes takes none. */
  get #isFull(): boolean {
    return this.#peers.size - this.#accepted.size + this.#posts.running >= this.#maxConnections;
  }

  /** Returns a refusal if there is no slot for one more peer. The slot of a suspended session counts as free. */
  #checkSlot(): Refusal | undefined {
    const hasSlot = !this.#isFull || (this.#sessions?.suspended ?? 0) > 0;
    return hasSlot ? undefined : fullRefusal(this.#maxConnections);
  }

  /**
   * Claims a slot for one more peer, that of a suspended session if no other is free. Returns a refusal if there is no slot, or if the
   * principal of the peer was disconnected meanwhile.
   */
  #claimSlot(admission: Admission | undefined): Refusal | undefined {
    const refusal = admission?.end() ?? this.#checkSlot();
    if (refusal === undefined && this.#isFull)
      this.#sessions!.evict(`a new client needed the slot: ${fullRefusal(this.#maxConnections).reason}`);
    return refusal;
  }

  /** Claims a slot for the client of an upgrade, unless the client offers to resume a session and may need none. */
  #claimSlotFor(request: IncomingMessage, admission: Admission | undefined): Refusal | undefined {
    return this.#offersResume(request) ? undefined : this.#claimSlot(admission);
  }

  /** Reports the refusal of a client that offered to resume a session, if there is one. Returns the bye for the client. */
  #byeFor(refusal: Refusal | undefined, request: IncomingMessage, connection: GateSocket): Bye | undefined {
    if (refusal === undefined) return undefined;
    this.#refused(refusal, request);
    cutLater(connection);
    return { code: fromHttpStatus(refusal.status), reason: refusal.reason };
  }

  #refused(refusal: Refusal, request: IncomingMessage): void {
    this.#tally.refused(refusal);
    tell(this, "refuse", [refusal, request], (error) => this.#report(error));
  }

  #chooseProtocol(offered: ReadonlySet<string>): string | undefined {
    return [...offered].find((name) => this.#protocols.has(name));
  }

  /** Returns true if a client offers to resume a session and gets `reciproc.v1`. */
  #offersResume(request: IncomingMessage): boolean {
    return this.#sessions !== undefined && this.#offers(request, RESUME_OFFER);
  }

  /** Returns true if a client gets `reciproc.v1`, and is authenticated by the `auth` in its hello. */
  #offersAuth(request: IncomingMessage): boolean {
    return this.#authenticates && this.#offers(request, AUTH_OFFER);
  }

  /** Returns true if a client makes an offer beside `reciproc.v1`, and gets `reciproc.v1`. */
  #offers(request: IncomingMessage, offer: string): boolean {
    // Most clients make none. Then nothing is split.
    if (request.headers["sec-websocket-protocol"]?.includes(offer) !== true) return false;
    const offered = offeredBy(request);
    return offered.has(offer) && this.#chooseProtocol(offered) === PROTOCOL;
  }

  /** Returns the config of the first dialect that a client offers, even if `reciproc.v1` is chosen over that subprotocol. */
  #configFor({ headers }: IncomingMessage): Config {
    const offered = headers["sec-websocket-protocol"]?.split(",") ?? [];
    const [chosen = this.#config] = offered.flatMap((name) => this.#configBy.get(name.trim()) ?? []);
    return chosen;
  }

  #removePeer(peer: Peer<L, R, A>): void {
    this.#peers.delete(peer);
    this.#accepted.delete(peer);
    this.#topics.leaveAll(peer);
    this.#fleet.node?.closed(peer);
  }

  static {
    refuseUnknownEvents(Server.prototype, EVENTS);
  }

  #report(error: unknown, peer?: AnyPeer, call?: FailedCall): boolean {
    return tell(this, "error", [error, peer, call]);
  }

  /** Refuses new clients, and closes those that have no peer yet. `retryMs`: that of `drain`. */
  #shut(retryMs?: number): void {
    this.#gate.shut();
    this.#arrivals.shut(GoingAway, CLOSING);
    this.#sessions?.shut({ code: GoingAway, reason: CLOSING, retryMs });
  }

  async #shutDown(): Promise<void> {
    this.#shut();
    this.#posts.shut(GoingAway, CLOSING);
    const peers = [...this.#peers];
    for (const peer of peers) endPeer(peer, GoingAway, CLOSING);
    await Promise.all([this.#posts.close(), ...peers.map((peer) => peer.closed)]);
    await this.#gate.close();
    // Only now: the fleet reports the sessions whose clients still sent their hello.
    await this.#fleet.close();
  }
}

const CLOSING = "the server is closing";
/** 132 random bits. */
const TOKEN_LENGTH = 22;

/** The `context` of the calls to a server. */
class ServerCallContext extends CallContext {
  get server(): unknown {
    return callOf(this)!.calls.connection.hooks.server;
  }
}
