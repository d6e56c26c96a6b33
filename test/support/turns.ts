/** Waiting for what the event loop owes, without a clock. */

/** Taken before any test fakes the timers. */
const realImmediate = setImmediate;

/** One turn of the event loop: every microtask that is due, however many follow from it, has run. Works under a fake clock. */
export function turn(): Promise<void> {
  return new Promise((resolve) => realImmediate(resolve));
}

/** How a promise came out. */
export type Outcome = { value: unknown } | { reason: unknown };

/** Notes how promises come out, in the order they settle, each as often as it does. */
export class Outcomes {
  readonly list: (Outcome & { name: string })[] = [];

  watch(name: string, promise: Promise<unknown>): this {
    promise.then(
      (value) => this.list.push({ name, value }),
      (reason: unknown) => this.list.push({ name, reason }),
    );
    return this;
  }

  /** Names in the order they settled. */
  get names(): string[] {
    return this.list.map(({ name }) => name);
  }
}

/** What `promise` rejects with; a promise that resolves fails the test. */
export async function rejection(promise: Promise<unknown>): Promise<any> {
  const value = await promise.then(
    (result) => ({ result }),
    (reason: unknown) => ({ reason }),
  );
  if ("reason" in value) return value.reason;
  throw new Error(`expected a rejection, got the result ${JSON.stringify(value.result)}`);
}

/** A promise and what settles it. */
export interface Gate<T> {
  readonly promise: Promise<T>;
  readonly resolve: (value: T) => void;
  readonly reject: (reason: unknown) => void;
}

/** Something for a handler to wait for, until the test opens it. */
export function gate<T = void>(): Gate<T> {
  let resolve!: (value: T) => void;
  let reject!: (reason: unknown) => void;
  const promise = new Promise<T>((...settle) => ([resolve, reject] = settle));
  return { promise, resolve, reject };
}
