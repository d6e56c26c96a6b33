/** Iterables to serve, which record their use. */
import { gate, type Gate } from "../support/turns.js";

/** An iterator that counts its calls. */
export interface Counted extends AsyncIterable<unknown> {
  /** The numbers of calls of `next` and of `return`. */
  readonly asked: number;
  readonly returned: number;
}

/** Yields `count` numbers from 1 on, without delay. */
export function counted(count = Infinity, valueOf: (i: number) => unknown = (i) => i): Counted {
  let asked = 0;
  let returned = 0;
  return {
    get asked() {
      return asked;
    },
    get returned() {
      return returned;
    },
    [Symbol.asyncIterator]: () => ({
      next: async () => (++asked <= count ? { done: false, value: valueOf(asked) } : { done: true, value: undefined }),
      return: async () => (returned++, { done: true, value: undefined }),
    }),
  };
}

/** Yields the values that the test gives it, when the test gives them. */
export class Fed implements AsyncIterable<unknown> {
  returned = 0;
  asked = 0;
  readonly #waiting: Gate<IteratorResult<unknown>>[] = [];
  readonly #given: Gate<IteratorResult<unknown>>[] = [];

  [Symbol.asyncIterator](): AsyncIterator<unknown> {
    return {
      next: () => {
        this.asked++;
        const given = this.#given.shift();
        if (given !== undefined) return given.promise;
        const waiting = gate<IteratorResult<unknown>>();
        this.#waiting.push(waiting);
        return waiting.promise;
      },
      return: async () => (this.returned++, { done: true, value: undefined }),
    };
  }

  give(...values: unknown[]): this {
    for (const value of values) this.#next().resolve({ done: false, value });
    return this;
  }

  finish(): this {
    this.#next().resolve({ done: true, value: undefined });
    return this;
  }

  fail(error: unknown): this {
    this.#next().reject(error);
    return this;
  }

  #next(): Gate<IteratorResult<unknown>> {
    const waiting = this.#waiting.shift();
    if (waiting !== undefined) return waiting;
    const given = gate<IteratorResult<unknown>>();
    // A failure that no next() has read yet.
    given.promise.catch(() => {});
    this.#given.push(given);
    return given;
  }
}
