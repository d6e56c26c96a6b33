/** Timeouts of calls, with a timer for each call, as in a page, and with one for all calls of a process, as with `reciproc/node`; and what calls must not allocate. */
import { afterEach, beforeAll, describe, expect, it, vi } from "vitest";
import type * as standard from "../../src/index.js";
import type { AnyPeer, Options } from "../../src/index.js";
import { virtualClock } from "../../src/testing/index.js";
import { notification, request, result, TestLink } from "../support/raw.js";
import { Outcomes, pass, rejection, stall, timersSet, turn, useVirtualClock } from "../support/time.js";

let entry: typeof standard;

/** Loads all modules anew, and with `isShared` those that let all calls share one timer. */
async function load(isShared: boolean): Promise<void> {
  vi.resetModules();
  entry = await import("../../src/index.js");
  if (isShared) await import("../../src/node.js");
}

type Caller = ReturnType<typeof caller>;

/** Makes a peer. Returns it with what its other side does. */
function caller(options: Options<any, any> = {}) {
  const sent: any[] = [];
  const link = new TestLink({ isReciproc: true, onSend: (text) => void sent.push(JSON.parse(text)) });
  const peer: AnyPeer = new entry.Peer<any, any>(link, { use: [entry.progress], ...options });
  return { peer, sent, feed: link.feed };
}

describe.each([
  ["with a timer of its own", false],
  ["with the timer of the process", true],
])("a call %s", (_name, isShared) => {
  useVirtualClock();
  beforeAll(() => load(isShared));

  it.each([
    ["60 s by default", {}, undefined, 60_000],
    ["the peer's timeoutMs", { timeoutMs: 300 }, undefined, 300],
    ["its own timeoutMs", { timeoutMs: 300 }, { timeoutMs: 700 }, 700],
    ["the peer's when its own is undefined", { timeoutMs: 300 }, { timeoutMs: undefined }, 300],
    ["a month, which is longer than the maximum of setTimeout", {}, { timeoutMs: 30 * 86_400_000 }, 30 * 86_400_000],
    ["its maxTotalTimeoutMs", {}, { timeoutMs: 700, maxTotalTimeoutMs: 200 }, 200],
  ])("times out after %s", async (_how, options, callOptions, timeoutMs) => {
    const { peer } = caller(options);
    const call = peer.request("slow", [], callOptions);
    const outcomes = new Outcomes().watch("call", call);
    await pass(timeoutMs - 1);
    expect(outcomes.list).toEqual([]);
    await pass(1);
    expect(outcomes.names).toEqual(["call"]);
    const why = { name: "TimeoutError", code: "TIMEOUT", method: "slow", timeoutMs };
    expect(await rejection(call)).toMatchObject(why);
    expect(timersSet()).toBe(0);
  });

  it("stays pending without a timer when its timeoutMs, or the peer's, is Infinity", async () => {
    for (const [options, ofCall] of [[{}, { timeoutMs: Infinity }], [{ timeoutMs: Infinity }]]) {
      const { peer, feed } = caller(options);
      const call = peer.request("slow", [], ofCall);
      expect(timersSet()).toBe(0);
      await pass(10 ** 12);
      feed(result(1, "at last"));
      expect(await call).toBe("at last");
    }
  });

  it("times out at its own time, whichever others are made and answered", async () => {
    const one = caller();
    const other = caller();
    const outcomes = new Outcomes();
    const call = ({ peer }: Caller, timeoutMs: number): unknown =>
      outcomes.watch(`${timeoutMs}`, peer.request("slow", [], { timeoutMs }));
    for (const timeoutMs of [500, 20, 91, 500, 60_000]) call(one, timeoutMs);
    for (const timeoutMs of [20, 90, 100]) call(other, timeoutMs);
    expect(timersSet()).toBe(isShared ? 1 : 8);
    await pass(19);
    expect(outcomes.names).toEqual([]);
    await pass(1);
    expect(outcomes.names).toEqual(["20", "20"]);
    other.feed(result(2, "in time"));
    call(one, 10);
    await pass(70);
    expect(outcomes.names.slice(2)).toEqual(["90", "10"]);
    await pass(1);
    expect(outcomes.names.slice(4)).toEqual(["91"]);
    await pass(60_000);
    expect(outcomes.names.slice(5)).toEqual(["100", "500", "500", "60000"]);
    expect(timersSet()).toBe(0);
  });

  it("whose timeout starts again with each report times out after the last one", async () => {
    const { peer, sent, feed } = caller();
    const outcomes = new Outcomes();
    const options = { timeoutMs: 100, onProgress: () => {}, resetTimeoutOnProgress: true };
    outcomes.watch("early", peer.request("m", {}, { timeoutMs: 100 }));
    outcomes.watch("reset", peer.request("m", {}, options));
    outcomes.watch("late", peer.request("m", {}, { timeoutMs: 160 }));
    await pass(70);
    feed(notification("$/progress", { token: sent[1].params.workDoneToken, value: 1 }));
    await pass(99);
    expect(outcomes.names).toEqual(["early", "late"]);
    await pass(1);
    expect(outcomes.names).toEqual(["early", "late", "reset"]);
  });

  it("yields to answers that were received when its timer fires late", async () => {
    const { peer, feed } = caller();
    const outcomes = new Outcomes();
    for (const name of ["answered", "unanswered"]) outcomes.watch(name, peer.request(name, [], { timeoutMs: 100 }));
    stall(5000);
    // The timer fires first. The received frame is read after it.
    setTimeout(() => feed(result(1, "in time")), 0);
    await pass(0);
    expect(outcomes.list).toEqual([
      { name: "answered", value: "in time" },
      { name: "unanswered", reason: expect.objectContaining({ code: "TIMEOUT" }) },
    ]);
    expect(timersSet()).toBe(0);
  });
});

describe("the timers of a process", () => {
  useVirtualClock();

  // Before the clock is removed, which would otherwise come back.
  afterEach(() => void vi.unstubAllGlobals());

  it("do not fire within a fraction of a millisecond before a timeout", async () => {
    await load(true);
    const outcomes = new Outcomes().watch("call", caller().peer.request("m", [], { timeoutMs: 0.5 }));
    await pass(0);
    expect(outcomes.names).toEqual([]);
    await pass(1);
    expect(outcomes.names).toEqual(["call"]);
  });

  it("are one for consecutive calls, which keeps no process alive between them, for at most a second", async () => {
    await load(true);
    const timers: NodeJS.Timeout[] = [];
    const { setTimeout } = globalThis;
    vi.stubGlobal("setTimeout", (...args: Parameters<typeof setTimeout>) => {
      timers.push(setTimeout(...args));
      return timers.at(-1);
    });
    const { peer, feed } = caller();
    for (let id = 1; id <= 3; id++) {
      const call = peer.request("a");
      expect(timers.map((timer) => timer.hasRef())).toEqual([true]);
      feed(result(id, id));
      await call;
      expect(timers.map((timer) => timer.hasRef())).toEqual([false]);
    }
    expect(timersSet()).toBe(1);
    await pass(1000);
    expect(timersSet()).toBe(0);
  });

  it("are one for each call in workerd, where a timer fires only for the request that set it, and only that can clear it", async () => {
    vi.stubGlobal("navigator", { userAgent: "Cloudflare-Workers" });
    await load(true);
    const { peer, feed, sent } = caller();
    vi.stubGlobal("clearTimeout", () => {});
    const options = { timeoutMs: 1000, onProgress: () => {}, resetTimeoutOnProgress: true };
    const answered = peer.request("a", {}, { timeoutMs: 1000 });
    const outcomes = new Outcomes().watch("reset", peer.request("b", {}, options));
    expect(timersSet()).toBe(2);
    feed(result(1, "done"));
    expect(await answered).toBe("done");
    await pass(500);
    feed(notification("$/progress", { token: sent[1].params.workDoneToken, value: 1 }));
    await pass(999);
    expect(outcomes.names).toEqual([]);
    await pass(1);
    expect(outcomes.names).toEqual(["reset"]);
  });

  it("include those of calls that were made before the timer was shared", async () => {
    await load(false);
    const { peer, feed } = caller();
    const outcomes = new Outcomes();
    for (const name of ["answered", "before"]) outcomes.watch(name, peer.request(name, [], { timeoutMs: 1000 }));
    await import("../../src/node.js");
    feed(result(1, 1));
    outcomes.watch("after", peer.request("after", [], { timeoutMs: 1000 }));
    expect(timersSet()).toBe(2);
    await pass(1000);
    expect(outcomes.names).toEqual(["answered", "before", "after"]);
    expect(timersSet()).toBe(0);
  });
});

it("a call still times out after a virtual clock was removed together with the timer of the process", async () => {
  await load(true);
  const { peer, feed } = caller();
  {
    using before = virtualClock();
    expect(before.now).toBe(0);
    const first = peer.request("a");
    feed(result(1, 1));
    await first;
  }
  using clock = virtualClock();
  const outcomes = new Outcomes().watch("second", peer.request("b", [], { timeoutMs: 500 }));
  await clock.pass(500);
  expect(outcomes.names).toEqual(["second"]);
});

it("a call by the real clock waits for no timeout of a virtual clock, and one of before keeps its own", async () => {
  await load(true);
  const { peer } = caller();
  const outcomes = new Outcomes();
  const call = (): Promise<unknown> => peer.request("wait", [], { timeoutMs: 50 });
  const before = call();
  {
    using clock = virtualClock();
    clock.stall(1e9);
    outcomes.watch("virtual", call());
  }
  for (const each of [before, call()]) await expect(each).rejects.toMatchObject({ code: "TIMEOUT" });
  expect(outcomes.names).toEqual([]);
});

const METHODS = {
  plain: () => 1,
  slow: async () => turn(),
  never: () => new Promise<never>(() => {}),
  signalled: (_params: unknown, context: { signal: unknown }) => context.signal === context.signal,
};

it("a plain call makes no AbortController, unless its handler reads `signal`, and then one", async () => {
  const controllers = vi.spyOn(globalThis, "AbortController").mock.calls;
  await load(true);
  const [a, b] = entry.pair<any, any>({ methods: METHODS }, {});
  await b.request("plain");
  await b.request("slow");
  b.notify("plain");
  await b.request("plain", {}, { timeoutMs: 1000 });
  expect([controllers.length, await b.request("signalled"), controllers.length]).toEqual([0, true, 1]);
  await a.close();
});

it("a plain call adds nothing to a Map, whose table would be reallocated all the time", async () => {
  let added = 0;
  vi.stubGlobal(
    "Map",
    class<K, V> extends Map<K, V> {
      override set(key: K, value: V): this {
        added++;
        return super.set(key, value);
      }
    },
  );
  await load(true);
  const [a, b] = entry.pair<any, any>({ methods: METHODS }, {});
  await b.request("plain");
  added = 0;
  a.notify("plain");
  await Promise.all([b.request("plain"), b.request("slow")]);
  expect(added).toBe(0);
  // The first call with its own timeout opens a queue, so this count would see a Map.
  await b.request("plain", undefined, { timeoutMs: 12_345 });
  expect(added).toBeGreaterThan(0);
  await a.close();
});

it.each<[string, object, number, number]>([
  ["an error with id null", { jsonrpc: "2.0", id: null, error: { code: 1, message: "no" } }, 0, 1],
  ["a request of an unknown method", request(1, "unknown"), 1, 0],
  ["a request of an unknown stream", request(1, "$/enumerator/next", { token: 1 }), 1, 0],
  ["a request beyond `maxInFlight`", request(1, "never"), 1, 0],
  ["a notification beyond `maxInFlight`", notification("never"), 0, 1],
])("without a listener, a repeated message creates no error: %s", async (_what, message, replies, reports) => {
  const made = vi.spyOn(globalThis, "Error").mock.calls;
  await load(true);
  const { peer, sent, feed } = caller({ methods: METHODS, limits: { maxInFlight: 1 } });
  feed(request(0, "never"));
  feed(notification("never"));
  made.length = 0;
  feed(message);
  expect([made.length, sent.length]).toEqual([0, replies]);
  const errors: unknown[] = [];
  peer.on("error", (error) => errors.push(error));
  feed(message);
  expect([made.length, errors.length]).toEqual([reports, reports]);
});
