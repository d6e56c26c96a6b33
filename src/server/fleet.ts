/** The server as a node: everything between `Server` and its node. A server without an engine has none until it needs one. */
import type { Config } from "../core/config.js";
import type { Contract, NotifyName } from "../core/contract.js";
import type { Hooks } from "../core/hooks.js";
import type { Link } from "../core/transport.js";
import type { Engine } from "../fleet/engine.js";
import type { EngineStats, NodeHost, NodeMethods, ServerNode } from "../fleet/host.js";
import { LocalNode } from "../fleet/local.js";
import { principalName, type Principal } from "../fleet/remote.js";
import type { TopicRules } from "../fleet/topic-options.js";
import { createPeer, Peer, type AnyPeer } from "../peer/peer.js";
import { accepts, sendAll, type GroupHost } from "./groups.js";
import type { FleetSettings } from "./options.js";
import type { Platform } from "./platform.js";
import { randomText } from "./random.js";

/** The options of a server that is a node of a fleet. */
export interface FleetOptions<R> {
  /**
   * Connects this server to those of other processes: `redis()` or `nats()`, or `memory()` for several servers in one process. Then
   * topics, `server.peers.notify`, `server.peer`, `server.principal` and `server.nodes` reach all of them. Default: this server has
   * no others.
   */
  engine?: Engine | undefined;
  /**
   * Returns the rules of a topic: whether its publications are logged, and whether it has a list of members. Called when a rule is
   * needed, and must return the same on every node. Default: no topic has rules.
   */
  topics?: ((name: string) => TopicRules<NotifyName<R>> | undefined) | undefined;
  /** Handles notifications of other nodes: see `server.nodes`. */
  nodes?: { readonly methods?: NodeMethods | undefined } | undefined;
}

/** The parts of a server that its node needs. */
export interface ServerParts {
  readonly options: FleetSettings;
  readonly config: Config;
  readonly peers: ReadonlySet<AnyPeer>;
  /** The host of all groups. Gets the node, and the way to other nodes. */
  readonly groups: GroupHost & { node: ServerNode | undefined };
  readonly topics: {
    readonly names: Iterable<string>;
    membersOf(name: string): ReadonlySet<AnyPeer>;
    add(name: string, peer: AnyPeer): void;
  };
  endSession(hash: string, principal: string | undefined): void;
  emit(event: "engine" | "gap", ...args: unknown[]): void;
}

/** 126 random bits. */
const ID_LENGTH = 21;

/** A peer whose id names its node. */
class NodePeer<L extends Contract<L>, R extends Contract<R>, A> extends Peer<L, R, A> {
  readonly #node: string;
  #id: string | undefined;

  constructor(transport: Link, config: Config, hooks: Hooks, node: string) {
    super(transport, undefined, { config, hooks });
    this.#node = node;
  }

  override get id(): string {
    return (this.#id ??= `${this.#node}.${randomText(ID_LENGTH)}`);
  }
}

/** The node of a server. */
export class ServerFleet {
  readonly #server: ServerParts;
  readonly #host: NodeHost;
  /** The node, if there is one. */
  node: ServerNode | undefined = undefined;
  #isClosed = false;

  constructor(server: ServerParts, { makeNode }: Pick<Platform, "makeNode">) {
    const { config, peers, groups, topics, options } = server;
    this.#server = server;
    this.#host = {
      wait: config.wait,
      maxReplayLength: config.limits.maxUnsentBytes / 4,
      peers,
      rulesOf: (name) => options.topics?.(name),
      membersOf: (name) => topics.membersOf(name),
      add: (name, peer) => {
        if (peer.state !== "closed") topics.add(name, peer);
      },
      // A copy: a listener of `missed` or `close` may change the group meanwhile.
      send: (targets, method, text, sendOptions) => sendAll([...targets], method, text, sendOptions),
      accepts,
      nodeMethods: options.nodes,
      disconnected: options.disconnected,
      endSession: (hash, principal) => server.endSession(hash, principal),
      changed: (state) => server.emit("engine", state),
      gap: (topic, reason) => server.emit("gap", topic, reason),
      report: (error) => groups.report(error),
    };
    if (options.engine !== undefined) this.#set(makeNode!(options.engine, this.#host));
  }

  #set(node: ServerNode): void {
    this.node = this.#server.groups.node = node;
    this.#server.groups.reach = node.reach;
  }

  /** Returns the node. A server without an engine gets one of its own. */
  get any(): ServerNode {
    if (this.node !== undefined) return this.node;
    const node = new LocalNode(this.#host);
    this.#set(node);
    // What needs a server that is open then rejects.
    if (this.#isClosed) void node.close();
    for (const peer of this.#server.peers) this.opened(peer, undefined);
    for (const name of this.#server.topics.names) {
      try {
        node.topics.opened(name);
      } catch (error) {
        // Rules that are wrong for one topic must not concern the others.
        this.#host.report(error);
      }
    }
    return node;
  }

  /** Leaves the other nodes. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await this.node?.close();
  }

  /** Makes a peer, which is not started. */
  createPeer<L extends Contract<L>, R extends Contract<R>, A>(
    transport: Link,
    config: Config,
    hooks: Hooks,
  ): Peer<L, R, A> {
    return this.#server.options.engine === undefined
      ? createPeer<L, R, A>(transport, config, hooks)
      : new NodePeer(transport, config, hooks, this.node!.id);
  }

  opened(peer: AnyPeer, principal: string | undefined): void {
    this.node?.opened(peer, principal ?? this.#principalOf(peer));
  }

  /** Of a peer that `accept` made, or that connected before this server had a node. */
  #principalOf(peer: AnyPeer): string | undefined {
    try {
      const { principal } = this.#server.options;
      return principal && principalName(principal(peer.auth), "principal");
    } catch (error) {
      // The `auth` of a peer that `accept` made may be anything.
      this.#server.groups.report(error, peer);
      return undefined;
    }
  }

  principal<R extends Contract<R>>(name: string): Principal<R> {
    if (this.#server.options.principal === undefined)
      throw new TypeError("`server.principal` requires the option `principal`");
    return this.any.principal<R>(name);
  }

  /** Returns the counts of the engine, if there is one. */
  stats(): { engine?: EngineStats } {
    const engine = this.node?.stats();
    return engine === undefined ? {} : { engine };
  }
}
