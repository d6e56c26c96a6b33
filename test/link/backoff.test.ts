import { describe, expect, it, vi } from "vitest";
import { Backoff } from "../../src/client/backoff.js";
import { pass, useFakeClock } from "../support/clock.js";

useFakeClock();

const CAPS_MS = [500, 1000, 2000, 4000, 8000, 16_000, 20_000, 20_000, 20_000];

describe("a reconnecting client", () => {
  it("retries at once, and then after delays whose cap doubles from 500 ms to 20 s", () => {
    const least = new Backoff(() => 0);
    const most = new Backoff(() => 1 - Number.EPSILON);
    expect([least.nextDelayMs(), most.nextDelayMs()]).toEqual([0, 0]);
    for (const cap of CAPS_MS) {
      expect(least.nextDelayMs()).toBe(100);
      expect(most.nextDelayMs()).toBeCloseTo(cap, 3);
    }
  });

  it("draws one random number for each delay, after the cap", () => {
    const draw = vi.fn<() => number>(() => 0.25);
    const backoff = new Backoff(draw);
    backoff.nextDelayMs();
    expect(draw).not.toHaveBeenCalled();
    expect(CAPS_MS.map(() => backoff.nextDelayMs())).toEqual(CAPS_MS.map((cap) => 100 + 0.25 * (cap - 100)));
    expect(draw).toHaveBeenCalledTimes(CAPS_MS.length);
  });

  it("resets its delay after a connection of 5 seconds, and not after a shorter one", async () => {
    const backoff = new Backoff(() => 0.5);
    for (let i = 0; i < 5; i++) backoff.nextDelayMs();
    backoff.opened();
    await pass(4_999);
    expect(backoff.nextDelayMs()).toBe(100 + 0.5 * 7900);
    await pass(60_000);
    // Time without a connection does not count as connected.
    expect(backoff.nextDelayMs()).toBe(100 + 0.5 * 15_900);
    backoff.opened();
    await pass(5_000);
    expect(backoff.nextDelayMs()).toBe(0);
    expect(backoff.nextDelayMs()).toBe(300);
  });

  it("draws from `Math.random` by default", () => {
    const waits = new Set<number>();
    for (let i = 0; i < 100; i++) {
      const backoff = new Backoff();
      backoff.nextDelayMs();
      waits.add(backoff.nextDelayMs());
    }
    expect(waits.size).toBeGreaterThan(90);
    expect(Math.min(...waits)).toBeGreaterThanOrEqual(100);
    expect(Math.max(...waits)).toBeLessThan(500);
  });
});

/** Returns a random generator of numbers from 0 to 1 with a seed (mulberry32). */
function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

describe("a crowd of 10,000 disconnected clients", () => {
  it("spreads its attempts: after the first, no 100 ms hold three times the mean", () => {
    const random = seeded(7);
    const clients = Array.from({ length: 10_000 }, () => ({ backoff: new Backoff(random), at: 0 }));
    for (let attempt = 1; attempt <= 12; attempt++) {
      for (const client of clients) client.at += client.backoff.nextDelayMs();
      if (attempt === 1) continue;
      const buckets = new Map<number, number>();
      for (const { at } of clients) buckets.set(Math.floor(at / 100), (buckets.get(Math.floor(at / 100)) ?? 0) + 1);
      const mean = clients.length / (Math.max(...buckets.keys()) - Math.min(...buckets.keys()) + 1);
      // If the mean is a few clients, chance alone sometimes reaches three times as many.
      const most = Math.max(...buckets.values());
      expect(most, `attempt ${attempt}`).toBeLessThanOrEqual(mean > 50 ? 3 * mean : 3 * mean + 6 * Math.sqrt(mean));
    }
  });
});
