/** Many worlds, some at a time. */
import type { Build } from "./build.js";
import { play, type Figures, type Plan } from "./world.js";

/** So many go on side by side: most of them wait at any moment. */
const SIDE_BY_SIDE = 12;
const PATIENCE_MS = 30_000;
/** Beyond so many failures there is nothing more to learn. */
const MOST_FAILURES = 5;

/** Which worlds. */
export interface Exploration extends Pick<Plan, "messages" | "cuts"> {
  /** All from 1 on, where it is not given. */
  readonly seeds: readonly number[] | undefined;
  /** None is begun after so long. */
  readonly minutes: number;
}

/** What became of them. */
export interface Found {
  readonly figures: Figures[];
  /** What was broken, by which seed, and how that is played again. */
  readonly failures: string[];
}

export async function explore(build: Build, { seeds, minutes, ...size }: Exploration): Promise<Found> {
  const found: Found = { figures: [], failures: [] };
  const until = performance.now() + minutes * 60_000;
  let index = 0;
  const work = async (): Promise<void> => {
    while (found.failures.length < MOST_FAILURES && performance.now() < until) {
      const seed = seeds === undefined ? index + 1 : seeds[index];
      if (seed === undefined) return;
      index++;
      try {
        found.figures.push(await play(build, { ...size, seed, patienceMs: PATIENCE_MS }));
      } catch (error) {
        found.failures.push(`${(error as Error).message}\n${again(seed, size)}`);
      }
    }
  };
  await Promise.all(Array.from({ length: SIDE_BY_SIDE }, work));
  return found;
}

/** The command that plays a seed alone. */
function again(seed: number, { messages, cuts }: Pick<Plan, "messages" | "cuts">): string {
  const size = `RECIPROC_FAULT_MESSAGES=${messages} RECIPROC_FAULT_CUTS=${cuts}`;
  return `    RECIPROC_FAULT_SEED=${seed} ${size} npx vitest run test/faults/seeds`;
}

/** All of them together. */
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
