/** The lists of members. */
import { describe, expect, it } from "vitest";
import { EngineError } from "../../src/node.js";
import { pass } from "../support/time.js";
import { raising, rejection, turn } from "../support/turns.js";
import { FaultyEngine } from "./faulty.js";
import { expectSoon, makeNode, makeNodes, settled, useFleet, type Client, type Node } from "./nodes.js";

useFleet();

const RULES = { topics: () => ({ members: "member" }) };
/** After this time, a node that is silent was given up. */
const LEASE_MS = 13_400;

type Event = [event: string, as: unknown];

/** Returns what a node sees of the members of "room". */
function watch({ server }: Node): Event[] {
  const events: Event[] = [];
  server.topic("room").watch((event, { as }) => events.push([event, as]));
  return events;
}

/** Two nodes, and what each sees of the members of "room". */
function room(options: object = {}): [FaultyEngine, a: Node, b: Node, seen: Event[][]] {
  const engine = new FaultyEngine();
  const [a, b] = makeNodes(2, { ...RULES, ...options }, engine) as [Node, Node];
  return [engine, a, b, [a, b].map(watch)];
}

async function joined(node: Node, name: string): Promise<Client> {
  const client = await node.client(name);
  await node.server.topic("room").join(client.peer, { as: name });
  return client;
}

const names = async (node: Node): Promise<unknown[]> => (await node.server.topic("room").members()).map(({ as }) => as);
const of = (client: Client, name: string): object => ({ id: client.peer.id, as: name });
/** Lets everything happen that needs no time. */
const settle = (): Promise<void> => pass(0).then(() => pass(0));

describe("members", () => {
  it("leave when they are deleted, close, or their node closes, and each node sees the same sequence", async () => {
    const [engine, a, b, seen] = room();
    const [ann, bob] = [await joined(a, "ann"), await joined(b, "bob")];
    await joined(b, "eve");
    await settle();
    expect([await names(a), await names(b)].join()).toBe("bob,eve,ann,ann,bob,eve");
    a.server.topic("room").delete(ann.peer);
    await bob.client.close();
    await settle();
    expect(await names(a)).toEqual(["eve"]);
    await settled(b.server.close());
    await settle();
    expect(await names(a)).toEqual([]);
    expect(seen[0]).toEqual([
      ...["ann", "bob", "eve"].map((name) => ["joined", name]),
      ...["ann", "bob", "eve"].map((name) => ["left", name]),
    ]);
    expect(seen[1]).toEqual(seen[0]!.slice(0, seen[1]!.length));
    await settled(a.server.close());
    expect(await engine.leftovers()).toEqual([]);
  });

  it("join with at most 4 KiB of JSON, to a topic that has the rule", async () => {
    const [, a, , seen] = room({ topics: (name: string) => (name === "room" ? { members: true } : undefined) });
    const ann = await a.client();
    const topic = a.server.topic("room");
    for (const as of ["x".repeat(4_095), () => {}])
      await expect(topic.join(ann.peer, { as })).rejects.toThrow("Expected `as`");
    await expect(topic.join(ann.peer, { as: { roles: new Set() } })).rejects.toThrow("cannot carry the Set `roles`");
    const other = a.server.topic("other");
    await expect(other.join(ann.peer, { as: 1 })).rejects.toThrow("requires the rule `members`");
    await expect(other.members()).rejects.toThrow("no list of members");
    expect(() => other.watch(() => {})).toThrow("no list of members");
    expect(topic.size).toBe(0);
    await topic.join(ann.peer, { as: "x".repeat(4_094) });
    expect(seen[0]).toHaveLength(1);
    await joined(a, "bob");
    await topic.join((await a.client()).peer);
    expect([await names(a), await topic.members({ limit: 1 })]).toMatchObject([{ length: 2 }, { length: 1 }]);
    await expect(topic.members({ limit: 10_001 })).rejects.toThrow("Expected `limit`");
  });

  it("are at most 10,000 in a topic, and more may join without `as`", async () => {
    const [engine, a, b] = room();
    const eve = await joined(a, "eve");
    const foreign = await engine.foreign();
    for (let i = 1; i < 10_000; i++) await foreign.send("t:room", `1j\tforeign\t${i}\t${i - 1}\tm${i}\n1`);
    await turn();
    const ann = await a.client();
    const topic = a.server.topic("room");
    expect(await rejection(topic.join(ann.peer, { as: "ann" }))).toBeInstanceOf(RangeError);
    expect([topic.size, (await topic.members()).length]).toEqual([1, 10_000]);
    await topic.join(ann.peer);
    expect(topic.size).toBe(2);
    // One of them may change what the others see.
    await topic.join(eve.peer, { as: "eva" });
    expect(await b.server.topic("room").members()).toContainEqual(of(eve, "eva"));
    await foreign.close();
  });

  it("leave when the connection is restored, if they closed meanwhile, also if it was away for longer than a node repeats what it has said", async () => {
    const engine = new FaultyEngine({ leaseMs: 300_000 });
    const [a, b] = makeNodes(2, RULES, engine) as [Node, Node];
    const seen = watch(b);
    const ann = await joined(a, "ann");
    engine.links[0]!.down();
    await ann.client.close();
    await expectSoon(() => a.server.topic("room").size, 0);
    const refusals = await Promise.all([1, 2].map(() => rejection(a.server.topic("room").members())));
    expect(refusals[0]).toMatchObject({ outcome: "not-sent" });
    // An error for each would cost much when thousands are refused.
    expect(refusals[1]).toBe(refusals[0]);
    await pass(75_000);
    expect(await names(b)).toEqual(["ann"]);
    engine.links[0]!.up();
    await expectSoon(() => seen, events("joined", "left"));
  });
});

const events = (...all: string[]): Event[] => all.map((event) => [event, "ann"]);

it("a peer that is hidden while it joins is not listed, unless it is shown again", async () => {
  const [, a] = room();
  const { peer } = await a.client();
  const present = (as: any): Promise<unknown> => a.server.topic("room").present(peer, {} as never, as);
  await Promise.all([1, undefined].map(present));
  expect(await names(a)).toEqual([]);
  await Promise.all([1, undefined, 2].map(present));
  expect(await names(a)).toEqual([2]);
});

describe("the members of a node that was given up", () => {
  it("leave after 4/3 of its lease, and join again when it is heard again", async () => {
    const [engine, a, b, seen] = room();
    const ann = await joined(a, "ann");
    await pass(60_000);
    engine.unheard.add(a.server.nodes.id);
    await pass(9_900);
    expect(seen[1]).toEqual(events("joined"));
    await pass(LEASE_MS - 9_900);
    expect([seen[1], await names(b), b.server.nodes.live]).toEqual([events("joined", "left"), [], [b.server.nodes.id]]);
    engine.unheard.clear();
    await pass(3_400);
    expect(seen).toEqual([events("joined"), events("joined", "left", "joined")]);
    // Its peer has noticed nothing, and has the same id.
    expect(await b.server.topic("room").members()).toEqual([of(ann, "ann")]);
    expect([ann.peer.state, b.server.nodes.live]).toEqual(["open", expect.arrayContaining([a.server.nodes.id])]);
  });

  it("leave at once if it closes, and an old frame of it changes nothing", async () => {
    const [engine, a, b, seen] = room();
    await joined(a, "ann");
    const { id } = a.server.nodes;
    const foreign = await engine.foreign();
    await settled(a.server.close());
    await foreign.send("t:room", `1j\t${id}\t9\t0\tx\n1`);
    await foreign.send("a:all", `1b\t${id}\t9\t10000\t\n`);
    await settle();
    expect([await names(b), seen[1], b.server.nodes.live]).toEqual([[], events("joined", "left"), [b.server.nodes.id]]);
    await foreign.close();
  });
});

describe("no member leaves", () => {
  it.each<[what: string, fault: (engine: FaultyEngine) => Promise<void>]>([
    ["the broker restarts with nothing", (engine) => engine.restart()],
    [
      "the broker is away for 16 s",
      async ({ links }) => {
        for (const link of links) link.down();
        await pass(16_000);
        links[0]!.up();
        // The other node connects later.
        await pass(12_000);
        links[1]!.up();
      },
    ],
    [
      "the broker is paused for 16 s",
      async ({ links }) => {
        const answers = links.map((link) => link.blocks("send"));
        await pass(16_000);
        for (const link of links) link.before = () => {};
        for (const answer of answers) answer.resolve();
      },
    ],
  ])("if %s", async (_what, fault) => {
    const [engine, a, b, seen] = room();
    for (const [node, name] of [[a, "ann"], [b, "bob"]] as const) await joined(node, name); // prettier-ignore
    await fault(engine);
    await pass(60_000);
    for (const one of seen) expect(new Set(one)).toEqual(new Set([["joined", "ann"], ["joined", "bob"]])); // prettier-ignore
    for (const node of [a, b]) expect(new Set(await names(node))).toEqual(new Set(["ann", "bob"]));
  });
});

describe("a node that begins to follow a topic", () => {
  it("waits for the members of the others, in parts that the broker takes, and does not report them", async () => {
    const engine = new FaultyEngine();
    const maxFrameBytes = 16_000;
    engine.facts = { maxFrameBytes };
    const a = makeNode({ engine, ...RULES });
    const long = Array.from({ length: 40 }, (_, i) => String(i).padEnd(1_360, i % 2 === 0 ? "\u20ac" : '"'));
    for (const as of long) await a.server.topic("room").join((await a.client()).peer, { as });
    const c = makeNode({ engine, ...RULES });
    const seen = watch(c);
    expect(await settled(names(c))).toEqual(long);
    for (const frame of engine.links[0]!.sent) expect(Buffer.byteLength(frame)).toBeLessThan(maxFrameBytes);
    expect(seen).toEqual([]);
    await joined(a, "ann");
    await expectSoon(() => seen, events("joined"));
  });

  it("waits for 200 ms if the broker does not count, and reports later answers", async () => {
    const [engine, a] = room();
    await joined(a, "ann");
    engine.counts = false;
    const c = makeNode({ engine, ...RULES });
    await turn();
    const seen = watch(c);
    engine.links[2]!.hold();
    const listing = names(c);
    await pass(199);
    const other = Symbol("waits");
    expect(await Promise.race([listing, Promise.resolve(other)])).toBe(other);
    await pass(1);
    expect([await listing, seen]).toEqual([[], []]);
    engine.links[2]!.release();
    await settle();
    expect([await names(c), seen]).toEqual([["ann"], events("joined")]);
  });
});

it("a node whose first question is refused asks again, and its watchers are notified of the answers", async () => {
  const [engine, a] = room();
  await joined(a, "ann");
  const c = makeNode({ engine, ...RULES });
  await turn();
  const [, , link] = engine.links;
  let refused = 0;
  link!.before = (command) => {
    if (command === "send" && refused++ === 0) throw new EngineError("faulty: full", "not-sent");
  };
  const seen = watch(c);
  await pass(300);
  expect([refused > 1, seen, await names(c)]).toEqual([true, [], ["ann"]]);
});

describe("a node that misses a change", () => {
  it.each([
    ["asks for the members when the next one comes", "1j", 0],
    ["asks for them when the change is repeated, and again if there is no answer", "1j", 2_000],
  ])("%s", async (_what, kind, waitMs) => {
    const [engine, a, b, seen] = room();
    const [, link] = engine.links;
    link!.loses = (_channel, frame) => frame.startsWith(kind);
    await joined(a, "ann");
    await settle();
    expect(seen[1]).toEqual([]);
    link!.loses = () => false;
    if (waitMs === 0) await joined(a, "eve");
    else {
      let lost = 0;
      link!.loses = (_channel, frame) => frame.startsWith("1m") && lost++ === 0;
      await pass(waitMs);
      expect(lost).toBeGreaterThan(0);
      await pass(waitMs);
    }
    await settle();
    expect(new Set(await names(b))).toEqual(new Set(waitMs === 0 ? ["ann", "eve"] : ["ann"]));
  });
});

it("a node whose subscription has moved says again what it has, because it may have missed a question", async () => {
  const engine = new FaultyEngine();
  const [a, b] = makeNodes(2, RULES, engine) as [Node, Node];
  const ann = await joined(b, "ann");
  await b.server.topic("other").join(ann.peer, { as: "ann" });
  await pass(70_000);
  const [, link] = engine.links;
  let lost = 0;
  link!.loses = (_channel, frame) => frame.startsWith("1k") && lost++ === 0;
  const seen = watch(a);
  expect(await settled(names(a))).toEqual([]);
  const { length } = link!.sent;
  link!.host.resubscribed(["t:room"]);
  await expectSoon(() => seen, events("joined"));
  // Not what it has in a topic whose subscription was there all the time.
  expect(link!.sent.slice(length).filter((frame) => frame.startsWith("1d"))).toHaveLength(1);
});

const failing = raising(new Error("listener"));

it("`watch` ends with the function that it returns, and a failing listener stops no other", async () => {
  const [, a, b, seen] = room();
  const errors: unknown[] = [];
  a.server.on("error", (error) => errors.push(error));
  const got: string[] = [];
  const listener = (event: string): void => void got.push(event);
  const stops = [failing, listener, listener].map((one) => a.server.topic("room").watch(one));
  await joined(b, "bob");
  expect([got, errors.length]).toEqual([["joined", "joined"], 1]);
  stops[1]!();
  stops[1]!();
  await joined(b, "eve");
  expect(got).toHaveLength(3);
  for (const stop of stops) stop();
  await joined(b, "kim");
  expect([got.length, seen[0]!.length]).toEqual([3, 3]);
});
