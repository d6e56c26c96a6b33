/** How long a client waits before it connects again, so that many that were cut off together do not come back together. */

/** Shortest wait but for the first, which is none. */
const MIN_MS = 100;
const FIRST_CAP_MS = 500;
const LAST_CAP_MS = 20_000;
/** A connection that lasted so long begins the row anew when it is lost. */
const STABLE_MS = 5_000;

/** The waits of one client, one for each try. */
export class Backoff {
  readonly #random: () => number;
  #tries = 0;
  #openSince = Infinity;

  /** `random` answers a number from 0 to just below 1. */
  constructor(random: () => number = Math.random) {
    this.#random = random;
  }

  /** The connection is open: messages flow. */
  opened(): void {
    this.#openSince = performance.now();
  }

  /** How long to wait before the next try, in milliseconds: not at all before the first. */
  nextDelayMs(): number {
    if (performance.now() - this.#openSince >= STABLE_MS) this.#tries = 0;
    this.#openSince = Infinity;
    const tries = this.#tries++;
    if (tries === 0) return 0;
    const cap = Math.min(FIRST_CAP_MS * 2 ** (tries - 1), LAST_CAP_MS);
    // Drawn after the cap: cutting what was drawn would gather everybody at the cap.
    return MIN_MS + this.#random() * (cap - MIN_MS);
  }
}
