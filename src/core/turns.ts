/** The end of a turn: one microtask for everybody who has something to finish there. */
import { uncaught } from "./tell.js";

/** Something that finishes at the end of a turn. */
export interface TurnEnd {
  /** What it throws surfaces as uncaught, and keeps nobody else from finishing. */
  endTurn(): void;
}

let waiting: TurnEnd[] = [];
/** Node's `queueMicrotask` makes an AsyncResource for each call; what stands behind a promise costs a third of that. */
const now = Promise.resolve();

/** Calls `task.endTurn()` when the code that runs now, and what it set off at once, is done; tasks in the order they came. */
export function atEndOfTurn(task: TurnEnd): void {
  if (waiting.push(task) === 1) void now.then(endTurn);
}

function endTurn(): void {
  // A link that flushes makes its socket wait in turn: in another microtask, behind this one.
  const due = waiting;
  waiting = [];
  for (const task of due) {
    try {
      task.endTurn();
    } catch (error) {
      uncaught(error);
    }
  }
}

/**
 * Counts what is sent in a turn. Where the turn before had a single message, the first of this one is likely to be alone as
 * well, and need not wait for others: one call after the other waits for nothing.
 */
export abstract class Paced implements TurnEnd {
  /** How many were sent in this turn. */
  protected sentNow = 0;
  #wasAlone = false;

  /** Counts one more; whether it is likely to be the only one. */
  protected isAlone(): boolean {
    if (++this.sentNow > 1) return false;
    atEndOfTurn(this);
    return this.#wasAlone;
  }

  endTurn(): void {
    this.#wasAlone = this.sentNow === 1;
    this.sentNow = 0;
  }
}
