import { expect, it } from "vitest";
import { explore } from "../faults/explore.js";
import { VARIANTS } from "../faults/variants.js";
import { useVirtualClock } from "../support/time.js";

useVirtualClock();

/** In several runs, none needed more than 20. */
const seeds = Array.from({ length: 100 }, (_, i) => i + 1);
const PLAN = { messages: 400, cuts: 20, patienceMs: 5_000 };

it("the oracle finds nothing if no rule is broken, with the same patience", async () => {
  const { failures } = await explore({ seeds: seeds.slice(0, 20), ...PLAN });
  expect(failures.join("\n")).toBe("");
});

it.each(Object.entries(VARIANTS))("the oracle detects a broken rule: %s", async (_rule, variant) => {
  const { failures, areBreaches } = await explore({ seeds, ...PLAN, variant });
  expect(failures).not.toEqual([]);
  expect(areBreaches).toBe(true);
});
