/** Tests the oracle: each mutant breaks one rule in real nodes, and the oracle must detect it by that rule. */
import { afterEach, expect, it, vi } from "vitest";
import { play } from "./chaos.js";
import { useFleet } from "./nodes.js";
import { bend, MUTANTS, type Mutant } from "./mutants.js";
import { Breach, Oracle, type Rule } from "./oracle.js";

useFleet();
afterEach(() => {
  vi.unstubAllGlobals();
  vi.restoreAllMocks();
});

/** Whether a fault does harm depends on the moment, so a mutant is played again if it did none. */
const SEEDS = [1, 2, 3, 4, 5, 6, 7, 8];
/** All but W, which is about the world and not about the engine. */
const RULES = "N1 N2 N3 N4 L1 L2 L3 L4 L5 C1 C2 C3 P1 P2 P3 S1 S2 S3 S4".split(" ") as Rule[];

/** Resolves with the broken rules, one line each; empty if there are none. */
async function breachesOf(seed: number, { faults, atRest, engine, misuse }: Omit<Mutant, "rule">): Promise<string> {
  try {
    const bent = engine && ((right: Parameters<typeof bend>[0]) => bend(right, engine));
    await play({ seed, clients: 8, ms: 5_000, faults, atRest, bend: bent, misuse });
    return "";
  } catch (error) {
    if (error instanceof Breach) return error.message;
    throw error;
  }
}

it("the oracle finds no breach with the faults of the mutants, if all rules are kept", async () => {
  const faults = [...new Set(Object.values(MUTANTS).flatMap((mutant) => mutant.faults ?? []))];
  for (const seed of SEEDS) expect(await breachesOf(seed, { faults, atRest: "unheard" })).toBe("");
});

it.each(Object.entries(MUTANTS))("the oracle detects that %s", async (_name, mutant) => {
  const { rule, complaint = /./ } = mutant;
  const found: string[] = [];
  for (const seed of SEEDS) {
    const lines = (await breachesOf(seed, mutant)).split("\n");
    if (lines.some((line) => line.startsWith(`${rule}: `) && complaint.test(line))) return;
    found.push(...lines);
  }
  expect.fail(`no breach of ${rule} by the mutant, but:\n${found.join("\n")}`);
});

it("the oracle detects a call that settles too late, and reports nothing but W of a world that has not settled", () => {
  const oracle = new Oracle();
  oracle.calls.push({ n: 1, run: 1, lateMs: 60_000, result: 1, state: "result" });
  oracle.ran.set(1, 1);
  expect(() => oracle.judge()).toThrow(/^1 breaches\nC1: .*$/);
  const other = new Oracle();
  other.started(1).states.push({ state: "down", text: "", time: 0 });
  other.breach("W", "not settled: nodes 1");
  expect(() => other.judge()).toThrow(/^1 breaches\nW: not settled: nodes 1$/);
});

it("each rule has a mutant", () => {
  const rules = new Set(Object.values(MUTANTS).map(({ rule }) => rule));
  expect(RULES.filter((rule) => !rules.has(rule))).toEqual([]);
});
