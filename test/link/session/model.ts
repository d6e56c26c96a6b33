/** The model: rows of steps, drawn at random or given, through the oracle. */
import * as fc from "fast-check";
import type { Modules } from "./rig.js";
import { Breach, STEP_KINDS, World, type Step, type StepKind } from "./world.js";

/** How often each kind of step is drawn, where it is not once. */
const WEIGHTS: Partial<Record<StepKind, number>> = {
  clientSends: 10,
  serverSends: 10,
  deliverToClient: 8,
  deliverToServer: 8,
  settle: 8,
  cutClient: 3,
  cutServer: 3,
  cutBoth: 4,
  abandon: 4,
  reconnect: 6,
  reconnectToHello: 4,
  reconnectAndSettle: 6,
  deliverOld: 4,
  stall: 2,
  withdraw: 2,
  pass: 2,
  lieInResume: 2,
  ackLate: 2,
  repeatResume: 2,
};

const step: fc.Arbitrary<Step> = fc.record({
  kind: fc.oneof(...STEP_KINDS.map((kind) => ({ weight: WEIGHTS[kind] ?? 1, arbitrary: fc.constant(kind) }))),
  a: fc.nat(60),
  b: fc.nat(60),
});

/** One run: its steps, and how it ends. */
export interface Run {
  readonly steps: Step[];
  readonly limits: number;
  readonly how: number;
}

/** Begins with a session that is open, mostly: what comes before is only a few frames long. */
const run: fc.Arbitrary<Run> = fc.record({
  steps: fc
    .tuple(fc.nat(9), fc.array(step, { maxLength: 40 }))
    .map(([n, steps]): Step[] => (n === 0 ? steps : [{ kind: "settle", a: 0, b: 1 }, ...steps])),
  limits: fc.nat(2),
  how: fc.nat(3),
});

/** Plays one run. Throws what the oracle finds. */
export async function play(
  modules: Modules,
  { steps, limits, how }: Run,
  advance: (ms: number) => void,
): Promise<void> {
  const world = new World(modules, limits, advance);
  for (const one of steps) await world.step(one);
  await world.finish(how);
}

/** How the model is run. */
export interface ModelOptions {
  runs: number;
  seed: number;
  /** Whether the shortest failing run is looked for. */
  shrinks: boolean;
  advance: (ms: number) => void;
}

/** Plays runs until one fails or there have been enough; answers what is wrong, or `undefined`. */
export async function explore(modules: Modules, options: ModelOptions): Promise<string | undefined> {
  const property = fc.asyncProperty(run, (drawn) => play(modules, drawn, options.advance));
  const result = await fc.check(property, {
    numRuns: options.runs,
    seed: options.seed,
    endOnFailure: !options.shrinks,
  });
  if (!result.failed) return undefined;
  const { steps = [], limits, how } = result.counterexample?.[0] ?? {};
  const rows = steps.map(({ kind, a, b }) => `${kind}(${a}, ${b})`);
  const error = result.errorInstance as Error | undefined;
  return `${error instanceof Breach ? "breach" : "crash"}: ${error?.stack ?? "?"}\nafter ${result.numRuns} runs of seed ${result.seed}: ${rows.join(", ")}; limits ${limits}, how ${how}`;
}
