import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { eventually } from "../support/redis.js";
import { RedisSentinelGroup } from "../support/redis-groups.js";
import { Listening } from "./listening.js";
import { redisRig } from "./redis-rig.js";
import { describeEngine } from "./suite.js";

const LOG = { length: 100, ttlMs: 60_000 };
const name = RedisSentinelGroup.primaryName;
let group: RedisSentinelGroup;
const sentinel = (): { name: string; urls: string[] } => ({ name, urls: ["redis://127.0.0.1:1", group.sentinel.url] });

beforeAll(async () => {
  group = await RedisSentinelGroup.create();
}, 300_000);
afterAll(() => group[Symbol.asyncDispose]());

describeEngine("redis with a Sentinel", async () => redisRig({ sentinel: sentinel() }, [group.primary.url]));

describe("redis with a Sentinel", () => {
  it("follows a failover, and begins another epoch because the end of a log may be lost", async () => {
    const rig = redisRig({ sentinel: sentinel() }, []);
    await using node = await Listening.open(rig.engine(), "node");
    await node.connection.subscribe("t:topic");
    const before = await node.connection.log!.append("topic", "1", LOG, undefined);
    await eventually(
      () => group.replica.command<string>("INFO", "replication"),
      (info) => /master_repl_offset:[1-9]/.test(info),
    );
    await group.primary.kill();
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
});
