/** Somebody who does no harm, and wants to be served meanwhile. */
import { setTimeout as sleep } from "node:timers/promises";
import { expect } from "vitest";
import { connect, type AnyPeer } from "../../../src/node.js";
import type { Attacker, Damage, Flood } from "./attacker.js";

/** Each condition is measured for so long, in turn with the other. */
const ROUND_MS = 150;
const ROUNDS = 3;
/** Timers and schedulers are no better than this: below it, twice as long means nothing. */
const FLOOR_MS = 5;
/** A machine that is busy with something else may spoil a measurement. A defence that fails spoils each. */
const TRIES = 4;

/** A call is due so often. */
const PERIOD_MS = 2;

/**
 * Makes a call each time one is due, and notes when it was answered. Counted from when it was due: where the server's turn
 * of the event loop is late, so would be somebody else's call.
 */
async function sample(peer: AnyPeer, into: number[]): Promise<void> {
  const calls: Promise<unknown>[] = [];
  const end = performance.now() + ROUND_MS;
  for (let due = performance.now(); due < end; await sleep(1)) {
    for (; due <= performance.now(); due += PERIOD_MS) {
      const began = due;
      calls.push(peer.request("here").then(() => into.push(performance.now() - began)));
    }
  }
  await Promise.all(calls);
}

/** The 99th percentile. */
function p99(times: number[]): number {
  times.sort((a, b) => a - b);
  return times[Math.ceil(times.length * 0.99) - 1]!;
}

/** What another's call takes, when it is quiet and under attack: the 99th percentiles, in milliseconds. */
export async function measure(url: string, attack: Pick<Attacker, "pause" | "goOn">): Promise<[number, number]> {
  await using peer = await connect(url);
  const quiet: number[] = [];
  const attacked: number[] = [];
  for (let i = 0; i < ROUNDS; i++) {
    await attack.pause();
    // What was under way is done with.
    await sleep(20);
    await sample(peer, quiet);
    await attack.goOn();
    await sample(peer, attacked);
  }
  return [p99(quiet), p99(attacked)];
}

/** Floods a server that serves `here`, and asserts that a call of somebody else takes at most twice as long as when it is quiet. */
export async function floodBeside(attack: Attacker, flood: Flood): Promise<Damage> {
  await attack.start(flood);
  await expectServed(flood.url, attack);
  return attack.stop();
}

/** Asserts that a call of somebody else takes at most twice as long under attack as when it is quiet. */
export async function expectServed(url: string, attack: Pick<Attacker, "pause" | "goOn">): Promise<void> {
  const seen: string[] = [];
  for (let i = 0; i < TRIES; i++) {
    const [quiet, attacked] = await measure(url, attack);
    if (attacked <= Math.max(2 * quiet, quiet + FLOOR_MS)) return;
    seen.push(`${attacked.toFixed(1)} ms under attack, ${quiet.toFixed(1)} ms when quiet`);
  }
  expect.fail(`99 of 100 calls of somebody else took up to ${seen.join("; ")}`);
}
