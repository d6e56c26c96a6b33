/** A bystander: a normal client that makes calls during an attack. */
import { setTimeout as sleep } from "node:timers/promises";
import { expect } from "vitest";
import { connect, type AnyPeer } from "../../../src/node.js";
import type { Attacker, Damage, Flood } from "./attacker.js";

/** Duration of each measurement, alternately with and without the attack. */
const ROUND_MS = 120;
const ROUNDS = 3;
/** Interval of the calls. */
const PERIOD_MS = 2;
/** The longest duration that a flood may cause for a bystander. */
const BOUND_MS = 25;
/** Attempts: other work on the machine can spoil a measurement, but a failed defence spoils each. */
const TRIES = 4;

/** Durations of calls, in milliseconds. */
class Times {
  /** By the clock. */
  readonly elapsed: number[] = [];
  /**
   * CPU time of this process. If other processes need the processor, it is less, and it is all that an attack can
   * cause.
   */
  readonly worked: number[] = [];

  /**
   * Returns whether 99 of 100 took at most `boundMs` or five times as long as `quiet`, by both measures. Other
   * processes cannot spoil the CPU time.
   */
  isWithinBound(quiet: Times, boundMs = BOUND_MS): boolean {
    const isWithin = (attacked: number, before: number): boolean => attacked <= Math.max(boundMs, 5 * before);
    return isWithin(p99(this.elapsed), p99(quiet.elapsed)) && isWithin(p99(this.worked), p99(quiet.worked));
  }

  toString(): string {
    return `${p99(this.elapsed).toFixed(1)} ms (${p99(this.worked).toFixed(1)} of them at work)`;
  }
}

/** Returns the 99th percentile. */
function p99(times: readonly number[]): number {
  const sorted = [...times];
  sorted.sort((a, b) => a - b);
  return sorted[Math.ceil(sorted.length * 0.99) - 1]!;
}

/** Returns the CPU time of this process, in milliseconds. */
function worked(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}

/**
 * Makes a call each time one is due, and records its duration. It counts from when it was due, because a late tick of
 * the server would delay any other call too.
 */
async function sample(peer: AnyPeer, into: Times): Promise<void> {
  const calls: Promise<unknown>[] = [];
  const end = performance.now() + ROUND_MS;
  for (let due = performance.now(), before = worked(); due < end; before = worked(), await sleep(1)) {
    const workedBefore = before;
    for (; due <= performance.now(); due += PERIOD_MS) {
      const began = due;
      const note = (): void => {
        into.elapsed.push(performance.now() - began);
        into.worked.push(worked() - workedBefore);
      };
      calls.push(peer.request("here").then(note));
    }
  }
  await Promise.all(calls);
}

/** Durations of a bystander's calls without and under attack. */
export async function measure(url: string, attack: Pick<Attacker, "pause" | "goOn">): Promise<[Times, Times]> {
  await using peer = await connect(url);
  const [quiet, attacked] = [new Times(), new Times()];
  for (let i = 0; i < ROUNDS; i++) {
    await attack.pause();
    // The frames in flight are processed.
    await sleep(20);
    await sample(peer, quiet);
    await attack.goOn();
    await sample(peer, attacked);
  }
  return [quiet, attacked];
}

/**
 * Asserts that 99 of 100 calls take at most `boundMs` under attack, or five times their duration without it. Returns
 * the figures of the attempt that succeeded.
 */
async function expectAnyWithin(boundMs: number, attempt: () => Promise<[Times, Times]>): Promise<string> {
  const seen: string[] = [];
  for (let i = 0; i < TRIES; i++) {
    const [quiet, attacked] = await attempt();
    seen.push(`${attacked.toString()} under attack, ${quiet.toString()} without`);
    if (attacked.isWithinBound(quiet, boundMs)) return seen.at(-1)!;
  }
  return expect.fail(`99 of 100 calls of another client took up to ${seen.join("; ")}`);
}

/** Floods a server that serves `here`, and asserts what `expectServed` does. */
export async function floodBeside(attack: Attacker, flood: Flood): Promise<Damage> {
  await attack.start(flood);
  await expectServed(flood.url, attack);
  return attack.stop();
}

/** Asserts that an attack which can pause keeps a bystander within 25 ms. */
export async function expectServed(url: string, attack: Pick<Attacker, "pause" | "goOn">): Promise<void> {
  await expectAnyWithin(BOUND_MS, () => measure(url, attack));
}

/** Asserts that an attack which cannot pause keeps a bystander within `boundMs`. Returns the figures. */
export function expectWithinBound(
  url: string,
  attack: { start(): Promise<void>; stop(): Promise<void> },
  boundMs = BOUND_MS,
): Promise<string> {
  return expectAnyWithin(boundMs, async () => {
    await using peer = await connect(url);
    const [quiet, attacked] = [new Times(), new Times()];
    for (let round = 0; round < ROUNDS; round++) await sample(peer, quiet);
    await attack.start();
    for (let round = 0; round < ROUNDS; round++) await sample(peer, attacked);
    await attack.stop();
    return [quiet, attacked];
  });
}
