/** Servers over an engine: what an application sees is the same for every engine, also while its broker fails. */
import { describe, expect, it, onTestFinished } from "vitest";
import type { EngineStats } from "../../src/node.js";
import { closeAll, makeNode, type Client, type Node } from "../fleet/nodes.js";
import { rejection } from "../support/turns.js";
import type { BrokerKind } from "./failures.js";
import { TestNode, TOPIC, untilNothingLeft, use, type EngineRig } from "./kit.js";

const EVIL = '{"jsonrpc":"2.0","method":"evil","params":{}}';
/** Texts that are no frames, or have no meaning. A node counts each of them, on whichever channel it arrives. */
const FOREIGN_FRAMES = [
  "",
  "\n",
  "garbage without a line break",
  "1N",
  "1\n",
  "1l",
  "1u\n{}",
  "1N\t".repeat(100_000),
  "1N\tx\nnot JSON",
  "1N\tx\n[]",
  '1N\tx\n{"jsonrpc":"2.0","id":1,"method":"evil"}',
  `1N\tx\n[${EVIL}]`,
  "1j\tx\ty\n{}",
  "1O\tx\ty\nnot JSON",
  "1s\tx\nnot JSON",
  ...["2N\tx", "1NN\tx", "1?\tx", "1q", `1N\tx\t${"y".repeat(100_000)}`].map((head) => `${head}\n${EVIL}`),
  ...["e", "e\t0", "e\t-1", "e\t1e9", `e\t${"9".repeat(400)}`, "\t2", "x y\t2", `${"x".repeat(65)}\t2`].map(
    (place) => `1L\t${place}\n${EVIL}`,
  ),
];

const LOG_RULE = { length: 10_000, ttlMs: 60_000 };
const add = ([x, y]: number[]): number => x! + y!;
const topicOf = ({ server }: Node): ReturnType<Node["server"]["topic"]> => server.topic(TOPIC);
const countsOf = ({ server }: Node): EngineStats => server.stats().engine!;
const numbersOf = ({ got }: Client): number[] => got.map(([, { n }]) => n as number);

interface Room {
  readonly nodes: [a: Node, b: Node];
  readonly clients: [ann: Client, bob: Client];
  /** The notifications of nodes: the params, and the node that sent them. */
  readonly notified: unknown[];
  has(capability: "log" | "roster"): boolean;
}

/** Opens two nodes of one rig, with a member each of one topic. The second one knows the first. */
async function openRoom(rig: EngineRig): Promise<Room> {
  const has = (capability: "log" | "roster"): boolean => rig.lacks?.includes(capability) !== true;
  const notified: unknown[] = [];
  const options = {
    topics: () => ({ ...(has("log") && { log: LOG_RULE }), ...(has("roster") && { members: true }) }),
    principal: ({ name }: { name: string }) => name,
    methods: { add },
    nodes: { methods: { reload: (params: unknown, { from }: { from: string }) => void notified.push([params, from]) } },
  };
  const nodes: Node[] = [];
  const clients: Client[] = [];
  onTestFinished(async () => {
    await closeAll(nodes);
    await untilNothingLeft(rig);
  });
  for (const name of ["ann", "bob"]) {
    const node = makeNode({ engine: rig.engine(), ...options }, { add, never: () => new Promise(() => {}) });
    nodes.push(node);
    const client = await node.client(name);
    clients.push(client);
    await topicOf(node).join(client.peer, has("roster") ? { as: name } : {});
  }
  return { nodes: nodes as Room["nodes"], clients: clients as Room["clients"], notified, has };
}

/** Runs the tests over the rigs of one engine. */
export function describeServers(rigOf: () => EngineRig): void {
  describe("servers", () => {
    it("notify, publish, list members, call and close across nodes", async () => {
      const { nodes, clients, notified, has } = await openRoom(rigOf());
      const [a, b] = nodes;
      const [ann, bob] = clients;
      topicOf(a).notify("said", { n: 1 }, { except: ann.peer.id });
      topicOf(a).notify("said", { n: 2 });
      a.server.peers.notify("said", { n: 3 });
      b.server.principal("ann").notify("said", { n: 4 });
      b.server.nodes.notify("reload", { n: 5 });
      await Promise.all(clients.map((client) => client.until(3)));
      expect(new Set(numbersOf(ann))).toEqual(new Set([2, 3, 4]));
      expect(new Set(numbersOf(bob))).toEqual(new Set([1, 2, 3]));
      await expect.poll(() => notified).toEqual([[{ n: 5 }, b.server.nodes.id]]);

      if (has("log")) {
        const all = Array.from({ length: 60 }, (_, n) => topicOf(nodes[n % 2]!).publish("said", { n }));
        const [since] = await Promise.all(all);
        const [got, others] = await Promise.all(clients.map(async (client) => (await client.until(63)).slice(3)));
        expect(others).toEqual(got);
        const eve = await b.client();
        expect((await topicOf(b).join(eve.peer, { since: since! })).outcome).toBe("complete");
        const missed = got!.slice(got!.findIndex(([, { at }]) => at === since) + 1);
        expect(await eve.until(missed.length)).toEqual(missed);
      } else await expect(topicOf(a).publish("said")).rejects.toThrow("has no log");

      const events: unknown[] = [];
      if (has("roster")) {
        topicOf(a).watch((event, { as }) => events.push([event, as]));
        expect(new Set((await topicOf(a).members()).map(({ as }) => as))).toEqual(new Set(["ann", "bob"]));
        await topicOf(b).join(bob.peer, { as: "away" });
        await expect.poll(() => events).toEqual([["joined", "away"]]);
      }

      // The second node knew the first one when it started.
      const handle = b.server.peer(ann.peer.id);
      expect(await handle.request("add", [1, 2])).toBe(3);
      for (const id of [`${a.server.nodes.id}.none`, "", "none", "*.x", ">.x"])
        expect(await rejection(b.server.peer(id).request("add", [1, 2]))).toMatchObject({ outcome: "not-sent" });
      const controller = new AbortController();
      const cancelled = rejection(handle.request("never", {}, { signal: controller.signal }));
      await expect.poll(() => ann.client.stats().running).toBe(1);
      controller.abort("enough");
      expect(await cancelled).toBe("enough");
      await expect.poll(() => ann.peer.stats().pending).toBe(0);
      const pending = rejection(handle.request("never"));
      await expect.poll(() => ann.peer.stats().pending).toBe(1);
      await handle.close(4001, "moved");
      expect(await pending).toMatchObject({ code: "CONNECTION_LOST", outcome: "unknown" });
      expect(await ann.peer.closed).toMatchObject({ code: 4001 });
      await bob.client.close();
      if (has("roster")) await expect.poll(() => events.at(-1)).toEqual(["left", "away"]);
      for (const node of nodes) expect(countsOf(node)).toMatchObject({ dropped: 0, foreign: 0, reconnects: 0 });
    });

    it("ignore foreign and broken frames, and count them", async () => {
      const rig = rigOf();
      const { nodes, clients, has } = await openRoom(rig);
      const [a, b] = nodes;
      const at = has("log") ? await topicOf(a).publish("said", { n: 1 }) : "epoch.1";
      const { connection } = await TestNode.open(rig.engine(), "sender");
      for (const channel of [`t:${TOPIC}`, "a:all", `n:${b.server.nodes.id}`] as const)
        for (const frame of FOREIGN_FRAMES) await connection.send(channel, frame);
      const foreign = [2, 3].map((channels) => channels * FOREIGN_FRAMES.length);
      await expect.poll(() => nodes.map((node) => countsOf(node).foreign)).toEqual(foreign);
      // Frames of entries that the log does not have.
      for (const place of [`${at.split(".")[0]}\t99`, "other\t1"])
        await connection.send(`t:${TOPIC}`, `1L\t${place}\n${EVIL}`);
      topicOf(a).notify("said", { n: 2 });
      if (has("log")) await topicOf(b).publish("said", { n: 3 });
      const sent = has("log") ? [1, 2, 3] : [2];
      for (const client of clients) {
        await client.until(sent.length);
        expect(new Set(numbersOf(client))).toEqual(new Set(sent));
        expect([client.peer.state, client.client.state]).toEqual(["open", "open"]);
      }
      for (const node of nodes) expect(countsOf(node)).toMatchObject({ gaps: 0, dropped: 0, reconnects: 0 });
    });
  });
}

/** Runs the test over one kind of broker, which loses everything when it is killed. */
export function describeServerFailures({ name, create }: BrokerKind): void {
  it(`servers over ${name} close no peer without a broker, publish afterwards, and report a gap`, async () => {
    const broker = use(await create());
    const { nodes, clients } = await openRoom(broker.rig());
    const [a, b] = nodes;
    const [ann, bob] = clients;
    const gaps: unknown[] = [];
    b.server.on("gap", (topic) => gaps.push(topic));
    const since = await topicOf(a).publish("said", { n: 1 });
    await Promise.all(clients.map((client) => client.until(1)));
    await broker.server.kill();
    await expect.poll(() => nodes.map(({ server }) => server.health().engine)).toEqual(["down", "down"]);
    expect(await bob.client.request("add", [1, 2])).toBe(3);
    topicOf(a).notify("said", { n: 2 });
    const published = topicOf(a).publish("said", { n: 3 }, { timeoutMs: 240_000 });
    await broker.server.start();
    await published;
    // What was notified while there was no broker arrived at the peers of its node only.
    await expect.poll(() => numbersOf(ann)).toEqual([1, 2, 3]);
    await expect.poll(() => numbersOf(bob)).toEqual([1, 3]);
    await expect.poll(async () => (await topicOf(a).members()).length).toBe(2);
    await expect.poll(() => gaps).toContain(TOPIC);
    const eve = await b.client();
    expect((await topicOf(b).join(eve.peer, { since })).outcome).toBe("gap");
    expect(clients.map(({ peer }) => peer.state)).toEqual(["open", "open"]);
  });
}
