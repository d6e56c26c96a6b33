/** The engine over a Redis Cluster, while slots move and servers fail. */
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import type { Channel, Position } from "../../src/topics/engine.js";
import { RedisCluster } from "../support/redis-groups.js";
import { describeFailover } from "./failures.js";
import { answered, describeEngine, page, TestNode, TOPIC, written } from "./kit.js";
import { CLUSTER_RIGHTS, clusterGroup, keyOf, redisRig, RIGHTS } from "./redis-rig.js";

const CHANNEL = `t:${TOPIC}` as const;
let cluster: RedisCluster;

beforeAll(async () => {
  const users = ["user default on nopass ~* &* +@all", `user reciproc on >secret ${RIGHTS} ${CLUSTER_RIGHTS}`];
  cluster = await RedisCluster.create({ users: [...users, "user curious on nopass ~* &* +@all -config"] });
  // Nothing fails over in the first tests, also if the machine stands still for a moment.
  await cluster.setSilence(20_000);
});
afterAll(() => cluster[Symbol.asyncDispose]());

describeEngine("redis with a cluster and a user of few rights", async () => {
  const roots = ["redis://127.0.0.1:1", ...cluster.urls];
  return redisRig({ cluster: roots, username: "reciproc", password: "secret" }, cluster.urls.slice(0, 3));
});

it("the engine redis reports that it may not read after which time a primary is replaced", async () => {
  const unmet: unknown[] = [];
  for (const username of ["default", "curious"]) {
    const node = await TestNode.open(redisRig({ cluster: cluster.urls, username, password: "any" }).engine());
    unmet.push(node.facts!.unmet);
  }
  expect(unmet).toEqual([[], [expect.stringContaining("may not read cluster-node-timeout")]]);
});

describe("the engine redis with a cluster", () => {
  it("continues on another server when a slot is moved, and gives each message once", async () => {
    // A command that is refused is repeated for 5 s, and a silent server is given up after 10 s: for the engine, no time passes.
    vi.spyOn(performance, "now").mockReturnValue(performance.now());
    const rig = redisRig({ cluster: cluster.urls });
    const [a, b] = [await TestNode.open(rig.engine(), "a"), await TestNode.open(rig.engine(), "b")];
    for (const { connection } of [a, b]) await connection.subscribe(CHANNEL);
    // Not subscribed, so no server reports to it that the slot has moved.
    const writer = await TestNode.open(rig.engine(), "writer");
    const first = await a.append("0");
    let during: Promise<Position>;
    // None of these is refused, at whatever moment of the move it comes.
    const writing = (async () => {
      while (a.resubscribed.length === 0 || b.resubscribed.length === 0) await b.append("x");
    })();
    const midway = async (): Promise<void> => {
      // Refused until the slot has moved, and repeated by the engine.
      during = a.append("1");
      expect(await a.connection.send(CHANNEL, "half moved")).toBeGreaterThan(0);
    };
    const reads: unknown[] = [];
    // The servers know that the slot moves, and its keys are where they were.
    const before = async (): Promise<void> => {
      reads.push((await a.read()).epoch, (await a.connection.log!.read(TOPIC, 0, page(0))).epoch);
    };
    await cluster.migrate(keyOf(rig, CHANNEL), midway, before);
    expect(reads).toEqual([first.epoch, first.epoch]);
    const second = await during!;
    await writing;
    // The log has another server, and so another life.
    expect(second.epoch).not.toBe(first.epoch);
    expect((await writer.append("last")).epoch).toBe(second.epoch);
    expect([...a.resubscribed, ...b.resubscribed].flat()).toContain(CHANNEL);
    expect([a.downs, b.downs]).toEqual([[], []]);
    const after = Array.from({ length: 20 }, (_, i) => `after ${i}`);
    for (const frame of after) await b.connection.send(CHANNEL, frame);
    expect(await a.until(CHANNEL, 20, (frame) => frame.startsWith("after"))).toEqual(after);
    expect(new Set(a.of(CHANNEL)).size).toBe(a.of(CHANNEL).length);
  });

  it("gives no message twice or late while a replica takes over, also by a node without a subscription there", async () => {
    // Redis forces it: for four times the silence, a second election counts the votes of the first one.
    await cluster.setSilence(3_000);
    const rig = redisRig({ cluster: cluster.urls });
    const [reader, writer] = [await TestNode.open(rig.engine(), "reader"), await TestNode.open(rig.engine(), "writer")];
    const ownerOf = async (channel: Channel): Promise<string> =>
      (await cluster.primaryOf(keyOf(rig, channel))).owner.url;
    // So no server reports to the writer that it was demoted.
    const others = await Promise.all((["a:all", `n:${writer.name}`] as const).map(ownerOf));
    let channel: Channel = "t:0";
    for (let i = 1; others.includes(await ownerOf(channel)); i++) channel = `t:${i}`;
    // A server that is not scheduled for half of the silence is given up.
    await answered(() => reader.connection.subscribe(channel));
    let last = 0;
    const send = async (from: TestNode): Promise<unknown> => {
      await written();
      // Refused while the slot moves.
      return from.connection.send(channel, String(++last)).catch(() => 0);
    };
    // After its start, a node looks once without a reason. So only the second takeover shows that it notices one by itself.
    for (const round of [1, 2]) {
      const takeOver = cluster.failOver(keyOf(rig, channel));
      while (reader.resubscribed.length < round) await send(reader);
      await takeOver;
      for (const before = last; !reader.of(channel).some((frame) => Number(frame) > before);) await send(writer);
      await cluster.untilOk();
    }
    const received = reader.of(channel).map(Number);
    expect(received.every((number, i) => i === 0 || number > received[i - 1]!)).toBe(true);
  });

  describe("after a silence of 3 s", () => {
    // With 10 s, no replica took over within 120 s of the death of its primary.
    beforeAll(() => cluster.setSilence(3_000));
    describeFailover("redis with a cluster", () => clusterGroup(cluster));
  });
});
