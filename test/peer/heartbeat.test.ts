/** Imports `socket/heartbeat` and `socket/coalescer`: no public interface shows when a ping is sent, and no task of the library throws at the end of a tick. */
import { describe, expect, it } from "vitest";
import { Heartbeat, type Pulse } from "../../src/socket/heartbeat.js";
import { atEndOfTick } from "../../src/socket/coalescer.js";
import { pass, stall, useVirtualClock } from "../support/time.js";
import { uncaughtIn } from "../support/uncaught.js";

useVirtualClock();

const TIMES = { intervalMs: 25_000, deadAfterMs: 45_000 };

/** A connection whose activity the test controls, and its heartbeat. */
class Checked implements Pulse, Disposable {
  receivedAt: number;
  readonly asked: number[] = [];
  readonly givenUp: string[] = [];
  readonly traffic: CheckedOptions["traffic"];
  readonly #answers: boolean;
  readonly heartbeat: Heartbeat;

  /** `silentMs`: for how long the peer was silent before. `phase`: as of `Heartbeat`. */
  constructor({ answers = true, traffic, silentMs = 0, phase = 0 }: CheckedOptions = {}) {
    this.#answers = answers;
    this.traffic = traffic;
    this.receivedAt = performance.now() - silentMs;
    this.heartbeat = new Heartbeat(this, TIMES, phase);
  }

  speak(): void {
    this.receivedAt = performance.now();
  }

  ping(): void {
    this.asked.push(performance.now());
    if (this.#answers) this.speak();
  }

  dropSocket(reason: string): void {
    this.givenUp.push(reason);
  }

  [Symbol.dispose](): void {
    this.heartbeat.stop();
  }
}

interface CheckedOptions {
  answers?: boolean;
  traffic?: { received: number; sent: number };
  silentMs?: number;
  phase?: number;
}

describe("a heartbeat", () => {
  it("pings a peer that was silent for the interval, once per interval", async () => {
    using checked = new Checked();
    await pass(24_999);
    expect(checked.asked).toHaveLength(0);
    await pass(1);
    expect(checked.asked).toHaveLength(1);
    await pass(250_000);
    expect(checked.asked).toHaveLength(11);
    expect(checked.givenUp).toEqual([]);
  });

  it("accepts any message as activity, not only the answer to a ping", async () => {
    using checked = new Checked({ answers: false });
    await pass(44_000);
    checked.speak();
    await pass(24_000);
    for (let i = 0; i < 20; i++) {
      checked.speak();
      await pass(20_000);
    }
    expect([checked.asked.length, checked.givenUp]).toEqual([1, []]);
  });

  it("terminates a connection without an answer when it was silent for the timeout, and not before", async () => {
    using checked = new Checked({ answers: false });
    await pass(44_999);
    expect(checked.givenUp).toEqual([]);
    await pass(1);
    expect(checked.givenUp).toEqual(["nothing was received for 45000 ms"]);
    await pass(100_000);
    expect(checked.givenUp).toHaveLength(1);
    expect(checked.asked).toHaveLength(1);
  });

  it("accepts the bytes of an incomplete message as activity, until they stop", async () => {
    const traffic = { received: 100, sent: 0 };
    using checked = new Checked({ answers: false, traffic });
    for (let i = 0; i < 40; i++) {
      traffic.received += 1000;
      await pass(5_000);
    }
    expect(checked.asked).toEqual([]);
    await pass(24_999);
    expect(checked.asked).toHaveLength(0);
    await pass(1);
    expect(checked.asked).toHaveLength(1);
    await pass(20_000);
    expect(checked.givenUp).toEqual(["nothing was received for 45000 ms"]);
  });

  it("pings first after the process slept, instead of terminating the connection", async () => {
    using checked = new Checked();
    stall(600_000);
    await pass(0);
    expect([checked.asked.length, checked.givenUp]).toEqual([1, []]);
  });

  it("gives the other side its 5 s again if it is checked after the process slept", async () => {
    using checked = new Checked({ answers: false, silentMs: 1 });
    checked.heartbeat.check();
    stall(600_000);
    checked.heartbeat.check();
    await pass(4_990);
    expect([checked.asked.length, checked.givenUp]).toEqual([2, []]);
    await pass(20);
    expect(checked.givenUp).toHaveLength(1);
  });

  it("starts at a random moment within the interval, so that many connections do not ping together", async () => {
    const firsts = new Set<number>();
    for (let i = 0; i < 5; i++) {
      const began = performance.now();
      using checked = new Checked({ silentMs: 100_000, phase: i / 5 });
      await pass(25_000);
      firsts.add(checked.asked[0]! - began);
    }
    expect([...firsts]).toEqual([5_000, 10_000, 15_000, 20_000, 25_000]);
  });
});

it("the end of a tick runs every task in the order of registration, even if one of them throws", async () => {
  const ended: number[] = [];
  const error = new Error("cannot finish");
  const task = (n: number) => () => {
    ended.push(n);
    if (n === 1) throw error;
  };
  const uncaught = await uncaughtIn(() => {
    for (const n of [0, 1, 2]) atEndOfTick(task(n));
    expect(ended).toEqual([]);
  });
  expect(ended).toEqual([0, 1, 2]);
  expect(uncaught).toEqual([error]);
  atEndOfTick(task(3));
  await Promise.resolve();
  expect(ended).toEqual([0, 1, 2, 3]);
});
