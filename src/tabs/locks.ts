/** Locks of the browser (Web Locks), which end with the page or the worker that holds them, however that ends. */
import { nanoid } from "../base/packages.js";

/** Returns the name of a lock that nothing else has. */
export function makeLock(): string {
  return `reciproc ${nanoid()}`;
}

/** Holds a lock until `signal` aborts, or this page or worker ends. Calls `granted` when it has it. */
export function holdLock(name: string, granted: () => void, signal?: AbortSignal): void {
  const hold = (): Promise<void> =>
    new Promise((release) => {
      signal?.addEventListener("abort", () => release());
      granted();
    });
  void navigator.locks.request(name, hold);
}

/** Calls `gone` when no other holds the lock any more, unless `signal` aborts before. */
export function whenReleased(name: string, gone: () => void, signal?: AbortSignal): void {
  navigator.locks.request(name, { ...(signal !== undefined && { signal }) }, gone).catch(() => {});
}
