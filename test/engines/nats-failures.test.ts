/** What the engine does when servers of NATS fail: the suites of all brokers, and what only NATS does. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { NatsServer, publishAt, startCluster } from "../support/nats.js";
import { describeFailover, describeFailures } from "./failures.js";
import { outcomeOf, refusalOf, TestNode, use } from "./kit.js";
import { NATS, natsGroup, natsRig } from "./nats-rig.js";

describeFailures(NATS);

it("the engine nats keeps its subscriptions and leases without JetStream", async () => {
  const server = use(await NatsServer.create({ jetstream: false }));
  const rig = natsRig({ url: server.url }, server);
  const [a, b] = [await TestNode.open(rig.engine(), "a"), await TestNode.open(rig.engine(), "b")];
  await Promise.all([a.enter(), b.enter()]);
  await server.kill();
  await server.start();
  await Promise.all([a, b].map((node) => node.untilHeard()));
  expect((await a.beat()).live).toHaveLength(2);
  await b.connection.close();
  await expect.poll(async () => (await a.beat()).live).toHaveLength(1);
  expect(await a.connection.send(`n:${b.name}`, "x")).toBe(0);
});

it("the engine nats connects once while other nodes enter and the connection begins", async () => {
  const server = use(await NatsServer.create());
  const rig = natsRig({ url: server.url, jetstream: {} }, server);
  const node = await TestNode.enter(rig.engine());
  const done = new AbortController();
  const signs = Array.from({ length: 5_000 }, () => "entered 60000");
  const entering = ["x", "y", "z"].map(async (other) => {
    while (!done.signal.aborted) await publishAt(server.url, `${rig.prefix}.1.h.${other}.1`, ...signs);
  });
  for (let i = 1; i <= 5; i++) {
    node.connection.reconnect(new Error("asked to"));
    await node.untilHeard(i);
  }
  done.abort();
  await Promise.all(entering);
  expect([node.downs.length, node.ups]).toEqual([5, 5]);
  await publishAt(server.url, `${rig.prefix}.1.h.last.1`, "entered 60000");
  expect((await node.beat()).live).toContain("last/1");
});

describe("a cluster of NATS", () => {
  let servers: NatsServer[];
  beforeAll(async () => {
    servers = await startCluster();
  });
  afterAll(() => Promise.all(servers.map((server) => server[Symbol.asyncDispose]())));

  describeFailover("nats with a cluster", () => natsGroup(servers), false);

  it("makes a node give its incarnation up if the streams do not answer for longer than its lease", async () => {
    const group = natsGroup(servers);
    const rig = await group.rig();
    const node = await TestNode.enter(rig.engine(), "node", 2_000);
    await node.append("1");
    const { restore } = await group.failover(rig, "pause");
    expect(await outcomeOf(node.append("2"))).toBe("unknown");
    await expect.poll(() => node.beat(1, 2_000).catch(() => undefined)).toEqual({ isMine: false, live: [] });
    // What needs no stream goes on.
    await node.connection.send("a:all", "x");
    expect(await node.until("a:all", 1)).toEqual(["x"]);
    expect(node.downs).toEqual([]);
    await restore();
    await expect.poll(() => outcomeOf(node.members())).toBe("done");
    await node.enterAgain();
  });

  it("loses nothing of streams that three servers keep, or is refused if it is too old", async () => {
    const url = servers.map((one) => one.url);
    const rig = natsRig({ url, jetstream: { replicas: 3 }, startTimeoutMs: 240_000 }, servers[1]);
    const [, minor = 0, patch = 0] = (await servers[0]!.version()).split(".").map(Number);
    if (minor < 10 || (minor === 10 && patch < 19))
      return expect((await refusalOf(rig.engine())).message).toMatch(/2\.10\.19 or later is needed for 3 replicas/);
    const node = await TestNode.enter(rig.engine());
    const { epoch } = await node.append("1", "key");
    await servers[0]!.kill();
    await expect.poll(() => node.append("1", "key").catch(() => undefined)).toEqual({ epoch, offset: 1 });
    await expect.poll(() => node.append("2", "next").catch(() => undefined)).toEqual({ epoch, offset: 2 });
    await expect.poll(() => node.beat().catch(() => undefined)).toMatchObject({ isMine: true });
    // NATS may place each reader on the server that was killed.
    for (let i = 0; i < 12; i++) {
      expect(await node.members()).toEqual([node.id("a")]);
      expect((await node.read()).entries).toEqual(["1", "2"].map((body, at) => [at + 1, body]));
    }
    expect((await node.read(1)).entries).toEqual([[1, "1"]]);
  });
});
