/** Finding out that the other side has read what was sent: it answers a ping when it has read everything before it. */

/** Most marks that wait for their pongs: a client that answers no pings must not collect them. */
const MOST = 1024;

/** A ping is sent at most so often, and so many are on their way: `ws` and reciproc end connections on which very many come. */
const PACE_MS = 5;
const MOST_PINGS = 16;

/** How long the latest ping may be unanswered until the others are taken for lost. */
const LOST_MS = 1000;

/** How far the other side of one WebSocket has read. Marks that are set within `PACE_MS` share a ping. */
export class ReadMarks {
  readonly #ping: (payload: string) => void;
  readonly #waiting: (() => void)[] = [];
  #lastSet = 0;
  /** The mark of the latest ping, and when it was sent. */
  #asked = 0;
  #askedAt = -LOST_MS;
  /** The marks of the pings that are on their way, in order. */
  #onTheirWay: number[] = [];
  #timer: ReturnType<typeof setTimeout> | undefined;

  /** `ping` sends a ping behind everything that was sent before. */
  constructor(ping: (payload: string) => void) {
    this.#ping = ping;
  }

  /** Sets a mark: calls `then` when the other side has read what was sent so far. Returns false if too many marks wait. */
  set(then: () => void): boolean {
    if (this.#waiting.length === MOST) return false;
    this.#waiting.push(then);
    this.#lastSet++;
    this.#ask();
    return true;
  }

  /**
   * Takes a pong's payload. A pong may answer several pings: it is sent for the latest (RFC 6455, section 5.5.3). Returns true
   * if a mark waited for it.
   */
  reached(payload: string): boolean {
    const mark = Number(payload);
    if (mark > this.#asked) return false;
    const before = this.#waiting.length;
    while (this.#waiting.length > 0 && this.#lastSet - this.#waiting.length < mark) this.#waiting.shift()!();
    if (this.#waiting.length === before) return false;
    this.#onTheirWay = this.#onTheirWay.filter((one) => one > mark);
    this.#ask();
    return true;
  }

  /** Pings for the marks that no ping was sent for, at once or when it is time. */
  #ask(): void {
    if (this.#timer !== undefined || this.#asked === this.#lastSet) return;
    const now = performance.now();
    if (now - this.#askedAt > LOST_MS) this.#onTheirWay = [];
    if (this.#onTheirWay.length === MOST_PINGS) return;
    const waitMs = this.#askedAt + PACE_MS - now;
    if (waitMs > 0) {
      this.#timer = setTimeout(() => {
        this.#timer = undefined;
        this.#ask();
      }, waitMs);
      this.#timer.unref();
      return;
    }
    this.#asked = this.#lastSet;
    this.#askedAt = now;
    this.#onTheirWay.push(this.#asked);
    this.#ping(String(this.#asked));
  }
}
