/** The logs of topics in JetStream. An epoch ends when the stream or the last entry of the log is gone. */
import { utf8Bytes } from "../message/codec.js";
import { nanoid } from "../base/packages.js";
import {
  EngineError,
  positionOf,
  textOf,
  type EngineLog,
  type LogPage,
  type LogPart,
  type LogRule,
  type Position,
} from "../fleet/engine.js";
import { Chains, remember, type Head, type Placed } from "./chains.js";
import type { NatsConnection } from "./connection.js";
import { KEY_MS } from "./streams.js";

/** 60 random bits: a log of the same name begins again at most a few times in a day. */
const EPOCH_LENGTH = 10;
/** How long entries are kept after the `ttlMs` of their rule, so that a client that missed nothing of a quiet log learns so. */
const LAST_MS = 86_400_000;
/** The parts of its bytes in which a log is shortened, so that a removal is worth a request. */
const PARTS = 8;
/** A page ends after so long, with what it has: its entries are read one after the other. */
const PAGE_MS = 3_000;

export class NatsLog implements EngineLog {
  readonly #connection: NatsConnection;
  readonly chains: Chains;
  #growing: Promise<void> = Promise.resolve();
  /** By topic: entries of this node, and how many bytes of the epoch are before each. */
  readonly #marks = new Map<string, Placed[]>();

  constructor(connection: NatsConnection) {
    this.#connection = connection;
    this.chains = new Chains(connection);
  }

  /** If an operation fails, the stream may be gone. The next one finds another, without waiting for the next check. */
  #watch<T>(operation: Promise<T>): Promise<T> {
    operation.catch(() => this.#connection.checkSoon());
    return operation;
  }

  async append(topic: string, body: string, rule: LogRule, key: string | undefined): Promise<Position> {
    const appending = this.chains.inOrder(topic, async () => {
      await this.#grow(rule);
      const subject = key === undefined ? undefined : this.#connection.names.key(topic, key);
      const bytes = utf8Bytes(body);
      const appended = await this.chains.append(topic, body, (last) => this.#headBehind(last, bytes), subject);
      if (appended === undefined || "earlier" in appended) return this.#earlier(appended?.earlier ?? 0, subject!);
      this.#shorten(topic, rule.bytes, appended, bytes);
      const position = { epoch: appended.epoch, offset: appended.number };
      // The entry may be removed before its key is repeated.
      if (subject !== undefined) this.#keep(subject, textOf(position));
      return position;
    });
    return this.#watch(appending);
  }

  /**
   * Removes what a log has beyond its bytes, some entries at once. Only after entries that this node has appended, because only of those it
   * knows the sequence. So the log may have twice its bytes after the node that published before has ended.
   */
  #shorten(topic: string, most: number, last: Placed, bytes: number): void {
    const before = this.#marks.get(topic) ?? [];
    const marks = before.at(-1)?.epoch === last.epoch ? before : [];
    const mark = marks.at(-1);
    if (mark === undefined || last.bytes - mark.bytes > most / PARTS)
      marks.push({ ...last, bytes: last.bytes - bytes });
    remember(this.#marks, topic, marks);
    const first = marks.findIndex((one) => last.bytes - one.bytes <= most);
    const removed = marks.splice(0, first < 0 ? marks.length - 1 : first);
    // If it fails, the next removal removes that too.
    if (removed.length > 0) this.chains.removeBefore(topic, marks[0]!.seq).catch(() => {});
  }

  async #headBehind(last: Placed | undefined, bytes: number): Promise<Head> {
    if (last !== undefined) return { epoch: last.epoch, number: last.number + 1, bytes: last.bytes + bytes };
    // Perhaps the stream was emptied, and its next life has not begun.
    await this.#connection.checkStreams();
    return { epoch: nanoid(EPOCH_LENGTH), number: 1, bytes };
  }

  /** Keeps the position of a key. The entry is appended, so nothing may throw: until it is removed, it has the position too. */
  #keep(subject: string, position: string): void {
    try {
      this.#connection.present().client.publish(subject, position);
    } catch {
      // The connection was lost in this moment.
    }
  }

  /** Returns the position of an entry that was appended with the same key before. If it fails, the entry is there nevertheless. */
  async #earlier(seq: number, subject: string): Promise<Position> {
    try {
      return await this.#findEarlier(seq, subject);
    } catch (cause) {
      throw new EngineError((cause as Error).message, "unknown", { cause });
    }
  }

  async #findEarlier(seq: number, subject: string): Promise<Position> {
    const kept = await this.chains.at(seq);
    if (kept !== undefined) return { epoch: kept.epoch, offset: kept.number };
    const stored = await this.chains.ask(({ streams }) =>
      streams.getMessage(this.#connection.names.stream("k"), { last_by_subj: subject }),
    );
    const position = positionOf(stored?.string());
    if (position !== undefined) return position;
    throw new EngineError("NATS: an entry was appended with this key before, and is no longer kept", "unknown");
  }

  /** Lets the stream keep what a rule wants. */
  #grow({ length, ttlMs }: LogRule): Promise<void> | undefined {
    const ageMs = Math.max(ttlMs, KEY_MS) + LAST_MS;
    const isKept = (): boolean => this.#connection.streams!.keeps(length, ageMs);
    if (isKept()) return undefined;
    const grow = async (): Promise<void> => {
      if (isKept()) return;
      try {
        await this.#connection.untilLost(this.#connection.streams!.grow(this.#connection.present(), length, ageMs));
      } catch (cause) {
        // The entry was not written yet.
        throw new EngineError((cause as EngineError).message, "not-sent", { cause });
      }
    };
    return (this.#growing = this.#growing.then(grow, grow));
  }

  /** Begins a log, unless there is one: its first message has the offset 0, and is no entry. */
  #begin(topic: string, rule: LogRule): Promise<void> {
    return this.chains.inOrder(topic, async () => {
      await this.#grow(rule);
      await this.chains.append(topic, "", async (last) =>
        last === undefined ? { ...(await this.#headBehind(last, 0)), number: 0 } : undefined,
      );
    });
  }

  async read(...question: [topic: string, after: number, page: LogPage, begin?: LogRule]): Promise<LogPart> {
    return this.#watch(this.#read(...question));
  }

  async #read(topic: string, after: number, page: LogPage, begin?: LogRule): Promise<LogPart> {
    let last = await this.chains.last(topic);
    if (last === undefined && begin !== undefined) {
      await this.#begin(topic, begin);
      last = await this.chains.last(topic);
    }
    if (last === undefined) return { epoch: "", top: 0, entries: [] };
    const { epoch, number: top } = last;
    const entries: [number, string][] = [];
    let bytes = 0;
    const end = performance.now() + PAGE_MS;
    const isLate = (): boolean => entries.length > 0 && performance.now() > end;
    const isFull = (): boolean => entries.length >= page.length || bytes >= page.bytes || isLate();
    const take = (kept: { epoch: string; number: number; body: string }): boolean => {
      if (kept.epoch === epoch && kept.number > after) {
        entries.push([kept.number, kept.body]);
        bytes += utf8Bytes(kept.body);
      }
      return !isFull();
    };
    if (!isFull() && after < top) await this.chains.read(topic, last.seq, take, after);
    return { epoch, top, entries };
  }
}
