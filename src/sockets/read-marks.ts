/** Finding out that the other side has read what was sent: it answers a ping when it has read everything before it. */

/** Most marks that wait for their pongs: a client that answers no pings must not collect them. */
const MOST = 256;

/** The pings of one WebSocket that mark how far the other side has read. Each holds the mark's number. */
export class ReadMarks {
  #lastSet = 0;
  readonly #waiting: (() => void)[] = [];

  /** Sets a mark. Returns the payload of the ping to send, or `undefined` if too many marks wait. */
  set(then: () => void): string | undefined {
    if (this.#waiting.length === MOST) return undefined;
    this.#waiting.push(then);
    return String(++this.#lastSet);
  }

  /**
   * Takes a pong's payload. A pong may answer several pings: it is sent for the latest (RFC 6455, section 5.5.3). Returns true
   * if a mark waited for it.
   */
  reached(payload: string): boolean {
    const mark = Number(payload);
    const before = this.#waiting.length;
    while (this.#waiting.length > 0 && this.#lastSet - this.#waiting.length < mark) this.#waiting.shift()!();
    return this.#waiting.length < before;
  }
}
