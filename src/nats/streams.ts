/**
 * What JetStream keeps: a stream for logs, and one for members. A topic has one subject in each. Each message has a number, 1 more than
 * that of the message before on its subject, and NATS accepts it only behind that one. So all nodes see one order without gaps.
 */
import type { StreamConfig } from "@nats-io/jetstream";
import type { Msg, MsgHdrs } from "@nats-io/transport-node";
import { utf8Bytes } from "../core/codec.js";
import { EngineError } from "../fleet/engine.js";
import { logFrame, rosterFrame } from "../fleet/frames.js";
import { COMMAND_MS, commandError, type Link } from "./client.js";
import type { NatsConnection } from "./connection.js";
import type { Names } from "./names.js";

/** How long the position of a `key` is kept. NATS wants entries to be kept as long. */
export const KEY_MS = 120_000;
const NANOS = 1_000_000;

const KIND = "Reciproc-Kind";
const EPOCH = "Reciproc-Epoch";
const NUMBER = "Reciproc-Number";
const ID = "Reciproc-Id";
/** `JetStreamApiError.code`: another message came between. */
const WRONG_LAST = 10_071;
const NAME_IN_USE = 10_058;
const NOT_FOUND = 10_059;
/** A message that others always overtake is refused at last. */
const MOST_TRIES = 200;
/** How many last messages are remembered. */
const MAX_REMEMBERED = 10_000;

/** A message of a stream. */
export interface Kept extends Head {
  readonly seq: number;
  readonly body: string;
}

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

function headOf(headers: MsgHdrs | undefined): Head | undefined {
  const kind = headers?.get(KIND);
  const number = Number(headers?.get(NUMBER));
  if ((kind !== "L" && kind !== "j" && kind !== "l") || !Number.isSafeInteger(number)) return undefined;
  return { kind, epoch: headers!.get(EPOCH), number, id: headers!.get(ID) };
}

/** Returns the frame of a message that a stream has sent on; `undefined` if it comes from a node. */
export function frameOfKept(message: Msg): string | undefined {
  const head = headOf(message.headers);
  if (head === undefined) return undefined;
  const { kind, epoch, number, id } = head;
  if (kind === "L") return logFrame(epoch, number, message.string());
  return rosterFrame(number, id, kind === "j" ? message.string() : undefined);
}

/** Creates the streams that do not exist. Rejects if JetStream refuses one. */
export async function establishStreams(link: Link, names: Names, replicas: number): Promise<void> {
  const { streams } = link.jetstream!.manager;
  for (const kind of ["l", "w"] as const) {
    const config: Partial<StreamConfig> & { name: string } = {
      name: names.stream(kind),
      subjects: [names.all(kind)],
      storage: "memory" as StreamConfig["storage"],
      num_replicas: replicas,
      republish: { src: names.all(kind), dest: names.all("t") },
      ...(kind === "l" && { max_msgs_per_subject: 1, max_age: KEY_MS * NANOS, duplicate_window: KEY_MS * NANOS }),
    };
    try {
      await streams.info(config.name);
    } catch (error) {
      if (codeOf(error) !== NOT_FOUND) throw error;
      await streams.add(config).catch((reason: unknown) => {
        // Another node was first.
        if (codeOf(reason) !== NAME_IN_USE) throw reason;
      });
    }
  }
}

function codeOf(error: unknown): unknown {
  return (error as { code?: unknown } | null)?.code;
}

/** The subjects of one stream. */
export class Chains {
  readonly #connection: NatsConnection;
  readonly #kind: "l" | "w";
  readonly name: string;
  /** The last message of a subject, as far as this node knows. */
  readonly #last = new Map<string, Head & { readonly seq: number }>();
  /** The last step of each topic, so that those of one node do not compete. */
  readonly #steps = new Map<string, Promise<unknown>>();

  constructor(connection: NatsConnection, kind: "l" | "w") {
    this.#connection = connection;
    this.#kind = kind;
    this.name = connection.names.stream(kind);
  }

  /** Forgets what this node knows, because the stream may be another one. */
  forget(): void {
    this.#last.clear();
  }

  subject(topic: string): string {
    return this.#connection.names.kept(this.#kind, topic);
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

  /** Asks the manager of streams. An error that it answers with says that nothing was done. */
  async ask<T>(run: (manager: NonNullable<Link["jetstream"]>["manager"]) => Promise<T>): Promise<T> {
    try {
      return await this.#connection.untilLost(run(this.#connection.present().jetstream!.manager));
    } catch (error) {
      throw answered(error);
    }
  }

  /** Returns the last message of a topic. */
  async last(topic: string): Promise<Kept | undefined> {
    return this.#message({ last_by_subj: this.subject(topic) });
  }

  async #message(query: { last_by_subj: string } | { seq: number }): Promise<Kept | undefined> {
    const stored = await this.ask(({ streams }) => streams.getMessage(this.name, query));
    const head = headOf(stored?.header);
    return stored === null || head === undefined ? undefined : { ...head, seq: stored.seq, body: stored.string() };
  }

  /**
   * Appends a message behind the last one. `headOf` returns its head. With `key`, returns the message that was appended with it before.
   * `before` is the message before it.
   */
  async append(
    topic: string,
    body: string,
    makeHead: (last: Head | undefined) => Head | Promise<Head>,
    key?: string,
  ): Promise<{ head: Head; seq: number; before: (Head & { seq: number }) | undefined }> {
    return this.#connection.bounded(utf8Bytes(body), async () => {
      for (let tries = 0; tries < MOST_TRIES; tries++) {
        const before = this.#last.get(topic) ?? (await this.last(topic));
        const head = await makeHead(before);
        try {
          const ack = await this.#publish(topic, body, head, before?.seq ?? 0, key);
          if (ack.duplicate) return { ...(await this.#earlier(ack.seq)), before: undefined };
          if (this.#last.size >= MAX_REMEMBERED) this.#last.clear();
          this.#last.set(topic, { ...head, seq: ack.seq });
          return { head, seq: ack.seq, before };
        } catch (error) {
          this.#last.delete(topic);
          if (codeOf(error) !== WRONG_LAST) throw answered(error);
        }
      }
      throw new EngineError("NATS: other nodes append to the topic all the time", "not-sent");
    });
  }

  async #earlier(seq: number): Promise<{ head: Head; seq: number }> {
    const kept = await this.#message({ seq });
    if (kept === undefined)
      throw new EngineError("NATS: the entry of this key was appended before and is no longer kept", "unknown");
    return { head: kept, seq };
  }

  #publish(
    topic: string,
    body: string,
    head: Head,
    lastSubjectSequence: number,
    key: string | undefined,
  ): Promise<{ seq: number; duplicate: boolean }> {
    const { jetstream, library } = this.#connection.present();
    const headers = library.headers();
    headers.set(KIND, head.kind);
    headers.set(NUMBER, String(head.number));
    if (head.epoch !== "") headers.set(EPOCH, head.epoch);
    if (head.id !== "") headers.set(ID, head.id);
    return this.#connection.untilLost(
      jetstream!.client.publish(this.subject(topic), body, {
        headers,
        expect: { lastSubjectSequence },
        timeout: COMMAND_MS,
        ...(key === undefined ? {} : { msgID: key }),
      }),
    );
  }

  /** Reads the messages of a topic up to `until`, the oldest first, as long as `take` returns true. */
  async read(topic: string, until: number, take: (kept: Kept) => boolean): Promise<void> {
    const { client, library } = this.#connection.present();
    const inbox = library.createInbox();
    let isDone = false;
    let finish: (error?: Error) => void;
    const done = new Promise<void>((resolve, reject) => {
      finish = (error) => {
        isDone = true;
        return error === undefined ? resolve() : reject(error);
      };
    });
    const subscription = client.subscribe(inbox, {
      callback: (error, message) => {
        if (isDone) return;
        if (error !== null) return finish(error);
        // `$JS.ACK.<stream>.<consumer>.<deliveries>.<sequence>.<consumer's sequence>.<time>.<pending>`
        const parts = (message.reply ?? "").split(".");
        const [seq, pending] = [Number(parts.at(-4)), Number(parts.at(-1))];
        const head = headOf(message.headers);
        const wantsMore = head === undefined || (seq <= until && take({ ...head, seq, body: message.string() }));
        if (!wantsMore || seq >= until || pending === 0) finish();
      },
    });
    const timer = setTimeout(
      () => finish(new EngineError("NATS: a topic was not read in time", "unknown")),
      COMMAND_MS,
    );
    try {
      const { name } = await this.ask(({ consumers }) =>
        consumers.add(this.name, {
          deliver_subject: inbox,
          deliver_policy: "all",
          ack_policy: "none",
          filter_subject: this.subject(topic),
          mem_storage: true,
          num_replicas: 1,
          inactive_threshold: 5_000 * NANOS,
        } as never),
      );
      await this.#connection.untilLost(done);
      void this.ask(({ consumers }) => consumers.delete(this.name, name)).catch(() => {});
    } catch (error) {
      throw answered(error);
    } finally {
      clearTimeout(timer);
      done.catch(() => {});
      subscription.unsubscribe();
    }
  }
}

/** An error that JetStream has answered with says that nothing was done. */
function answered(error: unknown): EngineError {
  const code = codeOf(error);
  if (typeof code !== "number") return commandError(error);
  return new EngineError(`NATS: ${(error as Error).message}`, "not-sent", { cause: error });
}
