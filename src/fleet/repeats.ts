/**
 * Frames that are sent again until they are received, because their receiver or the broker may be away for a moment. They do not wait
 * for the connection among the commands of the application, whose number is bounded.
 */
import { utf8Bytes } from "../message/codec.js";
import { clearDeadline, setDeadline, type Expiring } from "../base/deadlines.js";
import type { Channel } from "./engine.js";
import type { FleetNode } from "./node.js";

/** The delay before a frame is sent again: twice as long each time. */
export const FIRST_MS = 100;
const LAST_MS = 3_000;
/** How many frames wait, and their length together, in UTF-16 code units. One may have any length. Beyond, the oldest is dropped. */
const MOST = 10_000;
const MAX_LENGTH = 16 * 2 ** 20;

/** One frame, until it is received or its time has passed. */
interface Repeat extends Expiring {
  delayMs: number;
  readonly channel: Channel;
  readonly frame: string;
  readonly until: number;
  readonly isReceived: (count: number) => boolean;
}

/** The frames that a node repeats. Their receivers take a frame that comes twice once. */
export class Repeats {
  readonly #node: FleetNode;
  /** Those that are to be sent again, the oldest first. */
  readonly #waiting = new Set<Repeat>();
  #length = 0;
  #isStopped = false;

  constructor(node: FleetNode) {
    this.#node = node;
  }

  /**
   * Sends a frame at once, and repeats it for `forMs` until `isReceived` returns true for the number of nodes that have received it. A
   * broker that counts none gets the frame until it has taken it.
   */
  send(channel: Channel, frame: string, forMs: number, isReceived: (count: number) => boolean): void {
    const until = performance.now() + forMs;
    const expire = (): void => this.#again(repeat);
    const repeat: Repeat = { deadline: 0, expire, delayMs: FIRST_MS, channel, frame, until, isReceived };
    void this.#send(repeat);
  }

  #again(repeat: Repeat): void {
    this.#forget(repeat);
    void this.#send(repeat);
  }

  /** The connection is restored. */
  up(): void {
    for (const repeat of Array.from(this.#waiting)) this.#again(repeat);
  }

  /** Sends nothing again any more. */
  stop(): void {
    this.#isStopped = true;
    for (const repeat of this.#waiting) this.#forget(repeat);
  }

  /** Never rejects. */
  async #send(repeat: Repeat): Promise<void> {
    const { channel, frame, delayMs, until } = repeat;
    const { broker } = this.#node;
    const sending = broker.now(() => broker.connection.send(channel, frame), utf8Bytes(frame));
    // A frame that may have been received is sent again too.
    const count = await sending.catch(() => 0);
    if (this.#isStopped || count === undefined || repeat.isReceived(count) || performance.now() + delayMs > until)
      return;
    for (const oldest of this.#waiting) {
      if (this.#waiting.size < MOST && this.#length + frame.length <= MAX_LENGTH) break;
      this.#forget(oldest);
      this.#node.counts.dropped++;
    }
    this.#waiting.add(repeat);
    this.#length += frame.length;
    setDeadline(repeat, delayMs);
    repeat.delayMs = Math.min(delayMs * 2, LAST_MS);
  }

  #forget(repeat: Repeat): void {
    clearDeadline(repeat);
    if (this.#waiting.delete(repeat)) this.#length -= repeat.frame.length;
  }
}
