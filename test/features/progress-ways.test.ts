/** Progress from one peer to another, both ways, on every kind of link; and how it restarts a timeout. */
import { describe, expect, it, vi } from "vitest";
import { mcp, TimeoutError, type Context } from "../../src/index.js";
import { inspect } from "../../src/peer/peer.js";
import { pass, useFakeClock } from "../support/clock.js";
import { expectEmpty, type AnyOptions } from "../support/pair.js";
import { notification, rawPeer, result } from "../support/raw.js";
import { Outcomes, rejection, turn } from "../support/turns.js";
import { asStrangers, everyWay, expectIdle, expectNoDeadlines, visibleWays } from "./joined.js";

/** Reports each of its values, each in a turn of its own, and then answers. */
const serving: AnyOptions = {
  methods: {
    async build({ values }, { progress }: Context) {
      for (const value of values) {
        await turn();
        progress(value);
      }
      return "built";
    },
    burst({ values }, { progress }: Context) {
      for (const value of values) progress(value);
      return "built";
    },
  },
};

describe.each(everyWay)("progress %s", (_name, join) => {
  expectNoDeadlines();

  it.each([
    ["a", "build"],
    ["b", "build"],
    ["a", "burst"],
    ["b", "burst"],
  ] as const)("reaches %s in order, all of it before the result (%s)", async (side, method) => {
    await using both = await join(serving, serving);
    const values = Array.from({ length: 50 }, (_, i) => i);
    const seen: unknown[] = [];
    const onProgress = (value: unknown): void => void seen.push(value);
    seen.push(await both[side].request(method, { values }, { onProgress }));
    await both.settled();
    expect(seen).toEqual([...values, "built"]);
    expectIdle(both);
  });

  it("reaches each of many calls, its own and no other", async () => {
    await using both = await join(serving, serving);
    const run = async (side: "a" | "b", i: number): Promise<unknown> => {
      const seen: unknown[] = [];
      await both[side].request("build", { values: [i, i] }, { onProgress: (value) => seen.push(value) });
      return seen;
    };
    const numbers = Array.from({ length: 40 }, (_, i) => i);
    const seen = await Promise.all(numbers.map((i) => run(i % 2 ? "a" : "b", i)));
    expect(seen).toEqual(numbers.map((i) => [i, i]));
    expectIdle(both);
  });

  it("reaches calls of a batch before the batch is answered", async () => {
    await using both = await join(serving);
    const batch = both.b.batch();
    const seen: unknown[] = [];
    const calls = [1, 2].map(async (i) => {
      await batch.request("build", { values: [i] }, { onProgress: (value) => seen.push(value) });
      seen.push(`answer ${i}`);
    });
    batch.send();
    await Promise.all(calls);
    expect(seen).toEqual([1, 2, "answer 1", "answer 2"]);
    expectIdle(both);
  });

  it("is passed on by a peer in the middle", async () => {
    await using end = await join(serving);
    await using start = await join({
      methods: {
        relay: ({ values }, { progress }: Context) => end.b.request("build", { values }, { onProgress: progress }),
      },
    });
    const seen: unknown[] = [];
    seen.push(await start.b.request("relay", { values: [1, 2] }, { onProgress: (value) => seen.push(value) }));
    expect(seen).toEqual([1, 2, "built"]);
  });
});

describe.each(visibleWays)("what is sent %s", (_name, join) => {
  it("is one report for each, between the call and its answer", async () => {
    await using both = await join(serving);
    await both.b.request("build", { values: ["x"] }, { onProgress: ignore });
    expect(both.sent.map(({ from, message }) => [from, message.method ?? message.result])).toEqual([
      ["b", "build"],
      ["a", "$/progress"],
      ["a", "built"],
    ]);
  });
});

describe("progress between strangers", () => {
  it("that chose mcp is theirs", async () => {
    await using both = await asStrangers({ ...serving, dialect: mcp }, { dialect: mcp });
    const seen: unknown[] = [];
    const values = [1, { progress: 2, total: 2 }];
    await both.b.request("build", { values }, { onProgress: (value) => seen.push(value) });
    expect(seen).toEqual([{ progress: 1 }, { progress: 2, total: 2 }]);
  });

  it("that chose nothing is not asked for", async () => {
    await using both = await asStrangers(serving);
    expect(await both.b.request("build", { values: [1] }, { onProgress: () => expect.fail() })).toBe("built");
    expect(both.from("b", "build")[0].params).toEqual({ values: [1] });
    expect(both.sent).toHaveLength(2);
  });
});

const ignore = (): void => {};

describe("resetTimeoutOnProgress", () => {
  useFakeClock();

  const report = notification("$/progress", { token: 1, value: null });

  it("starts the timeout anew with each report, to the millisecond", async () => {
    const raw = rawPeer({}, { isReciproc: true });
    const call = raw.peer.request("m", {}, { timeoutMs: 100, resetTimeoutOnProgress: true, onProgress: ignore });
    const outcomes = new Outcomes().watch("call", call);
    for (let i = 0; i < 5; i++) {
      await pass(99);
      raw.feed(report);
    }
    await pass(99);
    expect(outcomes.list).toEqual([]);
    await pass(1);
    expect(outcomes.list).toEqual([{ name: "call", reason: expect.any(TimeoutError) }]);
    expect((await rejection(call)).timeoutMs).toBe(100);
    expectEmpty(raw.peer);
  });

  it.each([undefined, false])("is off when it is %s", async (resetTimeoutOnProgress) => {
    const raw = rawPeer({}, { isReciproc: true });
    const call = raw.peer.request("m", {}, { timeoutMs: 100, resetTimeoutOnProgress, onProgress: ignore });
    const outcomes = new Outcomes().watch("call", call);
    await pass(99);
    raw.feed(report);
    await pass(1);
    expect(outcomes.names).toEqual(["call"]);
  });

  it("does nothing without a report, for another's, or where the timeout is Infinity", async () => {
    const raw = rawPeer({}, { isReciproc: true });
    const first = raw.peer.request("m", {}, { timeoutMs: 100, resetTimeoutOnProgress: true, onProgress: ignore });
    const endless = raw.peer.request(
      "m",
      {},
      { timeoutMs: Infinity, resetTimeoutOnProgress: true, onProgress: ignore },
    );
    const outcomes = new Outcomes().watch("first", first).watch("endless", endless);
    await pass(50);
    raw.feed(notification("$/progress", { token: 2, value: 1 }));
    await pass(50);
    expect(outcomes.names).toEqual(["first"]);
    await pass(10 ** 9);
    raw.feed(result(2, 1));
    await turn();
    expect(outcomes.names).toEqual(["first", "endless"]);
    expectEmpty(raw.peer);
  });

  it("ends with maxTotalTimeoutMs, to the millisecond, whatever is reported", async () => {
    const raw = rawPeer({}, { isReciproc: true });
    const call = raw.peer.request(
      "m",
      {},
      { timeoutMs: 100, maxTotalTimeoutMs: 250, resetTimeoutOnProgress: true, onProgress: ignore },
    );
    const outcomes = new Outcomes().watch("call", call);
    for (const ms of [90, 90]) {
      await pass(ms);
      raw.feed(report);
    }
    await pass(69);
    raw.feed(report);
    expect(outcomes.list).toEqual([]);
    await pass(1);
    expect(outcomes.list).toEqual([{ name: "call", reason: expect.any(TimeoutError) }]);
    expect((await rejection(call)).timeoutMs).toBe(250);
    expect(raw.messages()[1]).toEqual(notification("$/cancelRequest", { id: 1 }));
    expectEmpty(raw.peer);
  });

  it("runs a call that reports for ever into no timeout by itself", async () => {
    const raw = rawPeer({}, { isReciproc: true });
    const call = raw.peer.request("m", {}, { timeoutMs: 10, resetTimeoutOnProgress: true, onProgress: ignore });
    for (let i = 0; i < 1000; i++) {
      await vi.advanceTimersByTimeAsync(9);
      raw.feed(report);
    }
    raw.feed(result(1, "at last"));
    expect(await call).toBe("at last");
    expectEmpty(raw.peer);
  });

  it("keeps the timeouts of calls that report apart from those that do not", async () => {
    const raw = rawPeer({}, { isReciproc: true });
    const outcomes = new Outcomes();
    for (const [name, resetTimeoutOnProgress] of [
      ["resets", true],
      ["waits", false],
    ] as const) {
      const options = { timeoutMs: 100, resetTimeoutOnProgress, onProgress: ignore };
      outcomes.watch(name, raw.peer.request("m", {}, options));
    }
    await pass(60);
    raw.feed(report);
    await pass(40);
    expect(outcomes.names).toEqual(["waits"]);
    await pass(60);
    expect(outcomes.names).toEqual(["waits", "resets"]);
  });

  it("counts maxTotalTimeoutMs from the start, when timeoutMs is shorter and as long", async () => {
    const raw = rawPeer();
    const outcomes = new Outcomes();
    outcomes.watch("same", raw.peer.request("m", [], { timeoutMs: 50, maxTotalTimeoutMs: 50 }));
    outcomes.watch("total", raw.peer.request("m", [], { timeoutMs: Infinity, maxTotalTimeoutMs: 80 }));
    await pass(50);
    expect(outcomes.names).toEqual(["same"]);
    await pass(30);
    expect(outcomes.names).toEqual(["same", "total"]);
    expect(inspect(raw.peer).pending).toBe(0);
  });

  it.each([0, -1, NaN, "5"])("takes no %j for a maxTotalTimeoutMs", async (maxTotalTimeoutMs) => {
    const raw = rawPeer();
    const error = await rejection(raw.peer.request("m", [], { maxTotalTimeoutMs: maxTotalTimeoutMs as number }));
    expect(error.message).toContain("Expected `maxTotalTimeoutMs` to be a positive number");
    expect(raw.sent).toEqual([]);
  });
});
