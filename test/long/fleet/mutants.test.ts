/** Tests the oracle of the chaos runs: each mutant breaks one rule in real nodes, and the oracle must detect it by that rule. */
import { beforeAll, describe, expect, it } from "vitest";
import { compileNode } from "./compile.js";
import type { FaultKind } from "./disturbances.js";
import { MUTANTS, type Mutant } from "./mutants.js";
import { Breach, type Rule } from "./oracle.js";
import type { BrokerKind } from "./orders.js";
import { play } from "./world.js";

/** How long is waited for what a mutant prevents. The same without a mutant, so that no fault alone is taken for one. */
const PATIENCE_MS = 10_000;
const SIZE = { nodes: 2, clients: 8, ms: 5_000, patienceMs: PATIENCE_MS };
/** Whether a fault does harm depends on the moment, so a mutant is played again if it did none. */
const SEEDS = [1, 2, 3, 4];
const MOST_MS = 300_000;
/** All but W, which is about the world and not about the engine. */
const RULES: readonly Rule[] = ["N1", "N2", "N3", "N4", "L1", "L2", "L3", "L4", "L5", "C1", "C2", "C3", "P1", "P2"];
const ROWS = Object.entries(MUTANTS).flatMap(([name, mutant]) =>
  (mutant.brokers ?? ["redis"]).map((broker) => [broker, name, mutant] as const),
);

/** Each server of a broker listens for the end of this process, and several clusters run at once. */
const MOST_LISTENERS = 100;

let program: string;
beforeAll(async () => {
  process.setMaxListeners(MOST_LISTENERS);
  program = await compileNode("mutants");
}, 120_000);

/** Resolves with the broken rules, one line each; empty if there are none. */
async function breachesOf(
  seed: number,
  broker: BrokerKind,
  faults: readonly FaultKind[],
  mutant?: string,
): Promise<string> {
  const { ms = SIZE.ms } = mutant === undefined ? {} : MUTANTS[mutant]!;
  try {
    await play({ ...SIZE, ms, seed, program, broker, faults, mutant });
    return "";
  } catch (error) {
    if (error instanceof Breach) return error.message;
    throw error;
  }
}

/** Whether one of the broken rules is the one that a mutant breaks, and the complaint is about the mutant. */
function isDetected({ rule, complaint = /./ }: Mutant, found: string): boolean {
  return found.split("\n").some((line) => line.startsWith(`${rule}: `) && complaint.test(line));
}

describe.concurrent("the oracle", () => {
  it("finds no breach with the faults of the mutants, if all rules are kept", { timeout: MOST_MS }, async () => {
    const faults = Object.values(MUTANTS).flatMap((mutant) => mutant.faults ?? []);
    expect(await breachesOf(1, "redis", faults)).toBe("");
  });

  it.each(ROWS)("detects over %s that %s", { timeout: MOST_MS }, async (broker, name, mutant) => {
    let found = "";
    for (const seed of SEEDS) {
      found = await breachesOf(seed, broker, mutant.faults ?? [], name);
      if (isDetected(mutant, found)) return;
    }
    expect.fail(`no breach of ${mutant.rule} by the mutant, but:\n${found}`);
  });

  it("is tested with each rule", () => {
    const rules = new Set(Object.values(MUTANTS).map(({ rule }) => rule));
    expect(RULES.filter((rule) => !rules.has(rule))).toEqual([]);
  });
});
