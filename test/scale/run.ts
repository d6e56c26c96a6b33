/**
 * Measures ten thousand idle connections to one server: the memory of each on both sides, and the required conditions.
 * Writes the figures only if all conditions hold: a whole run into docs/scale.json and docs/scale.md. Each process needs
 * as many open files as connections, and some more (`ulimit -Hn`).
 *
 *     npm run scale -- [--connections 10000] [--idle SECONDS] [--out DIRECTORY]
 */
import { parseArgs } from "node:util";
import { check } from "./check.js";
import { KINDS, measure, type Kind, type Measured } from "./measure.js";
import { writeReport } from "./report.js";

const FULL = { connections: "10000", idle: "60" };
const { values } = parseArgs({
  options: {
    connections: { type: "string", default: FULL.connections },
    idle: { type: "string", default: FULL.idle },
    out: { type: "string" },
  },
});
const connections = Number(values.connections);
const idleMs = Number(values.idle) * 1000;
const isWhole = values.connections === FULL.connections && values.idle === FULL.idle;
// A smaller run must not replace the published figures by accident.
const out = values.out ?? (isWhole ? "docs" : "test-output");

const results: Measured[] = [];
for (const kind of Object.keys(KINDS) as Kind[]) {
  process.stdout.write(`${KINDS[kind]}: ${connections} connections ...\n`);
  const measured = await measure(kind, connections, idleMs, import.meta.dirname);
  check(measured, connections);
  results.push(measured);
}
writeReport({ connections, idleMs, results }, out);
process.stdout.write(`all is well; see ${out}/scale.json\n`);
