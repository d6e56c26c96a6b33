/** The life of a node: its start, its beats, its end, `server.nodes` and `attach`. */
import { describe, expect, it } from "vitest";
import { attach, EngineError, memory, serve } from "../../src/node.js";
import { pass } from "../support/time.js";
import { rejection, turn } from "../support/turns.js";
import { FaultyEngine } from "./faulty.js";
import { joinSilent } from "../server/members.js";
import { closeAll, makeNode, makeNodes, settled, useFleet, type Node } from "./nodes.js";

useFleet();

const TOPICS = { topics: () => ({ log: { length: 10, ttlMs: 60_000 }, members: true as const }) };
const principal = ({ name }: { name: string }): string => name;
/** After this time, the nodes know each other. */
const BEAT_MS = 4_000;
const NOT_SENT = { outcome: "not-sent" };

/** Makes an engine whose next connection waits for `up` of its link. */
function lateEngine(settings?: object): FaultyEngine {
  const engine = new FaultyEngine(settings);
  engine.isLate = true;
  return engine;
}

const raise = (error: Error): never => {
  throw error;
};

it("server.nodes notifies the other nodes, which emit as `error` what a handler throws or rejects with", async () => {
  const errors: unknown[] = [];
  const methods = {
    fail: ({ n }: any, { from }: any) => raise(new Error(`${n} ${from}`)),
    reject: ({ n }: any, { from }: any) => Promise.reject(new Error(`${n} ${from}`)),
  };
  const nodes = makeNodes(2, { nodes: { methods } });
  for (const { server } of nodes) server.on("error", (error) => errors.push((error as Error).message));
  const [{ nodes: others }] = nodes.map(({ server }) => server) as [Node["server"]];
  await turn();
  for (const [n, method] of ["fail", "reject", "none"].entries()) others.notify(method, { n });
  await turn();
  expect(errors).toEqual([`0 ${others.id}`, `1 ${others.id}`]);
});

const EVIL = '{"jsonrpc":"2.0","method":"evil","params":{}}';
/** Texts that are no frames, or have no meaning. */
const FOREIGN_FRAMES = [
  ...["", "\n", "1N", "1\n", "1l", "1u\n{}", "1j\tx\ty\n{}", "1m\tx\troom\t1\t0\t1\n{}"].concat(
    "a frame without a line break",
    "1N\t".repeat(100_000),
  ),
  ...["1N\tx", "1O\tx\ty", "1s\tx"].map((head) => `${head}\nnot JSON`),
  ...["[]", `[${EVIL}]`, EVIL.replace('2.0"', '2.0","id":1')].map((body) => `1N\tx\n${body}`),
  ...["2N\tx", "1NN\tx", "1?\tx", "1q", `1N\tx\t${"y".repeat(100_000)}`].map((head) => `${head}\n${EVIL}`),
  ...["e", "e\t0", "e\t-1", "e\t1e9", `e\t${"9".repeat(400)}`, "\t2", "x y\t2", `${"x".repeat(65)}\t2`].map(
    (place) => `1L\t${place}\n${EVIL}`,
  ),
];

it("a node counts foreign and broken frames on each channel, and ignores them", async () => {
  const engine = new FaultyEngine();
  const [a, b] = makeNodes(2, { ...TOPICS, principal }, engine) as [Node, Node];
  const clients = [await a.client(), await b.client()];
  for (const [i, { server }] of [a, b].entries()) await server.topic("room").join(clients[i]!.peer);
  const foreign = await engine.foreign();
  for (const channel of ["t:room", "a:all", `n:${b.server.nodes.id}`] as const)
    for (const frame of FOREIGN_FRAMES) await foreign.send(channel, frame);
  a.server.topic("room").notify("end");
  for (const { until } of clients) expect(await until(1)).toEqual([["end", undefined]]);
  for (const [i, { server }] of [a, b].entries())
    expect(server.stats().engine).toMatchObject({ foreign: (2 + i) * FOREIGN_FRAMES.length, gaps: 0, dropped: 0 });
  await foreign.close();
});

const said = (n: number): [string, object] => ["said", { n }];

describe("attach", () => {
  it("notifies, publishes, reads, watches, calls and finds, without a client", async () => {
    const engine = memory();
    const node = makeNode({ engine, ...TOPICS, principal }, { add: ([x, y]: number[]) => x! + y! });
    const worker = await attach({ engine, ...TOPICS, nodes: { methods: {} } });
    const topic = worker.topic("room");
    const events: unknown[] = [];
    topic.watch((event, member) => events.push([event, member.as]));
    const [ann, bob] = [await node.client("ann"), await node.client("bob")];
    await node.server.topic("room").join(ann.peer, { as: "ann" });
    await node.server.topic("room").join(bob.peer, { as: "bob" });
    topic.notify(...said(1), { except: bob.peer.id });
    const at = await topic.publish(...said(2));
    worker.principal("bob").notify(...said(3));
    worker.peer(ann.peer.id).notify(...said(4));
    topic.notify(...said(5), { except: new Set([ann.peer.id, bob.peer]) });
    topic.notify("end");
    const published = ["said", { n: 2, at }];
    expect(await ann.until(4)).toEqual([said(1), published, said(4), ["end", undefined]]);
    expect(await bob.until(3)).toEqual([published, said(3), ["end", undefined]]);
    expect(await worker.peer(ann.peer.id).request("add", [1, 2])).toBe(3);
    expect((await topic.members()).map(({ as }) => as)).toEqual(["ann", "bob"]);
    expect((await topic.read()).entries).toHaveLength(1);
    expect((await worker.principal("ann").peers()).peers.map(({ id }) => id)).toEqual([ann.peer.id]);
    expect(events).toEqual(["ann", "bob"].map((as) => ["joined", as]));
    expect(worker.health().ok).toBe(true);
    await worker.close();
    expect(await rejection(worker.peer(ann.peer.id).request("add", [1, 2]))).toMatchObject(NOT_SENT);
  });

  it("refuses options, names, peers and events that it cannot take", async () => {
    const engine = memory();
    const node = makeNode({ engine, principal });
    const worker = await attach({ engine });
    const { client, peer } = await node.client();
    for (const except of [true, client, { id: peer.id }])
      expect(() => worker.topic("room").notify("said", {}, { except: except as never })).toThrow("Expected `except`");
    const handles = [worker, node.server].flatMap((server) => [
      server.peer(peer.id),
      server.principal("bob"),
      server.nodes,
    ]);
    for (const handle of handles)
      for (const options of [{ volatile: true }, {}, null])
        expect(() => (handle.notify as any)("said", {}, options)).toThrow("Expected `options` to be absent");
    for (const name of [undefined, 5, "", "x".repeat(513), "\ud800"])
      expect(() => worker.topic(name as string)).toThrow("a well-formed string of 1 to 512 bytes of UTF-8");
    expect(() => worker.on("other" as never, () => {})).toThrow("known are engine, gap, error");
    await worker.close();
    await expect(attach({} as never)).rejects.toThrow("Expected `engine` to be an engine");
  });
});

describe("the start", () => {
  it("rejects if the broker cannot be reached in time, with the last error of the engine if there was one", async () => {
    const engines = [lateEngine({ startTimeoutMs: 30 }), lateEngine({ startTimeoutMs: 30 })] as const;
    const failing = [serve({ noServer: true, engine: engines[0] }), attach({ engine: engines[1] })].map(rejection);
    await Promise.all(engines.map(({ linked }) => linked.promise));
    engines[0].links[0]!.host.down(new EngineError("could not connect to example:6379", "not-sent"));
    const [first, second] = await settled(Promise.all(failing));
    expect(first).toMatchObject({ code: "ENGINE", message: "could not connect to example:6379" });
    expect(second).toMatchObject({ code: "ENGINE", message: expect.stringContaining("30 ms") });
    for (const engine of engines) expect(await engine.leftovers()).toEqual([]);
  });

  it("answers a question that comes before it knows the broker, as soon as it does", async () => {
    const engine = lateEngine();
    makeNode({ engine, principal });
    await turn();
    const got: string[] = [];
    const asking = await engine.foreign("asking-1e", got);
    const [link] = engine.links;
    link!.host.received("a:all", "1x\t1\tasking-1e\tnobody\t1000\nnull");
    link!.up();
    await pass(0);
    expect(got.filter((frame) => /^1a\t1\t.*\tlost\tnot-sent\nnull$/.test(frame))).toHaveLength(1);
    await asking.close();
  });

  it("continues without the broker with `startWithout`, and joins the fleet later", async () => {
    const engine = lateEngine({ startTimeoutMs: 10, startWithout: true });
    const serving = serve({ noServer: true, engine });
    await engine.linked.promise;
    const server = await settled(serving);
    const states: string[] = [];
    server.on("engine", ({ state }) => states.push(state));
    expect(server.health()).toMatchObject({ ok: false, engine: "down" });
    const { peer } = joinSilent(server);
    await expect(server.topic("room").add(peer).join(peer)).rejects.toMatchObject(NOT_SENT);
    engine.links[0]!.up();
    await pass(0);
    expect([server.health().ok, states]).toEqual([true, ["up"]]);
    await server.topic("room").join(peer);
    await settled(server.close());
  });

  it("emits as `error` that the broker refuses it for good, if it continued without", async () => {
    const engine = lateEngine({ startTimeoutMs: 10, startWithout: true });
    const serving = serve({ noServer: true, engine });
    await engine.linked.promise;
    const server = await settled(serving);
    const errors: unknown[] = [];
    server.on("error", (error) => errors.push(error));
    const refusal = new EngineError("wrong password", "not-sent");
    engine.links[0]!.refuse(refusal);
    await pass(0);
    expect([errors, server.health().ok]).toEqual([[refusal], false]);
    await expect(server.topic("room").join(joinSilent(server).peer)).rejects.toMatchObject({ cause: refusal });
    await settled(server.close());
  });

  it("rejects for an engine, topics and methods of nodes that are none", async () => {
    await expect(serve({ noServer: true, engine: {} as never })).rejects.toThrow("Expected `engine` to be an engine");
    await expect(serve({ noServer: true, nodes: { methods: { a: 1 } } as never })).rejects.toThrow("nodes.methods.a");
    await expect(serve({ noServer: true, topics: 1 as never })).rejects.toThrow("Expected `topics` to be a function");
  });

  it("leaves nothing if the address is in use", async () => {
    const engine = new FaultyEngine();
    const first = await serve({ port: 0, engine });
    const port = Number(new URL(first.url).port);
    await expect(serve({ port, engine })).rejects.toMatchObject({ code: "EADDRINUSE" });
    await first.close();
    expect(await engine.leftovers()).toEqual([]);
  });
});

describe("the end", () => {
  it("leaves no key, no subscription and no timer, and what comes later is `not-sent`", async () => {
    const engine = new FaultyEngine();
    const nodes = makeNodes(2, TOPICS, engine);
    const [a, b] = nodes as [Node, Node];
    const [ann, bob] = [await a.client(), await b.client()];
    const stop = a.server.topic("watched").watch(() => {});
    const topic = a.server.topic("room");
    await topic.join(ann.peer, { as: 1 });
    await b.server.topic("room").join(bob.peer, { as: 2 });
    await b.server.topic("room").publish("said");
    const call = rejection(a.server.peer(bob.peer.id).request("never"));
    b.server.topic("room").delete(bob.peer);
    engine.links[0]!.down();
    const waiting = rejection(topic.publish("said", {}, { timeoutMs: 60_000 }));
    await settled(closeAll(nodes));
    expect(await waiting).toMatchObject(NOT_SENT);
    await settled(call);
    stop();
    expect(await engine.leftovers()).toEqual([]);
    // A closed server throws nothing and sends nothing.
    topic.notify("said");
    for (const late of [topic.join(ann.peer), topic.publish("said"), topic.members()])
      await expect(late).rejects.toMatchObject(NOT_SENT);
    expect(await engine.leftovers()).toEqual([]);
  });

  it("leaves no timer if the connection is lost and restored meanwhile", async () => {
    const engine = new FaultyEngine();
    const [a] = makeNodes(1, TOPICS, engine) as [Node];
    const ann = await a.client();
    await a.server.topic("room").join(ann.peer, { as: 1 });
    const [link] = engine.links;
    const answer = link!.blocks("send");
    const closing = a.server.close();
    await pass(0);
    link!.down();
    link!.up();
    answer.resolve();
    await settled(closing);
  });
});

describe("the beats of a node", () => {
  it("that come back late do not make it connect anew", async () => {
    const engine = new FaultyEngine();
    const [node] = makeNodes(1, {}, engine) as [Node];
    const [link] = engine.links;
    // Each takes longer than the time between two.
    link!.loses = (channel, frame) => {
      if (frame.startsWith("1b")) setTimeout(() => link!.host.received(channel, frame), BEAT_MS);
      return frame.startsWith("1b");
    };
    await pass(60_000);
    expect([link!.reconnects, node.server.health().lagMs! >= BEAT_MS]).toEqual([0, true]);
    link!.loses = () => false;
    await pass(BEAT_MS);
  });

  it("measure the lag, and two that do not come back make it connect anew", async () => {
    const engine = new FaultyEngine();
    const [node] = makeNodes(1, {}, engine) as [Node];
    const [link] = engine.links;
    await pass(2_000);
    expect(node.server.health().lagMs).toBe(0);
    const states: string[] = [];
    node.server.on("engine", ({ state }) => states.push(state));
    link!.loses = (_channel, frame) => frame.startsWith("1b");
    await pass(2 * BEAT_MS);
    expect([link!.reconnects, node.server.health().lagMs! > 3_000]).toEqual([0, true]);
    await pass(BEAT_MS);
    expect([link!.reconnects, states]).toEqual([1, ["down", "up"]]);
    link!.loses = () => false;
    await pass(BEAT_MS);
    expect(node.server.health()).toMatchObject({ ok: true, lagMs: 0 });
  });
});

it("a node that was paused for two beats gives up no other one whose last beat came a beat before the pause", async () => {
  const engine = new FaultyEngine({ leaseMs: 9_000 });
  const { server } = makeNode({ engine });
  const other = await engine.foreign("other");
  await pass(2_990);
  await other.send("a:all", "1b\tother\t1\t9000\t\n");
  await pass(3_010);
  engine.links[0]!.hold();
  await pass(6_000);
  engine.links[0]!.release();
  expect(server.nodes.live).toContain("other");
});

it("beats pass when as much is unanswered as may be, and bulk work waits behind 128 frames", async () => {
  const engine = new FaultyEngine();
  const [a] = makeNodes(1, TOPICS, engine) as [Node];
  const ann = await a.client("ann");
  for (let i = 0; i < 300; i++) await a.server.topic(`room ${i}`).join(ann.peer, { as: 1 });
  const [link] = engine.links;
  const sent = (): number => link!.count("send");
  link!.down();
  const answer = link!.blocks("send");
  const before = sent();
  link!.up();
  await pass(10);
  // A beat and the numbers of members.
  expect(sent() - before).toBe(1 + 128);
  for (let i = 0; i < 10_000; i++) a.server.topic("room 1").notify("said");
  const { dropped } = a.server.stats().engine!;
  expect(dropped).toBeGreaterThan(0);
  const full = sent();
  await pass(BEAT_MS);
  expect([sent() - full, a.server.stats().engine!.dropped]).toEqual([1, dropped]);
  link!.before = () => {};
  answer.resolve();
  await pass(10);
  expect(sent() - full).toBeGreaterThan(171);
});

describe("a setting of the broker that weakens a promise", () => {
  const EVICTS = "the broker may evict logs";

  it("is read again at each connect, and emitted once until it is cured", async () => {
    const engine = new FaultyEngine();
    const [node] = makeNodes(1, {}, engine) as [Node];
    const errors: unknown[] = [];
    node.server.on("error", (error) => errors.push((error as Error).message));
    await pass(10);
    const reconnect = async (...unmet: string[]): Promise<unknown[]> => {
      Object.assign(engine.links[0]!.facts!, { unmet });
      engine.links[0]!.reconnect();
      await pass(10);
      return errors.splice(0);
    };
    expect(await reconnect()).toEqual([]);
    expect(await reconnect(EVICTS)).toEqual([EVICTS]);
    expect(await reconnect(EVICTS)).toEqual([]);
    expect(await reconnect("it is slow", EVICTS)).toEqual(["it is slow"]);
    expect(await reconnect()).toEqual([]);
    expect(await reconnect(EVICTS)).toEqual([EVICTS]);
  });

  it("is emitted to a listener that is added after the start, and by no server that has closed before", async () => {
    const engine = new FaultyEngine();
    engine.facts = { unmet: [EVICTS] };
    const errors: unknown[] = [];
    const start = (): ReturnType<typeof serve> => serve({ noServer: true, engine });
    const nodes = [await start(), await attach({ engine }), await start()];
    for (const node of nodes as { on(event: "error", listener: (error: unknown) => void): unknown }[])
      node.on("error", (error) => errors.push(error));
    await nodes[2]!.close();
    expect(errors).toEqual([]);
    await pass(1);
    expect(errors).toEqual([new Error(EVICTS), new Error(EVICTS)]);
    await Promise.all(nodes.map((node) => node.close()));
  });
});
