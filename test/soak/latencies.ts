/** Records the durations of any number of calls in constant memory. */

/** The ratio between neighbouring classes: a percentile is off by half of that at most. */
const GROWTH = 1.02;
const SHORTEST_MS = 0.01;

export class Latencies {
  readonly #counts: number[] = [];
  #total = 0;
  #longestMs = 0;

  add(ms: number): void {
    const at = Math.max(0, Math.round(Math.log(ms / SHORTEST_MS) / Math.log(GROWTH)));
    this.#counts[at] = (this.#counts[at] ?? 0) + 1;
    this.#total++;
    this.#longestMs = Math.max(this.#longestMs, ms);
  }

  /** Returns the duration that `share` of all calls did not exceed, in milliseconds. */
  percentile(share: number): number {
    let left = share * this.#total;
    for (const [at, count] of this.#counts.entries()) {
      left -= count ?? 0;
      if (left <= 0 && count !== undefined) return rounded(SHORTEST_MS * GROWTH ** at);
    }
    return 0;
  }

  summary(): { p50: number; p99: number; longest: number } {
    return { p50: this.percentile(0.5), p99: this.percentile(0.99), longest: rounded(this.#longestMs) };
  }
}

function rounded(ms: number): number {
  return Number(ms.toPrecision(3));
}
