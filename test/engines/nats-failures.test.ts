/** What the engine does when servers of NATS fail: the suites of all brokers, and what only NATS does. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { NatsServer, startCluster } from "../support/nats.js";
import { describeFailover, describeFailures } from "./failures.js";
import { answered, outcomeOf, refusalOf, TestNode, use } from "./kit.js";
import { NATS, natsGroup, natsRig } from "./nats-rig.js";

describeFailures(NATS);

it("the engine nats keeps its subscriptions without JetStream", async () => {
  const server = use(await NatsServer.create({ jetstream: false }));
  const rig = natsRig({ url: server.url }, server);
  const [a, b] = [await TestNode.open(rig.engine(), "a"), await TestNode.open(rig.engine(), "b")];
  await server.kill();
  await server.start();
  await Promise.all([a, b].map((node) => node.untilHeard()));
  await outcomeOf(a.connection.send(`n:${b.name}`, "to b"));
  expect(await b.until(`n:${b.name}`, 1)).toEqual(["to b"]);
  await b.connection.close();
  await expect.poll(() => a.connection.send(`n:${b.name}`, "x")).toBe(0);
});

describe("a cluster of NATS", () => {
  let servers: NatsServer[];
  beforeAll(async () => {
    servers = await startCluster();
  });
  afterAll(() => Promise.all(servers.map((server) => server[Symbol.asyncDispose]())));

  describeFailover("nats with a cluster", () => natsGroup(servers), false);

  it("goes on with what needs no stream while the streams do not answer", async () => {
    const group = natsGroup(servers);
    const rig = await group.rig();
    const node = await TestNode.open(rig.engine());
    await answered(() => node.append("1", "key"));
    const { restore } = await group.failover(rig, "pause");
    expect(await outcomeOf(node.append("2"))).toBe("unknown");
    await node.connection.send("a:all", "x");
    expect(await node.until("a:all", 1)).toEqual(["x"]);
    expect(node.downs).toEqual([]);
    await restore();
    await expect.poll(() => outcomeOf(node.read())).toBe("done");
  });

  it("loses nothing of streams that three servers keep, or is refused if it is too old", async () => {
    const url = servers.map((one) => one.url);
    const rig = natsRig({ url, jetstream: { replicas: 3 } }, servers[1]);
    const [, minor = 0, patch = 0] = (await servers[0]!.version()).split(".").map(Number);
    if (minor < 10 || (minor === 10 && patch < 19))
      return expect((await refusalOf(rig.engine())).message).toMatch(/2\.10\.19 or later is needed for 3 replicas/);
    const node = await TestNode.open(rig.engine());
    const { epoch } = await answered(() => node.append("1", "key"));
    await servers[0]!.kill();
    await expect.poll(() => node.append("1", "key").catch(() => undefined)).toEqual({ epoch, offset: 1 });
    await expect.poll(() => node.append("2", "next").catch(() => undefined)).toEqual({ epoch, offset: 2 });
    // NATS may place each reader on the server that was killed.
    for (let i = 0; i < 12; i++)
      await expect.poll(async () => (await node.read()).entries).toEqual(["1", "2"].map((body, at) => [at + 1, body]));
    expect((await answered(() => node.read(1))).entries).toEqual([[1, "1"]]);
  });
});
