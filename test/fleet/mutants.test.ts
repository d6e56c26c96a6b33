/** Tests the oracle: each mutant breaks one rule in real nodes, and the oracle must detect it by that rule. */
import { readFile } from "node:fs/promises";
import { expect, it } from "vitest";
import { play } from "./chaos.js";
import { useFleet } from "./nodes.js";
import { bend, MUTANTS, type Mutant } from "./mutants.js";
import { Breach, Oracle } from "./oracle.js";

useFleet();

/** Whether a fault does harm depends on the moment, so a mutant is played again if it did none. */
const SEEDS = [1, 2, 3, 4, 5, 6, 7, 8];
const promises = JSON.parse(await readFile("test/fleet/promises.json", "utf8")) as Record<string, [string, string][]>;

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
  oracle.started(1);
  oracle.calls.push({ n: 1, run: 1, timedOutAt: 0, settledAt: 60_000, result: 1, state: "result" });
  oracle.ran.set(1, 1);
  expect(() => oracle.judge()).toThrow(/^1 breaches\nC1: .*$/);
  const other = new Oracle();
  other.started(1).states.push({ state: "down", text: "", time: 0 });
  other.breach("W", "not settled: nodes 1");
  expect(() => other.judge()).toThrow(/^1 breaches\nW: not settled: nodes 1$/);
});

it("each rule has a mutant", () => {
  const rules = ["W", ...Object.values(MUTANTS).map(({ rule }) => rule)];
  expect(new Set(rules)).toEqual(new Set(Object.keys(promises)));
});

it("each rule quotes what the documents say", async () => {
  for (const [document, text] of Object.values(promises).flat())
    expect(await readFile(`docs/${document}.md`, "utf8")).toContain(text);
});
