/**
 * The subjects of one stream. Each message has a number, 1 more than that of the message before on its subject, and NATS accepts it only
 * behind that one. So all nodes see one order without gaps.
 */
import { utf8Bytes } from "../core/codec.js";
import { EngineError } from "../fleet/engine.js";
import { logFrame, rosterFrame } from "../fleet/frames.js";
import { codeOf, COMMAND_MS, commandError, type Client, type Headers, type Manager, type Message } from "./client.js";
import type { NatsConnection } from "./connection.js";
import { readerOf, STORE_FAILED, WRONG_LAST } from "./streams.js";

const KIND = "Reciproc-Kind";
const EPOCH = "Reciproc-Epoch";
const NUMBER = "Reciproc-Number";
const ID = "Reciproc-Id";
/** A message that others always overtake is refused at last. */
const MOST_TRIES = 200;
/** How many last messages are remembered. */
const MAX_REMEMBERED = 10_000;

/** What the headers of a message say. */
export interface Head {
  /** `"L"`: an entry of a log. `"j"`, `"l"`: a member joined, or left. */
  readonly kind: "L" | "j" | "l";
  /** The epoch of a log; empty for members. */
  readonly epoch: string;
  /** The offset of an entry, or the version of a roster. */
  readonly number: number;
  /** The id of a member; empty in a log. */
  readonly id: string;
}

/** The place of a message in its stream. */
export interface Placed extends Head {
  readonly seq: number;
}

/** A message of a stream. */
export interface Kept extends Placed {
  readonly body: string;
}

/** A message that was appended, and the one before it. */
export interface Appended {
  readonly head: Head;
  readonly seq: number;
  readonly before: Placed | undefined;
}

/** Returns the headers of a message. Those that NATS carries and the library refuses are none: reading them throws. */
function headersOf(message: Message): Headers | undefined {
  try {
    return message.headers;
  } catch {
    return undefined;
  }
}

function headOf(headers: Headers | undefined): Head | undefined {
  const kind = headers?.get(KIND);
  const number = Number(headers?.get(NUMBER));
  if ((kind !== "L" && kind !== "j" && kind !== "l") || !Number.isSafeInteger(number)) return undefined;
  return { kind, epoch: headers!.get(EPOCH), number, id: headers!.get(ID) };
}

/** Returns what a stream has sent on, as a frame and its place; `undefined` if the message comes from a node. */
export function readKept(message: Message): { frame: string; placed: Placed } | undefined {
  const headers = headersOf(message);
  const head = headOf(headers);
  if (head === undefined) return undefined;
  const { kind, epoch, number, id } = head;
  const body = message.string();
  const frame = kind === "L" ? logFrame(epoch, number, body) : rosterFrame(number, id, kind === "j" ? body : undefined);
  return { frame, placed: { ...head, seq: Number(headers!.get("Nats-Sequence")) } };
}

function remember(places: Map<string, Placed>, topic: string, { kind, epoch, number, id, seq }: Placed): void {
  if (places.size >= MAX_REMEMBERED) places.clear();
  places.set(topic, { kind, epoch, number, id, seq });
}

/** The subjects of one stream, by topic. */
export class Chains {
  readonly name: string;
  readonly #connection: NatsConnection;
  readonly #kind: "l" | "w";
  /** The last message of a topic, as far as this node knows. */
  readonly #last = new Map<string, Placed>();
  /** The last message of a topic that was read, where the next page begins. */
  readonly #lastRead = new Map<string, Placed>();
  /** The last step of each topic, so that those of one node do not compete. */
  readonly #steps = new Map<string, Promise<unknown>>();

  constructor(connection: NatsConnection, kind: "l" | "w") {
    this.#connection = connection;
    this.#kind = kind;
    this.name = connection.names.stream(kind);
  }

  /** Forgets what this node knows, because the stream has another life. */
  forget(): void {
    this.#last.clear();
    this.#lastRead.clear();
  }

  subject(topic: string): string {
    return this.#connection.names.kept(this.#kind, topic);
  }

  /** Takes a message that was received. If it is the last one, this node appends behind it without asking. */
  note(topic: string, placed: Placed): void {
    if (!Number.isSafeInteger(placed.seq) || placed.seq <= (this.#last.get(topic)?.seq ?? 0)) return;
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
  async ask<T>(run: (manager: Manager) => Promise<T>): Promise<T> {
    try {
      return await this.#connection.untilLost(run(this.#connection.present().jetstream!.manager));
    } catch (error) {
      throw commandError(error);
    }
  }

  /** Returns the last message of a topic. */
  async last(topic: string): Promise<Kept | undefined> {
    return this.at({ last_by_subj: this.subject(topic) });
  }

  /** Returns one message. */
  async at(query: { last_by_subj: string } | { seq: number }): Promise<Kept | undefined> {
    const stored = await this.ask(({ streams }) => streams.getMessage(this.name, query));
    const head = headOf(stored?.header);
    return stored === null || head === undefined ? undefined : { ...head, seq: stored.seq, body: stored.string() };
  }

  /**
   * Appends a message behind the last one. `makeHead` returns its head, or `undefined` if there is nothing to append any more: then the
   * result is `undefined`. `isRead`: whether the last message was read now, so it may be in another life of the stream than what this node
   * knows. If a message was appended with the same `msgId` before, returns its sequence.
   */
  async append(
    topic: string,
    body: string,
    makeHead: (last: Placed | undefined, isRead: boolean) => Head | undefined | Promise<Head | undefined>,
    msgId?: string,
  ): Promise<Appended | { readonly earlier: number } | undefined> {
    return this.#connection.bounded(utf8Bytes(body), async () => {
      for (let tries = 0; tries < MOST_TRIES; tries++) {
        const known = this.#last.get(topic);
        const before = known ?? (await this.last(topic));
        const head = await makeHead(before, known === undefined);
        if (head === undefined) return undefined;
        try {
          const { seq, duplicate } = await this.#publish(topic, body, head, before?.seq ?? 0, msgId);
          if (duplicate) return { earlier: seq };
          this.note(topic, { ...head, seq });
          return { head, seq, before };
        } catch (error) {
          this.#last.delete(topic);
          if (codeOf(error) === WRONG_LAST) continue;
          // The other servers may have stored it.
          if (codeOf(error) === STORE_FAILED && this.#connection.streams!.isReplicated)
            throw new EngineError("NATS: a server could not store the message", "unknown", { cause: error });
          throw error;
        }
      }
      throw new EngineError("NATS: other nodes append to the topic all the time", "not-sent");
    });
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
    headers.set(KIND, head.kind);
    headers.set(NUMBER, String(head.number));
    if (head.epoch !== "") headers.set(EPOCH, head.epoch);
    if (head.id !== "") headers.set(ID, head.id);
    return this.#connection.untilLost(
      jetstream!.publisher.publish(this.subject(topic), body, {
        headers,
        expect: { lastSubjectSequence },
        timeout: COMMAND_MS,
        ...(msgId === undefined ? {} : { msgID: msgId }),
      }),
    );
  }

  /** Returns a sequence before which nothing is needed, if one is known. */
  #startOf(topic: string, after: number, until: number): number | undefined {
    const known = [this.#last.get(topic), this.#lastRead.get(topic)].flatMap((placed) =>
      placed !== undefined && placed.number <= after && placed.seq < until ? [placed.seq + 1] : [],
    );
    return known.length === 0 ? undefined : Math.max(...known);
  }

  /**
   * Reads the messages of a topic up to the sequence `until`, the oldest first, as long as `take` returns true. `after`: those up to this
   * number are not needed.
   */
  async read(topic: string, until: number, take: (kept: Kept) => boolean, after = 0): Promise<void> {
    const { client, library } = this.#connection.present();
    const inbox = library.createInbox(this.#connection.names.inbox);
    let isDone = false;
    let finish: (error?: Error) => void;
    const done = new Promise<void>((resolve, reject) => {
      finish = (error) => {
        isDone = true;
        return error === undefined ? resolve() : reject(error);
      };
    });
    // It may reject before it is awaited.
    done.catch(() => {});
    let last: Placed | undefined;
    const subscription = client.subscribe(inbox, {
      callback: (error, message) => {
        if (isDone) return;
        if (error !== null) return finish(error);
        if (isControl(client, message)) return;
        const { seq, pending } = placeIn(message.reply!);
        const head = headOf(headersOf(message));
        if (head !== undefined && seq <= until) last = { ...head, seq };
        const wantsMore = head === undefined || (seq <= until && take({ ...head, seq, body: message.string() }));
        if (!wantsMore || seq >= until || pending === 0) finish();
      },
    });
    const timer = setTimeout(
      () => finish(new EngineError("NATS: a topic was not read in time", "unknown")),
      COMMAND_MS,
    );
    try {
      const { name, num_pending, delivered } = await this.ask(({ consumers }) =>
        consumers.add(this.name, readerOf(this.subject(topic), inbox, this.#startOf(topic, after, until))),
      );
      // The last message was removed meanwhile.
      if (num_pending === 0 && delivered.consumer_seq === 0) finish!();
      await this.#connection.untilLost(done);
      void this.ask(({ consumers }) => consumers.delete(this.name, name)).catch(() => {});
      if (last?.kind === "L") remember(this.#lastRead, topic, last);
    } catch (error) {
      throw commandError(error);
    } finally {
      clearTimeout(timer);
      subscription.unsubscribe();
    }
  }
}

/**
 * Returns the sequence of a message, and how many follow. Its reply is `$JS.ACK.<stream>.<consumer>.<deliveries>.<sequence>.<consumer's
 * sequence>.<time>.<pending>`. A longer form has a domain and an account before the stream.
 */
function placeIn(reply: string): { seq: number; pending: number } {
  const parts = reply.split(".");
  const at = parts.length > 9 ? 7 : 5;
  return { seq: Number(parts[at]), pending: Number(parts[at + 3]) };
}

/** Returns true for a message of the consumer itself, and tells it to go on if it waits for that. */
function isControl(client: Client, message: Message): boolean {
  if (message.reply?.startsWith("$JS.ACK.") === true) return false;
  message.respond();
  // A heartbeat has this if what was to be answered has not arrived.
  const stalled = headersOf(message)?.get("Nats-Consumer-Stalled") ?? "";
  if (stalled !== "") client.publish(stalled, "");
  return true;
}
