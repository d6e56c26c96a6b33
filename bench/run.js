/**
 * Measures all contenders in all scenarios, and writes the report. With `--fleet`, `--attacks`, `--reconnect` or `--page`, measures several
 * nodes, floods, outages or a page instead.
 */
import { absence, BASELINE, FLOOR } from "./contenders.js";
import { measureAttacks } from "./attacks/run.js";
import { machine, versions } from "./machine.js";
import { measureFleet } from "./fleet/run.js";
import { measurePage } from "./page/run.js";
import { measureReconnect } from "./reconnect/run.js";
import { Process } from "./process.js";
import { writeReport } from "./report.js";
import { checkOpenFiles, readArguments } from "./settings.js";
import { median, pairedRatio, precise, shuffled } from "./statistics.js";

/** The client process of each contender. Its server process is its child. */
const pairs = new Map();

async function stop(name) {
  await pairs.get(name)?.kill();
  pairs.delete(name);
}

async function stopAll() {
  await Promise.all([...pairs.keys()].map(stop));
}

async function measure(scenario, contender, budget) {
  if (scenario.runInParent !== undefined) return scenario.runInParent(contender);
  const { name } = contender;
  // Memory is measured in new processes.
  if (scenario.collects) await stop(name);
  if (!pairs.has(name)) {
    const execArgv = scenario.collects ? ["--expose-gc"] : [];
    pairs.set(name, new Process(new URL("client.js", import.meta.url), [name], execArgv));
  }
  try {
    return await within(budget.timeoutMs, pairs.get(name).ask("run", scenario.name, budget));
  } catch (error) {
    await stop(name);
    throw error;
  }
}

/** Returns the promise, which rejects if it is not settled in time. */
async function within(ms, promise) {
  let timer;
  const late = new Promise((_resolve, reject) => {
    timer = setTimeout(() => reject(new Error(`not done after ${ms / 1_000} s`)), ms);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

/**
 * Runs one scenario for all contenders, round by round, so that a disturbance of the machine affects all of them. After some rounds
 * new processes take over: where the system and the compiler put a process can make it a quarter faster or slower for its whole life.
 */
async function play(scenario, { contenders, budget, quick }) {
  const cells = new Map();
  for (const contender of contenders) {
    const absent = absence(contender, scenario);
    cells.set(contender.name, absent === undefined ? { rounds: [] } : { absent });
  }
  const rounds = Math.min(scenario.mostRounds ?? Infinity, budget.rounds);
  const runAll = async (roundBudget, record) => {
    for (const contender of shuffled(contenders)) {
      const cell = cells.get(contender.name);
      if (cell.absent !== undefined || cell.error !== undefined) continue;
      try {
        record(cell, await measure(scenario, contender, roundBudget));
      } catch (error) {
        cell.error = error.message.split("\n")[0];
        process.stdout.write(`\n  ${contender.name}: ${cell.error}\n`);
      }
      process.stdout.write(".");
    }
  };
  for (let round = 0; round < rounds; round++) {
    if (!quick && round % budget.roundsOfPair === 0) {
      await stopAll();
      // Heavy scenarios warm up by themselves.
      const runs = scenario.heavy || scenario.runInParent !== undefined ? 0 : budget.compileRuns;
      for (let i = 0; i < runs; i++) await runAll({ ...budget, ms: budget.compileMs }, () => {});
    }
    await runAll(budget, (cell, result) => (cell.rounds[round] = result));
  }
  // New processes, because the heap and the compiled code of one scenario would affect the next.
  if (!quick) await stopAll();
  return Object.fromEntries([...cells].map(([name, cell]) => [name, summary(cell, cells, scenario)]));
}

function summary({ absent, error, rounds }, cells, { metrics }) {
  if (absent !== undefined) return { absent };
  if (error !== undefined) return { error };
  return Object.fromEntries(
    metrics.map(({ name }) => {
      const values = rounds.map((round) => round[name]);
      const ratioTo = (other) => {
        const ratio = pairedRatio(values, cells.get(other).rounds?.map((round) => round[name]) ?? []);
        return ratio && precise(ratio);
      };
      const ratios = { ratio: ratioTo(BASELINE), toFloor: ratioTo(FLOOR) };
      return [name, { median: precise(median(values)), ...ratios, rounds: values.map(precise) }];
    }),
  );
}

/** What is measured instead of the contenders, by its argument. */
const OTHERS = {
  "--fleet": measureFleet,
  "--attacks": measureAttacks,
  "--reconnect": measureReconnect,
  "--page": measurePage,
};

async function main() {
  const args = process.argv.slice(2);
  const other = Object.keys(OTHERS).find((name) => args.includes(name));
  if (other !== undefined) {
    await OTHERS[other](args.filter((arg) => arg !== other));
    return;
  }
  const run = readArguments(args);
  if (run.help !== undefined) {
    process.stdout.write(run.help);
    return;
  }
  checkOpenFiles(run);
  const started = performance.now();
  const report = {
    measured: new Date().toISOString(),
    quick: run.quick,
    machine: machine(),
    versions: versions(run.contenders),
    budget: run.budget,
    contenders: run.contenders.map(({ name, title }) => ({ name, title })),
    scenarios: [],
  };
  for (const scenario of run.scenarios) {
    const title = typeof scenario.title === "function" ? scenario.title(run.budget) : scenario.title;
    process.stdout.write(`${title} `);
    const results = await play(scenario, run);
    report.scenarios.push({
      name: scenario.name,
      title,
      main: scenario.main === true,
      metrics: scenario.metrics,
      results,
    });
    // Write after each scenario, so that the results of a stopped run are kept.
    writeReport(report, run.out);
    process.stdout.write(` ${Math.round((performance.now() - started) / 1_000)} s\n`);
  }
  process.stdout.write(`\nWritten to ${run.out}/benchmark.md, .json and .svg\n`);
}

try {
  await main();
} catch (error) {
  process.stderr.write(`${error.message}\n`);
  process.exitCode = 1;
} finally {
  await stopAll();
}
