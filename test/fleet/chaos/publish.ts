/** Writes the counts of a long run to docs/fleet.json and docs/fleet.md. */
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { join } from "node:path";
import { putMeasured, tableOf } from "../../support/measured.js";
import type { Figures } from "./oracle.js";
import type { BrokerKind } from "./orders.js";
import type { Plan, Played } from "./world.js";

const DOCS = join(import.meta.dirname, "../../../docs");
/** The part of docs/fleet.md that the run writes. The benchmark writes another one. */
const PART = "faults";
const NAMES: Record<BrokerKind, string> = { redis: "Redis", nats: "NATS", cluster: "Redis Cluster" };

/** What the run did over one broker. */
interface Part {
  readonly broker: BrokerKind;
  readonly seeds: number;
  readonly counts: Figures;
  /** How often there was each fault. */
  readonly faults: Figures;
}

/** What the run did. */
interface Run {
  readonly date: string;
  readonly node: string;
  readonly cores: number;
  readonly minutes: number;
  readonly nodes: number;
  readonly clients: number;
  readonly seconds: number;
  readonly brokers: readonly Part[];
}

/** Adds counts. */
export function sumOf(all: readonly Figures[]): Figures {
  const sum: Figures = {};
  for (const one of all) for (const [name, count] of Object.entries(one)) sum[name] = (sum[name] ?? 0) + count;
  return sum;
}

/** Publishes the counts of a run in which no rule was broken. `minutes`: how long it took. */
export function publish(
  minutes: number,
  { nodes, clients, ms }: Pick<Plan, "nodes" | "clients" | "ms">,
  played: readonly Played[],
): void {
  const kinds = [...new Set(played.map(({ broker }) => broker))];
  const brokers = kinds.map((broker): Part => {
    const own = played.filter((one) => one.broker === broker);
    const counts = sumOf(own.map(({ figures }) => figures));
    return { broker, seeds: own.length, counts, faults: sumOf(own.map((one) => one.faults)) };
  });
  const run: Run = {
    date: new Date().toISOString().slice(0, 10),
    node: process.version,
    cores: cpus().length,
    minutes: Math.round(minutes),
    nodes,
    clients,
    seconds: ms / 1_000,
    brokers,
  };
  writeFileSync(join(DOCS, "fleet.json"), `${JSON.stringify(run, undefined, 2)}\n`);
  const file = join(DOCS, "fleet.md");
  const markers = `<!-- ${PART}: begin -->\n<!-- ${PART}: end -->\n`;
  const text = existsSync(file) ? readFileSync(file, "utf8") : "# A fleet, measured\n";
  if (!text.includes(`<!-- ${PART}: begin -->`)) writeFileSync(file, `${text.trimEnd()}\n\n${markers}`);
  putMeasured(file, PART, textOf(run));
}

function textOf({ date, node, cores, minutes, nodes, clients, seconds, brokers }: Run): string {
  const seeds = brokers.reduce((sum, one) => sum + one.seeds, 0);
  return [
    "## Faults",
    `\`npm run fleet-faults\` ran for ${minutes} minutes on ${date}, with Node ${node} on ${cores} cores, and wrote this part. It played ${seeds} seeds of ${seconds} s each, with ${nodes} node processes and ${clients} clients. No rule was broken.`,
    tableFor("what happened", brokers, (one) => ({ seeds: one.seeds, ...one.counts })),
    tableFor("fault", brokers, ({ faults }) => faults),
  ].join("\n\n");
}

/** Returns a table with a column for each broker. */
function tableFor(title: string, brokers: readonly Part[], figuresOf: (one: Part) => Figures): string {
  const columns = brokers.map(figuresOf);
  const names = [...new Set(columns.flatMap((figures) => Object.keys(figures)))];
  return tableOf(
    [title, ...brokers.map(({ broker }) => NAMES[broker])],
    names.map((name) => [name, ...columns.map((figures) => figures[name]?.toLocaleString("en-US") ?? "")]),
  );
}
