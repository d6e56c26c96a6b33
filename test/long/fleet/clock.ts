/** A clock that stands still while its process does: because the process is stopped, or because the machine has no time for it. */

/** How often the clock looks whether the process runs. */
const STEP_MS = 50;
/** A longer step is a time in which the process did not run. */
const LONGEST_STEP_MS = 2 * STEP_MS;

export class RunClock {
  /** How long the process has run, in milliseconds, as a multiple of about 50. */
  ms = 0;
  /** The longest time in which the process did not run. */
  longestStopMs = 0;
  #lookedAt = performance.now();
  readonly #timer = setInterval(() => this.#look(), STEP_MS);

  #look(): void {
    const now = performance.now();
    const stepMs = now - this.#lookedAt;
    this.#lookedAt = now;
    this.ms += Math.min(stepMs, LONGEST_STEP_MS);
    this.longestStopMs = Math.max(this.longestStopMs, stepMs);
  }

  stop(): void {
    clearInterval(this.#timer);
  }
}
