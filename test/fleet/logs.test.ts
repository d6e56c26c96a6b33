import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, describe, expect, it } from "vitest";
import { countDeadlines } from "../../src/core/deadlines.js";
import { EngineError } from "../../src/fleet/engine.js";
import { memory } from "../../src/fleet/memory.js";
import { TooLargeError } from "../../src/node.js";
import { gate, rejection, turn } from "../support/turns.js";
import { FaultyEngine } from "./faulty.js";
import { closeAll, makeNode, makeNodes, type Client, type Node } from "./nodes.js";

let nodes: Node[] = [];
afterEach(() => closeAll(nodes));

const RULES = { topics: () => ({ log: { length: 200, ttlMs: 600_000 } }) };

/** Two nodes with a logged topic "room", and a member on each. */
async function room(options: object = {}): Promise<[FaultyEngine, a: Node, b: Node, ann: Client, bob: Client]> {
  const engine = new FaultyEngine();
  nodes = makeNodes(2, { ...RULES, ...options }, engine);
  const [a, b] = nodes as [Node, Node];
  const [ann, bob] = [await a.client("ann"), await b.client("bob")];
  await a.server.topic("room").join(ann.peer);
  await b.server.topic("room").join(bob.peer);
  return [engine, a, b, ann, bob];
}

const numbers = ({ got }: Client): number[] => got.filter(([method]) => method === "said").map(([, { n }]) => n);
const count = (from: number, to: number): number[] => Array.from({ length: to - from + 1 }, (_, i) => from + i);

/** Publishes numbers, one after the other. Returns the last position. */
async function say(node: Node, from: number, to = from): Promise<string> {
  let at = "";
  for (let n = from; n <= to; n++) at = await node.server.topic("room").publish("said", { n });
  return at;
}

/** A client that has left its node and comes back to another, with the position that it has. */
async function back(node: Node, since: unknown): Promise<Client & { joined: any }> {
  const client = await node.client();
  const joined = await node.server.topic("room").join(client.peer, { since });
  client.peer.notify("joined");
  await client.until(1);
  await expect.poll(() => client.got.some(([method]) => method === "joined")).toBe(true);
  return Object.assign(client, { joined });
}

/** Connects a client that accepts less. Its node knows that since its first message. */
async function limited(node: Node): Promise<Client> {
  const client = await node.client("", { limits: { maxMessageBytes: 10_000 } });
  await rejection(client.client.request("none"));
  return client;
}

/** Lets a peer join, and its node wait for the log. `link`: the connection of the node. */
async function joiningPeer(node: Node, peer: Client, at: string, link: FaultyEngine["links"][number]) {
  const gaps: string[] = [];
  node.server.on("gap", (topic) => gaps.push(topic));
  const read = gate();
  link.before = (command) => (command === "read" ? read.promise : undefined);
  const joining = node.server.topic("room").join(peer.peer, { since: at });
  await turn();
  return { gaps, read, joining };
}

describe("an empty log", () => {
  it("has a position: a client that joined it misses nothing, whether there was a publication since or not", async () => {
    nodes = makeNodes(2, { topics: () => ({ log: { length: 10, ttlMs: 60_000 } }) });
    const [a, b] = nodes as [Node, Node];
    const ann = await a.client();
    const first = await a.server.topic("room").join(ann.peer);
    expect(first).toEqual({ at: expect.stringMatching(/^[\w-]+\.0$/), outcome: "gap" });
    await ann.client.close();
    expect(await a.server.topic("room").read()).toEqual({ at: first.at, outcome: "gap", entries: [] });
    const again = await b.client();
    const complete = { at: first.at, outcome: "complete" };
    expect(await b.server.topic("room").join(again.peer, { since: first.at })).toEqual(complete);
    await again.client.close();
    const at = await a.server.topic("room").publish("said", { n: 1 });
    const late = await b.client();
    expect(await b.server.topic("room").join(late.peer, { since: first.at })).toEqual({ at, outcome: "complete" });
    expect(await late.until(1)).toEqual([["said", { n: 1, at }]]);
    const { outcome, entries } = await b.server.topic("room").read({ since: first.at });
    expect([outcome, entries.length]).toEqual(["complete", 1]);
  });
});

describe("publish", () => {
  it("sends to all members on all nodes in one order, with the position that it returns", async () => {
    const [, a, b, ann, bob] = await room();
    const positions = await Promise.all(
      count(1, 40).map((n) => [a, b][n % 2]!.server.topic("room").publish("said", { n })),
    );
    await ann.until(40);
    await bob.until(40);
    expect(bob.got).toEqual(ann.got);
    const [epoch] = positions[0]!.split(".");
    expect(new Set(positions)).toEqual(new Set(count(1, 40).map((offset) => `${epoch}.${offset}`)));
    for (const [, { n, at }] of ann.got) expect(at).toBe(positions[n - 1]);
    expect(ann.got.map(([, { at }]) => Number(at.split(".")[1]))).toEqual(count(1, 40));
  });

  it("adds `at` to any params by name, and to none", async () => {
    const [, a, , , bob] = await room();
    const topic = a.server.topic("room");
    const params = [{}, { a: {} }, { a: "}}" }, { a: [] }, undefined, { "": "é😀\u2028" }];
    for (const one of params) await topic.publish("said", one);
    expect((await bob.until(params.length)).map(([, { at: _at, ...rest }]) => rest)).toEqual(
      params.map((one) => one ?? {}),
    );
    expect(bob.got.every(([, { at }]) => typeof at === "string")).toBe(true);
  });

  it("rejects params that it cannot take, and sends nothing", async () => {
    const [, a, , ann] = await room();
    const topic = a.server.topic("room");
    await expect(topic.publish("said", { at: 1 })).rejects.toThrow("Expected `params.at` to be absent");
    await expect(topic.publish("said", [1])).rejects.toThrow("Expected `params` to be an object");
    await expect(topic.publish("said", { toJSON: () => [1] })).rejects.toThrow(TypeError);
    for (const key of ["", "x".repeat(257), "\ud800", "a\udc00b", 5 as never])
      await expect(topic.publish("said", {}, { key })).rejects.toThrow(
        "Expected `key` to be a well-formed string of 1 to 256 characters",
      );
    await expect(topic.publish("said", {}, { unknown: 1 } as never)).rejects.toThrow("Unknown name `unknown`");
    const large = { text: "x".repeat(16 * 2 ** 20) };
    expect(await rejection(topic.publish("said", large))).toBeInstanceOf(TooLargeError);
    await topic.publish("end");
    expect(await ann.until(1)).toHaveLength(1);
  });

  it("publishes once for one key", async () => {
    const [, a, b, ann] = await room();
    const first = await a.server.topic("room").publish("said", { n: 1 }, { key: "k" });
    expect(await b.server.topic("room").publish("said", { n: 2 }, { key: "k" })).toBe(first);
    await say(a, 3);
    expect(await ann.until(2)).toHaveLength(2);
    expect(numbers(ann)).toEqual([1, 3]);
  });

  it("requires the rule `log`, and an engine that has logs", async () => {
    nodes = makeNodes(1);
    const [a] = nodes as [Node];
    const ann = await a.client();
    await expect(a.server.topic("room").publish("said", {})).rejects.toThrow('"room" has no log');
    await expect(a.server.topic("room").read()).rejects.toThrow('"room" has no log');
    await expect(a.server.topic("room").join(ann.peer, { since: "a.1" })).rejects.toThrow("requires the rule `log`");
    const without = makeNode({ engine: new FaultyEngine({}, ["log"]), ...RULES });
    nodes.push(without);
    const bob = await without.client();
    expect(() => without.server.topic("room").add(bob.peer)).toThrow("the engine faulty has no logs");
    await expect(without.server.topic("room").publish("said", {})).rejects.toThrow("the engine faulty has no logs");
  });

  it("throws for rules that are none", async () => {
    const logs = [
      {},
      { length: 0, ttlMs: 1_000 },
      { length: 10_001, ttlMs: 1_000 },
      { length: 1, ttlMs: 999 },
      { length: 1, ttlMs: 604_800_001 },
    ];
    for (const rules of logs.map((log) => ({ log }))) {
      const node = makeNode({ engine: memory(), topics: () => rules });
      nodes.push(node);
      const ann = await node.client();
      expect(() => node.server.topic("room").add(ann.peer)).toThrow("Expected `rules.log.");
      expect(node.server.topic("room").size).toBe(0);
    }
  });

  it("rejects with `unknown` if the broker does not answer, and a key makes it safe to repeat", async () => {
    const [engine, a, , ann] = await room();
    const answer = gate();
    engine.links[0]!.before = (command) => (command === "append" ? answer.promise : undefined);
    const topic = a.server.topic("room");
    const error = await rejection(topic.publish("said", { n: 1 }, { timeoutMs: 30, key: "k" }));
    expect(error).toMatchObject({ code: "ENGINE", outcome: "unknown" });
    answer.resolve();
    engine.links[0]!.before = () => {};
    await topic.publish("said", { n: 1 }, { key: "k" });
    await say(a, 2);
    await ann.until(2);
    expect(numbers(ann)).toEqual([1, 2]);
  });

  it("waits for the connection within its timeout, and rejects with `not-sent` after it", async () => {
    const [engine, a, , ann, bob] = await room();
    const [link] = engine.links;
    link!.down();
    const topic = a.server.topic("room");
    const late = topic.publish("said", { n: 1 }, { timeoutMs: 20 });
    const kept = topic.publish("said", { n: 2 }, { timeoutMs: 20_000 });
    expect(await rejection(late)).toMatchObject({ code: "ENGINE", outcome: "not-sent" });
    expect(a.server.stats().engine!.pendingBytes).toBeGreaterThan(0);
    link!.up();
    await kept;
    await ann.until(1);
    await bob.until(1);
    expect([numbers(ann), numbers(bob)]).toEqual([[2], [2]]);
    expect(a.server.stats().engine!.pendingBytes).toBe(0);
  });

  it("keeps the order of one node's publications, also while the node begins to follow the log", async () => {
    const [, a, b] = await room();
    const bob = await b.client();
    const topic = a.server.topic("other");
    const ann = await a.client();
    await b.server.topic("other").join(bob.peer);
    const first = topic.publish("said", { n: 1 });
    topic.add(ann.peer);
    const others = [topic.publish("said", { n: 2 })];
    for (let n = 3; n <= 12; n++) {
      await Promise.resolve();
      others.push(topic.publish("said", { n }));
    }
    const offsets = (await Promise.all([first, ...others])).map((at) => Number(at.split(".")[1]));
    expect(offsets).toEqual(count(1, 12));
    await bob.until(12);
    expect(numbers(bob)).toEqual(count(1, 12));
  });

  it("keeps the order if the time of one that waits has passed", async () => {
    const [engine, a] = await room();
    const read = gate();
    engine.links[0]!.before = (command) => (command === "read" ? read.promise : undefined);
    const ann = await a.client();
    const topic = a.server.topic("other").add(ann.peer);
    const waiting = [topic.publish("said", { n: 0 }), topic.publish("said", { n: 1 })];
    const late = await rejection(topic.publish("said", { n: 2 }, { timeoutMs: 30 }));
    expect(late).toMatchObject({ name: "EngineError", outcome: "not-sent" });
    waiting.push(topic.publish("said", { n: 3 }));
    await turn();
    read.resolve();
    expect((await Promise.all(waiting)).map((at) => at.split(".")[1])).toEqual(["1", "2", "3"]);
    await ann.until(3);
    expect(numbers(ann)).toEqual([0, 1, 3]);
  });

  it("does not wait for the list of members, and keeps the order while it is read", async () => {
    const [engine, a] = await room({ topics: () => ({ log: { length: 200, ttlMs: 600_000 }, members: true }) });
    const list = gate();
    engine.links[0]!.before = (command) => (command === "list" ? list.promise : undefined);
    const ann = await a.client();
    const topic = a.server.topic("other").add(ann.peer);
    const first = topic.publish("said", { n: 1 });
    await turn();
    const second = await topic.publish("said", { n: 2 });
    expect(second).toMatch(/\.2$/);
    expect(await first).toMatch(/\.1$/);
    list.resolve();
    await ann.until(2);
    expect(numbers(ann)).toEqual([1, 2]);
  });

  it("keeps at most 1,000 publications and 4 MiB while there is no connection", async () => {
    const [engine, a] = await room();
    engine.links[0]!.down();
    const topic = a.server.topic("room");
    const waiting = count(1, 1_000).map((n) => rejection(topic.publish("said", { n }, { timeoutMs: 500 })));
    const { dropped } = a.server.stats().engine!;
    const refused = await rejection(topic.publish("said", { n: 0 }));
    expect(refused).toMatchObject({ outcome: "not-sent", message: expect.stringContaining("too much waits") });
    expect(a.server.stats().engine!.dropped).toBe(dropped + 1);
    for (const error of await Promise.all(waiting)) expect(error.outcome).toBe("not-sent");
    const text = "x".repeat(2 ** 21);
    const long = rejection(topic.publish("said", { text }, { timeoutMs: 300 }));
    expect((await rejection(topic.publish("said", { text }))).message).toContain("too much waits");
    expect((await long).message).toContain("no connection");
  });

  it("refuses what exceeds that once, also if the node does not follow the log yet", async () => {
    const [engine, a] = await room();
    engine.links[0]!.down();
    const ann = await a.client();
    const topic = a.server.topic("other").add(ann.peer);
    const { dropped } = a.server.stats().engine!;
    const errors = await Promise.all(
      count(1, 1_010).map((n) => rejection(topic.publish("said", { n }, { timeoutMs: 300 }))),
    );
    expect(errors.every(({ outcome }) => outcome === "not-sent")).toBe(true);
    expect(errors.slice(1_000).every(({ message }) => message.includes("too much waits"))).toBe(true);
    expect(a.server.stats().engine!.dropped).toBe(dropped + 10);
  });

  it("lets at most 1,000 wait until the node follows the log, and its members get those", async () => {
    const [, a] = await room();
    const ann = await a.client();
    const topic = a.server.topic("other").add(ann.peer);
    const { dropped } = a.server.stats().engine!;
    const all = await Promise.allSettled(count(1, 10_000).map((n) => topic.publish("said", { n })));
    expect(all.slice(0, 1_000).every(({ status }) => status === "fulfilled")).toBe(true);
    for (const refused of all.slice(1_000))
      expect(refused).toMatchObject({ reason: { outcome: "not-sent", message: "too much waits for faulty" } });
    expect(a.server.stats().engine!.dropped).toBe(dropped + 9_000);
    await ann.until(1_000);
    expect(numbers(ann)).toEqual(count(1, 1_000));
  });

  it("takes a long one, also if the node does not follow the log yet", async () => {
    const [, a] = await room();
    const ann = await a.client("", { limits: { maxMessageBytes: 16 * 2 ** 20 } });
    const topic = a.server.topic("other").add(ann.peer);
    const long = "x".repeat(5 * 2 ** 20);
    const [at, refused] = await Promise.allSettled([topic.publish("said", { long }), topic.publish("said", { long })]);
    expect(at).toMatchObject({ status: "fulfilled" });
    expect(refused).toMatchObject({ reason: { message: "too much waits for faulty" } });
  });

  it("has a gap on a node that has members and cannot read the log", async () => {
    const [engine, a] = await room({ topics: () => ({ log: { length: 200, ttlMs: 600_000 }, members: true }) });
    const gaps: unknown[] = [];
    a.server.on("gap", (name, reason) => gaps.push([name, reason]));
    const { before } = engine.links[0]!;
    const ann = await a.client();
    let isLost = false;
    engine.links[0]!.before = (command) => {
      if (command === "read") throw new EngineError("faulty: refused", "not-sent");
      if (command === "append" && isLost) throw new EngineError("faulty: lost", "unknown");
    };
    const topic = a.server.topic("other").add(ann.peer);
    expect(await topic.publish("said", { n: 1 })).toMatch(/\.1$/);
    isLost = true;
    expect(await rejection(topic.publish("said", { n: 2 }))).toMatchObject({ outcome: "unknown" });
    const long = "x".repeat(16 * 2 ** 20);
    expect(await rejection(topic.publish("said", { long }))).toBeInstanceOf(TooLargeError);
    // No member is left who could miss one, although the node still watches the topic.
    topic.watch(() => {});
    const late = topic.publish("said", { n: 3 });
    topic.delete(ann.peer);
    expect((await rejection(late)).outcome).toBe("unknown");
    engine.links[0]!.before = before;
    expect(gaps).toEqual([1, 2].map(() => ["other", "a publication was logged before this node could read the log"]));
  });

  it("has a gap if it waited for the connection, and a member was added meanwhile", async () => {
    const [engine, a] = await room();
    const gaps: unknown[] = [];
    a.server.on("gap", (name, reason) => gaps.push([name, reason]));
    engine.links[0]!.down();
    const ann = await a.client();
    const topic = a.server.topic("other");
    const publishing = topic.publish("said", { n: 1 });
    await turn();
    topic.add(ann.peer);
    engine.links[0]!.up();
    expect(await publishing).toMatch(/\.1$/);
    expect(gaps).toEqual([["other", "a publication was logged before this node could read the log"]]);
  });

  it("leaves nothing behind when its time has passed", async () => {
    const [engine, a] = await room();
    const ann = await a.client();
    const subscribed = gate();
    engine.links[0]!.before = (command) => (command === "subscribe" ? subscribed.promise : undefined);
    const topic = a.server.topic("other").add(ann.peer);
    const { waiting } = countDeadlines();
    for (let round = 0; round < 3; round++) {
      const late = count(1, 999).map((n) => rejection(topic.publish("said", { n }, { timeoutMs: 20 })));
      for (const { outcome, message } of await Promise.all(late))
        expect([outcome, message]).toEqual(["not-sent", "faulty was not ready in time"]);
    }
    // The first of each round waits until the broker has subscribed. Clients and nodes have deadlines too.
    expect(countDeadlines().waiting).toBeLessThan(waiting + 100);
    subscribed.resolve();
    await topic.publish("said", { n: 1 });
    await ann.until(1);
    expect(numbers(ann)).toEqual([1]);
  });

  it("tries once to follow the log for all that wait", async () => {
    const [engine, a] = await room();
    const ann = await a.client();
    let reads = 0;
    engine.links[0]!.before = async (command) => {
      if (command !== "read") return;
      reads++;
      await sleep(100);
      throw new EngineError("faulty: refused", "not-sent");
    };
    const topic = a.server.topic("other").add(ann.peer);
    const all = count(1, 100).map((n) => topic.publish("said", { n }, { timeoutMs: 2_000 }));
    expect((await Promise.all(all)).map((at) => Number(at.split(".")[1]))).toEqual(count(1, 100));
    expect(reads).toBeLessThan(4);
  });

  it("waits for the log again when the connection is back", async () => {
    const [engine, a] = await room();
    const gaps: string[] = [];
    a.server.on("gap", (name) => gaps.push(name));
    const ann = await a.client();
    const read = gate();
    engine.links[0]!.before = (command) => (command === "read" ? read.promise : undefined);
    const topic = a.server.topic("other").add(ann.peer);
    const all = [topic.publish("said", { n: 1 })];
    await turn();
    a.server.on("engine", ({ state }) => {
      if (state === "down") for (const n of [2, 3, 4]) all.push(topic.publish("said", { n }));
    });
    engine.links[0]!.down();
    read.reject(new EngineError("faulty: lost", "unknown"));
    await turn();
    engine.links[0]!.before = () => {};
    engine.links[0]!.up();
    expect((await Promise.all(all)).map((at) => at.split(".")[1])).toEqual(["1", "2", "3", "4"]);
    // The first had waited for the log before. It is sent at once.
    await ann.until(3);
    expect([numbers(ann), gaps]).toEqual([[2, 3, 4], ["other"]]);
  });

  it("may wait without end, and then has the time of a command", async () => {
    const [engine, a] = await room();
    engine.links[0]!.down();
    const publishing = a.server.topic("none").publish("said", { n: 1 }, { timeoutMs: Infinity });
    engine.links[0]!.before = (command) => (command === "append" ? sleep(50) : undefined);
    engine.links[0]!.up();
    expect(await publishing).toMatch(/\.1$/);
  });

  it("calls `around` once, and publishes what it changed", async () => {
    const [, a, , ann] = await room({
      around: (call: any, next: () => Promise<unknown>) => {
        if (call.peer === undefined) call.params = { n: call.params.n + 1 };
        return next();
      },
    });
    expect(await a.server.topic("room").publish("said", { n: 1 })).toMatch(/\.1$/);
    await ann.until(1);
    expect(numbers(ann)).toEqual([2]);
  });
});

describe("a client that comes back", () => {
  it("gets what it missed, then what is live, and then the response", async () => {
    const [, a, b, , bob] = await room();
    const at = await say(a, 1, 3);
    await bob.until(3);
    await bob.client.close();
    await say(a, 4, 8);
    const returned = await back(a, at);
    expect(returned.joined).toEqual({ at: expect.stringMatching(/\.8$/), outcome: "complete" });
    await say(b, 9);
    await returned.until(7);
    expect(returned.got.map(([method]) => method)).toEqual([...Array(5).fill("said"), "joined", "said"]);
    expect(numbers(returned)).toEqual(count(4, 9));
  });

  it("gets what is not in the node's tail from the broker, in one read for all clients", async () => {
    const [engine, a, b] = await room();
    const at = await say(a, 1);
    await say(b, 2, 120);
    const clients = await Promise.all(count(1, 20).map(() => a.client()));
    const { commands } = engine.links[0]!;
    const before = commands.filter((command) => command === "read").length;
    const joined = await Promise.all(clients.map(({ peer }) => a.server.topic("room").join(peer, { since: at })));
    expect(joined.every(({ outcome }) => outcome === "complete")).toBe(true);
    await say(b, 121);
    for (const client of clients) {
      await client.until(120);
      expect(numbers(client)).toEqual(count(2, 121));
    }
    expect(commands.filter((command) => command === "read").length - before).toBe(1);
  });

  it("gets no live message before what it missed, and none twice", async () => {
    const [engine, a, b] = await room();
    const at = await say(a, 1);
    await say(b, 2, 100);
    const client = await a.client();
    const read = gate();
    engine.links[0]!.before = (command) => (command === "read" ? read.promise : undefined);
    const joining = a.server.topic("room").join(client.peer, { since: at });
    await turn();
    await say(b, 101, 103);
    b.server.topic("room").notify("typing");
    await turn();
    a.server.topic("room").notify("here", undefined, { here: true });
    await turn();
    expect(client.got).toEqual([]);
    read.resolve();
    expect(await joining).toEqual({ at: expect.stringMatching(/\.100$/), outcome: "complete" });
    await say(b, 104);
    await client.until(105);
    expect(numbers(client)).toEqual(count(2, 104));
    expect(client.got.slice(99).map(([method]) => method)).toEqual(["said", "said", "said", "typing", "here", "said"]);
  });

  it("has a gap if `since` is absent, malformed, of another log, ahead, or too old", async () => {
    const [, a, b] = await room();
    const at = await say(a, 1, 3);
    const [epoch] = at.split(".");
    const others = [undefined, null, 5, "", "x", `${epoch}.`, `${epoch}.x`, `${epoch}.-1`, `${epoch}.1e3`, "other.1"];
    for (const since of [...others, `${epoch}.4`, `${epoch}.999999999999999`]) {
      const client = await back(b, since);
      expect([since, client.joined]).toEqual([since, { at, outcome: "gap" }]);
      expect(numbers(client)).toEqual([]);
    }
    await say(a, 4, 300);
    const client = await back(b, at);
    expect(client.joined.outcome).toBe("gap");
    expect(numbers(client)).toEqual([]);
    // Nothing but the position itself is needed for completeness.
    expect((await back(b, client.joined.at)).joined.outcome).toBe("complete");
  });

  it("has a gap if more than a quarter of `maxUnsentBytes` is to be sent", async () => {
    const [, a] = await room({ limits: { maxUnsentBytes: 40_000 } });
    const topic = a.server.topic("room");
    const at = await say(a, 1);
    await topic.publish("said", { n: 2, text: "x".repeat(9_000) });
    expect((await back(a, at)).joined.outcome).toBe("complete");
    await topic.publish("said", { n: 3, text: "x".repeat(2_000) });
    const client = await back(a, at);
    expect(client.joined.outcome).toBe("gap");
    expect(numbers(client)).toEqual([]);
  });

  it("has a gap if too much arrives meanwhile, and gets all of that", async () => {
    const [engine, a, b] = await room({ limits: { maxUnsentBytes: 40_000 } });
    const at = await say(a, 1);
    await say(b, 2, 100);
    const client = await a.client();
    const read = gate();
    engine.links[0]!.before = (command) => (command === "read" ? read.promise : undefined);
    const joining = a.server.topic("room").join(client.peer, { since: at });
    await turn();
    for (let n = 101; n <= 104; n++) await b.server.topic("room").publish("said", { n, text: "x".repeat(4_000) });
    await client.until(4);
    read.resolve();
    expect(await joining).toEqual({ at: expect.stringMatching(/\.100$/), outcome: "gap" });
    await say(b, 105);
    await client.until(5);
    expect(numbers(client)).toEqual(count(101, 105));
  });

  it("has a gap if too much arrives meanwhile, also if the log cannot be read then", async () => {
    const [engine, a, b] = await room({ limits: { maxUnsentBytes: 40_000 } });
    const at = await say(a, 1);
    await say(b, 2, 100);
    const client = await a.client();
    const { read, joining } = await joiningPeer(a, client, at, engine.links[0]!);
    for (let n = 101; n <= 104; n++) await b.server.topic("room").publish("said", { n, text: "x".repeat(4_000) });
    await client.until(4);
    read.reject(new EngineError("faulty: lost", "unknown"));
    expect((await joining).outcome).toBe("gap");
    expect(a.server.topic("room").has(client.peer)).toBe(true);
  });

  it("has a gap if its node loses publications while it reads what the client has missed", async () => {
    const [engine, a, b] = await room({ topics: () => ({ log: { length: 100, ttlMs: 600_000 } }) });
    const at = await say(a, 1);
    await say(b, 2, 100);
    const client = await a.client();
    const [link] = engine.links;
    const { log } = link!;
    const answer = gate();
    const read = log!.read.bind(log);
    log!.read = async (topic, after, limit) => {
      const part = await read(topic, after, limit);
      if (after === 1) await answer.promise;
      return part;
    };
    const joining = a.server.topic("room").join(client.peer, { since: at });
    await turn();
    link!.loses = (_channel, frame) => frame.startsWith("1L");
    await say(b, 101, 250);
    link!.loses = () => false;
    await say(b, 251);
    await expect.poll(() => a.server.stats().engine!.gaps).toBe(1);
    answer.resolve();
    expect((await joining).outcome).toBe("gap");
    await client.until(100);
    expect(numbers(client)).toEqual(count(152, 251));
  });

  it("gets nothing twice if another node was faster than its new node", async () => {
    const [engine, a, b, ann] = await room();
    const [, link] = engine.links;
    link!.hold();
    const at = await say(a, 1, 3);
    await ann.until(3);
    const returned = await back(b, at);
    expect(returned.joined).toEqual({ at, outcome: "complete" });
    link!.release();
    await say(a, 4);
    await returned.until(2);
    expect(numbers(returned)).toEqual([4]);
  });

  it("is not added if it closes, is removed, or the broker is down", async () => {
    const [engine, a, b] = await room();
    const at = await say(a, 1);
    await say(b, 2, 100);
    const [link] = engine.links;
    const topic = a.server.topic("room");
    for (const end of ["close", "delete"] as const) {
      const client = await a.client();
      const read = gate();
      link!.before = (command) => (command === "read" ? read.promise : undefined);
      const joining = rejection(topic.join(client.peer, { since: at }));
      await turn();
      if (end === "close") await client.peer.close();
      else topic.delete(client.peer);
      read.resolve();
      expect(await joining).toMatchObject({ outcome: "not-sent" });
      expect(topic.has(client.peer)).toBe(false);
      link!.before = () => {};
    }
    const client = await a.client();
    link!.down();
    expect(await rejection(topic.join(client.peer, { since: at }))).toMatchObject({ outcome: "not-sent" });
    expect(topic.has(client.peer)).toBe(false);
    link!.up();
    expect((await topic.join(client.peer, { since: at })).outcome).toBe("complete");
  });

  it("becomes a member at once if the application adds it meanwhile", async () => {
    const [engine, a, b] = await room();
    const at = await say(a, 1);
    await say(b, 2, 100);
    const client = await a.client();
    const read = gate();
    engine.links[0]!.before = (command) => (command === "read" ? read.promise : undefined);
    const joining = a.server.topic("room").join(client.peer, { since: at });
    await turn();
    await say(b, 101);
    await turn();
    a.server.topic("room").add(client.peer);
    await say(b, 102);
    read.resolve();
    expect((await joining).outcome).toBe("gap");
    await say(b, 103);
    await client.until(3);
    expect(numbers(client)).toEqual([101, 102, 103]);
  });

  it("is not added by any join that was asked for before it is removed", async () => {
    const [, a, , ann] = await room();
    const client = await a.client();
    const topic = a.server.topic("room");
    const removed = [topic.join(client.peer), topic.join(client.peer), topic.join(client.peer)].map(rejection);
    topic.delete(client.peer);
    const later = topic.join(client.peer);
    for (const error of await Promise.all(removed))
      expect(error).toMatchObject({ code: "ENGINE", outcome: "not-sent" });
    expect((await later).outcome).toBe("gap");
    expect(topic.has(client.peer)).toBe(true);
    const again = [topic.join(client.peer), topic.join(client.peer)].map(rejection);
    topic.delete(client.peer);
    await Promise.all(again);
    expect([topic.has(client.peer), topic.has(ann.peer)]).toEqual([false, true]);
  });

  it("joins once, if it joins twice at the same time", async () => {
    const [, a, b] = await room();
    const at = await say(a, 1);
    await say(b, 2, 100);
    const client = await a.client();
    const topic = a.server.topic("room");
    const joins = await Promise.all([topic.join(client.peer, { since: at }), topic.join(client.peer, { since: at })]);
    expect(joins.map(({ outcome }) => outcome)).toEqual(["complete", "gap"]);
    await say(b, 101);
    await client.until(100);
    expect(numbers(client)).toEqual(count(2, 101));
  });
});

describe("a member that was added", () => {
  it("while there was no connection gets what is published from then on", async () => {
    const [engine, a, b] = await room();
    const [link] = engine.links;
    link!.down();
    const client = await a.client();
    const topic = a.server.topic("other").add(client.peer);
    const published = topic.publish("said", { n: 1 });
    link!.up();
    await published;
    await b.server.topic("other").publish("said", { n: 2 });
    await client.until(2);
    expect(numbers(client)).toEqual([1, 2]);
  });

  it("before the broker was there for the first time gets what is published from then on", async () => {
    const engine = new FaultyEngine({ startTimeoutMs: 5, startWithout: true });
    engine.isLate = true;
    nodes = makeNodes(1, RULES, engine);
    engine.isLate = false;
    nodes.push(makeNode({ engine, ...RULES }));
    const [a, b] = nodes as [Node, Node];
    const client = await a.client();
    a.server.topic("room").add(client.peer);
    expect(await rejection(a.server.topic("room").join(client.peer))).toMatchObject({ outcome: "not-sent" });
    engine.links[0]!.up();
    await expect.poll(() => a.server.health().ok).toBe(true);
    await say(b, 1);
    await client.until(1);
    expect(numbers(client)).toEqual([1]);
  });
});

describe("a node that misses messages", () => {
  it("heals before its peers notice, in order and once", async () => {
    const [engine, a, b, , bob] = await room();
    await say(a, 1, 2);
    await bob.until(2);
    let lost = 3;
    engine.links[1]!.loses = (_channel, frame) => frame.startsWith("1L") && lost-- > 0;
    await say(a, 3, 7);
    await bob.until(7);
    expect(numbers(bob)).toEqual(count(1, 7));
    expect(b.server.stats().engine).toMatchObject({ healed: expect.any(Number), gaps: 0 });
    expect(b.server.stats().engine!.healed).toBeGreaterThanOrEqual(3);
  });

  it("heals after its subscription was restored, also if nothing is published any more", async () => {
    const [engine, a, b, , bob] = await room();
    await say(a, 1, 2);
    await bob.until(2);
    engine.links[1]!.down();
    await say(a, 3, 6);
    engine.links[1]!.up();
    await bob.until(6);
    expect(numbers(bob)).toEqual(count(1, 6));
    expect(b.server.stats().engine).toMatchObject({ healed: 4, gaps: 0 });
  });

  it("reports a gap if the log no longer has what is missing", async () => {
    const [engine, a, b, , bob] = await room({ topics: () => ({ log: { length: 3, ttlMs: 60_000 } }) });
    const gaps: unknown[] = [];
    b.server.on("gap", (topic, reason) => gaps.push([topic, reason]));
    await say(a, 1);
    await bob.until(1);
    engine.links[1]!.down();
    await say(a, 2, 9);
    engine.links[1]!.up();
    await bob.until(4);
    expect(numbers(bob)).toEqual([1, 7, 8, 9]);
    expect(gaps).toEqual([["room", "the log no longer has all entries"]]);
    expect(b.server.stats().engine!.gaps).toBe(1);
  });

  it("reads again if a read fails", async () => {
    const [engine, a, , , bob] = await room();
    await say(a, 1);
    let failures = 1;
    const [, link] = engine.links;
    link!.before = (command) => {
      if (command === "read" && failures-- > 0) throw new Error("faulty");
    };
    link!.down();
    await say(a, 2, 3);
    link!.up();
    await bob.until(3);
    expect(numbers(bob)).toEqual([1, 2, 3]);
  });

  it("delivers no frame that is none: broken, foreign, of another version, or not its own kind", async () => {
    const [engine, a, b, ann, bob] = await room();
    const at = await say(a, 1);
    const [epoch] = at.split(".");
    const stranger = engine.inner.createConnection("stranger", { received() {}, up() {}, down() {}, heard() {} });
    await stranger.open();
    const notification = '{"jsonrpc":"2.0","method":"evil","params":{}}';
    const frames = [
      "",
      "x",
      "\n",
      "1\n",
      "1N",
      `2N\tx\n${notification}`,
      `1?\tx\n${notification}`,
      "1N\tx\nnot json",
      "1N\tx\n[]",
      '1N\tx\n{"jsonrpc":"2.0","method":1}',
      '1N\tx\n{"jsonrpc":"2.0","id":1,"method":"evil"}',
      '1N\tx\n[{"jsonrpc":"2.0","method":"evil"}]',
      `1L\t${epoch}\n${notification}`,
      `1L\t${epoch}\t0\n${notification}`,
      `1L\t${epoch}\t-1\n${notification}`,
      `1L\t${epoch}\t1e9\n${notification}`,
      `1L\t${epoch}\t99\n${notification}`,
      `1L\t\t2\n${notification}`,
      `1L\tx y\t2\n${notification}`,
      `1L\tother\t1\n${notification}`,
      "1j\tx\ty\n{}",
      "1j\t5\n{}",
      "1l",
      `1q\n${notification}`,
      "1a\t1\tx\tok\n1",
      "1N\t".repeat(100_000),
    ];
    for (const frame of frames) {
      await stranger.send("t:room", frame);
      await stranger.send(`n:${b.server.nodes.id}`, frame);
      await stranger.send("a:all", frame);
    }
    // An entry that is no notification is skipped, and does not stop the log.
    const bad = [
      "not json",
      "[]",
      '{"jsonrpc":"2.0","method":"evil","params":[1]}',
      '{"jsonrpc":"2.0","method":"evil"}',
    ];
    for (const body of bad) await stranger.log!.append("room", body, { length: 200, ttlMs: 60_000 }, undefined);
    const last = await say(a, 2);
    await stranger.close();
    await ann.until(2);
    await bob.until(2);
    expect([ann.got.length, bob.got.length]).toEqual([2, 2]);
    expect(numbers(bob)).toEqual([1, 2]);
    expect(b.server.stats().engine!.foreign).toBeGreaterThan(frames.length);
    expect([ann.client.state, bob.client.state]).toEqual(["open", "open"]);
    // The skipped entries have offsets too, so a position behind them is complete.
    expect((await back(b, at)).joined).toEqual({ at: last, outcome: "complete" });
  });
});

it("a frame that is longer than the engine carries is ignored", async () => {
  const [engine, a, b, , bob] = await room();
  const stranger = engine.inner.createConnection("stranger", { received() {}, up() {}, down() {}, heard() {} });
  await stranger.open();
  const long = `{"jsonrpc":"2.0","method":"evil","params":["${"x".repeat(16 * 2 ** 20)}"]}`;
  await stranger.send("t:room", `1N\tstranger\n${long}`);
  await stranger.close();
  await say(a, 1);
  await bob.until(1);
  expect(bob.got.map(([method]) => method)).toEqual(["said"]);
  expect(b.server.stats().engine!.foreign).toBe(1);
});

describe("read", () => {
  it("returns the log page by page, with the params that members got", async () => {
    const [, a, b, ann] = await room();
    await say(a, 1, 5);
    await ann.until(5);
    const topic = b.server.topic("room");
    const first = await topic.read({ limit: 2 });
    expect(first).toMatchObject({ outcome: "gap", entries: [{ method: "said" }, { method: "said" }] });
    const second = await topic.read({ limit: 2, since: first.at });
    expect(second.outcome).toBe("complete");
    const third = await topic.read({ since: second.at });
    expect(third).toMatchObject({ outcome: "complete" });
    const entries = [...first.entries, ...second.entries, ...third.entries];
    expect(entries.map(({ at, method, params }) => [at, method, params])).toEqual(
      ann.got.map(([method, params]) => [params.at, method, params]),
    );
    expect(await topic.read({ since: third.at })).toEqual({ at: third.at, outcome: "complete", entries: [] });
  });

  it("reports a gap for a position that does not connect, and begins at the oldest entry", async () => {
    const [, a] = await room({ topics: () => ({ log: { length: 3, ttlMs: 60_000 } }) });
    const topic = a.server.topic("room");
    expect(await topic.read()).toEqual({ at: expect.stringMatching(/\.0$/), outcome: "gap", entries: [] });
    const at = await say(a, 1);
    await say(a, 2, 6);
    for (const since of [undefined, "other.5", at, 7, `${at.split(".")[0]}.99`]) {
      const { outcome, entries } = await topic.read({ since });
      expect([since, outcome, entries.map(({ params }) => params.n)]).toEqual([since, "gap", [4, 5, 6]]);
    }
    await expect(topic.read({ limit: 1_001 })).rejects.toThrow("Expected `limit`");
  });
});

describe("a member that does not accept a publication, because of its length,", () => {
  const text = "x".repeat(20_000);

  it("is skipped, stays a member, and the topic has a gap", async () => {
    const [, a, b, , bob] = await room();
    const gaps: unknown[] = [];
    const missed: unknown[] = [];
    b.server.on("gap", (topic, reason) => gaps.push([topic, reason]));
    b.server.on("missed", (peer, method) => missed.push([peer, method]));
    const eve = await limited(b);
    await b.server.topic("room").join(eve.peer);
    await say(a, 1);
    await a.server.topic("room").publish("said", { n: 2, text });
    await say(a, 3);
    await bob.until(3);
    await eve.until(2);
    expect([numbers(bob), numbers(eve)]).toEqual([
      [1, 2, 3],
      [1, 3],
    ]);
    expect(gaps).toEqual([
      ["room", expect.stringMatching(/^a publication of 20\d{3} bytes is longer than `maxMessageB/)],
    ]);
    expect(missed).toEqual([[eve.peer, "said"]]);
    expect([a.server.stats().engine!.gaps, b.server.stats().engine!.gaps]).toEqual([0, 1]);
  });

  it.each([0, 100])("has a gap if it missed that publication, with %i others behind it", async (others) => {
    const [, a, b, , bob] = await room();
    const at = await say(a, 1);
    const long = await a.server.topic("room").publish("said", { n: 2, text });
    const last = await say(a, 3, 3 + others);
    await bob.until(3 + others);
    const topic = b.server.topic("room");
    const [eve, max] = [await limited(b), await limited(b)];
    expect(await topic.join(eve.peer, { since: at })).toEqual({ at: last, outcome: "gap" });
    expect(await topic.join(max.peer, { since: long })).toEqual({ at: last, outcome: "complete" });
    const end = 4 + others;
    await say(a, end);
    await eve.until(1);
    await max.until(2 + others);
    expect([numbers(eve), numbers(max)]).toEqual([[end], count(3, end)]);
  });

  it("has a gap if that publication arrives while it joins, and gets what is sent for the gap", async () => {
    const [engine, a, b] = await room();
    const gaps: string[] = [];
    const missed: unknown[] = [];
    b.server.on("missed", (peer, method) => missed.push([peer, method]));
    b.server.on("gap", (topic) => {
      gaps.push(topic);
      b.server.topic(topic).notify("reload", {}, { here: true });
    });
    const at = await say(a, 1);
    await say(a, 2, 100);
    const eve = await limited(b);
    const read = gate();
    engine.links[1]!.before = (command) => (command === "read" ? read.promise : undefined);
    const joining = b.server.topic("room").join(eve.peer, { since: at });
    await turn();
    await a.server.topic("room").publish("said", { n: 101, text });
    await say(a, 102);
    await turn();
    read.resolve();
    expect((await joining).outcome).toBe("gap");
    await eve.until(2);
    expect(eve.got.map(([method, { n }]) => n ?? method)).toEqual([102, "reload"]);
    expect([gaps, missed]).toEqual([["room"], [[eve.peer, "said"]]]);
  });
});

describe("a peer that joins, and does not accept a publication because of its length,", () => {
  const text = "x".repeat(20_000);

  it("has a gap if its limit is known when the publication is sent", async () => {
    const [engine, a, b] = await room();
    const at = await say(a, 1);
    await say(a, 2, 100);
    const eve = await b.client("", { limits: { maxMessageBytes: 10_000 } });
    const { gaps, read, joining } = await joiningPeer(b, eve, at, engine.links[1]!);
    await a.server.topic("room").publish("said", { n: 101, text });
    await turn();
    await rejection(eve.client.request("none"));
    read.resolve();
    expect((await joining).outcome).toBe("gap");
    expect(gaps).toEqual(["room"]);
  });

  it("has a gap if the application adds it and the log cannot be read", async () => {
    const [engine, a, b] = await room();
    const at = await say(a, 1);
    await say(a, 2, 100);
    const eve = await limited(b);
    const { gaps, read, joining } = await joiningPeer(b, eve, at, engine.links[1]!);
    await a.server.topic("room").publish("said", { n: 101, text });
    await turn();
    b.server.topic("room").add(eve.peer);
    read.reject(new EngineError("faulty: lost", "unknown"));
    expect((await joining).outcome).toBe("gap");
    expect(gaps).toEqual(["room"]);
  });
});

describe("a slow member", () => {
  it("is closed with 1013 and not skipped, so that it can recover", async () => {
    const [, a, b, , bob] = await room({ limits: { maxUnsentBytes: 20_000, maxReplyBytes: 20_000 } });
    const at = await say(a, 1);
    await bob.until(1);
    b.network.of(bob.client).stop();
    const closed = bob.peer.closed;
    for (let n = 2; n < 80; n++) await a.server.topic("room").publish("said", { n, text: "x".repeat(20_000) });
    expect((await closed).code).toBe(1013);
    expect(bob.peer.stats().dropped).toBe(0);
    expect(at).toMatch(/\.1$/);
  });
});
