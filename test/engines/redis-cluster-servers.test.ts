/** Servers over a Redis Cluster, while it moves slots and loses servers. */
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { nanoid } from "nanoid";
import { redis } from "../../src/redis/index.js";
import { isAscending } from "./kit.js";
import { keyOf, redisRig } from "./redis-rig.js";
import { eventually } from "../support/redis.js";
import { RedisCluster } from "../support/redis-groups.js";
import { isInGap, type Arrival } from "../long/fleet/oracle.js";
import { closeAll, makeNodes, type Client, type Node } from "../fleet/nodes.js";

const RULES = { topics: () => ({ log: { length: 10_000, ttlMs: 60_000 } }) };
let cluster: RedisCluster;
let nodes: Node[] = [];

beforeAll(async () => {
  cluster = await RedisCluster.create();
}, 300_000);
afterEach(() => closeAll(nodes));
afterAll(() => cluster[Symbol.asyncDispose]());

/** Returns what arrived at a client, in that order. */
function arrivalsOf({ got }: Client): Arrival[] {
  return got.map(([method, { at, n }]) =>
    method === "missed" ? { kind: "missed" } : { kind: "said", at, n, time: 0 },
  );
}

/**
 * Publishes without a pause while the cluster is disturbed. Checks that each acked message arrived once and in order at each
 * member, or that the member was notified of a gap where the message is missing.
 */
async function publishDuring(disturb: (key: string) => Promise<unknown>): Promise<{ acked: number; gaps: number }> {
  const prefix = `test-${nanoid(8)}`;
  nodes = makeNodes(2, RULES, redis({ cluster: cluster.urls, prefix, leaseMs: 3_000 }));
  let gaps = 0;
  const clients: Client[] = [];
  for (const node of nodes) {
    node.server.on("gap", (topic) => {
      gaps++;
      node.server.topic(topic).notify("missed", {}, { here: true });
    });
    const client = await node.client();
    await node.server.topic("room").join(client.peer);
    clients.push(client);
  }
  const state = { isDisturbed: true };
  const acked = new Set<string>();
  const disturbance = disturb(keyOf(redisRig({ prefix }), "t:room")).finally(() => (state.isDisturbed = false));
  for (let n = 0; state.isDisturbed || acked.size < 50; n++)
    await nodes[n % 2]!.server.topic("room")
      .publish("said", { n }, { timeoutMs: 2_000 })
      .then(
        (at) => acked.add(at),
        // Refused, or of unknown outcome: neither is acked.
        () => {},
      );
  await disturbance;
  const last = "last";
  await eventually(
    () =>
      nodes[0]!.server
        .topic("room")
        .publish("said", { n: last })
        .then(
          () => true,
          () => false,
        ),
    (isPublished) => isPublished,
    30_000,
  );
  for (const { got } of clients)
    await eventually(
      () => got.some(([, { n }]) => n === last),
      (isThere) => isThere,
      30_000,
    );
  for (const client of clients) {
    const arrivals = arrivalsOf(client);
    const seen = arrivals.filter((arrival) => arrival.kind === "said");
    expect(new Set(seen.map(({ n }) => n)).size).toBe(seen.length);
    // A publication of unknown outcome may be logged late, behind those that were published after it.
    expect(isAscending(seen.flatMap(({ at, n }) => (acked.has(at) ? [n] : [])))).toBe(true);
    const there = new Set(seen.map(({ at }) => at));
    expect([...acked].filter((at) => !there.has(at) && !isInGap(arrivals, at))).toEqual([]);
  }
  return { acked: acked.size, gaps };
}

describe("servers over a Redis Cluster", () => {
  it("lose no acked message silently while a slot moves", async () => {
    const { acked } = await publishDuring((key) => cluster.migrate(key));
    expect(acked).toBeGreaterThanOrEqual(50);
  }, 60_000);

  it("lose no acked message silently while a replica takes over from its primary", async () => {
    await publishDuring(async (key) => {
      const { owner } = await cluster.primaryOf(key);
      await cluster.failOver(key);
      await eventually(
        () => owner.command<string>("INFO", "replication"),
        (info) => info.includes("role:slave"),
      );
    });
    await cluster.untilOk();
  }, 60_000);

  it("report a gap when a primary is killed", async () => {
    const { gaps } = await publishDuring(async (key) => {
      const { owner } = await cluster.primaryOf(key);
      await owner.kill();
      await eventually(
        () => cluster.primaryOf(key),
        (now) => now.owner !== owner,
        30_000,
      );
      await owner.start();
    });
    expect(gaps).toBeGreaterThan(0);
  }, 90_000);
});
