/**
 * The connection to one server: one client for commands, and one for subscriptions, because a server may cut a subscription that reads
 * slowly. A link connects once. If one of its clients is lost, the link is lost.
 */
import { onAbort } from "../base/tell.js";
import { EngineError } from "../topics/engine.js";
import { FinalError } from "../fleet/reconnecting.js";
import {
  commandError,
  connectError,
  createClient,
  DemotedError,
  loadLibrary,
  type Client,
  type Library,
} from "./client.js";
import type { RedisConnection } from "./connection.js";
import { textOf, type Address, type Config } from "./options.js";
import { readNodeTimeout, type Silence } from "./layout.js";
import { Term } from "./term.js";
import { SCRIPT_NAMES, sourceOf, type ScriptName } from "./scripts.js";

/** The longest frame. */
export const MAX_BYTES = 16 * 2 ** 20;
/** How often a link checks at least that its server is still the same primary. */
const VERIFY_MS = 5_000;
/** How many channels one command subscribes. */
const CHANNELS_AT_ONCE = 500;
/** A server that answers nothing for so long is given up. node-redis would wait as long as commands are written. */
const SILENCE_MS = 15_000;
/** How often a link looks for silence in that time. */
const SILENCE_CHECKS = 6;
/** How long it may take to connect: a server that is stopped accepts connections. */
const CONNECT_MS = 5_000;
/** How long commands may take that are not answered when a link is no longer used. */
const RETIRE_MS = 5_000;

/** What a server has said about itself, by `INFO`. */
export type ServerInfo = ReadonlyMap<string, string>;

/** What is kept of a link that was lost. */
export interface Past {
  readonly life: string;
  readonly term: Term | undefined;
}

export class Link {
  readonly address: string;
  info: ServerInfo = new Map();
  /** Identifies a term of the server as a primary. Another one may lack the end of what was written in this one. */
  life = "";
  /** Whether another server has said, after this one was connected, that this one is the primary. */
  isConfirmed = false;
  /** After which silence the server is replaced, and how long it is certainly the primary. `undefined` for a single server. */
  silence: Silence | undefined;
  #term: Term | undefined;
  #hashes: ReadonlyMap<ScriptName, string> = new Map();
  readonly #connection: RedisConnection;
  readonly #isCluster: boolean;
  readonly #library: Library;
  readonly #commands: Client;
  readonly #subscriber: Client;
  /** The channels that the server has after all that was sent to it. */
  readonly #channels = new Set<string>();
  /** False until it is connected, and when it is lost or closed. Only the link sets it. */
  isUsed = false;
  /** The first error of a client. */
  #failure: Error | undefined;
  /** Ends an attempt to connect. */
  readonly #attempt = new AbortController();
  /** Commands that the server has not answered, and commands that subscribe. */
  #unanswered = 0;
  #subscribing = 0;
  #silenceMs = SILENCE_MS;
  /** When each client received something last, and since when the server is asked for its state; `undefined` when it has answered. */
  readonly #receivedAt = { commands: 0, subscriber: 0 };
  readonly #askedAt: { [client in "commands" | "subscriber"]?: number | undefined } = {};
  /** Asks the server for its state. */
  #polling: ReturnType<typeof setTimeout> | undefined;
  /** Looks for silence. Ends the link when it is no longer used. */
  #timer: ReturnType<typeof setTimeout> | undefined;
  readonly #listener = (frame: string, name: string): void => {
    this.#receivedAt.subscriber = performance.now();
    if (this.isUsed) this.#connection.received(this, name, frame);
  };

  private constructor(library: Library, connection: RedisConnection, address: Address, silence: Silence | undefined) {
    const { config, clientName } = connection;
    this.address = textOf(address);
    this.silence = silence;
    this.#library = library;
    this.#connection = connection;
    this.#isCluster = config.place.kind === "cluster";
    const [commands, subscriber] = [0, 1].map(() =>
      createClient(library, address, config.login, clientName, this.#attempt.signal)
        .on("error", (error) => this.#failed(error))
        .on("terminated", (error) => this.#failed(error)),
    );
    this.#commands = commands!;
    this.#subscriber = subscriber!;
  }

  /**
   * Connects to a primary. Rejects with an `EngineError`; a `FinalError` if trying again does not help. `silence`: how long a primary behind
   * Sentinels must be silent until it is replaced. A server of a cluster is asked for that itself.
   */
  static async connect(connection: RedisConnection, address: Address, silence: Silence | undefined): Promise<Link> {
    try {
      const link = new Link(await loadLibrary(), connection, address, silence);
      await link.#connect();
      return link;
    } catch (error) {
      throw connectError(textOf(address), error);
    }
  }

  async #connect(): Promise<void> {
    const { closing } = this.#connection;
    const ignore = onAbort(closing, this.destroy);
    const timer = setTimeout(() => {
      this.#failed(new Error(`no answer within ${CONNECT_MS} ms`));
      this.destroy();
    }, CONNECT_MS);
    try {
      // If one fails, the other one is not waited for.
      await Promise.all([this.#commands.connect(), this.#subscriber.connect()]);
      await this.#inspect();
      await this.#loadScripts();
      if (closing.aborted) throw new EngineError("the engine is closed", "not-sent");
      if (this.#failure !== undefined) throw this.#failure;
    } catch (error) {
      this.destroy();
      throw this.#failure ?? error;
    } finally {
      clearTimeout(timer);
      ignore();
    }
    this.isUsed = true;
    this.#subscriber.on("sharded-channel-moved", (name) => this.#connection.ended(this, name));
    this.#timer = setInterval(this.#checkSilence, this.#silenceMs / SILENCE_CHECKS);
    this.#pollLater();
  }

  #failed(error: Error): void {
    this.#failure ??= error;
    this.lose(error);
  }

  /** Finds out what the server is. Rejects if it cannot be used. */
  async #inspect(): Promise<void> {
    const [info, sameInfo] = await Promise.all([this.#commands, this.#subscriber].map(readInfo));
    if (info!.get("run_id") !== sameInfo!.get("run_id"))
      throw new Error("two connections reached two servers, behind one address");
    checkServer(this.address, info!, this.#connection.config);
    this.info = info!;
    this.life = lifeOf(info!, this.#connection.config.isDurable);
    const ask = (args: readonly string[]): Promise<unknown> => this.#commands.sendCommand(args);
    if (this.#isCluster) this.silence = await readNodeTimeout(ask);
    if (this.silence === undefined) return;
    this.#term = new Term(this.silence.ms, microsecondsOf(await ask(["TIME"])));
    this.#silenceMs = Math.min(SILENCE_MS, this.#term.patienceMs);
  }

  async #loadScripts(): Promise<void> {
    const loaded = SCRIPT_NAMES.map((script) => this.#commands.sendCommand(["SCRIPT", "LOAD", this.#sourceOf(script)]));
    this.#hashes = new Map((await Promise.all(loaded)).map((hash, i) => [SCRIPT_NAMES[i]!, String(hash)]));
  }

  #sourceOf(script: ScriptName): string {
    return sourceOf(script, this.#isCluster, this.#term !== undefined);
  }

  /** Returns true if the server has certainly been the primary since an earlier link, so that no other server need be asked. */
  continues(before: Past | undefined): boolean {
    if (before?.life !== this.life || before.term === undefined) return false;
    return this.#term?.continues(before.term) === true;
  }

  get past(): Past {
    return { life: this.life, term: this.#term };
  }

  /** Sends a command. Rejects with an `EngineError` and its outcome. */
  async command(args: readonly string[]): Promise<unknown> {
    if (!this.isUsed || !this.#commands.isReady)
      throw new EngineError(`Redis at ${this.address}: not connected`, "not-sent");
    this.#unanswered++;
    try {
      return await this.#commands.sendCommand(args);
    } catch (reason) {
      throw commandError(this.#library, this.address, reason);
    } finally {
      this.#receivedAt.commands = performance.now();
      if (--this.#unanswered === 0 && !this.isUsed) this.destroy();
    }
  }

  /** Runs a script, as one step of Redis. Rejects with a `DemotedError` if the server may not be the primary any more. */
  async script(script: ScriptName, keys: readonly string[], args: readonly string[]): Promise<unknown> {
    const rest = [String(keys.length), ...keys, this.life, ...args];
    if (this.#term !== undefined) rest.push(String(this.#term.endUs));
    try {
      return await this.command(["EVALSHA", this.#hashes.get(script)!, ...rest]);
    } catch (error) {
      if (!/\bNOSCRIPT\b/.test((error as EngineError).message)) throw error;
      // The server has forgotten its scripts. `EVAL` loads this one again.
      return this.command(["EVAL", this.#sourceOf(script), ...rest]);
    }
  }

  /** Sends a message. Returns how many subscribers this server has. */
  async publish(name: string, frame: string): Promise<number> {
    const command = this.#isCluster ? "SPUBLISH" : "PUBLISH";
    return (await this.command([command, name, frame])) as number;
  }

  /**
   * Returns whether the server may forward to a replica what was published before this command. A replica that reconnects still gets it
   * from the backlog. Rejects with the outcome `"unknown"`, because the message was published.
   */
  async mayForward(): Promise<boolean> {
    try {
      const info = parseInfo(String(await this.command(["INFO", "replication"])));
      const isSingle = info.get("connected_slaves") === "0" && info.get("repl_backlog_active") === "0";
      return !isSingle || info.get("role") !== "master";
    } catch (cause) {
      throw new EngineError(`Redis at ${this.address}: it is not known whether a message was forwarded`, "unknown", {
        cause,
      });
    }
  }

  /** Resolves when messages of the channels are received. In a cluster, all must have the same tag. */
  async subscribe(names: readonly string[]): Promise<void> {
    // A client of node-redis that was destroyed never answers to this command.
    if (!this.isUsed) throw new EngineError(`Redis at ${this.address}: not connected`, "not-sent");
    for (const name of names) this.#channels.add(name);
    this.#subscribing++;
    const requests = partsOf(names).map(async (part) => {
      if (this.#isCluster) await this.#subscriber.sSubscribe(part, this.#listener);
      else await this.#subscriber.subscribe(part, this.#listener);
      this.#receivedAt.subscriber = performance.now();
    });
    try {
      await Promise.all(requests);
    } catch (reason) {
      for (const name of names) this.#channels.delete(name);
      throw commandError(this.#library, this.address, reason);
    } finally {
      this.#subscribing--;
    }
  }

  /** Ends subscriptions. A later `subscribe` takes effect after it, because both use one connection. */
  unsubscribe(names: readonly string[]): void {
    if (!this.isUsed) return;
    for (const name of names) this.#channels.delete(name);
    for (const part of partsOf(names)) {
      const request = this.#isCluster
        ? this.#subscriber.sUnsubscribe(part, this.#listener)
        : this.#subscriber.unsubscribe(part, this.#listener);
      // If the connection is lost, so is the subscription.
      request.catch(() => {});
    }
  }

  /** Counts the subscriptions that the server has. node-redis does not report one that ends while a command is unanswered. */
  async #countSubscriptions(): Promise<void> {
    // A subscription that is refused meanwhile would be missing too.
    const expected = this.#subscribing > 0 ? 0 : this.#channels.size;
    const name = this.#isCluster ? "ssub" : "sub";
    // A server may not have the command, or may refuse it.
    const reply = await this.#subscriber.sendCommand(["CLIENT", "INFO"]).catch(() => "");
    this.#receivedAt.subscriber = performance.now();
    const found = new RegExp(` ${name}=(\\d+)`).exec(String(reply))?.[1];
    if (found !== undefined && Number(found) < expected && this.isUsed) this.#connection.ended(this);
  }

  /** Checks that the server is still in the same term as a primary. Otherwise, loses the link. */
  async #verify(): Promise<void> {
    const parts = await Promise.all(["server", "replication"].map((section) => this.command(["INFO", section])));
    const info = parseInfo(parts.join("\n"));
    if (info.get("role") === "master" && lifeOf(info, this.#connection.config.isDurable) === this.life) return;
    const error = new EngineError(`Redis at ${this.address}: it is no longer the same primary`, "not-sent");
    this.lose(error);
    throw error;
  }

  /** Gives the link up and reports that. */
  lose(reason: Error): void {
    if (!this.isUsed) return;
    this.close();
    this.#connection.lost(this, reason instanceof EngineError ? reason : connectError(this.address, reason));
  }

  /** Ends the link. Receives nothing more. Commands that were sent may still be answered for 5 s. */
  close(): void {
    if (!this.isUsed) return;
    this.isUsed = false;
    clearTimeout(this.#polling);
    this.#subscriber.destroy();
    if (this.#unanswered === 0 || !this.#commands.isReady || this.#connection.closing.aborted) return this.destroy();
    clearTimeout(this.#timer);
    this.#timer = setTimeout(this.destroy, RETIRE_MS);
    this.#connection.closing.addEventListener("abort", this.destroy);
  }

  #pollLater(): void {
    if (!this.isUsed) return;
    this.#polling = setTimeout(() => void this.#poll(), Math.min(this.#term?.periodMs ?? VERIFY_MS, VERIFY_MS));
  }

  async #poll(): Promise<void> {
    // A subscriber answers after all messages before, and the other questions do not wait for that.
    void this.#ask("subscriber", () => [this.#countSubscriptions()]);
    // A server of a cluster that was demoted goes on to accept messages.
    await this.#ask("commands", () => [this.#pollTime(), this.#verify()]);
    this.#pollLater();
  }

  /** Asks by one client, unless one of its last questions is unanswered. Never rejects. */
  async #ask(client: "commands" | "subscriber", questions: () => Promise<void>[]): Promise<void> {
    if (this.#askedAt[client] !== undefined) return;
    this.#askedAt[client] = performance.now();
    await Promise.allSettled(questions());
    this.#askedAt[client] = undefined;
  }

  async #pollTime(): Promise<void> {
    if (this.#term === undefined) return;
    if (!this.#term.answered(microsecondsOf(await this.command(["TIME"]))))
      this.lose(new DemotedError(`Redis at ${this.address}: it was silent for so long that it may be replaced`));
  }

  readonly #checkSilence = (): void => {
    // If this process was stopped, the answer may be in the socket already.
    if (this.#isSilent()) setImmediate(() => this.#loseIfSilent());
  };

  #isSilent(): boolean {
    const since = (["commands", "subscriber"] as const).map((client) =>
      Math.max(this.#askedAt[client] ?? Infinity, this.#receivedAt[client]),
    );
    return performance.now() - Math.min(...since) >= this.#silenceMs;
  }

  #loseIfSilent(): void {
    if (!this.isUsed || !this.#isSilent()) return;
    this.lose(new EngineError(`Redis at ${this.address}: no answer for ${this.#silenceMs} ms`, "not-sent"));
    this.destroy();
  }

  /** Ends the link at once. What is unanswered rejects. */
  readonly destroy = (): void => {
    this.isUsed = false;
    clearTimeout(this.#polling);
    clearTimeout(this.#timer);
    this.#connection.closing.removeEventListener("abort", this.destroy);
    this.#subscriber.destroy();
    this.#commands.destroy();
    this.#attempt.abort();
  };
}

function microsecondsOf(reply: unknown): number {
  const [seconds, microseconds] = reply as [string, string];
  return Number(seconds) * 1e6 + Number(microseconds);
}

function partsOf(names: readonly string[]): string[][] {
  const parts: string[][] = [];
  for (let i = 0; i < names.length; i += CHANNELS_AT_ONCE) parts.push(names.slice(i, i + CHANNELS_AT_ONCE));
  return parts;
}

async function readInfo(client: Client): Promise<ServerInfo> {
  return parseInfo(String(await client.sendCommand(["INFO"])));
}

function parseInfo(text: string): ServerInfo {
  return new Map([...text.matchAll(/^([a-z0-9_]+):(.*?)\r?$/gm)].map(([, name, value]) => [name!, value!]));
}

/**
 * The run id, and the last promotion: a server that was a replica meanwhile has the data of its primary, and so has lost the end of its
 * own.
 */
function lifeOf(info: ServerInfo, isDurable: boolean): string {
  if (isDurable) return "durable";
  const promotion = info.get("master_replid2") ?? "";
  return /^0*$/.test(promotion) ? info.get("run_id")! : `${info.get("run_id")!}.${promotion.slice(0, 16)}`;
}

function checkServer(where: string, info: ServerInfo, { place, isDurable }: Config): void {
  const isCluster = place.kind === "cluster";
  const unmet = (text: string): never => {
    throw new FinalError(`Redis at ${where}: ${text}`);
  };
  const version = info.get("redis_version") ?? "";
  const [major = 0, minor = 0] = version.split(".").map(Number);
  if (isCluster ? major < 7 : major < 6 || (major === 6 && minor < 2))
    unmet(
      `version ${version || "unknown"} is too old: ${isCluster ? "a cluster needs 7.0" : "6.2 is needed"} or later`,
    );
  const isInCluster = info.get("cluster_enabled") === "1" || info.get("redis_mode") === "cluster";
  if (isInCluster && !isCluster) unmet("it is in a cluster: use the option `cluster`");
  if (!isInCluster && isCluster) unmet("it is not in a cluster: use the option `url`");
  if (!isDurable && !info.get("run_id"))
    unmet("`INFO` has no run_id, without which a lost end of a log is not noticed");
  // A failover may be in progress, so trying again helps.
  if (info.get("role") !== "master") throw new EngineError(`Redis at ${where}: it is a replica`, "not-sent");
}
