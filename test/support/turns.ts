/** Ticks of the event loop, without a clock, and what settles, aborts or throws in them. */
import { getEventListeners } from "node:events";

/** Saved before any test fakes the timers. */
const realImmediate = setImmediate;

/** Waits for one tick of the event loop, in which all pending microtasks run. Works under a fake clock. */
export const turn = (): Promise<void> => new Promise((resolve) => realImmediate(resolve));

export type Outcome = { value: unknown } | { reason: unknown };

/** Records each settlement of promises, in order. */
export class Outcomes {
  readonly list: (Outcome & { name: string })[] = [];

  watch(name: string, promise: Promise<unknown>): this {
    promise.then(
      (value) => this.list.push({ name, value }),
      (reason: unknown) => this.list.push({ name, reason }),
    );
    return this;
  }

  get names(): string[] {
    return this.list.map(({ name }) => name);
  }
}

/** Resolves with the reason with which `promise` rejects. Fails the test if `promise` resolves. */
export async function rejection(promise: Promise<unknown>): Promise<any> {
  const value = await promise.then(
    (result) => ({ result }),
    (reason: unknown) => ({ reason }),
  );
  if ("reason" in value) return value.reason;
  throw new Error(`expected a rejection, got the result ${JSON.stringify(value.result)}`);
}

export interface Gate<T> {
  readonly promise: Promise<T>;
  readonly resolve: (value: T) => void;
  readonly reject: (reason: unknown) => void;
}

/** A promise for a handler to await, resolved by the test. */
export function gate<T = void>(): Gate<T> {
  let resolve!: (value: T) => void;
  let reject!: (reason: unknown) => void;
  const promise = new Promise<T>((...settle) => ([resolve, reject] = settle));
  return { promise, resolve, reject };
}

export function raising(thrown: unknown): () => never {
  return () => {
    throw thrown;
  };
}

export async function until(isSo: () => boolean): Promise<void> {
  while (!isSo()) await turn();
}

export function untilAborted({ signal }: { signal: AbortSignal }): Promise<never> {
  return new Promise((_resolve, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
}

export function countedSignal(): { controller: AbortController; signal: AbortSignal; listeners: () => number } {
  const controller = new AbortController();
  const { signal } = controller;
  return { controller, signal, listeners: () => getEventListeners(signal, "abort").length };
}
