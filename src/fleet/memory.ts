/** `memory()`: an engine without a broker, for the servers of one process. */
import { nanoid } from "../core/packages.js";
import {
  EngineError,
  type Channel,
  type Engine,
  type EngineConnection,
  type EngineFacts,
  type EngineHost,
  type EngineLog,
  type LogPage,
  type LogPart,
  type LogRule,
  type NodeName,
  type Position,
} from "./engine.js";
import { RecentEntries } from "./entries.js";
import { logFrame, publicationName } from "./frames.js";

/**
 * Returns an engine in memory. Servers of one process that get the same one are a fleet: their topics and logs are common, and
 * end with the process. Frames are received in later microtasks, in one order for all nodes. Nothing is lost, and there are no
 * timers: the entries of a log that is not used after its `ttlMs` are forgotten at a later publication, and its position a day after
 * that. All logs together have at most 128 MiB. Beyond that, the entries of the log that was not published to for longest are forgotten.
 */
export function memory(): Engine {
  const broker = new MemoryBroker();
  brokers.set(broker.engine, broker);
  return broker.engine;
}

const brokers = new WeakMap<Engine, MemoryBroker>();

/** Returns what an engine in memory keeps, one text for each. Empty after all nodes are closed, except for logs. For tests. */
export function inspectMemory(engine: Engine): string[] {
  return brokers.get(engine)!.inspect();
}

/** How long the position of a `key` is kept, in milliseconds. */
const KEY_MS = 120_000;

/** What an engine in memory carries in one frame, and in one log. It is a bound against mistakes. */
const MAX_FRAME_BYTES = 16 * 2 ** 20;

/** The entries of all logs together. */
const MAX_LOGS_BYTES = 128 * 2 ** 20;

/** How long the position of a log is kept after its entries. A node that missed nothing of a quiet log learns so for that time. */
const DAY_MS = 86_400_000;

/** What is forgotten at `expiresAt`. */
interface Kept {
  readonly expiresAt: number;
}

/** The position of a log. */
interface Top extends Kept {
  readonly epoch: string;
  readonly top: number;
}

/** What several connections share. */
class MemoryBroker {
  readonly #subscribers = new Map<Channel, Set<MemoryConnection>>();
  readonly #entries = new RecentEntries(MAX_LOGS_BYTES);
  /** By topic, in the order of the last publication, so that those that expire are near the beginning. */
  readonly #tops = new Map<string, Top>();
  /** By topic and key, in the order of the publication. */
  readonly #keys = new Map<string, Kept & { readonly position: Position }>();
  /** Frames that are not received yet, with those that were subscribed when the frame was sent. */
  #queue: { readonly channel: Channel; readonly frame: string; readonly to: readonly MemoryConnection[] }[] = [];

  readonly engine: Engine = {
    name: "memory",
    createConnection: (node, host) => new MemoryConnection(this, node, host),
  };

  subscribe(channel: Channel, connection: MemoryConnection): void {
    let subscribers = this.#subscribers.get(channel);
    if (subscribers === undefined) this.#subscribers.set(channel, (subscribers = new Set()));
    subscribers.add(connection);
  }

  unsubscribe(channel: Channel, connection: MemoryConnection): void {
    const subscribers = this.#subscribers.get(channel);
    subscribers?.delete(connection);
    if (subscribers?.size === 0) this.#subscribers.delete(channel);
  }

  /** Queues a frame for the present subscribers. Returns how many there are. */
  send(channel: Channel, frame: string): number {
    const to = [...(this.#subscribers.get(channel) ?? [])];
    if (to.length === 0) return 0;
    if (this.#queue.length === 0) queueMicrotask(() => this.#deliver());
    this.#queue.push({ channel, frame, to });
    return to.length;
  }

  #deliver(): void {
    const queue = this.#queue;
    // Frames that are sent meanwhile are received in the next microtask.
    this.#queue = [];
    for (const { channel, frame, to } of queue) for (const connection of to) connection.receive(channel, frame);
  }

  append(topic: string, body: string, rule: LogRule, key: string | undefined): Position {
    const now = performance.now();
    const log = unexpired(this.#tops, topic, now);
    const keyName = key === undefined ? undefined : publicationName(topic, key);
    const earlier = keyName === undefined ? undefined : unexpired(this.#keys, keyName, now);
    // Only of this epoch: what was published in an earlier one is gone.
    if (earlier !== undefined && earlier.position.epoch === log?.epoch) return earlier.position;
    const position = { epoch: log?.epoch ?? nanoid(EPOCH_LENGTH), offset: (log?.top ?? 0) + 1 };
    const { epoch, offset: top } = position;
    this.#entries.append(topic, top, body, rule);
    keep(this.#tops, topic, { epoch, top, expiresAt: now + rule.ttlMs + DAY_MS }, now);
    if (keyName !== undefined) keep(this.#keys, keyName, { position, expiresAt: now + KEY_MS }, now);
    this.send(`t:${topic}`, logFrame(epoch, top, body));
    return position;
  }

  read(topic: string, after: number, page: LogPage, begin?: LogRule): LogPart {
    const now = performance.now();
    const log = unexpired(this.#tops, topic, now);
    const { epoch, top } = log ?? { epoch: begin === undefined ? "" : nanoid(EPOCH_LENGTH), top: 0 };
    // A log without entries is kept from the last read on.
    if (begin !== undefined && top === 0)
      keep(this.#tops, topic, { epoch, top, expiresAt: now + begin.ttlMs + DAY_MS }, now);
    return { epoch, top, entries: this.#entries.read(topic, after, page) };
  }

  inspect(): string[] {
    return [
      ...[...this.#subscribers.keys()].map((channel) => `subscription ${channel}`),
      ...[...this.#tops.keys()].map((topic) => `log ${topic}`),
    ];
  }
}

/** 60 random bits: a log of the same name is begun again a few times in the life of a process. */
const EPOCH_LENGTH = 10;

function unexpired<T extends Kept>(map: ReadonlyMap<string, T>, name: string, now: number): T | undefined {
  const kept = map.get(name);
  return kept !== undefined && kept.expiresAt > now ? kept : undefined;
}

/** Puts a value at the end of a map. Forgets the first values if they have expired: each call adds at most one, so two suffice. */
function keep<T extends Kept>(map: Map<string, T>, name: string, value: T, now: number): void {
  map.delete(name);
  map.set(name, value);
  let left = 2;
  for (const [first, { expiresAt }] of map) {
    if (expiresAt > now || left-- === 0) return;
    map.delete(first);
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
      append: async (...publication) => this.#openBroker().append(...publication),
      read: async (...part) => this.#openBroker().read(...part),
    };
  }

  async open(): Promise<EngineFacts> {
    if (this.#state === "closed") throw notOpen();
    this.#state = "open";
    for (const channel of [`n:${this.#node}`, "a:all"] as const) await this.subscribe(channel);
    return { maxFrameBytes: MAX_FRAME_BYTES, counts: true, order: "node", unmet: [] };
  }

  async close(): Promise<void> {
    this.#state = "closed";
    for (const channel of this.#channels) this.unsubscribe(channel);
  }

  /** Memory loses no connection. */
  reconnect(): void {}

  async subscribe(channel: Channel): Promise<void> {
    this.#openBroker().subscribe(channel, this);
    this.#channels.add(channel);
  }

  unsubscribe(channel: Channel): void {
    this.#channels.delete(channel);
    this.#broker.unsubscribe(channel, this);
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
