/** How many messages a second: a token bucket. */

/** Lets through `perSecond` of them a second, and as many at once after a quiet second. */
export class Rate {
  readonly #perSecond: number;
  #left: number;
  #filledAt = performance.now();

  constructor(perSecond: number) {
    this.#perSecond = perSecond;
    this.#left = perSecond;
  }

  /** Whether one more may pass. */
  take(): boolean {
    const now = performance.now();
    this.#left = Math.min(this.#perSecond, this.#left + ((now - this.#filledAt) / 1000) * this.#perSecond);
    this.#filledAt = now;
    if (this.#left < 1) return false;
    this.#left--;
    return true;
  }
}
