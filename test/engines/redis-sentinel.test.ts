import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { eventually, RedisServer } from "../support/redis.js";
import { RedisSentinelGroup } from "../support/redis-groups.js";
import { redis } from "../../src/redis/index.js";
import { outcomeOf, TestNode } from "./kit.js";
import { redisRig } from "./redis-rig.js";
import { describeEngine } from "./suite.js";

const LOG = { length: 100, ttlMs: 60_000 };
const name = RedisSentinelGroup.primaryName;
let group: RedisSentinelGroup;
const sentinel = (): { name: string; urls: string[] } => ({ name, urls: ["redis://127.0.0.1:1", group.sentinel.url] });

beforeAll(async () => {
  group = await RedisSentinelGroup.create();
  // Nothing fails over in the first tests, also if the machine stands still for a moment.
  await group.setSilence(20_000);
}, 300_000);
afterAll(() => group[Symbol.asyncDispose]());

describeEngine("redis with a Sentinel", async () => redisRig({ sentinel: sentinel() }, [group.primary.url]));

/** Whether a server is a replica that has some data of its primary. */
const isUp = (info: string): boolean => /master_link_status:up/.test(info) && /master_repl_offset:[1-9]/.test(info);

/** Resolves with the present primary and its replica, when that has its data as far as it goes. */
async function untilReplicated(): Promise<{ primary: RedisServer; replica: RedisServer }> {
  const servers = [group.primary, group.replica];
  // A primary that was replaced learns that some seconds later.
  const infos = await eventually(
    () => Promise.all(servers.map((server) => server.command<string>("INFO", "replication").catch(() => ""))),
    (all) => all.some((info) => info.includes("role:master")) && all.some(isUp),
    30_000,
  );
  const [replica] = servers.filter((_, i) => isUp(infos[i]!));
  return { primary: servers.find((server) => server !== replica)!, replica: replica! };
}

describe("redis with a Sentinel", () => {
  beforeAll(() => group.setSilence(2_000));

  it("runs no late command on a primary that was stopped and replaced", async () => {
    const rig = redisRig({ sentinel: sentinel() }, []);
    const node = await TestNode.open(rig.engine(), "node");
    const { primary, replica } = await untilReplicated();
    const direct = redis({ url: primary.url, prefix: rig.prefix });
    const witness = await TestNode.open(direct, "witness");
    await witness.connection.subscribe("t:topic");
    const before = await node.connection.log!.append("topic", "before", LOG, undefined);
    await untilReplicated();
    primary.signal("SIGSTOP");
    const lost = outcomeOf(node.connection.log!.append("topic", "lost", LOG, undefined));
    // Then the node connects to the same server again, which answers when it goes on.
    await eventually(
      () => node.downs.length,
      (count) => count > 0,
      30_000,
    );
    await eventually(
      // A Sentinel ends the connections of a server that it promotes.
      () => replica.command<string>("INFO", "replication").catch(() => ""),
      (info) => info.includes("role:master"),
      30_000,
    );
    primary.signal("SIGCONT");
    await node.untilHeard();
    expect(await lost).toBe("unknown");
    const after = await node.connection.log!.append("topic", "after", LOG, undefined);
    expect(after.epoch).not.toBe(before.epoch);
    expect(await node.connection.log!.read("topic", 0, 10)).toEqual({
      epoch: after.epoch,
      top: 1,
      entries: [[1, "after"]],
    });
    // The primary refused what came late.
    expect(witness.of("t:topic")).toEqual([`1L\t${before.epoch}\t1\nbefore`]);
  }, 60_000);

  it("follows a failover, and begins another epoch because the end of a log may be lost", async () => {
    const rig = redisRig({ sentinel: sentinel() }, []);
    const node = await TestNode.open(rig.engine(), "node");
    await node.connection.subscribe("t:topic");
    const before = await node.connection.log!.append("topic", "1", LOG, undefined);
    const { primary } = await untilReplicated();
    await primary.kill();
    await eventually(
      () => node.heard.length,
      (count) => count > 0,
      30_000,
    );
    expect(node.heard).toEqual(["all"]);
    expect(node.downs.length).toBeGreaterThan(0);
    const after = await node.connection.log!.append("topic", "2", LOG, undefined);
    expect(after.offset).toBe(1);
    expect(after.epoch).not.toBe(before.epoch);
    expect((await node.until("t:topic", 2)).at(-1)).toBe(`1L\t${after.epoch}\t1\n2`);
  }, 60_000);

  it("uses the newest view of the Sentinels", async () => {
    await using unrelated = await RedisServer.create();
    // It was never told of a failover. So it has an older view, here of a server that is none of the group.
    const settings = { "sentinel monitor": `${name} 127.0.0.1 ${unrelated.port} 1` };
    await using old = await RedisServer.create({ kind: "sentinel", settings });
    const [urls, { prefix }] = [[old.url, group.sentinel.url], redisRig({ sentinel: sentinel() }, [])];
    const offsets: number[] = [];
    for (let i = 0; i < 8; i++) {
      // The first one knows the group only.
      const place = i === 0 ? sentinel() : { name, urls };
      const node = await TestNode.open(redis({ sentinel: place, prefix }), "node");
      offsets.push((await node.connection.log!.append("old", "x", LOG, undefined)).offset);
    }
    expect(offsets).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
  }, 60_000);
});
