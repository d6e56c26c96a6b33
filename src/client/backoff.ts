/** The delays between connection attempts. They are random, so that clients that were cut off together reconnect at different times. */
import { MAX_RETRY_MS } from "../session/frames.js";

/** The range of the delays, in milliseconds. */
export interface DelayRange {
  /** The shortest delay after the first, which is zero. */
  readonly minDelayMs: number;
  /** The longest delay, at least twice as long. */
  readonly maxDelayMs: number;
}

/** A connection that lasted this long resets the delays when it is lost. */
const STABLE_MS = 5_000;

/** The delays of one client, one for each connection attempt. */
export class Backoff {
  readonly #range: DelayRange;
  #tries = 0;
  #openSince = Infinity;

  constructor(range: DelayRange) {
    this.#range = range;
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
   * Returns the delay before the next attempt, in milliseconds: 0 before the first, and then a random one between a base and twice that. The
   * base doubles with each attempt. With `retryMs`, a server asked for a random time up to that: returns the longer of both times. If a
   * short `retryMs` replaced the delay, the delays would not grow while a server closes each connection at once.
   */
  nextDelayMs(retryMs?: number): number {
    if (performance.now() - this.#openSince >= STABLE_MS) this.#tries = 0;
    this.#openSince = Infinity;
    const askedMs = retryMs ? Math.random() * Math.min(retryMs, MAX_RETRY_MS) : 0;
    const tries = this.#tries++;
    if (tries === 0) return askedMs;
    const { minDelayMs, maxDelayMs } = this.#range;
    const base = Math.min(minDelayMs * 2 ** (tries - 1), maxDelayMs / 2);
    // The random number is drawn after the limit. A limit on the drawn number would give many clients the same delay.
    return Math.max(askedMs, base + Math.random() * base);
  }
}
