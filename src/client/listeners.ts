/** The listeners of a store. */
import { runReporting } from "../base/tell.js";

/** Functions that are called after changes: once for all changes of one microtask. */
export class Listeners {
  readonly #listeners = new Set<() => void>();
  readonly #failed: (cause: unknown) => void;
  #isNotifying = false;

  /** `failed`: takes what a listener throws. */
  constructor(failed: (cause: unknown) => void) {
    this.#failed = failed;
  }

  /** Adds a listener. Returns a function that removes it. */
  readonly add = (listener: () => void): (() => void) => {
    // The same function may be added twice.
    const one = (): void => listener();
    this.#listeners.add(one);
    return () => void this.#listeners.delete(one);
  };

  /** Calls the listeners, once for all calls in one microtask. */
  notify(): void {
    if (this.#isNotifying) return;
    this.#isNotifying = true;
    queueMicrotask(() => {
      this.#isNotifying = false;
      for (const listener of Array.from(this.#listeners)) runReporting(listener, this.#failed);
    });
  }
}
