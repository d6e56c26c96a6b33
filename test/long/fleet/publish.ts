/** Publishes the counts of a long run in docs/fleet.json and docs/fleet.md, beside the figures of the benchmark. */
import { cpus } from "node:os";
import { publishFleet } from "../../../scripts/fleet.js";
import type { Figures } from "./oracle.js";
import type { Plan, Played } from "./world.js";

/** Adds counts. */
export function sumOf(all: readonly Figures[]): Figures {
  const sum: Figures = {};
  for (const one of all) for (const [name, count] of Object.entries(one)) sum[name] = (sum[name] ?? 0) + count;
  return sum;
}

/** Publishes the counts of a run in which no rule was broken. `minutes`: how long the run took. */
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
  await publishFleet("faults", {
    date: new Date().toISOString().slice(0, 10),
    node: process.version.slice(1),
    cores: cpus().length,
    minutes: Math.round(minutes),
    nodes,
    clients,
    seconds: ms / 1_000,
    brokers,
  });
}
