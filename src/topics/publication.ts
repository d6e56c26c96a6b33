/** Notifications between nodes, and the publications of a logged topic: how they are written, placed, and read for an application. */
import { encodeNotification, plainText } from "../message/codec.js";
import { expected } from "../message/errors.js";
import { classify, isObject } from "../message/message.js";
import { checkOptions } from "../message/options.js";
import { positionOf, textOf, type LogPage, type LogPart, type Position } from "./engine.js";
import { READ_OPTIONS, type LogEntries, type ReadOptions } from "./topic-options.js";

export interface Notification {
  readonly method: string;
  readonly params: unknown;
}

/** Parses JSON that any process that can write to the broker may have written. Returns `undefined` if it is none. */
export function parsed(json: string): unknown {
  try {
    return JSON.parse(json);
  } catch {
    return undefined;
  }
}

/** Returns the notification in a body; `undefined` if the body is none. */
export function notificationIn(body: string): Notification | undefined {
  const message = parsed(body);
  return classify(message) === "notification" ? (message as Notification) : undefined;
}

/** How much of a log is read at once. So what is read at once is bounded too. */
export const PAGE: LogPage = { length: 500, bytes: 256 * 1024 };

/** A publication, as its members get it. */
export interface Publication {
  readonly method: string;
  /** The text of the notification, with `at`. */
  readonly text: string;
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
  const { method, params } = notificationIn(body) ?? {};
  if (method === undefined || !body.endsWith("}}")) return undefined;
  if (!isObject(params) || Array.isArray(params)) return undefined;
  return { method, text: placed(position, body) };
}

/** Returns the text of a publication whose entry is `body`. The end of its params is known, so nothing is encoded again. */
export function placed(position: Position, body: string): string {
  const before = body.slice(0, -2);
  return `${before}${before.endsWith("{") ? "" : ","}"at":"${textOf(position)}"}}`;
}

/** What a client that returns has missed: the entries after a position up to `to`, of at most `maxLength` UTF-16 code units. */
export class Replay {
  /** The offset of the next entry. */
  next: number;
  outcome: "complete" | "gap" | undefined = undefined;
  readonly #epoch: string;
  readonly #to: number;
  readonly #publications: Publication[] = [];
  /** How much more the client can get. */
  #leftLength: number;

  constructor({ epoch, offset }: Position, to: number, maxLength: number) {
    this.#epoch = epoch;
    this.next = offset + 1;
    this.#to = to;
    this.#leftLength = maxLength;
  }

  /** The publications. `undefined` for a gap. */
  get missed(): Publication[] | undefined {
    return this.outcome === "complete" ? this.#publications : undefined;
  }

  /** Takes a page. It is a gap if that is of another log, or does not have the next entry. */
  take({ epoch, entries }: Pick<LogPart, "epoch" | "entries">): void {
    if (epoch !== this.#epoch || entries.length === 0) this.outcome = "gap";
    for (const [offset, body] of entries) {
      if (offset < this.next || this.outcome !== undefined) continue;
      this.#leftLength -= body.length;
      const publication = publicationOf({ epoch, offset }, body);
      if (publication !== undefined) this.#publications.push(publication);
      if (offset > this.next || this.#leftLength < 0) this.outcome = "gap";
      else if (offset === this.#to) this.outcome = "complete";
      this.next = offset + 1;
    }
  }
}

/** Reads a page of a log for `Topic.read`. `read`: reads a page of what follows an offset. */
export async function readEntries(
  options: ReadOptions | undefined,
  read: (after: number, page: LogPage) => Promise<LogPart> | LogPart,
): Promise<LogEntries> {
  const { since, limit } = checkOptions("options", options, READ_OPTIONS);
  const from = positionOf(since);
  const page = { ...PAGE, length: limit };
  let part = await read(from?.offset ?? 0, page);
  const isSame = from !== undefined && part.epoch === from.epoch && from.offset <= part.top;
  if (from !== undefined && !isSame) part = await read(0, page);
  const { epoch, top } = part;
  const first = part.entries[0]?.[0];
  // Nothing follows the last entry. If the entries are gone, the gap ends at the top.
  const isComplete = isSame && (first === undefined ? from.offset === top : first === from.offset + 1);
  const entries = part.entries.flatMap(([offset, body]) => {
    const publication = publicationOf({ epoch, offset }, body);
    if (publication === undefined) return [];
    const { method, params } = JSON.parse(publication.text) as { method: string; params: unknown };
    return [{ at: textOf({ epoch, offset }), method, params }];
  });
  const at = textOf({ epoch, offset: part.entries.at(-1)?.[0] ?? top });
  return { at, outcome: isComplete ? "complete" : "gap", entries };
}
