/**
 * Fleets of three nodes with every fault, over Redis, NATS and a Redis Cluster. `RECIPROC_FLEET_SEED` plays one seed alone.
 * `RECIPROC_FLEET_MINUTES` plays seeds for so long, and publishes the counts (`npm run fleet-faults`). `RECIPROC_FLEET_BROKER`,
 * `_NODES`, `_CLIENTS`, `_MS` and `_FAULT` narrow what is played.
 */
import { beforeAll, expect, it, vi } from "vitest";
import { compileNode } from "./compile.js";
import { FAULT_WEIGHTS, type FaultKind } from "./disturbances.js";
import { Breach } from "./oracle.js";
import type { BrokerKind } from "./orders.js";
import { publish } from "./publish.js";
import { play, type Plan, type Played } from "./world.js";

/** Short delays, because a client that is cut often would mostly wait. */
const LONGEST_WAIT_MS = 100;
vi.mock(import("../../../src/client/backoff.js"), async (original) => {
  const { Backoff } = await original();
  return {
    Backoff: class extends Backoff {
      override nextDelayMs(): number {
        return Math.min(super.nextDelayMs(), LONGEST_WAIT_MS);
      }
    },
  };
});

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
    if (!(error instanceof Breach)) throw error;
    throw new Breach(`RECIPROC_FLEET_BROKER=${plan.broker}, seed ${seed}: ${error.message}`, { cause: error });
  }
}

const isPositive = (count: number): boolean => count > 0;

if (minutes === 0)
  it.each(SEEDS.map((seed) => [seed, brokerOf(seed)] as const))(
    "loses, repeats and reorders nothing that is not reported: seed %i over %s",
    { timeout: MOST_MS },
    async (seed) => {
      const { figures, faults } = await playSeed(seed);
      process.stdout.write(`seed ${seed}: ${JSON.stringify(figures)}\nfaults: ${JSON.stringify(faults)}\n`);
      expect(figures).toMatchObject({
        "notifications that arrived": expect.toSatisfy(isPositive),
        "publications that arrived": expect.toSatisfy(isPositive),
        "calls with a result": expect.toSatisfy(isPositive),
      });
      expect(Object.keys(faults).length).toBeGreaterThan(fault === undefined ? 3 : 0);
    },
  );
else
  it(
    `loses, repeats and reorders nothing that is not reported: ${minutes} minutes of seeds`,
    { timeout: minutes * 60_000 + MOST_MS },
    async () => {
      const until = Date.now() + minutes * 60_000;
      const played: Played[] = [];
      const breaches: string[] = [];
      for (let seed = SEEDS[0]!; Date.now() < until; seed++) {
        try {
          played.push(await playSeed(seed));
        } catch (error) {
          breaches.push((error as Error).message);
          process.stdout.write(`${(error as Error).message}\n`);
        }
      }
      expect(breaches.join("\n")).toBe("");
      // A fault that is never drawn is not tested.
      for (const kind of BROKERS) {
        const drawn = new Set(played.flatMap((one) => (one.broker === kind ? Object.keys(one.faults) : [])));
        expect(Object.keys(FAULT_WEIGHTS[kind]).filter((name) => !drawn.has(name))).toEqual([]);
      }
      await publish(minutes, SIZE, played);
    },
  );
