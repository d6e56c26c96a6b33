/** Real ticks of the event loop, whichever clock the test has put in place. */

/** Taken when this file is loaded. */
const { setTimeout, setImmediate = setTimeout } = globalThis as {
  setTimeout: (task: () => void) => unknown;
  setImmediate?: (task: () => void) => unknown;
};

/** Resolves in the next tick of the event loop, when all pending microtasks have run. */
export function nextTick(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
