/**
 * Compares the CPU time of this build with that of another commit: `turns.js --before REF [--only one,burst]`. Both builds run in one
 * process, in turn, with client and server. Processes differ from start to start by up to a quarter, so figures of separate
 * processes hide what changes by a few percent.
 */
import { fork } from "node:child_process";
import { rmSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { checkout, ROOT } from "./checkout.js";
import { median } from "./statistics.js";
import { SCENARIOS } from "./turns-scenarios.js";

const SIDE = fileURLToPath(new URL("turns-side.js", import.meta.url));
const PROCESSES = 8;

/** Returns the CPU time of the second build as a multiple of that of the first, as one process measures it. */
function measure(scenario, builds) {
  const child = fork(SIDE, [scenario, ...builds], { execArgv: ["--max-semi-space-size=16"] });
  return new Promise((resolve, reject) => {
    child.once("message", resolve);
    child.once("exit", (code) => reject(new Error(`${scenario} ended with ${code}`)));
  });
}

const { values } = parseArgs({ options: { before: { type: "string" }, only: { type: "string" } } });
if (values.before === undefined) throw new Error("Expected `--before` with a commit");
const known = Object.keys(SCENARIOS);
const scenarios = values.only?.split(",") ?? known;
const unknown = scenarios.find((name) => !known.includes(name));
if (unknown !== undefined) throw new Error(`Unknown scenario \`${unknown}\`; known are ${known.join(", ")}`);

const before = checkout(values.before);
try {
  for (const scenario of scenarios) {
    const ratios = [];
    for (let i = 0; i < PROCESSES; i++) {
      // Which build is set up first makes a difference, so the order alternates.
      const ratio = await measure(scenario, i % 2 === 0 ? [before, ROOT] : [ROOT, before]);
      ratios.push(i % 2 === 0 ? ratio : 1 / ratio);
    }
    ratios.sort((a, b) => a - b);
    const [least, most] = [ratios[0], ratios.at(-1)].map((ratio) => ratio.toFixed(3));
    console.log(`${scenario}: ${median(ratios).toFixed(3)} of the CPU time at ${values.before} (${least} to ${most})`);
  }
} finally {
  rmSync(before, { recursive: true });
}
