import { afterEach, describe, expect, it } from "vitest";
import { EngineError, type RosterId } from "../../src/fleet/engine.js";
import { Replica } from "../../src/fleet/roster.js";
import { gate, rejection, turn } from "../support/turns.js";
import { FaultyEngine } from "./faulty.js";
import { closeAll, makeNode, makeNodes, type Client, type Node } from "./nodes.js";

let nodes: Node[] = [];
afterEach(() => closeAll(nodes));

const RULES = { topics: () => ({ members: { joined: "joined", left: "left" } }) };

/** Two nodes, and what each sees of the members of "room". */
function room(options: object = {}, settings = {}): [FaultyEngine, a: Node, b: Node, seen: [string, string][][]] {
  const engine = new FaultyEngine(settings);
  nodes = makeNodes(2, { ...RULES, ...options }, engine);
  const seen = nodes.map(({ server }) => {
    const events: [string, string][] = [];
    server.topic("room").watch((event, { as }) => events.push([event, as as string]));
    return events;
  });
  return [engine, nodes[0]!, nodes[1]!, seen];
}

async function joined(node: Node, name: string): Promise<Client> {
  const client = await node.client(name);
  await node.server.topic("room").join(client.peer, { as: name });
  return client;
}

const names = async (node: Node): Promise<unknown[]> => (await node.server.topic("room").members()).map(({ as }) => as);

const of = (client: Client, name: string): object => ({ id: client.peer.id, as: name });

describe("members", () => {
  it("are those of all nodes that joined with `as`, with the ids of their peers", async () => {
    const [, a, b] = room();
    const [ann, bob] = [await joined(a, "ann"), await joined(b, "bob")];
    const silent = await a.client();
    await a.server.topic("room").join(silent.peer);
    for (const node of nodes)
      expect(await node.server.topic("room").members()).toEqual([
        { id: ann.peer.id, as: "ann" },
        { id: bob.peer.id, as: "bob" },
      ]);
    expect(await a.server.topic("room").members({ limit: 1 })).toHaveLength(1);
    await expect(a.server.topic("room").members({ limit: 10_001 })).rejects.toThrow("Expected `limit`");
    expect(await a.server.topic("other").members()).toEqual([]);
  });

  it("contain a member as soon as its `join` has resolved", async () => {
    const [, a, b] = room();
    for (let i = 0; i < 20; i++) {
      await joined(nodes[i % 2]!, `n${i}`);
      expect(await names(a)).toHaveLength(i + 1);
      expect(await names(b)).toHaveLength(i + 1);
    }
  });

  it("leave when they are deleted, close, or their node closes, and each node sees the same sequence", async () => {
    const [engine, a, b, seen] = room();
    const [ann, bob] = [await joined(a, "ann"), await joined(b, "bob")];
    await joined(b, "eve");
    a.server.topic("room").delete(ann.peer);
    await bob.client.close();
    await expect.poll(() => names(a)).toEqual(["eve"]);
    await b.server.close();
    await expect.poll(() => names(a)).toEqual([]);
    expect(seen[0]!.slice(0, 3)).toEqual([
      ["joined", "ann"],
      ["joined", "bob"],
      ["joined", "eve"],
    ]);
    expect(seen[0]!.slice(3).map(([event]) => event)).toEqual(["left", "left", "left"]);
    expect(seen[1]).toEqual(seen[0]!.slice(0, seen[1]!.length));
    expect(engine.leftovers().filter((text) => text.includes(b.server.nodes.id))).toEqual([]);
  });

  it("stay while they are suspended", async () => {
    const [, a, b, seen] = room();
    const ann = await joined(a, "ann");
    const suspended = new Promise<void>((resolve) => ann.peer.once("suspend", resolve));
    a.network.of(ann.client).cut();
    await suspended;
    expect(await names(b)).toEqual(["ann"]);
    expect(seen[1]).toEqual([["joined", "ann"]]);
  });

  it("are notified of others that join and leave, on all nodes, and not of themselves", async () => {
    const [, a, b] = room();
    const [ann, bob] = [await joined(a, "ann"), await joined(b, "bob")];
    const eve = await joined(a, "eve");
    await eve.client.close();
    await ann.until(3);
    await bob.until(2);
    expect(ann.got).toEqual([
      ["joined", of(bob, "bob")],
      ["joined", of(eve, "eve")],
      ["left", of(eve, "eve")],
    ]);
    expect(bob.got).toEqual([
      ["joined", of(eve, "eve")],
      ["left", of(eve, "eve")],
    ]);
  });

  it("may join again with another `as`: each node sees that once, as `joined`, and `left` has the last one", async () => {
    const [, a, b, seen] = room();
    const [ann, bob] = [await joined(a, "ann"), await joined(b, "bob")];
    await ann.until(1);
    const rejoin = (as: string): Promise<unknown> => a.server.topic("room").join(ann.peer, { as });
    await rejoin("ann, away");
    await rejoin("ann, away");
    await rejoin("ann");
    await ann.client.close();
    const all = [
      ["joined", "ann"],
      ["joined", "bob"],
      ["joined", "ann, away"],
      ["joined", "ann"],
      ["left", "ann"],
    ];
    for (const events of seen) await expect.poll(() => events).toEqual(all);
    await bob.until(3);
    expect(bob.got).toEqual([
      ["joined", of(ann, "ann, away")],
      ["joined", of(ann, "ann")],
      ["left", of(ann, "ann")],
    ]);
    expect(ann.got).toEqual([["joined", of(bob, "bob")]]);
  });

  it("whose `as` changed while changes were missed are seen when the members are listed again", async () => {
    const [engine, a, b, seen] = room();
    const ann = await joined(a, "ann");
    engine.links[1]!.loses = (_channel, frame) => frame.startsWith("1j");
    await a.server.topic("room").join(ann.peer, { as: "ann, away" });
    engine.links[1]!.loses = () => false;
    await joined(b, "bob");
    await expect
      .poll(() => seen[1])
      .toEqual([
        ["joined", "ann"],
        ["joined", "ann, away"],
        ["joined", "bob"],
      ]);
  });

  it("join with at most 4 KiB of JSON, to a topic that has the rule", async () => {
    const [, a, , seen] = room({
      topics: (name: string) => (name === "room" ? { members: true } : undefined),
    });
    const ann = await a.client();
    const topic = a.server.topic("room");
    await expect(topic.join(ann.peer, { as: "x".repeat(4_095) })).rejects.toThrow("Expected `as` to be at most 4096");
    await expect(topic.join(ann.peer, { as: () => {} })).rejects.toThrow("Expected `as`");
    await expect(topic.join(ann.peer, { as: { roles: new Set() } })).rejects.toThrow("cannot carry the Set `roles`");
    await expect(a.server.topic("other").join(ann.peer, { as: 1 })).rejects.toThrow("requires the rule `members`");
    await expect(a.server.topic("other").members()).rejects.toThrow("no list of members");
    expect(() => a.server.topic("other").watch(() => {})).toThrow("no list of members");
    expect(topic.size).toBe(0);
    await topic.join(ann.peer, { as: "x".repeat(4_094) });
    expect(seen[0]).toHaveLength(1);
    const without = makeNode({ engine: new FaultyEngine({}, ["roster"]), ...RULES });
    nodes.push(without);
    await expect(without.server.topic("room").members()).rejects.toThrow("the engine faulty has no members");
  });

  it("are at most 10,000 in a topic, and more may join without `as`", async () => {
    const [engine, a, b] = room();
    const eve = await joined(a, "eve");
    const stranger = engine.inner.createConnection("stranger", { received() {}, up() {}, down() {}, heard() {} });
    await stranger.open();
    for (let i = 1; i < 10_000; i++) await stranger.roster!.put("room", `stranger/1.m${i}`, "1");
    await turn();
    const ann = await a.client();
    const topic = a.server.topic("room");
    expect(await rejection(topic.join(ann.peer, { as: "ann" }))).toBeInstanceOf(RangeError);
    expect(topic.size).toBe(1);
    expect(await topic.members()).toHaveLength(10_000);
    await topic.join(ann.peer);
    expect(topic.size).toBe(2);
    // One of them may change what the others see.
    await topic.join(eve.peer, { as: "eva" });
    expect(await b.server.topic("room").members()).toContainEqual(of(eve, "eva"));
    await stranger.close();
  });

  it("are removed if `join` fails with an unknown outcome", async () => {
    const [engine, a, b, seen] = room();
    const ann = await a.client("ann");
    const [link] = engine.links;
    const topic = a.server.topic("room");
    // The change is written, and its answer is lost.
    let failures = 1;
    link!.after = (command) => {
      if (command === "put" && failures-- > 0) throw new EngineError("faulty", "unknown");
    };
    expect(await rejection(topic.join(ann.peer, { as: "ann" }))).toMatchObject({
      message: "faulty",
      outcome: "unknown",
    });
    expect(topic.size).toBe(0);
    await expect.poll(() => names(b), { timeout: 5_000 }).toEqual([]);
    expect(seen[1]).toEqual([
      ["joined", "ann"],
      ["left", "ann"],
    ]);
    await topic.join(ann.peer, { as: "ann" });
    expect(await names(b)).toEqual(["ann"]);
    expect(seen[1]!.slice(2)).toEqual([["joined", "ann"]]);
  });

  it.each([false, true])(
    "are gone if they leave while a change of theirs fails; confirmed before: %s",
    async (isOld) => {
      const [engine, a, b] = room();
      const ann = isOld ? await joined(a, "ann") : await a.client("ann");
      const answer = gate();
      let failures = 1;
      engine.links[0]!.before = (command) => (command === "put" && failures-- > 0 ? answer.promise : undefined);
      const topic = a.server.topic("room");
      const joining = rejection(topic.join(ann.peer, { as: "anna" }));
      await expect.poll(() => failures).toBe(0);
      topic.delete(ann.peer);
      answer.reject(new EngineError("faulty", "unknown"));
      await joining;
      await expect.poll(() => names(b), { timeout: 5_000 }).toEqual([]);
      await ann.client.close();
    },
  );

  it("leave when the connection is restored, if they closed meanwhile", async () => {
    const [engine, a, b, seen] = room();
    const ann = await joined(a, "ann");
    const eve = await joined(a, "eve");
    const [link] = engine.links;
    link!.down();
    await ann.client.close();
    await expect.poll(() => a.server.topic("room").size).toBe(1);
    expect(await rejection(a.server.topic("room").members())).toMatchObject({ outcome: "not-sent" });
    expect(await names(b)).toEqual(["ann", "eve"]);
    link!.up();
    await expect.poll(() => names(b)).toEqual(["eve"]);
    expect(seen[1]!.at(-1)).toEqual(["left", "ann"]);
    expect(eve.peer.state).toBe("open");
  });

  it("are listed again after changes that were missed, and watchers see each change once", async () => {
    const [engine, a, b, seen] = room();
    await joined(a, "ann");
    const bob = await joined(a, "bob");
    await expect.poll(() => seen[1]!.length).toBe(2);
    engine.links[1]!.down();
    await bob.client.close();
    await joined(a, "eve");
    await expect.poll(() => names(a)).toEqual(["ann", "eve"]);
    engine.links[1]!.up();
    await expect.poll(() => seen[1]!.length).toBe(4);
    expect(seen[1]!.slice(2)).toEqual(
      expect.arrayContaining([
        ["joined", "eve"],
        ["left", "bob"],
      ]),
    );
    let lost = 1;
    engine.links[1]!.loses = (_channel, frame) => frame.startsWith("1j") && lost-- > 0;
    await joined(a, "kim");
    await joined(a, "lee");
    await expect.poll(() => seen[1]!.length).toBe(6);
    expect(await names(b)).toEqual(["ann", "eve", "kim", "lee"]);
  });

  it("of a node that was given up are put again, and others see at most one leave and one join", async () => {
    const [engine, a, b, seen] = room({}, { leaseMs: 60 });
    const ann = await joined(a, "ann");
    const states: string[] = [];
    a.server.on("engine", ({ state }) => states.push(state));
    await engine.links[0]!.expire();
    await expect.poll(() => names(b), { interval: 5 }).toEqual(["ann"]);
    await expect.poll(() => states).toEqual(["down", "up"]);
    expect(seen[1]).toEqual([
      ["joined", "ann"],
      ["left", "ann"],
      ["joined", "ann"],
    ]);
    // Its peer has noticed nothing, and has the same id.
    expect((await b.server.topic("room").members())[0]!.id).toBe(ann.peer.id);
    expect(ann.peer.state).toBe("open");
    b.server.peer(ann.peer.id).notify("hello");
    await ann.until(1);
    expect(b.server.nodes.live).toContain(a.server.nodes.id);
  });
});

it("a node that was given up lists the members again, because the broker may have lost changes", async () => {
  const [engine, , b, seen] = room({}, { leaseMs: 60 });
  const bob = await joined(b, "bob");
  await expect.poll(() => seen[0]).toEqual([["joined", "bob"]]);
  engine.links[0]!.loses = (_channel, frame) => frame.startsWith("1l");
  await bob.client.close();
  await expect.poll(() => names(b)).toEqual([]);
  expect(seen[0]).toEqual([["joined", "bob"]]);
  await engine.links[0]!.expire();
  await expect
    .poll(() => seen[0])
    .toEqual([
      ["joined", "bob"],
      ["left", "bob"],
    ]);
});

it("a change that comes while an older list is read follows this list", () => {
  const events: [string, string][] = [];
  const replica = new Replica(
    (id) => id,
    (event, { id }) => events.push([event, id]),
  );
  const members: [RosterId, string][] = [["n/1.a", "1"]];
  replica.listed(replica.request(), { version: 50, members });
  // The broker was restored from a snapshot, and the change arrives before the list.
  const request = replica.request();
  replica.changed(22, "n/1.b", "2");
  replica.listed(request, { version: 21, members });
  expect(events).toEqual([["joined", "n/1.b"]]);
  expect(replica.needsList).toBe(false);
  replica.changed(23, "n/1.a", undefined);
  expect(events).toHaveLength(2);
});

it("a lease that cannot be taken again at once is taken at a later beat, with all members", async () => {
  const [engine, a, b] = room({}, { leaseMs: 60 });
  await joined(a, "ann");
  let failures = 2;
  engine.links[0]!.before = (command) => {
    if (command === "enter" && failures-- > 0) throw new Error("faulty");
  };
  await engine.links[0]!.expire();
  await expect.poll(() => names(b), { interval: 5 }).toEqual([]);
  await expect.poll(() => names(b), { interval: 5 }).toEqual(["ann"]);
  expect(failures).toBeLessThan(0);
});

const idOf = (version: number): RosterId => `node/1.m${version}`;
const listOf = (last: number): [RosterId, string][] => Array.from({ length: last }, (_, i) => [idOf(i + 1), "1"]);

it("a replica keeps at most 1,000 changes that came too early, and lists the members again for the others", () => {
  const events: string[] = [];
  const replica = new Replica(
    (id) => id,
    (event) => void events.push(event),
  );
  const request = replica.request();
  for (let version = 2; version <= 1_002; version++) replica.changed(version, idOf(version), "1");
  replica.listed(request, { version: 1, members: listOf(1) });
  expect([replica.size, replica.needsList]).toEqual([1_001, true]);
  replica.listed(replica.request(), { version: 1_002, members: listOf(1_002) });
  expect([replica.size, replica.needsList, events.length]).toEqual([1_002, false, 1_001]);
});

describe("watch", () => {
  it("ends with the function that it returns, and a failing listener stops no other", async () => {
    const [, a, b, seen] = room();
    const errors: unknown[] = [];
    a.server.on("error", (error) => errors.push(error));
    const got: string[] = [];
    const listener = (event: string): void => void got.push(event);
    const stops = [
      a.server.topic("room").watch(() => {
        throw new Error("listener");
      }),
      a.server.topic("room").watch(listener),
      a.server.topic("room").watch(listener),
    ];
    await joined(b, "bob");
    await expect.poll(() => got).toEqual(["joined", "joined"]);
    expect(errors).toHaveLength(1);
    stops[1]!();
    stops[1]!();
    await joined(b, "eve");
    await expect.poll(() => seen[0]!.length).toBe(2);
    expect(got).toHaveLength(3);
    for (const stop of stops) stop();
    await joined(b, "kim");
    await expect.poll(() => seen[0]!.length).toBe(3);
    expect(got).toHaveLength(3);
  });
});
