/**
 * The interface of an engine: the operations of a broker that connect the servers of several processes. A _node_ is one process
 * with a server. The nodes of a _fleet_ have the same broker and prefix, and communicate only through the broker.
 *
 * An engine publishes, subscribes and keeps logs. It reads no frame, and keeps nothing of a node. All rules above these operations are
 * in `src/fleet`, and are the same for every engine.
 */
import { nanoid } from "../base/packages.js";
import { ErrorCode, expected, type Outcome } from "../message/errors.js";
import type { ErrorObject } from "../message/message.js";
import type { Position } from "../message/position.js";

export { positionOf, textOf, type Position } from "../message/position.js";

/** The name of a node: 1 to 64 of `[A-Za-z0-9_-]`. Random, so that no two nodes have the same. */
export type NodeName = string;

/**
 * A channel. `t:` and the name of a topic, `u:` and that of a user, `n:` and the name of a node (its inbox), or `a:all` (all nodes). The
 * name of a topic or user is any well-formed text of 1 to 512 bytes of UTF-8, with spaces, line breaks, `*`, `>`, `{` and `:`. The engine
 * escapes what its broker treats as special, so that different channels never have the same name in the broker.
 */
export type Channel = `t:${string}` | `u:${string}` | `n:${NodeName}` | "a:all";

/** The maximum length of a topic's name, in bytes of UTF-8. */
export const MAX_TOPIC_BYTES = 512;

/** How much of a log is kept, and how long. The engine removes the oldest entries. */
export interface LogRule {
  /** Maximum number of entries, 1 to 10,000. The engine may keep a few more. */
  readonly length: number;
  /** Maximum length of all entries together, in bytes of UTF-8: 1 to 67,108,864. The last entry is kept whatever its length. */
  readonly bytes: number;
  /** How long the entries are kept after the last publication, in milliseconds: 1,000 to 604,800,000 (7 days). */
  readonly ttlMs: number;
}

/** How much of a log is read at once. The first entry whose bytes reach `bytes` is the last one. If one of both is 0, no entry is read. */
export type LogPage = Pick<LogRule, "length" | "bytes">;

/** A part of a log, read at one moment. */
export interface LogPart {
  /** The epoch of the log; empty if there is no log. */
  readonly epoch: string;
  /** The offset of the last entry that was appended; 0 if there is none. The entry itself may be gone. */
  readonly top: number;
  /** The entries with their offsets, in ascending order. Entries at the beginning may be gone. */
  readonly entries: readonly (readonly [offset: number, body: string])[];
}

/** What an engine reports about its broker when it is open. */
export interface EngineFacts {
  /** The longest frame, in bytes of UTF-8. */
  readonly maxFrameBytes: number;
  /**
   * Whether a node may receive a frame for whose inbox `send` has returned 0. Then a call to a node that does not live is `"unknown"`
   * when that node was silent for its lease, instead of `"not-sent"` at once. Default false.
   */
  readonly undercounts?: boolean | undefined;
  /**
   * Settings of the broker that weaken a promise, one sentence each, as they were when the engine connected. Read after each `up` and
   * `resubscribed`. The server emits each as `error`.
   */
  readonly unmet: readonly string[];
}

/** The settings that the fleet applies for its engine. An engine takes them as options. */
export interface EngineSettings {
  /**
   * How long a node is believed to live without a sign of it, in milliseconds. Default 10,000. A node gives a sign three times in
   * that time. Its members are gone after 4/3 of it.
   */
  readonly leaseMs?: number | undefined;
  /** How long `serve` waits for the broker, in milliseconds. Then it rejects with the `EngineError` of the last attempt. Default 10,000. */
  readonly startTimeoutMs?: number | undefined;
  /**
   * Whether the server starts without its broker if `startTimeoutMs` has passed, and joins the fleet later. Default false. If the
   * broker then refuses it for good, such as for a wrong password, the server emits the `EngineError` as `error`.
   */
  readonly startWithout?: boolean | undefined;
}

/**
 * A broker as the application names it, made by `redis()`, `nats()` or `memory()`. It holds no connection, so several servers of one
 * process may share one. Each server makes its own connection.
 */
export interface Engine {
  /** The name in errors, such as `"redis"`. */
  readonly name: string;
  readonly settings?: EngineSettings | undefined;
  /**
   * Makes the connection of one node. Called once for each server. Starts nothing: no I/O, no timer. Throws a `TypeError` for bad
   * options, if the engine did not check them before.
   */
  createConnection(node: NodeName, host: EngineHost): EngineConnection;
}

/**
 * The connection of one node to its broker. It has `log` from the beginning or never.
 *
 * A promise that rejects rejects with an `EngineError`. While the connection is down, each operation rejects at once with outcome
 * `"not-sent"`. An operation that was written and not answered rejects with `"unknown"` when the connection is lost. The engine
 * repeats no operation, and queues nothing while the connection is down. The fleet does both, within its bounds. It also bounds what is
 * written and not answered.
 */
export interface EngineConnection {
  /**
   * Connects, and tries again until it is connected or closed, with a random delay. Subscribes to the inbox of the node and to
   * `a:all`. Resolves when the messages of both are received. Reports each failed attempt by `host.down`. Rejects only for a
   * reason that time does not cure, such as a missing requirement or wrong credentials, and when `close` is called. Called once.
   * After it has resolved, the engine reconnects by itself until `close`.
   */
  open(): Promise<EngineFacts>;
  /**
   * Disconnects. Nothing is left in the broker except logs, and no timer in this process. Resolves after at most 5 s, also without a connection. Never rejects. After it is called, no function of the
   * host is called.
   */
  close(): Promise<void>;
  /**
   * Drops the connection and opens a new one, because messages do not arrive although the connection seems healthy. Reports
   * `host.down` and `host.up` as for every other loss. Does nothing while it is down.
   */
  reconnect(reason: Error): void;
  /**
   * Subscribes to a channel. Resolves when every message that any node sends to the channel from now on will be received, also those
   * that this node sends. The subscription is kept until `unsubscribe`: the engine restores it after each loss, and then calls
   * `host.resubscribed`. If it rejects, there is no subscription. The fleet calls it for no channel that is subscribed or being subscribed,
   * and never for the inbox or `a:all`.
   */
  subscribe(channel: Channel): Promise<void>;
  /** Ends a subscription, now or when the connection is restored. A later `subscribe` of the channel takes effect after it. */
  unsubscribe(channel: Channel): void;
  /**
   * Sends a frame to all nodes that are subscribed to a channel, at most once, with this node if it is. Returns how many nodes were
   * subscribed; always `undefined` if the broker does not report it. Frames to one channel arrive in the order in which this node sent them. Never throws.
   */
  send(channel: Channel, frame: string): Promise<number | undefined>;
  /** Logs; `undefined` if the broker offers none. */
  readonly log?: EngineLog | undefined;
}

/** The logs of an engine, one for each topic. */
export interface EngineLog {
  /**
   * Appends an entry, and sends it to the channel of the topic as `logFrame(epoch, offset, body)`, atomically. A frame
   * may arrive after that of a later entry. Returns the position of the entry. Begins a new epoch if there is no log, or if the
   * broker may have lost the end of the log. With `key` (1 to 256 characters): if an entry of this epoch was appended with the
   * same key to this topic in the last 2 minutes, returns the position of that entry, and appends and sends nothing.
   */
  append(topic: string, body: string, rule: LogRule, key: string | undefined): Promise<Position>;
  /**
   * Reads the entries whose offset is greater than `after`, the oldest first, until the page is full. The offset belongs to any epoch,
   * so the caller compares the epoch of the part. If the broker may have lost the end of the log, there is no log. With `begin`, begins a
   * log if there is none: a new epoch without entries, kept as the rule says from the last such read on, and continued by `append`.
   */
  read(topic: string, after: number, page: LogPage, begin?: LogRule): Promise<LogPart>;
}

/** Takes what an engine receives and reports. None of its functions throws. Nothing is called inside `createConnection`. */
export interface EngineHost {
  /** Takes a frame of a subscribed channel. Any text may come: the fleet checks it. */
  received(channel: Channel, frame: string): void;
  /** The connection is restored: operations work again. Not called for `open`, whose promise says so. */
  up(): void;
  /** The connection is lost, or an attempt to connect has failed. May be called again with the next failure. */
  down(error: EngineError): void;
  /**
   * Messages of these channels are received again, after some of them may have been missed: the subscription was restored after a
   * loss, or has moved to another server of the broker. `"all"`: every channel of this connection. Called after `up`.
   */
  resubscribed(channels: "all" | readonly Channel[]): void;
}

/**
 * The broker could not do what was asked. `outcome` says whether it may have happened nevertheless. The message names the broker's
 * host if it is known, and no credentials. `cause` is the error of the client library.
 */
export class EngineError extends Error {
  override readonly name: string = "EngineError";
  readonly code = "ENGINE";
  /** `"not-sent"`: nothing happened, and it is safe to do it again. `"unknown"`: it may have happened. */
  declare readonly outcome: Outcome;

  constructor(message: string, outcome: Outcome, options?: { cause?: unknown }) {
    super(message, options);
    this.outcome = outcome;
  }
}

/** The version of all names and frames. */
export const VERSION = "1";

/** Returns a new epoch of a log. It has 60 random bits, because a log of one name begins again at most a few times in a day. */
export function newEpoch(): string {
  return nanoid(10);
}

/** Returns the frame of an entry, which an engine sends to the channel of the topic when it appends the entry. */
export function logFrame(epoch: string, offset: number, body: string): string {
  return `${VERSION}L\t${epoch}\t${offset}\n${body}`;
}

/** Returns one text for a topic and the key of a publication. Two pairs never have the same, whatever is in them. */
export function publicationName(topic: string, key: string): string {
  return `${topic.length}:${topic}${key}`;
}

/** Returns what the caller gets if a handler fails by `error`, if that is an `EngineError`. Never throws, whatever was thrown. */
export function engineAnswer(error: unknown): ErrorObject | undefined {
  try {
    if (error instanceof EngineError) return { code: ErrorCode.TryAgainLater, message: "Try again later" };
  } catch {
    // A Proxy decided. The caller gets "Internal error".
  }
  return undefined;
}

/** Checks an engine. */
export function checkEngine(value: unknown, name: string): Engine | undefined {
  if (value === undefined || typeof (value as Engine | null)?.createConnection === "function")
    return value as Engine | undefined;
  throw expected(name, "an engine, such as `memory()`", value);
}
