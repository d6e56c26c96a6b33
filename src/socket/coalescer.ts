/** Decides when the messages of a tick are sent, so that many of them share a write. A tick ends with one microtask for all tasks. */
import { uncaught } from "../base/tell.js";

/** A buffer of this length is sent at once, in UTF-16 code units. */
export const MOST_COALESCED = 8192;

/** Coalesces the messages of one link. */
export class Coalescer {
  readonly #buffer: { flush(): void };
  readonly #firstMessages: number;
  /** The tick of the newest message, and the number of messages in it. */
  #tick = -1;
  #count = 0;
  /** True if the buffer is flushed at the end of the tick. */
  #isScheduled = false;
  /** True if the tick with messages before that one had a single message. Then the first message of the tick is sent at once. */
  #wasSingle = false;

  /** `firstMessages`: the buffer is flushed after that many messages of a tick, and again whenever their number has doubled. */
  constructor(buffer: { flush(): void }, firstMessages: number) {
    this.#buffer = buffer;
    this.#firstMessages = firstMessages;
  }

  /**
   * Counts a message, with which the buffer has that `length`. Returns whether the caller sends it now, with the buffer. Otherwise, the
   * buffer is flushed at the end of the tick.
   */
  countMessage(length: number): boolean {
    const present = currentTick();
    if (this.#tick !== present) {
      this.#tick = present;
      this.#wasSingle = this.#count === 1;
      this.#count = 0;
    }
    const count = ++this.#count;
    const isDue = count === 1 ? this.#wasSingle : count >= this.#firstMessages && (count & (count - 1)) === 0;
    if (isDue || length >= MOST_COALESCED) return true;
    this.schedule();
    return false;
  }

  /** Flushes the buffer at the end of the tick. */
  schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    atEndOfTick(() => {
      this.#isScheduled = false;
      this.#buffer.flush();
    });
  }
}

let queued: (() => void)[] = [];

/** `queueMicrotask` of Node makes an AsyncResource for each call. A resolved promise takes a third of that time. */
const resolved = Promise.resolve();

/**
 * Calls `task` after the present code and the microtasks that it has queued. Tasks run in order. An error that one throws is reported as
 * uncaught, and the others still run.
 */
export function atEndOfTick(task: () => void): void {
  if (queued.push(task) === 1) void resolved.then(endTick);
}

function endTick(): void {
  // A task that is added meanwhile runs in a later microtask.
  const due = queued;
  queued = [];
  for (const task of due) {
    try {
      task();
    } catch (error) {
      uncaught(error);
    }
  }
}

let tick = 0;
/** True if the next tick is counted already. */
let isCounted = false;

/** Returns the number of the present tick, which differs from that of the previous one in which it was asked for. */
export function currentTick(): number {
  if (!isCounted) {
    isCounted = true;
    void resolved.then(countTick);
  }
  return tick;
}

function countTick(): void {
  tick++;
  isCounted = false;
}
