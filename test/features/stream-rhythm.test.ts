/** The number of round trips of a stream, and how much latency is hidden. Times are those of a fake clock. */
import { describe, expect, it, vi } from "vitest";
import type { AnyPeer } from "../../src/index.js";
import { useFakeClock } from "../support/clock.js";
import { expectEmpty } from "../support/pair.js";
import { delayed, type Delayed } from "./delayed.js";
import { readAll } from "./joined.js";
import { counted } from "./sources.js";

useFakeClock();

const WAY_MS = 25;
const ROUND_TRIP_MS = 2 * WAY_MS;

const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** Yields `count` values, one each `everyMs`. */
async function* steadily(count: number, everyMs: number): AsyncGenerator<number> {
  for (let i = 1; i <= count; i++) {
    await sleep(everyMs);
    yield i;
  }
}

/** Reads with a pause of `eachMs` after each value, and records the time of each value. */
async function readSlowly(stream: AsyncIterable<unknown>, eachMs: number): Promise<number[]> {
  const times: number[] = [];
  for await (const _ of stream) {
    times.push(performance.now());
    if (eachMs > 0) await sleep(eachMs);
  }
  return times;
}

/** Returns the duration and the result. */
async function timed<T>(work: () => Promise<T>): Promise<{ ms: number; value: T }> {
  const from = performance.now();
  const done: { ms: number; value: T }[] = [];
  void work().then((value) => done.push({ ms: performance.now() - from, value }));
  while (done.length === 0) await vi.advanceTimersByTimeAsync(1);
  return done[0]!;
}

async function close({ a, b }: Delayed): Promise<void> {
  await Promise.all([a, b].map((peer: AnyPeer) => peer.close()));
  expectEmpty(a);
  expectEmpty(b);
}

const asked = ({ sent }: Delayed): number =>
  sent.filter(({ message }) => message.method === "$/enumerator/next").length;

describe(`over a round trip of ${ROUND_TRIP_MS} ms`, () => {
  it("the first value takes one round trip, if it is ready", async () => {
    const both = delayed(WAY_MS, { methods: { tail: () => counted(5) } });
    const { ms, value } = await timed(() => readAll(both.b.stream("tail")));
    expect(value).toEqual([1, 2, 3, 4, 5]);
    expect(ms).toBe(ROUND_TRIP_MS);
    expect(both.sent).toHaveLength(2);
    await close(both);
  });

  it("a source that begins later than 100 ms gets an empty first reply, and takes one more round trip", async () => {
    const both = delayed(WAY_MS, { methods: { tail: () => steadily(1, 400) } });
    const { ms } = await timed(() => readAll(both.b.stream("tail", [], { timeoutMs: 200 })));
    // The request for the first value is pending at the source, so no time is lost.
    expect(ms).toBe(ROUND_TRIP_MS + 400);
    // The call, two requests for more, and their replies.
    expect(both.sent).toHaveLength(6);
    await close(both);
  });

  it("each value of a steady source arrives half a round trip or one round trip after it was made", async () => {
    const both = delayed(WAY_MS, { methods: { tail: () => steadily(100, 10) } });
    const start = performance.now();
    const { ms, value: times } = await timed(() => readSlowly(both.b.stream("tail"), 0));
    expect(times).toHaveLength(100);
    const latencies = times.map((at, i) => at - start - WAY_MS - 10 * (i + 1));
    // A value is sent at once if a request is pending, and otherwise with the next request.
    expect(Math.min(...latencies)).toBeGreaterThanOrEqual(WAY_MS);
    expect(Math.max(...latencies)).toBeLessThanOrEqual(WAY_MS + ROUND_TRIP_MS);
    // 1,000 ms of work. One value per request would take 5,000 ms.
    expect(ms).toBeLessThanOrEqual(100 * 10 + 2 * ROUND_TRIP_MS);
    expect(asked(both)).toBeLessThanOrEqual(2 * (1000 / ROUND_TRIP_MS + 1));
    await close(both);
  });

  it("a reader that takes 1 ms for each value never waits for a faster source", async () => {
    const both = delayed(WAY_MS, { methods: { tail: () => counted(5000) } });
    const { ms, value: times } = await timed(() => readSlowly(both.b.stream("tail"), 1));
    expect(times).toHaveLength(5000);
    // One round trip, and then only work.
    expect(ms).toBe(ROUND_TRIP_MS + 5000);
    expect(asked(both)).toBe(5);
    await close(both);
  });

  it("a source and a reader without any pause move two full replies each round trip", async () => {
    const both = delayed(WAY_MS, { methods: { tail: () => counted(10_000) } });
    const { ms, value } = await timed(() => readAll(both.b.stream("tail")));
    expect(value).toHaveLength(10_000);
    expect(ms).toBe(6 * ROUND_TRIP_MS);
    // The last one is answered without a value.
    expect(asked(both)).toBe(11);
    await close(both);
  });
});
