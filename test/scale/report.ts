/** The figures of a run, as data and as the tables of docs/scale.md. */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import os from "node:os";
import { join } from "node:path";
import { putMeasured, tableOf } from "../support/measured.js";
import { KINDS, type Measured } from "./measure.js";

interface Run {
  readonly connections: number;
  readonly idleMs: number;
  readonly results: readonly Measured[];
}

type Side = Measured["server"];

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

/** Writes scale.json into `directory`, and the tables of docs/scale.md if that is the directory. Run from the root of the project. */
export function writeReport(run: Run, directory: string): void {
  mkdirSync(directory, { recursive: true });
  const report = { measured, machine, versions, ...run };
  writeFileSync(join(directory, "scale.json"), `${JSON.stringify(report, null, 2)}\n`);
  if (directory !== "docs") return;
  const { cpu, memoryGiB, system } = machine;
  const on = `${cpu}, ${memoryGiB} GiB, ${system}, Node ${versions.node}`;
  const tables = {
    machine: `Measured ${measured.slice(0, 10)} on ${on}, with ws ${ws}, reciproc ${reciproc}.`,
    server: tableOf(
      ["", "right answers", "all open, s", ...SIDE, "bytes in and out while idle"],
      run.results.map((result) => [
        KINDS[result.kind],
        `${number(result.right)} of ${number(2 * run.connections)}`,
        number(result.openMs / 1000, 1),
        ...figures(result.server, run),
        trafficOf(result, run.connections),
      ]),
    ),
    clients: tableOf(
      ["", ...SIDE],
      run.results.map(({ kind, clients }) => [KINDS[kind], ...figures(clients, run)]),
    ),
  };
  for (const [name, text] of Object.entries(tables)) putMeasured("docs/scale.md", name, text);
}

const SIDE = ["heap, KiB each", "buffers, KiB each", "resident, KiB each", "timers", "CPU while idle, % of a core"];

function figures({ empty, full, idleCpuMs }: Side, { connections, idleMs }: Run): string[] {
  const grown = (name: "heap" | "buffers" | "rss"): string =>
    number((full[name] - empty[name]) / 1024 / connections, name === "buffers" ? 2 : 1);
  return [grown("heap"), grown("buffers"), grown("rss"), number(full.timers), number((idleCpuMs / idleMs) * 100, 1)];
}

/** For each connection. */
function trafficOf({ stats }: Measured, connections: number): string {
  if (stats === undefined) return "";
  const { opened, full } = stats;
  const bytes = full.bytesReceived - opened.bytesReceived + full.bytesSent - opened.bytesSent;
  return `${number(bytes / connections, 1)} each`;
}

function number(value: number, digits = 0): string {
  return value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}
