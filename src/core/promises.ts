/** Promises that others made, or may drop. */

/** Marks a promise as seen, for a hook that may drop it. Whoever uses it still gets its rejection. */
export function observed<T>(promise: Promise<T>): Promise<T> {
  promise.catch(() => {});
  return promise;
}

/** Whether `value` promises something. May throw: `then` may be a getter. */
export function isThenable(value: unknown): value is PromiseLike<unknown> {
  if (value instanceof Promise) return true;
  return typeof value === "object" && value !== null && typeof (value as { then?: unknown }).then === "function";
}
