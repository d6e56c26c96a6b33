/**
 * The reply to an incoming batch: one array, in request order, sent when every request in it is answered (section 6).
 */
import { utf8Bytes } from "./codec.js";

/** Where an answer goes: a place in a batch's reply. */
export interface Slot {
  readonly reply: BatchReply;
  readonly index: number;
}

/** Gathers the answers to one batch. */
export class BatchReply {
  readonly #answers: string[] = [];
  readonly #send: (text: string) => void;
  #bytesLeft: number;
  /** Answers that are still to come, and one for whoever reserves the places. */
  #waiting = 1;

  /** `send` is called once, when the last answer is in; never, when nothing in the batch is owed one. */
  constructor(maxBytes: number, send: (text: string) => void) {
    this.#bytesLeft = maxBytes - 1;
    this.#send = send;
  }

  /** Reserves the next place. */
  slot(): Slot {
    this.#waiting++;
    return { reply: this, index: this.#answers.push("") - 1 };
  }

  /** Whether an answer still fits; if so, its bytes and its comma are taken from what is left. */
  fits(text: string): boolean {
    const bytes = utf8Bytes(text) + 1;
    if (bytes > this.#bytesLeft) return false;
    this.#bytesLeft -= bytes;
    return true;
  }

  /** Fills a place. */
  put(index: number, text: string): void {
    this.#answers[index] = text;
    this.#countDown();
  }

  /** All places are reserved. */
  complete(): void {
    this.#countDown();
  }

  #countDown(): void {
    if (--this.#waiting === 0 && this.#answers.length > 0) this.#send(`[${this.#answers.join(",")}]`);
  }
}
