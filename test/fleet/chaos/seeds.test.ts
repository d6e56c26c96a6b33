/**
 * A fleet of three nodes over a Redis, with every fault. `RECIPROC_FLEET_SEED` plays one seed alone. `RECIPROC_FLEET_MINUTES` plays
 * seeds for so long, and publishes the counts (`npm run fleet-faults`).
 */
import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import { beforeAll, expect, it, vi } from "vitest";
import { FAULT_WEIGHTS, type FaultKind } from "./disturbances.js";
import type { Figures } from "./oracle.js";
import { publish } from "./publish.js";
import { play, type Plan } from "./world.js";

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

const only = process.env["RECIPROC_FLEET_SEED"];
const minutes = process.env["RECIPROC_FLEET_MINUTES"];
const SEEDS = [1, 2, 3];
const SIZE = {
  nodes: Number(process.env["RECIPROC_FLEET_NODES"] ?? 3),
  clients: Number(process.env["RECIPROC_FLEET_CLIENTS"] ?? 60),
  ms: Number(process.env["RECIPROC_FLEET_MS"] ?? 20_000),
  only: process.env["RECIPROC_FLEET_FAULT"] as FaultKind | undefined,
  mutant: process.env["RECIPROC_FLEET_MUTANT"],
};
/** A seed may wait so long for its nodes and clients after its last fault. */
const MOST_MS = 300_000;

beforeAll(async () => {
  const tsc = join(import.meta.dirname, "../../../node_modules/typescript/bin/tsc");
  await promisify(execFile)(process.execPath, [tsc, "-p", import.meta.dirname]);
}, 120_000);

async function playSeed(seed: number, size: Omit<Plan, "seed">): Promise<{ figures: Figures; faults: Figures }> {
  try {
    return await play({ ...size, seed });
  } catch (error) {
    throw new Error(`RECIPROC_FLEET_SEED=${seed} npx vitest run test/fleet/chaos/seeds\n${(error as Error).message}`, {
      cause: error,
    });
  }
}

if (minutes === undefined)
  it.each(only === undefined ? SEEDS : [Number(only)])(
    "loses, repeats and reorders nothing that it does not report: seed %i",
    { timeout: MOST_MS },
    async (seed) => {
      const { figures, faults } = await playSeed(seed, SIZE);
      process.stdout.write(`seed ${seed}: ${JSON.stringify(figures)}\nfaults: ${JSON.stringify(faults)}\n`);
      expect(figures).toMatchObject({
        arrived: expect.toSatisfy((count: number) => count > 0),
        acked: expect.toSatisfy((count: number) => count > 0),
        results: expect.toSatisfy((count: number) => count > 0),
      });
    },
  );
else
  it(
    `loses, repeats and reorders nothing that it does not report: ${minutes} minutes of seeds`,
    { timeout: Number(minutes) * 60_000 + MOST_MS },
    async () => {
      const until = Date.now() + Number(minutes) * 60_000;
      const played = [];
      for (let seed = 1; Date.now() < until; seed++) played.push(await playSeed(seed, SIZE));
      const kinds = Object.keys(FAULT_WEIGHTS) as FaultKind[];
      expect(kinds.filter((kind) => played.every(({ faults }) => faults[kind] === undefined))).toEqual([]);
      await publish(Number(minutes), SIZE, played);
    },
  );
