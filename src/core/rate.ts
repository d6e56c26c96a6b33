/** Counting events over time. */

/** A token bucket: lets through `perSecond` events a second, and as many at once after a quiet second. */
export class Rate {
  readonly #perSecond: number;
  #left: number;
  #filledAt = performance.now();

  constructor(perSecond: number) {
    this.#perSecond = perSecond;
    this.#left = perSecond;
  }

  /** Takes one event. Returns false if it is one too many. */
  take(): boolean {
    const now = performance.now();
    this.#left = Math.min(this.#perSecond, this.#left + ((now - this.#filledAt) / 1000) * this.#perSecond);
    this.#filledAt = now;
    if (this.#left < 1) return false;
    this.#left--;
    return true;
  }
}

const MINUTE_MS = 60_000;

/** Counts events within a minute, counted from the first. */
export class MinuteCount {
  #count = 0;
  #since = 0;

  /** Adds one event. Returns how many there were within the minute. */
  add(): number {
    const now = performance.now();
    if (this.#count === 0 || now - this.#since > MINUTE_MS) {
      this.#since = now;
      this.#count = 0;
    }
    return ++this.#count;
  }
}
