/** Microtasks, and the promises and iterables of the application. */

/** Calls `task`, which never throws, in a microtask. Fake timers of a test may replace `queueMicrotask`. */
export function inMicrotask(task: () => void): void {
  void Promise.resolve().then(task);
}

/** Marks a promise as observed, for a hook that may drop it. Code that awaits it still gets its rejection. */
export function observed<T>(promise: Promise<T>): Promise<T> {
  promise.catch(() => {});
  return promise;
}

/** Promises what `run` returns or throws, for a hook that may drop it. */
export function promised<T>(run: () => T | PromiseLike<T>): Promise<T> {
  return observed(new Promise((resolve) => resolve(run())));
}

/** Whether `value` is a promise of any kind. May throw: `then` may be a getter. */
export function isThenable(value: unknown): value is PromiseLike<unknown> {
  return typeof value === "object" && value !== null && typeof (value as { then?: unknown }).then === "function";
}

/**
 * Returns what a function of the application returned whose value is needed at once. Throws a `TypeError` for a promise, which it
 * observes. `name` names the function.
 */
export function synchronous<T>(value: T, name: string): T {
  if (!isThenable(value)) return value;
  void observed(Promise.resolve(value));
  throw new TypeError(`${name} must be synchronous, and it returned a promise`);
}

/** What a stream is made of. A web stream is none in some browsers, and is read by its `getReader`. */
export type AnyIterable = AsyncIterable<unknown> | Iterable<unknown>;

/**
 * Whether a result is served as a stream: an async iterable, a web stream, or an iterator, such as a generator. Any other iterable,
 * such as an array, is a value, and so is a `remote`, which has no members and gives a function for each name. May throw: a Proxy
 * decides.
 */
export function isStreamed(value: unknown): value is AnyIterable {
  if (typeof value !== "object" || value === null) return false;
  return (
    Symbol.asyncIterator in value ||
    ("getReader" in value && typeof value.getReader === "function") ||
    (Symbol.iterator in value && "next" in value && typeof value.next === "function")
  );
}
