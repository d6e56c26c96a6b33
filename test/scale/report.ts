/** Writes the measurements as data and a page, in prettier's format. */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import os from "node:os";
import { join } from "node:path";
import { tableOf } from "../support/measured.js";
import { KINDS, WARM_UP } from "./kinds.js";
import type { Measured, Side } from "./measure.js";

export interface Run {
  readonly connections: number;
  readonly idleMs: number;
  readonly results: readonly Measured[];
}

/** Writes scale.json and scale.md into `directory`. Run from the root of the project. */
export function writeReport(run: Run, directory: string): void {
  const report = { measured: new Date().toISOString(), machine: machine(), versions: versions(), ...run };
  mkdirSync(directory, { recursive: true });
  writeFileSync(join(directory, "scale.json"), `${JSON.stringify(report, null, 2)}\n`);
  writeFileSync(join(directory, "scale.md"), page(report));
}

function machine() {
  const cpus = os.cpus();
  return {
    cpu: `${cpus.length} x ${cpus[0]!.model.trim()}`,
    memoryGiB: Math.round(os.totalmem() / 2 ** 30),
    system: `${os.type()} ${os.release()} ${os.arch()}`,
  };
}

function versions() {
  const [ws, reciproc] = ["node_modules/ws/package.json", "package.json"].map(versionIn);
  return { node: process.versions.node, ws: ws!, reciproc: reciproc! };
}

function versionIn(path: string): string {
  return JSON.parse(readFileSync(path, "utf8")).version;
}

type Report = Run & {
  readonly measured: string;
  readonly machine: ReturnType<typeof machine>;
  readonly versions: ReturnType<typeof versions>;
};

function page({
  measured,
  machine: { cpu, memoryGiB, system },
  versions: { node, ws, reciproc },
  ...run
}: Report): string {
  const count = number(run.connections);
  const seconds = number(run.idleMs / 1000);
  return `${[
    `# ${count} idle connections`,
    "`npm run scale` measures this page and writes it.",
    `One server has ${count} connections, with default settings. Each connection makes one call, and every answer is checked. Then the connections stay idle for ${seconds} s, except for the heartbeats of both sides. The server is one process and the clients are another, on one machine, and both are started anew for each row. Bare \`ws\` sends back each frame that it gets, and has no heartbeat.`,
    `Measured ${measured.slice(0, 10)} on ${cpu}, ${memoryGiB} GiB, ${system}, Node ${node}, with ws ${ws}, reciproc ${reciproc}.`,
    `Memory is the growth of a process after garbage collection, divided by the number of connections. ${WARM_UP} connections were opened and closed before, so compiled code is not counted. Timers are all timers of the process, also those of Node and those that do not keep it alive. Other resources are those that keep the process alive, besides one socket for each connection.`,
    "## The server",
    tableOf(
      ["", "right answers", "all open, s", ...SIDE, "bytes in and out while idle", "other resources"],
      run.results.map((result) => [
        KINDS[result.kind],
        `${number(result.right)} of ${number(2 * run.connections)}`,
        number(result.openMs / 1000, 1),
        ...figures(result.server, run),
        trafficOf(result, run.connections),
        others(result.server),
      ]),
    ),
    "## The clients",
    tableOf(
      ["", ...SIDE, "other resources"],
      run.results.map(({ kind, clients }) => [KINDS[kind], ...figures(clients, run), others(clients)]),
    ),
    "## After all connections have closed",
    `Then ${count} further connections were opened, made one call each, and were closed. The table shows what was left in each process before it ended by itself. The heap is its growth by the further connections. One timer of each process runs on for up to a second after the last call.`,
    tableOf(
      ["", "peers", "sessions", "deadlines", "timers", "heap, bytes for each further connection"],
      run.results.flatMap(({ kind, server, clients }) => [
        leftOf(`${KINDS[kind]}, server`, server, run),
        leftOf(`${KINDS[kind]}, clients`, clients, run),
      ]),
    ),
  ].join("\n\n")}\n`;
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

function others({ full }: Side): string {
  const { TCPSocketWrap: _sockets, ...other } = full.resources;
  return Object.entries(other)
    .map(([kind, count]) => `${number(count)} ${kind}`)
    .join(", ");
}

function leftOf(title: string, { once, left }: Side, { connections }: Run): string[] {
  const { peers, sessions, deadlines, timers } = left;
  return [title, ...[peers, sessions, deadlines, timers, (left.heap - once.heap) / connections].map((n) => number(n))];
}

function number(value: number, digits = 0): string {
  return value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}
