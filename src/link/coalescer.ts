/** Decides when the messages of one tick leave, so that many of them share a write. */
import { atEndOfTick, type TickEnd } from "./tick.js";

/** So many characters leave at once, however few the messages are. */
export const MOST_COALESCED = 8192;

/** What a coalescer flushes. */
interface Buffer {
  flush(): void;
}

/** The tick of one link. */
export class Coalescer implements TickEnd {
  readonly #buffer: Buffer;
  readonly #firstMessages: number;
  /** The messages of this tick. */
  #count = 0;
  #isScheduled = false;
  /** Whether the tick before had a single message. Then the first of this one does not wait for others. */
  #wasAlone = false;

  /** `firstMessages`: so many messages of a tick leave at once, and again whenever their number has doubled. */
  constructor(buffer: Buffer, firstMessages: number) {
    this.#buffer = buffer;
    this.#firstMessages = firstMessages;
  }

  /** Counts a message that was added to the buffer, whose length is now `length`, and flushes the buffer if it is time. */
  added(length: number): void {
    this.schedule();
    const count = ++this.#count;
    const isDue = count === 1 ? this.#wasAlone : count >= this.#firstMessages && (count & (count - 1)) === 0;
    if (isDue || length >= MOST_COALESCED) this.#buffer.flush();
  }

  /** Flushes the buffer at the end of the tick. */
  schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    atEndOfTick(this);
  }

  endTick(): void {
    this.#isScheduled = false;
    this.#wasAlone = this.#count === 1;
    this.#count = 0;
    this.#buffer.flush();
  }
}
