/**
 * One timer for all deadlines of the process, and none while no deadline is set.
 *
 * Deadlines of equal length expire in the order they were set, so a queue for each length needs no sorting: setting and
 * clearing one changes a few links. Starting and stopping a timer costs far more, so consecutive calls share a timer. It runs
 * for at most `LINGER_MS` after the last deadline is cleared, and keeps no process alive.
 *
 * In workerd each deadline has its own timer.
 */
import { List, unlink, type Linked } from "./list.js";

/** An object that expires. `deadline` belongs to this file. */
export interface Expiring extends Linked {
  deadline: number;
  expire(): void;
}

/** A timer this late means that the process stalled or the tab was throttled, and that responses may be unread. */
const LATE_MS = 50;
/** `setTimeout` treats a longer delay as 1 ms. */
export const LONGEST_DELAY_MS = 2 ** 31 - 1;
/** The first delay of the timer. If deadlines are still set when it fires, the timer is set to the earliest. */
export const LINGER_MS = 1000;

const queues = new Map<number, List<Expiring>>();
let waiting = 0;
let timer: ReturnType<typeof setTimeout> | undefined;
let timerDue = Infinity;
/** Whether the timer is set to the earliest deadline. */
let isExact = false;

/**
 * The timers of the deadlines in workerd. It binds a timer to the request that set it, so a shared timer would not fire for
 * another request. Detecting this would need a timer, which may not be set while a module loads, so the name is checked.
 */
const ownTimers = isWorkerd() ? new WeakMap<Expiring, ReturnType<typeof setTimeout>>() : undefined;

/** Calls `entry.expire()` once, after `delayMs`, unless the deadline is cleared or set again before. `Infinity` never expires. */
export function setDeadline(entry: Expiring, delayMs: number): void {
  if (entry.before !== undefined || ownTimers !== undefined) clearDeadline(entry);
  if (delayMs === Infinity) return;
  const now = performance.now();
  entry.deadline = now + delayMs;
  if (ownTimers !== undefined) {
    waiting++;
    return setOwnTimer(entry, delayMs);
  }
  let queue = queues.get(delayMs);
  if (queue === undefined) queues.set(delayMs, (queue = new List()));
  queue.add(entry);
  if (waiting++ === 0) wake(now);
  if (entry.deadline < timerDue) arm(Math.min(entry.deadline, now + LINGER_MS), now);
}

/** Clears a deadline, if it is set. */
export function clearDeadline(entry: Expiring): void {
  if (ownTimers !== undefined) return clearOwnTimer(entry, ownTimers.get(entry));
  if (!unlink(entry) || --waiting > 0) return;
  if (isExact) disarm();
  else timer?.unref?.();
}

/** Returns how many deadlines are set, and whether the timer keeps the process alive for them. For tests. */
export function countDeadlines(): { waiting: number; armed: boolean } {
  return { waiting, armed: timer?.hasRef?.() ?? timer !== undefined };
}

/**
 * Makes a lingering timer keep the process alive again, for the first deadline. Clears a timer that is overdue, or further
 * ahead than any delay: it belongs to a replaced clock (the fake clock of a test) and will never fire.
 */
function wake(now: number): void {
  if (timer === undefined) return;
  if (now - timerDue > LATE_MS || timerDue - now > LINGER_MS) disarm();
  else timer.ref?.();
}

function arm(due: number, now: number): void {
  disarm();
  timerDue = due;
  // Rounded up: a timer that fires a fraction early would find no due deadline, and would be set again.
  timer = setTimeout(onTimer, Math.min(Math.ceil(due - now), LONGEST_DELAY_MS));
}

function disarm(): void {
  clearTimeout(timer);
  timer = undefined;
  timerDue = Infinity;
  isExact = false;
}

function onTimer(): void {
  if (waiting === 0 || performance.now() - timerDue < LATE_MS) return expireDue();
  // A response may already be in the socket, so the event loop reads once before any call is rejected.
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

function isWorkerd(): boolean {
  return (globalThis as { navigator?: { userAgent?: string } }).navigator?.userAgent === "Cloudflare-Workers";
}

function setOwnTimer(entry: Expiring, delayMs: number): void {
  const fire = (): void => {
    // Another request may have cleared the deadline, and cannot stop this timer.
    if (ownTimers!.get(entry) !== own) return;
    const now = performance.now();
    if (delayMs > LONGEST_DELAY_MS) setOwnTimer(entry, delayMs - LONGEST_DELAY_MS);
    else if (now - entry.deadline >= LATE_MS) {
      // As in `onTimer`.
      entry.deadline = now;
      setOwnTimer(entry, 0);
    } else {
      clearOwnTimer(entry, own);
      entry.expire();
    }
  };
  const own = setTimeout(fire, Math.min(delayMs, LONGEST_DELAY_MS));
  ownTimers!.set(entry, own);
}

function clearOwnTimer(entry: Expiring, own: ReturnType<typeof setTimeout> | undefined): void {
  if (own === undefined) return;
  clearTimeout(own);
  ownTimers!.delete(entry);
  waiting--;
}
