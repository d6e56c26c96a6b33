/**
 * How long one connection may be processed in one tick of the event loop. Without a bound, `libuv` reads up to 2 MiB of one
 * socket before any other socket gets its turn, and all of it would be processed at once.
 */
import type { TickBudget } from "../core/transport.js";

/** A connection is processed for about so long in one tick. With 4 ms, echoes of 64 KB, 8 at a time, were 6 % slower. */
const BUDGET_MS = 6;
/** The clock is read for each message of a pack or a batch, or for every eighth while messages are this quick: a reading takes 40 ns. */
const QUICK_MS = 0.02;
const QUICK_MESSAGES = 8;

/** A socket whose reading can be stopped. */
export interface Pausable {
  /** When the other side last gave a sign of life. Data that waits in a budget is one. */
  heardAt: number;
  pauseReading(): void;
  resumeReading(): void;
  /** Hands over a part of what has been read from the system since `pauseReading`. Returns false if there is nothing. */
  readPart(): boolean;
}

type Work = () => void;
const NO_WORK: Work[] = [];

/** Taken when this file is loaded: a budget works under the fake timers of a test too. */
const { setImmediate } = globalThis;

/** Counts the ticks in which a budget was begun. */
let tick = 0;
let isTickNoted = false;

/** Returns the number of this tick, which ends with its immediates. */
function thisTick(): number {
  if (!isTickNoted) {
    isTickNoted = true;
    setImmediate(() => {
      isTickNoted = false;
      tick++;
    });
  }
  return tick;
}

/**
 * The budget of one connection, and its work that waits for a later tick, in order. While work waits, nothing more is read
 * from the socket, so at most two reads of 64 KiB wait here and in the socket.
 */
export class ReadBudget implements TickBudget {
  readonly #socket: Pausable | undefined;
  /** The work that waits: from `#next` on, and in front of the rest the parts that were deferred by the present work. */
  #queue = NO_WORK;
  #next = 0;
  #deferred = 0;
  /** Whether the budget of this tick is spent, and the next tick goes on with the work. */
  #isSpent = false;
  /** The tick in which the budget was last begun, and when. */
  #tick = -1;
  #since = -BUDGET_MS;
  /** Messages until the clock is read again, and when it was read for a message before. */
  #untilReading = 1;
  #readAt = 0;

  /** Without a socket, nothing but deferred work waits. */
  constructor(socket?: Pausable) {
    this.#socket = socket;
  }

  /** Whether work waits. */
  get hasWork(): boolean {
    return this.#queue !== NO_WORK;
  }

  /** Returns whether new work may be done at once; otherwise it must be given to `add`. `now`: by `performance.now()`. */
  isFree(now: number): boolean {
    return !this.#isSpentAt(now) && !this.hasWork;
  }

  /** Queues work behind all other. */
  add(work: Work): void {
    if (this.#queue === NO_WORK) this.#queue = [work];
    else this.#queue.push(work);
    this.#spend();
  }

  isSpent(): boolean {
    if (this.#isSpent) return true;
    if (--this.#untilReading > 0) return false;
    const now = performance.now();
    const isQuick = now - this.#readAt < QUICK_MESSAGES * QUICK_MS;
    this.#untilReading = isQuick ? QUICK_MESSAGES : 1;
    this.#readAt = now;
    return this.#isSpentAt(now);
  }

  defer(rest: Work): void {
    if (this.#queue === NO_WORK) this.#queue = [];
    this.#queue.splice(this.#next + this.#deferred++, 0, rest);
    this.#spend();
  }

  /** Takes over the work that waits in the budget of the socket before this one. */
  adopt(other: ReadBudget): void {
    if (!other.hasWork) return;
    const work = [...other.#queue.slice(other.#next), ...this.#queue.slice(this.#next)];
    other.#clear();
    this.#queue = work;
    this.#next = this.#deferred = 0;
    this.#spend();
  }

  /** A budget begins with the first work of a tick; while the one before is less than `BUDGET_MS` old, none is needed. */
  #isSpentAt(now: number): boolean {
    if (this.#isSpent) return true;
    if (now - this.#since < BUDGET_MS) return false;
    if (this.#tick === tick) this.#spend();
    else this.#begin(now);
    return this.#isSpent;
  }

  #begin(now: number): void {
    this.#tick = thisTick();
    this.#since = now;
  }

  /** Gives the other connections their turn. */
  #spend(): void {
    if (this.#isSpent) return;
    this.#isSpent = true;
    this.#socket?.pauseReading();
    setImmediate(() => this.#work());
  }

  #work(): void {
    const now = performance.now();
    this.#isSpent = false;
    this.#begin(now);
    if (this.#socket !== undefined) this.#socket.heardAt = now;
    try {
      while (this.#workNext() && !this.#isSpentAt(performance.now()));
    } finally {
      if (this.#next >= this.#queue.length) this.#clear();
      // Also where work has thrown.
      if (this.hasWork) this.#spend();
      else if (!this.#isSpent) this.#socket?.resumeReading();
    }
  }

  /** Does the next work, or reads more when there is none. Returns false if there is nothing to read either. */
  #workNext(): boolean {
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
