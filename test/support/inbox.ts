/** A queue of received items that tests can await. */
export class Inbox<T = unknown> {
  readonly all: T[] = [];
  /** The items that were not taken. */
  readonly left: T[] = [];
  readonly #waiting: ((item: T) => void)[] = [];

  readonly push = (item: T): void => {
    this.all.push(item);
    const next = this.#waiting.shift() ?? ((left) => this.left.push(left));
    next(item);
  };

  /** Takes the next item, now or when it arrives. */
  next(): Promise<T> {
    if (this.left.length > 0) return Promise.resolve(this.left.shift()!);
    return new Promise((resolve) => this.#waiting.push(resolve));
  }
}

/** Resolves with the outcome of a promise, or `"pending"` if it has not settled within a tick. */
export async function stateOf(promise: PromiseLike<unknown>): Promise<"resolved" | "rejected" | "pending"> {
  const settled = Promise.resolve(promise).then(
    () => "resolved" as const,
    () => "rejected" as const,
  );
  return Promise.race([settled, new Promise<"pending">((resolve) => setImmediate(() => resolve("pending")))]);
}
