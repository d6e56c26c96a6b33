/**
 * Measures ten thousand idle connections to one server: the memory of each on both sides, and the required conditions.
 * Writes the figures only if all conditions hold: a whole run into docs/scale.json and docs/scale.md.
 *
 *     npm run scale -- [--connections 10000] [--idle SECONDS] [--out DIRECTORY]
 */
import { parseArgs } from "node:util";
import { check } from "./check.js";
import { KINDS, measure, type Kind, type Measured } from "./measure.js";
import { putTables, writeReport } from "./report.js";

const FULL = { connections: "10000", idle: "60" };
/** The default of `limits.maxConnections`, which this run does not raise. */
const MOST_CONNECTIONS = 10_000;
/** File descriptors besides the sockets: files, pipes, and Node's own. */
const OTHER_FILES = 100;

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

/** Returns why it cannot run, or undefined if it can. */
function whyNot(): string | undefined {
  if (!Number.isInteger(connections) || connections < 1 || connections > MOST_CONNECTIONS)
    return `--connections is a whole number up to ${MOST_CONNECTIONS}, got ${values.connections}`;
  if (!(idleMs > 0 && idleMs < Infinity)) return `--idle is a number of seconds above 0, got ${values.idle}`;
  // Node raises the soft limit to the hard limit by itself, so only the hard limit counts. Windows has no such limit.
  const { userLimits } = process.report.getReport() as { userLimits?: { open_files?: { soft: number | "unlimited" } } };
  const most = userLimits?.open_files?.soft ?? "unlimited";
  const needed = connections + OTHER_FILES;
  if (most === "unlimited" || most >= needed) return undefined;
  return `each process may open ${most} files, and ${needed} are needed: raise the limit (ulimit -Hn ${needed}), or ask for fewer (--connections ${Math.max(1, most - OTHER_FILES)})`;
}

async function measureAll(): Promise<void> {
  const results: Measured[] = [];
  for (const kind of Object.keys(KINDS) as Kind[]) {
    process.stdout.write(`${KINDS[kind]}: ${connections} connections ...\n`);
    const measured = await measure(kind, connections, idleMs, import.meta.dirname);
    check(measured, connections);
    results.push(measured);
  }
  const run = { connections, idleMs, results };
  writeReport(run, out);
  if (out === "docs") putTables(run);
  process.stdout.write(`all is well; see ${out}/scale.json\n`);
}

const reason = whyNot();
if (reason === undefined) await measureAll();
else {
  process.stderr.write(`${reason}\n`);
  process.exitCode = 1;
}
