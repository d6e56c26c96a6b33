/**
 * The broker as a node uses it: bounds what waits for it, and keeps the wanted subscriptions. The engine below repeats nothing and
 * queues nothing. The modules above need not know whether the broker is reachable.
 */
import { utf8Bytes } from "../message/codec.js";
import { clearDeadline, setDeadline, type Expiring } from "../base/deadlines.js";
import { List, unlink, type Linked } from "../base/list.js";
import {
  EngineError,
  type Channel,
  type Engine,
  type EngineConnection,
  type EngineFacts,
  type NodeName,
} from "../topics/engine.js";

/** Commands that the engine has not answered, also if their callers no longer wait: more are refused. */
const MAX_UNANSWERED = 10_000;
const MAX_UNANSWERED_BYTES = 16 * 2 ** 20;
/** Commands that wait for the connection: more are refused. */
const MAX_WAITING = 1_000;
const MAX_WAITING_BYTES = 4 * 2 ** 20;
/** A command without an answer for so long has an unknown outcome. */
const COMMAND_TIMEOUT_MS = 5_000;
/** Frames of bulk work that are written and not answered: the others wait, so that all else keeps its room. */
const MAX_BULK = 128;
/** Subscriptions that run at once, reads of logs, and first questions: more wait. */
const MOST_AT_ONCE = 32;
/** How long a subscription is kept that is not wanted any more, because its topic may get a member again. */
const LINGER_MS = 5_000;
/** How long a wanted subscription waits after it has failed, if the connection is up. */
const RETRY_MS = 1_000;
/** The failure of a subscription that is reported. A slot of a cluster that moves ends the first one. */
const REPORTED_FAILURE = 2;

/** A frame, and where it is sent. */
export type Sending = readonly [channel: Channel, frame: string];

/** Takes what the broker reports. */
export interface BrokerEvents {
  /** Takes a frame of a subscribed channel. */
  readonly received: (channel: Channel, frame: string) => void;
  /** The connection is up, for the first time or again. */
  up(): void;
  /** The connection is lost. Called once for each loss. */
  down(error: EngineError): void;
  /** Messages of these channels may have been missed, and are received again. */
  resubscribed(channels: readonly Channel[]): void;
  /** Takes an error that no caller gets. */
  failed(error: EngineError): void;
}

/** One command, from `run` until it settles. */
interface Command<T> extends Expiring {
  readonly bytes: number;
  readonly run: () => Promise<T>;
  readonly resolve: (value: T) => void;
  readonly reject: (error: unknown) => void;
  isWritten: boolean;
  /** Returns what it waits for when the connection is up; `undefined` if it can be written. */
  readonly prepare: (() => Promise<void> | undefined) | undefined;
}

/** A channel that is wanted, or was until a moment ago. */
interface Subscription {
  readonly channel: Channel;
  /** How often the channel is wanted. */
  uses: number;
  /** Ends the subscription if the channel is not wanted, and tries again if it is. */
  readonly timer: Expiring;
  isSubscribed: boolean;
  /** How often the broker did not take it. */
  failures: number;
  /** Resolves when the channel is subscribed. `undefined` while that is not asked. */
  subscribing: Promise<void> | undefined;
}

/** Runs some operations at once. Further ones wait. */
export class Limit {
  #running = 0;
  readonly #waiting = new List<Linked & { readonly begin: () => void }>();

  async run<T>(operation: () => Promise<T>): Promise<T> {
    if (this.#running >= MOST_AT_ONCE) await new Promise<void>((begin) => this.#waiting.add({ begin }));
    else this.#running++;
    try {
      return await operation();
    } finally {
      const next = this.#waiting.first;
      if (next === undefined) this.#running--;
      else if (unlink(next)) next.begin();
    }
  }
}

/** The connection of one node to its broker. */
export class Broker {
  readonly connection: EngineConnection;
  /** What the engine has said about its broker; `undefined` until it was up for the first time. */
  facts: EngineFacts | undefined = undefined;
  readonly counts = { sent: 0, dropped: 0, failedSubscriptions: 0, reconnects: 0 };
  readonly #engine: Engine;
  readonly #events: BrokerEvents;
  /** `starting`: the start has not succeeded or failed yet. Until then everything waits, because no client is here. */
  #state: "starting" | "up" | "down" | "closed" = "starting";
  /** The error of what needs the connection while there is none: one for each loss. */
  #refusal: EngineError;
  /** The error of what is beyond a bound. */
  readonly #full: EngineError;
  #unanswered = 0;
  #unansweredBytes = 0;
  /** The commands that wait for the connection, by their `run`. */
  readonly #waiting = new Map<() => Promise<unknown>, Command<any>>();
  #waitingBytes = 0;
  readonly #subscriptions = new Map<Channel, Subscription>();
  readonly #subscribing = new Limit();
  /** Bulk work, by key. Each source sends a frame, and then the next one. */
  readonly #bulk = new Map<string, Iterator<Sending>>();
  /** Where the next frame comes from. What is before was sent or put at the end, so that no source is looked at twice. */
  #nextBulk: Iterator<[key: string, frames: Iterator<Sending>]> | undefined;
  #unansweredBulk = 0;

  constructor(engine: Engine, node: NodeName, events: BrokerEvents) {
    this.#engine = engine;
    this.#events = events;
    this.#refusal = this.#makeRefusal();
    this.#full = sharedError(`too much waits for ${engine.name}, or for its answers`);
    this.connection = engine.createConnection(node, {
      received: events.received,
      up: () => this.#up(this.facts),
      down: (error) => this.#down(error),
      resubscribed: (channels) => this.#resubscribed(channels),
    });
  }

  get name(): string {
    return this.#engine.name;
  }

  get isUp(): boolean {
    return this.#state === "up";
  }

  /** The longest frame, in bytes of UTF-8. A frame of another node may come before `open` resolves: then it is `Infinity`. */
  get maxFrameBytes(): number {
    return this.facts?.maxFrameBytes ?? Infinity;
  }

  /** Bytes of the frames and entries that are written and not answered, or wait for the connection. */
  get pendingBytes(): number {
    return this.#unansweredBytes + this.#waitingBytes;
  }

  /** Connects. Rejects with the last `EngineError` if that takes longer than the settings allow. */
  async open(): Promise<void> {
    const { startTimeoutMs = 10_000, startWithout = false } = this.#engine.settings ?? {};
    const opened = this.connection.open().then((facts) => this.#up(facts));
    let isLate = false;
    const late = (): EngineError => {
      isLate = true;
      const { cause } = this.#refusal as { cause?: EngineError };
      return cause ?? new EngineError(`no connection to ${this.name} within ${startTimeoutMs} ms`, "not-sent");
    };
    try {
      await inTime(opened, startTimeoutMs, late);
    } catch (error) {
      if (this.#state === "starting") this.#state = "down";
      if (!isLate || !startWithout) throw error;
      // Later, only the connection itself reports its state.
      opened.catch((reason: EngineError) => {
        if (this.#state === "closed") return;
        this.#refusal = this.#makeRefusal(reason);
        this.#events.failed(reason);
      });
    }
  }

  async close(): Promise<void> {
    this.#state = "closed";
    for (const command of this.#waiting.values()) this.#dequeue(command).reject(this.#refusal);
    for (const { timer } of this.#subscriptions.values()) clearDeadline(timer);
    this.#subscriptions.clear();
    this.#bulk.clear();
    await this.connection.close();
  }

  /** Sends a frame at most once. Drops it if the connection is down, or if too much is unanswered and the frame is not vital. */
  send(channel: Channel, frame: string, isVital = false): void {
    const bytes = utf8Bytes(frame);
    if (!this.isUp || (!isVital && !this.#hasRoom(bytes)) || bytes > this.maxFrameBytes) {
      // A beat is not missed: another one follows when the connection is up.
      if (!isVital) this.counts.dropped++;
      return;
    }
    void this.#send(channel, frame, bytes);
  }

  /** Resolves when the frame is answered, or may be lost. */
  async #send(channel: Channel, frame: string, bytes: number): Promise<void> {
    this.counts.sent++;
    const answered = this.#count(bytes);
    try {
      await this.connection.send(channel, frame);
    } catch {
      this.counts.dropped++;
    }
    answered();
  }

  /**
   * Sends the frames of a source, few at a time. A source replaces the one with the same key. If the connection is lost, forgets all
   * sources: what they say is exchanged again.
   */
  later(key: string, frames: Iterator<Sending>): void {
    if (!this.isUp) return;
    this.#bulk.set(key, frames);
    this.#sendBulk();
  }

  #sendBulk(): void {
    while (this.#unansweredBulk < MAX_BULK) {
      this.#nextBulk ??= this.#bulk.entries();
      const next = this.#nextBulk.next();
      if (next.done === true) return void (this.#nextBulk = undefined);
      const [key, frames] = next.value;
      this.#bulk.delete(key);
      const { done, value } = frames.next();
      if (done === true) continue;
      this.#bulk.set(key, frames);
      this.#unansweredBulk++;
      const [channel, frame] = value;
      void this.#send(channel, frame, utf8Bytes(frame)).then(() => {
        this.#unansweredBulk--;
        this.#sendBulk();
      });
    }
  }

  /**
   * Runs a command of the engine, now or when the connection is up. When it is up, first waits for what `prepare` returns, which never
   * rejects. Commands that wait for the same keep their order. Rejects with an `EngineError`: with `"not-sent"` if the command is not
   * written within `timeoutMs` or too much waits, and with `"unknown"` if it is not answered. `bytes`: its length.
   */
  run<T>(bytes: number, timeoutMs: number, run: () => Promise<T>, prepare?: Command<T>["prepare"]): Promise<T> {
    return new Promise((resolve, reject) => {
      const expire = (): void => this.#expired(command);
      const command: Command<T> = { deadline: 0, expire, bytes, run, resolve, reject, isWritten: false, prepare };
      const preparing = this.isUp ? prepare?.() : undefined;
      if (this.isUp && preparing === undefined) this.#write(command, timeoutMs);
      else if (this.#wait(command, timeoutMs)) void preparing?.then(() => this.#proceed(command));
    });
  }

  /** Lets a command wait, or refuses it. Returns true if it waits. */
  #wait<T>(command: Command<T>, timeoutMs: number): boolean {
    if (this.#state === "closed") {
      command.reject(this.#refusal);
      return false;
    }
    // One command may have any length.
    const isLong = this.#waiting.size > 0 && this.#waitingBytes + command.bytes > MAX_WAITING_BYTES;
    if (isLong || this.#waiting.size >= MAX_WAITING) {
      this.counts.dropped++;
      command.reject(this.#full);
      return false;
    }
    this.#waiting.set(command.run, command);
    this.#waitingBytes += command.bytes;
    setDeadline(command, timeoutMs);
    return true;
  }

  /** Writes a command that waits, unless the connection is lost again or its time has passed. */
  #proceed<T>(command: Command<T>): void {
    if (!this.isUp || !this.#waiting.has(command.run)) return;
    const leftMs = command.deadline === 0 ? Infinity : command.deadline - performance.now();
    this.#dequeue(command);
    this.#write(command, Math.max(leftMs, 1));
  }

  /** Cancels a command that waits for the connection, so that it counts no longer. Its promise rejects with `"not-sent"`. */
  cancel(run: () => Promise<unknown>): void {
    const command = this.#waiting.get(run);
    if (command !== undefined) this.#dequeue(command).reject(this.#refusal);
  }

  /** Runs a command of the engine. Rejects at once if the connection is down. `bytes`: its length, unless it is short. */
  now<T>(run: () => Promise<T>, bytes = 0, timeoutMs = COMMAND_TIMEOUT_MS): Promise<T> {
    return this.isUp || this.#state === "starting" ? this.run(bytes, timeoutMs, run) : Promise.reject(this.#refusal);
  }

  #expired(command: Command<any>): void {
    let error = this.#refusal;
    if (command.isWritten) error = new EngineError(`${this.name} has not answered in time`, "unknown");
    else if (this.isUp) error = new EngineError(`${this.name} was not ready in time`, "not-sent");
    this.#dequeue(command).reject(error);
  }

  #write<T>(command: Command<T>, timeoutMs: number): void {
    if (!this.#hasRoom(command.bytes)) {
      this.counts.dropped++;
      return command.reject(this.#full);
    }
    command.isWritten = true;
    setDeadline(command, Math.min(timeoutMs, COMMAND_TIMEOUT_MS));
    const answered = this.#count(command.bytes);
    const settled = (): void => {
      answered();
      clearDeadline(command);
    };
    command.run().then(
      (value) => (settled(), command.resolve(value)),
      (error: unknown) => (settled(), command.reject(error)),
    );
  }

  #dequeue<T>(command: Command<T>): Command<T> {
    clearDeadline(command);
    if (this.#waiting.delete(command.run)) this.#waitingBytes -= command.bytes;
    return command;
  }

  /** Counts a command as unanswered. Returns what ends that. */
  #count(bytes: number): () => void {
    this.#unanswered++;
    this.#unansweredBytes += bytes;
    return () => {
      this.#unanswered--;
      this.#unansweredBytes -= bytes;
    };
  }

  #hasRoom(bytes: number): boolean {
    // One command may have any length.
    const isShort = this.#unanswered === 0 || this.#unansweredBytes + bytes <= MAX_UNANSWERED_BYTES;
    return isShort && this.#unanswered < MAX_UNANSWERED;
  }

  #makeRefusal(cause?: EngineError): EngineError {
    return sharedError(`there is no connection to ${this.name}`, cause);
  }

  #up(facts: EngineFacts | undefined): void {
    // `open` has not resolved yet: then the inbox is not received.
    if (facts === undefined || this.#state === "closed" || this.isUp) return;
    this.#state = "up";
    this.#refusal = this.#makeRefusal();
    if (this.facts !== undefined) this.counts.reconnects++;
    this.facts = facts;
    for (const command of Array.from(this.#waiting.values())) {
      const preparing = command.prepare?.();
      if (preparing === undefined) this.#proceed(command);
      else void preparing.then(() => this.#proceed(command));
    }
    for (const subscription of this.#subscriptions.values()) this.#keep(subscription);
    this.#events.up();
  }

  #down(error: EngineError): void {
    if (this.#state === "closed") return;
    this.#refusal = this.#makeRefusal(error);
    if (!this.isUp) return;
    this.#state = "down";
    this.#bulk.clear();
    this.#events.down(error);
  }

  #resubscribed(channels: "all" | readonly Channel[]): void {
    if (this.#state === "closed") return;
    const restored = channels === "all" ? [...this.#subscriptions.keys()] : channels;
    this.#events.resubscribed(restored.filter((channel) => this.#subscriptions.get(channel)?.isSubscribed));
  }

  /** Wants the messages of a channel from now on, until as many calls of `release`. They are received when `ready` has resolved. */
  want(channel: Channel): void {
    const timer = { deadline: 0, expire: () => this.#expireSubscription(subscription) };
    const unused = { channel, uses: 0, timer, isSubscribed: false, failures: 0, subscribing: undefined };
    const subscription: Subscription = this.#subscriptions.get(channel) ?? unused;
    this.#subscriptions.set(channel, subscription);
    subscription.uses++;
    clearDeadline(subscription.timer);
    this.#keep(subscription);
  }

  /** Does not want the messages of a channel any more. The subscription is kept for `LINGER_MS`. */
  release(channel: Channel): void {
    const subscription = this.#subscriptions.get(channel);
    if (subscription !== undefined && --subscription.uses === 0) setDeadline(subscription.timer, LINGER_MS);
  }

  #expireSubscription(subscription: Subscription): void {
    const { channel, uses, timer, isSubscribed, subscribing } = subscription;
    if (uses > 0) return this.#keep(subscription);
    // One command for each channel is in progress.
    if (subscribing !== undefined) return setDeadline(timer, LINGER_MS);
    if (isSubscribed) this.connection.unsubscribe(channel);
    this.#subscriptions.delete(channel);
  }

  /** Subscribes to a channel while the connection is up and the channel is wanted. */
  #keep(subscription: Subscription): void {
    if (!this.isUp || subscription.isSubscribed || subscription.uses === 0) return;
    this.#subscribe(subscription).catch(() => {});
  }

  #subscribe(subscription: Subscription): Promise<void> {
    return (subscription.subscribing ??= this.#subscribing
      .run(() => this.connection.subscribe(subscription.channel))
      .then(() => void (subscription.isSubscribed = true))
      .catch((error: unknown) => {
        this.#failed(subscription, error);
        throw error;
      })
      .finally(() => (subscription.subscribing = undefined)));
  }

  /** Tries again later, unless the loss of the connection is the reason. */
  #failed(subscription: Subscription, cause: unknown): void {
    if (!this.isUp) return;
    const { channel, uses, timer } = subscription;
    if (uses > 0) setDeadline(timer, RETRY_MS);
    this.counts.failedSubscriptions++;
    if (++subscription.failures !== REPORTED_FAILURE) return;
    const text = `${this.name} does not subscribe to ${JSON.stringify(channel)}, so this node lacks what others send there`;
    this.#events.failed(new EngineError(text, "not-sent", { cause }));
  }

  /**
   * Resolves when every message of a wanted channel is received. Rejects at once if the connection is down or gets down, and after 5 s if
   * the broker does not answer.
   */
  ready(channel: Channel): Promise<void> {
    if (!this.isUp) return this.now(async () => {}).then(() => this.ready(channel));
    const subscription = this.#subscriptions.get(channel);
    if (subscription === undefined) return Promise.reject(this.#refusal);
    if (subscription.isSubscribed) return Promise.resolve();
    const late = (): EngineError => new EngineError(`${this.name} has not subscribed in time`, "not-sent");
    return inTime(this.#subscribe(subscription), COMMAND_TIMEOUT_MS, late);
  }
}

/** Returns an error for many callers. It has no stack: that would be of none of them, and one for each is expensive. */
function sharedError(message: string, cause?: EngineError): EngineError {
  const error = new EngineError(message, "not-sent", cause && { cause });
  error.stack = String(error);
  return error;
}

/** Returns the result of `work`. Rejects with the error of `late` if there is none in time. */
function inTime<T>(work: Promise<T>, timeoutMs: number, late: () => EngineError): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer: Expiring = { deadline: 0, expire: () => reject(late()) };
    setDeadline(timer, timeoutMs);
    work.then(resolve, reject).finally(() => clearDeadline(timer));
  });
}
