/** Queued messages. A queued message can be cancelled. */
import type { MessageText } from "../message/codec.js";
import type { SendHandle } from "../message/transport.js";

/** The memory of a queued message besides its text, in UTF-16 code units. Without it, many small messages would count too little. */
export const QUEUED_COST = 64;

/** A queue whose messages can be cancelled. */
export class SendQueue {
  /** The messages by handle, in the order they were added. */
  readonly #messages = new Map<SendHandle, MessageText>();
  #length = 0;

  /** The length of all texts in UTF-16 code units, and of bytes, plus `QUEUED_COST` for each. */
  get length(): number {
    return this.#length;
  }

  /** The part of `length` that counts against the connection. */
  get ordinaryLength(): number {
    return this.#length;
  }

  /** Adds a message, after `replace`. Copies its bytes. */
  add(text: MessageText, handle: SendHandle = { sent: false }): void {
    if (typeof text !== "string") text.keep();
    handle.sent = false;
    this.#messages.set(handle, text);
    this.grow(text.length + QUEUED_COST, handle);
  }

  /** Removes the message that the one of `handle` replaces, if there is one. Called before the length of the new one is checked, and before `add`. */
  replace(_handle: SendHandle | undefined): void {}

  /** Removes a message. Returns false if it is not queued. */
  remove(handle: SendHandle): boolean {
    const text = this.#messages.get(handle);
    if (text === undefined) return false;
    this.grow(-text.length - QUEUED_COST, handle);
    return this.#messages.delete(handle);
  }

  protected grow(by: number, _handle: SendHandle): void {
    this.#length += by;
  }

  /** Iterates in the order of adding, including messages that are added meanwhile. The current message may be removed. */
  [Symbol.iterator](): IterableIterator<[SendHandle, MessageText]> {
    return this.#messages.entries();
  }
}
