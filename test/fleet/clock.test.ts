/** What happens after seconds and minutes, with the clock of the test. */
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { gate } from "../support/turns.js";
import { EngineError } from "../../src/fleet/engine.js";
import { FaultyEngine } from "./faulty.js";
import { closeAll, makeNode, makeNodes, type Node } from "./nodes.js";

let nodes: Node[] = [];
beforeEach(() => void vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] }));
afterEach(async () => {
  await closeAll(nodes);
  vi.useRealTimers();
});

it("a node heals a log every 60 s, although the connection seems healthy", async () => {
  const engine = new FaultyEngine();
  nodes = makeNodes(2, { topics: () => ({ log: { length: 10, ttlMs: 600_000 } }) }, engine);
  const [a, b] = nodes as [Node, Node];
  const bob = await b.client();
  await b.server.topic("room").join(bob.peer);
  const say = (n: number): Promise<string> => a.server.topic("room").publish("said", { n });
  await say(1);
  engine.links[1]!.loses = (_channel, frame) => frame.startsWith("1L");
  await say(2);
  await say(3);
  await vi.advanceTimersByTimeAsync(30_000);
  await b.network.settle();
  expect(bob.got.map(([, { n }]) => n)).toEqual([1]);
  await vi.advanceTimersByTimeAsync(31_000);
  await b.network.settle();
  expect(bob.got.map(([, { n }]) => n)).toEqual([1, 2, 3]);
});

it("the entries of a log are forgotten `ttlMs` after its last publication, which is a gap unless none was missed", async () => {
  nodes = makeNodes(1, { topics: () => ({ log: { length: 10, ttlMs: 2_000 } }) });
  const [a] = nodes as [Node];
  const topic = a.server.topic("room");
  const first = await topic.publish("said", { n: 1 });
  await vi.advanceTimersByTimeAsync(1_500);
  const second = await topic.publish("said", { n: 2 });
  const [ann, bob] = [await a.client(), await a.client()];
  await topic.join(ann.peer);
  const gaps: string[] = [];
  a.server.on("gap", (name) => gaps.push(name));
  await vi.advanceTimersByTimeAsync(1_500);
  expect((await topic.read({ since: first })).entries).toHaveLength(1);
  await vi.advanceTimersByTimeAsync(600);
  expect(await topic.read({ since: first })).toEqual({ at: second, outcome: "gap", entries: [] });
  expect(await topic.read({ since: second })).toEqual({ at: second, outcome: "complete", entries: [] });
  expect(await topic.join(bob.peer, { since: second })).toEqual({ at: second, outcome: "complete" });
  // The node compares its position with a log that is quiet.
  await vi.advanceTimersByTimeAsync(61_000);
  const third = await topic.publish("said", { n: 3 });
  await a.network.settle();
  expect(third).toBe(second.replace(/2$/, "3"));
  expect([ann.got, bob.got]).toEqual([[["said", { n: 3, at: third }]], [["said", { n: 3, at: third }]]]);
  expect([gaps, a.server.stats().engine!.gaps]).toEqual([[], 0]);
});

it("a connection on which nothing is answered is opened anew after two lost echoes", async () => {
  const engine = new FaultyEngine({ leaseMs: 3_000 });
  nodes = makeNodes(1, {}, engine);
  await vi.advanceTimersByTimeAsync(2_500);
  const [link] = engine.links;
  link!.loses = (_channel, frame) => frame.startsWith("1e");
  // A beat that is not answered fails after 5 s.
  link!.before = (command) => (command === "beat" ? new Promise(() => {}) : undefined);
  expect(link!.reconnects).toBe(0);
  await vi.advanceTimersByTimeAsync(3_000);
  expect(link!.reconnects).toBe(1);
});

it("a join rejects 5 s after the broker stopped to answer, also if its node follows the log", async () => {
  const engine = new FaultyEngine();
  nodes = makeNodes(1, { topics: () => ({ log: { length: 10, ttlMs: 600_000 }, members: true }) }, engine);
  const [a] = nodes as [Node];
  const [ann, bob] = [await a.client(), await a.client()];
  const topic = a.server.topic("room");
  await topic.join(ann.peer);
  const since = (await topic.publish("said", { n: 1 })).replace(/1$/, "2");
  engine.links[0]!.before = (command) => (["read", "put"].includes(command) ? new Promise(() => {}) : undefined);
  const errors: any[] = [];
  for (const options of [{ since }, { since, as: 1 }])
    topic.join(bob.peer, options).catch((error: unknown) => errors.push(error));
  await vi.advanceTimersByTimeAsync(5_100);
  expect(errors).toMatchObject([{ code: "ENGINE" }]);
  // The second join of the peer began when the first one had rejected.
  await vi.advanceTimersByTimeAsync(5_100);
  expect(errors).toMatchObject([{ code: "ENGINE" }, { code: "ENGINE" }]);
  expect(topic.has(bob.peer)).toBe(false);
});

it("a publication that is not answered is `unknown` after 5 s, also with a longer timeout", async () => {
  const engine = new FaultyEngine();
  nodes = makeNodes(1, { topics: () => ({ log: { length: 10, ttlMs: 600_000 } }) }, engine);
  engine.links[0]!.before = (command) => (command === "append" ? new Promise(() => {}) : undefined);
  const failing = nodes[0]!.server
    .topic("room")
    .publish("said", {}, { timeoutMs: 60_000 })
    .catch((error: unknown) => error);
  await vi.advanceTimersByTimeAsync(5_100);
  expect(await failing).toMatchObject({ code: "ENGINE", outcome: "unknown" });
});

it("a subscription that is not answered delays `publish` for its timeout, and `join` for 5 s", async () => {
  const engine = new FaultyEngine();
  nodes = makeNodes(1, { topics: () => ({ log: { length: 10, ttlMs: 600_000 } }) }, engine);
  const ann = await nodes[0]!.client();
  const [link] = engine.links;
  link!.before = (command) => (command === "subscribe" ? new Promise(() => {}) : undefined);
  const topic = nodes[0]!.server.topic("room");
  const joining = topic.join(ann.peer).catch((error: unknown) => error);
  const publishing = topic.publish("said", {}, { timeoutMs: 1_000 }).catch((error: unknown) => error);
  await vi.advanceTimersByTimeAsync(1_100);
  expect(await publishing).toMatchObject({ code: "ENGINE", outcome: "not-sent" });
  await vi.advanceTimersByTimeAsync(4_000);
  expect(await joining).toMatchObject({ code: "ENGINE", outcome: "not-sent" });
  expect(link!.commands).not.toContain("append");
  expect(topic.size).toBe(0);
});

it("a key is remembered for 2 minutes", async () => {
  nodes = makeNodes(1, { topics: () => ({ log: { length: 10, ttlMs: 600_000 } }) });
  const topic = nodes[0]!.server.topic("room");
  const say = (): Promise<string> => topic.publish("said", {}, { key: "k" });
  const first = await say();
  await vi.advanceTimersByTimeAsync(119_000);
  expect(await say()).toBe(first);
  await vi.advanceTimersByTimeAsync(2_000);
  expect(await say()).not.toBe(first);
});

describe("a principal", () => {
  it("names the nodes that did not answer in 5 s, and keeps the answers of the others", async () => {
    const engine = new FaultyEngine();
    nodes = makeNodes(2, { principal: ({ name }: { name: string }) => name }, engine);
    const [a, b] = nodes as [Node, Node];
    const [own, bob] = [await a.client("bob"), await b.client("bob")];
    // Each node has seen the other at its second beat.
    await vi.advanceTimersByTimeAsync(4_000);
    engine.links[1]!.loses = (_channel, frame) => frame.startsWith("1u");
    const asking = a.server.principal("bob").peers();
    await vi.advanceTimersByTimeAsync(5_100);
    const { peers, unheard } = await asking;
    expect(peers.map(({ id }) => id)).toEqual([own.peer.id]);
    expect(unheard).toEqual([b.server.nodes.id]);
    engine.links[0]!.down();
    const offline = await a.server.principal("bob").peers();
    expect([offline.peers.length, offline.unheard]).toEqual([1, [b.server.nodes.id, "?"]]);
    expect(bob.peer.state).toBe("open");
  });

  it("names a node that does not answer, also if it came after the last beat", async () => {
    const engine = new FaultyEngine();
    nodes = makeNodes(1, { principal: ({ name }: { name: string }) => name }, engine);
    await vi.advanceTimersByTimeAsync(4_000);
    nodes.push(...makeNodes(1, {}, engine));
    const [a, b] = nodes as [Node, Node];
    engine.links[1]!.loses = (_channel, frame) => frame.startsWith("1u");
    await vi.advanceTimersByTimeAsync(10);
    expect(a.server.nodes.live).toEqual([a.server.nodes.id]);
    const asking = a.server.principal("bob").disconnect();
    await vi.advanceTimersByTimeAsync(5_100);
    expect(await asking).toEqual({ closed: 0, unheard: [b.server.nodes.id] });
  });

  it("waits for a node that came after the last beat, also if the broker does not count", async () => {
    const engine = new FaultyEngine();
    engine.counts = false;
    const options = { principal: ({ name }: { name: string }) => name };
    nodes = makeNodes(1, options, engine);
    await vi.advanceTimersByTimeAsync(4_000);
    nodes.push(...makeNodes(1, options, engine));
    const [a, b] = nodes as [Node, Node];
    const bob = await b.client("bob");
    expect(a.server.nodes.live).toEqual([a.server.nodes.id]);
    engine.links[1]!.hold();
    const asking = a.server.principal("bob").peers();
    await vi.advanceTimersByTimeAsync(1_000);
    engine.links[1]!.release();
    const { peers, unheard } = await asking;
    expect([peers.map(({ id }) => id), unheard]).toEqual([[bob.peer.id], []]);
  });

  it("waits for a node that came while an older question about the nodes was not answered", async () => {
    const engine = new FaultyEngine({ leaseMs: 3_000 });
    engine.counts = false;
    const options = { principal: ({ name }: { name: string }) => name };
    nodes = makeNodes(1, options, engine);
    await vi.advanceTimersByTimeAsync(4_000);
    const answer = gate();
    engine.links[0]!.after = (command) => (command === "beat" ? answer.promise : undefined);
    const beats = (): number => engine.links[0]!.commands.filter((command) => command === "beat").length;
    const before = beats();
    await vi.advanceTimersByTimeAsync(1_000);
    nodes.push(...makeNodes(1, options, engine));
    const [a, b] = nodes as [Node, Node];
    const bob = await b.client("bob");
    // Both are asked during the older question, and share the next one.
    const asking = [a.server.principal("bob").peers(), a.server.principal("bob").peers()];
    engine.links[1]!.hold();
    engine.links[0]!.after = () => {};
    answer.resolve();
    await vi.advanceTimersByTimeAsync(100);
    engine.links[1]!.release();
    for (const { peers, unheard } of await Promise.all(asking))
      expect([peers.map(({ id }) => id), unheard]).toEqual([[bob.peer.id], []]);
    expect(beats() - before).toBe(2);
  });

  it("ends after 5 s, also if the broker does not say which nodes live", async () => {
    const engine = new FaultyEngine();
    engine.counts = false;
    nodes = makeNodes(2, { principal: ({ name }: { name: string }) => name }, engine);
    const [a, b] = nodes as [Node, Node];
    const own = await a.client("bob");
    await vi.advanceTimersByTimeAsync(1_100);
    engine.links[0]!.before = (command) => (command === "beat" ? new Promise(() => {}) : undefined);
    const settled: unknown[] = [];
    void a.server
      .principal("bob")
      .peers()
      .then(({ peers, unheard }) =>
        settled.push(
          peers.map(({ id }) => id),
          unheard,
        ),
      );
    await vi.advanceTimersByTimeAsync(4_500);
    expect(settled).toEqual([]);
    await vi.advanceTimersByTimeAsync(600);
    expect(settled).toEqual([[own.peer.id], [b.server.nodes.id, "?"]]);
  });

  it("says that there may be other nodes if the broker does not say which nodes live", async () => {
    const engine = new FaultyEngine();
    engine.counts = false;
    nodes = makeNodes(1, { principal: ({ name }: { name: string }) => name }, engine);
    const [a] = nodes as [Node];
    const own = await a.client("bob");
    engine.links[0]!.before = (command) => {
      if (command === "beat") throw new EngineError("faulty: refused", "not-sent");
    };
    const { peers, unheard } = await a.server.principal("bob").peers();
    expect([peers.map(({ id }) => id), unheard]).toEqual([[own.peer.id], ["?"]]);
    engine.links[0]!.down();
    expect(await a.server.principal("bob").disconnect()).toEqual({ closed: 1, unheard: ["?"] });
  });

  it.each([
    ["comes behind all other answers", false],
    ["does not come", true],
  ])("names a node that came after the last beat, if the count of the broker %s", async (_what, isLost) => {
    const engine = new FaultyEngine();
    const options = { principal: ({ name }: { name: string }) => name };
    nodes = makeNodes(2, options, engine);
    await vi.advanceTimersByTimeAsync(4_000);
    nodes.push(...makeNodes(1, options, engine));
    const [a, b, c] = nodes as [Node, Node, Node];
    const [bob] = [await b.client("bob"), await c.client("bob")];
    await vi.advanceTimersByTimeAsync(10);
    expect(a.server.nodes.live).toHaveLength(2);
    engine.links[2]!.loses = (_channel, frame) => frame.startsWith("1u");
    const count = gate();
    engine.links[0]!.after = (command) => (command === "send" ? count.promise : undefined);
    const asking = a.server.principal("bob").peers();
    await vi.advanceTimersByTimeAsync(50);
    if (isLost) count.reject(new EngineError("faulty: lost", "unknown"));
    else count.resolve();
    await vi.advanceTimersByTimeAsync(5_100);
    const { peers, unheard } = await asking;
    expect(peers.map(({ id }) => id)).toEqual([bob.peer.id]);
    expect(unheard).toEqual([c.server.nodes.id, ...(isLost ? ["?"] : [])]);
  });

  it("reports a node that the broker counts and whose lease has ended, because it may have peers", async () => {
    const engine = new FaultyEngine();
    nodes = makeNodes(2, { principal: ({ name }: { name: string }) => name }, engine);
    const [a, b] = nodes as [Node, Node];
    const bob = await b.client("bob");
    // Its process is stopped.
    const [, link] = engine.links;
    link!.loses = () => true;
    link!.before = () => new Promise(() => {});
    await link!.expire();
    await vi.advanceTimersByTimeAsync(4_000);
    expect(a.server.nodes.live).toEqual([a.server.nodes.id]);
    const asking = a.server.principal("bob").disconnect();
    await vi.advanceTimersByTimeAsync(5_100);
    expect(await asking).toEqual({ closed: 0, unheard: ["?"] });
    expect(bob.peer.state).toBe("open");
  });
});

it("closing a peer whose node does not answer is `unknown` after 10 s", async () => {
  const engine = new FaultyEngine();
  nodes = makeNodes(2, {}, engine);
  const [a, b] = nodes as [Node, Node];
  const bob = await b.client();
  engine.links[1]!.loses = (_channel, frame) => frame.startsWith("1x");
  let error: any;
  const closing = a.server
    .peer(bob.peer.id)
    .close()
    .catch((reason: unknown) => (error = reason));
  await vi.advanceTimersByTimeAsync(9_900);
  expect(error).toBe(undefined);
  await vi.advanceTimersByTimeAsync(200);
  await closing;
  expect(error).toMatchObject({ code: "TIMEOUT", outcome: "unknown" });
});

function delay(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/** Reports progress after 800 ms and after 1,600 ms. */
async function work(_params: unknown, { progress }: any): Promise<string> {
  for (const percent of [40, 80]) {
    await delay(800);
    progress({ percent });
  }
  await delay(50);
  return "late";
}

/** Ends the subscription of a node's inbox: a broker counts a node without a connection as no receiver. Returns what begins it again. */
function away(engine: FaultyEngine, { server }: Node): () => Promise<void> {
  const inbox = `n:${server.nodes.id}` as const;
  engine.links[0]!.unsubscribe(inbox);
  return () => engine.links[0]!.subscribe(inbox);
}

it("an answer is sent again for the whole timeout, counted from the last progress report that restarts it", async () => {
  const engine = new FaultyEngine();
  nodes = makeNodes(1, {}, engine);
  nodes.push(makeNode({ engine }, { work }));
  const [a, b] = nodes as [Node, Node];
  const bob = await b.client();
  const seen: unknown[] = [];
  const options = { timeoutMs: 1_000, resetTimeoutOnProgress: true, onProgress: (value: unknown) => seen.push(value) };
  const call = a.server
    .peer(bob.peer.id)
    .request("work", undefined, options)
    .catch((error: unknown) => error);
  for (const count of [0, 1, 2]) {
    await b.network.settle();
    expect(seen).toHaveLength(count);
    if (count < 2) await vi.advanceTimersByTimeAsync(800);
  }
  const back = away(engine, a);
  await vi.advanceTimersByTimeAsync(50);
  await b.network.settle();
  await vi.advanceTimersByTimeAsync(350);
  await back();
  await vi.advanceTimersByTimeAsync(1_000);
  expect(await call).toBe("late");
});

it("an answer is sent again until the caller's node is there, within the timeout", async () => {
  const engine = new FaultyEngine();
  nodes = makeNodes(1, {}, engine);
  nodes.push(makeNode({ engine }, { work: () => new Promise((resolve) => setTimeout(resolve, 100, "late")) }));
  const [a, b] = nodes as [Node, Node];
  const bob = await b.client();
  const call = a.server.peer(bob.peer.id).request("work");
  await vi.advanceTimersByTimeAsync(50);
  const [first, second] = engine.links;
  first!.down();
  const back = away(engine, a);
  const sends = (): number => second!.commands.filter((command) => command === "send").length;
  const before = sends();
  await vi.advanceTimersByTimeAsync(2_000);
  expect(sends() - before).toBeGreaterThan(3);
  first!.up();
  await back();
  await vi.advanceTimersByTimeAsync(3_000);
  expect(await call).toBe("late");
  const after = sends();
  await vi.advanceTimersByTimeAsync(3_000);
  // Only echoes are sent now.
  expect(sends() - after).toBeLessThanOrEqual(1);
});

describe("a setting of the broker that weakens a promise", () => {
  const EVICTS = "the broker may evict logs";

  it("is looked at again at each connect, and emitted once until it is cured", async () => {
    const engine = new FaultyEngine();
    nodes = makeNodes(1, {}, engine);
    const [node] = nodes as [Node];
    const errors: unknown[] = [];
    node.server.on("error", (error) => errors.push((error as Error).message));
    await vi.advanceTimersByTimeAsync(10);
    const reconnect = async (...unmet: string[]): Promise<unknown[]> => {
      engine.unmet = unmet;
      engine.links[0]!.reconnect();
      await vi.advanceTimersByTimeAsync(10);
      return errors.splice(0);
    };
    expect(await reconnect()).toEqual([]);
    expect(await reconnect(EVICTS)).toEqual([EVICTS]);
    expect(await reconnect(EVICTS)).toEqual([]);
    expect(await reconnect("it is slow", EVICTS)).toEqual(["it is slow"]);
    expect(await reconnect()).toEqual([]);
    expect(await reconnect(EVICTS)).toEqual([EVICTS]);
  });
});
