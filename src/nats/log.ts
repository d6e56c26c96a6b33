/**
 * The logs of topics in JetStream: one stream, with a subject for each topic. Each message has a number, 1 more than that of the message
 * before on its subject, and NATS accepts it only behind that one. So all nodes see one order without gaps. An epoch ends when the stream or
 * the last entry of the log is gone.
 */
import { utf8Bytes } from "../message/codec.js";
import {
  EngineError,
  logFrame,
  newEpoch,
  positionOf,
  textOf,
  type EngineLog,
  type LogPage,
  type LogPart,
  type LogRule,
  type Position,
} from "../topics/engine.js";
import {
  COMMAND_MS,
  commandError,
  type JetStreamManager,
  type Msg,
  type MsgHdrs,
  type MsgRequest,
  type StoredMsg,
} from "./client.js";
import type { NatsConnection } from "./connection.js";
import type { Names } from "./names.js";
import { KEY_MS, wasOvertaken } from "./streams.js";

/** The first message of a subject from a sequence on. The library does not declare it. */
interface NextRequest {
  readonly seq: number;
  readonly next_by_subj: string;
}

/** How long entries are kept after the `ttlMs` of their rule, so that a client that missed nothing of a quiet log learns so. */
const LAST_MS = 86_400_000;
/** The parts of its bytes in which a log is shortened, so that a removal is worth a request. */
const PARTS = 8;
/** A page ends after so long, with what it has, because its entries are read one after the other. A node waits for it for 3 s. */
const PAGE_MS = 1_000;
const EPOCH = "Reciproc-Epoch";
const NUMBER = "Reciproc-Number";
const BYTES = "Reciproc-Bytes";
/** A message that others always overtake is refused at last. */
const MOST_TRIES = 200;
/** Of how many topics something is remembered: those that were last in use. */
const MAX_REMEMBERED = 10_000;
/** So many entries that are not needed may be read before the first one that is. */
const MOST_IN_VAIN = 8;
/**
 * If the last message of a topic is not from a node: how many sequences before it are searched for one that is, and how many times as many
 * then.
 */
const NEAR = 1_000;
const FARTHER = 16;

/** What the headers of a message say. */
interface Head {
  readonly epoch: string;
  /** The offset of the entry; 0 at the beginning of a log. */
  readonly number: number;
  /** The bytes of all entries of the epoch up to this one. */
  readonly bytes: number;
}

/** The place of a message in its stream. */
interface Placed extends Head {
  readonly seq: number;
}

/** The result of an append. */
interface Appended extends Placed {
  /** The subject that has the position of its key; `undefined` without a key. */
  readonly subject: string | undefined;
  /** True if a message was appended with the same key before. Then nothing was appended, and `seq` is that of the earlier message. */
  readonly isRepeat: boolean;
}

/** A message of a stream. */
interface Kept extends Placed {
  readonly body: string;
}

/** Returns the headers of a message. Those that NATS carries and the library refuses are none: reading them throws. */
function headersOf(read: () => MsgHdrs | undefined): MsgHdrs | undefined {
  try {
    return read();
  } catch {
    return undefined;
  }
}

/** Returns what the headers of a message of the stream say; `undefined` if no node has written them. */
function headOf(headers: MsgHdrs | undefined): Head | undefined {
  const epoch = headers?.get(EPOCH) ?? "";
  const texts = [NUMBER, BYTES].map((name) => headers?.get(name) ?? "");
  const isHead = epoch !== "" && texts.every((text) => /^(0|[1-9]\d{0,15})$/.test(text));
  const [number = NaN, bytes = NaN] = texts.map(Number);
  return isHead && Number.isSafeInteger(number) && Number.isSafeInteger(bytes) ? { epoch, number, bytes } : undefined;
}

/** Returns what the stream of the logs has sent on, as a frame and its place; `undefined` for any other message. */
export function readKept(message: Msg, names: Names): { frame: string; placed: Placed } | undefined {
  const headers = headersOf(() => message.headers);
  const head = headers?.get("Nats-Stream") === names.stream("l") ? headOf(headers) : undefined;
  if (head === undefined) return undefined;
  const frame = logFrame(head.epoch, head.number, message.string());
  return { frame, placed: { ...head, seq: Number(headers!.get("Nats-Sequence")) } };
}

/** Forgets the topic that was remembered first. */
function remember<T>(places: Map<string, T>, topic: string, placed: T): void {
  places.delete(topic);
  places.set(topic, placed);
  if (places.size > MAX_REMEMBERED) places.delete(places.keys().next().value!);
}

export class NatsLog implements EngineLog {
  readonly #connection: NatsConnection;
  /** The name of the stream. */
  readonly #name: string;
  /** The last message of a topic, as far as this node knows. */
  readonly #last = new Map<string, Placed>();
  /** The last message of a topic that was read, where the next page begins. */
  readonly #lastRead = new Map<string, Placed>();
  /** The last step of each topic, so that those of one node do not compete. */
  readonly #steps = new Map<string, Promise<unknown>>();
  #growing: Promise<void> = Promise.resolve();
  /** By topic: entries of this node, and how many bytes of the epoch are before each. */
  readonly #marks = new Map<string, Placed[]>();

  constructor(connection: NatsConnection) {
    this.#connection = connection;
    this.#name = connection.names.stream("l");
  }

  /** Forgets what this node knows, because the stream has another life. */
  forget(): void {
    this.#last.clear();
    this.#lastRead.clear();
  }

  /** Takes a message that was received. If it is the last one, this node appends behind it without asking. */
  note(topic: string, placed: Placed): void {
    if (Number.isSafeInteger(placed.seq) && placed.seq > (this.#last.get(topic)?.seq ?? 0))
      remember(this.#last, topic, placed);
  }

  /** If an operation fails, the stream may be gone. The next one finds another, without waiting for the next check. */
  #watch<T>(operation: Promise<T>): Promise<T> {
    operation.catch(() => this.#connection.checkLater(0));
    return operation;
  }

  async append(topic: string, body: string, rule: LogRule, key: string | undefined): Promise<Position> {
    const appending = this.#inOrder(topic, async () => {
      await this.#grow(rule);
      const bytes = utf8Bytes(body);
      const appended = (await this.#append(topic, body, (last) => this.#headBehind(last, bytes, rule), key))!;
      const { epoch, number: offset, seq, subject, isRepeat } = appended;
      if (isRepeat) return this.#earlier(seq, subject!);
      this.#shorten(topic, rule.bytes, appended, bytes);
      const position = { epoch, offset };
      // The entry may be removed before its key is repeated.
      if (subject !== undefined) this.#keep(subject, textOf(position));
      return position;
    });
    return this.#watch(appending);
  }

  /**
   * Removes what a log has beyond its bytes, some entries at once. Only after entries that this node has appended, because only of those it
   * knows the sequence. So the log may have twice its bytes after the node that published before has ended, or has published to too many
   * other topics.
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
    if (removed.length > 0)
      this.#ask(({ streams }) => streams.purge(this.#name, { filter: this.#subject(topic), seq: marks[0]!.seq })).catch(
        () => {},
      );
  }

  async #headBehind(last: Placed | undefined, bytes: number, rule: LogRule): Promise<Head> {
    if (last !== undefined) return { epoch: last.epoch, number: last.number + 1, bytes: last.bytes + bytes };
    // Perhaps the stream was emptied, and its next life has not begun. One that was created anew keeps a single entry of each topic.
    await this.#connection.checkStreams();
    await this.#grow(rule);
    return { epoch: newEpoch(), number: 1, bytes };
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
      const stored = await this.#get({ seq });
      const kept = stored && this.#keptOf(stored);
      if (kept) return { epoch: kept.epoch, offset: kept.number };
      const remembered = await this.#ask(({ streams }) =>
        streams.getMessage(this.#connection.names.stream("k"), { last_by_subj: subject }),
      );
      const position = positionOf(remembered?.string());
      if (position !== undefined) return position;
    } catch (cause) {
      throw new EngineError((cause as Error).message, "unknown", { cause });
    }
    throw new EngineError("NATS: an entry was appended with this key before, and is no longer kept", "unknown");
  }

  #grow({ length, ttlMs }: LogRule): Promise<void> | undefined {
    const ageMs = Math.max(ttlMs, KEY_MS) + LAST_MS;
    const isKept = (): boolean => this.#connection.streams!.keeps(length, ageMs);
    if (isKept()) return undefined;
    const grow = async (): Promise<void> => {
      const { streams } = this.#connection;
      const growing = async (): Promise<void> => streams!.grow(this.#connection.present(), length, ageMs);
      if (!isKept()) await unsent(this.#connection.untilLost(growing()));
    };
    return (this.#growing = this.#growing.then(grow, grow));
  }

  /** Begins a log, unless there is one: its first message has the offset 0, and is no entry. */
  #begin(topic: string, rule: LogRule): Promise<void> {
    return this.#inOrder(topic, async () => {
      await this.#grow(rule);
      await this.#append(topic, "", async (last) =>
        last === undefined ? { ...(await this.#headBehind(last, 0, rule)), number: 0 } : undefined,
      );
    });
  }

  async read(...question: [topic: string, after: number, page: LogPage, begin?: LogRule]): Promise<LogPart> {
    return this.#watch(this.#read(...question));
  }

  async #read(topic: string, after: number, page: LogPage, begin?: LogRule): Promise<LogPart> {
    let { last } = await this.#endOf(topic);
    if (last === undefined && begin !== undefined) {
      await this.#begin(topic, begin);
      ({ last } = await this.#endOf(topic));
    }
    if (last === undefined) return { epoch: "", top: 0, entries: [] };
    const { epoch, number: top } = last;
    const entries: [number, string][] = [];
    let bytes = 0;
    const end = performance.now() + PAGE_MS;
    const isLate = (): boolean => entries.length > 0 && performance.now() > end;
    const isFull = (): boolean => entries.length >= page.length || bytes >= page.bytes || isLate();
    const take = (kept: Kept): boolean => {
      if (kept.epoch === epoch && kept.number > after) {
        entries.push([kept.number, kept.body]);
        bytes += utf8Bytes(kept.body);
      }
      return !isFull();
    };
    if (isFull() || after >= top) return { epoch, top, entries };
    const read = await this.#readFrom(topic, await this.#startOf(topic, after, last), last.seq, take);
    if (read !== undefined) {
      const { body: _body, ...placed } = read;
      remember(this.#lastRead, topic, placed);
    }
    return { epoch, top, entries };
  }

  #inOrder<T>(topic: string, step: () => Promise<T>): Promise<T> {
    const before = this.#steps.get(topic);
    const done = before === undefined ? step() : before.then(step, step);
    this.#steps.set(topic, done);
    const settled = (): void => {
      if (this.#steps.get(topic) === done) this.#steps.delete(topic);
    };
    done.then(settled, settled);
    return done;
  }

  #subject(topic: string): string {
    return this.#connection.names.log(topic);
  }

  async #ask<T>(run: (manager: JetStreamManager) => Promise<T>): Promise<T> {
    try {
      return await this.#connection.untilLost(run(this.#connection.present().jetstream!.manager));
    } catch (error) {
      throw commandError(error);
    }
  }

  /** Returns the sequence at which a topic ends, 0 if there is nothing, and the last message that a node has appended. */
  async #endOf(topic: string): Promise<{ seq: number; last: Kept | undefined }> {
    const stored = await this.#get({ last_by_subj: this.#subject(topic) });
    if (stored === null) return { seq: 0, last: undefined };
    const { seq } = stored;
    let last = this.#keptOf(stored);
    // Another program has written it. What the nodes have appended is before it.
    for (let until = seq, distance = NEAR; last === undefined && until > 0; distance *= FARTHER) {
      const start = Math.max(1, seq - distance);
      last = await this.#readFrom(topic, start, until, () => true);
      until = start - 1;
    }
    return { seq, last };
  }

  #keptOf(stored: StoredMsg): Kept | undefined {
    const head = headOf(headersOf(() => stored.header));
    return head === undefined ? undefined : { ...head, seq: stored.seq, body: stored.string() };
  }

  #get(query: MsgRequest | NextRequest): Promise<StoredMsg | null> {
    return this.#ask(({ streams }) => streams.getMessage(this.#name, query));
  }

  /**
   * Appends a message behind the last one. `makeHead` returns its head, or `undefined` if there is nothing to append any more: then the
   * result is `undefined`. If a message of the same epoch was appended with the same key before, returns the sequence of that one.
   */
  async #append(
    topic: string,
    body: string,
    makeHead: (last: Placed | undefined) => Head | undefined | Promise<Head | undefined>,
    key?: string,
  ): Promise<Appended | undefined> {
    for (let tries = 0; tries < MOST_TRIES; tries++) {
      const known = this.#last.get(topic);
      const end = known === undefined ? await unsent(this.#endOf(topic)) : { seq: known.seq, last: known };
      const head = await makeHead(end.last);
      if (head === undefined) return undefined;
      const subject = key === undefined ? undefined : this.#connection.names.key(topic, head.epoch, key);
      try {
        const { seq, duplicate: isRepeat } = await this.#publish(topic, body, head, end.seq, subject);
        // NATS compares the ids before it looks whether the log still has the last message that this node knows.
        if (isRepeat && known !== undefined) {
          this.#last.delete(topic);
          continue;
        }
        // Unless more has followed.
        const placed = { ...head, seq };
        if (!isRepeat && (this.#last.get(topic)?.seq ?? 0) <= seq) remember(this.#last, topic, placed);
        return { ...placed, subject, isRepeat };
      } catch (error) {
        this.#last.delete(topic);
        if (await wasOvertaken(error)) continue;
        if (this.#connection.streams!.mayBeStored(error))
          throw new EngineError(`NATS: ${(error as Error).message}`, "unknown", { cause: error });
        throw error;
      }
    }
    throw new EngineError("NATS: other nodes append to the topic all the time", "not-sent");
  }

  #publish(
    topic: string,
    body: string,
    head: Head,
    lastSubjectSequence: number,
    msgId: string | undefined,
  ): Promise<{ seq: number; duplicate: boolean }> {
    const { jetstream, library } = this.#connection.present();
    const headers = library.headers();
    headers.set(NUMBER, String(head.number));
    headers.set(BYTES, String(head.bytes));
    headers.set(EPOCH, head.epoch);
    return this.#connection.untilLost(
      jetstream!.publisher.publish(this.#subject(topic), body, {
        headers,
        expect: { lastSubjectSequence },
        timeout: COMMAND_MS,
        ...(msgId === undefined ? {} : { msgID: msgId }),
      }),
    );
  }

  /**
   * Returns a sequence before which nothing is needed, and not many entries after it. If this node does not know one, asks for messages
   * further and further before the last one, and then between two of them.
   */
  async #startOf(topic: string, after: number, last: Placed): Promise<number> {
    const nearest = { seq: 0, number: 0 };
    let end = last.seq;
    const take = (placed: Placed | undefined): boolean => {
      if (placed === undefined || placed.seq >= end || (placed.epoch === last.epoch && placed.number > after))
        return false;
      if (placed.seq > nearest.seq)
        Object.assign(nearest, { seq: placed.seq, number: placed.epoch === last.epoch ? placed.number : 0 });
      return true;
    };
    take(this.#last.get(topic));
    take(this.#lastRead.get(topic));
    let distance = last.number - after;
    while (after - nearest.number > MOST_IN_VAIN && nearest.seq + 1 < end) {
      const middle = Math.max(Math.ceil((nearest.seq + end) / 2), last.seq - distance);
      distance *= FARTHER;
      const stored = await this.#get({ seq: middle, next_by_subj: this.#subject(topic) });
      if (!take((stored && this.#keptOf(stored)) ?? undefined)) end = middle;
    }
    return nearest.seq + 1;
  }

  /**
   * Reads the messages of a topic from the sequence `start` up to `until`, the oldest first, one by one, as long as `take` returns true.
   * Returns the last one that was taken.
   */
  async #readFrom(
    topic: string,
    start: number,
    until: number,
    take: (kept: Kept) => boolean,
  ): Promise<Kept | undefined> {
    const end = performance.now() + COMMAND_MS;
    let last: Kept | undefined;
    for (let seq = start; seq <= until;) {
      if (performance.now() > end) throw new EngineError("NATS: a topic was not read in time", "unknown");
      const stored = await this.#get({ seq, next_by_subj: this.#subject(topic) });
      if (stored === null || stored.seq > until) break;
      seq = stored.seq + 1;
      const kept = this.#keptOf(stored);
      if (kept === undefined) continue;
      last = kept;
      if (!take(kept)) break;
    }
    return last;
  }
}

/** Rejects with an error that says that nothing was appended. */
async function unsent<T>(asking: Promise<T>): Promise<T> {
  try {
    return await asking;
  } catch (cause) {
    throw new EngineError((cause as Error).message, "not-sent", { cause });
  }
}
