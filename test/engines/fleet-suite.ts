/** Servers over an engine: what an application sees must be the same for every engine. */
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { EngineStats } from "../../src/node.js";
import { closeAll, makeNode, type Client, type Node } from "../fleet/nodes.js";
import { rejection } from "../support/turns.js";
import { HOSTILE_NAMES, TestNode, untilNothingLeft, type EngineRig } from "./kit.js";

const principal = ({ name }: { name: string }): string => name;

const topic = ({ server }: Node): ReturnType<Node["server"]["topic"]> => server.topic("room");
const numbers = async (client: Client, count: number): Promise<number[]> =>
  (await client.until(count)).map(([, { n }]) => n);

const countsOf = ({ server }: Node): EngineStats => server.stats().engine!;

const EVIL = '{"jsonrpc":"2.0","method":"evil","params":{}}';
/** Texts that are no frames, or have no meaning. A node counts each of them, on whichever channel it arrives. */
const FOREIGN_FRAMES = [
  "",
  "\n",
  "garbage without a line break",
  "1N",
  "1\n",
  `1NN\tx\n${EVIL}`,
  `1?\tx\n${EVIL}`,
  `2N\tx\n${EVIL}`,
  "1N\tx\nnot JSON",
  "1N\tx\n[]",
  '1N\tx\n{"jsonrpc":"2.0","id":1,"method":"evil"}',
  `1N\tx\n[${EVIL}]`,
  `1L\tepoch\n${EVIL}`,
  `1L\tepoch\t0\n${EVIL}`,
  `1L\tepoch\t-1\n${EVIL}`,
  `1L\tepoch\t1e9\n${EVIL}`,
  `1L\tepoch\t${"9".repeat(400)}\n${EVIL}`,
  `1L\t\t2\n${EVIL}`,
  `1L\tx y\t2\n${EVIL}`,
  `1L\t${"x".repeat(65)}\t2\n${EVIL}`,
  "1j\tx\ty\n{}",
  "1l",
  "1O\tx\ty\nnot JSON",
  "1s\tx\nnot JSON",
  `1q\n${EVIL}`,
  "1u\n{}",
  `1N\tx\t${"y".repeat(100_000)}\n${EVIL}`,
  "1N\t".repeat(100_000),
];

/** Runs the tests with three nodes over the rigs that `make` returns. */
export function describeFleet(make: () => Promise<EngineRig>): void {
  describe("three servers", () => {
    let rig: EngineRig;
    let nodes: Node[];
    let a: Node;
    let b: Node;
    let c: Node;
    let has: (capability: "log" | "roster") => boolean;
    /** What the nodes were notified of, with the place of each node in `nodes`. */
    let notified: [place: number, params: unknown, from: string][];
    /** How many calls were cancelled at clients. */
    let aborted: number;

    beforeEach(async () => {
      rig = await make();
      has = (capability) => rig.lacks?.includes(capability) !== true;
      const topics = (): object => ({
        ...(has("log") && { log: { length: 200, ttlMs: 60_000 } }),
        ...(has("roster") && { members: true }),
      });
      const methods = {
        add: ([x, y]: number[]) => x! + y!,
        never: () => new Promise(() => {}),
        count: ({ to }: { to: number }, { progress }: { progress: (value: unknown) => void }) => {
          for (let i = 1; i <= to; i++) progress(i);
          return "counted";
        },
        wait: (_params: unknown, { signal }: { signal: AbortSignal }) =>
          new Promise(() => signal.addEventListener("abort", () => aborted++)),
      };
      notified = [];
      aborted = 0;
      nodes = [0, 1, 2].map((place) => {
        const reload = (params: unknown, { from }: { from: string }): void => void notified.push([place, params, from]);
        const options = { engine: rig.engine(), topics, principal, nodes: { methods: { reload } } };
        return makeNode(options, methods);
      });
      [a, b, c] = nodes as [Node, Node, Node];
      await expect.poll(() => nodes.every(({ server }) => server.health().ok)).toBe(true);
      // A node learns of those that started after it when it beats again.
      await expect.poll(() => nodes.map(({ server }) => server.nodes.live.length)).toEqual([3, 3, 3]);
    });
    afterEach(async () => {
      await closeAll(nodes);
      await rig.close();
    });

    /** One client of each node, all members of a topic. */
    const members = async (name: string): Promise<[Client, Client, Client]> => {
      const clients = await Promise.all(nodes.map((node, i) => node.client(`user${i}`)));
      await Promise.all(clients.map(({ peer }, i) => nodes[i]!.server.topic(name).join(peer)));
      return clients as [Client, Client, Client];
    };

    it("notify the members of a topic on all nodes, once, except a peer of any node", async () => {
      const [ann, bob, eve] = await members("room");
      a.server.topic("room").notify("said", { n: 1 });
      a.server.topic("room").notify("said", { n: 2 }, { except: bob.peer.id });
      a.server.topic("room").notify("said", { n: 3 }, { here: true });
      a.server.peers.notify("said", { n: 4 });
      expect(await numbers(ann, 4)).toEqual([1, 2, 3, 4]);
      expect(await numbers(bob, 2)).toEqual(expect.arrayContaining([1, 4]));
      expect(await numbers(eve, 3)).toEqual(expect.arrayContaining([1, 2, 4]));
      expect([ann.got.length, bob.got.length, eve.got.length]).toEqual([4, 2, 3]);
    });

    it("notify all peers but one, which may be of another node and is given by its id or as a peer", async () => {
      const [ann, bob, eve] = await members("room");
      topic(a).notify("said", { n: 1 }, { except: a.server.peer(bob.peer.id) });
      a.server.peers.notify("said", { n: 2 }, { except: a.server.peer(eve.peer.id) });
      a.server.peers.notify("said", { n: 3 }, { except: bob.peer.id });
      topic(a).notify("said", { n: 4 }, { except: ann.peer });
      // The last ones of both channels.
      topic(a).notify("said", { n: 5 });
      a.server.peers.notify("said", { n: 6 });
      const all: [Client, number[]][] = [
        [ann, [1, 2, 3, 5, 6]],
        [bob, [2, 4, 5, 6]],
        [eve, [1, 3, 4, 5, 6]],
      ];
      for (const [client, expected] of all) {
        const came = await numbers(client, expected.length);
        expect(came).toHaveLength(expected.length);
        expect(new Set(came)).toEqual(new Set(expected));
      }
    });

    it("keep the newest of a key for a peer that is away, and nothing that is volatile", async () => {
      const [, bob] = await members("room");
      const other = await b.client();
      await topic(b).join(other.peer);
      const line = b.network.of(bob.client);
      line.cut();
      line.stop();
      for (let n = 1; n <= 50; n++) {
        topic(a).notify("moved", { n }, { latest: "ann" });
        topic(c).notify("typing", { n }, { volatile: true });
      }
      for (const node of [a, c]) topic(node).notify("end");
      await other.until(102);
      line.start();
      await bob.until(3);
      const came = (method: string): unknown[] =>
        bob.got.filter(([name]) => name === method).map(([, params]) => params);
      expect([came("moved"), came("typing"), came("end").length]).toEqual([[{ n: 50 }], [], 2]);
      expect(bob.got.findIndex(([name]) => name === "moved")).toBeLessThan(2);
    });

    it("keep topics with hostile names apart", async () => {
      const [, bob] = await members("room");
      for (const name of HOSTILE_NAMES) await b.server.topic(name).join(bob.peer);
      for (const name of HOSTILE_NAMES) a.server.topic(name).notify("said", { name });
      await bob.until(HOSTILE_NAMES.length);
      expect(bob.got).toHaveLength(HOSTILE_NAMES.length);
      expect(new Set(bob.got.map(([, { name }]) => name))).toEqual(new Set(HOSTILE_NAMES));
    });

    it("publish in one order for all, and recover what a client has missed", async () => {
      const [ann, bob, eve] = await members("room");
      if (!has("log")) return expect(topic(a).publish("said")).rejects.toThrow("has no log");
      const [at] = await Promise.all(
        Array.from({ length: 60 }, (_, n) => topic(nodes[n % 3]!).publish("said", { n: n + 1 })),
      );
      for (const client of [ann, bob, eve]) await client.until(60);
      expect(bob.got).toEqual(ann.got);
      expect(eve.got).toEqual(ann.got);
      const last = ann.got.at(-1)![1].at;
      const returned = await c.client();
      expect(await topic(c).join(returned.peer, { since: at })).toEqual({ at: last, outcome: "complete" });
      const missed = ann.got.slice(ann.got.findIndex(([, params]) => params.at === at) + 1);
      expect(await returned.until(missed.length)).toEqual(missed);
      const { outcome, entries } = await topic(b).read({ since: at });
      expect([outcome, entries.length]).toEqual(["complete", missed.length]);
      expect(await topic(a).publish("said", {}, { key: "k" })).toBe(await topic(c).publish("said", {}, { key: "k" }));
    });

    it.each([
      ["log", { log: { length: 10, ttlMs: 60_000 } }, "logs"],
      ["roster", { members: true }, "members"],
    ] as const)(
      "need a %s for a rule of a topic, and refuse the rule with the name of an engine that has none",
      async (capability, rules, what) => {
        const engine = rig.engine();
        const node = makeNode({ engine, topics: () => rules });
        nodes.push(node);
        const { peer } = await node.client();
        if (has(capability)) {
          await topic(node).join(peer);
          return expect(topic(node).size).toBe(1);
        }
        const refusal = new TypeError(
          `the engine ${engine.name} has no ${what}, so the rule \`${Object.keys(rules)[0]}\` cannot be met`,
        );
        for (const use of [() => topic(node).add(peer), () => topic(node).watch(() => {})])
          expect(use).toThrow(refusal);
        const operations = [
          topic(node).join(peer),
          topic(node).publish("said"),
          topic(node).read(),
          topic(node).members(),
        ];
        for (const operation of operations) await expect(operation).rejects.toThrow(refusal);
        expect([topic(node).size, peer.state]).toEqual([0, "open"]);
      },
    );

    it("know the members of a topic on all nodes, and each that joins, changes or leaves", async () => {
      const ann = await a.client();
      if (!has("roster")) {
        await expect(topic(a).join(ann.peer, { as: 1 })).rejects.toThrow("requires the rule");
        return expect(topic(a).members()).rejects.toThrow("no list of members");
      }
      const events: unknown[] = [];
      topic(c).watch((event, { as }) => events.push([event, as]));
      expect(await topic(c).members()).toEqual([]);
      await topic(a).join(ann.peer, { as: { name: "ann" } });
      for (const node of nodes) expect(await topic(node).members()).toEqual([{ id: ann.peer.id, as: { name: "ann" } }]);
      await topic(a).join(ann.peer, { as: { name: "ann", isAway: true } });
      await ann.client.close();
      await expect
        .poll(() => events)
        .toEqual([
          ["joined", { name: "ann" }],
          ["joined", { name: "ann", isAway: true }],
          ["left", { name: "ann", isAway: true }],
        ]);
      expect(await topic(b).members()).toEqual([]);
    });

    it("call, notify and close a peer of another node, with true outcomes", async () => {
      const [, bob] = await members("room");
      const handle = a.server.peer(bob.peer.id);
      expect(await handle.request("add", [1, 2])).toBe(3);
      handle.notify("toast", { n: 1 });
      expect(await bob.until(1)).toEqual([["toast", { n: 1 }]]);
      const none = a.server.peer(`${b.server.nodes.id}.none`);
      expect(await rejection(none.request("add", [1, 2]))).toMatchObject({ outcome: "not-sent" });
      for (const id of ["", "none", "*.x", ">.x"])
        expect(await rejection(a.server.peer(id).request("add", [1, 2]))).toMatchObject({ outcome: "not-sent" });
      // Over a broker that may miss a receiver, only the list of living nodes says that there is no such node.
      const outcome = (await TestNode.open(rig.engine())).facts!.undercounts === true ? "unknown" : "not-sent";
      const unknown = await rejection(a.server.peer("none.x").request("add", [1, 2]));
      expect(unknown).toMatchObject({ code: "CONNECTION_LOST", outcome });
      const pending = rejection(handle.request("never"));
      await expect.poll(() => bob.client.stats().running).toBe(1);
      await handle.close(4001, "moved");
      expect(await pending).toMatchObject({ code: "CONNECTION_LOST", outcome: "unknown" });
      expect(await bob.peer.closed).toMatchObject({ code: 4001 });
    });

    it("call a peer of another node that reports its progress", async () => {
      const [, bob] = await members("room");
      const seen: unknown[] = [];
      const onProgress = (value: unknown): void => void seen.push(value);
      const called = a.server.peer(bob.peer.id).request("count", { to: 20 }, { onProgress });
      expect(await called).toBe("counted");
      expect(seen).toEqual(Array.from({ length: 20 }, (_, i) => i + 1));
    });

    it("cancel a call on the node of the peer", async () => {
      const [, bob] = await members("room");
      const controller = new AbortController();
      const called = rejection(a.server.peer(bob.peer.id).request("wait", {}, { signal: controller.signal }));
      await expect.poll(() => bob.client.stats().running).toBe(1);
      controller.abort("enough");
      expect(await called).toBe("enough");
      await expect.poll(() => aborted).toBe(1);
    });

    it("notify the other nodes, which handle it by `nodes.methods`", async () => {
      a.server.nodes.notify("reload", { n: 1 });
      a.server.nodes.notify("unknown", { n: 2 });
      a.server.nodes.notify("reload", { n: 3 });
      await expect.poll(() => notified.length).toBe(4);
      const { id } = a.server.nodes;
      for (const place of [1, 2])
        expect(notified.filter(([node]) => node === place)).toEqual([
          [place, { n: 1 }, id],
          [place, { n: 3 }, id],
        ]);
    });

    it("count the frames that they send and receive", async () => {
      const [, bob] = await members("room");
      const [sender, receiver] = [countsOf(a), countsOf(b)];
      for (let n = 1; n <= 10; n++) topic(a).notify("said", { n });
      expect(countsOf(a).sent).toBeGreaterThanOrEqual(sender.sent + 10);
      await bob.until(10);
      expect(countsOf(b).received).toBeGreaterThanOrEqual(receiver.received + 10);
      for (const node of nodes)
        expect(countsOf(node)).toMatchObject({ dropped: 0, foreign: 0, reconnects: 0, nodes: 3 });
    });

    it("ignore foreign and broken frames, and count them", async () => {
      const clients = await members("room");
      const at = has("log") ? await topic(a).publish("said", { n: 1 }) : "epoch.1";
      const { connection } = await TestNode.open(rig.engine(), "sender");
      for (const channel of ["t:room", "a:all", `n:${b.server.nodes.id}`] as const)
        for (const frame of FOREIGN_FRAMES) await connection.send(channel, frame);
      const expected = [2, 3, 2].map((channels) => channels * FOREIGN_FRAMES.length);
      await expect.poll(() => nodes.map((node) => countsOf(node).foreign)).toEqual(expected);
      // Frames of entries that the log does not have.
      await connection.send("t:room", `1L\t${at.split(".")[0]}\t99\n${EVIL}`);
      await connection.send("t:room", `1L\tother\t1\n${EVIL}`);
      topic(a).notify("said", { n: 2 });
      if (has("log")) await topic(c).publish("said", { n: 3 });
      const sent = has("log") ? [1, 2, 3] : [2];
      for (const client of clients) expect(new Set(await numbers(client, sent.length))).toEqual(new Set(sent));
      // Nothing that the log does not have.
      if (has("log")) expect(await topic(b).read({ since: at })).toMatchObject({ outcome: "complete", entries: [{}] });
      expect(clients.flatMap(({ got }) => got.map(([method]) => method))).not.toContain("evil");
      expect(clients.map(({ got }) => got.length)).toEqual(clients.map(() => sent.length));
      for (const { peer, client } of clients) expect([peer.state, client.state]).toEqual(["open", "open"]);
      for (const node of nodes) expect(countsOf(node)).toMatchObject({ gaps: 0, dropped: 0, reconnects: 0 });
    });

    it("reach all peers of a principal, and all nodes", async () => {
      const clients = [await a.client("ann"), await b.client("ann"), await c.client("bob")];
      const { peers, unheard } = await c.server.principal("ann").peers();
      expect(new Set(peers.map(({ id }) => id))).toEqual(new Set(clients.slice(0, 2).map(({ peer }) => peer.id)));
      expect(unheard).toEqual([]);
      a.server.principal("ann").notify("toast");
      for (const client of clients.slice(0, 2)) await client.until(1);
      expect(clients[2]!.got).toEqual([]);
      expect((await c.server.principal("ann").disconnect(4003, "banned")).closed).toBe(2);
      for (const { peer } of clients.slice(0, 2)) expect(await peer.closed).toMatchObject({ code: 4003 });
    });

    it("leave nothing in the broker when they are closed", async () => {
      const [ann] = await members("room");
      if (has("roster")) await a.server.topic("other").join(ann.peer, { as: 1 });
      await closeAll(nodes);
      await untilNothingLeft(rig);
    });
  });
}
