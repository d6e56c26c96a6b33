/** What the engine does when one server of NATS fails: the suite of all brokers, and what only NATS does. */
import { expect, it } from "vitest";
import { NatsServer, publishAt } from "../support/nats.js";
import { describeFailures } from "./failures.js";
import { TestNode, use } from "./kit.js";
import { JETSTREAM, NATS, natsRig } from "./nats-rig.js";

describeFailures(NATS);
describeFailures(JETSTREAM);

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
