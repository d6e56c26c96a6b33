/** The virtual clock of `reciproc/testing`, for every test of a file, and the ticks that pass without it. */
import { beforeEach, expect, onTestFinished } from "vitest";
import { virtualClock, type VirtualClock } from "../../src/testing/index.js";
import { closeMade } from "./pair.js";
import { Outcomes } from "./turns.js";

export * from "./turns.js";

/** In a program that imports `reciproc/node`, the timer of all deadlines may stay for this time after the last one. */
const LINGER_MS = 1_000;

let clock: VirtualClock;

/** Puts a virtual clock in place for each test. At its very end, closes the peers of `support`, and asserts that nothing is left. */
export function useVirtualClock(): void {
  beforeEach(() => {
    clock = virtualClock();
    onTestFinished(async () => {
      await closeMade();
      await clock.pass(LINGER_MS);
      const left = clock.timers;
      clock.restore();
      expect(left, "timers left").toBe(0);
    });
  });
}

export function pass(ms: number): Promise<void> {
  return clock.pass(ms);
}

export function stall(ms: number): void {
  clock.stall(ms);
}

export const timersSet = (): number => clock.timers;

/** Resolves when so much time has passed, by the clock that is in place. */
export const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** Lets time pass in steps of `stepMs` until a promise is settled, and settles as it does. */
export async function passUntil<T>(promise: Promise<T>, stepMs: number): Promise<T> {
  const outcomes = new Outcomes().watch("promise", promise);
  while (outcomes.list.length === 0) await pass(stepMs);
  return promise;
}
