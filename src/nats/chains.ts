/**
 * The subjects of one stream. Each message has a number, 1 more than that of the message before on its subject, and NATS accepts it only
 * behind that one. So all nodes see one order without gaps.
 */
import { EngineError, logFrame } from "../fleet/engine.js";
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
import { wasOvertaken } from "./streams.js";

/** The first message of a subject from a sequence on. The library does not declare it. */
interface NextRequest {
  readonly seq: number;
  readonly next_by_subj: string;
}

const EPOCH = "Reciproc-Epoch";
const NUMBER = "Reciproc-Number";
const BYTES = "Reciproc-Bytes";
/** A message that others always overtake is refused at last. */
const MOST_TRIES = 200;
/** How many last messages are remembered. */
const MAX_REMEMBERED = 10_000;
/**
 * If the last message of a topic is not from a node: how many sequences before it are searched for one that is, and how many times as many
 * then.
 */
const NEAR = 1_000;
const FARTHER = 16;

/** What the headers of a message say. */
export interface Head {
  readonly epoch: string;
  /** The offset of the entry; 0 at the beginning of a log. */
  readonly number: number;
  /** The bytes of all entries of the epoch up to this one. */
  readonly bytes: number;
}

/** The place of a message in its stream. */
export interface Placed extends Head {
  readonly seq: number;
}

/** A message of a stream. */
export interface Kept extends Placed {
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

export function remember<T>(places: Map<string, T>, topic: string, placed: T): void {
  if (places.size >= MAX_REMEMBERED) places.clear();
  places.set(topic, placed);
}

/** The subjects of the stream of the logs, by topic. */
export class Chains {
  readonly name: string;
  readonly #connection: NatsConnection;
  /** The last message of a topic, as far as this node knows. */
  readonly #last = new Map<string, Placed>();
  /** The last message of a topic that was read, where the next page begins. */
  readonly #lastRead = new Map<string, Placed>();
  /** The last step of each topic, so that those of one node do not compete. */
  readonly #steps = new Map<string, Promise<unknown>>();

  constructor(connection: NatsConnection) {
    this.#connection = connection;
    this.name = connection.names.stream("l");
  }

  /** Forgets what this node knows, because the stream has another life. */
  forget(): void {
    this.#last.clear();
    this.#lastRead.clear();
  }

  subject(topic: string): string {
    return this.#connection.names.log(topic);
  }

  /** Removes the messages of a topic before a sequence. */
  async removeBefore(topic: string, seq: number): Promise<void> {
    await this.ask(({ streams }) => streams.purge(this.name, { filter: this.subject(topic), seq }));
  }

  /** Takes a message that was received. If it is the last one, this node appends behind it without asking. */
  note(topic: string, placed: Placed): void {
    if (Number.isSafeInteger(placed.seq) && placed.seq > (this.#last.get(topic)?.seq ?? 0))
      remember(this.#last, topic, placed);
  }

  /** Runs the steps of one topic one behind the other. */
  inOrder<T>(topic: string, step: () => Promise<T>): Promise<T> {
    const before = this.#steps.get(topic);
    const done = before === undefined ? step() : before.then(step, step);
    this.#steps.set(topic, done);
    const settled = (): void => {
      if (this.#steps.get(topic) === done) this.#steps.delete(topic);
    };
    done.then(settled, settled);
    return done;
  }

  /** Asks the manager of streams. */
  async ask<T>(run: (manager: JetStreamManager) => Promise<T>): Promise<T> {
    try {
      return await this.#connection.untilLost(run(this.#connection.present().jetstream!.manager));
    } catch (error) {
      throw commandError(error);
    }
  }

  /** Returns the last message of a topic. */
  async last(topic: string): Promise<Kept | undefined> {
    return (await this.#endOf(topic)).last;
  }

  /** Returns the sequence at which a topic ends, 0 if there is nothing, and the last message that a node has appended. */
  async #endOf(topic: string): Promise<{ seq: number; last: Kept | undefined }> {
    const stored = await this.#get({ last_by_subj: this.subject(topic) });
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

  /** Returns one message. `undefined` if it is not there, or does not come from a node. */
  async at(seq: number): Promise<Kept | undefined> {
    const stored = await this.#get({ seq });
    return stored === null ? undefined : this.#keptOf(stored);
  }

  #get(query: MsgRequest | NextRequest): Promise<StoredMsg | null> {
    return this.ask(({ streams }) => streams.getMessage(this.name, query));
  }

  /**
   * Appends a message behind the last one. `makeHead` returns its head, or `undefined` if there is nothing to append any more: then the
   * result is `undefined`. If a message was appended with the same `msgId` before, returns its sequence.
   */
  async append(
    topic: string,
    body: string,
    makeHead: (last: Placed | undefined) => Head | undefined | Promise<Head | undefined>,
    msgId?: string,
  ): Promise<Placed | { readonly earlier: number } | undefined> {
    for (let tries = 0; tries < MOST_TRIES; tries++) {
      const known = this.#last.get(topic);
      const end = known === undefined ? await unsent(this.#endOf(topic)) : { seq: known.seq, last: known };
      const head = await makeHead(end.last);
      if (head === undefined) return undefined;
      try {
        const { seq, duplicate } = await this.#publish(topic, body, head, end.seq, msgId);
        if (duplicate) return { earlier: seq };
        // Unless more has followed.
        const placed = { ...head, seq };
        if ((this.#last.get(topic)?.seq ?? 0) <= seq) remember(this.#last, topic, placed);
        return placed;
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
      jetstream!.publisher.publish(this.subject(topic), body, {
        headers,
        expect: { lastSubjectSequence },
        timeout: COMMAND_MS,
        ...(msgId === undefined ? {} : { msgID: msgId }),
      }),
    );
  }

  /** Returns a sequence before which nothing is needed. */
  #startOf(topic: string, after: number, until: number): number {
    const known = [this.#last.get(topic), this.#lastRead.get(topic)].map((placed) =>
      placed !== undefined && placed.number <= after && placed.seq < until ? placed.seq + 1 : 1,
    );
    return Math.max(...known);
  }

  /**
   * Reads the messages of a topic up to the sequence `until`, the oldest first, as long as `take` returns true. `after`: those up to this
   * number are not needed.
   */
  async read(topic: string, until: number, take: (kept: Kept) => boolean, after = 0): Promise<void> {
    const last = await this.#readFrom(topic, this.#startOf(topic, after, until), until, take);
    if (last === undefined) return;
    const { body: _body, ...placed } = last;
    remember(this.#lastRead, topic, placed);
  }

  /** Reads the messages of a topic from the sequence `start` up to `until`, one by one. Returns the last one that was taken. */
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
      const stored = await this.#get({ seq, next_by_subj: this.subject(topic) });
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
