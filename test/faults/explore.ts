/** Runs many worlds, some at a time. */
import { play, type Figures, type Plan } from "./world.js";

/** The number of concurrent worlds: most of them are idle at any moment. */
const SIDE_BY_SIDE = 12;
const PATIENCE_MS = 30_000;
/** The number of failures after which no further world is started. */
const MOST_FAILURES = 5;

/** The worlds to run. */
export interface Exploration extends Pick<Plan, "messages" | "cuts"> {
  /** All from 1 on by default. */
  readonly seeds: readonly number[] | undefined;
  /** No world is started after this time. */
  readonly minutes: number;
}

/** The result of the worlds. */
export interface Found {
  readonly figures: Figures[];
  /** The broken rules, with the seed and the command that replays it. */
  readonly failures: string[];
}

export async function explore({ seeds, minutes, ...size }: Exploration): Promise<Found> {
  const found: Found = { figures: [], failures: [] };
  const until = performance.now() + minutes * 60_000;
  let index = 0;
  const work = async (): Promise<void> => {
    while (found.failures.length < MOST_FAILURES && performance.now() < until) {
      const seed = seeds === undefined ? index + 1 : seeds[index];
      if (seed === undefined) return;
      index++;
      try {
        found.figures.push(await play({ ...size, seed, patienceMs: PATIENCE_MS }));
      } catch (error) {
        found.failures.push(`${(error as Error).message}\n${again(seed, size)}`);
      }
    }
  };
  await Promise.all(Array.from({ length: SIDE_BY_SIDE }, work));
  return found;
}

/** Returns the command that plays a seed alone. */
function again(seed: number, { messages, cuts }: Pick<Plan, "messages" | "cuts">): string {
  const size = `RECIPROC_FAULT_MESSAGES=${messages} RECIPROC_FAULT_CUTS=${cuts}`;
  return `    RECIPROC_FAULT_SEED=${seed} ${size} npx vitest run test/faults/seeds`;
}

/** Returns the sum of all outcomes. */
export function sumOf(figures: readonly Figures[]): Omit<Figures, "faults"> & { faults: Figures["faults"] } {
  const sum = { faults: {} } as Record<string, number> & { faults: Record<string, number> };
  for (const { faults, ...counts } of figures) {
    add(sum, counts);
    add(sum.faults, faults);
  }
  return sum as never;
}

function add(sum: Record<string, number>, counts: Record<string, number>): void {
  for (const [name, count] of Object.entries(counts)) sum[name] = (sum[name] ?? 0) + count;
}
