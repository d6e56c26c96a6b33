/** The settings of a run over several nodes. */
import { parseArgs } from "node:util";
import { checkSockets, choose } from "../settings.js";
import { contenders } from "./contenders.js";
import { FLEETS, QUICK_FLEETS, SCALE } from "./scale.js";
import { scenarios } from "./scenarios.js";

/** `listeners`: on each node, where the rate of messages matters. `peers`: of all nodes, where the number of peers matters. */
const FULL = {
  rounds: 3,
  ms: 5_000,
  warmUpMs: 2_000,
  listeners: 20,
  peers: 10_000,
  fanOuts: 30,
  numbersPerSecond: 1,
  visitors: 2_000,
};

const QUICK = {
  rounds: 1,
  ms: 1_000,
  warmUpMs: 500,
  listeners: 20,
  peers: 1_000,
  fanOuts: 10,
  numbersPerSecond: 1,
  visitors: 500,
};

const USAGE = `Usage: npm run bench -- --fleet [--quick] [--only SCENARIOS [--update]] [--contenders NAMES] [--rounds NUMBER] [--peers NUMBER] [--listeners NUMBER] [--out DIRECTORY]

  --quick        one short round with fewer peers: eight minutes and not 35, for a first look
  --only         ${[...scenarios.keys(), SCALE].join(",")}
  --update       replaces these scenarios in the published report, and keeps the others: for a change that concerns them alone
  --contenders   ${contenders.map(({ name }) => name).join(",")}
  --peers        for \`notify\` to many and for the recovery; --listeners: on each node, where the time of a delivery is measured
  --out          where the report goes: docs for a whole run, test-output for any other
`;

/** Reads the arguments. Throws an error with a message for the user if one is wrong. */
export function readArguments(args) {
  const { values } = parseArgs({
    args,
    options: {
      quick: { type: "boolean", default: false },
      only: { type: "string" },
      update: { type: "boolean", default: false },
      contenders: { type: "string" },
      rounds: { type: "string" },
      peers: { type: "string" },
      listeners: { type: "string" },
      out: { type: "string" },
      help: { type: "boolean", default: false },
    },
  });
  const { quick, only, update, help } = values;
  const numbers = Object.entries({ rounds: values.rounds, peers: values.peers, listeners: values.listeners });
  if (help) return { help: USAGE };
  const asPublished = !quick && [values.contenders, ...numbers.map(([, value]) => value)].every((x) => x === undefined);
  if (update && !(asPublished && only !== undefined))
    throw new Error("--update needs --only, and allows no other option");
  const whole = asPublished && (update || only === undefined);
  const budget = { ...(quick ? QUICK : FULL) };
  for (const [name, value] of numbers) {
    if (value === undefined) continue;
    if (!/^[1-9]\d*$/.test(value)) throw new Error(`--${name} must be a number, not "${value}"`);
    budget[name] = Number(value);
  }
  // The clients of a node that was killed come to the other, beside those sockets that are not closed yet.
  checkSockets(budget.peers);
  const chosen = choose("--only", only, new Map([...scenarios, [SCALE, SCALE]]));
  return {
    quick: !whole,
    update,
    budget,
    scenarios: chosen.filter((one) => one !== SCALE),
    fleets: chosen.includes(SCALE) ? (quick ? QUICK_FLEETS : FLEETS) : undefined,
    contenders: choose("--contenders", values.contenders, new Map(contenders.map((one) => [one.name, one]))),
    // A short or partial run must not replace the published figures by accident.
    out: values.out ?? (whole ? "docs" : "test-output"),
  };
}
