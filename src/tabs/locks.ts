/** Locks of the browser (Web Locks), which end with the page or the worker that holds them, however that ends. */
import { nanoid } from "../base/packages.js";
import { uncaught } from "../base/tell.js";

/** Returns a name that no other lock has. */
export function makeLock(): string {
  return `reciproc ${nanoid()}`;
}

/** Takes a lock, and holds it until `signal` aborts, or this page or worker ends. Calls `granted` once it has it. */
export function holdLock(name: string, granted: () => void, signal?: AbortSignal): void {
  const hold = (): Promise<void> =>
    new Promise((release) => {
      signal?.addEventListener("abort", () => release());
      granted();
    });
  request(name, hold, signal);
}

/** Calls `released` when the lock, which a page or a worker holds, is released. Does nothing if `signal` aborts before. */
export function whenReleased(name: string, released: () => void, signal?: AbortSignal): void {
  request(name, released, signal);
}

/** Takes a lock, and releases it when `granted` has ended. Does nothing if `signal` aborts before. */
function request(name: string, granted: () => void | Promise<void>, signal: AbortSignal | undefined): void {
  navigator.locks.request(name, { ...(signal && { signal }) }, granted).catch((error: unknown) => {
    if (signal?.aborted !== true) uncaught(error);
  });
}
