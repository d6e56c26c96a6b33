/**
 * The term of a primary: the time in which no other server can have replaced it. A cluster or Sentinels replace a primary that was silent
 * for a certain time. A primary that was stopped does not notice that: when it continues, it first runs the commands in its sockets, and
 * what it acknowledges then is lost. So each script carries the end of the term by the clock of that server, which refuses it after that.
 */

/** The share of the silence in which scripts may run after the last reply of the server. */
const SCRIPTS_SHARE = 3 / 4;
/** How many times a link requests `TIME` in the silence. */
const TIMES = 4;
/** The share of the silence after which a link gives up a server that does not answer, so that it does so before the server is replaced. */
const PATIENCE_SHARE = 1 / 2;

/** The term of one primary. Times in microseconds are of its own clock. */
export class Term {
  /** How long the primary must be silent until it is replaced, in milliseconds. */
  readonly #silenceMs: number;
  #receivedUs: number;

  constructor(silenceMs: number, receivedUs: number) {
    this.#silenceMs = silenceMs;
    this.#receivedUs = receivedUs;
  }

  /** How long to wait until the server is asked for its time again, in milliseconds. */
  get periodMs(): number {
    return this.#silenceMs / TIMES;
  }

  /** How long the server may leave a command unanswered, in milliseconds. */
  get patienceMs(): number {
    return this.#silenceMs * PATIENCE_SHARE;
  }

  /** The last moment at which a script may run. */
  get endUs(): number {
    return this.#receivedUs + Math.floor(this.#silenceMs * 1_000 * SCRIPTS_SHARE);
  }

  /** Returns true if the server answered before the end of an earlier term. */
  continues(before: Term): boolean {
    return this.#receivedUs <= before.endUs;
  }

  /** Takes the time of the server. Returns false if the server may have been replaced since it answered last. */
  answered(timeUs: number): boolean {
    if (timeUs > this.endUs) return false;
    this.#receivedUs = timeUs;
    return true;
  }
}
