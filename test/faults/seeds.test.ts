/**
 * Real peers, with every network fault and some attacks of a thief. `RECIPROC_FAULT_SEED` plays one seed alone.
 * `RECIPROC_FAULT_MINUTES`, `_MESSAGES` and `_CUTS` make the test longer (`npm run faults`).
 */
import { expect, it, vi } from "vitest";
import { countDeadlines } from "../../src/core/deadlines.js";
import { FAULT_WEIGHTS, type FaultKind } from "./faults.js";
import { explore, sumOf } from "./explore.js";

/** Short delays, because a client that is cut fifty times within seconds would mostly wait. */
const LONGEST_WAIT_MS = 8;
vi.mock(import("../../src/client/backoff.js"), async (original) => {
  const { Backoff } = await original();
  return {
    Backoff: class extends Backoff {
      override nextDelayMs(): number {
        return Math.min(super.nextDelayMs(), LONGEST_WAIT_MS);
      }
    },
  };
});

const seed = process.env["RECIPROC_FAULT_SEED"];
const minutes = process.env["RECIPROC_FAULT_MINUTES"];
const messages = Number(process.env["RECIPROC_FAULT_MESSAGES"] ?? 2_000);
const cuts = Number(process.env["RECIPROC_FAULT_CUTS"] ?? 50);

const SEEDS = 60;
/** The run of a seed depends on timing as well, so a single seed is played several times. */
const TIMES = 10;
const MOST_MINUTES = 5;

const row =
  seed !== undefined
    ? {
        name: `seed ${seed}, ${TIMES} times`,
        seeds: Array.from({ length: TIMES }, () => Number(seed)),
        minutes: Infinity,
      }
    : minutes !== undefined
      ? { name: `${minutes} minutes of seeds`, seeds: undefined, minutes: Number(minutes) }
      : { name: `${SEEDS} seeds`, seeds: Array.from({ length: SEEDS }, (_, i) => i + 1), minutes: Infinity };

const isPositive = (count: number): boolean => count > 0;

it(
  `settles every call correctly, and delivers in order and once: ${row.name} of ${cuts} cuts and ${messages} messages`,
  { timeout: (row.minutes === Infinity ? MOST_MINUTES : row.minutes + MOST_MINUTES) * 60_000 },
  async () => {
    const { figures, failures } = await explore({ ...row, messages, cuts });
    const { faults, ...sum } = sumOf(figures);
    process.stdout.write(`${figures.length} seeds: ${JSON.stringify(sum)}\nfaults: ${JSON.stringify(faults)}\n`);
    expect(failures.join("\n")).toBe("");
    expect(countDeadlines().waiting).toBe(0);
    // A fault that is never drawn is not tested.
    const kinds = Object.keys(FAULT_WEIGHTS) as FaultKind[];
    expect(sum).toMatchObject({ reports: expect.toSatisfy(isPositive), interrupted: expect.toSatisfy(isPositive) });
    if (seed === undefined) expect(kinds.filter((kind) => faults[kind] === undefined)).toEqual([]);
    const { missed, replaced, volatileArrived, volatile } = sum;
    expect({ missed, replaced, volatileArrived }).toEqual({
      missed: expect.toSatisfy(isPositive),
      replaced: expect.toSatisfy(isPositive),
      volatileArrived: expect.toSatisfy(isPositive),
    });
    expect(volatileArrived).toBeLessThan(volatile);
    if (seed === undefined) {
      const { retried, renewed, renewedLater, renewalsLost } = sum;
      const counts = { retried, renewed, renewedLater, renewalsLost };
      expect(Object.entries(counts).filter(([, count]) => count === 0)).toEqual([]);
      expect(sum.refreshes).toBeGreaterThan(renewed);
    }
    if (seed === undefined) expect(sum.dropped).toBeGreaterThan(0);
  },
);
