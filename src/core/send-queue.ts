/** Messages that wait to be sent, and can be taken back until then. */
import type { SendHandle } from "./transport.js";

/** What a message that waits costs besides its text: many small ones must not be cheap. */
export const QUEUED_COST = 64;

/** The handle of a broadcast, which waits beside the ordinary messages and takes no room from them. */
export class BroadcastHandle implements SendHandle {
  sent = false;
}

/** A queue out of which a message can be taken back. */
export class SendQueue {
  /** By handle, in the order they came. */
  readonly #messages = new Map<SendHandle, string>();
  #length = 0;
  #broadcastLength = 0;

  /** The length of all texts, and `QUEUED_COST` for each. */
  get length(): number {
    return this.#length;
  }

  /** The part of `length` that broadcasts have. */
  get broadcastLength(): number {
    return this.#broadcastLength;
  }

  /** Adds a message; answers what `length` has grown by. */
  add(text: string, handle: SendHandle = { sent: false }): number {
    handle.sent = false;
    this.#messages.set(handle, text);
    const cost = text.length + QUEUED_COST;
    this.#grow(cost, handle);
    return cost;
  }

  /** Takes a message out, wherever it stands; answers what `length` has shrunk by, 0 when it is not there. */
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

  /** In the order they came, those that are added meanwhile included. One may be removed when it is handed out. */
  [Symbol.iterator](): Iterator<[SendHandle, string]> {
    return this.#messages.entries();
  }
}
