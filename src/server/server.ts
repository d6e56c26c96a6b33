/** A server: many peers that share handlers, and the groups that notify many peers at once. The gate accepts or refuses clients. */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Duplex } from "node:stream";
import { GoingAway } from "../message/close-codes.js";
import type { ContractOptions } from "../contract/checks.js";
import { shownAs } from "../message/codec.js";
import type { Jsonify } from "../message/jsonify.js";
import type { AnyMethods, Contract } from "../contract/contract.js";
import type { Config } from "../peer/config.js";
import type { Dialect } from "../peer/dialect.js";
import type { FailedCall } from "../peer/hooks.js";
import { EventEmitter } from "../base/packages.js";
import { refuseUnknownEvents } from "../base/tell.js";
import type { Transport } from "../message/transport.js";
import type { FleetEvents, Health, Nodes } from "../topics/host.js";
import { AddressedPeer, type Principal, type RemotePeer } from "../topics/remote.js";
import { aTransport, type Context, type MethodOptions, type Peer, type PeerOptions } from "../peer/peer.js";
import type { ServerAround } from "./around.js";
import { Changes } from "./changes.js";
import { checkDrain, drainPeers, type DrainOptions } from "./drain.js";
import { Entrance, type Platform } from "./entrance.js";
import { PeerGroup, TopicView, unionOf, type Group, type Topic, type TopicGroup } from "./groups.js";
import { checkServerOptions, type Authentication, type FleetOptions, type GateOptions } from "./options.js";
import { CLOSING, ServerPeers } from "./peers.js";
import type { ServerStats } from "./stats.js";
import type { Refusal } from "./upgrade.js";

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
    /** As for a peer, and wraps every message to a group, whose `call.peer` is `undefined`. */
    around?: ServerAround | readonly ServerAround[] | undefined;
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
  readonly #peers: ServerPeers<L, R, A>;
  readonly #entrance: Entrance;
  readonly #changes: Changes;
  #drained: Promise<void> | undefined;
  #closed: Promise<void> | undefined;

  /** Use `serve`, or `testServer` of `reciproc/testing`. Throws a `TypeError` for bad options. */
  constructor(options: ServeOptions<L, R, A>, platform: Platform) {
    super();
    const checked = checkServerOptions(options);
    this.#peers = new ServerPeers(this, checked, platform.hash, platform.makeNode);
    this.peers = new PeerGroup(() => this.#peers.open, this.#peers, undefined);
    this.#entrance = new Entrance(this.#peers, checked, platform);
    this.#changes = new Changes(this.#peers, platform.hash);
  }

  /** The URL of the server, such as `ws://127.0.0.1:3000/rpc`. Empty with `noServer`, and while the server does not listen. */
  get url(): string {
    return this.#entrance.gate.url;
  }

  /** Returns the topic of that name. Throws a `TypeError` unless the name is a well-formed string of 1 to 512 bytes of UTF-8. */
  topic(name: string): Topic<L, R, A> {
    return new TopicView(this.#peers, name);
  }

  /**
   * Returns the peers that are in any of these topics, each once: for messages to several topics. Without names, it has no peer. Throws a
   * `TypeError` for more than 256 names, and for what is no name.
   */
  topics(...names: readonly string[]): TopicGroup<L, R, A> {
    return unionOf(this.#peers, names);
  }

  /** The names of the topics that have members on this node, for tools. A new array at each use. */
  get topicNames(): string[] {
    return [...this.#peers.topics.names];
  }

  /**
   * Makes a peer of a transport, which is open or connects, with this server's handlers. No rule of the handshake applies, and
   * `auth` becomes `peer.auth`, and is not checked. `server.principal` finds the peer by it. If the server is closed, closes the peer with 1001.
   */
  accept(transport: Transport, auth: A): Peer<L, R, A>;
  /** Makes a peer with that config, which is a part of the connection of another peer. @internal */
  accept(transport: Transport, auth: A, config: Config): Peer<L, R, A>;
  accept(transport: Transport, auth: A, config?: Config): Peer<L, R, A> {
    aTransport(transport, "transport");
    const peer = this.#peers.accept(transport, auth, config);
    if (this.#peers.open.has(peer)) this.#peers.accepted.add(peer);
    return peer;
  }

  /**
   * Accepts or refuses an upgrade, for an application that listens itself (`noServer`). Answers and closes a refused socket.
   * Never throws.
   */
  handleUpgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void {
    this.#entrance.gate.handleUpgrade(request, socket, head);
  }

  /**
   * Answers a request by HTTP POST, for an application that routes requests itself: with `noServer`, or beside Express as
   * `app.post("/rpc", (request, response) => server.handleRequest(request, response))`. Ignores `path`. Takes a body that was
   * already read from `request.body`, parsed or as text. Resolves when the response has left or the client has disconnected, and
   * at once if the request was answered already, for frameworks that await a handler. Never rejects.
   */
  async handleRequest(request: IncomingMessage, response: ServerResponse): Promise<void> {
    await this.#entrance.posts?.handle(request, response, false);
  }

  /** Returns the counts of this server so far, and its present load. Reads the counts of every peer once. */
  stats(): ServerStats {
    return this.#peers.stats();
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

  async #drain({ timeoutMs, retryMs }: ReturnType<typeof checkDrain>): Promise<void> {
    this.#entrance.shut({ code: GoingAway, reason: CLOSING, retryMs });
    const posts = this.#entrance.posts?.drain(timeoutMs);
    await Promise.all([drainPeers(this.#peers.open, CLOSING, { timeoutMs, retryMs }), posts]);
    await this.close();
  }

  /**
   * Refuses new clients and closes every peer with 1001. Resolves when all peers are closed and, with `port`, the HTTP server
   * has stopped. Cuts a peer that does not answer the close within 5 seconds. Never rejects. A second call waits for the first.
   */
  close(): Promise<void> {
    return (this.#closed ??= this.#close());
  }

  async #close(): Promise<void> {
    const { gate, posts } = this.#entrance;
    this.#entrance.shut({ code: GoingAway, reason: CLOSING });
    posts?.shut(GoingAway, CLOSING);
    await Promise.all([posts?.close(), this.#peers.close()]);
    await gate.close();
    // Only now: the node reports the sessions whose clients still sent their hello.
    await this.#peers.leave();
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
    const { gate } = this.#entrance;
    const { node } = this.#peers;
    if (node?.start === undefined) return gate.listen();
    try {
      await node.start(() => gate.listen());
    } catch (error) {
      await this.close();
      throw error;
    }
  }

  /**
   * Returns a peer of any node, by its `id`, which names its node. Needs no round trip, and does not check that there is such a peer.
   */
  peer(id: string): RemotePeer<R> {
    return new AddressedPeer<R>(this.#peers.anyNode.calls, id);
  }

  /** Returns all peers of one principal, on all nodes. Throws a `TypeError` without the option `principal`, and for what is no name. */
  principal(name: string): Principal<R> {
    return this.#peers.principal(name);
  }

  /**
   * Runs a change once for each `key` in the params of a call, and resolves with its result by way of JSON. `context` is that of the handler.
   * The key belongs to the principal of the caller and to the method. A repeat, through any node, has the same outcome: the result, or an
   * `RpcError` with what the first caller gets, whatever `run` has thrown. A repeat waits for `run`, for at most 30 s. A result or an error
   * of more than 64 KiB becomes -32008, and a stream -32603.
   *
   * A log has a claim and the response of each change, as the option `changes` says. When it has forgotten them, a repeat runs again. The
   * response is logged before this resolves. If that fails for 30 s, this resolves nevertheless, the server emits `error`, and repeats reject.
   *
   * Rejects with an `EngineError` of outcome `"not-sent"` if `run` is not called, because the broker was away for 30 s, the server is closed or
   * the log has no room, and of `"unknown"` if the outcome of the first call is not known. Rejects with an `RpcError` of code -32602 for a
   * key that is no well-formed string of 1 to 256 characters, and with a `TypeError` without a principal and for bad arguments.
   */
  runOnce<T>(context: Context, run: () => T | PromiseLike<T>): Promise<Jsonify<T>>;
  runOnce(context: Context, run: () => unknown): Promise<any> {
    return this.#changes.runOnce(context, run);
  }

  /** The nodes that have the same engine. Without an engine, this server is the only one. */
  get nodes(): Nodes {
    return this.#peers.anyNode.nodes;
  }

  /** Returns whether this server reaches the others, for monitoring. `ok` is true without an engine. */
  health(): Health {
    return this.#peers.node?.health?.() ?? { ok: true, engine: "none", lagMs: undefined };
  }

  static {
    refuseUnknownEvents(Server.prototype, EVENTS);
  }
}
