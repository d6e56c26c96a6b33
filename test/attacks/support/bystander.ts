/** Somebody who does no harm, and wants to be served meanwhile. */
import { setTimeout as sleep } from "node:timers/promises";
import { expect } from "vitest";
import { connect, type AnyPeer } from "../../../src/node.js";
import type { Attacker, Damage, Flood } from "./attacker.js";

/** Each condition is measured for so long, in turn with the other. */
const ROUND_MS = 120;
const ROUNDS = 3;
/** A call is due so often. */
const PERIOD_MS = 2;
/** What a flood of anything may do to a bystander at most. */
const BOUND_MS = 25;
/** A machine that is busy with something else may spoil a measurement. A defence that fails spoils each. */
const TRIES = 4;

/** How long calls took, in milliseconds. */
class Times {
  /** By the clock. */
  readonly elapsed: number[] = [];
  /** What this process worked meanwhile: where others want the processor too, that is less, and all that an attack can cause. */
  readonly worked: number[] = [];

  /** Whether 99 of 100 took at most `boundMs` or five times as long as `quiet`, by both measures: one of them cannot be spoiled by other processes. */
  isWithinBound(quiet: Times, boundMs = BOUND_MS): boolean {
    const isWithin = (attacked: number, before: number): boolean => attacked <= Math.max(boundMs, 5 * before);
    return isWithin(p99(this.elapsed), p99(quiet.elapsed)) && isWithin(p99(this.worked), p99(quiet.worked));
  }

  toString(): string {
    return `${p99(this.elapsed).toFixed(1)} ms (${p99(this.worked).toFixed(1)} of them at work)`;
  }
}

/** The 99th percentile. */
function p99(times: readonly number[]): number {
  const sorted = [...times];
  sorted.sort((a, b) => a - b);
  return sorted[Math.ceil(sorted.length * 0.99) - 1]!;
}

/** How long this process has worked, in milliseconds. */
function worked(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}

/**
 * Makes a call each time one is due, and notes when it was answered. Counted from when it was due: where the server's turn
 * of the event loop is late, so would be somebody else's call.
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

/** What another's calls take when it is quiet, and under attack. */
export async function measure(url: string, attack: Pick<Attacker, "pause" | "goOn">): Promise<[Times, Times]> {
  await using peer = await connect(url);
  const [quiet, attacked] = [new Times(), new Times()];
  for (let i = 0; i < ROUNDS; i++) {
    await attack.pause();
    // What was under way is done with.
    await sleep(20);
    await sample(peer, quiet);
    await attack.goOn();
    await sample(peer, attacked);
  }
  return [quiet, attacked];
}

/** Floods a server that serves `here`, and asserts what `expectServed` does. */
export async function floodBeside(attack: Attacker, flood: Flood): Promise<Damage> {
  await attack.start(flood);
  await expectServed(flood.url, attack);
  return attack.stop();
}

/**
 * Asserts that 99 of 100 calls of somebody else take at most 25 ms while the attack goes on, or five times what they take while
 * it pauses.
 */
export async function expectServed(url: string, attack: Pick<Attacker, "pause" | "goOn">): Promise<void> {
  const seen: string[] = [];
  for (let i = 0; i < TRIES; i++) {
    const [quiet, attacked] = await measure(url, attack);
    if (attacked.isWithinBound(quiet)) return;
    seen.push(`${attacked.toString()} under attack, ${quiet.toString()} when quiet`);
  }
  expect.fail(`99 of 100 calls of somebody else took up to ${seen.join("; ")}`);
}

/**
 * Asserts that 99 of 100 calls of somebody else take at most `boundMs` while the attack goes on, or five times what they take
 * before it. Returns the figures.
 */
export async function expectWithinBound(
  url: string,
  attack: { start(): Promise<void>; stop(): Promise<void> },
  boundMs = BOUND_MS,
): Promise<string> {
  const seen: string[] = [];
  for (let i = 0; i < TRIES; i++) {
    await using peer = await connect(url);
    const [quiet, attacked] = [new Times(), new Times()];
    for (let round = 0; round < ROUNDS; round++) await sample(peer, quiet);
    await attack.start();
    for (let round = 0; round < ROUNDS; round++) await sample(peer, attacked);
    await attack.stop();
    seen.push(`${attacked.toString()} under attack, ${quiet.toString()} before`);
    if (attacked.isWithinBound(quiet, boundMs)) return seen.at(-1)!;
  }
  return expect.fail(`99 of 100 calls of somebody else took up to ${seen.join("; ")}`);
}
