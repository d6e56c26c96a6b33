/** `latest`, `volatile`, `whenSlow` and `except` for peers of another node that read slowly or are away. */
import { afterEach, describe, expect, it } from "vitest";
import { FaultyEngine } from "./faulty.js";
import { closeAll, makeNodes, type Client, type Node } from "./nodes.js";

let nodes: Node[] = [];
afterEach(() => closeAll(nodes));

const PAD = "x".repeat(20_000);
const LIMITS = { limits: { maxUnsentBytes: 200_000, maxReplyBytes: 200_000 } };

/** Two nodes, and two members on the second one: `bob` reads nothing until the line starts, and `eve` reads all the time. */
async function room(options: object = LIMITS): Promise<{ a: Node; b: Node; bob: Client; eve: Client }> {
  nodes = makeNodes(2, options);
  const [a, b] = nodes as [Node, Node];
  const [bob, eve] = [await b.client("bob"), await b.client("eve")];
  for (const { peer } of [bob, eve]) await b.server.topic("room").join(peer);
  return { a, b, bob, eve };
}

/** Makes a peer slow: its socket is full. */
async function fill({ a, b, bob, eve }: Awaited<ReturnType<typeof room>>): Promise<void> {
  b.network.of(bob.client).stop();
  for (let pads = 1; bob.peer.stats().unsentBytes < 60_000; pads++) {
    a.server.peers.notify("pad", { PAD });
    await eve.until(pads);
  }
}

const without = (method: string, { got }: Client): unknown[] => got.filter(([name]) => name !== method);

describe.each(["topic", "peers"] as const)("to a slow peer of another node, a message of a %s", (kind) => {
  const groupOf = ({ server }: Node): Node["server"]["peers"] =>
    kind === "topic" ? server.topic("room") : server.peers;

  it("with `latest` is kept as the newest of its key", async () => {
    const world = await room();
    const { a, b, bob, eve } = world;
    await fill(world);
    const { unsentBytes } = bob.peer.stats();
    for (let n = 1; n <= 800; n++)
      groupOf(a).notify("moved", { n, PAD: "x".repeat(100) }, { latest: n % 2 === 0 ? "ann" : "" });
    groupOf(a).notify("end");
    await expect.poll(() => eve.got.at(-1)?.[0]).toBe("end");
    expect(eve.got.filter(([method]) => method === "moved")).toHaveLength(800);
    // One message of each key, and "end".
    expect(bob.peer.stats().unsentBytes).toBeLessThan(unsentBytes + 1_000);
    b.network.of(bob.client).start();
    await expect.poll(() => bob.got.at(-1)?.[0]).toBe("end");
    expect(without("pad", bob).map(([method, params]: any) => [method, params?.n])).toEqual([
      ["moved", 799],
      ["moved", 800],
      ["end", undefined],
    ]);
    expect(bob.peer.stats().dropped).toBe(0);
  });

  it("that is `volatile` is dropped and not counted", async () => {
    const world = await room();
    const { a, b, bob, eve } = world;
    await fill(world);
    const missed: unknown[] = [];
    b.server.on("missed", (_peer, method) => missed.push(method));
    for (let n = 1; n <= 20; n++) groupOf(a).notify("typing", { n }, { volatile: true });
    groupOf(a).notify("end");
    await expect.poll(() => eve.got.at(-1)?.[0]).toBe("end");
    b.network.of(bob.client).start();
    await expect.poll(() => bob.got.at(-1)?.[0]).toBe("end");
    expect(without("pad", bob)).toEqual([["end", undefined]]);
    expect(without("pad", eve)).toHaveLength(21);
    expect([bob.peer.stats().dropped, missed]).toEqual([0, []]);
  });

  it("is dropped and counted on the node of the peer, which reports it to the peer", async () => {
    const world = await room();
    const { a, b, bob, eve } = world;
    const missed: unknown[] = [];
    b.server.on("missed", (peer, method) => missed.push([peer, method]));
    a.server.on("missed", () => missed.push("at the node that notified"));
    let counted = 0;
    bob.client.on("missed", ({ count }) => (counted += count));
    await fill(world);
    const before = eve.got.length;
    for (let n = 1; n <= 20; n++) {
      groupOf(a).notify("said", { n, PAD });
      await eve.until(before + n);
    }
    groupOf(a).notify("end", undefined, { whenSlow: "close" });
    await expect.poll(() => eve.got.at(-1)?.[0]).toBe("end");
    const { dropped } = bob.peer.stats();
    expect(dropped).toBeGreaterThan(0);
    expect(missed).toEqual(Array.from({ length: dropped }, () => [bob.peer, "said"]));
    b.network.of(bob.client).start();
    await expect.poll(() => counted).toBe(dropped);
    expect(bob.got.filter(([method]) => method === "said")).toHaveLength(20 - dropped);
  });

  it("is dropped once, also if a listener of `missed` adds the peer again", async () => {
    const world = await room();
    const { a, b, bob, eve } = world;
    const missed: string[] = [];
    b.server.on("missed", (peer, method) => {
      // The bound ends the test if the message is sent again and again.
      if (missed.push(method) < 1_000) b.server.topic("room").add((b.server.topic("room").delete(peer), peer));
    });
    await fill(world);
    while (missed.length === 0) {
      const before = eve.got.length;
      groupOf(a).notify("said", { PAD });
      await eve.until(before + 1);
    }
    expect(missed).toEqual(["said"]);
    expect(bob.peer.stats().dropped).toBe(1);
  });

  it('closes the peer with `whenSlow: "close"`', async () => {
    const world = await room();
    const { a, b, bob, eve } = world;
    await fill(world);
    const before = eve.got.length;
    for (let n = 1; n <= 100; n++) {
      groupOf(a).notify("said", { n, PAD }, { whenSlow: "close" });
      await eve.until(before + n);
    }
    b.network.of(bob.client).start();
    expect(await bob.peer.closed).toMatchObject({ code: 1013 });
    expect(eve.peer.state).toBe("open");
  });

  it("does not reach the peer that `except` names, nor another node with `here`", async () => {
    const world = await room();
    const { a, b, bob, eve } = world;
    await fill(world);
    for (const except of [bob.peer, bob.peer.id, a.server.peer(bob.peer.id)])
      for (const options of [{}, { latest: "k" }, { whenSlow: "close" as const }])
        groupOf(a).notify("said", {}, { except, ...options });
    groupOf(a).notify("here", {}, { here: true, latest: "k" });
    groupOf(a).notify("end");
    await expect.poll(() => eve.got.at(-1)?.[0]).toBe("end");
    b.network.of(bob.client).start();
    await expect.poll(() => bob.got.at(-1)?.[0]).toBe("end");
    expect(without("pad", bob)).toEqual([["end", undefined]]);
    expect(without("pad", eve)).toHaveLength(10);
  });
});

it("a volatile message is not kept for a peer that is about to join, and all others are", async () => {
  const engine = new FaultyEngine();
  nodes = makeNodes(2, { topics: () => ({ log: { length: 200, ttlMs: 60_000 } }) }, engine);
  const [a, b] = nodes as [Node, Node];
  const [bob, eve] = [await b.client(), await b.client()];
  const topic = b.server.topic("room");
  const since = await a.server.topic("room").publish("said", { n: 0 });
  // More than a node keeps, so that the missed ones are read from the broker.
  for (let n = 1; n <= 100; n++) await a.server.topic("room").publish("said", { n });
  await topic.join(eve.peer);
  let read!: () => void;
  const reading = new Promise<void>((resolve) => (read = resolve));
  let isAsked = false;
  engine.links[1]!.before = (command) => {
    if (command !== "read") return undefined;
    isAsked = true;
    return reading;
  };
  const joining = topic.join(bob.peer, { since });
  await expect.poll(() => isAsked).toBe(true);
  const options = [{}, { volatile: true }, { latest: "k" }, { except: bob.peer.id }, { except: ["gone", bob.peer.id] }];
  for (const [n, option] of options.entries()) a.server.topic("room").notify("moved", { n }, option);
  await eve.until(5);
  for (const except of [bob.peer, bob.peer.id, new Set([bob.peer.id])]) topic.notify("moved", { n: 5 }, { except });
  await eve.until(8);
  read();
  expect((await joining).outcome).toBe("complete");
  expect((await bob.until(102)).slice(100)).toEqual([
    ["moved", { n: 0 }],
    ["moved", { n: 2 }],
  ]);
});
