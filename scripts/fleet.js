/**
 * Publishes what was measured of several nodes: docs/fleet.json has the figures of the last benchmark and of the last long run with
 * faults, docs/fleet.md shows both, and docs/SCALING.md some of them. A run replaces its own part and keeps the other. `node scripts/fleet.js`
 * only writes SCALING.md again, after `npm run scale`.
 */
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { benchPart, scalingPart, unitCostsOf } from "../bench/fleet/report.js";
import { scalePart } from "../bench/fleet/scale-report.js";
import { json, table } from "../bench/report.js";

const ROOT = join(import.meta.dirname, "..");
const BROKERS = {
  redis: "Redis",
  nats: "NATS with JetStream",
  core: "NATS without JetStream",
  cluster: "Redis Cluster",
};
/** The part of docs/SCALING.md that has measured figures. */
const BEGIN = "<!-- bench: begin -->";
const END = "<!-- bench: end -->";

/** Replaces one part, `"bench"`, `"scale"` or `"faults"`, in the files of a folder. In `docs`, also the figures of SCALING.md. */
export async function publishFleet(part, value, folder = "docs") {
  const target = resolve(ROOT, folder);
  await mkdir(target, { recursive: true });
  const file = join(target, "fleet.json");
  const fleet = { ...(await readJson(file, {})), [part]: value };
  await writeFile(file, json(fleet));
  await writeFile(join(target, "fleet.md"), fleetPage(fleet));
  if (folder === "docs" && part === "bench") await publishScaling();
}

/** Puts the figures of docs/fleet.json and docs/scale.json into docs/SCALING.md. */
async function publishScaling() {
  const scaling = join(ROOT, "docs/SCALING.md");
  const idle = await readJson(join(ROOT, "docs/scale.json"));
  await writeFile(scaling, withFigures(await readFile(scaling, "utf8"), await readFleet(), idle));
}

/** Returns what is published in docs/fleet.json. */
export function readFleet() {
  return readJson(join(ROOT, "docs/fleet.json"), {});
}

async function readJson(file, otherwise) {
  try {
    return JSON.parse(await readFile(file, "utf8"));
  } catch (error) {
    if (error.code !== "ENOENT" || otherwise === undefined) throw error;
    return otherwise;
  }
}

/** Returns docs/fleet.md for the content of docs/fleet.json. */
export function fleetPage({ bench, scale, faults }) {
  const parts = [
    "# Several servers, measured",
    "[SCALING.md](SCALING.md) explains how to run several servers. Two programs publish their figures here.",
    ...(bench === undefined ? [] : [benchPart(bench)]),
    ...(scale === undefined ? [] : [scalePart(scale, unitCostsOf(bench))]),
    ...(faults === undefined ? [] : [faultsPart(faults)]),
  ];
  return `${parts.join("\n\n")}\n`;
}

/** Returns docs/SCALING.md with the figures of the benchmark. `idle` is the content of docs/scale.json. */
export function withFigures(scaling, { bench }, idle) {
  const [head, rest] = scaling.split(BEGIN);
  return `${head}${BEGIN}\n\n${scalingPart(bench, idle)}\n\n${END}${rest.split(END)[1]}`;
}

function faultsPart({ date, node, cores, minutes, nodes, clients, seconds, brokers }) {
  const seeds = brokers.reduce((sum, one) => sum + one.seeds, 0);
  return [
    "## Faults",
    `\`npm run fleet-faults\` ran for ${minutes} minutes on ${date}, with Node ${node} on ${cores} cores. It played ${seeds} seeds of ${seconds} s each, with ${nodes} nodes and ${clients} clients. No rule was broken.`,
    columns("what happened", brokers, (one) => ({ seeds: one.seeds, ...one.counts })),
    columns("fault", brokers, (one) => one.faults),
  ].join("\n\n");
}

/** Returns a table with a column for each broker. */
function columns(title, brokers, figuresOf) {
  const all = brokers.map(figuresOf);
  const names = [...new Set(all.flatMap((figures) => Object.keys(figures)))];
  return table([
    [title, ...brokers.map(({ broker }) => BROKERS[broker])],
    ...names.map((name) => [name, ...all.map((figures) => (figures[name] ?? 0).toLocaleString("en-US"))]),
  ]);
}

if (import.meta.filename === process.argv[1]) await publishScaling();
