/**
 * One timer for all deadlines of the process, and none while nothing waits.
 *
 * Deadlines of equal length expire in the order they were set, so a queue for each length needs no sorting: setting and
 * clearing one costs a Set's `add` and `delete`.
 */

/** Something that expires. `deadline` belongs to this file. */
export interface Expiring {
  deadline: number;
  expire(): void;
}

/** A timer this late means that the process stalled or the tab was throttled, and answers may be waiting unread. */
const LATE_MS = 50;
/** `setTimeout` takes longer delays for 1 ms. */
export const LONGEST_DELAY_MS = 2 ** 31 - 1;

const queues = new Map<number, Set<Expiring>>();
let timer: ReturnType<typeof setTimeout> | undefined;
let timerDue = Infinity;

/** Calls `entry.expire()` once, `delayMs` from now, unless it is cleared before. `Infinity` never expires. */
export function setDeadline(entry: Expiring, delayMs: number): void {
  if (delayMs === Infinity) return;
  entry.deadline = performance.now() + delayMs;
  let queue = queues.get(delayMs);
  if (queue === undefined) queues.set(delayMs, (queue = new Set()));
  queue.add(entry);
  if (entry.deadline < timerDue) arm(entry.deadline);
}

/** Forgets a deadline; one that is not set is ignored. `delayMs` is what it was set with. */
export function clearDeadline(entry: Expiring, delayMs: number): void {
  const queue = queues.get(delayMs);
  if (queue === undefined || !queue.delete(entry) || queue.size > 0) return;
  queues.delete(delayMs);
  if (queues.size === 0) disarm();
}

/** How many deadlines wait, and whether the timer runs. For tests that assert emptiness. */
export function countDeadlines(): { waiting: number; armed: boolean } {
  let waiting = 0;
  for (const queue of queues.values()) waiting += queue.size;
  return { waiting, armed: timer !== undefined };
}

function arm(due: number): void {
  disarm();
  timerDue = due;
  // Rounded up: a timer that fires a fraction early would find nothing due and be set again.
  timer = setTimeout(onTimer, Math.min(Math.ceil(due - performance.now()), LONGEST_DELAY_MS));
}

function disarm(): void {
  clearTimeout(timer);
  timer = undefined;
  timerDue = Infinity;
}

function onTimer(): void {
  if (performance.now() - timerDue < LATE_MS) return expireDue();
  // The answer may already be here: one turn of reading before anything is rejected.
  timer = setTimeout(expireDue, 0);
}

function expireDue(): void {
  disarm();
  const now = performance.now();
  for (const [delayMs, queue] of queues) {
    for (const entry of queue) {
      if (entry.deadline > now) break;
      queue.delete(entry);
      entry.expire();
    }
    if (queue.size === 0) queues.delete(delayMs);
  }
  const next = earliest();
  if (next < timerDue) arm(next);
}

function earliest(): number {
  let first = Infinity;
  for (const [entry] of queues.values()) if (entry!.deadline < first) first = entry!.deadline;
  return first;
}
