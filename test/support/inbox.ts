/** A queue of received items that tests can await. */
export class Inbox<T = unknown> {
  readonly all: T[] = [];
  #taken = 0;
  readonly #waiting: ((item: T) => void)[] = [];

  readonly push = (item: T): void => {
    this.all.push(item);
    const next = this.#waiting.shift();
    if (next === undefined) return;
    this.#taken++;
    next(item);
  };

  /** The items that were not taken. */
  get left(): T[] {
    return this.all.slice(this.#taken);
  }

  next(): Promise<T> {
    if (this.#taken < this.all.length) return Promise.resolve(this.all[this.#taken++]!);
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
