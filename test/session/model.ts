/** Rows of steps, drawn at random, through the oracle. */
import * as fc from "fast-check";
import { Breach, LIMITS, World, type Fault, type Side } from "./oracle.js";

const FINAL = [1002, 1003, 1007, 1008, 1009, 1010, 1013, 4400, 4401, 4413, 4499];
const PASSING = [1000, 1001, 1004, 1005, 1006, 1011, 1012, 1014, 1015, 3000, 4000, 4399, 4500, 4999];
const KEYS = ["ann", "bob"];
const SIZES = [1, 20, 200, 600, 1100];

/** What may happen. `a` and `b` choose among what is there. */
const STEPS = {
  clientSends: (world, a, b) => times(1 + (a % 4), () => world.send("client", SIZES[b % SIZES.length])),
  serverSends: (world, a, b) => times(1 + (a % 4), () => world.send("server", SIZES[b % SIZES.length])),
  clientShows: (world, a, b) => times(1 + (a % 3), () => world.send("client", SIZES[b % SIZES.length], KEYS[a % 2])),
  serverShows: (world, a, b) => times(1 + (a % 3), () => world.send("server", SIZES[b % SIZES.length], KEYS[a % 2])),
  drop: (world, a, b) => world.drop(sideOf(a), 1 + (b % 3)),
  toClient: (world, a) => times(1 + (a % 3), () => world.deliver("client")),
  toServer: (world, a, b) => times(1 + (a % 3), () => world.deliver("server", b % 8 === 0 ? a % 3 : 0)),
  toServerOld: (world, a) => times(2, () => world.deliver("server", 1 + (a % 2))),
  settle: (world) => world.settle(),
  cutClient: (world) => world.cut("client"),
  cutServer: (world) => world.cut("server"),
  cutBoth: (world) => (world.cut("client"), world.cut("server")),
  closeFinally: (world, a, b) => world.cut(sideOf(a), FINAL[b % FINAL.length]),
  closeInPassing: (world, a, b) => world.cut(sideOf(a), PASSING[b % PASSING.length]),
  reconnect: (world) => world.reconnect(),
  reconnectToHello: (world) => world.reconnectToHello(),
  reconnectAndSettle: (world) => (world.reconnect(), world.settle()),
  crossResumes: (world, a) => crossResumes(world, a % 2 === 0),
  expire: (world) => world.expire(),
  closeServer: (world) => world.close("server"),
  closeClient: (world) => world.close("client"),
  closeReturning: (world) => (world.reconnectToHello(), world.close("client")),
  stall: (world, a, b) => world.stall(sideOf(a), b % 2 === 0),
  drain: (world, a) => world.drain(sideOf(a)),
  cancel: (world, a, b) => world.cancel(sideOf(a), b),
  flood: (world, a) => times(12, () => world.send(sideOf(a), 1200)),
  tooLong: (world, a) => world.sendTooLong(sideOf(a)),
  poison: (world, a) => world.lie(sideOf(a)),
  lie: (world, a, b) => world.lie(sideOf(a), 1 + (b % 7)),
  ackLate: (world, a) => (world.settle(), world.ackLate(sideOf(a))),
  bye: (world, a) => world.bye(sideOf(a)),
  answerWrongly: (world, a) => world.answerWrongly(a),
  repeatResume: (world, a) => world.repeatResume(a),
  resumeTwice: (world) => world.resumeTwice(),
  steal: (world) => world.steal(),
  reuse: (world, a) => world.reuse(a),
  breakIn: (world, a, b) => world.breakIn(a, b % 2 === 0),
  lieInResume: (world, a) => (world.settle(), world.lieInResume(a)),
} satisfies Record<string, (world: World, a: number, b: number) => void>;

type StepKind = keyof typeof STEPS;

/** How often the kinds of steps are drawn that are drawn more than once. */
const BY_WEIGHT: readonly (readonly [weight: number, kinds: readonly StepKind[]])[] = [
  [10, ["clientSends", "serverSends"]],
  [8, ["toClient", "toServer", "settle"]],
  [6, ["reconnect", "reconnectAndSettle"]],
  [4, ["cutClient", "cutBoth", "reconnectToHello", "clientShows", "serverShows", "drop", "toServerOld"]],
  [3, ["cutServer"]],
  [2, ["stall", "cancel", "lieInResume", "ackLate", "repeatResume"]],
];

function weightOf(kind: StepKind): number {
  return BY_WEIGHT.find(([, kinds]) => kinds.includes(kind))?.[0] ?? 1;
}

function times(count: number, act: () => void): void {
  for (let i = 0; i < count; i++) act();
}

function sideOf(a: number): Side {
  return a % 2 === 0 ? "client" : "server";
}

/** The client gives one `resume` up for another, and the first arrives when the second is answered. */
function crossResumes(world: World, isAnswered: boolean): void {
  world.cut("client");
  world.reconnectToHello();
  world.cut("client");
  world.reconnectToHello();
  world.deliver("server", 0);
  if (isAnswered) world.deliver("client", 0);
  world.deliver("server", 1);
}

interface Step {
  readonly kind: StepKind;
  readonly a: number;
  readonly b: number;
}

const KINDS = Object.keys(STEPS) as StepKind[];

const step: fc.Arbitrary<Step> = fc.record({
  kind: fc.oneof(...KINDS.map((kind) => ({ weight: weightOf(kind), arbitrary: fc.constant(kind) }))),
  a: fc.nat(60),
  b: fc.nat(60),
});

/** Begins with a session that is open, mostly: what comes before is only a few frames long. */
const run = fc.record({
  steps: fc
    .tuple(fc.nat(9), fc.array(step, { maxLength: 40 }))
    .map(([n, steps]): Step[] => (n === 0 ? steps : [{ kind: "settle", a: 0, b: 1 }, ...steps])),
  limits: fc.nat(LIMITS.length - 1),
  closes: fc.constantFrom<Side>("client", "server"),
});

/** Plays runs until one fails or there have been enough. Returns what is wrong, `undefined` if nothing is. */
export function explore(options: { runs: number; seed: number; shrinks: boolean }, fault?: Fault): string | undefined {
  const property = fc.property(run, ({ steps, limits, closes }) => {
    const world = new World(limits, fault);
    for (const { kind, a, b } of steps) world.perform(() => STEPS[kind](world, a, b));
    world.finish(closes);
  });
  const { runs, seed, shrinks } = options;
  const result = fc.check(property, { numRuns: runs, seed, endOnFailure: !shrinks });
  if (!result.failed) return undefined;
  const { steps = [], limits, closes } = result.counterexample?.[0] ?? {};
  const rows = steps.map(({ kind, a, b }) => `${kind}(${a}, ${b})`);
  const error = result.errorInstance as Error | undefined;
  const what = error instanceof Breach ? "breach" : "crash";
  return `${what}: ${error?.stack ?? "?"}\nafter ${result.numRuns} runs of seed ${result.seed}: ${rows.join(", ")}; limits ${limits}, closed by the ${closes}`;
}
