/** The delays between connection attempts. They are random, so that clients that were cut off together reconnect at different times. */
import { MAX_RETRY_MS } from "../session/frames.js";

/** The shortest delay after the first, which is zero. */
const MIN_MS = 100;
const FIRST_CAP_MS = 500;
const LAST_CAP_MS = 20_000;
/** A connection that lasted this long resets the delays when it is lost. */
const STABLE_MS = 5_000;

/** The delays of one client, one for each connection attempt. */
export class Backoff {
  readonly #random: () => number;
  #tries = 0;
  #openSince = Infinity;

  /** `random` returns a number from 0 to just below 1. */
  constructor(random: () => number = Math.random) {
    this.#random = random;
  }

  /** Records that a connection is open, and that `onOpen` is done. */
  opened(): void {
    this.#openSince = performance.now();
  }

  /** Makes the next delay 0, and the following ones short again. */
  reset(): void {
    this.#tries = 0;
  }

  /**
   * Returns the delay before the next attempt, in milliseconds: 0 before the first. With `retryMs`, a server asked for a random time up
   * to that: the longer of both counts. Otherwise a server that closes each connection at once would get attempts without end.
   */
  nextDelayMs(retryMs?: number): number {
    if (performance.now() - this.#openSince >= STABLE_MS) this.#tries = 0;
    this.#openSince = Infinity;
    const askedMs = retryMs ? this.#random() * Math.min(retryMs, MAX_RETRY_MS) : 0;
    const tries = this.#tries++;
    if (tries === 0) return askedMs;
    const cap = Math.min(FIRST_CAP_MS * 2 ** (tries - 1), LAST_CAP_MS);
    // The random number is drawn after the cap. A cap on the drawn number would give many clients the same delay.
    return Math.max(askedMs, MIN_MS + this.#random() * (cap - MIN_MS));
  }
}
