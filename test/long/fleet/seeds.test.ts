/**
 * Fleets of three nodes with every fault, over Redis, NATS and a Redis Cluster. `RECIPROC_FLEET_SEED` plays one seed alone.
 * `RECIPROC_FLEET_MINUTES` plays seeds for so long (`npm run fleet-faults`). `RECIPROC_FLEET_BROKER`, `_FAULT` and `_MUTANT` narrow what
 * is played; otherwise such a run publishes its counts. `RECIPROC_FLEET_NODES`, `_CLIENTS` and `_MS` change its size.
 */
import { beforeAll, expect, it, vi } from "vitest";
import { compileNode } from "./compile.js";
import { FAULT_WEIGHTS, type FaultKind } from "./disturbances.js";
import { Breach } from "./oracle.js";
import type { BrokerKind } from "./orders.js";
import { publish, sumOf } from "./publish.js";
import { play, type Plan, type Played } from "./world.js";

/** A client that is cut often would mostly wait for its next attempt. This is the share of the usual delay. */
const HURRY = 0.1;
const { random } = Math;
vi.spyOn(Math, "random").mockImplementation(() => random() * HURRY);

const { env } = process;
const minutes = Number(env["RECIPROC_FLEET_MINUTES"] ?? 0);
const broker = env["RECIPROC_FLEET_BROKER"] as BrokerKind | undefined;
const fault = env["RECIPROC_FLEET_FAULT"] as FaultKind | undefined;
const BROKERS: readonly BrokerKind[] = broker === undefined ? ["redis", "nats", "cluster"] : [broker];
const SEEDS = env["RECIPROC_FLEET_SEED"] === undefined ? [1, 2, 3] : [Number(env["RECIPROC_FLEET_SEED"])];
const SIZE = {
  nodes: Number(env["RECIPROC_FLEET_NODES"] ?? 3),
  clients: Number(env["RECIPROC_FLEET_CLIENTS"] ?? 60),
  ms: Number(env["RECIPROC_FLEET_MS"] ?? 20_000),
  // A node waits up to 20 s before it connects again.
  patienceMs: 45_000,
  mutant: env["RECIPROC_FLEET_MUTANT"],
  faults: fault === undefined ? undefined : [fault],
};
/** Whether this is only a part of what is published. */
const isNarrow = broker !== undefined || fault !== undefined || SIZE.mutant !== undefined;
const MOST_MS = 300_000;

let program: string;
beforeAll(async () => {
  program = await compileNode("seeds");
}, 120_000);

const brokerOf = (seed: number): BrokerKind => BROKERS[(seed - 1) % BROKERS.length]!;

async function playSeed(seed: number): Promise<Played> {
  const plan: Plan = { ...SIZE, seed, program, broker: brokerOf(seed) };
  try {
    return await play(plan);
  } catch (error) {
    const again = `RECIPROC_FLEET_BROKER=${plan.broker} RECIPROC_FLEET_SEED=${seed}`;
    throw new Error(`${again}: ${error instanceof Breach ? error.message : String(error)}`, { cause: error });
  }
}

const isPositive = (count: number): boolean => count > 0;
const LONGEST_MS = minutes * 60_000;
/** One row for each seed, or one for as many seeds as there is time for. */
const ROWS: readonly (readonly [name: string, seeds: () => Iterable<number>])[] =
  minutes === 0
    ? SEEDS.map((seed) => [`seed ${seed} over ${brokerOf(seed)}`, () => [seed]] as const)
    : [[`${minutes} minutes of seeds`, () => seedsFor(LONGEST_MS)]];

function* seedsFor(ms: number): Iterable<number> {
  const until = Date.now() + ms;
  // Each broker at least once.
  for (let seed = SEEDS[0]!; Date.now() < until || seed < SEEDS[0]! + BROKERS.length; seed++) yield seed;
}

/** Returns the faults of a broker that were never drawn. */
function undrawn(kind: BrokerKind, played: readonly Played[]): string[] {
  const drawn = new Set(played.flatMap((one) => (one.broker === kind ? Object.keys(one.faults) : [])));
  return Object.keys(FAULT_WEIGHTS[kind]).filter((name) => !drawn.has(name));
}

it.each(ROWS)(
  "loses, repeats and reorders nothing that is not reported: %s",
  { timeout: LONGEST_MS + MOST_MS },
  async (_name, seeds) => {
    const startedAt = Date.now();
    const played: Played[] = [];
    const breaches: string[] = [];
    for (const seed of seeds()) {
      try {
        played.push(await playSeed(seed));
      } catch (error) {
        const { message } = error as Error;
        breaches.push(message);
        process.stdout.write(`${message}\n`);
      }
    }
    expect(breaches.join("\n")).toBe("");
    const [figures, faults] = [sumOf(played.map((one) => one.figures)), sumOf(played.map((one) => one.faults))];
    process.stdout.write(`${played.length} seeds: ${JSON.stringify(figures)}\nfaults: ${JSON.stringify(faults)}\n`);
    expect(figures).toMatchObject({
      "notifications that arrived": expect.toSatisfy(isPositive),
      "publications that arrived": expect.toSatisfy(isPositive),
      "calls with a result": expect.toSatisfy(isPositive),
    });
    expect(Object.keys(faults).length).toBeGreaterThan(fault === undefined ? 3 : 0);
    if (minutes === 0 || isNarrow) return;
    // A fault that is never drawn is not tested.
    expect(BROKERS.flatMap((kind) => undrawn(kind, played))).toEqual([]);
    await publish((Date.now() - startedAt) / 60_000, SIZE, played);
  },
);
