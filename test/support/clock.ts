/** A clock that stands still until the test moves it: `setTimeout` and `performance.now` alike. */
import { afterEach, beforeEach, expect, vi } from "vitest";
import { turn } from "./turns.js";

/** Fakes the clock for every test of the file, and asserts after each that no timer is left. */
export function useFakeClock(): void {
  beforeEach(() => {
    vi.useFakeTimers();
  });
  afterEach(() => {
    const left = vi.getTimerCount();
    vi.useRealTimers();
    expect(left, "timers left").toBe(0);
  });
}

/** Lets time pass and its timers fire, and then whatever follows from them. */
export async function pass(ms: number): Promise<void> {
  await vi.advanceTimersByTimeAsync(ms);
  await turn();
}
