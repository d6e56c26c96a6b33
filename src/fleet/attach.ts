/** `attach`: a node without clients, for a process that only notifies, publishes and calls, such as a worker. */
import { encodeNotification, shownAs } from "../message/codec.js";
import type { AnyMethods, CallArgs, Contract, LiveOptions, NotifyName } from "../contract/contract.js";
import { expected } from "../message/errors.js";
import { checkLive, LIVE_OPTIONS } from "../features/live.js";
import { anyFunction, checkOptions, must, optional, positive, tableOf } from "../message/options.js";
import { EventEmitter } from "../base/packages.js";
import { refuseUnknownEvents, tell } from "../base/tell.js";
import { checkEngine, type Engine } from "../topics/engine.js";
import { Fleet } from "./fleet.js";
import type { FleetEvents, Health, NodeHost, NodeMethods, Nodes } from "../topics/host.js";
import {
  AddressedPeer,
  checkExcept,
  principalOf,
  wrongExcept,
  type Except,
  type Principal,
  type RemotePeer,
} from "../topics/remote.js";
import {
  topicName,
  type LogEntries,
  type PublishArgs,
  type ReadOptions,
  type TopicMember,
  type TopicRules,
} from "../topics/topic-options.js";

/** The options of `attach`. */
export interface AttachOptions<R> {
  /** The engine of the servers. */
  engine: Engine;
  /** As for `serve`. */
  topics?: ((name: string) => TopicRules<NotifyName<R>> | undefined) | undefined;
  /** Handles notifications of other nodes. */
  nodes?: { readonly methods?: NodeMethods | undefined } | undefined;
  /** How long a call to a peer waits by default, in milliseconds. Default 60,000; `Infinity` waits for ever. */
  timeoutMs?: number | undefined;
}

/** A topic as a node without clients sees it. Each member does what the one of the same name of a server's topic does. */
export interface AttachedTopic<R extends Contract<R>> {
  /** Notifies the members on all nodes, at most once. Throws a `TypeError` for bad options and for params without a JSON form. */
  notify<K extends NotifyName<R>>(
    method: K,
    ...args: CallArgs<
      R[K],
      [options?: LiveOptions & { except?: Except<never> | undefined; whenSlow?: "drop" | "close" | undefined }]
    >
  ): void;
  publish<K extends NotifyName<R>>(method: K, ...args: PublishArgs<R[K]>): Promise<string>;
  read(options?: ReadOptions): Promise<LogEntries>;
  members(options?: { limit?: number | undefined }): Promise<TopicMember[]>;
  watch(listener: (event: "joined" | "left", member: TopicMember) => void): () => void;
}

const ATTACH_OPTIONS = {
  engine: checkEngine,
  topics: optional(anyFunction),
  timeoutMs: optional(positive, 60_000),
  nodes: (value: unknown) =>
    checkOptions("nodes", value as object | undefined, {
      methods: (methods: unknown = {}, name: string) => tableOf(methods, name, anyFunction),
    }),
};
const NOTIFY_OPTIONS = {
  ...LIVE_OPTIONS,
  except: checkExcept,
  whenSlow: optional(must<"drop" | "close">('"drop" or "close"', (value) => value === "drop" || value === "close")),
};

/** See `attach` of the entry for Node, which loads this module. */
export async function attach<R extends Contract<R> = AnyMethods>(options: AttachOptions<R>): Promise<Attached<R>> {
  const attached = new Attached<R>(options);
  try {
    await attached.start();
  } catch (error) {
    await attached.close();
    throw error;
  }
  return attached;
}

/** The events of a node without clients: those of the engine, and `error` for what listeners and handlers throw. */
type AttachedEvents = FleetEvents & { error(error: unknown): void };

const EVENTS: Record<keyof AttachedEvents, 0> = { engine: 0, gap: 0, error: 0 };
const NO_PEERS: ReadonlySet<never> = new Set();

/** A node without clients. Made by `attach`. `R` is the contract of the peers that it calls. */
export class Attached<R extends Contract<R> = AnyMethods> extends EventEmitter<AttachedEvents> {
  readonly #fleet: Fleet;

  /** Use `attach`. Throws a `TypeError` for bad options. */
  constructor(options: AttachOptions<R>) {
    super();
    const { engine, topics, nodes, timeoutMs } = checkOptions("options", options, ATTACH_OPTIONS);
    if (engine === undefined) throw expected("engine", "an engine, such as `memory()`", engine);
    const report = (error: unknown): void => void tell(this, "error", [error]);
    const host: NodeHost = {
      settings: { timeoutMs, retry: false },
      maxReplayLength: 0,
      peers: NO_PEERS,
      rulesOf: (name) => topics?.(name),
      membersOf: () => NO_PEERS,
      add() {},
      send() {},
      accepts: () => false,
      nodeMethods: nodes.methods,
      disconnected() {},
      endSession() {},
      changed: (state) => void tell(this, "engine", [state], report),
      gap: (topic, reason) => void tell(this, "gap", [topic, reason], report),
      report,
    };
    this.#fleet = new Fleet(engine, host);
  }

  /** Connects, for `attach`. @internal */
  start(): Promise<void> {
    return this.#fleet.start();
  }

  /** Returns the topic of that name. Throws a `TypeError` for a name that cannot be a topic. */
  topic(name: string): AttachedTopic<R> {
    topicName(name, "name");
    const fleet = this.#fleet;
    const { topics } = fleet;
    const topic: AttachedTopic<R> & { toJSON(key: string): never } = {
      toJSON(key) {
        return shownAs(name, "topic", "write its name", key);
      },
      notify(method: string, params?: unknown, options?: object) {
        const { whenSlow = "drop", ...live } = checkLive(options, NOTIFY_OPTIONS);
        for (const peer of live.except ?? [])
          if (typeof peer !== "string" && !fleet.canHave(peer)) throw wrongExcept(peer);
        fleet.notifyElsewhere(name, method, encodeNotification(method, params as object), { ...live, whenSlow });
      },
      publish: (method: string, params?: any, options?: any) => topics.publish(name, method, params, options),
      read: (options) => topics.read(name, options),
      members: (options) => topics.members(name, options),
      watch: (listener) => topics.watch(name, anyFunction(listener, "listener")),
    };
    return topic;
  }

  /** Returns a peer of any node, by its `id`. */
  peer(id: string): RemotePeer<R> {
    return new AddressedPeer<R>(this.#fleet.calls, id);
  }

  /** Returns all peers of one principal, on all nodes. */
  principal(name: string): Principal<R> {
    return principalOf<R>(this.#fleet.calls, name);
  }

  /** The nodes that have the same engine, with this one. */
  get nodes(): Nodes {
    return this.#fleet.nodes;
  }

  /** As `server.health()`. */
  health(): Health {
    return this.#fleet.health();
  }

  /** Disconnects. Calls that are pending reject with `ConnectionLostError`. Never rejects. A second call waits for the first. */
  close(): Promise<void> {
    return this.#fleet.close();
  }

  /** Returns `"server"`, for logs. In a message it throws a `TypeError`. */
  toJSON(key?: string): never {
    return shownAs("server", "server", "write what is needed of it", key);
  }

  /** Calls `close()`, for `await using`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  static {
    refuseUnknownEvents(Attached.prototype, EVENTS);
  }
}
