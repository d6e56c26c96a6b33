/** One direction of a connection in memory: carries items in order, at the speed that the test sets. */

import { LONGEST_DELAY_MS } from "../base/deadlines.js";
import { inMicrotask } from "../base/promises.js";

/** How a line of the network carries data. All pipes of a line share one, which the test changes. */
export interface Flow {
  /** True while nothing passes. */
  isStopped: boolean;
  /** `Infinity`: everything passes at once. */
  bytesPerSecond: number;
}

/** A frame, a close or a part of the handshake. */
interface Item {
  readonly bytes: number;
  /** The bytes that have not passed yet. */
  left: number;
  readonly arrive: () => void;
}

/**
 * Carries items in order. At full speed, an item arrives in a microtask, never inside `push`. At a limited speed, it arrives when its
 * last byte has passed, by `setTimeout` and `performance.now`.
 */
export class Pipe {
  readonly #flow: Flow;
  readonly #arrived: () => void;
  readonly #items: Item[] = [];
  #bytes = 0;
  /** When the bytes of the first item began to pass, or were last counted. */
  #countedAt = 0;
  /** The speed at that time. */
  #speed = Infinity;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #isScheduled = false;

  /** `arrived` is called before each item arrives. */
  constructor(flow: Flow, arrived: () => void) {
    this.#flow = flow;
    this.#arrived = arrived;
  }

  /** The bytes of the items that have not arrived. At full speed, a pipe is never full. */
  get unsentBytes(): number {
    return this.#flow.isStopped || this.#flow.bytesPerSecond < Infinity ? this.#bytes : 0;
  }

  /** Sends an item after all others. */
  push(bytes: number, arrive: () => void): void {
    const isFirst = this.#items.length === 0;
    if (isFirst) this.#countedAt = performance.now();
    this.#items.push({ bytes, left: bytes, arrive });
    this.#bytes += bytes;
    if (isFirst) this.flowChanged();
  }

  /** Drops all items. */
  clear(): void {
    this.#items.length = this.#bytes = 0;
    this.#stopTimer();
  }

  /** Continues at the present speed. */
  flowChanged(): void {
    this.#count();
    this.#stopTimer();
    const { isStopped, bytesPerSecond } = this.#flow;
    this.#speed = isStopped ? 0 : bytesPerSecond;
    const [first] = this.#items;
    if (first === undefined || isStopped) return;
    if (bytesPerSecond === Infinity || first.left === 0) return this.#schedule();
    const ms = Math.ceil((first.left * 1000) / bytesPerSecond);
    this.#timer = setTimeout(() => this.#deliver(), Math.min(ms, LONGEST_DELAY_MS));
  }

  #schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    inMicrotask(() => {
      this.#isScheduled = false;
      this.#deliver();
    });
  }

  /** Counts the bytes that have passed since the last call. */
  #count(): void {
    const now = performance.now();
    let passed = this.#speed === Infinity ? 0 : ((now - this.#countedAt) * this.#speed) / 1000;
    this.#countedAt = now;
    for (const item of this.#items) {
      const part = Math.min(item.left, passed);
      item.left -= part;
      passed -= part;
      if (passed <= 0) return;
    }
  }

  /** Delivers the items that have passed, and then continues. */
  #deliver(): void {
    this.#count();
    // A handler may stop the flow, or change its speed.
    while (this.#items.length > 0 && this.#mayPass(this.#items[0]!)) {
      const { bytes, arrive } = this.#items.shift()!;
      this.#bytes -= bytes;
      this.#arrived();
      arrive();
    }
    this.flowChanged();
  }

  #mayPass({ left }: Item): boolean {
    return !this.#flow.isStopped && (left === 0 || this.#flow.bytesPerSecond === Infinity);
  }

  #stopTimer(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }
}
