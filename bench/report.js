/** Writes the results as a page, a chart and data, in the layout of prettier, so that a run leaves nothing to format. */
import { mkdirSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { BASELINE } from "./contenders.js";
import { chart } from "./chart.js";

const ROOT = new URL("..", import.meta.url);

/** What the contenders without a README of their own do. */
const CONTENDERS = `- **bare ws** is the baseline: JSON-RPC over \`ws\`, written by hand, with one frame for each message, and without errors, limits and timeouts.
- **bare ws, stringified once** encodes a message once for all sockets, and **bare ws, framed once** writes the same encoded frame to all sockets.
- **bare ws, packed** sends the messages of a tick (one run of the event loop) as one array, of about 1 KiB at most.
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
    : `Each figure is the median of ${budget.rounds} rounds, or of fewer if a round takes seconds.`;
  return `${[
    "# Benchmark",
    "`npm run bench` measures this page and writes it.",
    "![Bars of the main scenarios](benchmark.svg)",
    `${kind} Client and server are separate processes on one machine${quick ? "" : `, which are started anew after every ${budget.roundsOfPair} rounds`}. The contenders take turns within each round, and every result is checked. A ratio compares a contender with bare \`ws\` in the same round, and is the median of the rounds.`,
    CONTENDERS,
    `Measured ${measured.slice(0, 10)} on ${machine.cpu}, ${machine.memoryGiB} GiB, ${machine.system}, Node ${machine.node}, with ${list.join(", ")}.`,
    "## Ratios to bare ws",
    "The table has the first figure of each scenario. If its unit is µs, ms, KiB, % or bytes, less is better.",
    ratios(report),
    ...scenarios.flatMap((scenario) => [`## ${scenario.title}`, details(scenario, report)]),
  ].join("\n\n")}\n`;
}

function ratios({ contenders, scenarios }) {
  // Without a figure of the baseline there is no ratio. Such scenarios have their own tables below.
  const compared = scenarios.filter(({ results }) => BASELINE in results && results[BASELINE].absent === undefined);
  const rows = compared.map(({ title, metrics, results }) => [
    `${title} (${metrics[0].unit})`,
    ...contenders.map(({ name }) => ratio(results[name], metrics[0])),
  ]);
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
    return [[title, ...metrics.map((metric) => figure(cell[metric.name]))]];
  });
  return table([["", ...metrics.map(({ unit }) => unit)], ...rows]);
}

function figure({ median, ratio: share }) {
  const digits = Math.abs(median) >= 100 ? 0 : Math.abs(median) >= 10 ? 1 : 2;
  const text = median.toLocaleString("en-US", { maximumFractionDigits: digits, minimumFractionDigits: digits });
  return share === undefined ? text : `${text} (${share.toFixed(2)}x)`;
}

/** Returns a table in the layout of prettier. */
export function table([head, ...rows]) {
  const escaped = [head, ...rows].map((row) => row.map((cell) => cell.replaceAll("|", "\\|")));
  const widths = head.map((_, column) => Math.max(3, ...escaped.map((row) => row[column].length)));
  const line = (row) => `| ${row.map((cell, column) => cell.padEnd(widths[column])).join(" | ")} |`;
  return [line(escaped[0]), line(widths.map((width) => "-".repeat(width))), ...escaped.slice(1).map(line)].join("\n");
}
