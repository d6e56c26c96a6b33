import { describe, expect, it, vi } from "vitest";
import { countDeadlines } from "../../src/core/deadlines.js";
import { Heartbeat, type Pulse } from "../../src/link/heartbeat.js";
import { pass, useFakeClock } from "../support/clock.js";

useFakeClock();

const TIMES = { intervalMs: 25_000, deadAfterMs: 45_000 };

/** A connection whose activity the test controls. */
class Patient implements Pulse {
  heardAt = performance.now();
  readonly asked: number[] = [];
  readonly givenUp: string[] = [];
  answers = true;

  speak(): void {
    this.heardAt = performance.now();
  }

  ping(): void {
    this.asked.push(performance.now());
    if (this.answers) this.speak();
  }

  giveUp(reason: string): void {
    this.givenUp.push(reason);
  }
}

describe("a heartbeat", () => {
  it("pings a peer that was silent for the interval, once per interval", async () => {
    const patient = new Patient();
    const heartbeat = new Heartbeat(patient, TIMES, 0);
    await pass(24_999);
    expect(patient.asked).toHaveLength(0);
    await pass(1);
    expect(patient.asked).toHaveLength(1);
    await pass(250_000);
    expect(patient.asked).toHaveLength(11);
    expect(patient.givenUp).toEqual([]);
    heartbeat.stop();
  });

  it("does not ping a peer that sends messages", async () => {
    const patient = new Patient();
    const heartbeat = new Heartbeat(patient, TIMES, 0);
    for (let i = 0; i < 20; i++) {
      await pass(20_000);
      patient.speak();
    }
    expect(patient.asked).toEqual([]);
    heartbeat.stop();
  });

  it("terminates a connection without an answer when it was silent for the timeout, and not before", async () => {
    const patient = new Patient();
    patient.answers = false;
    const heartbeat = new Heartbeat(patient, TIMES, 0);
    await pass(44_999);
    expect(patient.givenUp).toEqual([]);
    await pass(1);
    expect(patient.givenUp).toEqual(["nothing was heard for 45000 ms"]);
    await pass(100_000);
    expect(patient.givenUp).toHaveLength(1);
    expect(patient.asked).toHaveLength(1);
    heartbeat.stop();
  });

  it("accepts any message as activity, not only the answer to a ping", async () => {
    const patient = new Patient();
    patient.answers = false;
    const heartbeat = new Heartbeat(patient, TIMES, 0);
    await pass(44_000);
    patient.speak();
    await pass(24_000);
    expect(patient.givenUp).toEqual([]);
    heartbeat.stop();
  });

  it("accepts the bytes of an incomplete message as activity, until they stop", async () => {
    const patient = new Patient();
    patient.answers = false;
    const traffic = { received: 100, sent: 0 };
    const heartbeat = new Heartbeat(Object.assign(patient, { traffic }), TIMES, 0);
    for (let i = 0; i < 40; i++) {
      traffic.received += 1000;
      await pass(5_000);
    }
    expect(patient.asked).toEqual([]);
    await pass(24_999);
    expect(patient.asked).toHaveLength(0);
    await pass(1);
    expect(patient.asked).toHaveLength(1);
    await pass(20_000);
    expect(patient.givenUp).toEqual(["nothing was heard for 45000 ms"]);
    heartbeat.stop();
  });

  it("pings first after the process slept, instead of terminating the connection", async () => {
    const patient = new Patient();
    const heartbeat = new Heartbeat(patient, TIMES, 0);
    // The process sleeps for ten minutes: the clock advances, and no timer fires.
    vi.setSystemTime(Date.now() + 600_000);
    patient.heardAt -= 600_000;
    await pass(5_000);
    expect(patient.asked).toHaveLength(1);
    expect(patient.givenUp).toEqual([]);
    heartbeat.stop();
  });

  it("starts at a random moment within the interval, so that many connections do not ping together", async () => {
    const firsts = new Set<number>();
    for (let i = 0; i < 5; i++) {
      const patient = new Patient();
      patient.heardAt -= 100_000;
      const began = performance.now();
      const heartbeat = new Heartbeat(patient, TIMES, i / 5);
      await pass(25_000);
      firsts.add(patient.asked[0]! - began);
      heartbeat.stop();
    }
    expect([...firsts]).toEqual([5_000, 10_000, 15_000, 20_000, 25_000]);
  });

  it("leaves no timer when it is stopped", () => {
    const heartbeats = Array.from({ length: 100 }, () => new Heartbeat(new Patient(), TIMES));
    expect(countDeadlines()).toEqual({ waiting: 100, armed: true });
    for (const heartbeat of heartbeats) heartbeat.stop();
    expect(countDeadlines()).toEqual({ waiting: 0, armed: false });
  });
});
