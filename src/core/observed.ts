/** Marks a promise as seen, for a hook that may drop it. Whoever uses it still gets its rejection. */
export function observed<T>(promise: Promise<T>): Promise<T> {
  promise.catch(() => {});
  return promise;
}
