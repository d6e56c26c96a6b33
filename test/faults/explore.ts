/**
 * Runs many worlds, some at a time, on the virtual clock of the test. Their sockets are real, and time passes by the ticks of the event loop: a
 * machine that is busy, or a long collection of garbage, makes no timer fire early. What arrives over a socket takes as many ticks as pass
 * meanwhile. Those are few on any machine, because no socket of the relay waits for more bytes, and far fewer than any time in a world.
 */
import { passUntil } from "../support/time.js";
import { Breach } from "./oracle.js";
import type { Variant } from "./variants.js";
import { play, type Figures, type Plan } from "./world.js";

const SIDE_BY_SIDE = 12;
/** How long a world waits for an event: longer than any session lasts without a socket. */
const PATIENCE_MS = 180_000;
const MOST_FAILURES = 5;

export interface Exploration extends Pick<Plan, "messages" | "cuts"> {
  /** All from 1 on by default. */
  readonly seeds: readonly number[] | undefined;
  /** No world is started after this time. Default: there is no such time. */
  readonly minutes?: number;
  readonly variant?: () => Variant;
  readonly patienceMs?: number;
}

/** Plays the worlds. With a variant, stops at the first breach. */
export async function explore({ seeds, minutes = Infinity, variant, patienceMs, ...size }: Exploration) {
  const found = {
    figures: [] as Figures[],
    /** The broken rules, with the seed and the command that replays it. */
    failures: [] as string[],
    /** Whether each failure is a breach that the oracle has found. */
    areBreaches: true,
  };
  const until = Date.now() + minutes * 60_000;
  const mostFailures = variant === undefined ? MOST_FAILURES : 1;
  let index = 0;
  const work = async (): Promise<void> => {
    while (found.failures.length < mostFailures && Date.now() < until) {
      const seed = seeds === undefined ? index + 1 : seeds[index];
      if (seed === undefined) return;
      index++;
      try {
        const plan = { ...size, seed, patienceMs: patienceMs ?? PATIENCE_MS };
        found.figures.push(await play(variant === undefined ? plan : { ...plan, variant: variant() }));
      } catch (error) {
        found.areBreaches &&= error instanceof Breach;
        found.failures.push(`${(error as Error).message}\n${again(seed, size)}`);
      }
    }
  };
  await passUntil(Promise.all(Array.from({ length: SIDE_BY_SIDE }, work)), 1);
  return found;
}

function again(seed: number, { messages, cuts }: Pick<Plan, "messages" | "cuts">): string {
  const size = `RECIPROC_FAULT_MESSAGES=${messages} RECIPROC_FAULT_CUTS=${cuts}`;
  return `    RECIPROC_FAULT_SEED=${seed} ${size} npx vitest run test/long/faults`;
}

export function sumOf(figures: readonly Figures[]): Figures {
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
