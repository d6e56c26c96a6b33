/**
 * The streams of JetStream: one for logs, and one for the positions of keys. Finds out when the first one has lost what it kept. A server that restarts, an administrator or a cluster may empty a stream while this node stays connected.
 */
import { EngineError } from "../topics/engine.js";
import { FinalError } from "../fleet/reconnecting.js";
import { COMMAND_MS, codeOf, refusalIn, type Link, type StreamConfig, type StreamInfo } from "./client.js";
import type { Names, StreamKind } from "./names.js";
import type { KeptLogs } from "./options.js";

/** How long the position of a `key` is kept. NATS wants entries to be kept as long. */
export const KEY_MS = 120_000;
const NANOS = 1_000_000;

/** Codes of JetStream. */
const WRONG_LAST = 10_071;
/** NATS 2.11 and later, for a stream on several servers: another message is being stored behind the same one, or was a moment ago. */
const WRONG_LAST_UNKNOWN = 10_164;
const LAST_NOT_READY = 10_163;
const STORE_FAILED = 10_077;
const SAME_ID_IN_PROCESS = 10_158;
const NAME_IN_USE = 10_058;
const NOT_FOUND = 10_059;
const BAD_SETTINGS = 10_052;
const NO_CLUSTER = 10_074;

/**
 * Each life of a stream begins at a random sequence. So what this node knows of an earlier life never fits a later one: NATS refuses what it
 * appends, and does not find what it deletes. NATS 2.9 counts up to that sequence if two nodes begin at once, so it is not greater.
 */
const LEAST_SEQ = 2 ** 20;
const MOST_SEQ = 2 ** 24;
/** How often a node looks whether another one has begun the life of a stream, and how long it waits. */
const BEGIN_TRIES = 20;
const BEGIN_MS = 50;
/** How long another node may take to write what it has read. */
const UPDATE_MS = 50;
/** How long a node waits while the servers store another message: at least, and at most. */
const STORING_MS = [5, 20] as const;

/** What this node has seen last of a stream. */
interface Seen {
  readonly created: string;
  readonly seq: number;
  readonly settings: StreamConfig;
}

/** The streams of one prefix, as one node knows them. */
export class Streams {
  readonly #names: Names;
  readonly #logs: KeptLogs;
  /** The stream of the logs. */
  #seen: Seen | undefined;
  #isLost = false;
  /** Whether the stream of keys was there when the other one had its present life. */
  #hasKeys = false;

  constructor(names: Names, logs: KeptLogs) {
    this.#names = names;
    this.#logs = logs;
  }

  /** Returns true if the message that was refused with this error may be stored nevertheless. */
  mayBeStored(error: unknown): boolean {
    const code = codeOf(error);
    // The other servers may have stored it, or an earlier one with its id is not stored yet.
    return code === SAME_ID_IN_PROCESS || (code === STORE_FAILED && this.#logs.replicas > 1);
  }

  /** Creates the streams that do not exist. Rejects if JetStream refuses one. */
  async establish(link: Link): Promise<void> {
    await this.#look(link);
    if (this.#isLost) this.#hasKeys = false;
    if (this.#hasKeys) return;
    await this.#find(link, "k");
    this.#hasKeys = true;
  }

  /** Returns true once after `establish` has found that the stream of the logs is another one than before, or was emptied. */
  takeLoss(): boolean {
    const isLost = this.#isLost;
    this.#isLost = false;
    return isLost;
  }

  /** Finds out whether the stream of the logs is the one that this node has seen before. */
  async #look(link: Link): Promise<void> {
    const before = this.#seen;
    const { created, config: settings, state } = await this.#begun(link);
    const seen = this.#seen;
    if (seen !== undefined) {
      // In a cluster, a stream that was emptied keeps the time of its creation, and its next life may begin at a greater sequence.
      const isSameLife = seen.settings.description === settings.description && seen.created === created;
      const isOther = !isSameLife || seen.seq > state.last_seq;
      // Answers to overlapping questions may come in any order. The other one has compared, and this one may be older.
      if (isOther && seen !== before) return;
      if (isOther) this.#isLost = true;
    }
    this.#seen = { created, settings, seq: state.last_seq };
  }

  /** Returns the stream of the logs, whose life has begun. */
  async #begun(link: Link): Promise<StreamInfo> {
    const { manager } = link.jetstream!;
    const name = this.#names.stream("l");
    const marker = this.#names.none("l");
    for (let tries = 0; tries < BEGIN_TRIES; tries++) {
      const info = await this.#find(link, "l");
      const { last_seq: last } = info.state;
      if (last >= LEAST_SEQ) return info;
      const found = await manager.streams.getMessage(name, { last_by_subj: marker });
      const said = Number(found?.string());
      if (!(Number.isSafeInteger(said) && said > LEAST_SEQ && said <= MOST_SEQ)) {
        // A node that has just begun the life has removed the marker. NATS 2.9 would still accept another one behind the old sequence.
        if (last > 0 && (await this.#find(link, "l")).state.last_seq !== last) continue;
        const first = LEAST_SEQ + 1 + Math.floor(Math.random() * (MOST_SEQ - LEAST_SEQ));
        if (await this.#mark(link, marker, first, last)) await this.#beginAt(link, name, first);
      } else if (tries < BEGIN_TRIES / 2) {
        // The node that was first does it.
        await new Promise((resolve) => setTimeout(resolve, BEGIN_MS));
      } else await this.#beginAt(link, name, said);
    }
    throw new EngineError(`NATS: the stream ${name} does not begin`, "not-sent");
  }

  /** Begins a life. Its description tells it from others, and is there before the first message. */
  async #beginAt(link: Link, name: string, first: number): Promise<void> {
    const { streams } = link.jetstream!.manager;
    await streams.update(name, { description: `from ${first}` });
    await streams.purge(name, { seq: first });
  }

  /** Says where a life begins, if no other node has said so. */
  async #mark(link: Link, subject: string, first: number, lastSequence: number): Promise<boolean> {
    try {
      const options = { expect: { lastSequence }, timeout: COMMAND_MS };
      await link.jetstream!.publisher.publish(subject, String(first), options);
      return true;
    } catch (error) {
      if (!(await wasOvertaken(error))) throw error;
      return false;
    }
  }

  /** Returns a stream, and creates it if necessary. */
  async #find(link: Link, kind: StreamKind): Promise<StreamInfo> {
    const { streams } = link.jetstream!.manager;
    const name = this.#names.stream(kind);
    try {
      return await streams.info(name);
    } catch (error) {
      if (codeOf(error) !== NOT_FOUND) throw error;
    }
    try {
      return await streams.add({ name, ...this.#settingsOf(kind) });
    } catch (error) {
      // Another node was first.
      if (codeOf(error) === NAME_IN_USE) return streams.info(name);
      if (codeOf(error) !== NO_CLUSTER && codeOf(error) !== BAD_SETTINGS) throw error;
      throw new FinalError(`NATS: ${(error as Error).message}`, { cause: error });
    }
  }

  #settingsOf(kind: StreamKind): Partial<StreamConfig> {
    const all = this.#names.all(kind);
    return {
      storage: "memory",
      num_replicas: this.#logs.replicas,
      max_age: KEY_MS * NANOS,
      max_msgs_per_subject: 1,
      subjects: [all],
      ...(kind === "l" && {
        max_bytes: this.#logs.bytes,
        republish: { src: all, dest: this.#names.all("t") },
        duplicate_window: KEY_MS * NANOS,
      }),
    };
  }

  /** Returns what the stream of the logs is to keep: at least so much of a topic. It has one rule for all, which never becomes smaller. */
  #grown(before: StreamConfig, length: number, ageMs: number): Partial<StreamConfig> | undefined {
    const grown = {
      max_msgs_per_subject: Math.max(before.max_msgs_per_subject, length),
      max_age: Math.max(before.max_age, Math.ceil(ageMs) * NANOS),
      max_bytes: Math.max(before.max_bytes, this.#logs.bytes),
    };
    const isOther = (Object.keys(grown) as (keyof typeof grown)[]).some((name) => grown[name] !== before[name]);
    return isOther ? grown : undefined;
  }

  /** Whether the stream of the logs keeps so much, as far as this node knows. */
  keeps(length: number, ageMs: number): boolean {
    return this.#seen !== undefined && this.#grown(this.#seen.settings, length, ageMs) === undefined;
  }

  /** Lets the stream of the logs keep at least so much. */
  async grow(link: Link, length: number, ageMs: number): Promise<void> {
    const name = this.#names.stream("l");
    const { streams } = link.jetstream!.manager;
    for (;;) {
      const { config: settings } = await streams.info(name);
      if (this.#seen !== undefined) this.#seen = { ...this.#seen, settings };
      const grown = this.#grown(settings, length, ageMs);
      if (grown === undefined) return;
      await streams.update(name, grown);
      // Another node may have read the rule before, and write another one now.
      await new Promise((resolve) => setTimeout(resolve, UPDATE_MS));
    }
  }

  /** Returns what the user may not do, one text each. Changes nothing. */
  async refusals(link: Link): Promise<string[]> {
    const { manager, publisher } = link.jetstream!;
    const options = { timeout: COMMAND_MS };
    // Its body does not fit its subject, so JetStream refuses it.
    const unfit = (verb: string, kind: StreamKind): Promise<unknown> =>
      link.client.request(`$JS.API.STREAM.${verb}.${this.#names.stream(kind)}`, "{}", options);
    const name = this.#names.stream("l");
    const none = this.#names.none("l");
    const kinds = ["l", "k"] as const;
    const results = await Promise.allSettled([
      // Its sequence does not fit either.
      publisher.publish(none, "", { expect: { lastSubjectSequence: MOST_SEQ }, ...options }),
      manager.streams.getMessage(name, { last_by_subj: none }),
      // Not the subject of the marker, which another node may need now.
      manager.streams.purge(name, { filter: `${none}=`, seq: 1 }),
      unfit("UPDATE", "l"),
      ...kinds.map((kind) => unfit("CREATE", kind)),
      ...kinds.map((kind) => manager.streams.info(this.#names.stream(kind))),
    ]);
    return results.flatMap((result) => (result.status === "rejected" ? (refusalIn(result.reason) ?? []) : []));
  }
}

/**
 * Resolves with true if a message was refused because another one is behind the same one, which the next attempt finds. Waits a short time
 * if that one may not be readable yet.
 */
export async function wasOvertaken(error: unknown): Promise<boolean> {
  const code = codeOf(error);
  if (code === WRONG_LAST) return true;
  if (code !== WRONG_LAST_UNKNOWN && code !== LAST_NOT_READY) return false;
  const [leastMs, mostMs] = STORING_MS;
  await new Promise((resolve) => setTimeout(resolve, leastMs + Math.random() * (mostMs - leastMs)));
  return true;
}
