/** Measures all contenders in all scenarios, and writes the report. With `--fleet` or `--attacks`, measures several nodes or floods instead. */
import { absence, BASELINE } from "./contenders.js";
import { measureAttacks } from "./attacks/run.js";
import { machine, versions } from "./machine.js";
import { measureFleet } from "./fleet/run.js";
import { Pair } from "./pair.js";
import { writeReport } from "./report.js";
import { checkOpenFiles, readArguments } from "./settings.js";
import { median, pairedRatio, precise, shuffled } from "./statistics.js";

/** The running pair of processes of each contender. */
const pairs = new Map();

async function stop(name) {
  await pairs.get(name)?.stop();
  pairs.delete(name);
}

async function stopAll() {
  await Promise.all([...pairs.keys()].map(stop));
}

async function measure(scenario, contender, budget) {
  if (scenario.alone !== undefined) return scenario.alone(contender);
  const { name } = contender;
  if (scenario.fresh) await stop(name);
  if (!pairs.has(name)) pairs.set(name, new Pair(contender));
  try {
    return await pairs.get(name).run(scenario, budget);
  } catch (error) {
    await stop(name);
    throw error;
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
  const rounds = Math.min(scenario.mostRounds ?? Infinity, scenario.heavy ? budget.heavyRounds : budget.rounds);
  // Heavy scenarios warm up by themselves.
  const warmsUp = !quick && rounds === budget.rounds;
  const takeTurns = async (turnBudget, record) => {
    for (const contender of shuffled(contenders)) {
      const cell = cells.get(contender.name);
      if (cell.absent !== undefined || cell.error !== undefined) continue;
      try {
        record(cell, await measure(scenario, contender, turnBudget));
      } catch (error) {
        cell.error = error.message.split("\n")[0];
        process.stdout.write(`\n  ${contender.name}: ${cell.error}\n`);
      }
      process.stdout.write(".");
    }
  };
  for (let round = 0; round < rounds; round++) {
    if (warmsUp && round % budget.roundsOfPair === 0) {
      await stopAll();
      await takeTurns({ ...budget, ms: budget.compileMs }, () => {});
    }
    await takeTurns(budget, (cell, result) => (cell.rounds[round] = result));
  }
  // New processes, because the heap and the compiled code of one scenario would affect the next.
  if (!quick) await stopAll();
  return Object.fromEntries([...cells].map(([name, cell]) => [name, summary(cell, cells.get(BASELINE), scenario)]));
}

function summary({ absent, error, rounds }, baseline, { metrics }) {
  if (absent !== undefined) return { absent };
  if (error !== undefined) return { error };
  return Object.fromEntries(
    metrics.map(({ name }) => {
      const values = rounds.map((round) => round[name]);
      const ratio = pairedRatio(
        values,
        (baseline.rounds ?? []).map((round) => round[name]),
      );
      return [name, { median: precise(median(values)), ratio: ratio && precise(ratio), rounds: values.map(precise) }];
    }),
  );
}

async function main() {
  const args = process.argv.slice(2);
  if (args.includes("--fleet")) {
    await measureFleet(args.filter((arg) => arg !== "--fleet"));
    return;
  }
  if (args.includes("--attacks")) {
    await measureAttacks(args.filter((arg) => arg !== "--attacks"));
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
