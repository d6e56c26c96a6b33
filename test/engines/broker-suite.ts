/** What servers promise over a real broker, also when it is killed. Runs once for each broker. */
import { nanoid } from "nanoid";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import type { Engine, EngineSettings } from "../../src/fleet/engine.js";
import { attach } from "../../src/node.js";
import { eventually } from "../support/redis.js";
import { rejection } from "../support/turns.js";
import { closeAll, makeNode, makeNodes, type Client, type Node } from "../fleet/nodes.js";

/** How an engine of a test is made. */
export interface EngineParams extends EngineSettings {
  readonly prefix: string;
}

/** A broker that loses everything when it is killed. */
export interface Broker extends AsyncDisposable {
  /** Its host and port, as an error names it. */
  readonly address: string;
  engine(params: EngineParams): Engine;
  kill(): Promise<void>;
  start(): Promise<void>;
  /** Stops the process, which keeps its connections, or continues it. */
  signal(name: "SIGSTOP" | "SIGCONT"): void;
  /** Returns what is left in the broker under a prefix. Logs are not counted. */
  leftovers(prefix: string): Promise<string[]>;
  /** Returns an engine whose connections can be muted: they stay open, and no message arrives any more. */
  muting(params: EngineParams): Promise<{ engine: Engine; mute: () => void } & AsyncDisposable>;
  /** Returns an engine whose connections carry nothing from `part` to `mend`, and stay open. */
  parting(params: EngineParams): Promise<{ engine: Engine; part: () => void; mend: () => void } & AsyncDisposable>;
}

const RULES = {
  principal: (user: { name: string }) => user.name,
  topics: () => ({ log: { length: 2_000, ttlMs: 60_000 }, members: true as const }),
  methods: {
    add: ([x, y]: [number, number]) => x + y,
    type: (params: object, { server }: { server: Node["server"] }) => server.topic("room").notify("typing", params),
    say: (params: object, { server }: { server: Node["server"] }) =>
      server.topic("room").publish("said", params, { timeoutMs: 100 }),
  },
};
const NOT_SENT = { name: "EngineError", code: "ENGINE", outcome: "not-sent" };
/** As many publications wait for a broker. */
const MAX_WAITING = 1_000;

/** Returns what the members of the topic "room" have joined as. */
async function names(node: Node): Promise<unknown[]> {
  const members = await node.server.topic("room").members();
  return members.map(({ as }) => as);
}

function isSaid([method]: [string, unknown]): boolean {
  return method === "said";
}

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
    // What a handler rejects with is reported here too.
    for (const { server } of nodes) server.on("error", () => {});
    const [ann, bob] = [await a.client("ann"), await b.client("bob")];
    await a.server.topic("room").join(ann.peer, { as: "ann" });
    await b.server.topic("room").join(bob.peer, { as: "bob" });
    return [a, b, ann, bob];
  };

  /** Resolves when all nodes have a connection to the broker, or none has. */
  const untilHealth = async (isUp: boolean): Promise<void> => {
    await eventually(
      () => nodes.map((node) => node.server.health().engine),
      (states) => states.every((state) => state === (isUp ? "up" : "down")),
      30_000,
    );
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
      await untilHealth(false);
      await broker.start();
      await untilHealth(true);
      expect(new Set(reports)).toEqual(new Set(["down", "up"]));
      await eventually(
        () => names(a),
        (all) => all.length === 2,
      );
      // A join before this node has read its log again is complete, and its gap is reported afterwards.
      await eventually(
        () => gaps,
        (topics) => topics.includes("room"),
      );
      const eve = await b.client("eve");
      const { outcome } = await b.server.topic("room").join(eve.peer, { since: at });
      expect(outcome).toBe("gap");
      await a.server.topic("room").publish("said", { n: 2 });
      expect((await eve.until(1))[0]).toEqual(["said", { n: 2, at: expect.any(String) }]);
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
      await untilHealth(true);
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

    it("close no peer and block no handler without a broker, and what waits for it is bounded", async () => {
      const [a, b, ann, bob] = await room();
      await broker.kill();
      await untilHealth(false);
      const engine = (): { dropped: number; pendingBytes: number } => a.server.stats().engine!;
      // An echo that was on its way when the broker ended counts as dropped too.
      await expect.poll(() => engine().pendingBytes).toBe(0);
      const { dropped } = engine();
      expect(await bob.client.request("add", [1, 2])).toBe(3);
      await ann.client.request("type", { n: 1 });
      expect(await ann.until(1)).toEqual([["typing", { n: 1 }]]);
      expect(engine().dropped).toBe(dropped + 1);
      // It waits no longer than its own timeout.
      expect(await rejection(ann.client.request("say", { n: 2 }))).toMatchObject({ name: "RpcError" });
      const eve = await b.client("eve");
      expect(await rejection(b.server.topic("room").join(eve.peer, { as: "eve" }))).toMatchObject(NOT_SENT);
      const publish = (n: number): Promise<string> =>
        a.server.topic("room").publish("said", { n }, { timeoutMs: 60_000 });
      const queued = Array.from({ length: MAX_WAITING }, (_, n) => publish(n));
      expect(await rejection(publish(MAX_WAITING))).toMatchObject(NOT_SENT);
      await broker.start();
      await untilHealth(true);
      const positions = await Promise.all(queued);
      for (const { got } of [ann, bob]) {
        const said = await eventually(
          () => got.filter(isSaid),
          ({ length }) => length >= MAX_WAITING,
        );
        expect(said).toEqual(positions.map((at, n) => ["said", { n, at }]));
      }
      // Nobody got what was sent while there was no broker, except the peers of its node.
      expect(bob.got.filter((one) => !isSaid(one))).toEqual([]);
      expect([ann, bob, eve].map(({ peer }) => peer.state)).toEqual(["open", "open", "open"]);
    });

    it("lose nothing of a broker that is paused for longer than their leases", async () => {
      const [a, b, ann, bob] = await room();
      const at = await a.server.topic("room").publish("said", { n: 1 });
      await bob.until(1);
      broker.signal("SIGSTOP");
      await untilHealth(false);
      expect(await ann.client.request("add", [1, 2])).toBe(3);
      const error = await rejection(ann.client.request("say", { n: 0 }));
      expect(error).toMatchObject({ name: "RpcError" });
      broker.signal("SIGCONT");
      await untilHealth(true);
      await eventually(
        () => names(a),
        (all) => all.length === 2,
      );
      await a.server.topic("room").publish("said", { n: 2 });
      for (const client of [ann, bob]) {
        const got = await client.until(2);
        expect(got.map(([, { n }]) => n as number)).toEqual([1, 2]);
      }
      const eve = await b.client("eve");
      expect(await b.server.topic("room").join(eve.peer, { since: at })).toMatchObject({ outcome: "complete" });
      expect([ann, bob].map(({ peer }) => peer.state)).toEqual(["open", "open"]);
    });

    it("give up a node that was cut off for longer than its lease, and its peers notice nothing", async () => {
      params = { prefix: `test-${nanoid(8)}`, leaseMs: 1_000 };
      const parting = await broker.parting(params);
      const methods = { add: ([x, y]: number[]) => x! + y!, never: () => new Promise(() => {}) };
      nodes = [broker.engine(params), parting.engine].map((engine) => makeNode({ engine, ...RULES }, methods));
      const [a, b] = nodes as [Node, Node];
      const bob = await b.client("bob");
      const events: string[] = [];
      a.server.topic("room").watch((event) => events.push(event));
      expect(await a.server.topic("room").members()).toEqual([]);
      await b.server.topic("room").join(bob.peer, { as: "bob" });
      await eventually(
        () => a.server.nodes.live.length,
        (count) => count === 2,
      );
      const handle = a.server.peer(bob.peer.id);
      expect(await handle.request("add", [1, 2])).toBe(3);
      const call = rejection(handle.request("never", undefined, { timeoutMs: 60_000 }));
      parting.part();
      expect(await call).toMatchObject({ name: "ConnectionLostError", outcome: "unknown" });
      await eventually(
        () => names(a),
        (all) => all.length === 0,
      );
      expect(await bob.client.request("add", [1, 2])).toBe(3);
      await eventually(
        () => b.server.health().ok,
        (ok) => !ok,
        30_000,
      );
      parting.mend();
      await untilHealth(true);
      await eventually(
        () => events.length,
        (count) => count === 3,
      );
      expect(events).toEqual(["joined", "left", "joined"]);
      expect(await a.server.topic("room").members()).toEqual([{ id: bob.peer.id, as: "bob" }]);
      expect(await handle.request("add", [3, 4])).toBe(7);
      expect(bob.peer.state).toBe("open");
      await closeAll(nodes);
      nodes = [];
      await parting[Symbol.asyncDispose]();
    });

    it("do not start without their broker, unless they are asked to", async () => {
      params = { prefix: `test-${nanoid(8)}`, leaseMs: 1_000 };
      await broker.kill();
      const error = await rejection(attach({ engine: broker.engine({ ...params, startTimeoutMs: 300 }) }));
      expect(error).toMatchObject(NOT_SENT);
      expect(error.message).toContain(broker.address);
      const engine = broker.engine({ ...params, startTimeoutMs: 100, startWithout: true });
      const node = await attach({ engine, topics: RULES.topics });
      expect(node.health()).toMatchObject({ ok: false, engine: "down" });
      const states: string[] = [];
      node.on("engine", ({ state }) => states.push(state));
      await broker.start();
      await eventually(
        () => node.health().ok,
        (ok) => ok,
        30_000,
      );
      expect(states).toEqual(["up"]);
      expect(await node.topic("room").publish("said", { n: 1 })).toMatch(/\.1$/);
      await node.close();
    });
  });
}
