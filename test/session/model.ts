/** Rows of steps, drawn at random, through the oracle. */
import * as fc from "fast-check";
import { Breach, LIMITS, Oracle, type Fault, type Side } from "./oracle.js";

const FINAL = [1002, 1003, 1007, 1008, 1009, 1010, 1013, 4400, 4401, 4413, 4499];
const PASSING = [1000, 1001, 1004, 1005, 1006, 1011, 1012, 1014, 1015, 3000, 4000, 4399, 4500, 4999];
const KEYS = ["ann", "bob"];
const SIZES = [1, 20, 200, 600, 1100];

/** What may happen. `a` and `b` choose among what is there. */
const STEPS = {
  clientSends: (oracle, a, b) => times(1 + (a % 4), () => oracle.send("client", SIZES[b % SIZES.length])),
  serverSends: (oracle, a, b) => times(1 + (a % 4), () => oracle.send("server", SIZES[b % SIZES.length])),
  clientShows: (oracle, a, b) => times(1 + (a % 3), () => oracle.send("client", SIZES[b % SIZES.length], KEYS[a % 2])),
  serverShows: (oracle, a, b) => times(1 + (a % 3), () => oracle.send("server", SIZES[b % SIZES.length], KEYS[a % 2])),
  drop: (oracle, a, b) => oracle.drop(sideOf(a), 1 + (b % 3)),
  toClient: (oracle, a) => times(1 + (a % 3), () => oracle.deliver("client")),
  toServer: (oracle, a, b) => times(1 + (a % 3), () => oracle.deliver("server", b % 8 === 0 ? a % 3 : 0)),
  toServerOld: (oracle, a) => times(2, () => oracle.deliver("server", 1 + (a % 2))),
  settle: (oracle) => oracle.settle(),
  changeTicks: (oracle, a) => (oracle.sendsAtOnce = a % 2 === 0),
  cutClient: (oracle) => oracle.cut("client"),
  cutServer: (oracle) => oracle.cut("server"),
  cutBoth: (oracle) => (oracle.cut("client"), oracle.cut("server")),
  closeFinally: (oracle, a, b) => oracle.cut(sideOf(a), FINAL[b % FINAL.length]),
  closeInPassing: (oracle, a, b) => oracle.cut(sideOf(a), PASSING[b % PASSING.length]),
  reconnect: (oracle) => oracle.reconnect(),
  reconnectToHello: (oracle) => oracle.reconnectToHello(),
  reconnectAndSettle: (oracle) => (oracle.reconnect(), oracle.settle()),
  crossResumes: (oracle, a) => crossResumes(oracle, a % 2 === 0),
  expire: (oracle) => oracle.expire(),
  closeServer: (oracle) => oracle.close("server"),
  closeClient: (oracle) => oracle.close("client"),
  closeReturning: (oracle) => (oracle.reconnectToHello(), oracle.close("client")),
  stall: (oracle, a, b) => oracle.stall(sideOf(a), b % 2 === 0),
  drain: (oracle, a) => oracle.drain(sideOf(a)),
  cancel: (oracle, a, b) => oracle.cancel(sideOf(a), b),
  flood: (oracle, a) => times(12, () => oracle.send(sideOf(a), 1200)),
  tooLong: (oracle, a) => oracle.sendTooLong(sideOf(a)),
  poison: (oracle, a) => oracle.lie(sideOf(a)),
  lie: (oracle, a, b) => oracle.lie(sideOf(a), 1 + (b % 7)),
  ackLate: (oracle, a) => (oracle.settle(), oracle.ackLate(sideOf(a))),
  bye: (oracle, a) => oracle.bye(sideOf(a)),
  answerWrongly: (oracle, a) => oracle.answerWrongly(a),
  repeatResume: (oracle, a) => oracle.repeatResume(a),
  resumeTwice: (oracle) => oracle.resumeTwice(),
  steal: (oracle) => oracle.steal(),
  reuse: (oracle, a) => oracle.reuse(a),
  breakIn: (oracle, a, b) => oracle.breakIn(a, b % 2 === 0),
  lieInResume: (oracle, a) => (oracle.settle(), oracle.lieInResume(a)),
} satisfies Record<string, (oracle: Oracle, a: number, b: number) => unknown>;

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

const weightOf = (kind: StepKind): number => BY_WEIGHT.find(([, kinds]) => kinds.includes(kind))?.[0] ?? 1;

function times(count: number, act: () => void): void {
  for (let i = 0; i < count; i++) act();
}

function sideOf(a: number): Side {
  return a % 2 === 0 ? "client" : "server";
}

/** The client gives one `resume` up for another, and the first arrives when the second is answered. */
function crossResumes(oracle: Oracle, isAnswered: boolean): void {
  oracle.cut("client");
  oracle.reconnectToHello();
  oracle.cut("client");
  oracle.reconnectToHello();
  oracle.deliver("server", 0);
  if (isAnswered) oracle.deliver("client", 0);
  oracle.deliver("server", 1);
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
    const oracle = new Oracle(limits, fault);
    for (const { kind, a, b } of steps) oracle.perform(() => STEPS[kind](oracle, a, b));
    oracle.finish(closes);
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
