/** Measures several nodes over one Redis, reciproc beside socket.io, and writes the report. */
import { execFileSync } from "node:child_process";
import { isDeepStrictEqual } from "node:util";
import { machine, version } from "../machine.js";
import { median, precise, shuffled } from "../statistics.js";
import { publishFleet, readFleet } from "../../scripts/fleet.js";
import { redisPath } from "../../scripts/redis.js";
import { measureScale } from "./scale.js";
import { scenarios } from "./scenarios.js";
import { readArguments } from "./settings.js";

const CANNOT = "cannot";

/** Measures what the arguments of the command line name. */
export async function measureFleet(args) {
  const run = readArguments(args);
  if (run.help !== undefined) {
    process.stdout.write(run.help);
    return;
  }
  if (run.scenarios.length > 0) await compare(run);
  if (run.fleets !== undefined) {
    process.stdout.write("What fleets of several sizes need\n");
    await publishFleet("scale", await measureScale(run.fleets, run.quick), run.out);
  }
  process.stdout.write(`\nWritten to ${run.out}/fleet.json and ${run.out}/fleet.md\n`);
}

/** Measures scenarios with all contenders. */
async function compare(run) {
  const started = performance.now();
  const report = {
    measured: run.update ? (await readFleet()).bench.measured : new Date().toISOString(),
    quick: run.quick,
    machine: machine(),
    versions: versions(run.contenders),
    budget: run.budget,
    contenders: run.contenders.map(({ name, title }) => ({ name, title })),
    scenarios: run.update ? await published(run) : [],
  };
  for (const scenario of run.scenarios) {
    const { name, nodes, perSecond, metrics } = scenario;
    const title = scenario.title(run.budget);
    process.stdout.write(`${title} `);
    const results = await play(scenario, run);
    const updated = run.update ? new Date().toISOString() : undefined;
    put(report.scenarios, { name, title, nodes, perSecond, updated, metrics, results });
    // Write after each scenario, so that the results of a stopped run are kept.
    await publishFleet("bench", report, run.out);
    process.stdout.write(` ${Math.round((performance.now() - started) / 1_000)} s\n`);
  }
}

/** Returns the scenarios of the published report that are still measured. Throws unless it was measured in the same way. */
async function published({ budget, contenders }) {
  const { bench } = await readFleet();
  const same = { machine: machine(), versions: versions(contenders), budget };
  for (const [name, value] of Object.entries(same))
    if (!isDeepStrictEqual(bench[name], value)) throw new Error(`--update: the published report has another ${name}`);
  return bench.scenarios.filter(({ name }) => scenarios.has(name));
}

/** Replaces the scenario of the same name, or puts a new one where it belongs. */
function put(list, scenario) {
  const order = [...scenarios.keys()];
  const kept = [...list.filter(({ name }) => name !== scenario.name), scenario];
  list.splice(0, list.length, ...kept.sort((a, b) => order.indexOf(a.name) - order.indexOf(b.name)));
}

function versions(contenders) {
  const names = ["ws", "socket.io-client", ...contenders.flatMap(({ packages }) => packages)];
  const redis = /v=([\d.]+)/.exec(execFileSync(redisPath(), ["--version"], { encoding: "utf8" }))?.[1];
  return { ...Object.fromEntries(names.map((name) => [name, version(name)])), Redis: redis };
}

/** Runs one scenario for all contenders, round by round in random order. Each turn has a broker, nodes and clients of its own. */
async function play(scenario, { contenders, budget }) {
  const cells = new Map(contenders.map(({ name }) => [name, []]));
  const errors = new Map();
  for (let round = 0; round < Math.min(budget.rounds, scenario.mostRounds ?? Infinity); round++) {
    for (const contender of shuffled(contenders)) {
      const { name } = contender;
      if ((scenario.needs !== undefined && contender[scenario.needs] !== true) || errors.has(name)) continue;
      try {
        cells.get(name).push(await scenario.run(contender, budget));
      } catch (error) {
        errors.set(name, error.message.split("\n")[0]);
        process.stdout.write(`\n  ${name}: ${errors.get(name)}\n`);
      }
      process.stdout.write(".");
    }
  }
  return Object.fromEntries([...cells].map(([name, rounds]) => [name, summary(rounds, errors.get(name), scenario)]));
}

function summary(rounds, error, { metrics }) {
  if (error !== undefined) return { error };
  if (rounds.length === 0) return { absent: CANNOT };
  return Object.fromEntries(
    metrics.flatMap(({ name }) => {
      const values = rounds.map((round) => round[name]);
      // This contender does not count it.
      if (values.includes(undefined)) return [];
      return [[name, { median: precise(median(values)), rounds: values.map(precise) }]];
    }),
  );
}
