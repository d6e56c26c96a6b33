/**
 * The connection of one node to NATS. `connect` connects and subscribes, at the start and after each loss. The client library itself never
 * reconnects, so that what it was given is never sent later than the engine has reported.
 */
import {
  EngineError,
  type Channel,
  type EngineConnection,
  type EngineFacts,
  type EngineHost,
  type NodeName,
} from "../topics/engine.js";
import { FinalError, pause, Reconnecting, type Connectable } from "../fleet/reconnecting.js";
import {
  chainOf,
  COMMAND_MS,
  commandError,
  connect,
  connectError,
  type Link,
  type Msg,
  type Subscription,
  whileOpen,
} from "./client.js";
import { NatsLog, readKept } from "./log.js";
import { Names } from "./names.js";
import type { Config } from "./options.js";
import { Streams } from "./streams.js";

/** What NATS adds to a frame. */
const HEAD_BYTES = 1_024;
/** The longest frame of one member has 11 KiB. */
const LEAST_PAYLOAD_BYTES = 16_384;
/** How long `close` waits until NATS has taken what was written. */
const FLUSH_MS = 500;
/** How often the streams are checked. */
const CHECK_MS = 5_000;

interface Subscribed {
  readonly channel: Channel;
  subscription: Subscription | undefined;
}

export class NatsConnection implements EngineConnection, Connectable {
  readonly names: Names;
  /** `undefined` without the option `jetstream`. */
  readonly streams: Streams | undefined;
  readonly log: NatsLog | undefined;
  readonly #config: Config;
  readonly #node: NodeName;
  readonly #host: EngineHost;
  readonly #loop: Reconnecting;
  #link: Link | undefined;
  /** What is or will be subscribed, by subject. */
  readonly #subscribed = new Map<string, Subscribed>();
  /** Resolves when the server has taken what was written up to the end of this tick. */
  #flushing: Promise<void> | undefined;
  /** The last error that the server has reported without closing the connection. */
  #refused: Error | undefined;
  #checking: ReturnType<typeof setTimeout> | undefined;
  /** Rejects what waits for an answer when the link is lost. */
  readonly #lost = new Set<(error: EngineError) => void>();

  constructor(config: Config, node: NodeName, host: EngineHost) {
    this.#config = config;
    this.#node = node;
    this.#host = host;
    this.names = new Names(config.prefix);
    const { jetstream } = config;
    this.streams = jetstream && new Streams(this.names, jetstream);
    this.log = jetstream && new NatsLog(this);
    this.#loop = new Reconnecting("nats", this, host);
    for (const channel of [`n:${node}`, "a:all"] as const) this.#want(channel);
  }

  get isConnected(): boolean {
    return this.#link !== undefined;
  }

  #want(channel: Channel): Subscribed {
    const wanted: Subscribed = { channel, subscription: undefined };
    this.#subscribed.set(this.names.channel(channel), wanted);
    return wanted;
  }

  async open(): Promise<EngineFacts> {
    await this.#loop.open();
    if (this.streams !== undefined) this.checkLater();
    return { maxFrameBytes: maxPayloadOf(this.#link) - HEAD_BYTES, unmet: [] };
  }

  async close(): Promise<void> {
    if (!this.#loop.close()) return;
    clearTimeout(this.#checking);
    const link = this.#link;
    if (link !== undefined) {
      for (const { subscription } of this.#subscribed.values()) subscription?.unsubscribe();
      const flushed = new AbortController();
      // If the connection is lost, nothing is to be written.
      await Promise.race([link.client.flush(), pause(FLUSH_MS, flushed.signal)]).catch(() => {});
      flushed.abort();
      this.drop(new EngineError("the engine nats is closed", "unknown"));
      await link.client.close();
    }
    this.#subscribed.clear();
  }

  /** Checks the streams after a time, and then again and again. */
  checkLater(ms = CHECK_MS): void {
    clearTimeout(this.#checking);
    if (this.#loop.isClosed) return;
    // Without a connection, the streams are checked when it is restored.
    const check = (): Promise<void> => this.checkStreams().catch(() => {});
    this.#checking = setTimeout(() => void check().then(() => this.checkLater()), ms);
  }

  reconnect(reason: Error): void {
    this.#loop.reconnect(reason);
  }

  async subscribe(channel: Channel): Promise<void> {
    const link = this.present();
    const wanted = this.#want(channel);
    const before = this.#refused;
    try {
      this.#begin(link, wanted);
      await this.#flush(link);
      // If the server has refused it, such as one beyond the maximum of the account, that is reported in this tick.
      await new Promise((resolve) => setImmediate(resolve));
      if (this.#refused !== before) throw new EngineError(`NATS: ${this.#refused!.message}`, "not-sent");
    } catch (error) {
      if (this.#subscribed.get(this.names.channel(channel)) === wanted) this.unsubscribe(channel);
      throw commandError(error);
    }
  }

  unsubscribe(channel: Channel): void {
    const subject = this.names.channel(channel);
    const wanted = this.#subscribed.get(subject);
    this.#subscribed.delete(subject);
    wanted?.subscription?.unsubscribe();
  }

  async send(channel: Channel, frame: string): Promise<number | undefined> {
    const link = this.present();
    const subject = this.names.channel(channel);
    try {
      // Only an inbox has one receiver, which confirms each frame. So the server reports a frame without a receiver.
      if (channel.startsWith("n:")) await this.untilLost(link.client.request(subject, frame, { timeout: COMMAND_MS }));
      else {
        link.client.publish(subject, frame);
        await this.#flush(link);
      }
      return undefined;
    } catch (error) {
      if (chainOf(error).some((reason) => reason instanceof link.library.NoRespondersError)) return 0;
      throw commandError(error);
    }
  }

  /** Returns the link. Throws if there is none. */
  present(): Link {
    const link = this.#link;
    const isUsed = this.#loop.isUp || this.#loop.isClosed;
    if (link === undefined || link.client.isClosed() || !isUsed) throw this.#loop.refusal();
    return link;
  }

  /** Finds out whether the streams are still those that this node has used. If not, it begins anew. */
  async checkStreams(): Promise<void> {
    await this.untilLost(this.streams!.establish(this.present()));
    if (this.#forgetLost() && this.#loop.isUp) this.#host.resubscribed("all");
  }

  /** If the streams have lost what they had, the logs have other epochs. Returns true then. */
  #forgetLost(): boolean {
    const isLost = this.streams?.takeLoss() === true;
    if (isLost) this.log!.forget();
    return isLost;
  }

  /** Rejects with an `EngineError`: with `"unknown"` if the link is lost before. */
  untilLost<T>(answer: Promise<T>): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      const lost = (error: EngineError): void => reject(new EngineError(error.message, "unknown", { cause: error }));
      this.#lost.add(lost);
      const failed = (error: unknown): void => reject(commandError(error));
      answer.then(resolve, failed).finally(() => this.#lost.delete(lost));
    });
  }

  /** Resolves when the server has taken what was written before. What one tick writes is confirmed at once. */
  #flush(link: Link): Promise<void> {
    // Waits for the loss of the link from now on: a client that is closed before it flushes never answers.
    return (this.#flushing ??= this.untilLost(
      Promise.resolve().then(() => {
        this.#flushing = undefined;
        return link.client.flush();
      }),
    ));
  }

  #begin(link: Link, wanted: Subscribed): void {
    const subject = this.names.channel(wanted.channel);
    wanted.subscription = link.client.subscribe(subject, {
      callback: (error, message) => {
        if (error !== null) return this.#failed(link, error);
        if (this.#loop.isClosed || this.#link !== link || this.#subscribed.get(subject) !== wanted) return;
        this.#received(wanted.channel, message);
      },
    });
  }

  #received(channel: Channel, message: Msg): void {
    if (message.reply !== undefined && message.reply !== "") message.respond();
    const kept = channel.startsWith("t:") ? readKept(message, this.names) : undefined;
    if (kept === undefined) return this.#host.received(channel, message.string());
    this.log?.note(channel.slice(2), kept.placed);
    // The beginning of a log is no entry.
    if (kept.placed.number > 0) this.#host.received(channel, kept.frame);
  }

  #failed(link: Link, error: Error): void {
    if (this.#link !== link || this.#loop.isClosed) return;
    const reason = commandError(error);
    this.drop(reason);
    this.#loop.lost(reason);
  }

  drop(error: EngineError): void {
    const link = this.#link;
    this.#link = undefined;
    for (const lost of this.#lost) lost(error);
    this.#lost.clear();
    void link?.client.close();
  }

  async connect(signal: AbortSignal): Promise<Channel[]> {
    const link = await connect(this.#config, `${this.#config.prefix}-${this.#node}`, this.names.inbox, signal);
    try {
      await whileOpen(link.client, this.#prepare(link, signal));
      signal.throwIfAborted();
    } catch (error) {
      this.#link = undefined;
      await link.client.close();
      throw connectError(this.#config, error);
    }
    void link.client.closed().then((error) => this.#failed(link, error ?? new Error("the connection was lost")));
    this.#forgetLost();
    return [];
  }

  async #prepare(link: Link, signal: AbortSignal): Promise<void> {
    const before = this.#refused;
    await this.#checkRights(link, this.#watch(link));
    await this.streams?.establish(link);
    signal.throwIfAborted();
    this.#link = link;
    for (const wanted of this.#subscribed.values()) this.#begin(link, wanted);
    await link.client.flush();
    await new Promise((resolve) => setImmediate(resolve));
    if (this.#refused !== before) throw this.#refused!;
  }

  /** Returns what the server refuses while this node connects. Later, a right that is refused ends the connection. */
  #watch(link: Link): Set<string> {
    const refused = new Set<string>();
    const watch = async (): Promise<void> => {
      for await (const status of link.client.status()) {
        // The library ends such a connection only when everything is written, which a network that takes nothing prevents.
        if (status.type === "staleConnection") this.#failed(link, new Error("the server does not answer"));
        if (status.type !== "error") continue;
        const { error } = status;
        refused.add(error.message);
        if (error instanceof link.library.PermissionViolationError) this.#failed(link, error);
        else this.#refused = error;
      }
    };
    void watch();
    return refused;
  }

  /** NATS ignores what a user may not do, and reports it before it confirms what follows. */
  async #checkRights(link: Link, refused: Set<string>): Promise<void> {
    const { client } = link;
    const subjects = (["t", "u", "n", "a"] as const).map((kind) => this.names.none(kind));
    const subscriptions = subjects.map((subject) =>
      client.subscribe(subject, { callback: (error) => void (error !== null && refused.add(error.message)) }),
    );
    for (const subject of subjects) client.publish(subject, "");
    if (this.streams !== undefined) {
      client.publish(this.names.none("k"), "");
      for (const refusal of await this.streams.refusals(link)) refused.add(refusal);
    }
    await client.flush();
    for (const subscription of subscriptions) subscription.unsubscribe();
    await client.flush();
    if (maxPayloadOf(link) < LEAST_PAYLOAD_BYTES)
      refused.add(`\`max_payload\` must be at least ${LEAST_PAYLOAD_BYTES} bytes, and is ${maxPayloadOf(link)}`);
    if (refused.size > 0) throw new FinalError(`NATS: ${[...refused].join("; ")}`);
  }
}

function maxPayloadOf(link: Link | undefined): number {
  return link?.client.info?.max_payload ?? 2 ** 20;
}
