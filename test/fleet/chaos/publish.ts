/** Writes the counts of a long run to docs/fleet.json and docs/fleet.md. */
import { readFile, writeFile } from "node:fs/promises";
import { cpus } from "node:os";
import { join } from "node:path";
import type { Figures } from "./oracle.js";
import type { Plan } from "./world.js";

const DOCS = join(import.meta.dirname, "../../../docs");
/** The part of docs/fleet.md that the run writes. Other runs write other parts. */
const BEGIN = "<!-- faults: begin -->";
const END = "<!-- faults: end -->";

/** Adds counts. */
export function sumOf(all: readonly Figures[]): Figures {
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
  { nodes, clients, ms }: Omit<Plan, "seed">,
  played: readonly { figures: Figures; faults: Figures }[],
): Promise<void> {
  const counts = sumOf(played.map(({ figures }) => figures));
  const injected = sumOf(played.map((one) => one.faults));
  const faults = {
    date: new Date().toISOString().slice(0, 10),
    node: process.version,
    cores: cpus().length,
    minutes,
    seeds: played.length,
    nodes,
    clients,
    seconds: ms / 1_000,
    counts,
    faults: injected,
  };
  const json = join(DOCS, "fleet.json");
  const before = JSON.parse(await textOf(json, "{}")) as object;
  await writeFile(json, `${JSON.stringify({ ...before, faults }, undefined, 2)}\n`);
  const rows = (figures: Figures): string =>
    Object.entries(figures).map(([name, count]) => `| ${name} | ${count.toLocaleString("en-US")} |\n`).join("");
  const part = `${BEGIN}

## Faults

\`npm run fleet-faults\` ran for ${minutes} minutes on ${faults.date}, with Node ${process.version} on ${faults.cores} cores.
It played ${played.length} seeds of ${faults.seconds} s each, with ${nodes} nodes and ${clients} clients. No rule was broken.

| what | count |
| --- | --- |
${rows(counts)}
| fault | count |
| --- | --- |
${rows(injected)}
${END}`;
  const file = join(DOCS, "fleet.md");
  const text = await textOf(file, "# A fleet, measured\n");
  const [head, rest] = text.split(BEGIN) as [string, string?];
  const tail = rest?.split(END)[1] ?? "\n";
  await writeFile(file, `${head.trimEnd()}\n\n${part}${tail}`);
}
