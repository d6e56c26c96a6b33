import { describe, expect, it, onTestFinished, vi } from "vitest";
import { pair } from "../../src/index.js";
import { testServer, virtualClock, type VirtualClock } from "../../src/testing/index.js";

function clockOfTest(): VirtualClock {
  const clock = virtualClock();
  onTestFinished(() => clock.restore());
  return clock;
}

const globals = (): unknown[] => [setTimeout, setInterval, clearTimeout, clearInterval, performance.now];

describe("a virtual clock", () => {
  it("fires timers at their times, in order, and those of one time in the order in which they were set", async () => {
    const clock = clockOfTest();
    const fired: string[] = [];
    const note = (name: string): void => void fired.push(`${name} ${clock.now}`);
    setTimeout(note, 20, "late");
    setTimeout(note, 10, "first");
    setTimeout(note, 10, "second");
    const every = setInterval(note, 15, "every");
    clearTimeout(setTimeout(note, 5, "cleared"));
    await clock.pass(9);
    expect(fired).toEqual([]);
    await clock.pass(23);
    clearInterval(every);
    expect(fired).toEqual(["first 10", "second 10", "every 15", "late 20", "every 30"]);
    expect(clock).toMatchObject({ now: 32, timers: 0 });
  });

  it("lets promises settle between two timers, which may set others, and passes time once for each call", async () => {
    const clock = clockOfTest();
    const times: number[] = [];
    const startedAt = performance.now();
    const working = (async () => {
      for (const ms of [0, 100, 0, 200, 3_000]) {
        await new Promise((resolve) => void setTimeout(resolve, ms));
        times.push(performance.now() - startedAt);
      }
    })();
    await Promise.all([clock.pass(250), clock.pass(100)]);
    expect([times.map(Math.round), clock.now, clock.timers]).toEqual([[0, 100, 100, 300], 350, 1]);
    await clock.pass(2_950);
    await working;
  });

  it("has timers with the functions of those of Node, and treats a delay that is too long as 1 ms", async () => {
    const clock = clockOfTest();
    const fired: string[] = [];
    const timer = setTimeout(() => fired.push("refreshed"), 10);
    expect([timer.unref().hasRef(), timer.ref().hasRef()]).toEqual([false, true]);
    await clock.pass(9);
    timer.refresh();
    await clock.pass(9);
    setTimeout(() => fired.push("too long"), 2 ** 31);
    await clock.pass(1);
    expect(new Set(fired)).toEqual(new Set(["refreshed", "too long"]));
  });

  it("leaves timers alone that were set before, and gives everything back once", async () => {
    const before = globals();
    const real = new Promise((resolve) => void setTimeout(resolve, 1));
    const cleared = setTimeout(() => expect.unreachable(), 1);
    const clock = clockOfTest();
    expect(() => virtualClock()).toThrow("one virtual clock");
    clearTimeout(cleared);
    setTimeout(() => expect.unreachable(), 0);
    await real;
    clock.restore();
    expect(globals()).toEqual(before);
    const next = clockOfTest();
    clock.restore();
    expect(globals()).not.toEqual(before);
    expect(next.timers).toBe(0);
  });

  it("fires no timer while the process stalls, and those that were due late, in their order", async () => {
    const clock = clockOfTest();
    const fired: string[] = [];
    for (const ms of [200, 100, 6_000]) setTimeout(() => fired.push(`${ms} at ${clock.now}`), ms);
    clock.stall(5_000);
    expect(fired).toEqual([]);
    await clock.pass(1_000);
    expect(fired).toEqual(["100 at 5000", "200 at 5000", "6000 at 6000"]);
  });

  it("refuses to pass no number of milliseconds from 0", async () => {
    const clock = clockOfTest();
    for (const ms of [-1, Number.NaN, Infinity]) {
      await expect(clock.pass(ms)).rejects.toThrow("`ms`");
      expect(() => clock.stall(ms)).toThrow("`ms`");
    }
  });
});

it("a test server works under the fake timers of a test runner, which may also fake `queueMicrotask` and `setImmediate`", async () => {
  const heard: unknown[] = [];
  const { server, connect, network } = testServer({ methods: { note: (params: unknown) => void heard.push(params) } });
  const all = ["setTimeout", "clearTimeout", "setImmediate", "clearImmediate", "Date", "performance", "queueMicrotask"];
  vi.useFakeTimers({ toFake: all as "Date"[] });
  onTestFinished(() => void vi.useRealTimers());
  expect(await pair({}, { methods: { echo: () => "echo" } })[0].request("echo")).toBe("echo");
  const client = await connect(server.url);
  await network.settle();
  network.cut();
  expect(client.state).toBe("suspended");
  await vi.advanceTimersByTimeAsync(0);
  expect(client.state).toBe("open");
  network.slow(1_000);
  client.notify("note", ["x".repeat(900)]);
  await vi.advanceTimersByTimeAsync(900);
  expect(heard).toEqual([]);
  await vi.advanceTimersByTimeAsync(100);
  expect(heard).toHaveLength(1);
  network.slow(Infinity);
  await server.close();
});
