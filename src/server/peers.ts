/** The peers of one server, with their sessions and topics, and the node that they are on. A server without an engine has a node when it needs one. */
import type { IncomingMessage } from "node:http";
import { GoingAway } from "../message/close-codes.js";
import { makeConfig, type Config } from "../peer/config.js";
import type { Contract } from "../contract/contract.js";
import type { FailedCall, Hooks } from "../peer/hooks.js";
import type { EventEmitter } from "../base/packages.js";
import { tell } from "../base/tell.js";
import type { Transport } from "../message/transport.js";
import { engineAnswer, type Engine } from "../topics/engine.js";
import type { NodeHost } from "../topics/host.js";
import { LocalNode, type ServerNode } from "../topics/local.js";
import { principalName, principalOf, type Principal } from "../topics/remote.js";
import { RESERVED } from "../topics/topic-options.js";
import { connectionOf, createPeer, endPeer, Peer, setAuth, startPeer, type AnyPeer } from "../peer/peer.js";
import { endpointLimits } from "../session/sizes.js";
import type { EndpointLimits } from "../session/state.js";
import { accepts, sendAll } from "./broadcast.js";
import { fullRefusal } from "./gate.js";
import type { CheckedOptions } from "./options.js";
import { randomText } from "./random.js";
import { SessionRegistry } from "./session-registry.js";
import { Tally, type ServerStats } from "./stats.js";
import { postFeatures } from "./streams.js";
import { Topics } from "./topics.js";
import type { Admission, Refusal } from "./upgrade.js";

export const CLOSING = "the server is closing";

/** 132 random bits. */
const TOKEN_LENGTH = 22;
/** 126 random bits. */
const ID_LENGTH = 21;

/** A peer whose id names its node. */
class NodePeer<L extends Contract<L>, R extends Contract<R>, A> extends Peer<L, R, A> {
  readonly #node: string;
  #id: string | undefined;

  constructor(transport: Transport, config: Config, node: string) {
    super(transport, undefined, config);
    this.#node = node;
  }

  override get id(): string {
    return (this.#id ??= `${this.#node}.${randomText(ID_LENGTH)}`);
  }
}

/** The peers of one server. */
export class ServerPeers<L extends Contract<L> = any, R extends Contract<R> = any, A = any> {
  /** All open peers, without those of HTTP requests. */
  readonly open = new Set<Peer<L, R, A>>();
  /** Those that the application made of a transport. They take no connection slot. */
  readonly accepted = new Set<Peer<L, R, A>>();
  /** How many HTTP requests have a peer. Their handlers run, or their response has not left. */
  posts = 0;
  /** The config of the peers of clients that choose no dialect. */
  readonly config: Config;
  readonly #postConfig: Config;
  /** The limits of the links of all peers. */
  readonly limits: EndpointLimits;
  readonly topics = new Topics<L, R, A>(() => this.node?.topics);
  /** `undefined` without sessions. */
  readonly sessions: SessionRegistry | undefined;
  readonly tally = new Tally();
  /** The node, if there is one. */
  node: ServerNode | undefined = undefined;
  readonly #server: EventEmitter<any>;
  readonly #options: CheckedOptions["fleet"];
  readonly #maxConnections: number;
  readonly #host: NodeHost;
  #isClosing = false;
  /** Whether the server has left the other nodes, because it is closed. */
  hasLeft = false;

  /** `hash`, `makeNode`: as of a `Platform`. */
  constructor(
    server: EventEmitter<any>,
    options: CheckedOptions,
    hash: (token: string) => string,
    makeNode: ((engine: Engine, host: NodeHost) => ServerNode) | undefined,
  ) {
    this.#server = server;
    this.#options = options.fleet;
    this.#maxConnections = options.gate.limits.maxConnections;
    this.config = makeConfig(options.peer, this.#makeHooks());
    this.#postConfig = { ...this.config, use: [...this.config.use, ...postFeatures] };
    this.limits = endpointLimits(this.config.limits, this.config.bytes);
    this.#host = this.#makeHost();
    const { engine } = options.fleet;
    if (engine !== undefined) this.node = makeNode!(engine, this.#host);
    const { session, gate, link } = options;
    if (session === undefined || link !== "packed") return;
    this.sessions = new SessionRegistry({
      limits: this.limits,
      ...session,
      makeToken: () => {
        const random = randomText(TOKEN_LENGTH);
        return this.node?.tokenOf?.(random) ?? random;
      },
      hash,
      maxSuspendedPerPrincipal: gate.limits.maxSuspendedPerPrincipal,
      maxStoredLength: gate.limits.maxSuspendedBytes,
    });
  }

  #makeHooks(): Hooks {
    return {
      server: this.#server,
      error: (error, peer, call) => this.report(error, peer as AnyPeer, call),
      missed: (peer, method) => this.emit("missed", [peer, method], peer as AnyPeer),
      answerFor: engineAnswer,
      principalOf: (peer) => this.#principalOf(peer as AnyPeer),
      hasErrorListener: () => this.#server.listenerCount("error") > 0,
      ended: (peer) => this.#remove(peer as Peer<L, R, A>),
      closed: (peer, info) => this.tally.closed(peer as AnyPeer, info),
    };
  }

  #makeHost(): NodeHost {
    const { changes, topics, nodes, disconnected } = this.#options;
    return {
      settings: this.config.settings,
      maxReplayLength: this.config.limits.maxUnsentBytes / 4,
      peers: this.open,
      rulesOf: (name) => (name.startsWith(RESERVED) ? { log: changes } : topics?.(name)),
      membersOf: (name) => this.topics.membersOf(name),
      add: (name, peer) => {
        if (peer.state !== "closed") this.topics.add(name, peer as Peer<L, R, A>);
      },
      // A copy: a listener of `missed` or `close` may change the group meanwhile.
      send: (targets, method, text, sendOptions) => sendAll([...targets], method, text, sendOptions),
      accepts,
      nodeMethods: nodes,
      disconnected,
      endSession: (hash, principal) => this.sessions?.endAbandoned(hash, principal),
      changed: (state) => this.emit("engine", [state]),
      gap: (topic, reason, members) => {
        // A copy: a report may end a connection.
        for (const peer of Array.from(members)) connectionOf(peer).transport.reportMissed?.(1);
        this.emit("gap", [topic, reason]);
      },
      report: (error) => this.report(error),
    };
  }

  /** Emits an event of the server. What a listener throws is reported, with `peer`. */
  emit(event: string, args: unknown[], peer?: AnyPeer): void {
    tell(this.#server, event, args, (error) => this.report(error, peer));
  }

  /** Emits an error that has no caller. Returns true if a listener got it. */
  report(error: unknown, peer?: AnyPeer, call?: FailedCall): boolean {
    return tell(this.#server, "error", [error, peer, call]);
  }

  /** Peers take slots, suspended ones included, and sockets do not, so a client that resumes takes none. */
  get #isFull(): boolean {
    return this.open.size - this.accepted.size + this.posts >= this.#maxConnections;
  }

  /** Returns a refusal if there is no slot for one more peer. The slot of a suspended session counts as free. */
  checkSlot(): Refusal | undefined {
    const hasSlot = !this.#isFull || (this.sessions?.suspendedCount ?? 0) > 0;
    return hasSlot ? undefined : fullRefusal(this.#maxConnections);
  }

  /**
   * Claims a slot for one more peer, that of a suspended session if no other is free. Returns a refusal if there is no slot, or if the
   * principal of the peer was disconnected meanwhile.
   */
  claimSlot(admission: Admission | undefined): Refusal | undefined {
    const refusal = admission?.end() ?? this.checkSlot();
    if (refusal === undefined && this.#isFull)
      this.sessions!.evict(`a new client needed the slot: ${fullRefusal(this.#maxConnections).reason}`);
    return refusal;
  }

  /** Counts and emits that a client was refused. */
  refused(refusal: Refusal, request: IncomingMessage): void {
    this.tally.refused(refusal);
    this.emit("refuse", [refusal, request]);
  }

  /** Makes the peer of a transport, whose `config` is that of its dialect. If the server is closed, closes it. */
  accept(transport: Transport, auth: A, config = this.config, admission?: Admission): Peer<L, R, A> {
    const peer = this.#make(transport, auth, config);
    // A transport may end as it starts. One that is still connecting belongs to the server too.
    if (peer.state !== "closed") {
      this.open.add(peer);
      this.#opened(peer, admission);
    }
    if (this.#isClosing) endPeer(peer, { code: GoingAway, reason: CLOSING });
    return peer;
  }

  /** Makes the peer of one HTTP request. No group has the peer, because nothing can be sent to its client. */
  acceptPost(transport: Transport, auth: A): Peer<L, R, A> {
    return this.#make(transport, auth, this.#postConfig);
  }

  /** Gives a peer the new result of `authenticate`. Returns a function that emits `refresh`. */
  refresh(peer: AnyPeer, { auth }: Admission): () => void {
    const old: unknown = peer.auth;
    setAuth(peer, auth);
    return () => this.emit("refresh", [peer, old], peer);
  }

  #make(transport: Transport, auth: A, config: Config): Peer<L, R, A> {
    const peer =
      this.#options.engine === undefined
        ? createPeer<L, R, A>(transport, config)
        : new NodePeer<L, R, A>(transport, config, this.node!.id);
    setAuth(peer, auth);
    this.tally.opened(peer);
    startPeer(peer);
    return peer;
  }

  #opened(peer: AnyPeer, admission?: Admission): void {
    this.node?.own.opened(peer, admission?.principal ?? this.#principalOf(peer), admission?.since);
  }

  #remove(peer: Peer<L, R, A>): void {
    this.open.delete(peer);
    this.accepted.delete(peer);
    this.topics.leaveAll(peer);
    this.node?.own.closed(peer);
  }

  /** Returns why a peer cannot be a member of a topic; `undefined` if it can. */
  whyNoMember(peer: Peer<L, R, A>): string | undefined {
    if (this.open.has(peer)) return undefined;
    return this.#isOwn(peer)
      ? "a topic takes peers that can be notified, and this one came by HTTP POST"
      : "a topic takes peers of its own server only";
  }

  /** Returns true if a peer is one of this server, or may be one of a server with the same engine. Also if it is closed. */
  canHave(peer: AnyPeer): boolean {
    return this.#isOwn(peer) || this.node?.canHave?.(peer) === true;
  }

  #isOwn(peer: AnyPeer): boolean {
    return connectionOf(peer).config.hooks === this.config.hooks;
  }

  /** The node. A server without an engine gets one of its own. */
  get anyNode(): ServerNode {
    if (this.node !== undefined) return this.node;
    const node = (this.node = new LocalNode(this.#host));
    // What needs a server that is open then rejects.
    if (this.hasLeft) void node.close();
    for (const peer of this.open) this.#opened(peer);
    for (const name of this.topics.names) {
      try {
        node.topics.opened(name);
      } catch (error) {
        // Rules that are wrong for one topic must not concern the others.
        this.report(error);
      }
    }
    return node;
  }

  /** Returns the name of a peer's principal; `undefined` without the option `principal`. */
  #principalOf(peer: AnyPeer): string | undefined {
    try {
      const { principal } = this.#options;
      return principal && principalName(principal(peer.auth), "principal");
    } catch (error) {
      // The `auth` of a peer that `accept` made may be anything.
      this.report(error, peer);
      return undefined;
    }
  }

  /** Returns the peers of one principal, on all nodes. */
  principal(name: string): Principal<R> {
    if (this.#options.principal === undefined)
      throw new TypeError("`server.principal` requires the option `principal`");
    const { calls, principals } = this.anyNode;
    return principalOf<R>(calls, principals, name);
  }

  /** Returns the counts of all peers, and the present load. */
  stats(): ServerStats {
    const engine = this.node?.stats?.();
    return this.tally.sum({
      peers: this.open.size,
      suspended: this.sessions?.suspendedCount ?? 0,
      suspendedBytes: this.sessions?.stored ?? 0,
      resumed: this.sessions?.resumed ?? 0,
      topics: this.topics.size,
      ...(engine !== undefined && { engine }),
    });
  }

  /** Closes all peers, and each that is made from now on. Resolves when they are closed. */
  async close(): Promise<void> {
    this.#isClosing = true;
    const peers = [...this.open];
    for (const peer of peers) endPeer(peer, { code: GoingAway, reason: CLOSING });
    await Promise.all(peers.map((peer) => peer.closed));
  }

  /** Leaves the other nodes. */
  async leave(): Promise<void> {
    this.hasLeft = true;
    await this.node?.close();
  }
}
