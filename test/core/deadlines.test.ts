import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type * as deadlines from "../../src/core/deadlines.js";
import { clearDeadline, countDeadlines, setDeadline, type Expiring } from "../../src/core/deadlines.js";
import { useFakeClock } from "../support/clock.js";

useFakeClock();

/** A deadline that records its name when it expires. */
function named(name: string, expired: string[]): Expiring {
  return { deadline: 0, expire: () => void expired.push(name) };
}

it("expires once, at the later time, when it is set again, and affects no other deadline", () => {
  const expired: string[] = [];
  const [a, b, c] = [named("a", expired), named("b", expired), named("c", expired)];
  for (const entry of [a, b, c]) setDeadline(entry, 1000);
  vi.advanceTimersByTime(500);
  setDeadline(b, 1000);
  expect(countDeadlines().waiting).toBe(3);
  vi.advanceTimersByTime(600);
  expect(expired).toEqual(["a", "c"]);
  vi.advanceTimersByTime(600);
  expect(expired).toEqual(["a", "c", "b"]);
  expect(countDeadlines().waiting).toBe(0);
});

it("never expires after it was set to `Infinity`, in any queue", () => {
  const expired: string[] = [];
  const a = named("a", expired);
  setDeadline(a, 1000);
  setDeadline(a, Infinity);
  expect(countDeadlines().waiting).toBe(0);
  clearDeadline(a);
  vi.advanceTimersByTime(5000);
  expect(expired).toEqual([]);
});

describe("in workerd, where a timer fires only for the request that set it,", () => {
  let own: typeof deadlines;
  /** The delays of the pending timers, and the timers that were cleared. */
  let delays: unknown[];

  beforeEach(async () => {
    vi.stubGlobal("navigator", { userAgent: "Cloudflare-Workers" });
    vi.resetModules();
    own = await import("../../src/core/deadlines.js");
    delays = [];
    const { setTimeout } = globalThis;
    vi.stubGlobal("setTimeout", (task: () => void, ms: number) => {
      delays.push(ms);
      return setTimeout(task, ms);
    });
  });

  afterEach(() => void vi.unstubAllGlobals());

  it("each deadline has a timer of its own, set when the deadline is", () => {
    const expired: string[] = [];
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

  it("a deadline that is cleared, set again or set to `Infinity` leaves no timer and expires once at most", () => {
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

  it("a timer that another request cannot clear does nothing when it fires", () => {
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

  it("a delay longer than the maximum of setTimeout elapses in full", () => {
    const expired: string[] = [];
    own.setDeadline(named("a", expired), own.LONGEST_DELAY_MS + 1000);
    vi.advanceTimersByTime(own.LONGEST_DELAY_MS + 999);
    expect(expired).toEqual([]);
    vi.advanceTimersByTime(1);
    expect(expired).toEqual(["a"]);
  });

  it("a timer that fires late yields one tick to messages already received, and then expires", () => {
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
