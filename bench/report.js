/** Writes the results as a page, a chart and data, in the layout of prettier, so that a run leaves nothing to format. */
import { mkdirSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { BASELINE } from "./contenders.js";
import { chart } from "./chart.js";

const ROOT = new URL("..", import.meta.url);

/** What the contenders without a README of their own do. */
const CONTENDERS = `- **bare ws** is the baseline: JSON-RPC over \`ws\`, written by hand, with one frame for each message, and without errors, limits and timeouts. A message to many sockets is stringified once.
- **net by hand** is the floor: the same messages in WebSocket frames, which are written by hand on the TCP sockets of Node, without any check. The messages of a tick (one run of the event loop) are one array in one frame, and a message to many sockets is one frame for all. Nothing in this runtime can be much faster.
- **bare ws, packed** sends the messages of a tick as one array, of about 1 KiB at most.
- **reciproc (packed)** speaks \`reciproc.v1\`, which is the default. **reciproc (plain)** sends each message in a frame of its own (\`link: "plain"\`).`;

/** Writes benchmark.json, .md and .svg into a directory of the project. */
export function writeReport(report, directory) {
  const target = new URL(`${directory}/`, ROOT);
  mkdirSync(fileURLToPath(target), { recursive: true });
  writeFileSync(new URL("benchmark.json", target), json(report));
  writeFileSync(new URL("benchmark.svg", target), chart(report));
  writeFileSync(new URL("benchmark.md", target), page(report));
}

/** Returns JSON with each list of numbers on one line. */
export function json(report) {
  const text = JSON.stringify(report, null, 2);
  return `${text.replaceAll(/\[\s+([^[\]{}]*?)\s+\]/g, (_, list) => `[${list.replaceAll(/\s+/g, " ")}]`)}\n`;
}

function page(report) {
  const { machine, measured, quick, versions, budget, scenarios } = report;
  const list = Object.entries(versions).map(([name, version]) => `${name} ${version}`);
  const kind = quick
    ? "This was a quick run, with one short round for each figure. It is good for a first look, and not for a claim."
    : `Each figure is the median of ${budget.rounds} rounds, or of fewer if a round takes many seconds.`;
  return `${[
    "# Benchmark",
    "`npm run bench` measures this page and writes it.",
    "![Bars of the main scenarios](benchmark.svg)",
    `${kind} Client and server are separate processes on one machine${quick ? "" : `, which are started anew after every ${budget.roundsOfPair} rounds, and first run unmeasured over several connections, so that compiled code is compared`}. Within each round, the contenders run in random order. Every result is checked. No process is forced to collect its garbage, except where memory is measured, in processes of its own.`,
    CONTENDERS,
    `Measured ${measured.slice(0, 10)} on ${machine.cpu}, ${machine.memoryGiB} GiB, ${machine.system}, Node ${machine.node}, with ${list.join(", ")}.`,
    "## Ratios to bare ws",
    "A ratio compares a contender with bare `ws` in the same round, and is the median of the rounds. If the unit is µs, ms, KiB or %, less is better.",
    ratios(report),
    "The sections below have the figures. A percentage says how close a contender comes to the floor, which is 100 %. It is the median of the rounds, too.",
    ...scenarios.flatMap((scenario) => [`## ${scenario.title}`, details(scenario, report)]),
  ].join("\n\n")}\n`;
}

function ratios({ contenders, scenarios }) {
  // Without a figure of the baseline there is no ratio. Such scenarios have their own tables below.
  const compared = scenarios.filter(({ results }) => BASELINE in results && results[BASELINE].absent === undefined);
  const rows = compared.flatMap(({ title, metrics, results }) =>
    metrics.map((metric) => [
      `${title} (${metric.unit})`,
      ...contenders.map(({ name }) => ratio(results[name], metric)),
    ]),
  );
  return table([["", ...contenders.map(({ title }) => title)], ...rows]);
}

function ratio(cell, { name }) {
  if (cell.absent !== undefined) return "";
  if (cell.error !== undefined) return "failed";
  return cell[name].ratio?.toFixed(2) ?? "";
}

function details({ metrics, results }, { contenders }) {
  const rows = contenders.flatMap(({ name, title }) => {
    const cell = results[name];
    if (cell.error !== undefined) return [[title, `failed: ${cell.error}`, ...metrics.slice(1).map(() => "")]];
    if (cell.absent !== undefined)
      return cell.absent === "cannot" ? [[title, "cannot", ...metrics.slice(1).map(() => "")]] : [];
    return [[title, ...metrics.map((metric) => figure(cell[metric.name], metric))]];
  });
  return table([["", ...metrics.map(({ unit }) => unit)], ...rows]);
}

function figure({ median, toFloor }, { better }) {
  const digits = Math.abs(median) >= 100 ? 0 : Math.abs(median) >= 10 ? 1 : 2;
  const text = median.toLocaleString("en-US", { maximumFractionDigits: digits, minimumFractionDigits: digits });
  if (toFloor === undefined) return text;
  return `${text} (${Math.round(100 * (better === "more" ? toFloor : 1 / toFloor))} %)`;
}

/** Returns a table in the layout of prettier. */
export function table([head, ...rows]) {
  const escaped = [head, ...rows].map((row) => row.map((cell) => cell.replaceAll("|", "\\|")));
  const widths = head.map((_, column) => Math.max(3, ...escaped.map((row) => row[column].length)));
  const line = (row) => `| ${row.map((cell, column) => cell.padEnd(widths[column])).join(" | ")} |`;
  return [line(escaped[0]), line(widths.map((width) => "-".repeat(width))), ...escaped.slice(1).map(line)].join("\n");
}
