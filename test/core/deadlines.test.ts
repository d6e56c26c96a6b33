import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type * as deadlines from "../../src/core/deadlines.js";
import type { Expiring } from "../../src/core/deadlines.js";
import { useFakeClock } from "../support/clock.js";

useFakeClock();

/** A deadline that records its name when it expires. */
function named(name: string, expired: string[]): Expiring {
  return { deadline: 0, expire: () => void expired.push(name) };
}

let own: typeof deadlines;

/** Loads the deadlines anew: with a timer each, or with one timer for all. */
async function load(isShared: boolean): Promise<void> {
  vi.resetModules();
  own = await import("../../src/core/deadlines.js");
  if (isShared) (await import("../../src/core/shared-timer.js")).shareTimer();
}

describe.each([
  ["with a timer of its own", false],
  ["with the shared timer", true],
])("a deadline %s", (_name, isShared) => {
  beforeEach(() => load(isShared));

  it("expires once, at the later time, when it is set again, and affects no other deadline", () => {
    const expired: string[] = [];
    const [a, b, c] = [named("a", expired), named("b", expired), named("c", expired)];
    for (const entry of [a, b, c]) own.setDeadline(entry, 1000);
    vi.advanceTimersByTime(500);
    own.setDeadline(b, 1000);
    expect(own.countDeadlines()).toEqual({ waiting: 3, armed: true });
    vi.advanceTimersByTime(600);
    expect(expired).toEqual(["a", "c"]);
    vi.advanceTimersByTime(600);
    expect(expired).toEqual(["a", "c", "b"]);
    expect(own.countDeadlines()).toEqual({ waiting: 0, armed: false });
  });

  it("never expires after it was set to `Infinity`", () => {
    const expired: string[] = [];
    const a = named("a", expired);
    own.setDeadline(a, 1000);
    own.setDeadline(a, Infinity);
    expect(own.countDeadlines().waiting).toBe(0);
    own.clearDeadline(a);
    vi.advanceTimersByTime(5000);
    expect(expired).toEqual([]);
  });

  it("elapses in full if it is longer than the maximum of setTimeout", () => {
    const expired: string[] = [];
    own.setDeadline(named("a", expired), own.LONGEST_DELAY_MS + 1000);
    vi.advanceTimersByTime(own.LONGEST_DELAY_MS + 999);
    expect(expired).toEqual([]);
    vi.advanceTimersByTime(1);
    expect(expired).toEqual(["a"]);
  });

  it("yields one tick to messages already received when its timer fires late, and then expires", () => {
    const expired: string[] = [];
    const [a, b] = [named("a", expired), named("b", expired)];
    for (const entry of [a, b]) own.setDeadline(entry, 1000);
    const { now } = performance;
    vi.spyOn(performance, "now").mockImplementation(() => now.call(performance) + 60);
    vi.advanceTimersByTime(1000);
    expect(expired).toEqual([]);
    own.clearDeadline(a);
    vi.advanceTimersByTime(1);
    expect(expired).toEqual(["b"]);
    vi.restoreAllMocks();
  });
});

describe("deadlines with timers of their own", () => {
  beforeEach(() => load(false));
  afterEach(() => void vi.unstubAllGlobals());

  it("set one timer each, when the deadline is set", () => {
    const expired: string[] = [];
    const delays: unknown[] = [];
    const { setTimeout } = globalThis;
    vi.stubGlobal("setTimeout", (task: () => void, ms: number) => {
      delays.push(ms);
      return setTimeout(task, ms);
    });
    own.setDeadline(named("a", expired), 1000);
    own.setDeadline(named("b", expired), 1000);
    own.setDeadline(named("c", expired), 3000);
    expect(delays).toEqual([1000, 1000, 3000]);
    expect(vi.getTimerCount()).toBe(3);
    expect(own.countDeadlines().waiting).toBe(3);
    vi.advanceTimersByTime(1000);
    expect(expired).toEqual(["a", "b"]);
    vi.advanceTimersByTime(2000);
    expect(expired).toEqual(["a", "b", "c"]);
    expect(own.countDeadlines().waiting).toBe(0);
  });

  it("leave no timer when they are cleared, set again or set to `Infinity`, and expire once at most", () => {
    const expired: string[] = [];
    const [a, b, c] = [named("a", expired), named("b", expired), named("c", expired)];
    for (const entry of [a, b, c]) own.setDeadline(entry, 1000);
    own.clearDeadline(a);
    own.clearDeadline(a);
    own.setDeadline(b, 2000);
    own.setDeadline(c, Infinity);
    expect(vi.getTimerCount()).toBe(1);
    expect(own.countDeadlines().waiting).toBe(1);
    vi.advanceTimersByTime(5000);
    expect(expired).toEqual(["b"]);
    own.clearDeadline(b);
    expect(own.countDeadlines().waiting).toBe(0);
  });

  it("do not expire by a timer that another request cannot clear, as in workerd", () => {
    const expired: string[] = [];
    const [a, b] = [named("a", expired), named("b", expired)];
    own.setDeadline(a, 1000);
    own.setDeadline(b, 1000);
    vi.stubGlobal("clearTimeout", () => {});
    own.clearDeadline(a);
    own.setDeadline(b, 2000);
    vi.advanceTimersByTime(1000);
    expect(expired).toEqual([]);
    vi.advanceTimersByTime(1000);
    expect(expired).toEqual(["b"]);
  });

  it("keep them in workerd, where a timer fires only for the request that set it", async () => {
    vi.stubGlobal("navigator", { userAgent: "Cloudflare-Workers" });
    await load(true);
    for (const name of ["a", "b"]) own.setDeadline(named(name, []), 1000);
    expect(vi.getTimerCount()).toBe(2);
    vi.advanceTimersByTime(1000);
  });
});

it("a deadline that is set before the timer is shared keeps its own, and can be cleared", async () => {
  await load(false);
  const expired: string[] = [];
  const [a, b, c] = [named("a", expired), named("b", expired), named("c", expired)];
  for (const entry of [a, b]) own.setDeadline(entry, 1000);
  (await import("../../src/core/shared-timer.js")).shareTimer();
  own.clearDeadline(a);
  own.setDeadline(c, 1000);
  expect(own.countDeadlines()).toEqual({ waiting: 2, armed: true });
  vi.advanceTimersByTime(1000);
  expect(expired).toEqual(["b", "c"]);
  expect(own.countDeadlines()).toEqual({ waiting: 0, armed: false });
});
