/** The engine over a primary with a replica and a Sentinel. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { redis } from "../../src/redis/index.js";
import { RedisServer } from "../support/redis.js";
import { RedisSentinelGroup } from "../support/redis-groups.js";
import { describeFailover } from "./failures.js";
import { answered, describeEngine, TestNode, use } from "./kit.js";
import { redisRig, sentinelGroup } from "./redis-rig.js";

let group: RedisSentinelGroup;

beforeAll(async () => {
  group = await RedisSentinelGroup.create();
  // Nothing fails over in the first tests, also if the machine stands still for a moment.
  await group.setSilence(20_000);
});
afterAll(() => group[Symbol.asyncDispose]());

describeEngine("redis with a Sentinel", async () => redisRig({ sentinel: group.place }, [group.primary.url]));

describe("after a silence of 10 s", () => {
  // An engine gives up a primary that answers nothing for half of it, so a shorter one would race with a busy machine.
  beforeAll(() => group.setSilence(10_000));
  describeFailover("redis with a Sentinel", () => sentinelGroup(group));
});

it("the engine redis uses the newest view of the Sentinels", async () => {
  const unrelated = use(await RedisServer.create());
  // It has heard of no failover. So it has an older view, here of a server that is none of the group.
  const settings = { "sentinel monitor": `main 127.0.0.1 ${unrelated.port} 1` };
  const old = use(await RedisServer.create({ kind: "sentinel", settings }));
  const { prefix } = redisRig({ sentinel: group.place });
  const offsets: number[] = [];
  for (let i = 0; i < 8; i++) {
    // The first one knows the group only.
    const place = i === 0 ? group.place : { name: "main", urls: [old.url, group.sentinel.url] };
    const node = await TestNode.open(redis({ sentinel: place, prefix }));
    offsets.push((await answered(() => node.append("x", String(i)))).offset);
  }
  expect(offsets).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
});
