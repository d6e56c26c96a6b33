/** The lists of members. */
import { describe, expect, it } from "vitest";
import { EngineError, type RosterId } from "../../src/node.js";
import { pass } from "../support/time.js";
import { rejection, turn } from "../support/turns.js";
import { FaultyEngine } from "./faulty.js";
import { expectSoon, failure, makeNode, makeNodes, settled, useFleet, type Client, type Node } from "./nodes.js";

useFleet();

const RULES = { topics: () => ({ members: { joined: "joined", left: "left" } }) };
/** After this time, a node has renewed its lease twice. */
const BEATS_MS = 7_000;

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

  it("are notified of others that join, change and leave, on all nodes, once, and not of themselves", async () => {
    const [, a, b, seen] = room();
    const [ann, bob] = [await joined(a, "ann"), await joined(b, "bob")];
    await ann.until(1);
    for (const as of ["ann, away", "ann, away", "ann"]) await a.server.topic("room").join(ann.peer, { as });
    await ann.client.close();
    await bob.until(3);
    const all = [...["ann", "bob", "ann, away", "ann"].map((as) => ["joined", as]), ["left", "ann"]];
    expect(seen).toEqual([all, all]);
    expect(bob.got).toEqual([
      ["joined", of(ann, "ann, away")],
      ["joined", of(ann, "ann")],
      ["left", of(ann, "ann")],
    ]);
    expect(ann.got).toEqual([["joined", of(bob, "bob")]]);
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
    const without = makeNode({ engine: new FaultyEngine({}, ["roster"]), ...RULES });
    await expect(without.server.topic("room").members()).rejects.toThrow("the engine faulty has no members");
  });

  it("are at most 10,000 in a topic, and more may join without `as`", async () => {
    const [engine, a, b] = room();
    const eve = await joined(a, "eve");
    const foreign = await engine.foreign();
    for (let i = 1; i < 10_000; i++) await foreign.roster!.put("room", `foreign/1.m${i}`, "1");
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

  it("are removed if `join` fails with an unknown outcome", async () => {
    const [engine, a, b, seen] = room();
    const ann = await a.client("ann");
    const topic = a.server.topic("room");
    // The change is written, and its answer is lost.
    engine.links[0]!.fails("put", { when: "after" });
    expect(await failure(topic.join(ann.peer, { as: "ann" }))).toMatchObject({ code: "ENGINE", outcome: "unknown" });
    expect(topic.size).toBe(0);
    const events = ["joined", "left"].map((event): Event => [event, "ann"]);
    await expectSoon(() => seen[1], events);
    expect(await names(b)).toEqual([]);
    await topic.join(ann.peer, { as: "ann" });
    await expectSoon(() => seen[1], [...events, ["joined", "ann"]]);
  });

  it.each([false, true])(
    "are gone if they leave while a change of theirs fails; confirmed before: %s",
    async (isOld) => {
      const [engine, a, b] = room();
      const ann = isOld ? await joined(a, "ann") : await a.client("ann");
      const topic = a.server.topic("room");
      const [link] = engine.links;
      const answer = link!.blocks("put");
      const joining = rejection(topic.join(ann.peer, { as: "anna" }));
      await settle();
      topic.delete(ann.peer);
      link!.before = () => {};
      answer.reject(new EngineError("faulty", "unknown"));
      await joining;
      await pass(2_000);
      expect(await names(b)).toEqual([]);
    },
  );

  it("leave when the connection is restored, if they closed meanwhile", async () => {
    const [engine, a, b, seen] = room();
    const [ann, eve] = [await joined(a, "ann"), await joined(a, "eve")];
    engine.links[0]!.down();
    await ann.client.close();
    await expectSoon(() => a.server.topic("room").size, 1);
    expect(await rejection(a.server.topic("room").members())).toMatchObject({ outcome: "not-sent" });
    expect(await names(b)).toEqual(["ann", "eve"]);
    engine.links[0]!.up();
    await settle();
    expect(await names(b)).toEqual(["eve"]);
    expect(seen[1]!.at(-1)).toEqual(["left", "ann"]);
    expect(eve.peer.state).toBe("open");
  });
});

describe("the members of a node that was given up", () => {
  it("are put again, and others see at most one leave and one join", async () => {
    const [engine, a, b, seen] = room();
    const ann = await joined(a, "ann");
    const states: string[] = [];
    a.server.on("engine", ({ state }) => states.push(state));
    await engine.links[0]!.expire();
    await pass(BEATS_MS);
    expect(states).toEqual(["down", "up"]);
    expect(seen[1]).toEqual(["joined", "left", "joined"].map((event) => [event, "ann"]));
    // Its peer has noticed nothing, and has the same id.
    expect(await b.server.topic("room").members()).toEqual([of(ann, "ann")]);
    expect(ann.peer.state).toBe("open");
    b.server.peer(ann.peer.id).notify("hello");
    await ann.until(1);
    expect(b.server.nodes.live).toContain(a.server.nodes.id);
  });

  it("are put again at a later beat, if the lease cannot be taken at once", async () => {
    const [engine, a, b] = room();
    await joined(a, "ann");
    const before = engine.links[0]!.count("enter");
    engine.links[0]!.fails("enter", { times: 2 });
    await engine.links[0]!.expire();
    await pass(BEATS_MS);
    expect(await names(b)).toEqual([]);
    await pass(BEATS_MS);
    expect(await names(b)).toEqual(["ann"]);
    expect(engine.links[0]!.count("enter") - before).toBe(3);
  });

  it("are listed by that node again, because the broker may have lost changes", async () => {
    const [engine, , b, seen] = room();
    const bob = await joined(b, "bob");
    engine.links[0]!.loses = (_channel, frame) => frame.startsWith("1l");
    await bob.client.close();
    await settle();
    expect(seen[0]).toEqual([["joined", "bob"]]);
    await engine.links[0]!.expire();
    await pass(BEATS_MS);
    expect(seen[0]!.slice(1)).toEqual([["left", "bob"]]);
  });
});

const idOf = (version: number): RosterId => `node/1.m${version}`;

const ids = (last: number): number[] => Array.from({ length: last }, (_, i) => i + 1);

/** A node that watches, of a broker whose lists and changes the test makes. */
async function listing() {
  const engine = new FaultyEngine();
  const [a] = makeNodes(1, RULES, engine) as [Node];
  await turn();
  const [link] = engine.links;
  const lists: ((part: { version: number; numbers: number[] }) => Promise<void>)[] = [];
  const list = (): Promise<any> =>
    new Promise((resolve) =>
      lists.push(({ version, numbers }) => {
        resolve({ version, members: numbers.map((n) => [idOf(n), String(n)]) });
        return settle();
      }),
    );
  Object.assign(link!.roster!, { list });
  const events = watch(a);
  await settle();
  const changed = (version: number, n: number, isThere = true): void =>
    link!.host.received("t:room", `1${isThere ? "j" : "l"}\t${version}\t${idOf(n)}\n${isThere ? n : ""}`);
  const loss = async (): Promise<void> => {
    link!.down();
    link!.up();
    await settle();
  };
  return { lists, events, changed, loss };
}

describe("a node that lists the members", () => {
  it("applies a change after an older list that is read meanwhile, such as that of a restored snapshot", async () => {
    const { lists, events, changed, loss } = await listing();
    await lists[0]!({ version: 50, numbers: [1] });
    await loss();
    changed(22, 2);
    await lists[1]!({ version: 21, numbers: [1] });
    expect(events).toEqual([["joined", 2]]);
    changed(23, 1, false);
    expect([events.at(-1), lists.length]).toEqual([["left", 1], 2]);
  });

  it.each([
    ["ignores a list that is older than a change that came meanwhile", { version: 5, numbers: [1] }, 2],
    ["lists again if the list has no version, because it may be older than the change", { version: 0, numbers: [] }, 3],
  ])("%s", async (_what, second, requests) => {
    const { lists, events, changed, loss } = await listing();
    await lists[0]!({ version: 5, numbers: [1] });
    await loss();
    changed(6, 2);
    await lists[1]!(second);
    expect([events, lists.length]).toEqual([[["joined", 2]], requests]);
    await lists[2]?.({ version: 7, numbers: [2] });
    expect(events.slice(1)).toEqual(requests === 3 ? [["left", 1]] : []);
  });

  it("keeps at most 1,000 changes that came too early, and lists the members again for the others", async () => {
    const { lists, events, changed } = await listing();
    for (let version = 2; version <= 1_002; version++) changed(version, version);
    await lists[0]!({ version: 1, numbers: ids(1) });
    expect([events.length, lists.length]).toEqual([1_000, 2]);
    await lists[1]!({ version: 1_002, numbers: ids(1_002) });
    expect([events.length, lists.length]).toEqual([1_001, 2]);
  });
});

const failing = (): never => {
  throw new Error("listener");
};

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
