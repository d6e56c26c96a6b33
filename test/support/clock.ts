/** A clock that advances only by the test, for `setTimeout` and `performance.now`. */
import { afterEach, beforeEach, expect, vi } from "vitest";
import { LINGER_MS } from "../../src/core/shared-timer.js";
import { closeMade } from "./pair.js";
import { turn } from "./turns.js";

/** Fakes the clock for every test of the file. After each, closes the peers made by `support`, and asserts that no state and no timer is left. */
export function useFakeClock(): void {
  beforeEach(() => {
    vi.useFakeTimers();
  });
  afterEach(async () => {
    await closeMade();
    // The shared timer of all deadlines may stay for this time, in case of another call.
    await vi.advanceTimersByTimeAsync(LINGER_MS);
    const left = vi.getTimerCount();
    vi.useRealTimers();
    expect(left, "timers left").toBe(0);
  });
}

/** Advances the clock, fires its timers, and waits for one tick. */
export async function pass(ms: number): Promise<void> {
  await vi.advanceTimersByTimeAsync(ms);
  await turn();
}
