/**
 * How long a primary is certainly still one. The servers of a cluster, and Sentinels, replace a primary that was silent for a certain
 * time. If it was only stopped, it does not know that when it goes on, and runs first what came meanwhile: what it acknowledges then is
 * lost. So each script is told until when it may run, by the clock of that server: for three quarters of that time after the server was
 * heard last.
 */

/** The part of the time after which a primary is replaced in which it is certainly still one. */
const CERTAIN_SHARE = 3 / 4;
/** How often a primary is heard in that time. */
const HEARD_TIMES = 4;

/** The reign of one primary. Times in microseconds are of its own clock. */
export class Reign {
  /** How long a primary must be silent until it is replaced, in milliseconds. */
  readonly silenceMs: number;
  #heardUs: number;

  constructor(silenceMs: number, heardUs: number) {
    this.silenceMs = silenceMs;
    this.#heardUs = heardUs;
  }

  /** How often to ask the server for its time, in milliseconds. */
  get periodMs(): number {
    return this.silenceMs / HEARD_TIMES;
  }

  /** The last moment at which a script may run. */
  get endUs(): number {
    return this.#heardUs + Math.floor(this.silenceMs * 1_000 * CERTAIN_SHARE);
  }

  /** Takes the time of the server. Returns false if the server may have been replaced since it was heard before. */
  hear(timeUs: number): boolean {
    if (timeUs > this.endUs) return false;
    this.#heardUs = timeUs;
    return true;
  }
}
