import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Channel, Position } from "../../src/fleet/engine.js";
import { redis } from "../../src/redis/index.js";
import { commandAt, eventually, removeAt } from "../support/redis.js";
import { RedisCluster } from "../support/redis-groups.js";
import { isAscending, outcomeOf, TestNode } from "./kit.js";
import { CLUSTER_RIGHTS, keyOf, redisRig, RIGHTS } from "./redis-rig.js";
import { describeEngine } from "./suite.js";

const LOG = { length: 1_000, ttlMs: 60_000 };
let cluster: RedisCluster;

beforeAll(async () => {
  const user = `user reciproc on >secret ${RIGHTS} ${CLUSTER_RIGHTS}`;
  cluster = await RedisCluster.create({ users: ["user default on nopass ~* &* +@all", user] });
  // Nothing fails over in the first tests, also if the machine stands still for a moment.
  await cluster.setSilence(20_000);
}, 300_000);
afterAll(() => cluster[Symbol.asyncDispose]());

describeEngine("redis with a cluster and a user of few rights", async () => {
  const roots = ["redis://127.0.0.1:1", ...cluster.urls];
  return redisRig({ cluster: roots, username: "reciproc", password: "secret" }, cluster.urls.slice(0, 3));
});

/** Opens two nodes, with a topic to which both are subscribed. They are closed after the test. */
async function pair(topic: string): Promise<{ a: TestNode; b: TestNode; channel: Channel; key: string }> {
  const rig = redisRig({ cluster: cluster.urls }, []);
  const nodes = [await TestNode.open(rig.engine(), "a"), await TestNode.open(rig.engine(), "b")] as const;
  const channel: Channel = `t:${topic}`;
  await Promise.all(nodes.map(({ connection }) => connection.subscribe(channel)));
  return { a: nodes[0], b: nodes[1], channel, key: keyOf(rig, channel) };
}

describe("redis with a cluster", () => {
  beforeAll(() => cluster.setSilence(3_000));

  it("continues on another server when a slot is moved, and gives each message once", async () => {
    const { a, b, channel, key } = await pair("moved");
    // Not subscribed, so no server reports to it that the slot has moved.
    const writer = await TestNode.open(redisRig({ cluster: cluster.urls }, []).engine(), "writer");
    const first = await a.connection.log!.append("moved", "0", LOG, undefined);
    const during: Promise<Position>[] = [];
    // None of these is refused, at whatever moment of the move it comes.
    const writing = (async () => {
      while (a.heard.length === 0 || b.heard.length === 0) await b.connection.log!.append("moved", "x", LOG, undefined);
    })();
    await cluster.migrate(key, async () => {
      // Refused until the slot has moved, and repeated by the engine.
      during.push(a.connection.log!.append("moved", "1", LOG, undefined));
      await expect(a.connection.send(channel, "half moved")).resolves.toBeGreaterThan(0);
    });
    const second = await during[0]!;
    await writing;
    expect((await writer.connection.log!.append("moved", "of another prefix", LOG, undefined)).offset).toBe(1);
    // The log has another server, and so another life.
    expect(second.epoch).not.toBe(first.epoch);
    expect([...a.heard, ...b.heard].flat()).toEqual(expect.arrayContaining([channel]));
    expect([a.downs, b.downs]).toEqual([[], []]);
    for (let i = 0; i < 20; i++) await b.connection.send(channel, `after ${i}`);
    const received = await a.until(channel, 20, (frame) => frame.startsWith("after"));
    expect(received).toEqual(Array.from({ length: 20 }, (_, i) => `after ${i}`));
    expect(new Set(a.of(channel)).size).toBe(a.of(channel).length);
  }, 60_000);

  it("reads a log and lists members while their slot moves, before their keys have moved", async () => {
    const { a, key } = await pair("still here");
    const { log, roster } = a.connection;
    const id = `${a.name}/1.1` as const;
    const { epoch } = await log!.append("still here", "1", LOG, undefined);
    await roster!.put("still here", id, "x");
    const reads: Promise<unknown>[] = [];
    await cluster.migrate(key, undefined, async () => {
      reads.push(log!.read("still here", 0, 10), log!.read("still here", 0, 0), roster!.list("still here"));
      await Promise.allSettled(reads);
    });
    expect(await Promise.allSettled(reads)).toMatchObject([
      { value: { epoch, top: 1, entries: [[1, "1"]] } },
      { value: { epoch, top: 1, entries: [] } },
      { value: { members: [[id, "x"]] } },
    ]);
    await a.untilHeard();
    expect((await roster!.list("still here")).members).toEqual([[id, "x"]]);
    await roster!.put("still here", id, undefined);
  }, 60_000);

  it("gives no message twice or late while a replica takes over from its primary", async () => {
    const { a, b, channel, key } = await pair("handed over");
    let takeOver: Promise<unknown> | undefined;
    for (let i = 0; a.heard.length === 0 || b.heard.length === 0; i++) {
      if (i === 20) takeOver = cluster.failOver(key);
      // Refused while the slot moves.
      await b.connection.send(channel, String(i)).catch(() => {});
      await new Promise((resolve) => setImmediate(resolve));
    }
    await takeOver;
    await b.connection.send(channel, "last");
    await a.until(channel, 1, (frame) => frame === "last");
    for (const node of [a, b]) {
      const received = node.of(channel).filter((frame) => frame !== "last");
      expect(received.length).toBeGreaterThanOrEqual(20);
      expect(isAscending(received.map(Number))).toBe(true);
    }
    await cluster.untilOk();
  }, 60_000);

  it("sends by a server that was demoted without a message that comes late or twice", async () => {
    const rig = redisRig({ cluster: cluster.urls }, []);
    const [reader, writer] = [await TestNode.open(rig.engine(), "reader"), await TestNode.open(rig.engine(), "writer")];
    const ownerOf = async (channel: Channel): Promise<string> =>
      (await cluster.primaryOf(keyOf(rig, channel))).owner.url;
    // No subscription of the writer is at that server, so nothing tells the writer that it was demoted.
    const others = await Promise.all((["a:all", `n:${writer.name}`] as const).map(ownerOf));
    let channel: Channel = "t:0";
    for (let i = 1; others.includes(await ownerOf(channel)); i++) channel = `t:${i}`;
    await reader.connection.subscribe(channel);
    let last = 0;
    // After its start, a node looks once without a reason. So only the second failover shows that it notices one by itself.
    for (const round of [1, 2]) {
      await cluster.failOver(keyOf(rig, channel));
      await reader.untilHeard(round);
      for (let count: unknown; count !== 1; last++) {
        count = await writer.connection.send(channel, String(last + 1)).catch(() => 0);
        await new Promise((resolve) => setImmediate(resolve));
      }
      await reader.until(channel, 1, (frame) => frame === String(last));
      await cluster.untilOk();
    }
    expect(isAscending(reader.of(channel).map(Number))).toBe(true);
  }, 60_000);

  it("runs no late command on a primary that was stopped and replaced", async () => {
    const { a, b, channel, key } = await pair("stopped");
    const { log } = a.connection;
    const before = await log!.append("stopped", "before", LOG, undefined);
    const { owner } = await cluster.primaryOf(key);
    owner.signal("SIGSTOP");
    const late = b.connection.send(channel, "late").catch(() => 0);
    const outcomes = Promise.all([
      outcomeOf(log!.append("stopped", "lost", LOG, undefined)),
      outcomeOf(log!.read("stopped", 0, 10)),
    ]);
    await a.untilHeard();
    await b.untilHeard();
    const after = await b.connection.log!.append("stopped", "after", LOG, undefined);
    await b.connection.send(channel, "new");
    owner.signal("SIGCONT");
    expect(await outcomes).toEqual(["unknown", "unknown"]);
    expect(after.epoch).not.toBe(before.epoch);
    await late;
    await cluster.untilOk();
    await b.connection.send(channel, "last");
    await a.until(channel, 1, (frame) => frame === "last");
    // Also not of the log: the primary refused what came late.
    expect(a.of(channel)).toEqual([`1L\t${before.epoch}\t1\nbefore`, `1L\t${after.epoch}\t1\nafter`, "new", "last"]);
    expect((await log!.read("stopped", 0, 10)).entries).toEqual([[1, "after"]]);
  }, 60_000);

  it("follows a failover, and begins another epoch", async () => {
    const { a, b, channel, key } = await pair("lost");
    const before = await a.connection.log!.append("lost", "1", LOG, undefined);
    const { owner } = await cluster.primaryOf(key);
    await owner.kill();
    await eventually(
      () => [a.heard, b.heard],
      (all) => all.every((heard) => heard.length > 0),
      30_000,
    );
    expect([a.heard.at(-1), b.heard.at(-1)]).toEqual(["all", "all"]);
    expect(a.downs.length).toBeGreaterThan(0);
    const after = await b.connection.log!.append("lost", "2", LOG, undefined);
    expect(after.epoch).not.toBe(before.epoch);
    await b.connection.send(channel, "again");
    await a.until(channel, 1, (frame) => frame === "again");
    await owner.start();
    await cluster.untilOk();
  }, 60_000);

  it("reports that it may not read after which time a primary is replaced", async () => {
    const names = ["default", "curious"];
    for (const url of cluster.urls)
      await commandAt(url, ["ACL", "SETUSER", "curious", "on", "nopass", "~*", "&*", "+@all", "-config"]);
    const engines = names.map((username) =>
      redis({
        cluster: cluster.urls,
        username,
        password: "any",
        prefix: redisRig({ cluster: cluster.urls }, []).prefix,
      }),
    );
    const unmet = await Promise.all(
      engines.map(async (engine) => {
        const node = await TestNode.open(engine, "node");
        return node.facts!.unmet;
      }),
    );
    expect(unmet).toEqual([
      [],
      ["Redis: the user may not read cluster-node-timeout, so it is taken to be at least 15000 ms."],
    ]);
  });

  it("has nothing left after all tests but logs", async () => {
    for (const url of await cluster.primaries()) {
      const keys = await commandAt<string[]>(url, ["KEYS", "*"]);
      expect(keys.filter((key) => !/:[mlk]:/.test(key))).toEqual([]);
      await removeAt(url, "test-*");
    }
  });
});
