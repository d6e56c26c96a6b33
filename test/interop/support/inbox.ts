/** What comes in, to be waited for. */
export class Inbox<T = unknown> {
  /** Everything that has come, taken or not. */
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

  /** Those that nobody took. */
  get left(): T[] {
    return this.all.slice(this.#taken);
  }

  /** The next one that was not taken yet. */
  next(): Promise<T> {
    if (this.#taken < this.all.length) return Promise.resolve(this.all[this.#taken++]!);
    return new Promise((resolve) => this.#waiting.push(resolve));
  }
}

/** Resolves with how a promise came out, `"pending"` when it has not within a turn. */
export async function stateOf(promise: PromiseLike<unknown>): Promise<"resolved" | "rejected" | "pending"> {
  const settled = Promise.resolve(promise).then(
    () => "resolved" as const,
    () => "rejected" as const,
  );
  return Promise.race([settled, new Promise<"pending">((resolve) => setImmediate(() => resolve("pending")))]);
}
