/** The end of a tick: one microtask for all tasks. */
import { uncaught } from "./tell.js";

let queued: (() => void)[] = [];
/** Taken when this file is loaded, so that connections work under the fake timers of a test. */
export const { queueMicrotask } = globalThis;

/** `queueMicrotask` of Node makes an AsyncResource for each call. A resolved promise takes a third of that time. */
const now = Promise.resolve();

/**
 * Calls `task` after the present code and the microtasks that it has queued. Tasks run in order. An error that one throws is reported as
 * uncaught, and the others still run.
 */
export function atEndOfTick(task: () => void): void {
  if (queued.push(task) === 1) void now.then(endTick);
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

let count = 0;
let isCounted = false;

/** Returns the number of the present tick, which differs from that of the previous one in which it was asked for. */
export function currentTick(): number {
  if (!isCounted) {
    isCounted = true;
    void now.then(countTick);
  }
  return count;
}

function countTick(): void {
  count++;
  isCounted = false;
}
