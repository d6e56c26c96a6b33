/** What servers promise over a real broker, also when it is killed, paused or cut off. Runs once for each kind of broker. */
import { nanoid } from "nanoid";
import { afterAll, beforeAll, beforeEach, describe, expect, it, onTestFinished } from "vitest";
import { attach } from "../../src/node.js";
import type { Engine, EngineSettings } from "../../src/redis/index.js";
import { closeAll, makeNode, makeNodes, type Client, type Node } from "../fleet/nodes.js";
import type { Relay } from "../support/relay.js";
import { rejection } from "../support/turns.js";
import type { Broker, BrokerKind } from "./failures.js";
import { untilNothingLeft } from "./kit.js";

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

/** A server, on one node or attached to another server. */
interface Reporting {
  health(): { readonly engine?: string };
  on(event: "engine", listener: () => void): unknown;
  off(event: "engine", listener: () => void): unknown;
}

/** Resolves when the connection of a node to the broker is up, or down. */
async function untilEngine(server: Reporting, state: "up" | "down"): Promise<void> {
  while (server.health().engine !== state)
    await new Promise<void>((resolve) => {
      const listener = (): void => {
        server.off("engine", listener);
        resolve();
      };
      server.on("engine", listener);
    });
}

/** Runs the tests over one broker, which loses everything when it is killed. */
export function describeServers({ name: brokerName, create }: BrokerKind): void {
  describe(`servers over ${brokerName}`, () => {
    let broker: Broker;
    let prefix: string;
    let nodes: Node[];
    let relay: Relay | undefined;

    beforeAll(async () => {
      broker = await create();
    });
    beforeEach(() => {
      prefix = `test-${nanoid(8)}`;
      nodes = [];
      onTestFinished(async () => {
        await closeAll(nodes);
        // A node that closes removes its members.
        await relay?.close();
        await untilNothingLeft(broker.rig({ prefix }));
      });
    });
    afterAll(() => broker[Symbol.asyncDispose]());

    const engineOf = (settings: EngineSettings = {}, port?: number): Engine =>
      broker.rig({ prefix, settings: { leaseMs: 1_000, ...settings }, ...(port !== undefined && { port }) }).engine();

    /** Two nodes, with a member each in the topic "room". */
    const room = async (engine = engineOf()): Promise<[a: Node, b: Node, ann: Client, bob: Client]> => {
      nodes = makeNodes(2, RULES, engine);
      const [a, b] = nodes as [Node, Node];
      // What a handler rejects with is reported here too.
      for (const { server } of nodes) server.on("error", () => {});
      const [ann, bob] = [await a.client("ann"), await b.client("bob")];
      await a.server.topic("room").join(ann.peer, { as: "ann" });
      await b.server.topic("room").join(bob.peer, { as: "bob" });
      return [a, b, ann, bob];
    };
    const untilAll = async (state: "up" | "down"): Promise<void> => {
      await Promise.all(nodes.map(({ server }) => untilEngine(server, state)));
    };

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
      await expect.poll(() => names(a)).not.toContain("bob");
      await b.server.close();
      // The broker may count a closed connection for some milliseconds: then the outcome is unknown until the timeout.
      const call = (): Promise<unknown> =>
        rejection(a.server.peer(id).request("anything", undefined, { timeoutMs: 500 }));
      await expect.poll(call).toMatchObject({ name: "ConnectionLostError", outcome: "not-sent" });
    });

    it("report a gap when the broker has lost its data, and put their members again", async () => {
      const [a, b, , bob] = await room();
      const reports: string[] = [];
      for (const { server: one } of nodes) one.on("engine", ({ state }) => reports.push(state));
      const gaps: unknown[] = [];
      b.server.on("gap", (topic) => gaps.push(topic));
      const at = await a.server.topic("room").publish("said", { n: 1 });
      await bob.until(1);
      await broker.server.kill();
      await untilAll("down");
      await broker.server.start();
      await untilAll("up");
      expect(new Set(reports)).toEqual(new Set(["down", "up"]));
      await expect.poll(() => names(a)).toHaveLength(2);
      // A join before this node has read its log again is complete, and its gap is reported afterwards.
      await expect.poll(() => gaps).toContain("room");
      const eve = await b.client("eve");
      const { outcome } = await b.server.topic("room").join(eve.peer, { since: at });
      expect(outcome).toBe("gap");
      await a.server.topic("room").publish("said", { n: 2 });
      expect((await eve.until(1))[0]).toEqual(["said", { n: 2, at: expect.any(String) }]);
    });

    it("notice by their echo that nothing arrives any more", async () => {
      const relayed = await broker.relay();
      ({ relay } = relayed);
      const [a, , , bob] = await room(engineOf({}, relay.port));
      const errors: string[] = [];
      for (const node of nodes)
        node.server.on("engine", ({ error }) => error !== undefined && errors.push(error.message));
      relayed.mute();
      await expect.poll(() => errors.filter((text) => text.includes("echoes did not arrive")).length).toBe(2);
      await untilAll("up");
      await expect.poll(() => names(a)).toHaveLength(2);
      await a.server.topic("room").publish("said", { n: 1 });
      await bob.until(1);
    });

    it("close no peer and block no handler without a broker, and what waits for it is bounded", async () => {
      const [a, b, ann, bob] = await room();
      await broker.server.kill();
      await untilAll("down");
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
      await broker.server.start();
      await untilAll("up");
      const positions = await Promise.all(queued);
      for (const { got } of [ann, bob]) {
        await expect.poll(() => got.filter(isSaid).length).toBe(MAX_WAITING);
        expect(got.filter(isSaid)).toEqual(positions.map((at, n) => ["said", { n, at }]));
      }
      // Nobody got what was sent while there was no broker, except the peers of its node.
      expect(bob.got.filter((one) => !isSaid(one))).toEqual([]);
      expect([ann, bob, eve].map(({ peer }) => peer.state)).toEqual(["open", "open", "open"]);
    });

    it("lose nothing of a broker that is paused for longer than their leases", async () => {
      const [a, b, ann, bob] = await room();
      const at = await a.server.topic("room").publish("said", { n: 1 });
      await bob.until(1);
      await broker.server.pause();
      await untilAll("down");
      expect(await ann.client.request("add", [1, 2])).toBe(3);
      const error = await rejection(ann.client.request("say", { n: 0 }));
      expect(error).toMatchObject({ name: "RpcError" });
      broker.server.resume();
      await untilAll("up");
      await expect.poll(() => names(a)).toHaveLength(2);
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
      ({ relay } = await broker.relay());
      const methods = { add: ([x, y]: number[]) => x! + y!, never: () => new Promise(() => {}) };
      nodes = [engineOf(), engineOf({}, relay.port)].map((engine) => makeNode({ engine, ...RULES }, methods));
      const [a, b] = nodes as [Node, Node];
      const bob = await b.client("bob");
      const events: string[] = [];
      a.server.topic("room").watch((event) => events.push(event));
      expect(await a.server.topic("room").members()).toEqual([]);
      await b.server.topic("room").join(bob.peer, { as: "bob" });
      await expect.poll(() => a.server.nodes.live).toHaveLength(2);
      const handle = a.server.peer(bob.peer.id);
      expect(await handle.request("add", [1, 2])).toBe(3);
      const call = rejection(handle.request("never", undefined, { timeoutMs: 60_000 }));
      relay.pause();
      expect(await call).toMatchObject({ name: "ConnectionLostError", outcome: "unknown" });
      await expect.poll(() => names(a)).toHaveLength(0);
      expect(await bob.client.request("add", [1, 2])).toBe(3);
      await untilEngine(b.server, "down");
      relay.mend();
      await untilAll("up");
      await expect.poll(() => events).toEqual(["joined", "left", "joined"]);
      expect(await a.server.topic("room").members()).toEqual([{ id: bob.peer.id, as: "bob" }]);
      expect(await handle.request("add", [3, 4])).toBe(7);
      expect(bob.peer.state).toBe("open");
    });

    it("do not start without their broker, unless they are asked to", async () => {
      await broker.server.kill();
      const error = await rejection(attach({ engine: engineOf({ startTimeoutMs: 300 }) }));
      expect(error).toMatchObject(NOT_SENT);
      expect(error.message).toContain(broker.address);
      const engine = engineOf({ startTimeoutMs: 100, startWithout: true });
      const node = await attach({ engine, topics: RULES.topics });
      expect(node.health()).toMatchObject({ ok: false, engine: "down" });
      const states: string[] = [];
      node.on("engine", ({ state }) => states.push(state));
      await broker.server.start();
      await untilEngine(node, "up");
      expect(states).toEqual(["up"]);
      expect(await node.topic("room").publish("said", { n: 1 })).toMatch(/\.1$/);
      await node.close();
    });
  });
}
