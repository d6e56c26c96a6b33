/**
 * Measures ten thousand idle connections to one server: the memory of each on both sides, and the required conditions.
 * Writes the figures only if all conditions hold: a whole run into docs/scale.json and docs/scale.md. Each process needs
 * as many open files as connections, and some more (`ulimit -Hn`).
 *
 *     npm run scale -- [--connections 10000] [--idle SECONDS] [--out DIRECTORY]
 */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import os from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { putMeasured, tableOf } from "../measured.js";
import { check } from "./check.js";
import { KINDS, measure, type Kind, type Measured } from "./measure.js";

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

const [ws, reciproc] = ["node_modules/ws/package.json", "package.json"].map(
  (path): string => JSON.parse(readFileSync(path, "utf8")).version,
);
const machine = {
  cpu: `${os.cpus().length} x ${os.cpus()[0]!.model.trim()}`,
  memoryGiB: Math.round(os.totalmem() / 2 ** 30),
  system: `${os.type()} ${os.release()} ${os.arch()}`,
};
const versions = { node: process.versions.node, ws, reciproc };
const measured = new Date().toISOString();

const SIDE = ["heap, KiB each", "buffers, KiB each", "resident, KiB each", "timers", "CPU while idle, % of a core"];

const results: Measured[] = [];
for (const kind of Object.keys(KINDS) as Kind[]) {
  process.stdout.write(`${KINDS[kind]}: ${connections} connections ...\n`);
  const result = await measure(kind, connections, idleMs, import.meta.dirname);
  check(result, connections);
  results.push(result);
}
mkdirSync(out, { recursive: true });
const report = { measured, machine, versions, connections, idleMs, results };
writeFileSync(join(out, "scale.json"), `${JSON.stringify(report, null, 2)}\n`);
if (out === "docs") writeTables();
process.stdout.write(`all is well; see ${out}/scale.json\n`);

/** Writes the tables of docs/scale.md. */
function writeTables(): void {
  const { cpu, memoryGiB, system } = machine;
  const on = `${cpu}, ${memoryGiB} GiB, ${system}, Node ${versions.node}`;
  const tables = {
    machine: `Measured ${measured.slice(0, 10)} on ${on}, with ws ${ws}, reciproc ${reciproc}.`,
    server: tableOf(
      ["", "right answers", "all open, s", ...SIDE, "bytes in and out while idle"],
      results.map((result) => [
        KINDS[result.kind],
        `${number(result.right)} of ${number(2 * connections)}`,
        number(result.openMs / 1000, 1),
        ...figures(result.server),
        trafficOf(result),
      ]),
    ),
    clients: tableOf(
      ["", ...SIDE],
      results.map(({ kind, clients }) => [KINDS[kind], ...figures(clients)]),
    ),
  };
  for (const [name, text] of Object.entries(tables)) putMeasured("docs/scale.md", name, text);
}

function figures({ empty, full, idleCpuMs }: Measured["server"]): string[] {
  const grown = (name: "heap" | "buffers" | "rss"): string =>
    number((full[name] - empty[name]) / 1024 / connections, name === "buffers" ? 2 : 1);
  return [grown("heap"), grown("buffers"), grown("rss"), number(full.timers), number((idleCpuMs / idleMs) * 100, 1)];
}

/** For each connection. */
function trafficOf({ stats }: Measured): string {
  if (stats === undefined) return "";
  const { opened, full } = stats;
  const bytes = full.bytesReceived - opened.bytesReceived + full.bytesSent - opened.bytesSent;
  return `${number(bytes / connections, 1)} each`;
}

function number(value: number, digits = 0): string {
  return value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}
