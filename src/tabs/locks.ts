/** Locks of the browser (Web Locks), which end with the page or the worker that holds them, however that ends. */
import { nanoid } from "../base/packages.js";
import { uncaught } from "../base/tell.js";

/** Returns a name that no other lock has. */
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
  request(name, hold, signal);
}

/** Calls `released` when no page and no worker holds the lock any more, unless `signal` aborts before. */
export function whenReleased(name: string, released: () => void, signal?: AbortSignal): void {
  request(name, released, signal);
}

/** Calls `granted` with the lock, which is released when that has ended. Does nothing if `signal` aborts before. */
function request(name: string, granted: () => void | Promise<void>, signal: AbortSignal | undefined): void {
  navigator.locks.request(name, { ...(signal && { signal }) }, granted).catch((error: unknown) => {
    if (signal?.aborted !== true) uncaught(error);
  });
}
