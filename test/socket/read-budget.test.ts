/** Imports `base/read-budget`, `socket/read-marks`, `socket/ws`: only work moves the clock of a budget here. */
import { EventEmitter } from "node:events";
import { describe, expect, it, vi } from "vitest";
import { ReadBudget } from "../../src/base/read-budget.js";
import { ReadMarks } from "../../src/socket/read-marks.js";
import { WsSocket } from "../../src/socket/ws.js";
import { pass, raising, stall, useVirtualClock } from "../support/time.js";
import { uncaughtIn } from "../support/uncaught.js";

useVirtualClock();

const tick = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** A socket that reads frames in parts, each a piece of work. */
class FakeSocket {
  receivedAt = 0;
  isPaused = false;
  readonly parts: (() => void)[] = [];

  pauseReading(): void {
    this.isPaused = true;
  }

  resumeReading(): void {
    this.isPaused = false;
  }

  readPart(): boolean {
    const part = this.parts.shift();
    part?.();
    return part !== undefined;
  }
}

/** Runs work as a socket runs frames, and records the tick of each piece. */
class Desk {
  readonly socket = new FakeSocket();
  readonly budget = new ReadBudget(this.socket);
  readonly done: string[] = [];
  /** Returns how many pieces of work ran in each tick. */
  readonly ticks: number[] = [0];
  #isCounting = true;

  constructor() {
    const count = (): void => {
      this.ticks.push(0);
      if (this.#isCounting) setImmediate(count);
    };
    setImmediate(count);
  }

  take(name: string, ms = 1, act = (): void => {}): void {
    const work = (): void => {
      stall(ms);
      this.done.push(name);
      this.ticks[this.ticks.length - 1]!++;
      act();
    };
    if (this.budget.received()) work();
    else this.budget.add(work);
  }

  async finish(): Promise<void> {
    while (this.budget.hasWork || this.socket.isPaused) await tick();
    this.#isCounting = false;
  }
}

const names = (count: number): string[] => Array.from({ length: count }, (_, i) => String(i));

describe("a budget", () => {
  it("never delays a connection that needs less in each tick", async () => {
    const desk = new Desk();
    for (let i = 0; i < 20; i++) {
      for (const name of names(3)) desk.take(name);
      expect(desk.done).toHaveLength(3 * (i + 1));
      await tick();
    }
    expect(desk.budget.hasWork).toBe(false);
    await desk.finish();
  });

  it("reads in parts the frames that arrived before the pause, within the budget", async () => {
    const [desk, startedAt] = [new Desk(), performance.now()];
    for (const name of names(20)) desk.socket.parts.push(() => desk.take(name));
    desk.take("first", 10);
    desk.take("second");
    await tick();
    expect([desk.done.length < 8, desk.socket.isPaused]).toEqual([true, true]);
    await desk.finish();
    expect(desk.done).toEqual(["first", "second", ...names(20)]);
    expect(Math.max(...desk.ticks)).toBeLessThanOrEqual(6);
    expect(desk.socket.receivedAt).toBeGreaterThan(startedAt);
  });

  it("reads the clock for each message of a pack while messages are slow, and for every eighth while they are fast", () => {
    const budget = new ReadBudget();
    using clock = vi.spyOn(performance, "now");
    /** Returns how often the clock is read for `count` messages of a duration. */
    const readings = (count: number, ms: number): number => {
      clock.mockClear();
      for (let i = 0; i < count; i++) {
        stall(ms);
        expect(budget.isSpent()).toBe(false);
      }
      return clock.mock.calls.length;
    };
    expect(readings(4, 1)).toBe(4);
    expect(readings(81, 0.001)).toBe(11);
    expect(readings(1, 0.001)).toBe(0);
    for (let i = 0; i < 8; i++) {
      stall(1);
      budget.isSpent();
    }
    expect(budget.isSpent()).toBe(true);
  });

  it("runs deferred work first: an inner part before an outer part, and both before later work", async () => {
    const desk = new Desk();
    desk.take("frame", 10, () => {
      // The caller is deferred after its callee.
      const outer = (): void => void desk.done.push("outer");
      const inner = (): void => {
        desk.done.push("inner");
        desk.budget.defer(() => desk.done.push("inner, again"));
      };
      desk.budget.defer(inner);
      desk.budget.defer(outer);
    });
    desk.take("next frame");
    await desk.finish();
    expect(desk.done).toEqual(["frame", "inner", "inner, again", "outer", "next frame"]);
  });

  it("moves the work of the old socket to the new socket, and runs it first", async () => {
    const [old, next] = [new Desk(), new Desk()];
    old.take("old", 10);
    old.budget.defer(() => next.done.push("old rest"));
    next.take("new", 10);
    next.take("newer");
    next.budget.adopt(old.budget);
    expect(old.budget.hasWork).toBe(false);
    await Promise.all([next.finish(), old.finish()]);
    expect(next.done).toEqual(["new", "old rest", "newer"]);
  });

  it("continues after work that throws", async () => {
    const desk = new Desk();
    const errors = await uncaughtIn(async () => {
      desk.take("first", 10);
      desk.take("second", 1, raising(new Error("out of work")));
      desk.take("third");
      await desk.finish();
    });
    expect(errors).toEqual([new Error("out of work")]);
    expect(desk.done).toEqual(["first", "second", "third"]);
  });
});

it("is forgotten by its budget when it has closed, because a session without a socket keeps the budget", async () => {
  const pause = vi.fn<() => void>();
  const webSocket = Object.assign(new EventEmitter(), {
    readyState: 1,
    OPEN: 1,
    bufferedAmount: 0,
    pause,
    resume() {},
  });
  const socket = new WsSocket(webSocket as never, 1000);
  socket.take("close", 1000, Buffer.alloc(0));
  await new Promise<void>((resolve) => socket.budget.add(resolve));
  expect(pause).not.toHaveBeenCalled();
});

/** Makes marks whose pings the test sees. `set(n)` sets a mark that records `n` when it is reached. */
function recording() {
  const pings: string[] = [];
  const reached: number[] = [];
  const marks = new ReadMarks((payload) => pings.push(payload));
  return { pings, reached, marks, set: (n = 0): boolean => marks.set(() => reached.push(n)) };
}

describe("the marks of what the other side has read", () => {
  it("share a ping of 5 ms, and the next one is then sent without waiting for a pong", async () => {
    const { pings, reached, marks, set } = recording();
    for (const n of [1, 2, 3]) expect(set(n)).toBe(true);
    expect(pings).toEqual(["1"]);
    for (const stray of ["", "0", "x", "-1", "2", "3"]) expect(marks.reached(stray)).toBe(false);
    await pass(5);
    expect([pings, reached]).toEqual([["1", "3"], []]);
    expect([marks.reached("1"), marks.reached("3"), marks.reached("3")]).toEqual([true, true, false]);
    expect(reached).toEqual([1, 2, 3]);
    // At most one ping every 5 ms, also if each is answered at once.
    for (let i = 0; i < 10; i++) set(4);
    expect(pings).toHaveLength(2);
    await pass(5);
    expect(pings).toEqual(["1", "3", "13"]);
    marks.reached("13");
  });

  it("have at most 16 pings in flight, and ping again if one is set a second after an unanswered ping", async () => {
    const { pings, reached, marks, set } = recording();
    for (let i = 1; i <= 50; i++) {
      set(i);
      await pass(5);
    }
    expect(pings).toHaveLength(16);
    // A pong also answers all earlier pings.
    expect(marks.reached("4")).toBe(true);
    expect(pings.at(-1)).toBe("50");
    await pass(1001);
    set(51);
    expect(pings.at(-1)).toBe("51");
    marks.reached("51");
    expect(reached).toHaveLength(51);
  });

  it("are at most 1,024 that wait, because a client might never answer", async () => {
    const { marks, set } = recording();
    expect(Array.from({ length: 1025 }, () => set()).indexOf(false)).toBe(1024);
    marks.reached("1");
    expect(set()).toBe(true);
    await pass(5);
  });
});
