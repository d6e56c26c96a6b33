/** Writes the counts of a long run to docs/fleet.json and docs/fleet.md. */
import { readFile, writeFile } from "node:fs/promises";
import { cpus } from "node:os";
import { join } from "node:path";
import type { Figures } from "./oracle.js";
import type { BrokerKind } from "./orders.js";
import type { Plan, Played } from "./world.js";

const DOCS = join(import.meta.dirname, "../../../docs");
/** The part of docs/fleet.md that the run writes. Other runs write other parts. */
const BEGIN = "<!-- faults: begin -->";
const END = "<!-- faults: end -->";
const NAMES: Record<BrokerKind, string> = { redis: "Redis", nats: "NATS", cluster: "Redis Cluster" };

/** Adds counts. */
function sumOf(all: readonly Figures[]): Figures {
  const sum: Figures = {};
  for (const one of all) for (const [name, count] of Object.entries(one)) sum[name] = (sum[name] ?? 0) + count;
  return sum;
}

async function textOf(file: string, otherwise: string): Promise<string> {
  try {
    return await readFile(file, "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
    return otherwise;
  }
}

/** Publishes the counts of a run in which no rule was broken. */
export async function publish(
  minutes: number,
  { nodes, clients, ms }: Pick<Plan, "nodes" | "clients" | "ms">,
  played: readonly Played[],
): Promise<void> {
  const kinds = [...new Set(played.map(({ broker }) => broker))];
  const brokers = kinds.map((broker) => {
    const own = played.filter((one) => one.broker === broker);
    const counts = sumOf(own.map(({ figures }) => figures));
    return { broker, seeds: own.length, counts, faults: sumOf(own.map((one) => one.faults)) };
  });
  const faults = {
    date: new Date().toISOString().slice(0, 10),
    node: process.version,
    cores: cpus().length,
    minutes,
    nodes,
    clients,
    seconds: ms / 1_000,
    brokers,
  };
  const json = join(DOCS, "fleet.json");
  const before = JSON.parse(await textOf(json, "{}")) as object;
  await writeFile(json, `${JSON.stringify({ ...before, faults }, undefined, 2)}\n`);
  const file = join(DOCS, "fleet.md");
  const text = await textOf(file, "# A fleet, measured\n");
  const [head, rest] = text.split(BEGIN) as [string, string?];
  const tail = rest?.split(END)[1] ?? "\n";
  await writeFile(file, `${head.trimEnd()}\n\n${BEGIN}\n\n${partOf(faults)}\n${END}${tail}`);
}

type Brokers = readonly { broker: BrokerKind; seeds: number; counts: Figures; faults: Figures }[];

function partOf(run: {
  date: string;
  node: string;
  cores: number;
  minutes: number;
  nodes: number;
  clients: number;
  seconds: number;
  brokers: Brokers;
}): string {
  const { date, node, cores, minutes, nodes, clients, seconds, brokers } = run;
  const seeds = sumOf(brokers.map((one) => ({ seeds: one.seeds })))["seeds"];
  return `## Faults

\`npm run fleet-faults\` ran for ${minutes} minutes on ${date}, with Node ${node} on ${cores} cores. It played ${seeds} seeds of ${seconds} s each, with ${nodes} node processes and ${clients} clients. No rule was broken.

${tableOf("What happened", brokers, ({ seeds: played, counts }) => ({ "seeds": played, ...counts }))}
${tableOf("Fault", brokers, (one) => one.faults)}`;
}

/** Returns a table with a column for each broker. */
function tableOf(title: string, brokers: Brokers, figuresOf: (one: Brokers[number]) => Figures): string {
  const columns = brokers.map(figuresOf);
  const names = [...new Set(columns.flatMap((figures) => Object.keys(figures)))];
  const rows = [
    [title, ...brokers.map(({ broker }) => NAMES[broker])],
    ["---", ...brokers.map(() => "---:")],
    ...names.map((name) => [name, ...columns.map((figures) => (figures[name] ?? 0).toLocaleString("en-US"))]),
  ];
  return rows.map((cells) => `| ${cells.join(" | ")} |\n`).join("");
}
