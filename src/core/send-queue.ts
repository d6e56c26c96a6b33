/** Queued messages. A queued message can be cancelled, and replaced by a newer one with the same key. */
import type { MessageText } from "./codec.js";
import type { Connection } from "./connection.js";
import type { SendHandle } from "./transport.js";

/** The memory of a queued message besides its text, in UTF-16 code units. Without it, many small messages would count too little. */
export const QUEUED_COST = 64;

/** The most keys of `latest` in one queue. */
const MOST_LATEST = 1024;

/** The send handle of a notification of which only the newest is queued. Peers that get the same message may share it. */
export class LatestHandle implements SendHandle {
  sent = false;
  declare readonly method: string;
  /** The method and the key. A queued message replaces an older one that has the same. `undefined`: it replaces none. */
  declare readonly latest: string | undefined;

  constructor(method: string, key: string | undefined) {
    this.method = method;
    this.latest = key === undefined ? undefined : `${key.length}:${key}${method}`;
  }

  /** Sends the message, which was kept for a slow reader. */
  sendKept(connection: Connection, text: MessageText): void {
    connection.send(text, this);
  }
}

/** A queue whose messages can be cancelled. */
export class SendQueue {
  /** The messages by handle, in the order they were added. */
  readonly #messages = new Map<SendHandle, MessageText>();
  /** The newest message of each method and key, in the same order. Made with the first. */
  #latest: Map<string, LatestHandle> | undefined;
  #length = 0;

  /** The length of all texts in UTF-16 code units, and of bytes, plus `QUEUED_COST` for each. */
  get length(): number {
    return this.#length;
  }

  /** The part of `length` that counts towards the limits of ordinary messages. Only a server's queue has others. */
  get ordinaryLength(): number {
    return this.#length;
  }

  /**
   * Adds a message. Copies its bytes. Returns the handle of the oldest message with a key if that was dropped, because there were
   * too many keys.
   */
  add(text: MessageText, handle: SendHandle = { sent: false }): LatestHandle | undefined {
    if (typeof text !== "string") text.keep();
    this.replace(handle);
    handle.sent = false;
    this.#messages.set(handle, text);
    this.grow(text.length + QUEUED_COST, handle);
    if (!(handle instanceof LatestHandle) || handle.latest === undefined) return undefined;
    this.#latest = (this.#latest ?? new Map<string, LatestHandle>()).set(handle.latest, handle);
    if (this.#latest.size <= MOST_LATEST) return undefined;
    const [oldest] = this.#latest.values();
    this.remove(oldest!);
    return oldest;
  }

  /**
   * Removes the message that the message of `handle` replaces. Returns the handle of that one; `undefined` if there is none. A caller
   * that checks lengths calls this first.
   */
  replace(handle: SendHandle | undefined): SendHandle | undefined {
    const older = handle instanceof LatestHandle ? this.#latest?.get(handle.latest!) : undefined;
    if (older !== undefined) this.remove(older);
    return older;
  }

  /** Removes a message. Returns false if it is not queued. */
  remove(handle: SendHandle): boolean {
    const text = this.#messages.get(handle);
    if (text === undefined) return false;
    this.grow(-text.length - QUEUED_COST, handle);
    if (handle instanceof LatestHandle) this.#latest?.delete(handle.latest!);
    return this.#messages.delete(handle);
  }

  /** Called when a message is added or removed. `by`: the change of `length`. */
  protected grow(by: number, _handle: SendHandle): void {
    this.#length += by;
  }

  /** Iterates in the order of adding, including messages that are added meanwhile. The current message may be removed. */
  [Symbol.iterator](): IterableIterator<[SendHandle, MessageText]> {
    return this.#messages.entries();
  }
}
