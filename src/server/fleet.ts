/** The server as a node of a fleet: everything between `Server` and `Fleet`. Nothing of it runs on a server without an engine. */
import type { Config } from "../core/config.js";
import type { MessageText } from "../core/codec.js";
import type { Contract, NotifyName } from "../core/contract.js";
import type { Hooks } from "../core/hooks.js";
import type { Link } from "../core/transport.js";
import type { Engine } from "../fleet/engine.js";
import { Fleet, tokenOf, type EngineStats, type Health, type Nodes } from "../fleet/fleet.js";
import type { FleetHost, NodeMethods } from "../fleet/node.js";
import { principalName } from "../fleet/frames.js";
import { memory } from "../fleet/memory.js";
import type { Principal, RemotePeer } from "../fleet/remote.js";
import type { TopicRules } from "../fleet/topic-options.js";
import { createPeer, Peer, type AnyPeer } from "../peer/peer.js";
import { accepts, sendAll, type GroupOptions, type GroupHost, type Reach } from "./groups.js";
import { randomText } from "./random.js";

/** The options of a server that is a node of a fleet. */
export interface FleetOptions<R> {
  /**
   * Connects this server to those of other processes: `redis()` or `nats()`, or `memory()` for several servers in one process. Then
   * topics, `server.peers.notify`, `server.peer`, `server.principal` and `server.nodes` reach all of them. Default: this server is
   * alone.
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

/** The parts of a server that its fleet needs. */
export interface ServerParts {
  readonly options: {
    readonly engine: Engine | undefined;
    readonly topics: ((name: string) => unknown) | undefined;
    readonly nodes: ReadonlyMap<string, NodeMethods[string]>;
    readonly principal: ((auth: unknown) => unknown) | undefined;
    /** Refuses the clients of a principal that are being admitted. */
    readonly disconnected: (principal: string) => void;
  };
  readonly config: Config;
  readonly peers: ReadonlySet<AnyPeer>;
  /** The host of all groups. Gets the way to other nodes. */
  readonly groups: GroupHost & { fleet: Fleet | undefined };
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

/** The fleet of a server. */
export class ServerFleet implements Reach {
  readonly #server: ServerParts;
  /** The fleet, if there is one. */
  fleet: Fleet | undefined = undefined;
  #isClosed = false;

  constructor(server: ServerParts) {
    this.#server = server;
    const { engine } = server.options;
    if (engine !== undefined) this.fleet = this.#make(engine, false);
  }

  /** Returns a token for a session, which names this node if there are others. */
  tokenOf(random: string): string {
    const { engine } = this.#server.options;
    return engine === undefined ? random : tokenOf(this.fleet!.id, random);
  }

  /** As `Fleet.sessionOver`. Returns nothing if there are no other nodes. */
  sessionOver(token: string, hash: string, principal: string | undefined): (() => void) | undefined {
    return this.#server.options.engine && this.fleet!.sessionOver(token, hash, principal);
  }

  /** Returns the fleet. A server without an engine gets a fleet of its own, in memory. */
  get any(): Fleet {
    if (this.fleet !== undefined) return this.fleet;
    const fleet = this.#make(memory(), true);
    this.fleet = fleet;
    // Nothing would close a fleet that starts after its server has closed. What needs the broker then rejects.
    if (this.#isClosed) void fleet.close();
    // Memory needs no time, and never fails.
    else void fleet.start();
    for (const peer of this.#server.peers) this.opened(peer, undefined);
    for (const name of this.#server.topics.names) {
      try {
        fleet.topics.opened(name);
      } catch (error) {
        // Rules that are wrong for one topic must not concern the others.
        this.#server.groups.report(error);
      }
    }
    return fleet;
  }

  /** Leaves the fleet. One that is asked for later never starts. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await this.fleet?.close();
  }

  #make(engine: Engine, isLocal: boolean): Fleet {
    const { config, peers, groups, topics, options } = this.#server;
    const report = (error: unknown): void => groups.report(error);
    const host: FleetHost = {
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
      endSession: (hash, principal) => this.#server.endSession(hash, principal),
      changed: (state) => this.#server.emit("engine", state),
      gap: (topic, reason) => this.#server.emit("gap", topic, reason),
      report,
    };
    groups.reach = this;
    groups.fleet = new Fleet(engine, host, isLocal);
    return groups.fleet;
  }

  /** Makes a peer, which is not started. */
  createPeer<L extends Contract<L>, R extends Contract<R>, A>(
    transport: Link,
    config: Config,
    hooks: Hooks,
  ): Peer<L, R, A> {
    const { id, isLocal } = this.fleet!;
    return isLocal ? createPeer<L, R, A>(transport, config, hooks) : new NodePeer(transport, config, hooks, id);
  }

  opened(peer: AnyPeer, principal: string | undefined): void {
    this.fleet?.opened(peer, principal ?? this.#principalOf(peer));
  }

  /** Of a peer that `accept` made, or that connected before this server had a fleet. */
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

  peerOf(id: string): AnyPeer | undefined {
    return this.fleet?.peerOf(id);
  }

  notifyTopic(name: string, method: string, text: MessageText, options: GroupOptions): void {
    const fleet = this.fleet!;
    fleet.topics.queue(name, method, text, options);
    if (options.here !== true && !fleet.isLocal) fleet.notifyTopic(name, text, options);
  }

  notifyAll(text: MessageText, options: GroupOptions): void {
    const fleet = this.fleet!;
    if (options.here !== true && !fleet.isLocal) fleet.notifyAll(text, options);
  }

  peer<R extends Contract<R>>(id: string): RemotePeer<R> {
    return this.any.peer<R>(id);
  }

  principal<R extends Contract<R>>(name: string): Principal<R> {
    if (this.#server.options.principal === undefined)
      throw new TypeError("`server.principal` requires the option `principal`");
    return this.any.principal<R>(name);
  }

  get nodes(): Nodes {
    return this.any.nodes;
  }

  /** Returns the counts of the engine, if there is one. */
  stats(): { engine?: EngineStats } {
    const { fleet } = this;
    return fleet === undefined || fleet.isLocal ? {} : { engine: fleet.stats() };
  }

  health(): Health {
    const fleet = this.fleet;
    return fleet === undefined || fleet.isLocal ? { ok: true, engine: "none", lagMs: undefined } : fleet.health();
  }
}
