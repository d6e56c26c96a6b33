/** Imports `fleet/reconnecting`: no engine shows the signals of its attempts. The loop by which an engine connects, and connects again. */
import { expect, it, vi } from "vitest";
import { EngineError, type Channel } from "../../src/topics/engine.js";
import { Reconnecting } from "../../src/fleet/reconnecting.js";
import { virtualClock } from "../../src/testing/index.js";
import { rejection } from "../support/turns.js";

it("a loop that is closed ends its attempt or its delay at once, and no signal of an attempt that has succeeded", async () => {
  using clock = virtualClock();
  const signals: AbortSignal[] = [];
  const reports: string[] = [];
  const report = (name: string) => (): void => void reports.push(name);
  const engine = {
    isConnected: true,
    connect: async (signal: AbortSignal): Promise<Channel[]> => {
      signals.push(signal);
      if (!engine.isConnected) throw new EngineError("refused", "not-sent");
      return [];
    },
    drop: report("drop"),
  };
  const host = { received() {}, up: report("up"), down: report("down"), resubscribed: report("resubscribed") };
  const make = (): Reconnecting => new Reconnecting("test", engine, host);
  const up = make();
  await up.open();
  up.lost(new EngineError("cut", "unknown"));
  await clock.pass(100);
  expect([up.isUp, reports]).toEqual([true, ["down", "up", "resubscribed"]]);
  expect([up.close(), up.close(), signals.some(({ aborted }) => aborted)]).toEqual([true, false, false]);
  engine.isConnected = false;
  const starting = make();
  const opening = rejection(starting.open());
  await clock.pass(0);
  expect([clock.timers, starting.attempt]).toEqual([1, expect.any(Promise)]);
  starting.close();
  expect([(await opening).outcome, clock.timers]).toEqual(["not-sent", 0]);
});

it("a loop waits for at most 5 s before it tries again, and twice as long after each failure until then", async () => {
  using clock = virtualClock();
  vi.spyOn(Math, "random").mockReturnValue(1);
  const connect = vi.fn<() => Promise<never>>(() => Promise.reject(new EngineError("refused", "not-sent")));
  const host = { received() {}, up() {}, down() {}, resubscribed() {} };
  const loop = new Reconnecting("test", { isConnected: false, connect, drop() {} }, host);
  void rejection(loop.open());
  for (let times = 1; times <= 12; times++) {
    await clock.pass(0);
    expect(connect).toHaveBeenCalledTimes(times);
    await clock.pass(Math.min(100 * 2 ** times, 5_000) - 1);
    expect(connect).toHaveBeenCalledTimes(times);
    await clock.pass(1);
  }
  loop.close();
});
