/** Servers over an engine: what an application sees is the same for every engine, also while its broker fails. */
import { expect, describe, it, onTestFinished } from "vitest";
import type { Engine, EngineStats } from "../../src/node.js";
import { closeAll, makeNode, makeNodes, type Client, type Node } from "../fleet/nodes.js";
import { isInGap, type Arrival } from "../long/fleet/oracle.js";
import { rejection } from "../support/turns.js";
import type { BrokerKind, Group } from "./failures.js";
import { isAscending, TestNode, TOPIC, untilNothingLeft, use, type EngineRig } from "./kit.js";

const NOT_SENT = { name: "EngineError", code: "ENGINE", outcome: "not-sent" };
const LOG = { length: 10_000, ttlMs: 60_000 };
/** As many publications wait for a broker. */
const MAX_WAITING = 1_000;
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

const topicOf = ({ server }: Node): ReturnType<Node["server"]["topic"]> => server.topic(TOPIC);
const nameOf = ({ name }: { name: string }): string => name;
const countsOf = ({ server }: Node): EngineStats => server.stats().engine!;
const numbersOf = ({ got }: Client): number[] => got.map(([, { n }]) => n as number);
/** Expects that a client gets exactly these numbers, in any order. */
const expectNumbers = async (client: Client, numbers: readonly number[]): Promise<void> => {
  const got = await client.until(numbers.length);
  expect(got).toHaveLength(numbers.length);
  expect(new Set(numbersOf(client))).toEqual(new Set(numbers));
};

/** Three nodes of one rig, with a member each of one topic. */
async function openThree(rig: EngineRig): Promise<{
  nodes: [Node, Node, Node];
  clients: [Client, Client, Client];
  has(capability: "log" | "roster"): boolean;
  /** What the nodes were notified of, with the place of each in `nodes`. */
  notified: [place: number, params: unknown, from: string][];
}> {
  const has = (capability: "log" | "roster"): boolean => rig.lacks?.includes(capability) !== true;
  const topics = (): object => ({ ...(has("log") && { log: LOG }), ...(has("roster") && { members: true }) });
  const methods = {
    add: ([x, y]: number[]) => x! + y!,
    count: ({ to }: { to: number }, { progress }: { progress: (value: unknown) => void }) => {
      for (let i = 1; i <= to; i++) progress(i);
    },
    never: () => new Promise(() => {}),
  };
  const notified: [number, unknown, string][] = [];
  const nodes = [0, 1, 2].map((place) => {
    const reload = (params: unknown, { from }: { from: string }): void => void notified.push([place, params, from]);
    return makeNode({ engine: rig.engine(), topics, principal: nameOf, nodes: { methods: { reload } } }, methods);
  });
  onTestFinished(async () => {
    await closeAll(nodes);
    await untilNothingLeft(rig);
  });
  await expect.poll(() => nodes.every(({ server }) => server.health().ok)).toBe(true);
  // A node learns of those that started after it when it beats again.
  await expect.poll(() => nodes.map(({ server }) => server.nodes.live.length)).toEqual([3, 3, 3]);
  const clients = await Promise.all(nodes.map((node, i) => node.client(["ann", "ann", "bob"][i])));
  await Promise.all(clients.map(({ peer }, i) => topicOf(nodes[i]!).join(peer)));
  return { nodes: nodes as [Node, Node, Node], clients: clients as [Client, Client, Client], has, notified };
}

/** Runs the tests over the rig of each test. */
export function describeServers(rigOf: () => EngineRig): void {
  describe("three servers", () => {
    it("notify the members of a topic, all peers, those of a principal, and all nodes, once", async () => {
      const { nodes, clients, notified } = await openThree(rigOf());
      const [a, b, c] = nodes;
      const [ann, bob, eve] = clients;
      topicOf(a).notify("said", { n: 1 }, { except: bob.peer.id });
      topicOf(a).notify("said", { n: 2 }, { here: true });
      a.server.peers.notify("said", { n: 3 }, { except: a.server.peer(eve.peer.id) });
      c.server.principal("ann").notify("said", { n: 4 });
      // The last ones of both channels.
      topicOf(a).notify("said", { n: 5 });
      a.server.peers.notify("said", { n: 6 });
      const expected = [
        [ann, [1, 2, 3, 4, 5, 6]],
        [bob, [3, 4, 5, 6]],
        [eve, [1, 5, 6]],
      ] as const;
      for (const [client, numbers] of expected) await expectNumbers(client, numbers);
      expect(countsOf(a).sent).toBeGreaterThanOrEqual(5);
      expect(countsOf(b).received).toBeGreaterThanOrEqual(4);
      for (const node of nodes)
        expect(countsOf(node)).toMatchObject({ dropped: 0, foreign: 0, reconnects: 0, nodes: 3 });
      for (const [method, n] of [["reload", 1] as const, ["unknown", 2] as const, ["reload", 3] as const])
        a.server.nodes.notify(method, { n });
      await expect.poll(() => notified.length).toBe(4);
      const calls = [1, 3].map((n) => [{ n }, a.server.nodes.id]);
      for (const place of [1, 2])
        expect(notified.filter(([node]) => node === place)).toEqual(calls.map((call) => [place, ...call]));
      const { peers, unheard } = await c.server.principal("ann").peers();
      expect(new Set(peers.map(({ id }) => id))).toEqual(new Set([ann, bob].map(({ peer }) => peer.id)));
      expect(unheard).toEqual([]);
      expect((await c.server.principal("ann").disconnect(4003, "banned")).closed).toBe(2);
      for (const { peer } of [ann, bob]) expect(await peer.closed).toMatchObject({ code: 4003 });
    });

    it("publish in one order for all, and recover what a client has missed", async () => {
      const { nodes, clients, has } = await openThree(rigOf());
      const [a, b, c] = nodes;
      if (!has("log")) return expect(topicOf(a).publish("said")).rejects.toThrow("has no log");
      const all = Array.from({ length: 60 }, (_, n) => topicOf(nodes[n % 3]!).publish("said", { n }));
      const [at] = await Promise.all(all);
      const [got, ...others] = await Promise.all(clients.map((client) => client.until(60)));
      for (const other of others) expect(other).toEqual(got);
      const returned = await c.client();
      const last = got!.at(-1)![1].at;
      expect(await topicOf(c).join(returned.peer, { since: at })).toEqual({ at: last, outcome: "complete" });
      const missed = got!.slice(got!.findIndex(([, params]) => params.at === at) + 1);
      expect(await returned.until(missed.length)).toEqual(missed);
      const { outcome, entries } = await topicOf(b).read({ since: at });
      expect([outcome, entries.length]).toEqual(["complete", missed.length]);
    });

    it("know the members of a topic on all nodes, and each that joins, changes or leaves", async () => {
      const { nodes, clients, has } = await openThree(rigOf());
      const [a, , c] = nodes;
      const [ann] = clients;
      if (!has("roster")) return expect(topicOf(a).join(ann.peer, { as: 1 })).rejects.toThrow("requires the rule");
      const events: unknown[] = [];
      topicOf(c).watch((event, { as }) => events.push([event, as]));
      expect(await topicOf(c).members()).toEqual([]);
      for (const as of ["ann", "away"]) {
        await topicOf(a).join(ann.peer, { as });
        for (const node of nodes) expect(await topicOf(node).members()).toEqual([{ id: ann.peer.id, as }]);
      }
      await ann.client.close();
      const expected = ["joined ann", "joined away", "left away"].map((event) => event.split(" "));
      await expect.poll(() => events).toEqual(expected);
      for (const node of nodes) expect(await topicOf(node).members()).toEqual([]);
    });

    it("call, notify and close a peer of another node, with true outcomes", async () => {
      const rig = rigOf();
      const { nodes, clients } = await openThree(rig);
      const [{ server }, b] = nodes;
      const [, bob] = clients;
      const handle = server.peer(bob.peer.id);
      expect(await handle.request("add", [1, 2])).toBe(3);
      const seen: unknown[] = [];
      await handle.request("count", { to: 3 }, { onProgress: (value) => void seen.push(value) });
      expect(seen).toEqual([1, 2, 3]);
      for (const id of [`${b.server.nodes.id}.none`, "", "none", "*.x", ">.x"])
        expect(await rejection(server.peer(id).request("add", [1, 2]))).toMatchObject({ outcome: "not-sent" });
      // Over a broker that may miss a receiver, only the list of living nodes says that there is no such node.
      const outcome = (await TestNode.open(rig.engine())).facts!.undercounts === true ? "unknown" : "not-sent";
      const unknown = await rejection(server.peer("none.x").request("add", [1, 2]));
      expect(unknown).toMatchObject({ code: "CONNECTION_LOST", outcome });
      const controller = new AbortController();
      const cancelled = rejection(handle.request("never", {}, { signal: controller.signal }));
      await expect.poll(() => bob.client.stats().running).toBe(1);
      controller.abort("enough");
      expect(await cancelled).toBe("enough");
      await expect.poll(() => bob.peer.stats().pending).toBe(0);
      const pending = rejection(handle.request("never"));
      await expect.poll(() => bob.client.stats().running).toBeGreaterThan(0);
      handle.notify("toast");
      await bob.until(1);
      await handle.close(4001, "moved");
      expect(await pending).toMatchObject({ code: "CONNECTION_LOST", outcome: "unknown" });
      expect(await bob.peer.closed).toMatchObject({ code: 4001 });
    });

    it("ignore foreign and broken frames, and count them", async () => {
      const rig = rigOf();
      const { nodes, clients, has } = await openThree(rig);
      const [a, b, c] = nodes;
      const at = has("log") ? await topicOf(a).publish("said", { n: 1 }) : "epoch.1";
      const { connection } = await TestNode.open(rig.engine(), "sender");
      for (const channel of [`t:${TOPIC}`, "a:all", `n:${b.server.nodes.id}`] as const)
        for (const frame of FOREIGN_FRAMES) await connection.send(channel, frame);
      const foreign = [2, 3, 2].map((channels) => channels * FOREIGN_FRAMES.length);
      await expect.poll(() => nodes.map((node) => countsOf(node).foreign)).toEqual(foreign);
      // Frames of entries that the log does not have.
      for (const place of [`${at.split(".")[0]}\t99`, "other\t1"])
        await connection.send(`t:${TOPIC}`, `1L\t${place}\n${EVIL}`);
      topicOf(a).notify("said", { n: 2 });
      if (has("log")) await topicOf(c).publish("said", { n: 3 });
      const sent = has("log") ? [1, 2, 3] : [2];
      for (const client of clients) {
        await expectNumbers(client, sent);
        expect([client.peer.state, client.client.state]).toEqual(["open", "open"]);
      }
      if (has("log"))
        expect(await topicOf(b).read({ since: at })).toMatchObject({ outcome: "complete", entries: [{}] });
      for (const node of nodes) expect(countsOf(node)).toMatchObject({ gaps: 0, dropped: 0, reconnects: 0 });
    });
  });
}

interface Room {
  readonly a: Node;
  readonly b: Node;
  readonly ann: Client;
  readonly bob: Client;
  untilAll(state: "up" | "down"): Promise<void>;
}

/** Resolves when the connection of a node to the broker is up, or down. */
async function untilEngine({ server }: Node, state: "up" | "down"): Promise<void> {
  while (server.health().engine !== state)
    await new Promise<void>((resolve) => {
      const listener = (): void => {
        server.off("engine", listener);
        resolve();
      };
      server.on("engine", listener);
    });
}

/** Two nodes, with a member each. */
async function openRoom(engines: [a: Engine, b: Engine], methodsOfClients: object = {}): Promise<Room> {
  const methods = {
    add: ([x, y]: [number, number]) => x + y,
    type: (params: object, { server }: { server: Node["server"] }) => server.topic(TOPIC).notify("typing", params),
  };
  const rules = { topics: () => ({ log: LOG, members: true }), methods };
  const [a, b] = engines.map((engine) => makeNode({ engine, ...rules }, methodsOfClients)) as [Node, Node];
  const [ann, bob] = [await a.client("ann"), await b.client("bob")];
  await topicOf(a).join(ann.peer, { as: "ann" });
  await topicOf(b).join(bob.peer, { as: "bob" });
  const untilAll = async (state: "up" | "down"): Promise<void> => {
    await Promise.all([a, b].map((node) => untilEngine(node, state)));
  };
  onTestFinished(() => closeAll([a, b]));
  return { a, b, ann, bob, untilAll };
}

/** Runs the tests over one kind of broker, which loses everything when it is killed. */
export function describeServerFailures({ name, create }: BrokerKind): void {
  describe(`servers over ${name}`, () => {
    it("close no peer and block no handler without a broker, publish afterwards, and report a gap", async () => {
      const broker = use(await create());
      // With a short lease, a busy machine would miss its echoes.
      const engine = broker.rig({ settings: { leaseMs: 60_000 } }).engine();
      const { a, b, ann, bob, untilAll } = await openRoom([engine, engine]);
      const gaps: unknown[] = [];
      b.server.on("gap", (topic) => gaps.push(topic));
      const at = await topicOf(a).publish("said", { n: -1 });
      await Promise.all([ann, bob].map((client) => client.until(1)));
      await broker.server.kill();
      await untilAll("down");
      // An echo that was on its way when the broker ended counts as dropped too.
      await expect.poll(() => countsOf(a).pendingBytes).toBe(0);
      const { dropped } = countsOf(a);
      expect(await bob.client.request("add", [1, 2])).toBe(3);
      await ann.client.request("type", { n: 1 });
      expect((await ann.until(2))[1]).toEqual(["typing", { n: 1 }]);
      expect(countsOf(a).dropped).toBe(dropped + 1);
      const eve = await b.client("eve");
      expect(await rejection(topicOf(b).join(eve.peer, { as: "eve" }))).toMatchObject(NOT_SENT);
      const publish = (n: number): Promise<string> => topicOf(a).publish("said", { n }, { timeoutMs: 240_000 });
      const queued = Array.from({ length: MAX_WAITING }, (_, n) => publish(n));
      expect(await rejection(publish(MAX_WAITING))).toMatchObject(NOT_SENT);
      await broker.server.start();
      await untilAll("up");
      const positions = await Promise.all(queued);
      const said = positions.map((position, n) => ["said", { n, at: position }]);
      // What was notified while there was no broker arrived at the peers of its node only.
      await expect.poll(() => bob.got.slice(1)).toEqual(said);
      await expect.poll(() => ann.got.slice(2)).toEqual(said);
      await expect.poll(async () => (await topicOf(a).members()).length).toBe(2);
      await expect.poll(() => gaps).toContain(TOPIC);
      expect((await topicOf(b).join(eve.peer, { since: at })).outcome).toBe("gap");
      expect([ann, bob, eve].map(({ peer }) => peer.state)).toEqual(["open", "open", "open"]);
    });

    it("give up a node that was cut off for longer than its lease, and its peers notice nothing", async () => {
      const broker = use(await create());
      const relay = use(await broker.relay());
      const rig = broker.rig();
      const cutOff = broker.rig({ prefix: rig.prefix, port: relay.port });
      const methods = { add: ([x, y]: number[]) => x! + y!, never: () => new Promise(() => {}) };
      const { a, ann, bob, untilAll } = await openRoom([rig.engine(), cutOff.engine()], methods);
      const events: string[] = [];
      topicOf(a).watch((event, { as }) => events.push(`${event} ${as as string}`));
      await topicOf(a).members();
      await expect.poll(() => a.server.nodes.live).toHaveLength(2);
      const handle = a.server.peer(bob.peer.id);
      expect(await handle.request("add", [1, 2])).toBe(3);
      const call = rejection(handle.request("never", undefined, { timeoutMs: 240_000 }));
      relay.pause();
      expect(await call).toMatchObject({ name: "ConnectionLostError", outcome: "unknown" });
      await expect.poll(() => topicOf(a).members()).toEqual([{ id: ann.peer.id, as: "ann" }]);
      expect(await bob.client.request("add", [1, 2])).toBe(3);
      relay.mend();
      await expect.poll(() => events.filter((event) => event.endsWith("bob"))).toEqual(["left bob", "joined bob"]);
      await untilAll("up");
      expect(await handle.request("add", [3, 4])).toBe(7);
      expect(bob.peer.state).toBe("open");
    });
  });
}

/** Runs the test over servers that replace each other. */
export function describeServerFailover(groupOf: () => Group): void {
  it("servers lose no acknowledged message silently while another server of the broker takes over", async () => {
    const group = groupOf();
    const rig = await group.rig({ leaseMs: 3_000 });
    const nodes = makeNodes(2, { topics: () => ({ log: LOG }) }, rig.engine());
    onTestFinished(() => closeAll(nodes));
    const clients: Client[] = [];
    for (const node of nodes) {
      node.server.on("gap", () => topicOf(node).notify("missed", {}, { here: true }));
      const client = await node.client();
      await topicOf(node).join(client.peer);
      clients.push(client);
    }
    const acked = new Set<string>();
    const publish = (n: number, i = n % 2): Promise<boolean> =>
      topicOf(nodes[i]!)
        .publish("said", { n })
        .then(
          (at) => acked.add(at) !== undefined,
          // Refused, or of unknown outcome: neither is acknowledged.
          () => false,
        );
    let n = 0;
    while (acked.size < 50) await publish(n++);
    const failover = { isOver: false };
    const over = group
      .failover(rig, "kill")
      .then(async ({ replaced, restore }) => {
        await replaced();
        await restore();
      })
      .finally(() => (failover.isOver = true));
    while (!failover.isOver) await publish(n++);
    await over;
    while (!(await publish(n++)));
    for (const client of clients) {
      await expect.poll(() => numbersOf(client)).toContain(n - 1);
      const arrivals = client.got.map(([method, { at, n: number }]): Arrival =>
        method === "missed" ? { kind: "missed" } : { kind: "said", at, n: number, time: 0 },
      );
      const said = arrivals.filter((arrival) => arrival.kind === "said");
      expect(new Set(said.map((one) => one.n)).size).toBe(said.length);
      // A publication of unknown outcome may be logged late, after those that were published later.
      expect(isAscending(said.flatMap((one) => (acked.has(one.at) ? [one.n] : [])))).toBe(true);
      const there = new Set(said.map(({ at }) => at));
      expect([...acked].filter((at) => !there.has(at) && !isInGap(arrivals, at))).toEqual([]);
      expect(arrivals).toContainEqual({ kind: "missed" });
    }
  });
}
