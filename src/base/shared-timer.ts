/**
 * One timer for all deadlines of the process, and none while no deadline is set. For Node.
 *
 * Deadlines of equal length expire in the order they were set, so a queue for each length needs no sorting: setting and
 * clearing one changes a few links. Starting and stopping a timer costs far more, so consecutive calls share a timer. It runs
 * for at most `LINGER_MS` after the last deadline is cleared, and keeps no process alive.
 */
import {
  clearOwnTimer,
  LATE_MS,
  LONGEST_DELAY_MS,
  replaceTimers,
  setOwnTimer,
  type DeadlineCount,
  type Expiring,
} from "./deadlines.js";
import { List, unlink } from "./list.js";

/** The first delay of the timer. If deadlines are still set when it fires, the timer is set to the earliest. */
export const LINGER_MS = 1000;

const queues = new Map<number, List<Expiring>>();
let waiting = 0;
let timer: ReturnType<typeof setTimeout> | undefined;
let timerDue = Infinity;
/** The `setTimeout` that has set the timer. A test may have replaced it since: then timer and deadlines belong to another clock. */
let timerSetBy: typeof setTimeout | undefined;
/** Whether the timer is set to the earliest deadline. */
let isExact = false;

/**
 * Lets all deadlines that are set from now on share one timer. Not in workerd: it binds a timer to the request that set it, so
 * a shared timer would not fire for another request.
 */
export function shareTimer(): void {
  // Detecting this would need a timer, which may not be set while a module loads, so the name is checked.
  const { navigator } = globalThis as { navigator?: { userAgent?: string } };
  if (navigator?.userAgent !== "Cloudflare-Workers") replaceTimers(set, clear, count);
}

function set(entry: Expiring, delayMs: number): void {
  if (entry.before !== undefined || entry.timer !== undefined) clear(entry);
  if (delayMs === Infinity) return;
  if (timerSetBy !== undefined && timerSetBy !== setTimeout) leaveClock(timerSetBy);
  const now = performance.now();
  // A whole number, because V8 allocates 16 bytes for any other. Rounded up, because no deadline expires early.
  entry.deadline = Math.ceil(now + delayMs);
  let queue = queues.get(delayMs);
  if (queue === undefined) queues.set(delayMs, (queue = new List()));
  queue.add(entry);
  // A timer that lingers keeps the process alive again.
  if (waiting === 0) timer?.ref?.();
  waiting++;
  if (entry.deadline < timerDue) arm(Math.min(entry.deadline, now + LINGER_MS), now);
}

function clear(entry: Expiring): void {
  if (entry.timer !== undefined) return clearOwnTimer(entry);
  if (!unlink(entry) || --waiting > 0) return;
  if (isExact) disarm();
  else timer?.unref?.();
}

function count(): DeadlineCount {
  return { waiting, armed: timer?.hasRef?.() ?? timer !== undefined };
}

function arm(due: number, now: number): void {
  disarm();
  timerDue = due;
  // Rounded up: a timer that fires a fraction early would find no due deadline, and would be set again.
  timer = (timerSetBy = setTimeout)(onTimer, Math.min(Math.ceil(due - now), LONGEST_DELAY_MS));
}

/** Leaves the deadlines that are set to their own clock, the only one that knows when they are due. */
function leaveClock(setTimer: typeof setTimeout): void {
  const now = performance.now();
  for (const queue of queues.values())
    for (const entry of queue.toArray()) {
      unlink(entry);
      setOwnTimer(entry, Math.max(0, entry.deadline - now), setTimer);
    }
  queues.clear();
  waiting = 0;
  disarm();
}

function disarm(): void {
  clearTimeout(timer);
  timer = undefined;
  timerDue = Infinity;
  timerSetBy = undefined;
  isExact = false;
}

function onTimer(): void {
  if (waiting === 0 || performance.now() - timerDue < LATE_MS) return expireDue();
  // As in `deadlines.ts`: the event loop reads once before any call is rejected.
  timer = setTimeout(expireDue, 0);
}

function expireDue(): void {
  disarm();
  const now = performance.now();
  for (const [delayMs, queue] of queues) {
    for (let { first } = queue; first !== undefined && first.deadline <= now; { first } = queue) {
      unlink(first);
      waiting--;
      first.expire();
    }
    if (queue.first === undefined) queues.delete(delayMs);
  }
  if (waiting === 0) return;
  arm(earliest(), now);
  isExact = true;
}

function earliest(): number {
  let earliestDue = Infinity;
  for (const { first } of queues.values()) if (first !== undefined) earliestDue = Math.min(earliestDue, first.deadline);
  return earliestDue;
}
