import { describe, expect, it, vi } from "vitest";
import { TimeoutError } from "../../src/index.js";
import { countDeadlines } from "../../src/core/deadlines.js";
import { LINGER_MS, shareTimer } from "../../src/core/shared-timer.js";
import { inspect } from "../../src/peer/peer.js";
import { pass, useFakeClock } from "../support/clock.js";
import { rawPeer, result } from "../support/raw.js";
import { Outcomes, rejection, turn } from "../support/turns.js";

useFakeClock();
shareTimer();

/** Blocks the process for this time, so that no timer can fire. */
function stall(ms: number): void {
  const now = performance.now();
  vi.spyOn(performance, "now").mockReturnValue(now + ms);
}

describe("a call without an answer", () => {
  it.each([
    ["60 s by default", {}, undefined, 60_000],
    ["the peer's timeoutMs", { timeoutMs: 300 }, undefined, 300],
    ["its own timeoutMs", { timeoutMs: 300 }, { timeoutMs: 700 }, 700],
    ["the peer's when its own is undefined", { timeoutMs: 300 }, { timeoutMs: undefined }, 300],
    ["a fraction of a millisecond, rounded up", {}, { timeoutMs: 0.5 }, 1],
  ])("times out after %s", async (_name, options, callOptions, ms) => {
    const { peer, sent } = rawPeer(options);
    const call = peer.request("slow", [], callOptions);
    const outcomes = new Outcomes().watch("call", call);
    await pass(ms - 1);
    expect(outcomes.list).toEqual([]);
    await pass(1);
    expect(outcomes.names).toEqual(["call"]);
    const reason = await rejection(call);
    expect(reason).toBeInstanceOf(TimeoutError);
    expect(reason).toMatchObject({ code: "TIMEOUT", method: "slow", name: "TimeoutError" });
    expect(reason.message).toBe(`"slow" was not answered within ${reason.timeoutMs} ms`);
    expect(Math.ceil(reason.timeoutMs)).toBe(ms);
    // A plain link sends only the messages of the user.
    expect(sent).toHaveLength(1);
  });

  it.each([
    ["its own", {}, { timeoutMs: Infinity }],
    ["the peer's", { timeoutMs: Infinity }, undefined],
  ])("stays pending without a timer when %s timeoutMs is Infinity", async (_name, options, callOptions) => {
    const { peer, feed } = rawPeer(options);
    const call = peer.request("slow", [], callOptions);
    expect(vi.getTimerCount()).toBe(0);
    await pass(10 ** 12);
    feed(result(1, "at last"));
    expect(await call).toBe("at last");
  });

  it("stays pending longer than the maximum delay of setTimeout", async () => {
    const { peer } = rawPeer();
    const month = 30 * 24 * 3600 * 1000;
    const outcomes = new Outcomes().watch("call", peer.request("slow", [], { timeoutMs: month }));
    await pass(month - 1);
    expect(outcomes.list).toEqual([]);
    await pass(1);
    expect(outcomes.names).toEqual(["call"]);
  });
});

describe("timeoutMs", () => {
  it.each([
    [0, "`0` (number)"],
    [-1, "`-1` (number)"],
    [NaN, "`NaN` (number)"],
    ["5", "`5` (string)"],
    [null, "`null`"],
    [5n, "`5` (bigint)"],
    [{}, "an object"],
  ])("is refused if it is %s, and the call sends nothing", async (timeoutMs, shown) => {
    const { peer, sent } = rawPeer();
    const error = await rejection(peer.request("m", [], { timeoutMs: timeoutMs as number }));
    expect(error).toBeInstanceOf(TypeError);
    expect(error.message).toBe(`Expected \`timeoutMs\` to be a positive number, got ${shown}`);
    expect(sent).toEqual([]);
    expect(inspect(peer).pending).toBe(0);
  });
});

describe("the deadlines of all calls", () => {
  it("share one timer, which exists only while a call is pending", async () => {
    const left = rawPeer();
    const right = rawPeer();
    expect(vi.getTimerCount()).toBe(0);
    const delays = [500, 20, 90, 20, 500, 60_000];
    const outcomes = new Outcomes();
    for (const [i, timeoutMs] of delays.entries()) {
      outcomes.watch(`${timeoutMs}`, (i % 2 ? left : right).peer.request("slow", [], { timeoutMs }));
    }
    expect(countDeadlines()).toEqual({ waiting: 6, armed: true });
    expect(vi.getTimerCount()).toBe(1);
    await pass(100);
    expect(vi.getTimerCount()).toBe(1);
    await pass(60_000);
    expect(outcomes.names).toEqual(["20", "20", "90", "500", "500", "60000"]);
    expect(countDeadlines()).toEqual({ waiting: 0, armed: false });
    expect(vi.getTimerCount()).toBe(0);
  });

  it("leave an unreferenced timer for at most a second", async () => {
    const { peer, feed } = rawPeer();
    for (let id = 1; id <= 3; id++) {
      const call = peer.request("a");
      expect(countDeadlines()).toEqual({ waiting: 1, armed: true });
      feed(result(id, id));
      await call;
      expect(countDeadlines()).toEqual({ waiting: 0, armed: false });
    }
    expect(vi.getTimerCount()).toBe(1);
    await pass(LINGER_MS);
    expect(vi.getTimerCount()).toBe(0);
  });

  it("still expire after a fake clock was removed together with their timer", async () => {
    const { peer, feed } = rawPeer();
    const first = peer.request("a");
    feed(result(1, 1));
    await first;
    vi.useRealTimers();
    vi.useFakeTimers();
    const outcomes = new Outcomes().watch("second", peer.request("b", [], { timeoutMs: 500 }));
    await pass(500);
    expect(outcomes.names).toEqual(["second"]);
  });

  it("do not move when an earlier one is settled", async () => {
    const { peer, feed } = rawPeer();
    const outcomes = new Outcomes();
    outcomes.watch("early", peer.request("a", [], { timeoutMs: 10 }));
    outcomes.watch("late", peer.request("b", [], { timeoutMs: 100 }));
    feed(result(1, 1));
    await pass(99);
    expect(outcomes.names).toEqual(["early"]);
    await pass(1);
    expect(outcomes.names).toEqual(["early", "late"]);
  });

  it("come earlier when a shorter one is added", async () => {
    const { peer } = rawPeer();
    const outcomes = new Outcomes();
    outcomes.watch("long", peer.request("a", [], { timeoutMs: 100 }));
    await pass(50);
    outcomes.watch("short", peer.request("b", [], { timeoutMs: 10 }));
    await pass(10);
    expect(outcomes.names).toEqual(["short"]);
    await pass(40);
    expect(outcomes.names).toEqual(["short", "long"]);
  });
});

describe("a timer that fires late", () => {
  it("yields one tick to received answers before it rejects", async () => {
    const { peer, feed } = rawPeer();
    const outcomes = new Outcomes();
    outcomes.watch("answered", peer.request("a", [], { timeoutMs: 100 }));
    outcomes.watch("unanswered", peer.request("b", [], { timeoutMs: 100 }));
    stall(5000);
    // The timer fires first. The received frame is read after it, in the same iteration of the event loop.
    vi.advanceTimersToNextTimer();
    await turn();
    expect(outcomes.list).toEqual([]);
    feed(result(1, "in time"));
    vi.advanceTimersToNextTimer();
    await turn();
    vi.restoreAllMocks();
    expect(outcomes.list).toEqual([
      { name: "answered", value: "in time" },
      { name: "unanswered", reason: expect.any(TimeoutError) },
    ]);
  });

  it("leaves no timer if every answer was received", async () => {
    const { peer, feed } = rawPeer();
    const call = peer.request("a", [], { timeoutMs: 100 });
    stall(5000);
    vi.advanceTimersToNextTimer();
    feed(result(1, "in time"));
    vi.restoreAllMocks();
    expect(await call).toBe("in time");
    expect(countDeadlines()).toEqual({ waiting: 0, armed: false });
  });
});
