/** `publish` and `read` of a topic with a log. */
import { describe, expect, it, vi } from "vitest";
import { EngineError, TooLargeError } from "../../src/node.js";
import { pass } from "../support/time.js";
import { gate, rejection, turn } from "../support/turns.js";
import { FaultyEngine } from "./faulty.js";
import {
  count,
  gapsOf,
  numbers,
  room,
  RULES,
  say,
  failure,
  makeNode,
  makeNodes,
  settled,
  useFleet,
  type Node,
} from "./nodes.js";

useFleet();

const offsetOf = (at: string): number => Number(at.split(".")[1]);
/** The error of what is refused because too much waits, or because it came too late. */
const NOT_SENT = { code: "ENGINE", outcome: "not-sent" };
const UNKNOWN = { code: "ENGINE", outcome: "unknown" };
const MAX_WAITING = 1_000;
const GAP = ["other", "a publication was logged before this node could read the log"];

/** A topic that the first node of a room does not follow yet, with a member. */
async function unfollowed(options: object = {}) {
  const [engine, a] = await room(options);
  const ann = await a.client("", { limits: { maxMessageBytes: 16 * 2 ** 20 } });
  const publish = (n: number, more?: object): Promise<string> =>
    a.server.topic("other").publish("said", { n }, more as never);
  return { engine, link: engine.links[0]!, a, ann, topic: a.server.topic("other"), publish, gaps: gapsOf(a) };
}

const around = (call: any, next: () => Promise<unknown>): unknown => {
  if (call.peer === undefined) call.params = { n: call.params.n + 1 };
  return next();
};

describe("publish", () => {
  it("adds the position that it returns to any params by name, and to none", async () => {
    const [, a, , , bob] = await room();
    const params = [{}, { a: {} }, { a: "}}" }, { a: [] }, undefined, { "": "é😀\u2028" }];
    const positions = await Promise.all(params.map((one) => a.server.topic("room").publish("said", one)));
    const got = await bob.until(params.length);
    expect(got.map(([, one]) => one)).toEqual(params.map((one, i) => ({ ...one, at: positions[i] })));
    expect(positions.map(offsetOf)).toEqual(count(1, params.length));
  });

  it("rejects params and options that it cannot take, and sends nothing", async () => {
    const [, a, , ann] = await room();
    const topic = a.server.topic("room");
    await expect(topic.publish("said", { at: 1 })).rejects.toThrow("Expected `params.at` to be absent");
    await expect(topic.publish("said", [1])).rejects.toThrow("Expected `params` to be an object");
    await expect(topic.publish("said", { toJSON: () => [1] })).rejects.toThrow(TypeError);
    for (const key of ["", "x".repeat(257), "\ud800", "a\udc00b", 5 as never])
      await expect(topic.publish("said", {}, { key })).rejects.toThrow("Expected `key` to be a well-formed string");
    await expect(topic.publish("said", {}, { unknown: 1 } as never)).rejects.toThrow("Unknown name `unknown`");
    const large = { text: "x".repeat(16 * 2 ** 20) };
    expect(await rejection(topic.publish("said", large))).toBeInstanceOf(TooLargeError);
    await topic.publish("end");
    expect(await ann.until(1)).toHaveLength(1);
  });

  it("requires the rule `log`, and an engine that has logs", async () => {
    const [a] = makeNodes(1) as [Node];
    const ann = await a.client();
    const topic = a.server.topic("room");
    for (const use of [topic.publish("said", {}), topic.read()]) await expect(use).rejects.toThrow("has no log");
    await expect(topic.join(ann.peer, { since: "a.1" })).rejects.toThrow("requires the rule `log`");
    const without = makeNode({ engine: new FaultyEngine({}, ["log"]), ...RULES });
    const bob = await without.client();
    expect(() => without.server.topic("room").add(bob.peer)).toThrow("the engine faulty has no logs");
    await expect(without.server.topic("room").publish("said", {})).rejects.toThrow("the engine faulty has no logs");
  });

  it("throws for a rule whose `length`, `bytes` or `ttlMs` is too small or too large, and has a default for each", async () => {
    const rules = { length: [0, 10_001], bytes: [0, 2 ** 26 + 1], ttlMs: [999, 604_800_001] };
    const logs = Object.entries(rules).flatMap(([name, values]) => values.map((value) => ({ [name]: value })));
    for (const log of logs) {
      const [node] = makeNodes(1, { topics: () => ({ log }) }) as [Node];
      const ann = await node.client();
      expect(() => node.server.topic("room").add(ann.peer)).toThrow("Expected `rules.log.");
      expect(node.server.topic("room").size).toBe(0);
    }
    const engine = new FaultyEngine();
    const [node] = makeNodes(1, { topics: () => ({ log: {} }) }, engine) as [Node];
    const append = vi.spyOn(engine.links[0]!.log!, "append");
    await node.server.topic("room").publish("said");
    expect(append.mock.lastCall?.[2]).toEqual({ length: 1_000, bytes: 2 ** 20, ttlMs: 3_600_000 });
  });

  it("calls `around` once, and publishes what it changed", async () => {
    const [, a, , ann] = await room({ around });
    await say(a, 1);
    await ann.until(1);
    expect(numbers(ann)).toEqual([2]);
  });
});

describe("publish, if the broker does not answer,", () => {
  it("rejects with `unknown` after the timeout, 5 s at most, and a key makes it safe to repeat", async () => {
    const [engine, a, , ann] = await room();
    const answer = engine.links[0]!.blocks("append");
    const publish = (timeoutMs: number): Promise<string> =>
      a.server.topic("room").publish("said", { n: 1 }, { timeoutMs, key: "k" });
    expect(await failure(publish(30))).toMatchObject(UNKNOWN);
    const long = rejection(publish(60_000));
    await pass(5_100);
    expect(await long).toMatchObject(UNKNOWN);
    answer.resolve();
    await publish(1_000);
    await say(a, 2);
    await ann.until(2);
    expect(numbers(ann)).toEqual([1, 2]);
  });

  it("counts as unanswered until the broker answers, also after its timeout", async () => {
    const [{ links }, a] = await room();
    const answer = links[0]!.blocks("append");
    const topic = a.server.topic("room");
    const long = { long: "x".repeat(16 * 2 ** 20 - 1_000) };
    expect(await settled(rejection(topic.publish("said", long)))).toMatchObject(UNKNOWN);
    expect(await failure(topic.publish("said", { text: "x".repeat(2_000) }))).toMatchObject(NOT_SENT);
    answer.resolve();
    await turn();
    expect(a.server.stats().engine!.pendingBytes).toBe(0);
    expect(offsetOf(await topic.publish("said", { n: 2 }))).toBe(2);
  });

  it("waits for the connection within its timeout, and rejects with `not-sent` after it", async () => {
    const [engine, a, , ann, bob] = await room();
    engine.links[0]!.down();
    const topic = a.server.topic("room");
    const late = rejection(topic.publish("said", { n: 1 }, { timeoutMs: 20 }));
    const kept = topic.publish("said", { n: 2 }, { timeoutMs: 20_000 });
    const endless = topic.publish("said", { n: 3 }, { timeoutMs: Infinity });
    await pass(50);
    expect(await late).toMatchObject(NOT_SENT);
    expect(a.server.stats().engine!.pendingBytes).toBeGreaterThan(0);
    engine.links[0]!.up();
    await Promise.all([kept, endless, ann.until(2), bob.until(2)]);
    expect([numbers(ann), numbers(bob)]).toEqual([
      [2, 3],
      [2, 3],
    ]);
    expect(a.server.stats().engine!.pendingBytes).toBe(0);
  });
});

describe("publish on a node that does not follow the log yet", () => {
  it("keeps the order, also if the time of one that waits has passed, and does not wait for the list of members", async () => {
    const { link, topic, ann, publish } = await unfollowed({ topics: () => ({ ...RULES.topics(), members: true }) });
    const [read, list] = [gate(), gate()];
    link.before = (command) => ({ read, list })[command]?.promise;
    const waiting = [publish(0)];
    topic.add(ann.peer);
    waiting.push(publish(1));
    expect(await failure(publish(2, { timeoutMs: 30 }))).toMatchObject(NOT_SENT);
    waiting.push(publish(3));
    await turn();
    read.resolve();
    expect((await Promise.all(waiting)).map(offsetOf)).toEqual([1, 2, 3]);
    list.resolve();
    await ann.until(2);
    expect(numbers(ann).slice(-2)).toEqual([1, 3]);
  });

  it("tries once to follow the log for all that wait", async () => {
    const { link, topic, ann, publish } = await unfollowed();
    const read = link.blocks("read");
    topic.add(ann.peer);
    const all = count(1, 100).map((n) => publish(n));
    await turn();
    read.reject(new EngineError("faulty: refused", "not-sent"));
    expect((await Promise.all(all)).map(offsetOf)).toEqual(count(1, 100));
    expect(link.count("read")).toBeLessThan(4);
  });

  it("waits for the log again when the connection is restored", async () => {
    const { link, topic, ann, a, publish, gaps } = await unfollowed();
    const read = link.blocks("read");
    topic.add(ann.peer);
    const all = [publish(1)];
    await turn();
    a.server.on("engine", ({ state }) => {
      if (state === "down") for (const n of [2, 3, 4]) all.push(publish(n));
    });
    link.down();
    read.reject(new EngineError("faulty: lost", "unknown"));
    await turn();
    link.before = () => {};
    link.up();
    expect((await Promise.all(all)).map(offsetOf)).toEqual([1, 2, 3, 4]);
    await ann.until(4);
    expect([numbers(ann), gaps]).toEqual([[1, 2, 3, 4], []]);
  });

  it("has a gap if the node has members and cannot read the log", async () => {
    const { link, topic, ann, publish, gaps } = await unfollowed({
      topics: () => ({ ...RULES.topics(), members: true }),
    });
    let isLost = false;
    link.before = (command) => {
      if (command === "read" || (command === "append" && isLost))
        throw new EngineError("faulty: refused", command === "read" ? "not-sent" : "unknown");
    };
    topic.add(ann.peer);
    expect(offsetOf(await publish(1))).toBe(1);
    isLost = true;
    expect(await failure(publish(2))).toMatchObject(UNKNOWN);
    const long = "x".repeat(16 * 2 ** 20);
    expect(await failure(topic.publish("said", { long }))).toBeInstanceOf(TooLargeError);
    // No member is left that could miss one, although the node still watches the topic.
    topic.watch(() => {});
    const late = publish(3);
    topic.delete(ann.peer);
    expect(await failure(late)).toMatchObject(UNKNOWN);
    expect(gaps).toEqual([GAP, GAP]);
  });

  it("waits for the log too if it waited for the connection, and a member was added meanwhile", async () => {
    const { link, topic, ann, publish, gaps } = await unfollowed();
    link.down();
    const publishing = publish(1);
    await turn();
    topic.add(ann.peer);
    link.up();
    expect(offsetOf(await publishing)).toBe(1);
    await ann.until(1);
    expect([numbers(ann), gaps]).toEqual([[1], []]);
  });
});

describe("at most 1,000 publications and 4 MiB wait", () => {
  const LONG = { long: "x".repeat(2 ** 21) };

  it.each(["room", "other"])("for the connection, of a topic that is followed or not: %s", async (name) => {
    const { link, a, ann } = await unfollowed();
    link.down();
    const topic = a.server.topic(name).add(ann.peer);
    const waiting = count(1, MAX_WAITING).map((n) => rejection(topic.publish("said", { n }, { timeoutMs: 500 })));
    const { dropped } = a.server.stats().engine!;
    expect(await failure(topic.publish("said"))).toMatchObject(NOT_SENT);
    expect(a.server.stats().engine!.dropped).toBe(dropped + 1);
    for (const error of await settled(Promise.all(waiting))) expect(error).toMatchObject(NOT_SENT);
    const long = rejection(topic.publish("said", LONG, { timeoutMs: 300 }));
    expect((await failure(topic.publish("said", LONG))).stack).toMatch(/^EngineError: too much waits .* answers$/);
    expect((await settled(long)).message).toContain("no connection");
  });

  it("until the node follows the log, or one that is longer, and its members get those", async () => {
    const { topic, ann, publish, a } = await unfollowed();
    topic.add(ann.peer);
    const { dropped } = a.server.stats().engine!;
    const all = await Promise.allSettled(count(1, 5_000).map((n) => publish(n)));
    expect(all.slice(0, MAX_WAITING).every(({ status }) => status === "fulfilled")).toBe(true);
    for (const refused of all.slice(MAX_WAITING)) expect(refused).toMatchObject({ reason: NOT_SENT });
    expect(a.server.stats().engine!.dropped).toBe(dropped + 4_000);
    await ann.until(MAX_WAITING);
    expect(numbers(ann)).toEqual(count(1, MAX_WAITING));
    const other = a.server.topic("third").add(ann.peer);
    const long = { long: "x".repeat(5 * 2 ** 20) };
    const both = await Promise.allSettled([1, 2].map(() => other.publish("said", long)));
    expect(both).toMatchObject([{ status: "fulfilled" }, { reason: NOT_SENT }]);
  });
});

it("a member that was added before the broker was there for the first time gets what is published from then on", async () => {
  const engine = new FaultyEngine({ startTimeoutMs: 5, startWithout: true });
  engine.isLate = true;
  const [a] = makeNodes(1, RULES, engine) as [Node];
  engine.isLate = false;
  const b = makeNode({ engine, ...RULES });
  const client = await a.client();
  const topic = a.server.topic("room").add(client.peer);
  await pass(10);
  expect(await failure(topic.join(client.peer))).toMatchObject(NOT_SENT);
  engine.links[0]!.up();
  await pass(0);
  expect(a.server.health().ok).toBe(true);
  await say(b, 1);
  await client.until(1);
  expect(numbers(client)).toEqual([1]);
});

it("read returns pages, and reports a gap for a position that does not connect, and begins at the oldest entry", async () => {
  const [, a] = await room({ topics: () => ({ log: { length: 3, ttlMs: 60_000 } }) });
  const topic = a.server.topic("room");
  expect(await topic.read()).toEqual({ at: expect.stringMatching(/\.0$/), outcome: "gap", entries: [] });
  const at = await say(a, 1);
  await say(a, 2, 6);
  for (const since of [undefined, "other.5", at, 7, `${at.split(".")[0]}.99`]) {
    const { outcome, entries } = await topic.read({ since });
    expect([since, outcome, entries.map(({ params }) => params.n)]).toEqual([since, "gap", [4, 5, 6]]);
  }
  const page = await topic.read({ limit: 2 });
  const said = [4, 5].map((n) => ({ at: at.replace(/1$/, String(n)), n }));
  const expected = said.map((one) => ({ at: one.at, method: "said", params: one }));
  expect(page).toEqual({ at: said[1]!.at, outcome: "gap", entries: expected });
  const { outcome, entries } = await topic.read({ since: page.at });
  expect([outcome, entries.map(({ params }) => params.n)]).toEqual(["complete", [6]]);
  await expect(topic.read({ limit: 1_001 })).rejects.toThrow("Expected `limit`");
  for (const n of [7, 8, 9]) await topic.publish("said", { n, text: "x".repeat(200_000) });
  const pages = [await topic.read({ since: page.at }), await topic.read()];
  expect(pages.map((one) => one.entries.map(({ params }) => params.n))).toEqual([
    [7, 8],
    [7, 8],
  ]);
});
