/** The process of `turns.js`: runs a scenario with two builds in turn, and reports the ratio of their CPU times. */
import { median } from "./statistics.js";
import { SCENARIOS, setUp } from "./turns-scenarios.js";

const WARM_UP_MS = 400;
const WARM_UPS = 3;
const TURN_MS = 150;
const TURNS = 16;

/** Returns the CPU time of a message, in microseconds, on both sides together. */
async function costOf(build, scenario, ms) {
  const before = process.cpuUsage();
  const messages = await SCENARIOS[scenario](build, ms);
  const { user, system } = process.cpuUsage(before);
  return (user + system) / messages;
}

const [scenario, ...roots] = process.argv.slice(2);
const builds = [];
for (const root of roots) builds.push(await setUp(root, scenario));
for (let i = 0; i < WARM_UPS; i++) for (const build of builds) await costOf(build, scenario, WARM_UP_MS);
const ratios = [];
for (let i = 0; i < TURNS; i++) {
  const costs = [];
  for (const at of i % 2 === 0 ? [0, 1] : [1, 0]) costs[at] = await costOf(builds[at], scenario, TURN_MS);
  ratios.push(costs[1] / costs[0]);
}
process.send(median(ratios), () => process.exit());
