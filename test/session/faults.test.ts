/** The oracle, shown to work: an end that breaks any one rule of the session is noticed. */
import { expect, it } from "vitest";
import { FAULTS } from "./faults.js";
import { explore } from "./model.js";

const SEED = 20_261;
const RUNS = 20_000;

it.each(Object.entries(FAULTS))("the oracle notices an end that breaks rule %s", (_what, fault) => {
  expect(explore({ runs: RUNS, seed: SEED, shrinks: false }, fault)).toMatch(/^breach/);
});

it("the faults break each of the ten rules", () => {
  const rules = new Set(Object.keys(FAULTS).map((what) => Number.parseInt(what)));
  expect(rules).toEqual(new Set([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]));
});
