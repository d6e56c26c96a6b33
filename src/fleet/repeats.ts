/**
 * Frames that are sent again until they are received, because their receiver or the broker may be away for a moment. They do not wait
 * for the connection among the commands of the application, whose number is bounded.
 */
import { utf8Bytes } from "../message/codec.js";
import { clearDeadline, setDeadline, type Expiring } from "../base/deadlines.js";
import type { Channel } from "../topics/engine.js";
import type { Broker } from "./broker.js";

/** The delay before a frame is sent again: twice as long each time. */
export const FIRST_MS = 100;
const LAST_MS = 3_000;
/** How many frames are sent at once when the connection is restored, so that the application keeps its room. */
const MOST_AT_ONCE = 1_000;

/** Frames that a node repeats. Their receivers take a frame that comes twice once. */
export class Repeats {
  readonly #broker: Broker;
  readonly #most: number;
  readonly #maxLength: number;
  /** What ends each wait until a frame is sent again, the oldest first: the frame is sent then, or never again. */
  readonly #waiting = new Set<(isAgain: boolean) => void>();
  #length = 0;
  #isStopped = false;

  /**
   * `most`: how many frames wait. `maxLength`: their length together, in UTF-16 code units. One may have any length. A frame beyond that is
   * dropped.
   */
  constructor(broker: Broker, most: number, maxLength: number) {
    this.#broker = broker;
    this.#most = most;
    this.#maxLength = maxLength;
  }

  /**
   * Sends a frame at once, and repeats it for `forMs` until `isReceived` returns true for the number of nodes that have received it:
   * `undefined` from a broker that has taken it and counts none, and 0 each time that `isDue` returns false and the frame is not sent. Never
   * rejects.
   */
  async send(
    channel: Channel,
    frameNow: () => string,
    forMs: number,
    isReceived: (count?: number) => boolean,
    isDue = (): boolean => true,
  ): Promise<void> {
    const broker = this.#broker;
    const until = performance.now() + forMs;
    for (let delayMs = FIRST_MS; ; delayMs = Math.min(delayMs * 2, LAST_MS)) {
      const frame = frameNow();
      const send = (): Promise<number | undefined> => broker.connection.send(channel, frame);
      // A frame that may have been received is sent again too.
      const isEnded = isDue() ? await broker.now(send, utf8Bytes(frame)).then(isReceived, () => false) : isReceived(0);
      if (this.#isStopped || isEnded || performance.now() + delayMs > until) return;
      if (!(await this.#wait(delayMs, frame.length))) return;
    }
  }

  /** Resolves with whether a frame of that length is sent again. */
  async #wait(delayMs: number, length: number): Promise<boolean> {
    const { size } = this.#waiting;
    if (size >= this.#most || (size > 0 && this.#length + length > this.#maxLength)) {
      this.#broker.counts.dropped++;
      return false;
    }
    return new Promise((resolve) => {
      const end = (isAgain: boolean): void => {
        clearDeadline(timer);
        this.#waiting.delete(end);
        this.#length -= length;
        resolve(isAgain);
      };
      const timer: Expiring = { deadline: 0, expire: () => end(true) };
      this.#waiting.add(end);
      this.#length += length;
      setDeadline(timer, delayMs);
    });
  }

  /** The connection is restored. */
  up(): void {
    for (const end of [...this.#waiting].slice(0, MOST_AT_ONCE)) end(true);
  }

  /** Sends nothing again any more. */
  stop(): void {
    this.#isStopped = true;
    for (const end of this.#waiting) end(false);
  }
}
