/**
 * Bounds how long one connection is processed in one tick of the event loop. Without a bound, `libuv` reads up to 2 MiB of one
 * socket before it reads another, and all of it would be processed at once.
 */

/** How long a connection is processed in one tick. With 4 ms, echoes of 64 KB, 8 at a time, were 6 % slower. */
const BUDGET_MS = 6;
/** While messages are this quick, the clock is read for every eighth message of a pack or a batch: one reading takes 40 ns. */
const QUICK_MS = 0.02;
const QUICK_MESSAGES = 8;

/** A socket whose reading can be paused. */
export interface Pausable {
  /** When data last came from the other side. Deferred data counts until it is processed. */
  receivedAt: number;
  pauseReading(): void;
  resumeReading(): void;
  /** Processes a part of the data that was read from the system since `pauseReading`. Returns false if there is none. */
  readPart(): boolean;
}

type Work = () => void;
const NO_WORK: Work[] = [];

/** Taken when this file is loaded, so that a budget works under the fake timers of a test. */
const { setImmediate } = globalThis;

/** Counts the ticks in which a budget was started. */
let loopTick = 0;
let isTickScheduled = false;

/** Returns the number of the present tick. A tick ends with its immediates. */
function currentLoopTick(): number {
  if (!isTickScheduled) {
    isTickScheduled = true;
    setImmediate(() => {
      isTickScheduled = false;
      loopTick++;
    });
  }
  return loopTick;
}

/**
 * The budget of one connection, and its deferred work, in order. While work is deferred, the socket is not read, so at most two
 * reads of 64 KiB are buffered here and in the socket.
 */
export class ReadBudget {
  #socket: Pausable | undefined;
  /** The deferred work, from `#next` on. It begins with `#deferred` parts that the present work has deferred. */
  #queue = NO_WORK;
  #next = 0;
  #deferred = 0;
  /** True if the budget of this tick is spent and the deferred work continues in the next tick. */
  #isSpent = false;
  /** The tick in which the budget was last started, and the time of that start. */
  #tick = -1;
  #since = -BUDGET_MS;
  /** Messages until the clock is read again, and its last reading for a message. */
  #untilReading = 1;
  #readAt = 0;

  /** `socket` is paused while work is deferred. Without a socket, only work is deferred. */
  constructor(socket?: Pausable) {
    this.#socket = socket;
  }

  /** True if work is deferred. */
  get hasWork(): boolean {
    return this.#queue !== NO_WORK;
  }

  /** Records that data has come. Returns true if it may be processed at once. Otherwise, its work must be passed to `add`. */
  received(): boolean {
    const now = performance.now();
    if (this.#socket !== undefined) this.#socket.receivedAt = now;
    return this.#queue === NO_WORK && !this.#isSpentAt(now);
  }

  /** Defers work after all other deferred work. */
  add(work: Work): void {
    if (this.#queue === NO_WORK) this.#queue = [work];
    else this.#queue.push(work);
    this.#spend();
  }

  /** Returns true if the budget of this tick is spent. Then the caller gives its remaining work to `defer`. */
  isSpent(): boolean {
    if (this.#isSpent) return true;
    if (--this.#untilReading > 0) return false;
    const now = performance.now();
    const isQuick = now - this.#readAt < QUICK_MESSAGES * QUICK_MS;
    this.#untilReading = isQuick ? QUICK_MESSAGES : 1;
    this.#readAt = now;
    return this.#isSpentAt(now);
  }

  /**
   * Runs `rest` in a later tick, before anything that came later. A caller whose callee has deferred a rest defers its own rest
   * after that one.
   */
  defer(rest: Work): void {
    if (this.#queue === NO_WORK) this.#queue = [];
    this.#queue.splice(this.#next + this.#deferred++, 0, rest);
    this.#spend();
  }

  /** Forgets its socket, which has closed: a suspended session keeps the budget, and a socket keeps an unfinished message. */
  forgetSocket(): void {
    this.#socket = undefined;
  }

  /** Takes over the work that is deferred in the budget of the previous socket. */
  adopt(other: ReadBudget): void {
    if (!other.hasWork) return;
    const work = [...other.#queue.slice(other.#next), ...this.#queue.slice(this.#next)];
    other.#clear();
    this.#queue = work;
    this.#next = this.#deferred = 0;
    this.#spend();
  }

  /**
   * Returns true if the budget is spent at `now`. Starts a new budget with the first work of a tick, unless the last one is
   * younger than `BUDGET_MS`.
   */
  #isSpentAt(now: number): boolean {
    if (this.#isSpent) return true;
    if (now - this.#since < BUDGET_MS) return false;
    if (this.#tick === loopTick) this.#spend();
    else this.#begin(now);
    return this.#isSpent;
  }

  #begin(now: number): void {
    this.#tick = currentLoopTick();
    this.#since = now;
  }

  /** Pauses the socket and continues in the next tick, so that other connections are processed meanwhile. */
  #spend(): void {
    if (this.#isSpent) return;
    this.#isSpent = true;
    this.#socket?.pauseReading();
    setImmediate(() => this.#runDeferred());
  }

  #runDeferred(): void {
    const now = performance.now();
    this.#isSpent = false;
    this.#begin(now);
    if (this.#socket !== undefined) this.#socket.receivedAt = now;
    try {
      while (this.#runNext() && !this.#isSpentAt(performance.now()));
    } finally {
      if (this.#next >= this.#queue.length) this.#clear();
      // Also if work has thrown.
      if (this.hasWork) this.#spend();
      else if (!this.#isSpent) this.#socket?.resumeReading();
    }
  }

  /** Runs the next work, or reads more if there is none. Returns false if there is nothing to read either. */
  #runNext(): boolean {
    if (this.#next >= this.#queue.length) {
      this.#clear();
      return this.#socket?.readPart() === true;
    }
    this.#deferred = 0;
    this.#queue[this.#next++]!();
    return true;
  }

  #clear(): void {
    this.#queue = NO_WORK;
    this.#next = this.#deferred = 0;
  }
}
