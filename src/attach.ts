/**
 * `attach`: a node without clients, for a process that only notifies, publishes and calls, such as a worker. It is a server that listens
 * nowhere, of which the application sees a part.
 */
import type { AnyMethods, Contract, NotifyName } from "./contract/contract.js";
import { EventEmitter } from "./base/packages.js";
import { refuseUnknownEvents, tell } from "./base/tell.js";
import { shownAs } from "./message/codec.js";
import { expected } from "./message/errors.js";
import { any, checkOptions } from "./message/options.js";
import { platformFor } from "./serve.js";
import type { Platform } from "./server/entrance.js";
import type { Topic, TopicGroup } from "./server/groups.js";
import { Server, type ServeOptions } from "./server/server.js";
import type { Engine } from "./topics/engine.js";
import type { FleetEvents, Health, NodeMethods, Nodes } from "./topics/host.js";
import type { Principal, RemotePeer } from "./topics/remote.js";
import type { TopicRules } from "./topics/topic-options.js";

/** The options of `attach`. */
export interface AttachOptions<R> {
  /** The engine of the servers. */
  engine: Engine;
  /** As for `serve`. */
  topics?: ((name: string) => TopicRules<NotifyName<R>> | undefined) | undefined;
  /** Handles notifications of other nodes. */
  nodes?: { readonly methods?: NodeMethods | undefined } | undefined;
  /** How long a call to a peer waits by default, in milliseconds. Default 60,000. With `Infinity`, a call without a `timeoutMs` rejects: see `RemotePeer`. */
  timeoutMs?: number | undefined;
}

/** A topic as a node without clients sees it. Each member does what the one of the same name of a server's topic does. */
export type AttachedTopic<R extends Contract<R>> = Pick<
  Topic<AnyMethods, R, unknown>,
  "notify" | "publish" | "read" | "members" | "watch"
>;

const ATTACH_OPTIONS = { engine: any, topics: any, nodes: any, timeoutMs: any };

/**
 * Joins the servers of an engine as a node without clients. Resolves when it is connected. Rejects with an `EngineError` if the broker
 * cannot be reached in time, and with a `TypeError` for bad options. Close it when it is not needed any more.
 */
export async function attach<R extends Contract<R> = AnyMethods>(options: AttachOptions<R>): Promise<Attached<R>> {
  const attached = new Attached<R>(options, await platformFor(options));
  await attached.start();
  return attached;
}

/** The events of a node without clients: those of the engine, and `error` for what listeners and handlers throw. */
type AttachedEvents = FleetEvents & { error(error: unknown): void };

const EVENTS: Record<keyof AttachedEvents, 0> = { engine: 0, gap: 0, error: 0 };

/** A node without clients. Made by `attach`. `R` is the contract of the peers that it calls. */
export class Attached<R extends Contract<R> = AnyMethods> extends EventEmitter<AttachedEvents> {
  readonly #server: Server<AnyMethods, R>;

  /** Use `attach`. Throws a `TypeError` for bad options. */
  constructor(options: AttachOptions<R>, platform: Platform) {
    super();
    const checked = checkOptions("options", options, ATTACH_OPTIONS);
    if (checked.engine === undefined) throw expected("engine", "an engine, such as `memory()`", checked.engine);
    // Neither is called, because it has no peer. With them, the application can ask for the peers of a principal.
    const all = { ...checked, noServer: true, authenticate: () => null, principal: () => "" };
    this.#server = new Server<AnyMethods, R>(all as ServeOptions<AnyMethods, R, unknown>, platform);
    const report = (error: unknown): void => void tell(this, "error", [error]);
    this.#server.on("error", report);
    this.#server.on("engine", (state) => void tell(this, "engine", [state], report));
    this.#server.on("gap", (topic, reason) => void tell(this, "gap", [topic, reason], report));
  }

  /** Connects, for `attach`. @internal */
  start(): Promise<void> {
    return this.#server.listen();
  }

  /** Returns the topic of that name. Throws a `TypeError` for a name that cannot be a topic. */
  topic(name: string): AttachedTopic<R> {
    return this.#server.topic(name);
  }

  /** As `server.topics(...names)`. */
  topics(...names: readonly string[]): Pick<TopicGroup<AnyMethods, R, unknown>, "notify"> {
    return this.#server.topics(...names);
  }

  /** Returns a peer of any node, by its `id`. */
  peer(id: string): RemotePeer<R> {
    return this.#server.peer(id);
  }

  /** Returns all peers of one principal, on all nodes. */
  principal(name: string): Principal<R> {
    return this.#server.principal(name);
  }

  /** The nodes that have the same engine, with this one. */
  get nodes(): Nodes {
    return this.#server.nodes;
  }

  /** As `server.health()`. */
  health(): Health {
    return this.#server.health();
  }

  /** Disconnects. Calls that are pending reject with `ConnectionLostError`. Never rejects. A second call waits for the first. */
  close(): Promise<void> {
    return this.#server.close();
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
