/** A short run: real peers over sockets that are cut, frozen, forged and stolen. `test/long/faults.test.ts` is the long one. */
import { expect, it } from "vitest";
import { explore, sumOf } from "./explore.js";
import { VARIANTS } from "./variants.js";
import { useVirtualClock } from "../support/time.js";

useVirtualClock();

const SEEDS = Array.from({ length: 12 }, (_, i) => i + 1);

it("settles every call truthfully, and delivers each message once and in order", async () => {
  const { figures, failures } = await explore({ seeds: SEEDS, messages: 500, cuts: 15 });
  expect(failures.join("\n")).toBe("");
  expect(figures).toHaveLength(SEEDS.length);
  expect(sumOf(figures)["changes repeated"]).toBeGreaterThan(0);
});

it.each(["bytes arrive unchanged", "`refresh` is emitted once"])("detects a broken rule: %s", async (rule) => {
  const { failures, areBreaches } = await explore({ seeds: SEEDS, messages: 400, cuts: 20, variant: VARIANTS[rule]! });
  expect(failures).not.toEqual([]);
  expect(areBreaches).toBe(true);
});
