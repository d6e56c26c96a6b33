/** Decides when the messages of a tick are sent, so that many of them share a write. */
import { atEndOfTick } from "../base/tick.js";

/** A buffer of this length is sent at once, in UTF-16 code units. */
export const MOST_COALESCED = 8192;

/** Coalesces the messages of one link. */
export class Coalescer {
  readonly #buffer: { flush(): void };
  readonly #firstMessages: number;
  /** The number of messages in this tick. */
  #count = 0;
  #isScheduled = false;
  /** True if the previous tick had a single message. Then the first message of this tick is sent at once. */
  #wasSingle = false;

  /** `firstMessages`: the buffer is flushed after that many messages of a tick, and again whenever their number has doubled. */
  constructor(buffer: { flush(): void }, firstMessages: number) {
    this.#buffer = buffer;
    this.#firstMessages = firstMessages;
  }

  /** Counts a message that was added to the buffer, whose length is now `length`. Returns whether the caller flushes the buffer now. */
  added(length: number): boolean {
    this.schedule();
    const count = ++this.#count;
    const isDue = count === 1 ? this.#wasSingle : count >= this.#firstMessages && (count & (count - 1)) === 0;
    return isDue || length >= MOST_COALESCED;
  }

  /** Flushes the buffer at the end of the tick. */
  schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    atEndOfTick(() => this.#endTick());
  }

  #endTick(): void {
    this.#isScheduled = false;
    this.#wasSingle = this.#count === 1;
    this.#count = 0;
    this.#buffer.flush();
  }
}
