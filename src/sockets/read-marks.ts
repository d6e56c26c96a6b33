/** Finding out that the other side has read what was sent: it answers a ping when it has read everything before it. */

/** Most marks that wait for their pongs: a client that answers no pings must not collect them. */
const MOST = 1024;

/** Most often a ping is sent: `ws` and reciproc close connections on which very many come. */
const PACE_MS = 5;

/** How long a ping may be unanswered before the next mark is set with another. */
const LOST_MS = 1000;

/** How far the other side of one WebSocket has read. One ping is on its way at a time, and marks that are set meanwhile share the next. */
export class ReadMarks {
  readonly #ping: (payload: string) => void;
  readonly #waiting: (() => void)[] = [];
  #lastSet = 0;
  /** The mark of the ping on its way; 0 if there is none. */
  #asked = 0;
  #askedAt = -LOST_MS;
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
    if (this.#asked === 0 || performance.now() - this.#askedAt > LOST_MS) this.#ask();
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
    this.#asked = 0;
    if (this.#waiting.length > 0) this.#ask();
    return true;
  }

  #ask(): void {
    if (this.#timer !== undefined) return;
    const now = performance.now();
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
    this.#ping(String(this.#asked));
  }
}
