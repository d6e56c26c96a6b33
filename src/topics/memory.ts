/** `memory()`: an engine without a broker, for the servers of one process. */
import {
  EngineError,
  logFrame,
  type Channel,
  type Engine,
  type EngineConnection,
  type EngineFacts,
  type EngineHost,
  type EngineLog,
  type NodeName,
} from "./engine.js";
import { inMicrotask } from "../base/promises.js";
import { MemoryLogs } from "./entries.js";

/**
 * Returns an engine in memory. Servers of one process that get the same one are a fleet: their topics and logs are common, and
 * end with the process. Frames are received in later microtasks, in one order for all nodes. Nothing is lost, and there are no
 * timers: the entries of a log that is not used after its `ttlMs` are forgotten at a later publication, and its position a day after
 * that. All logs together have at most 128 MiB. Beyond that, the entries of the log that was not published to for longest are forgotten.
 * There are at most 100,000 logs with an entry, as many without one, and as many keys. Beyond that, the oldest one is forgotten.
 */
export function memory(): Engine {
  const broker = new MemoryBroker();
  const createConnection: Engine["createConnection"] = (node, host) => new MemoryConnection(broker, node, host);
  return { name: "memory", createConnection };
}

/** What an engine in memory carries in one frame, and in one log. It is a bound against mistakes. */
const MAX_FRAME_BYTES = 16 * 2 ** 20;

/** What several connections share. */
class MemoryBroker {
  readonly subscribers = new Map<Channel, Set<MemoryConnection>>();
  readonly logs = new MemoryLogs();
  /** Frames that are not received yet, with those that were subscribed when the frame was sent. */
  #queue: { readonly channel: Channel; readonly frame: string; readonly to: readonly MemoryConnection[] }[] = [];

  /** Queues a frame for the present subscribers. Returns how many there are. */
  send(channel: Channel, frame: string): number {
    const to = [...(this.subscribers.get(channel) ?? [])];
    if (to.length === 0) return 0;
    if (this.#queue.length === 0) inMicrotask(() => this.#deliver());
    this.#queue.push({ channel, frame, to });
    return to.length;
  }

  #deliver(): void {
    const queue = this.#queue;
    // Frames that are sent meanwhile are received in the next microtask.
    this.#queue = [];
    for (const { channel, frame, to } of queue) for (const connection of to) connection.receive(channel, frame);
  }
}

class MemoryConnection implements EngineConnection {
  readonly #broker: MemoryBroker;
  readonly #node: NodeName;
  readonly #host: EngineHost;
  readonly #channels = new Set<Channel>();
  #state: "new" | "open" | "closed" = "new";
  readonly log: EngineLog;

  constructor(broker: MemoryBroker, node: NodeName, host: EngineHost) {
    this.#broker = broker;
    this.#node = node;
    this.#host = host;
    // An `async` function runs at once, so that what it does is done in the order of the calls. It rejects with what it throws.
    this.log = {
      append: async (topic, body, rule, key) => {
        const { position, isNew } = this.#openBroker().logs.append(topic, body, rule, key);
        if (isNew) broker.send(`t:${topic}`, logFrame(position.epoch, position.offset, body));
        return position;
      },
      read: async (...part) => this.#openBroker().logs.read(...part),
    };
  }

  async open(): Promise<EngineFacts> {
    if (this.#state === "closed") throw notOpen();
    this.#state = "open";
    for (const channel of [`n:${this.#node}`, "a:all"] as const) await this.subscribe(channel);
    return { maxFrameBytes: MAX_FRAME_BYTES, unmet: [] };
  }

  async close(): Promise<void> {
    this.#state = "closed";
    for (const channel of this.#channels) this.unsubscribe(channel);
  }

  /** Memory loses no connection. */
  reconnect(): void {}

  async subscribe(channel: Channel): Promise<void> {
    const { subscribers } = this.#openBroker();
    subscribers.set(channel, (subscribers.get(channel) ?? new Set()).add(this));
    this.#channels.add(channel);
  }

  unsubscribe(channel: Channel): void {
    this.#channels.delete(channel);
    const subscribers = this.#broker.subscribers.get(channel);
    subscribers?.delete(this);
    if (subscribers?.size === 0) this.#broker.subscribers.delete(channel);
  }

  async send(channel: Channel, frame: string): Promise<number> {
    return this.#openBroker().send(channel, frame);
  }

  receive(channel: Channel, frame: string): void {
    // A frame that was sent before `unsubscribe` is not received after it.
    if (this.#channels.has(channel)) this.#host.received(channel, frame);
  }

  #openBroker(): MemoryBroker {
    if (this.#state !== "open") throw notOpen();
    return this.#broker;
  }
}

function notOpen(): EngineError {
  return new EngineError("the engine is not open", "not-sent");
}
