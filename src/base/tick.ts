/** The end of a tick: one microtask for all tasks. */
import { uncaught } from "./tell.js";

/** A task for the end of a tick. */
export interface TickEnd {
  /** An error that it throws is reported as uncaught. The other tasks still run. */
  endTick(): void;
}

let queued: TickEnd[] = [];
/** Taken when this file is loaded, so that connections work under the fake timers of a test. */
export const { queueMicrotask } = globalThis;

/** `queueMicrotask` of Node makes an AsyncResource for each call. A resolved promise takes a third of that time. */
const now = Promise.resolve();

/** Calls `task.endTick()` after the present code and the microtasks that it has queued. Tasks run in order. */
export function atEndOfTick(task: TickEnd): void {
  if (queued.push(task) === 1) void now.then(endTick);
}

function endTick(): void {
  // A task that is added meanwhile runs in a later microtask.
  const due = queued;
  queued = [];
  for (const task of due) {
    try {
      task.endTick();
    } catch (error) {
      uncaught(error);
    }
  }
}

let count = 0;
const counter: TickEnd & { isQueued: boolean } = {
  isQueued: false,
  endTick() {
    count++;
    this.isQueued = false;
  },
};

/** Returns the number of the present tick, which differs from that of the previous one in which it was asked for. */
export function currentTick(): number {
  if (!counter.isQueued) {
    counter.isQueued = true;
    atEndOfTick(counter);
  }
  return count;
}
