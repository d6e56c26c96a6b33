/** What servers promise over a real broker, also when it is killed. Runs once for each broker. */
import { nanoid } from "nanoid";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import type { Engine } from "../../src/fleet/engine.js";
import { eventually } from "../support/redis.js";
import { closeAll, makeNodes, type Client, type Node } from "./nodes.js";

/** How an engine of a test is made. */
export interface EngineParams {
  readonly prefix: string;
  readonly leaseMs: number;
}

/** A broker that loses everything when it is killed. */
export interface Broker extends AsyncDisposable {
  engine(params: EngineParams): Engine;
  kill(): Promise<void>;
  start(): Promise<void>;
  /** Returns what is left in the broker under a prefix. Logs are not counted. */
  leftovers(prefix: string): Promise<string[]>;
  /** Returns an engine whose connections can be muted: they stay open, and no message arrives any more. */
  muting(params: EngineParams): Promise<{ engine: Engine; mute: () => void } & AsyncDisposable>;
}

const RULES = {
  principal: (user: { name: string }) => user.name,
  topics: () => ({ log: { length: 100, ttlMs: 60_000 }, members: true }),
};

/** Runs the tests over the broker that `create` starts. */
export function describeServers(brokerName: string, create: () => Promise<Broker>): void {
  let broker: Broker;
  let params: EngineParams;
  let nodes: Node[] = [];

  beforeAll(async () => {
    broker = await create();
  }, 300_000);
  afterEach(async () => {
    await closeAll(nodes);
    // Rejects with what is left.
    await eventually(
      () => broker.leftovers(params.prefix),
      (left) => left.length === 0,
    );
  });
  afterAll(() => broker[Symbol.asyncDispose]());

  /** Two nodes, with a member each in the topic "room". */
  const room = async (
    make: (params: EngineParams) => Engine | Promise<Engine> = (one) => broker.engine(one),
  ): Promise<[a: Node, b: Node, ann: Client, bob: Client]> => {
    params = { prefix: `test-${nanoid(8)}`, leaseMs: 1_000 };
    nodes = makeNodes(2, RULES, await make(params));
    const [a, b] = nodes as [Node, Node];
    const [ann, bob] = [await a.client("ann"), await b.client("bob")];
    await a.server.topic("room").join(ann.peer, { as: "ann" });
    await b.server.topic("room").join(bob.peer, { as: "bob" });
    return [a, b, ann, bob];
  };

  const names = async (node: Node): Promise<unknown[]> => {
    const members = await node.server.topic("room").members();
    return members.map(({ as }) => as);
  };

  describe(`servers over ${brokerName}`, () => {
    it("notify, publish and list members across nodes", async () => {
      const [a, b, ann, bob] = await room();
      a.server.topic("room").notify("typing", { n: 0 });
      const at = await b.server.topic("room").publish("said", { n: 1 });
      for (const client of [ann, bob])
        expect(await client.until(2)).toEqual(
          expect.arrayContaining([
            ["typing", { n: 0 }],
            ["said", { n: 1, at }],
          ]),
        );
      for (const node of nodes) expect(new Set(await names(node))).toEqual(new Set(["ann", "bob"]));
      const eve = await a.client("eve");
      const first = await a.server.topic("room").join(eve.peer, { since: at });
      expect(first).toMatchObject({ outcome: "complete", at });
      await b.server.topic("room").publish("said", { n: 2 });
      expect(await eve.until(1)).toEqual([["said", { n: 2, at: expect.any(String) }]]);
    });

    it("send what a client missed before its `join` resolves, from the broker", async () => {
      const [a, b] = await room();
      const at = await a.server.topic("old").publish("said", { n: 0 });
      for (let n = 1; n <= 5; n++) await a.server.topic("old").publish("said", { n });
      const eve = await b.client("eve");
      const { outcome } = await b.server.topic("old").join(eve.peer, { since: at });
      expect(outcome).toBe("complete");
      const got = await eve.until(5);
      expect(got.map(([, { n }]) => n as number)).toEqual([1, 2, 3, 4, 5]);
    });

    it("call a peer of another node, and know that a node is gone", async () => {
      const [a, b, , bob] = await room();
      const id = bob.peer.id;
      await a.server.peer(id).close(4001, "moved");
      await eventually(
        () => names(a),
        (left) => !left.includes("bob"),
      );
      await b.server.close();
      // The broker may count a closed connection for some milliseconds: then the outcome is unknown until the timeout.
      const call = (): Promise<unknown> =>
        a.server
          .peer(id)
          .request("anything", undefined, { timeoutMs: 500 })
          .catch((reason: unknown) => reason);
      const error = await eventually(call, (reason) => (reason as { outcome: string }).outcome === "not-sent");
      expect(error).toMatchObject({ name: "ConnectionLostError", outcome: "not-sent" });
    });

    it("report a gap when the broker has lost its data, and put their members again", async () => {
      const [a, b, , bob] = await room();
      const reports: string[] = [];
      for (const { server: one } of nodes) one.on("engine", ({ state }) => reports.push(state));
      const gaps: unknown[] = [];
      b.server.on("gap", (topic) => gaps.push(topic));
      const at = await a.server.topic("room").publish("said", { n: 1 });
      await bob.until(1);
      await broker.kill();
      await eventually(
        () => nodes.map((node) => node.server.health().ok),
        (states) => states.every((ok) => !ok),
      );
      await broker.start();
      await eventually(
        () => nodes.map((node) => node.server.health().ok),
        (states) => states.every((ok) => ok),
      );
      expect(new Set(reports)).toEqual(new Set(["down", "up"]));
      await eventually(
        () => names(a),
        (all) => all.length === 2,
      );
      const eve = await b.client("eve");
      const { outcome } = await b.server.topic("room").join(eve.peer, { since: at });
      expect(outcome).toBe("gap");
      await a.server.topic("room").publish("said", { n: 2 });
      expect((await eve.until(1))[0]).toEqual(["said", { n: 2, at: expect.any(String) }]);
      expect(gaps).toContain("room");
    });

    it("notice by their echo that nothing arrives any more", async () => {
      let muting: Awaited<ReturnType<Broker["muting"]>>;
      const [a, , , bob] = await room(async (one) => {
        muting = await broker.muting(one);
        return muting.engine;
      });
      const errors: string[] = [];
      for (const node of nodes)
        node.server.on("engine", ({ error }) => error !== undefined && errors.push(error.message));
      muting!.mute();
      await eventually(
        () => errors,
        (texts) => texts.filter((text) => text.includes("echoes did not arrive")).length >= 2,
      );
      await eventually(
        () => nodes.map((node) => node.server.health().ok),
        (states) => states.every((ok) => ok),
      );
      await eventually(
        () => names(a),
        (all) => all.length === 2,
      );
      await a.server.topic("room").publish("said", { n: 1 });
      await bob.until(1);
      await closeAll(nodes);
      nodes = [];
      await muting![Symbol.asyncDispose]();
    });
  });
}
