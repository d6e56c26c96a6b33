/**
 * The oracle, shown to work: each rule of the session is taken out of the sources in turn, and the model must notice.
 */
import { afterAll, describe, expect, it, vi } from "vitest";
import { useFakeClock } from "../../support/clock.js";
import { explore } from "./model.js";
import type { Modules } from "./rig.js";
import { MUTANTS } from "./mutants.js";
import { Mutator, type Change } from "../../support/mutator.js";

useFakeClock();

const SEED = 20_261;
const RUNS = 3000;

const mutator = new Mutator(["core", "link"]);
afterAll(() => mutator[Symbol.dispose]());

function advance(ms: number): void {
  vi.advanceTimersByTime(ms);
}

async function findings(...changes: Change[]): Promise<string | undefined> {
  const load = mutator.mutate(changes);
  const modules = { ...(await load("link/client.ts")), ...(await load("link/sessions.ts")) } as Modules;
  const found = await explore(modules, { runs: RUNS, seed: SEED, shrinks: false, advance });
  vi.clearAllTimers();
  return found;
}

describe("the model", () => {
  it("finds nothing in the sources as they are", async () => {
    expect(await findings()).toBeUndefined();
  });

  it.each(MUTANTS)("notices without rule %s", async (_what, file, find, replace) => {
    expect(await findings({ path: `link/${file}`, find, replace })).toMatch(/^breach/);
  });
});
