/** The log of a session: the frames that one end has numbered and the other has not acked, which it sends again on the next socket. */

/** How much it takes. */
interface LogLimits {
  readonly logFrames: number;
  /** In UTF-16 code units. */
  readonly logLength: number;
}

const NO_FRAMES: string[] = [];

/** Data frames from the first that is not acked to the last, numbered from 1. */
export class Log {
  readonly #limits: LogLimits;
  #frames = NO_FRAMES;
  #acked = 0;
  #length = 0;

  constructor(limits: LogLimits) {
    this.#limits = limits;
  }

  /** How many frames the other side has acked. */
  get acked(): number {
    return this.#acked;
  }

  /** The number of the newest frame; 0 for none. */
  get last(): number {
    return this.#acked + this.#frames.length;
  }

  /** The length of all frames in it. */
  get length(): number {
    return this.#length;
  }

  /** Whether no further frame is to be added. Not asked how long that one is: so the longest always fits into an empty log. */
  get isFull(): boolean {
    return this.#frames.length >= this.#limits.logFrames || this.#length >= this.#limits.logLength;
  }

  /** Gives `frame` the next number. */
  push(frame: string): void {
    // Most connections are idle, and an empty array that is pushed to makes room for seventeen and keeps it.
    if (this.#frames.length === 0) this.#frames = [frame];
    else this.#frames.push(frame);
    this.#length += frame.length;
  }

  /** The frame of that number, which is above `acked` and at most `last`. */
  at(number: number): string {
    return this.#frames[number - this.#acked - 1]!;
  }

  /** Forgets the first `count` frames. What was acked before stays so: acks may come late. */
  ackTo(count: number): void {
    if (count <= this.#acked) return;
    for (const frame of this.#frames.splice(0, count - this.#acked)) this.#length -= frame.length;
    this.#acked = count;
    if (this.#frames.length === 0) this.#frames = NO_FRAMES;
  }
}
