/** Detects how far the other side has read: it answers a ping once it has read all earlier frames. */

/** Maximum number of waiting marks. A client that answers no pings must not accumulate them. */
const MAX_MARKS = 1024;

/** Minimum time between pings, and maximum number of unanswered pings. `ws` and reciproc end connections with too many pings. */
const MIN_INTERVAL_MS = 5;
const MAX_PINGS = 16;

/** If the latest ping is unanswered for so long, all unanswered pings are considered lost. */
const LOST_MS = 1000;

/** Tracks how far the other side of one WebSocket has read. Marks that are set within `MIN_INTERVAL_MS` share a ping. */
export class ReadMarks {
  readonly #ping: (payload: string) => void;
  readonly #waiting: (() => void)[] = [];
  #lastSet = 0;
  /** The mark of the latest ping, and the time when it was sent. */
  #pinged = 0;
  #pingedAt = -LOST_MS;
  /** The marks of the unanswered pings, in order. */
  #unanswered: number[] = [];
  #timer: ReturnType<typeof setTimeout> | undefined;

  /** `ping` sends a ping after all earlier frames. */
  constructor(ping: (payload: string) => void) {
    this.#ping = ping;
  }

  /** Sets a mark: calls `then` when the other side has read all frames sent so far. Returns false if too many marks wait. */
  set(then: () => void): boolean {
    if (this.#waiting.length === MAX_MARKS) return false;
    this.#waiting.push(then);
    this.#lastSet++;
    this.#pingIfDue();
    return true;
  }

  /**
   * Takes the payload of a pong. A pong may answer several pings, with the payload of the latest (RFC 6455, section 5.5.3).
   * Returns true if a mark waited for the pong.
   */
  reached(payload: string): boolean {
    const mark = Number(payload);
    if (mark > this.#pinged) return false;
    const before = this.#waiting.length;
    while (this.#waiting.length > 0 && this.#lastSet - this.#waiting.length < mark) this.#waiting.shift()!();
    if (this.#waiting.length === before) return false;
    this.#unanswered = this.#unanswered.filter((one) => one > mark);
    this.#pingIfDue();
    return true;
  }

  /** Sends a ping for the marks without one, at once or when `MIN_INTERVAL_MS` have passed. */
  #pingIfDue(): void {
    if (this.#timer !== undefined || this.#pinged === this.#lastSet) return;
    const now = performance.now();
    if (now - this.#pingedAt > LOST_MS) this.#unanswered = [];
    if (this.#unanswered.length === MAX_PINGS) return;
    const waitMs = this.#pingedAt + MIN_INTERVAL_MS - now;
    if (waitMs > 0) {
      this.#timer = setTimeout(() => {
        this.#timer = undefined;
        this.#pingIfDue();
      }, waitMs);
      this.#timer.unref();
      return;
    }
    this.#pinged = this.#lastSet;
    this.#pingedAt = now;
    this.#unanswered.push(this.#pinged);
    this.#ping(String(this.#pinged));
  }
}
