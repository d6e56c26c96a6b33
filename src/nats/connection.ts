/**
 * The connection of one node to NATS. One loop connects and subscribes, at the start and after each loss. The client library itself never
 * reconnects, so that what it was given is never sent later than the engine has reported.
 */
import type { Msg, Subscription } from "@nats-io/transport-node";
import { utf8Bytes } from "../core/codec.js";
import {
  EngineError,
  type Channel,
  type EngineConnection,
  type EngineFacts,
  type EngineHost,
  type EngineLeases,
  type NodeName,
} from "../fleet/engine.js";
import { COMMAND_MS, commandError, connect, FinalError, type Link } from "./client.js";
import { NatsLeases } from "./leases.js";
import { NatsLog } from "./log.js";
import { Names } from "./names.js";
import type { Config } from "./options.js";
import { NatsRoster } from "./roster.js";
import { establishStreams, frameOfKept } from "./streams.js";

/** The delay of an attempt to connect is random, up to a bound that doubles with each failure. */
const FIRST_DELAY_MS = 100;
const MAX_DELAY_MS = 20_000;
/** What is written and not confirmed by the server: more is refused. */
const MAX_BYTES = 16 * 2 ** 20;
const MAX_UNCONFIRMED = 10_000;
/** What NATS adds to a frame. */
const HEAD_BYTES = 1_024;
/** How long `close` waits for NATS. */
const CLOSE_MS = 4_500;

interface Subscribed {
  readonly channel: Channel;
  subscription: Subscription | undefined;
}

export class NatsConnection implements EngineConnection {
  readonly names: Names;
  readonly log: NatsLog | undefined;
  readonly roster: NatsRoster | undefined;
  readonly leases: EngineLeases;
  readonly #config: Config;
  readonly #node: NodeName;
  readonly #host: EngineHost;
  readonly #leases: NatsLeases;
  #state: "new" | "starting" | "up" | "down" | "closed" = "new";
  #link: Link | undefined;
  /** What is or will be subscribed, by subject. */
  readonly #subscribed = new Map<string, Subscribed>();
  #unconfirmed = 0;
  #unconfirmedBytes = 0;
  /** Resolves when the server has taken what was written up to the end of this tick. */
  #flushing: Promise<void> | undefined;
  #wake: (() => void) | undefined;
  /** Rejects what waits for an answer when the link is lost. */
  #lost: ((error: EngineError) => void)[] = [];

  constructor(config: Config, node: NodeName, host: EngineHost) {
    this.#config = config;
    this.#node = node;
    this.#host = host;
    this.names = new Names(config.prefix);
    this.#leases = new NatsLeases(this, node);
    this.leases = this.#leases;
    if (config.replicas !== undefined) {
      this.log = new NatsLog(this);
      this.roster = new NatsRoster(this, this.#leases);
    }
    for (const channel of [`n:${node}`, "a:all"] as const) this.#want(channel);
  }

  get #isClosed(): boolean {
    return this.#state === "closed";
  }

  get replicas(): number {
    return this.#config.replicas ?? 1;
  }

  #want(channel: Channel): Subscribed {
    const wanted: Subscribed = { channel, subscription: undefined };
    this.#subscribed.set(this.names.channel(channel), wanted);
    return wanted;
  }

  async open(): Promise<EngineFacts> {
    if (this.#state !== "new") throw this.#refusal();
    this.#state = "starting";
    const error = await this.#connect();
    if (error !== undefined) {
      await this.close();
      throw error;
    }
    if (this.#link === undefined) throw this.#refusal();
    const maxPayload = this.#link.client.info?.max_payload ?? 2 ** 20;
    return { maxFrameBytes: maxPayload - HEAD_BYTES, counts: false, order: "node", unmet: [] };
  }

  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#state = "closed";
    this.#wake?.();
    const link = this.#link;
    if (link !== undefined) {
      for (const { subscription } of this.#subscribed.values()) subscription?.unsubscribe();
      let timer: ReturnType<typeof setTimeout> | undefined;
      const late = new Promise<void>((resolve) => (timer = setTimeout(resolve, CLOSE_MS)));
      const leave = async (): Promise<void> => {
        await this.roster?.leave();
        this.#leases.leave();
        await link.client.flush();
      };
      await Promise.race([leave().catch(() => {}), late]);
      clearTimeout(timer);
      this.#drop(new EngineError("the engine nats is closed", "unknown"));
      await link.client.close();
    }
    this.#leases.stop();
    this.#subscribed.clear();
  }

  reconnect(reason: Error): void {
    if (this.#state !== "up") return;
    this.#fall(
      new EngineError(`the connection to NATS is opened anew: ${reason.message}`, "unknown", { cause: reason }),
    );
  }

  async subscribe(channel: Channel): Promise<void> {
    const link = this.present();
    const wanted = this.#want(channel);
    try {
      this.#begin(link, wanted);
      await this.#flush(link);
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
    const bytes = utf8Bytes(frame);
    if (bytes > (link.client.info?.max_payload ?? 0))
      throw new EngineError(`NATS: a frame of ${bytes} bytes is too long`, "not-sent");
    return this.bounded(bytes, async () => {
      const subject = this.names.channel(channel);
      // Only an inbox has one receiver, which confirms each frame. So the server reports one that nobody receives.
      if (channel.startsWith("n:")) return this.#sendToNode(link, subject, frame);
      link.client.publish(subject, frame);
      await this.#flush(link);
      return undefined;
    });
  }

  async #sendToNode(link: Link, subject: string, frame: string): Promise<number | undefined> {
    try {
      await this.untilLost(link.client.request(subject, frame, { timeout: COMMAND_MS }));
      return undefined;
    } catch (error) {
      const reason = error instanceof link.library.RequestError ? error.cause : error;
      if (reason instanceof link.library.NoRespondersError || error instanceof link.library.NoRespondersError) return 0;
      throw commandError(error);
    }
  }

  /** Runs a command that carries so many bytes. Rejects if too much is unanswered. */
  async bounded<T>(bytes: number, run: () => Promise<T>): Promise<T> {
    if (this.#unconfirmed >= MAX_UNCONFIRMED || this.#unconfirmedBytes + bytes > MAX_BYTES)
      throw new EngineError("NATS: too much is unanswered", "not-sent");
    this.#unconfirmed++;
    this.#unconfirmedBytes += bytes;
    try {
      return await run();
    } catch (error) {
      throw commandError(error);
    } finally {
      this.#unconfirmed--;
      this.#unconfirmedBytes -= bytes;
    }
  }

  /** Returns the link. Throws if there is none. */
  present(): Link {
    const link = this.#link;
    if (link === undefined || link.client.isClosed()) throw this.#refusal();
    if (this.#state !== "up" && this.#state !== "closed") throw this.#refusal();
    return link;
  }

  /** The link of a connection that may be used by callers, not by `close`. */
  usable(): Link {
    if (this.#isClosed) throw this.#refusal();
    return this.present();
  }

  /** Rejects with `"unknown"` if the link is lost before. */
  untilLost<T>(answer: Promise<T>): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      const lost = (error: EngineError): void => reject(new EngineError(error.message, "unknown", { cause: error }));
      this.#lost.push(lost);
      const settled = (): void => void this.#lost.splice(this.#lost.indexOf(lost), 1);
      answer.then(resolve, reject).finally(settled);
    });
  }

  /** Resolves when the server has taken what was written before. What one tick writes is confirmed at once. */
  #flush(link: Link): Promise<void> {
    return (this.#flushing ??= Promise.resolve().then(() => {
      this.#flushing = undefined;
      return this.untilLost(link.client.flush());
    }));
  }

  confirm(): Promise<void> {
    return this.#flush(this.present());
  }

  #refusal(): EngineError {
    const texts = {
      new: "not open",
      starting: "connecting",
      up: "not connected",
      down: "not connected",
      closed: "closed",
    };
    return new EngineError(`the engine nats is ${texts[this.#state]}`, "not-sent");
  }

  #begin(link: Link, wanted: Subscribed): void {
    const subject = this.names.channel(wanted.channel);
    wanted.subscription = link.client.subscribe(subject, {
      callback: (error, message) => {
        if (error !== null) return this.#failed(link, error);
        if (this.#isClosed || this.#link !== link || this.#subscribed.get(subject) !== wanted) return;
        this.#received(wanted.channel, message);
      },
    });
  }

  #received(channel: Channel, message: Msg): void {
    if (message.reply !== undefined && message.reply !== "") message.respond();
    this.#host.received(channel, frameOfKept(message) ?? message.string());
  }

  #failed(link: Link, error: Error): void {
    if (this.#link === link) this.#fall(commandError(error));
  }

  #fall(error: EngineError): void {
    if (this.#state !== "up") return;
    this.#state = "down";
    this.#drop(error);
    this.#host.down(error);
    void this.#connect();
  }

  #drop(error: EngineError): void {
    const link = this.#link;
    this.#link = undefined;
    for (const lost of this.#lost.splice(0)) lost(error);
    void link?.client.close();
  }

  /** Connects until it succeeds or the connection is closed. Returns the error of a start that trying again does not cure. */
  async #connect(): Promise<FinalError | undefined> {
    const isStart = this.#state === "starting";
    for (let failures = 0; !this.#isClosed; failures++) {
      if (!isStart || failures > 0)
        await this.#sleep(Math.random() * Math.min(MAX_DELAY_MS, FIRST_DELAY_MS * 2 ** failures));
      if (this.#isClosed) break;
      try {
        await this.#establish();
        return undefined;
      } catch (reason) {
        const error = commandError(reason);
        if (isStart && error instanceof FinalError) return error;
        if (!this.#isClosed) this.#host.down(error);
      }
    }
    return undefined;
  }

  #sleep(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms);
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  async #establish(): Promise<void> {
    const link = await connect(this.#config, `${this.#config.prefix}-${this.#node}`);
    try {
      if (this.#config.replicas !== undefined) await establishStreams(link, this.names, this.#config.replicas);
      if (this.#isClosed) throw this.#refusal();
      this.#link = link;
      for (const wanted of this.#subscribed.values()) this.#begin(link, wanted);
      this.#leases.begin(link);
      await link.client.flush();
      if (this.#isClosed) throw this.#refusal();
      if (link.client.isClosed()) throw new EngineError("the connection to NATS was lost again", "not-sent");
    } catch (error) {
      this.#link = undefined;
      await link.client.close();
      throw error;
    }
    const isRestored = this.#state === "down";
    this.#state = "up";
    this.log?.forget();
    this.roster?.forget();
    void link.client.closed().then((error) => {
      if (this.#link === link) this.#fall(commandError(error ?? new Error("the connection was lost")));
    });
    if (!isRestored) return;
    this.#host.up();
    this.#host.heard("all");
  }
}
