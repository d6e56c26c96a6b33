/**
 * One timer for all deadlines of the process, and none while nothing waits.
 *
 * Deadlines of equal length expire in the order they were set, so a queue for each length needs no sorting: setting and
 * clearing one changes a few links. Starting and stopping a timer costs far more, so one call after another shares a short
 * one: it runs on for at most `LINGER_MS` after the last deadline is cleared, and keeps no process alive.
 *
 * In workerd each deadline has a timer of its own instead.
 */
import { List, unlink, type Linked } from "./list.js";

/** Something that expires. `deadline` belongs to this file. */
export interface Expiring extends Linked {
  deadline: number;
  expire(): void;
}

/** A timer this late means that the process stalled or the tab was throttled, and answers may be waiting unread. */
const LATE_MS = 50;
/** `setTimeout` takes longer delays for 1 ms. */
export const LONGEST_DELAY_MS = 2 ** 31 - 1;
/** How far ahead the timer is set at first. Whatever still waits when it fires is waited for exactly. */
export const LINGER_MS = 1000;

const queues = new Map<number, List<Expiring>>();
let waiting = 0;
let timer: ReturnType<typeof setTimeout> | undefined;
let timerDue = Infinity;
/** Whether the timer is set to an earliest deadline, and not just a while ahead. */
let isExact = false;

/**
 * The timers of the deadlines that are set, in workerd: it ties a timer to the request that set it, so one that another
 * request shares never fires for that. No feature shows this without a timer, which may not be set while a module loads.
 */
const ownTimers = isWorkerd() ? new WeakMap<Expiring, ReturnType<typeof setTimeout>>() : undefined;

/** Calls `entry.expire()` once, `delayMs` from now, unless it is cleared or set anew before. `Infinity` never expires. */
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

/** How many deadlines wait, and whether the timer keeps the process alive for them. For tests. */
export function countDeadlines(): { waiting: number; armed: boolean } {
  return { waiting, armed: timer?.hasRef?.() ?? timer !== undefined };
}

/**
 * The first of several has come: the timer that lingers must keep the process alive again. One that is overdue, or further
 * ahead than it was ever set, belongs to a clock that was replaced (the fake clock of a test) and will never fire.
 */
function wake(now: number): void {
  if (timer === undefined) return;
  if (now - timerDue > LATE_MS || timerDue - now > LINGER_MS) disarm();
  else timer.ref?.();
}

function arm(due: number, now: number): void {
  disarm();
  timerDue = due;
  // Rounded up: a timer that fires a fraction early would find nothing due and be set again.
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
  // The answer may already be here: one turn of reading before anything is rejected.
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
