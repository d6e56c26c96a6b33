/** Queued messages. A queued message can be cancelled. */
import type { SendHandle } from "./transport.js";

/** The memory of a queued message besides its text, in UTF-16 code units. Without it, many small messages would count too little. */
export const QUEUED_COST = 64;

/** The send handle of a broadcast. Broadcasts have a limit of their own, apart from that of ordinary messages. */
export class BroadcastHandle implements SendHandle {
  sent = false;
}

/** A queue whose messages can be cancelled. */
export class SendQueue {
  /** The messages by handle, in the order they were added. */
  readonly #messages = new Map<SendHandle, string>();
  #length = 0;
  #broadcastLength = 0;

  /** The length of all texts in UTF-16 code units, plus `QUEUED_COST` for each. */
  get length(): number {
    return this.#length;
  }

  /** The part of `length` that belongs to broadcasts. */
  get broadcastLength(): number {
    return this.#broadcastLength;
  }

  /** Adds a message. Returns the increase of `length`. */
  add(text: string, handle: SendHandle = { sent: false }): number {
    handle.sent = false;
    this.#messages.set(handle, text);
    const cost = text.length + QUEUED_COST;
    this.#grow(cost, handle);
    return cost;
  }

  /** Removes a message. Returns the decrease of `length`; 0 if the message is not queued. */
  remove(handle: SendHandle): number {
    const text = this.#messages.get(handle);
    if (text === undefined) return 0;
    this.#messages.delete(handle);
    const cost = text.length + QUEUED_COST;
    this.#grow(-cost, handle);
    return cost;
  }

  #grow(by: number, handle: SendHandle): void {
    this.#length += by;
    if (handle instanceof BroadcastHandle) this.#broadcastLength += by;
  }

  /** Iterates in the order of adding, including messages that are added meanwhile. The current message may be removed. */
  [Symbol.iterator](): Iterator<[SendHandle, string]> {
    return this.#messages.entries();
  }
}
