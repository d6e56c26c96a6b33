/** What happens after seconds and minutes, with the clock of the test. */
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { FaultyEngine } from "./faulty.js";
import { closeAll, makeNodes, type Node } from "./nodes.js";

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

it("a log is forgotten `ttlMs` after its last publication, which is a gap", async () => {
  nodes = makeNodes(1, { topics: () => ({ log: { length: 10, ttlMs: 2_000 } }) });
  const [a] = nodes as [Node];
  const topic = a.server.topic("room");
  const first = await topic.publish("said", { n: 1 });
  await vi.advanceTimersByTimeAsync(1_500);
  const second = await topic.publish("said", { n: 2 });
  await vi.advanceTimersByTimeAsync(1_500);
  expect((await topic.read({ since: first })).entries).toHaveLength(1);
  await vi.advanceTimersByTimeAsync(600);
  expect(await topic.read({ since: second })).toEqual({ at: undefined, outcome: "gap", entries: [] });
  const third = await topic.publish("said", { n: 3 });
  expect(third.split(".")[0]).not.toBe(second.split(".")[0]);
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
    expect([offline.peers.length, offline.unheard]).toEqual([1, [b.server.nodes.id]]);
    expect(bob.peer.state).toBe("open");
  });
});

it("an answer is sent again until the caller's node is there, within the timeout", async () => {
  const engine = new FaultyEngine();
  nodes = makeNodes(1, {}, engine);
  const { makeNode } = await import("./nodes.js");
  nodes.push(makeNode({ engine }, { work: () => new Promise((resolve) => setTimeout(resolve, 100, "late")) }));
  const [a, b] = nodes as [Node, Node];
  const bob = await b.client();
  const call = a.server.peer(bob.peer.id).request("work");
  await vi.advanceTimersByTimeAsync(50);
  const [first, second] = engine.links;
  first!.down();
  // A broker counts a node without a connection as no receiver. Here its subscription is ended for that time.
  const inbox = `n:${a.server.nodes.id}` as const;
  first!.unsubscribe(inbox);
  const sends = (): number => second!.commands.filter((command) => command === "send").length;
  const before = sends();
  await vi.advanceTimersByTimeAsync(2_000);
  expect(sends() - before).toBeGreaterThan(3);
  first!.up();
  await first!.subscribe(inbox);
  await vi.advanceTimersByTimeAsync(3_000);
  expect(await call).toBe("late");
  const after = sends();
  await vi.advanceTimersByTimeAsync(3_000);
  // Only echoes are sent now.
  expect(sends() - after).toBeLessThanOrEqual(1);
});
