/** The number of timers in a Node process: one for all calls, none for idle peers. */
import { expect, it, vi } from "vitest";
import { shareTimer } from "../../src/core/shared-timer.js";
import { pair } from "../../src/index.js";
import { useFakeClock } from "../support/clock.js";

useFakeClock();
shareTimer();

it("is one for a thousand pending calls", async () => {
  const [a, b] = pair({ methods: { never: () => new Promise(() => {}) } }, {});
  const calls = Array.from({ length: 1000 }, (_, i) => b.request("never", undefined, { timeoutMs: 1000 + i }));
  expect(vi.getTimerCount()).toBe(1);
  await a.close();
  await Promise.allSettled(calls);
});

it("is none for idle peers", async () => {
  const [a, b] = pair({ methods: { m: () => 1 } }, {});
  await Promise.resolve();
  expect(vi.getTimerCount()).toBe(0);
  await a.close();
  await b.closed;
});
