/**
 * Fleets of three nodes with every fault, over Redis, NATS with JetStream and without (`core`), and a Redis Cluster. A node is a process
 * with the built package. `RECIPROC_FLEET_MINUTES` plays whole seeds for so long, and publishes their counts (`npm run fleet-faults`).
 * `RECIPROC_FLEET_BROKER`, `_SEED` and `_FAULT` narrow what is played.
 */
import { randomUUID } from "node:crypto";
import { cpus } from "node:os";
import { expect, it } from "vitest";
import { publishFleet } from "../../../scripts/fleet.js";
import { World } from "../../fleet/world.js";
import { startBroker, type BrokerKind, type Fault } from "./brokers.js";
import type { Figures } from "../../fleet/oracle.js";

const { RECIPROC_FLEET_BROKER, RECIPROC_FLEET_SEED, RECIPROC_FLEET_FAULT, RECIPROC_FLEET_MINUTES = "0" } = process.env;
const KINDS: readonly BrokerKind[] = ["redis", "nats", "core", "cluster"];
const BROKERS = (RECIPROC_FLEET_BROKER?.split(",") ?? KINDS) as BrokerKind[];
const MINUTES = Number(RECIPROC_FLEET_MINUTES);
const FIRST = Number(RECIPROC_FLEET_SEED ?? 1);
const NODES = 3;
const CLIENTS = 60;

type Played = Awaited<ReturnType<typeof play>>;

const isWanted = ([name]: [string, Fault]): boolean => RECIPROC_FLEET_FAULT?.split(",").includes(name) ?? true;

/** Plays half of the faults of nodes together with those of the broker, and the others alone. A whole seed plays all in both ways. */
async function play(broker: BrokerKind, seed: number) {
  await using chaos = await startBroker(broker, `fleet-${randomUUID().slice(0, 8)}`);
  const world = new World(seed, CLIENTS, chaos.place);
  const [ofNodes, ofBroker] = [chaos.ofNodes, chaos.ofBroker].map((all) => Object.entries(all).filter(isWanted));
  const halfOf = (all: typeof ofNodes, n: number): [string, Fault][] => all!.filter((_, i) => i % 2 === n % 2);
  const first = seed + KINDS.indexOf(broker);
  const [mixed, alone] = [first, first + 1].map((n) => (MINUTES > 0 ? ofNodes! : halfOf(ofNodes, n)));
  const parts = [alone!, halfOf(mixed, 0), halfOf(mixed, 1), ofBroker!];
  const startedAt = performance.now();
  world.oracle.lateCallMs = 60_000;
  try {
    // NATS is asked for one entry after the other. docs/SCALING.md bounds the time of a page, and not that of all that was missed.
    if (broker === "nats") world.oracle.readOnMs *= 3;
    const [last, ...sequences] = parts.map((part) => part.map(([, fault]) => fault));
    const figures = await world.play(NODES, async () => {
      await world.disturb(...sequences);
      await world.untilMembers();
      await world.disturb(last!);
    });
    const faults = sumOf(parts.flat().map(([name]) => ({ [name]: 1 })));
    return { broker, ms: performance.now() - startedAt, figures, faults };
  } catch (error) {
    throw new Error(`seed ${seed} over ${broker}: ${String(error)}`, { cause: error });
  } finally {
    world.restore();
    await world.close();
  }
}

function sumOf(all: readonly Figures[]): Figures {
  const sum: Figures = {};
  for (const one of all) for (const [name, count] of Object.entries(one)) sum[name] = (sum[name] ?? 0) + count;
  return sum;
}

async function publish(played: readonly Played[]): Promise<void> {
  const brokers = BROKERS.map((broker) => {
    const own = played.filter((one) => one.broker === broker);
    const [counts, faults] = [sumOf(own.map(({ figures }) => figures)), sumOf(own.map((one) => one.faults))];
    return { broker, seeds: own.length, counts, faults };
  });
  const date = new Date().toISOString().slice(0, 10);
  const machine = { node: process.version.slice(1), cores: cpus().length };
  const fleet = { minutes: MINUTES, nodes: NODES, clients: CLIENTS };
  const seconds = Math.round(played.reduce((sum, { ms }) => sum + ms, 0) / played.length / 1_000);
  await publishFleet("faults", { date, ...machine, ...fleet, seconds, brokers });
}

/** One row for each broker, or one for as many seeds as there is time for. */
const ROWS = MINUTES > 0 ? [BROKERS] : BROKERS.map((broker) => [broker]);

it.each(ROWS.map((brokers) => ({ brokers })))(
  "loses, repeats and reorders nothing that is not reported: over $brokers",
  { timeout: (MINUTES + 10) * 60_000 },
  async ({ brokers }) => {
    const played: Played[] = [];
    const end = performance.now() + MINUTES * 60_000;
    for (let seed = FIRST; performance.now() < end || played.length < brokers.length; seed++)
      played.push(await play(brokers[seed % brokers.length]!, seed));
    const figures = sumOf(played.map((one) => one.figures));
    process.stdout.write(`${brokers.join(", ")}: ${played.length} seeds: ${JSON.stringify(figures)}\n`);
    expect(figures["calls with a result"]).toBeGreaterThan(0);
    expect(figures["notifications that had to arrive"]).toBeGreaterThan(figures["notifications that arrived"]! / 10);
    // A NATS without JetStream has no logs.
    expect(figures["publications that arrived"]! > 0).toBe(brokers.some((broker) => broker !== "core"));
    if (MINUTES > 0 && RECIPROC_FLEET_BROKER === undefined && RECIPROC_FLEET_FAULT === undefined) await publish(played);
  },
);
