/** Queued messages. A queued message can be cancelled, and replaced by a newer one with the same key. */
import type { MessageText } from "./codec.js";
import type { SendHandle, Link } from "./transport.js";

/** The memory of a queued message besides its text, in UTF-16 code units. Without it, many small messages would count too little. */
export const QUEUED_COST = 64;

/** The most keys of `latest` in one queue. */
const MOST_LATEST = 1024;

/**
 * The send handle of a broadcast, and of a notification of which only the newest is queued. The peers that get the same message
 * share it.
 */
export class NotificationHandle implements SendHandle {
  sent = false;
  readonly method: string;
  /** The method and the key. A queued message replaces an older one that has the same. `undefined`: it replaces none. */
  readonly latest: string | undefined;
  /** Whether the message goes to many peers. Broadcasts have limits of their own, and end no connection. */
  readonly isBroadcast: boolean;

  constructor(method: string, key: string | undefined, isBroadcast: boolean) {
    this.method = method;
    this.latest = key === undefined ? undefined : `${key.length}:${key}${method}`;
    this.isBroadcast = isBroadcast;
  }
}

/** A queue whose messages can be cancelled. */
export class SendQueue {
  /** The messages by handle, in the order they were added. */
  readonly #messages = new Map<SendHandle, MessageText>();
  /** The newest message of each method and key, in the same order. Made with the first. */
  #latest: Map<string, NotificationHandle> | undefined;
  #length = 0;
  #broadcastLength = 0;
  readonly #counter: Pick<Link, "keeps"> | undefined;

  /** `counter`: counts what is queued. */
  constructor(counter?: Pick<Link, "keeps">) {
    this.#counter = counter;
  }

  /** The length of all texts in UTF-16 code units, and of bytes, plus `QUEUED_COST` for each. */
  get length(): number {
    return this.#length;
  }

  /** The part of `length` that no broadcast takes. */
  get ordinaryLength(): number {
    return this.#length - this.#broadcastLength;
  }

  /**
   * Adds a message. Copies its bytes. Returns the handle of the oldest message with a key if that was dropped, because there were
   * too many keys.
   */
  add(text: MessageText, handle: SendHandle = { sent: false }): NotificationHandle | undefined {
    if (typeof text !== "string") text.keep();
    this.replace(handle);
    handle.sent = false;
    this.#messages.set(handle, text);
    this.#grow(text.length + QUEUED_COST, handle);
    if (!(handle instanceof NotificationHandle) || handle.latest === undefined) return undefined;
    this.#latest = (this.#latest ?? new Map<string, NotificationHandle>()).set(handle.latest, handle);
    if (this.#latest.size <= MOST_LATEST) return undefined;
    const [oldest] = this.#latest.values();
    this.remove(oldest!);
    return oldest;
  }

  /** Removes the message that the message of `handle` replaces, if there is one. A caller that checks lengths calls this first. */
  replace(handle: SendHandle | undefined): void {
    const older = handle instanceof NotificationHandle ? this.#latest?.get(handle.latest!) : undefined;
    if (older !== undefined) this.remove(older);
  }

  /** Removes a message. Returns false if it is not queued. */
  remove(handle: SendHandle): boolean {
    const text = this.#messages.get(handle);
    if (text === undefined) return false;
    this.#grow(-text.length - QUEUED_COST, handle);
    if (handle instanceof NotificationHandle) this.#latest?.delete(handle.latest!);
    return this.#messages.delete(handle);
  }

  #grow(by: number, handle: SendHandle): void {
    const isBroadcast = handle instanceof NotificationHandle && handle.isBroadcast;
    this.#length += by;
    if (isBroadcast) this.#broadcastLength += by;
    this.#counter?.keeps?.(by, isBroadcast);
  }

  /** Iterates in the order of adding, including messages that are added meanwhile. The current message may be removed. */
  [Symbol.iterator](): IterableIterator<[SendHandle, MessageText]> {
    return this.#messages.entries();
  }
}
