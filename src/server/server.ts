/** A server: many peers that share their handlers, and what is sent to many at once. Who gets in is the gate's to say. */
import { nanoid } from "nanoid";
import { createHash } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Duplex } from "node:stream";
import { CallContext, callOf } from "../core/incoming-call.js";
import type { AnyMethods, Contract } from "../core/contract.js";
import type { Config } from "../core/config.js";
import type { Hooks } from "../core/hooks.js";
import type { Dialect } from "../core/dialect.js";
import type { HeartbeatTimes } from "../link/heartbeat.js";
import { refuseUnknownEvents, tell } from "../core/tell.js";
import { EventEmitter } from "../core/packages.js";
import type { Transport } from "../core/transport.js";
import { fromHttpStatus, GoingAway } from "../close-codes.js";
import type { PeerLimits } from "../core/limits.js";
import { HELLO, RESUME_OFFER, type Bye } from "../session/frames.js";
import { PackedLink, PROTOCOL } from "../session/link.js";
import { endpointLimits, longestFrame } from "../session/sizes.js";
import { Sessions } from "./sessions.js";
import { plain } from "../link/plain.js";
import { configFrom } from "../peer/config.js";
import { createPeer, endPeer, startPeer, type AnyPeer, type Context, type Options, type Peer } from "../peer/peer.js";
import { WsSocket, type GatheringWebSocket } from "../sockets/ws.js";
import { fullRefusal, Gate, offeredBy } from "./gate.js";
import { Posts } from "./http.js";
import { groupOf, Topics, type Group, type Topic } from "./groups.js";
import { checkDrain, drainPeers, type DrainOptions } from "./drain.js";
import { checkServerOptions, type Admission, type Authentication, type GateOptions } from "./options.js";
import { Tally, type ServerStats } from "./stats.js";
import type { Refusal } from "./upgrade.js";

/** What a server's handler is told about its call. */
export interface ServerContext<L extends Contract<L> = any, R extends Contract<R> = any, D = unknown> extends Context<
  L,
  R,
  D
> {
  /** The server the call came to: its topics and all its peers. */
  readonly server: Server<L, R, D>;
}

/** Where a server listens, whom it lets in, and what it serves. Exactly one of `port`, `server` and `noServer` is given. */
export type ServeOptions<L extends Contract<L>, R extends Contract<R>, D> = GateOptions &
  (undefined extends D ? Partial<Authentication<D>> : Authentication<D>) &
  Omit<Options<L, ServerContext<L, R, D>>, "dialect" | "limits"> & {
    /**
     * How cancels and progress are spelled, as for a peer. Of several, the subprotocol that a client offers chooses (`mcp`
     * for `mcp`), and the first is for who offers none.
     */
    dialect?: Dialect | readonly Dialect[] | undefined;
  };

/** What a server emits. A listener that throws is reported to `error`. Nothing is thrown where an event has no listener. */
export type ServerEvents<L extends Contract<L>, R extends Contract<R>, D> = {
  /** Somebody connected; emitted before the peer's first message is dispatched. Not for `accept`, which answers its peer, nor when a session goes on: that is the peer's `resume`. */
  peer(peer: Peer<L, R, D>, request: IncomingMessage): void;
  /** An upgrade or a POST was refused. `reason` names the rule, and the option that would allow it. */
  refuse(refusal: Refusal, request: IncomingMessage): void;
  /**
   * What went wrong without a caller to tell: every peer's `error`, with the peer; `authenticate` threw; the HTTP server failed.
   * While neither the server nor the peer has a listener, the first failure of each method is reported by `process.emitWarning`.
   */
  error(error: unknown, peer?: Peer<L, R, D>): void;
};

const EVENTS: Record<keyof ServerEvents<any, any, any>, 0> = { peer: 0, refuse: 0, error: 0 };

/**
 * Serves contract `L` to many peers and calls them back by contract `R`; `D` is what `authenticate` answers. Made by `serve`.
 *
 * It emits the events of `ServerEvents` and no others: `on`, `once` and `emit` throw a `TypeError` for another name.
 */
export class Server<
  L extends Contract<L> = AnyMethods,
  R extends Contract<R> = AnyMethods,
  D = unknown,
> extends EventEmitter<ServerEvents<L, R, D>> {
  /** All open peers. */
  readonly peers: Group<L, R, D>;
  readonly #config: Config;
  /** The configs of the dialects that a client can choose by a subprotocol. */
  readonly #configBy = new Map<string, Config>();
  readonly #hooks: Hooks;
  readonly #peers = new Set<Peer<L, R, D>>();
  readonly #topics = new Topics<L, R, D>();
  /** Open peers that `accept` made: they take no connection slot. */
  readonly #accepted = new Set<Peer<L, R, D>>();
  /** Peers of one HTTP request each. */
  readonly #callers = new WeakSet<AnyPeer>();
  readonly #gate: Gate;
  readonly #posts: Posts;
  readonly #heartbeat: HeartbeatTimes | undefined;
  readonly #sessions: Sessions | undefined;
  /** How long a client that says it returns has to say whose session it resumes. */
  readonly #patienceMs: number;
  readonly #maxConnections: number;
  /** The subprotocols that can be chosen. */
  readonly #protocols: ReadonlySet<string>;
  readonly #tally = new Tally();
  #drained: Promise<void> | undefined;
  #closed: Promise<void> | undefined;

  /** Use `serve`. Throws a `TypeError` for bad options. */
  constructor(options: ServeOptions<L, R, D>) {
    super();
    const checked = checkServerOptions(options);
    this.#hooks = {
      server: this,
      Context: ServerCallContext,
      error: (error, peer) => this.#report(error, peer as Peer<L, R, D>),
      hasErrorListener: () => this.listenerCount("error") > 0,
      ended: (peer) => this.#forget(peer as Peer<L, R, D>),
      closed: (peer, info) => this.#tally.closed(peer as AnyPeer, info),
      warned: new Set(),
    };
    this.#config = configFrom(checked.peer);
    for (const dialect of checked.dialects) {
      const config = configFrom({ ...checked.peer, dialect });
      if (dialect.subprotocol !== undefined) this.#configBy.set(dialect.subprotocol, config);
    }
    this.#heartbeat = checked.heartbeat;
    this.peers = groupOf(() => this.#peers);
    this.#protocols = new Set([...(checked.link === "packed" ? [PROTOCOL] : []), ...this.#configBy.keys()]);
    const { maxMessageBytes } = this.#config.limits;
    const { limits } = checked.gate;
    this.#patienceMs = limits.handshakeTimeoutMs;
    this.#maxConnections = limits.maxConnections;
    if (checked.sessionTtlMs !== undefined && checked.link === "packed") {
      this.#sessions = new Sessions({
        limits: endpointLimits(this.#config.limits),
        ttlMs: checked.sessionTtlMs,
        makeToken: () => nanoid(TOKEN_LENGTH),
        hash: (token) => createHash("sha256").update(token).digest("base64"),
        maxSuspendedPerPrincipal: limits.maxSuspendedPerPrincipal,
        maxHeldLength: limits.maxSuspendedBytes,
        resumed: () => this.#tally.resumed(),
      });
    }
    const both = {
      refused: (refusal: Refusal, request: IncomingMessage) => this.#refused(refusal, request),
      failed: (error: unknown) => void this.#report(error),
    };
    this.#gate = new Gate(checked.gate, {
      ...both,
      maxFrameBytes: longestFrame(maxMessageBytes),
      answersPings: true,
      // The session of a client that returns may still have its old socket, which is closed when the client resumes.
      reserved: (request) => (this.#returns(request) ? this.#sessions!.live : 0),
      claim: (request) => (this.#returns(request) ? undefined : this.#claim()),
      chooseProtocol: (offered) => this.#choose(offered),
      admit: (webSocket, data, request, socket) =>
        this.#welcome(webSocket, data as Admission | undefined, request, socket),
      request: (request, response) => this.#posts.handle(request, response, true),
    });
    this.#posts = new Posts(this.#gate, {
      ...both,
      maxMessageBytes,
      maxUnsentBytes: this.#config.limits.maxUnsentBytes,
      handshakeTimeoutMs: limits.handshakeTimeoutMs,
      claim: () => this.#claim(),
      notificationStatus: checked.notificationStatus,
      accept: (transport, data) => this.#receive(transport, (data as Admission | undefined)?.data as D),
    });
  }

  /** Where it listens, such as `ws://127.0.0.1:3000/rpc`. Empty with `noServer`, and while it does not listen. */
  get url(): string {
    return this.#gate.url;
  }

  /** The topic of that name. It needs no making: a topic is there while it has peers. */
  topic(name: string): Topic<L, R, D> {
    return this.#topics.topic(name, (peer) => this.#whyNoMember(peer));
  }

  /** Makes a peer of any open transport, with this server's handlers. No rule of the handshake applies: `data` is the caller's word. */
  accept(transport: Transport, data: D): Peer<L, R, D> {
    const peer = this.#accept(transport, data, this.#config);
    if (this.#peers.has(peer)) this.#accepted.add(peer);
    return peer;
  }

  #accept(transport: Transport, data: D, config: Config): Peer<L, R, D> {
    const peer = this.#makePeer(transport, data, config);
    if (peer.state === "open") this.#peers.add(peer);
    if (this.#closed !== undefined) endPeer(peer, GoingAway, CLOSING);
    return peer;
  }

  /** Decides an upgrade, for an application that listens itself (`noServer`). Answers and ends what it refuses. Never throws or rejects. */
  handleUpgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void {
    this.#gate.handleUpgrade(request, socket, head);
  }

  /**
   * Answers a request by HTTP POST, for an application that routes requests itself: with `noServer`, or beside Express as
   * `app.post("/rpc", (request, response) => server.handleRequest(request, response))`. `path` does not matter then. A body
   * that was read already is taken from `request.body`, parsed or as text. Never throws or rejects.
   */
  handleRequest(request: IncomingMessage, response: ServerResponse): void {
    this.#posts.handle(request, response, false);
  }

  /** What happened on this server so far, and how full it is. Looks at every peer once, and costs nothing else. */
  stats(): ServerStats {
    return this.#tally.sum({
      peers: this.#peers.size,
      suspended: this.#sessions?.suspended ?? 0,
      suspendedBytes: this.#sessions?.held ?? 0,
      topics: this.#topics.size,
    });
  }

  /**
   * Goes away without hurting anybody: refuses whoever comes (503), closes each peer with 1001 when no handler of it runs, some
   * at a time, tells its client when to come back, and then does what `close` does. What still runs after `timeoutMs` is closed
   * all the same. Streams that are read and calls of this side's do not keep a peer; a suspended peer's client does not get
   * what it missed. Rejects with a `TypeError` for bad options, and then does nothing; a second call waits for the first.
   */
  async drain(options?: DrainOptions): Promise<void> {
    const checked = checkDrain(options);
    await (this.#drained ??= this.#drain(checked));
  }

  async #drain(options: ReturnType<typeof checkDrain>): Promise<void> {
    this.#gate.shut();
    this.#sessions?.shut(GoingAway, CLOSING);
    await Promise.all([drainPeers(this.#peers, CLOSING, options), this.#posts.drain(options.timeoutMs)]);
    await this.close();
  }

  /**
   * Stops taking connections, closes every peer with 1001, and resolves when all are gone and, with `port`, the HTTP server
   * has stopped. A peer that does not answer the close is cut after 5 seconds. Never rejects; a second call waits for the first.
   */
  close(): Promise<void> {
    return (this.#closed ??= this.#shutDown());
  }

  /** `close()`, for `await using`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** Starts listening, for `serve`. Rejects when the address is taken. @internal */
  listen(): Promise<void> {
    return this.#gate.listen();
  }

  #makePeer(transport: Transport, data: D, config: Config): Peer<L, R, D> {
    const peer = createPeer<L, R, D>(transport, config, this.#hooks);
    peer.data = data;
    this.#tally.opened(peer);
    startPeer(peer);
    return peer;
  }

  /** Makes the peer of one HTTP request: it is among no others, for nothing can be sent to it. */
  #receive(transport: Transport, data: D): Peer<L, R, D> {
    const peer = this.#makePeer(transport, data, this.#config);
    this.#callers.add(peer);
    return peer;
  }

  #whyNoMember(peer: Peer<L, R, D>): string | undefined {
    if (this.#peers.has(peer)) return undefined;
    return this.#callers.has(peer)
      ? "a topic takes peers that can be notified, and this one came by HTTP POST"
      : "a topic takes peers of its own server only";
  }

  #welcome(webSocket: GatheringWebSocket, who: Admission | undefined, request: IncomingMessage, raw: Duplex): void {
    const { protocol } = webSocket;
    const socket = new WsSocket(webSocket, this.#config.limits.maxMessageBytes, raw);
    if (this.#heartbeat !== undefined) socket.watch(this.#heartbeat);
    const config = this.#configFor(request);
    const accept = (link: Transport): void => {
      const peer = this.#accept(link, who?.data as D, config);
      tell(this, "peer", [peer, request], (error) => this.#report(error, peer));
    };
    const sessions = this.#sessions;
    if (protocol !== PROTOCOL) accept(plain(socket));
    else if (sessions === undefined) accept(linkWithoutSession(socket, config.limits));
    else if (this.#returns(request))
      sessions.admit(socket, who?.principal, this.#patienceMs, accept, (isAhead) => this.#claimAnew(isAhead, request));
    else accept(sessions.link(socket, who?.principal));
  }

  /**
   * Claims a slot for one more peer: a free one, or else that of a suspended session, which ends. Peers take slots, suspended
   * ones included, and not sockets, so a client that resumes takes none. If `isAhead`, ends nothing yet. Returns why there is
   * no slot.
   */
  #claim(isAhead = false): Refusal | undefined {
    const taken = this.#peers.size - this.#accepted.size + this.#posts.running;
    if (taken < this.#maxConnections) return undefined;
    const refusal = fullRefusal(this.#maxConnections);
    if (this.#sessions === undefined || this.#sessions.suspended === 0) return refusal;
    if (!isAhead) this.#sessions.evict(`a new client needed the slot: ${refusal.reason}`);
    return undefined;
  }

  /** Claims a slot for a client that offered to resume a session and begins a new one. */
  #claimAnew(isAhead: boolean, request: IncomingMessage): Bye | undefined {
    const refusal = this.#claim(isAhead);
    if (refusal === undefined) return undefined;
    this.#refused(refusal, request);
    return { code: fromHttpStatus(refusal.status), reason: refusal.reason };
  }

  #refused(refusal: Refusal, request: IncomingMessage): void {
    this.#tally.refused(refusal);
    tell(this, "refuse", [refusal, request], (error) => this.#report(error));
  }

  #choose(offered: ReadonlySet<string>): string | undefined {
    return [...offered].find((name) => this.#protocols.has(name));
  }

  /** Returns whether a client offers to resume a session, over the link that can have one. */
  #returns(request: IncomingMessage): boolean {
    const offered = offeredBy(request);
    return this.#sessions !== undefined && offered.has(RESUME_OFFER) && this.#choose(offered) === PROTOCOL;
  }

  /** By the first dialect that a client offers, also where it gets a link of ours and not that subprotocol. */
  #configFor({ headers }: IncomingMessage): Config {
    const offered = headers["sec-websocket-protocol"]?.split(",") ?? [];
    const [chosen = this.#config] = offered.flatMap((name) => this.#configBy.get(name.trim()) ?? []);
    return chosen;
  }

  #forget(peer: Peer<L, R, D>): void {
    this.#peers.delete(peer);
    this.#accepted.delete(peer);
    this.#topics.leaveAll(peer);
  }

  static {
    refuseUnknownEvents(Server.prototype, EVENTS);
  }

  #report(error: unknown, peer?: AnyPeer): boolean {
    return tell(this, "error", [error, peer]);
  }

  async #shutDown(): Promise<void> {
    this.#gate.shut();
    this.#sessions?.shut(GoingAway, CLOSING);
    this.#posts.shut(GoingAway, CLOSING);
    const peers = [...this.#peers];
    for (const peer of peers) endPeer(peer, GoingAway, CLOSING);
    await Promise.all([this.#posts.close(), ...peers.map((peer) => peer.closed)]);
    await this.#gate.close();
  }
}

/** Returns the link of a client on a server that keeps no sessions. */
function linkWithoutSession(socket: WsSocket, limits: PeerLimits): PackedLink {
  socket.send(HELLO);
  const link = new PackedLink("server", endpointLimits(limits), false, undefined);
  link.accept(socket, undefined);
  return link;
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
