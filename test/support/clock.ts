/** A clock that stands still until the test moves it: `setTimeout` and `performance.now` alike. */
import { afterEach, beforeEach, expect, vi } from "vitest";
import { LINGER_MS } from "../../src/core/deadlines.js";
import { turn } from "./turns.js";

/** Fakes the clock for every test of the file, and asserts after each that no timer is left. */
export function useFakeClock(): void {
  beforeEach(() => {
    vi.useFakeTimers();
  });
  afterEach(async () => {
    // The one timer for all deadlines may run on for so long, in case of another call.
    await vi.advanceTimersByTimeAsync(LINGER_MS);
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
