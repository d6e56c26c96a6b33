/**
 * Random delays between attempts: of a client to connect, of `follow` to join, of `presence` to send. So clients that were cut off together
 * come again at different times.
 */
import { MAX_RETRY_MS } from "../session/frames.js";

/** The range of the delays, in milliseconds. */
export interface DelayRange {
  /** The first delay is 0. The second is random, from this to twice this. */
  readonly minDelayMs: number;
  /** No delay is longer. At least twice `minDelayMs`. */
  readonly maxDelayMs: number;
}

/** The range of `follow` and `presence`, and of a client without `reconnect: { minDelayMs, maxDelayMs }`. */
export const DEFAULT_DELAYS: DelayRange = { minDelayMs: 250, maxDelayMs: 5_000 };

/**
 * A success that lasted this long resets the delays, whatever the range is. A shorter one does not, so that a server which ends each
 * connection soon is asked less and less often.
 */
const STABLE_MS = 5_000;

/** The delays of one loop of attempts. */
export class Backoff {
  readonly #range: DelayRange;
  #tries = 0;
  #succeededAt = Infinity;

  constructor(range = DEFAULT_DELAYS) {
    this.#range = range;
  }

  /** Records that an attempt has succeeded. */
  succeeded(): void {
    this.#succeededAt = performance.now();
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
    if (performance.now() - this.#succeededAt >= STABLE_MS) this.#tries = 0;
    this.#succeededAt = Infinity;
    const askedMs = retryMs ? Math.random() * Math.min(retryMs, MAX_RETRY_MS) : 0;
    const tries = this.#tries++;
    if (tries === 0) return askedMs;
    const { minDelayMs, maxDelayMs } = this.#range;
    const base = Math.min(minDelayMs * 2 ** (tries - 1), maxDelayMs / 2);
    // The random number is drawn after the limit. A limit on the drawn number would give many clients the same delay.
    return Math.max(askedMs, base + Math.random() * base);
  }
}
