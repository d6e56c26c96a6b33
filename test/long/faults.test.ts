/**
 * Real peers over sockets that are cut, frozen, forged and stolen. `RECIPROC_FAULT_SEED` plays one seed alone.
 * `RECIPROC_FAULT_MINUTES`, `_MESSAGES` and `_CUTS` make the run longer (`npm run faults`).
 */
import { expect, it } from "vitest";
import { explore, sumOf } from "../faults/explore.js";
import { FAULT_WEIGHTS, type FaultKind } from "../faults/faults.js";
import { useVirtualClock } from "../support/time.js";

useVirtualClock();

const seed = process.env["RECIPROC_FAULT_SEED"];
const minutes = process.env["RECIPROC_FAULT_MINUTES"];
const size = {
  messages: Number(process.env["RECIPROC_FAULT_MESSAGES"] ?? 2_000),
  cuts: Number(process.env["RECIPROC_FAULT_CUTS"] ?? 50),
};
const upTo = (count: number): number[] => Array.from({ length: count }, (_, i) => i + 1);

const SEEDS = 60;
/** The run of a seed depends on what real sockets deliver in which tick as well, so a single seed is played several times. */
const TIMES = 10;

const run =
  seed !== undefined
    ? { name: `seed ${seed}, ${TIMES} times`, seeds: upTo(TIMES).map(() => Number(seed)) }
    : minutes !== undefined
      ? { name: `${minutes} minutes of seeds`, seeds: undefined, minutes: Number(minutes) }
      : { name: `${SEEDS} seeds`, seeds: upTo(SEEDS) };

it(
  `settles every call truthfully, and delivers each message once and in order: ${run.name} of ${size.cuts} cuts and ${size.messages} messages`,
  { timeout: (Number(minutes ?? 0) + 20) * 60_000 },
  async () => {
    const { figures, failures } = await explore({ ...run, ...size });
    const { faults, ...sum } = sumOf(figures);
    process.stdout.write(`${figures.length} seeds: ${JSON.stringify(sum)}\nfaults: ${JSON.stringify(faults)}\n`);
    expect(failures.join("\n")).toBe("");
    if (seed !== undefined) return;
    // What never happens is not tested.
    const kinds = Object.keys(FAULT_WEIGHTS) as FaultKind[];
    expect(kinds.filter((kind) => faults[kind] === undefined)).toEqual([]);
    const { volatile, refreshes, ...others } = sum;
    const happened = ["reports", "interrupted", "missed", "replaced", "volatileArrived", "dropped"] as const;
    const ofCredentials = ["retried", "renewed", "renewedLater", "renewalsLost", "expiries"] as const;
    const ofStores = ["boards loaded", "boards changed", "changes made", "changes repeated"] as const;
    expect([...happened, ...ofCredentials, ...ofStores].filter((name) => !(others[name] > 0))).toEqual([]);
    expect(others.volatileArrived).toBeLessThan(volatile);
    expect(refreshes).toBeGreaterThan(others.renewed);
  },
);
