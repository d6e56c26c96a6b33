/** The end of a tick: one microtask for all that finish something there. */
import { uncaught } from "../core/tell.js";

/** Something that finishes at the end of a tick. */
export interface TickEnd {
  /** What it throws surfaces as uncaught, and keeps no other task from finishing. */
  endTick(): void;
}

let queued: TickEnd[] = [];
/** Node's `queueMicrotask` makes an AsyncResource for each call. A promise that is resolved already costs a third of that. */
const now = Promise.resolve();

/** Calls `task.endTick()` when the present code, and the microtasks that it has queued, have run. Tasks run in order. */
export function atEndOfTick(task: TickEnd): void {
  if (queued.push(task) === 1) void now.then(endTick);
}

function endTick(): void {
  // A task that is added meanwhile runs in another microtask, behind this one.
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
