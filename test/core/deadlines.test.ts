import { expect, it, vi } from "vitest";
import { clearDeadline, countDeadlines, setDeadline, type Expiring } from "../../src/core/deadlines.js";
import { useFakeClock } from "../support/clock.js";

useFakeClock();

/** Notes its name when it expires. */
function named(name: string, expired: string[]): Expiring {
  return { deadline: 0, expire: () => void expired.push(name) };
}

it("expires once when it is set anew, by the later time, and leaves its neighbours alone", () => {
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

it("is not told of one that was set, in whatever queue, and then set to wait for ever", () => {
  const expired: string[] = [];
  const a = named("a", expired);
  setDeadline(a, 1000);
  setDeadline(a, Infinity);
  expect(countDeadlines().waiting).toBe(0);
  clearDeadline(a);
  vi.advanceTimersByTime(5000);
  expect(expired).toEqual([]);
});
