/** Promises and iterables that others made, or may drop. */

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

/** Whether `value` is an async iterable. May throw: a Proxy decides. */
export function isAsyncIterable(value: unknown): value is AsyncIterable<unknown> {
  return typeof value === "object" && value !== null && Symbol.asyncIterator in value;
}
