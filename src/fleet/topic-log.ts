/** The log of one topic on one node: follows it, delivers its publications, and reads what a client has missed. */
import { encodeNotification, plainText } from "../core/codec.js";
import { clearDeadline, setDeadline, type Expiring } from "../core/deadlines.js";
import { expected } from "../core/errors.js";
import { classify, isObject } from "../core/message.js";
import { EngineError, type LogPart, type LogRule, type Position } from "./engine.js";
import { Follower } from "./follower.js";
import type { FleetNode } from "./node.js";

/** How long to wait after a read that failed, if the connection is up. */
const RETRY_MS = 1_000;
/** How many entries are read at once. */
const PAGE = 500;
/** How much of a log a node keeps for clients that come back. */
const TAIL_ENTRIES = 64;
const TAIL_LENGTH = 64 * 1024;
/** The tails of all topics of a node, in UTF-16 code units. */
const TAILS_LENGTH = 32 * 2 ** 20;

/** A publication, as its members get it. */
export interface Publication {
  readonly method: string;
  /** The text of the notification, with `at`. */
  readonly text: string;
}

/** Returns the text of a position: `<epoch>.<offset>`. */
export function textOf({ epoch, offset }: Position): string {
  return `${epoch}.${offset}`;
}

/** Returns the position that a client has sent; `undefined` for any other value. */
export function positionOf(at: unknown): Position | undefined {
  const [, epoch, offset] = (typeof at === "string" && /^([A-Za-z0-9_-]{1,64})\.(\d{1,15})$/.exec(at)) || [];
  return epoch === undefined ? undefined : { epoch, offset: Number(offset) };
}

/**
 * Returns the entry of a publication: the notification without `at`. Throws a `TypeError` unless the params are by name or absent, and
 * if they have an `at`.
 */
export function encodeEntry(method: string, params: unknown): string {
  if (isObject(params) && "at" in params) throw expected("params.at", "absent, because the log adds it", params.at);
  const body = plainText(encodeNotification(method, params ?? {}));
  const start = encodeNotification(method).length + ',"params":'.length - 1;
  if (body[start] === "{") return body;
  throw expected("params", "an object, because a publication has params by name", params);
}

/** Returns the publication of an entry, with its `at`. `undefined` if the entry is none that `encodeEntry` makes. */
export function publicationOf(position: Position, body: string): Publication | undefined {
  const message = parsed(body);
  if (classify(message) !== "notification" || !body.endsWith("}}")) return undefined;
  const { method, params } = message as { method: string; params?: unknown };
  if (!isObject(params) || Array.isArray(params)) return undefined;
  // The end of the params is known, so nothing is encoded again.
  const before = body.slice(0, -2);
  const text = `${before}${before.endsWith("{") ? "" : ","}"at":"${textOf(position)}"}}`;
  return { method, text };
}

function parsed(json: string): unknown {
  try {
    return JSON.parse(json);
  } catch {
    return undefined;
  }
}

/** The last entries of one log, without a gap. */
class Tail {
  readonly entries: (readonly [offset: number, body: string])[] = [];
  length = 0;
}

/** The tails of all logs of a node. When they are too long together, the tail that was not added to for longest is dropped. */
export class Tails {
  readonly #tails = new Map<string, Tail>();
  #length = 0;

  add(topic: string, offset: number, body: string): void {
    const tail = this.#tails.get(topic) ?? new Tail();
    this.#tails.delete(topic);
    this.#tails.set(topic, tail);
    tail.entries.push([offset, body]);
    this.#grow(tail, body.length);
    while (tail.entries.length > TAIL_ENTRIES || tail.length > TAIL_LENGTH)
      this.#grow(tail, -tail.entries.shift()![1].length);
    for (const oldest of this.#tails.keys()) {
      if (this.#length <= TAILS_LENGTH) return;
      this.drop(oldest);
    }
  }

  drop(topic: string): void {
    const tail = this.#tails.get(topic);
    if (tail === undefined) return;
    this.#length -= tail.length;
    this.#tails.delete(topic);
  }

  /** Returns the entries from one offset to another, both included; `undefined` if they are not all there. */
  between(topic: string, from: number, to: number): (readonly [offset: number, body: string])[] | undefined {
    const entries = this.#tails.get(topic)?.entries ?? [];
    const first = entries[0]?.[0] ?? Infinity;
    return first <= from ? entries.slice(from - first, to - first + 1) : undefined;
  }

  #grow(tail: Tail, by: number): void {
    tail.length += by;
    this.#length += by;
  }
}

/** A client that comes back and waits for the entries from one offset to another. */
interface Replay {
  readonly epoch: string;
  readonly from: number;
  readonly to: number;
  readonly resolve: (publications: Publication[] | undefined) => void;
  readonly reject: (error: unknown) => void;
}

/** The log of one topic. */
export class TopicLog implements Expiring {
  deadline = 0;
  readonly #topic: string;
  readonly #rule: LogRule;
  readonly #node: FleetNode;
  readonly #tails: Tails;
  readonly #follower: Follower;
  /** How often publications were lost to this node. */
  gaps = 0;
  /** The heal in progress. */
  #healing: Promise<void> | undefined;
  #isAskedAgain = false;
  /** Whether the entries that are delivered were read, and did not come as messages. */
  #isReading = false;
  #isStopped = false;
  #replays: Replay[] = [];
  #isReplaying = false;

  /** `deliver`: takes the next publication. */
  constructor(
    topic: string,
    rule: LogRule,
    node: FleetNode,
    tails: Tails,
    deliver: (publication: Publication) => void,
  ) {
    this.#topic = topic;
    this.#rule = rule;
    this.#node = node;
    this.#tails = tails;
    this.#follower = new Follower({
      deliver: (position, body) => {
        const publication = publicationOf(position, body);
        if (publication === undefined) node.foreign();
        tails.add(topic, position.offset, body);
        if (this.#isReading) node.counts.healed++;
        if (publication !== undefined) deliver(publication);
      },
      gap: (reason) => {
        tails.drop(topic);
        this.gaps++;
        node.gap(topic, reason);
      },
    });
  }

  /** The last entry that this node has delivered; `undefined` until the top was read. */
  get position(): Position | undefined {
    return this.#follower.position;
  }

  /** Returns true if this node has the log up to a position, or further. */
  covers({ epoch, offset }: Position): boolean {
    return this.position?.epoch === epoch && offset <= this.position.offset;
  }

  /** Takes a message of the topic's channel. */
  received(epoch: string, offset: number, body: string): void {
    this.#follower.received(epoch, offset, body);
    if (this.#follower.needsHeal && this.position !== undefined) void this.heal();
  }

  /** Another node says that the log reaches a position. Reads it if this node does not have that (F3). */
  reaches(position: Position): void {
    if (!this.covers(position)) void this.heal();
  }

  /**
   * Resolves when the node follows the log, and has it up to `since` if the broker has. The channel must be subscribed. Rejects with an
   * `EngineError` if the log cannot be read.
   */
  async follow(since?: Position): Promise<void> {
    const isBehind = this.position === undefined || (since !== undefined && !this.covers(since));
    if (isBehind)
      await this.#heal().catch((error: unknown) => {
        this.#retry();
        throw error;
      });
    if (this.position === undefined) throw new EngineError("the log is not followed any more", "not-sent");
  }

  /** Reads the log until this node has all of it (F3). Never rejects: without a connection, the log is read when it is restored. */
  async heal(): Promise<void> {
    // Until a client joins, nothing is followed.
    if (this.position === undefined) return;
    await this.#heal().catch(() => this.#retry());
  }

  /** Reads a log again soon that this node follows. */
  #retry(): void {
    if (this.#node.broker.isUp && !this.#isStopped && this.position !== undefined) setDeadline(this, RETRY_MS);
  }

  expire(): void {
    void this.heal();
  }

  stop(): void {
    this.#isStopped = true;
    clearDeadline(this);
    this.#tails.drop(this.#topic);
  }

  async #heal(): Promise<void> {
    if (this.#isStopped) return;
    // What was asked while the log is being read may have happened after that.
    if (this.#healing !== undefined) this.#isAskedAgain = true;
    else this.#healing = this.#node.limit(() => this.#readAll()).finally(() => (this.#healing = undefined));
    await this.#healing;
  }

  async #readAll(): Promise<void> {
    let isMore: boolean;
    do {
      this.#isAskedAgain = false;
      const request = this.#follower.request();
      const part = await this.#read(request.after, request.onlyTop ? 0 : PAGE);
      if (this.#isStopped) return;
      this.#isReading = true;
      isMore = this.#follower.read(request, part);
      this.#isReading = false;
    } while (isMore || this.#isAskedAgain);
  }

  #read(after: number, limit: number): Promise<LogPart> {
    const { broker } = this.#node;
    return broker.now(() => broker.connection.log!.read(this.#topic, after, limit, this.#rule));
  }

  /**
   * Returns the publications after `since`, up to the present position. `undefined` if not all of them are there, or if they are too
   * long together. Rejects with an `EngineError` if the log cannot be read. Call it only when the log is followed.
   */
  since(since: Position): Promise<Publication[] | undefined> | Publication[] | undefined {
    const { epoch, offset: to } = this.position!;
    if (!this.covers(since)) return undefined;
    if (since.offset === to) return [];
    const from = since.offset + 1;
    const tail = this.#tails.between(this.#topic, from, to);
    if (tail !== undefined) return this.#publications(epoch, tail);
    return new Promise((resolve, reject) => {
      this.#replays.push({ epoch, from, to, resolve, reject });
      if (!this.#isReplaying) void this.#replay();
    });
  }

  /** Reads the log once for all clients that wait for a part of it. */
  async #replay(): Promise<void> {
    this.#isReplaying = true;
    // Clients that come in this tick share the read.
    await Promise.resolve();
    while (this.#replays.length > 0) {
      const replays = this.#replays;
      this.#replays = [];
      try {
        const { epoch } = replays[0]!;
        const same = replays.filter((replay) => replay.epoch === epoch);
        const entries = await this.#readBetween(epoch, Math.min(...same.map(({ from }) => from)), same.at(-1)!.to);
        for (const replay of replays) replay.resolve(this.#partOf(entries, replay, epoch));
      } catch (error) {
        for (const replay of replays) replay.reject(error);
      }
    }
    this.#isReplaying = false;
  }

  /** Reads the entries of an epoch, both bounds included. Forgets the first ones beyond the longest replay. */
  async #readBetween(epoch: string, from: number, to: number): Promise<(readonly [number, string])[]> {
    const entries: (readonly [number, string])[] = [];
    let length = 0;
    for (let after = from - 1; after < to;) {
      const part = await this.#read(after, Math.min(PAGE, to - after));
      if (part.epoch !== epoch) return [];
      const last = part.entries.at(-1);
      if (last === undefined) break;
      after = last[0];
      for (const entry of part.entries) {
        entries.push(entry);
        length += entry[1].length;
      }
      while (length > this.#node.host.maxReplayLength) length -= entries.shift()![1].length;
    }
    return entries;
  }

  #partOf(
    entries: readonly (readonly [number, string])[],
    { epoch, from, to }: Replay,
    readEpoch: string,
  ): Publication[] | undefined {
    if (epoch !== readEpoch) return undefined;
    const part = entries.filter(([offset]) => offset >= from && offset <= to);
    return part.length === to - from + 1 ? this.#publications(epoch, part) : undefined;
  }

  #publications(epoch: string, entries: readonly (readonly [number, string])[]): Publication[] | undefined {
    let length = 0;
    const publications: Publication[] = [];
    for (const [offset, body] of entries) {
      length += body.length;
      const publication = publicationOf({ epoch, offset }, body);
      if (publication !== undefined) publications.push(publication);
    }
    return length <= this.#node.host.maxReplayLength ? publications : undefined;
  }
}
