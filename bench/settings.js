/** The settings of a run: its arguments, and the time limits. */
import { parseArgs } from "node:util";
import { BASELINE, contenders, FLOOR } from "./contenders.js";
import { scenarios } from "./scenarios/index.js";

/**
 * Many short rounds give steadier ratios than few long ones, because disturbances of a machine are short. After `roundsOfPair` rounds,
 * each contender gets new processes. They first run `compileRuns` times for `compileMs`, each time with new connections, so that
 * compiled code is compared. The second connection of a process invalidates code that was compiled for the first one: also with bare
 * `ws`, its first 3,000 calls take twice as long as those of the fifth.
 */
const FULL = {
  rounds: 12,
  roundsOfPair: 4,
  ms: 200,
  warmUpMs: 60,
  compileRuns: 4,
  compileMs: 400,
  fanOut: [1_000, 5_000],
  fanOuts: 15,
  liveMs: 2_000,
  idle: 5_000,
  opened: 500,
  timeoutMs: 60_000,
};

const QUICK = {
  rounds: 1,
  roundsOfPair: 1,
  ms: 60,
  warmUpMs: 30,
  compileRuns: 1,
  compileMs: 60,
  fanOut: [200, 800],
  fanOuts: 5,
  liveMs: 250,
  idle: 400,
  opened: 150,
  timeoutMs: 60_000,
};

/** Open files besides the sockets: files, pipes, and those of Node itself. */
const OTHER_FILES = 200;

const USAGE = `Usage: npm run bench -- [--quick] [--only SCENARIOS] [--contenders NAMES] [--rounds NUMBER] [--out DIRECTORY]

  --quick        short rounds: all in about two minutes, for a first look
  --only         ${[...scenarios.keys()].join(",")}
  --contenders   ${contenders.map(({ name }) => name).join(",")}
  --rounds       of each figure; some scenarios have fewer
  --out          where the report goes: docs for a whole run, test-output for any other
  --fleet        several nodes over Redis, beside socket.io (with --help, its own arguments)
  --attacks      what floods cost the server, and how long another client waits meanwhile
  --reconnect    how soon clients are back after their server was down, beside socket.io
  --page         a client in a page of Chromium, beside a bare WebSocket
`;

/** Reads the arguments. Throws an error with a message for the user if one is wrong. */
export function readArguments(args) {
  const { values } = parseArgs({
    args,
    options: {
      quick: { type: "boolean", default: false },
      only: { type: "string" },
      contenders: { type: "string" },
      rounds: { type: "string" },
      out: { type: "string" },
      help: { type: "boolean", default: false },
    },
  });
  if (values.help) return { help: USAGE };
  const known = new Map(contenders.map((contender) => [contender.name, contender]));
  const chosen = choose("--contenders", values.contenders, known);
  // Every ratio needs one of these.
  for (const name of [FLOOR, BASELINE])
    if (!chosen.some((contender) => contender.name === name)) chosen.unshift(known.get(name));
  const { quick, only, rounds } = values;
  const whole = !quick && [only, values.contenders, rounds].every((value) => value === undefined);
  const budget = { ...(quick ? QUICK : FULL) };
  if (rounds !== undefined) budget.rounds = Number(rounds);
  if (!(budget.rounds >= 1)) throw new Error(`--rounds must be a number, not "${rounds}"`);
  return {
    quick,
    budget,
    scenarios: choose("--only", only, scenarios),
    contenders: chosen,
    // A short or partial run must not replace the published figures by accident.
    out: values.out ?? (whole ? "docs" : "test-output"),
  };
}

/** Returns the values of a map whose names an argument lists, or all. */
export function choose(option, names, known) {
  const wanted = names?.split(",") ?? [...known.keys()];
  const unknown = wanted.find((name) => !known.has(name));
  if (unknown !== undefined) {
    throw new Error(`${option} knows no "${unknown}"; known are ${[...known.keys()].join(", ")}`);
  }
  return [...known].filter(([name]) => wanted.includes(name)).map(([, item]) => item);
}

/** Throws if the largest scenario would run out of open files. Each process needs one for each socket. */
export function checkOpenFiles({ scenarios: chosen, budget }) {
  const sockets = Math.max(0, ...chosen.map((scenario) => scenario.sockets?.(budget) ?? 0));
  checkSockets(sockets);
}

/** Throws if a process cannot have so many sockets. */
export function checkSockets(sockets) {
  const needed = sockets + OTHER_FILES;
  // Node raises the soft limit to the hard limit by itself, so this is the maximum. Windows has no such limit.
  const limit = process.report.getReport().userLimits?.open_files?.soft ?? "unlimited";
  if (limit === "unlimited" || Number(limit) >= needed) return;
  throw new Error(
    `Each process may open ${limit} files, and ${needed} are needed: raise the limit (ulimit -n ${needed}), ` +
      `or leave out the large scenarios with --only`,
  );
}
