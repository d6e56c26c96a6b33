/** Progress between two peers, in both directions, on every kind of link, and `resetTimeoutOnProgress`. */
import { describe, expect, it, vi } from "vitest";
import { TimeoutError, type Context } from "../../src/index.js";
import { inspect } from "../../src/peer/peer.js";
import { useNoChance } from "../support/chance.js";
import { pass, useFakeClock } from "../support/clock.js";
import { expectEmpty, type AnyOptions } from "../support/pair.js";
import { notification, rawPeer, result, type RawPeer } from "../support/raw.js";
import { Outcomes, rejection, turn } from "../support/turns.js";
import { everyWay, expectIdle, expectNoDeadlines } from "./joined.js";

/** Reports each of its values in a tick of its own, and then returns. */
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
});

/** Makes a call that asks a reciproc peer for reports. */
function calling(options: object): { raw: RawPeer; call: Promise<unknown> } {
  const raw = rawPeer({}, { isReciproc: true });
  return { raw, call: raw.peer.request("m", {}, { ...options, onProgress: () => {} }) };
}

describe("resetTimeoutOnProgress", () => {
  useFakeClock();
  useNoChance();

  const report = notification("$/progress", { token: 1, value: null });

  it("restarts the timeout with each report, to the millisecond", async () => {
    const { raw, call } = calling({ timeoutMs: 100, resetTimeoutOnProgress: true });
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
    const { raw, call } = calling({ timeoutMs: 100, resetTimeoutOnProgress });
    const outcomes = new Outcomes().watch("call", call);
    await pass(99);
    raw.feed(report);
    await pass(1);
    expect(outcomes.names).toEqual(["call"]);
  });

  it("does nothing without a report, for reports of another call, or if the timeout is Infinity", async () => {
    const { raw, call } = calling({ timeoutMs: 100, resetTimeoutOnProgress: true });
    const options = { timeoutMs: Infinity, resetTimeoutOnProgress: true, onProgress: () => {} };
    const outcomes = new Outcomes().watch("first", call).watch("endless", raw.peer.request("m", {}, options));
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

  it("is limited by maxTotalTimeoutMs, to the millisecond", async () => {
    const { raw, call } = calling({ timeoutMs: 100, maxTotalTimeoutMs: 250, resetTimeoutOnProgress: true });
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

  it("sets no total timeout by default", async () => {
    const { raw, call } = calling({ timeoutMs: 10, resetTimeoutOnProgress: true });
    for (let i = 0; i < 1000; i++) {
      await vi.advanceTimersByTimeAsync(9);
      raw.feed(report);
    }
    raw.feed(result(1, "at last"));
    expect(await call).toBe("at last");
    expectEmpty(raw.peer);
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

  it.each([0, -1, NaN, "5"])("refuses %j as maxTotalTimeoutMs", async (maxTotalTimeoutMs) => {
    const raw = rawPeer();
    const error = await rejection(raw.peer.request("m", [], { maxTotalTimeoutMs: maxTotalTimeoutMs as number }));
    expect(error.message).toContain("Expected `maxTotalTimeoutMs` to be a positive number");
    expect(raw.sent).toEqual([]);
  });
});
