/** A clock that only the test advances, for tests of timeouts, heartbeats, expiry and reconnecting. */
import { LONGEST_DELAY_MS } from "../base/deadlines.js";
import { expected } from "../message/errors.js";
import { nextTick } from "./tick.js";

/** The time of a test. `virtualClock` makes it. */
export interface VirtualClock extends Disposable {
  /** The milliseconds that have passed since `virtualClock()` was called. */
  readonly now: number;
  /** The number of timers that are set. If it is 0 after everything was closed, no timer was left. */
  readonly timers: number;
  /**
   * Lets so many milliseconds pass. Fires each due timer at its own time, in order, and lets everything that follows from it happen
   * before the next one: promises, and messages of the network in memory. `pass(0)` fires the timers that are due now. Calls that
   * overlap run one after the other. Rejects with a `TypeError` if `ms` is not a finite number from 0.
   */
  pass(ms: number): Promise<void>;
  /**
   * Lets the process or the page stand still for so long, as in a debugger or a frozen tab: time passes, and no timer fires. Those that
   * are due meanwhile fire late, in the next `pass`. Throws a `TypeError` if `ms` is not a finite number from 0.
   */
  stall(ms: number): void;
  /** Gives the runtime its own clock back. Timers that are still set never fire. Does nothing the second time. */
  restore(): void;
}

/** The globals that a clock replaces, besides `performance.now`. */
interface Timers {
  setTimeout: (run: (...args: any[]) => void, delayMs?: number, ...args: any[]) => unknown;
  setInterval: (run: (...args: any[]) => void, delayMs?: number, ...args: any[]) => unknown;
  clearTimeout: (timer: any) => void;
  clearInterval: (timer: any) => void;
}

/** The clock that is in place. */
let present: Clock | undefined;

/**
 * Replaces `setTimeout`, `setInterval`, their `clear` functions and `performance.now` of the runtime by a clock that stands still
 * until the test advances it. reciproc has no other source of time. `Date`, `setImmediate` and the modules of Node stay as they
 * are, and timers that were set before are real. Throws a `TypeError` if a virtual clock is in place already.
 *
 * ```js
 * using clock = virtualClock();
 * const call = client.request("slow", undefined, { timeoutMs: 5_000 });
 * await Promise.all([assert.rejects(call), clock.pass(5_000)]);
 * ```
 */
export function virtualClock(): VirtualClock {
  if (present !== undefined) throw new TypeError("Expected one virtual clock at a time, got a second one");
  return (present = new Clock());
}

/** What `setTimeout` returns while a virtual clock is in place. It has the functions that timers have in Node. */
class Timer {
  readonly run: () => void;
  readonly delayMs: number;
  readonly isRepeated: boolean;
  dueMs = 0;
  readonly #clock: Clock;
  #keepsAlive = true;

  constructor(clock: Clock, run: () => void, delayMs: number, isRepeated: boolean) {
    this.#clock = clock;
    this.run = run;
    this.delayMs = delayMs;
    this.isRepeated = isRepeated;
  }

  ref(): this {
    this.#keepsAlive = true;
    return this;
  }

  unref(): this {
    this.#keepsAlive = false;
    return this;
  }

  hasRef(): boolean {
    return this.#keepsAlive;
  }

  refresh(): this {
    this.#clock.start(this);
    return this;
  }
}

function checkDuration(ms: number): void {
  if (!(ms >= 0 && ms < Infinity)) throw expected("ms", "a finite number from 0", ms);
}

class Clock implements VirtualClock {
  now = 0;
  readonly #real: Timers;
  readonly #realNow: typeof performance.now;
  /** In the order in which they were set. */
  readonly #timers = new Set<Timer>();
  /** Settles when the last `pass` has ended. */
  #passed: Promise<unknown> = Promise.resolve();

  constructor() {
    const globals = globalThis as unknown as Timers;
    const { setTimeout, setInterval, clearTimeout, clearInterval } = globals;
    this.#real = { setTimeout, setInterval, clearTimeout, clearInterval };
    // Whole numbers of milliseconds, so that sums are exact.
    const startedAt = Math.ceil(performance.now());
    // oxlint-disable-next-line typescript/unbound-method -- it is assigned back to the same object.
    this.#realNow = performance.now;
    performance.now = () => startedAt + this.now;
    globals.setTimeout = (run, delayMs, ...args) => this.#set(() => run(...args), delayMs, false);
    globals.setInterval = (run, delayMs, ...args) => this.#set(() => run(...args), delayMs, true);
    globals.clearTimeout = globals.clearInterval = (timer) => {
      if (timer instanceof Timer) this.#timers.delete(timer);
      else clearTimeout(timer);
    };
  }

  get timers(): number {
    return this.#timers.size;
  }

  async pass(ms: number): Promise<void> {
    checkDuration(ms);
    const passed = this.#passed.then(() => this.#passUntil(this.now + ms));
    this.#passed = passed.catch(() => {});
    await passed;
  }

  stall(ms: number): void {
    checkDuration(ms);
    this.now += ms;
  }

  restore(): void {
    if (present !== this) return;
    present = undefined;
    Object.assign(globalThis, this.#real);
    performance.now = this.#realNow;
  }

  [Symbol.dispose](): void {
    this.restore();
  }

  start(timer: Timer): void {
    this.#timers.delete(timer);
    this.#timers.add(timer);
    timer.dueMs = this.now + timer.delayMs;
  }

  /** As in every runtime, a fraction of a millisecond is dropped, and a delay that is too long counts as 1 ms. */
  #set(run: () => void, delay: number | undefined, isRepeated: boolean): Timer {
    const delayMs = Number(delay) > LONGEST_DELAY_MS ? 1 : Math.max(Math.trunc(Number(delay)) || 0, isRepeated ? 1 : 0);
    const timer = new Timer(this, run, delayMs, isRepeated);
    this.start(timer);
    return timer;
  }

  async #passUntil(endMs: number): Promise<void> {
    await nextTick();
    for (let timer = this.#first(); timer !== undefined && timer.dueMs <= endMs; timer = this.#first()) {
      this.now = Math.max(this.now, timer.dueMs);
      if (timer.isRepeated) this.start(timer);
      else this.#timers.delete(timer);
      timer.run();
      await nextTick();
    }
    this.now = Math.max(this.now, endMs);
    await nextTick();
  }

  /** Returns the timer that is due first. Of several that are due at the same time, the one that was set first. */
  #first(): Timer | undefined {
    let first: Timer | undefined;
    for (const timer of this.#timers) if (first === undefined || timer.dueMs < first.dueMs) first = timer;
    return first;
  }
}
