/** Deadlines. Each has a timer of its own, unless `shareTimer` (`shared-timer.ts`) was called: then all share one timer. */
import type { Linked } from "./list.js";

type Timer = ReturnType<typeof setTimeout>;

/** An object that expires. `deadline` and `timer` belong to this file and to `shared-timer.ts`. */
export interface Expiring extends Linked {
  deadline: number;
  /** The deadline's own timer, while it is set. */
  timer?: Timer | undefined;
  expire(): void;
}

/** How many deadlines are set, and whether a timer keeps the process alive for them. */
export interface DeadlineCount {
  readonly waiting: number;
  readonly armed: boolean;
}

/** A timer this late means that the process stalled or the tab was throttled, and that responses may be unread. */
export const LATE_MS = 50;
/** `setTimeout` treats a longer delay as 1 ms. */
export const LONGEST_DELAY_MS = 2 ** 31 - 1;

/** Calls `entry.expire()` once, after `delayMs`, unless the deadline is cleared or set again before. `Infinity` never expires. */
export let setDeadline = setOwnTimer;
/** Clears a deadline, if it is set. */
export let clearDeadline = clearOwnTimer;
/** Returns the count of the deadlines that share a timer. */
let countShared = (): DeadlineCount => ({ waiting: 0, armed: false });
/** How many deadlines have a timer of their own. */
let ownTimers = 0;

/** Sets and clears deadlines by these functions from now on. A deadline that has a timer of its own keeps it. */
export function replaceTimers(set: typeof setOwnTimer, clear: typeof clearOwnTimer, count: typeof countShared): void {
  setDeadline = set;
  clearDeadline = clear;
  countShared = count;
}

/** Returns the count of all deadlines. For tests. */
export function countDeadlines(): DeadlineCount {
  const { waiting, armed } = countShared();
  return { waiting: waiting + ownTimers, armed: armed || ownTimers > 0 };
}

/** Gives a deadline a timer of its own, set by `setTimer`. */
export function setOwnTimer(entry: Expiring, delayMs: number, setTimer = setTimeout): void {
  clearOwnTimer(entry);
  if (delayMs === Infinity) return;
  entry.deadline = performance.now() + delayMs;
  ownTimers++;
  startTimer(entry, delayMs, setTimer);
}

function startTimer(entry: Expiring, delayMs: number, setTimer: typeof setTimeout): void {
  const timer = setTimer(
    () => {
      // In workerd, only the request that has set a timer can clear it.
      if (entry.timer !== timer) return;
      const now = performance.now();
      if (delayMs > LONGEST_DELAY_MS) startTimer(entry, delayMs - LONGEST_DELAY_MS, setTimer);
      else if (now - entry.deadline >= LATE_MS) {
        // A response may already be in the socket, so the event loop reads once before any call is rejected.
        entry.deadline = now;
        startTimer(entry, 0, setTimer);
      } else {
        clearOwnTimer(entry);
        entry.expire();
      }
    },
    Math.min(delayMs, LONGEST_DELAY_MS),
  );
  entry.timer = timer;
}

/** Clears a deadline that has a timer of its own. */
export function clearOwnTimer(entry: Expiring): void {
  if (entry.timer === undefined) return;
  clearTimeout(entry.timer);
  entry.timer = undefined;
  ownTimers--;
}
