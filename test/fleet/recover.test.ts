/** What clients and nodes missed of a log: `join` with `since`, healing, and publications that are too long for a client. */
import { describe, expect, it } from "vitest";
import { EngineError, ErrorCode, type RpcError } from "../../src/node.js";
import { pass } from "../support/time.js";
import { gate, rejection, turn } from "../support/turns.js";
import { FaultyEngine, type FaultyLink } from "./faulty.js";
import {
  count,
  gapsOf,
  numbers,
  room,
  say,
  expectSoon,
  failure,
  makeNode,
  RULES,
  settled,
  useFleet,
  when,
  type Client,
  type Node,
} from "./nodes.js";

useFleet();

const TEXT = "x".repeat(20_000);
const NOT_SENT = { code: "ENGINE", outcome: "not-sent" };
const isPublication = (_channel: string, frame: string): boolean => frame.startsWith("1L");

/** A client that has left its node and connects to another, with the position that it has. */
async function back(node: Node, since: unknown): Promise<Client & { joined: any }> {
  const client = await node.client();
  const joined = await node.server.topic("room").join(client.peer, { since });
  client.peer.notify("joined");
  await when(() => client.got.some(([method]) => method === "joined"));
  return Object.assign(client, { joined });
}

/** Connects a client that accepts less, which its node knows after `showLimit`. */
const connectLimited = (node: Node): Promise<Client> => node.client("", { limits: { maxMessageBytes: 10_000 } });
const showLimit = ({ client }: Client): Promise<unknown> => rejection(client.request("none"));

async function limited(node: Node): Promise<Client> {
  const client = await connectLimited(node);
  await showLimit(client);
  return client;
}

interface Joining {
  readonly a: Node;
  readonly b: Node;
  readonly link: FaultyLink;
  /** Joins node a, which reads the log for it until `read` is settled. */
  readonly client: Client;
  readonly read: ReturnType<FaultyLink["blocks"]>;
  readonly joining: Promise<any>;
}

/** A client that missed 99 publications, while its node reads them. */
async function joiningClient(options: object = {}, connect = (node: Node) => node.client()): Promise<Joining> {
  const [{ links }, a, b] = await room(options);
  const at = await say(a, 1);
  await say(b, 2, 100);
  const client = await connect(a);
  const read = links[0]!.blocks("read");
  const joining = a.server.topic("room").join(client.peer, { since: at });
  await turn();
  return { a, b, link: links[0]!, client, read, joining };
}

/** Returns the bytes of each page that a node reads from now on, and how many entries it gets. `hangs`: whether it is not answered. */
function readsOf({ log }: FaultyLink, hangs = (_bytes: number): boolean => false): [bytes: number, entries: number][] {
  const pages: [number, number][] = [];
  const { read } = log!;
  log!.read = async (topic, after, page, rule) => {
    const part = hangs(page.bytes) ? undefined : await read(topic, after, page, rule);
    pages.push([page.bytes, part?.entries.length ?? 0]);
    return part ?? new Promise(() => {});
  };
  return pages;
}

/** The pages that are not answered in time: each is shorter, and at last only the top is read. */
const SHORTER = [2 ** 18, 1, 0].map((bytes) => [bytes, 0]);

const publish = ({ server }: Node, n: number, text: string): Promise<string> =>
  server.topic("room").publish("said", { n, text });

const fill = async ({ b }: Joining): Promise<void> => {
  for (let n = 101; n <= 104; n++) await publish(b, n, "x".repeat(4_000));
};

describe("a client that returns", () => {
  it("gets what is not in the node's tail from the broker, in one read for all clients", async () => {
    const [engine, a, b] = await room();
    const at = await say(a, 1);
    await say(b, 2, 120);
    const clients = await Promise.all(count(1, 20).map(() => a.client()));
    const before = engine.links[0]!.count("read");
    const joined = await Promise.all(clients.map(({ peer }) => a.server.topic("room").join(peer, { since: at })));
    expect(joined.every(({ outcome }) => outcome === "complete")).toBe(true);
    await say(b, 121);
    for (const client of clients) {
      await client.until(120);
      expect(numbers(client)).toEqual(count(2, 121));
    }
    expect(engine.links[0]!.count("read") - before).toBe(1);
  });

  const LIMIT = { limits: { maxUnsentBytes: 40_000 } };
  it.each<[during: string, outcome: string, act: (one: Joining) => unknown, got: number[], options?: object]>([
    ["there are publications, which come after what it missed", "complete", ({ b }) => say(b, 101, 103), count(2, 103)],
    ["too much arrives, which comes at once", "gap", fill, count(101, 104), LIMIT],
    [
      "too much arrives, and the log cannot be read",
      "gap",
      (one) => fill(one).then(() => one.read.reject(new Error("faulty: lost"))),
      count(101, 104),
      LIMIT,
    ],
    [
      "the application adds it, which makes it a member at once",
      "gap",
      async ({ a, b, client }) => {
        await say(b, 101);
        a.server.topic("room").add(client.peer);
        await say(b, 102);
      },
      [101, 102],
    ],
  ])("while it joins, %s: %s", async (_during, outcome, act, got, options) => {
    const one = await joiningClient(options);
    const { a, b, client, read, joining } = one;
    await act(one);
    await turn();
    expect(numbers(client)).toEqual(outcome === "gap" ? got : []);
    read.resolve();
    expect((await joining).outcome).toBe(outcome);
    expect(a.server.topic("room").has(client.peer)).toBe(true);
    await say(b, got.at(-1)! + 1);
    await client.until(got.length + 1);
    expect(numbers(client)).toEqual([...got, got.at(-1)! + 1]);
  });

  it("gets what was sent while it joined after what it missed, but no volatile message and none that omits it", async () => {
    const { a, b, client, read, joining } = await joiningClient();
    const omitting = [client.peer.id, ["gone", client.peer.id]].map((except) => ({ except }));
    for (const [n, option] of [{}, { volatile: true }, { latest: "k" }, ...omitting].entries())
      b.server.topic("room").notify("moved", { n }, option);
    await turn();
    for (const except of [client.peer, client.peer.id, new Set([client.peer.id])])
      a.server.topic("room").notify("moved", { n: 5 }, { except });
    a.server.topic("room").notify("moved", { n: 6 }, { here: true });
    for (const { server } of [a, b]) server.topics("void", "room").notify("moved", { n: 7 });
    await turn();
    expect(client.got).toEqual([]);
    // As a member of one topic, it gets at once what is for both, and not again.
    a.server.topic("attic").add(client.peer);
    for (const { server } of [a, b]) server.topics("room", "attic").notify("moved", { n: 8 });
    expect(await client.until(2)).toEqual([8, 8].map((n) => ["moved", { n }]));
    read.resolve();
    expect(await joining).toEqual({ at: expect.stringMatching(/\.100$/), outcome: "complete" });
    expect((await client.until(106)).slice(101)).toEqual([0, 2, 6, 7, 7].map((n) => ["moved", { n }]));
  });

  it("has a gap if `since` is absent, malformed, of another log, ahead, or too old", async () => {
    const [, a, b] = await room();
    const at = await say(a, 1, 3);
    const [epoch] = at.split(".");
    const others = [undefined, null, 5, "", "x", `${epoch}.`, `${epoch}.x`, `${epoch}.-1`, `${epoch}.1e3`, "other.1"];
    for (const since of [...others, `${epoch}.4`, `${epoch}.999999999999999`]) {
      const client = await back(b, since);
      expect([since, client.joined, numbers(client)]).toEqual([since, { at, outcome: "gap" }, []]);
    }
    await say(a, 4, 300);
    const client = await back(b, at);
    expect([client.joined.outcome, numbers(client)]).toEqual(["gap", []]);
    // Only the position itself is needed for completeness.
    expect((await back(b, client.joined.at)).joined.outcome).toBe("complete");
  });

  it("has a gap if more than a quarter of `maxUnsentBytes` is to be sent", async () => {
    const [, a] = await room({ limits: { maxUnsentBytes: 40_000 } });
    const at = await say(a, 1);
    await publish(a, 2, "x".repeat(9_000));
    expect((await back(a, at)).joined.outcome).toBe("complete");
    await publish(a, 3, "x".repeat(2_000));
    const client = await back(a, at);
    expect([client.joined.outcome, numbers(client)]).toEqual(["gap", []]);
  });

  it("has a gap as soon as that much was read, unless it is the only one that needs the rest", async () => {
    const [engine, a] = await room({ limits: { maxUnsentBytes: 40_000 } });
    const at = await say(a, 1);
    for (let n = 2; n <= 31; n++) await publish(a, n, "x".repeat(4_000)).then(turn);
    const second = at.replace(/1$/, "14");
    const pages = readsOf(engine.links[0]!);
    const joins = [at, second].map((since) => back(a, since));
    for (const { joined, got } of await Promise.all(joins)) expect([joined.outcome, got.length]).toEqual(["gap", 1]);
    expect(pages.flat()).toEqual([10_000, 3, 10_000, 3]);
  });

  it("has a gap if the log is not read in time, however short the page is", async () => {
    const [engine, a, b] = await room();
    const at = await say(a, 1);
    await say(b, 2, 100);
    const pages = readsOf(engine.links[0]!, (bytes) => bytes > 0);
    const { peer } = await a.client();
    const join = (): Promise<any> => a.server.topic("room").join(peer, { since: at });
    for (let i = 1; i < SHORTER.length; i++)
      expect(await failure(join())).toMatchObject({ code: "ENGINE", outcome: "unknown" });
    expect([(await join()).outcome, pages]).toEqual(["gap", SHORTER]);
  });

  it("has a gap if its node loses publications while it reads what the client has missed", async () => {
    const [engine, a, b] = await room({ topics: () => ({ log: { length: 100, ttlMs: 600_000 } }) });
    const at = await say(a, 1);
    await say(b, 2, 100);
    const client = await a.client();
    const [link] = engine.links;
    const answer = gate();
    // The read for the client is done, and answered late.
    link!.after = (command) => (command === "read" ? ((link!.after = () => {}), answer.promise) : undefined);
    const joining = a.server.topic("room").join(client.peer, { since: at });
    await turn();
    link!.loses = isPublication;
    await say(b, 101, 250);
    link!.loses = () => false;
    await say(b, 251);
    await expectSoon(() => a.server.stats().engine!.gaps, 1);
    answer.resolve();
    expect((await joining).outcome).toBe("gap");
    await client.until(100);
    expect(numbers(client)).toEqual(count(152, 251));
  });

  it.each(["closes", "is deleted"])("is not added if it %s while it joins", async (end) => {
    const { a, client, read, joining } = await joiningClient();
    const failing = rejection(joining);
    if (end === "closes") await client.peer.close();
    else a.server.topic("room").delete(client.peer);
    read.resolve();
    expect(await failing).toMatchObject({ outcome: "not-sent" });
    expect(a.server.topic("room").has(client.peer)).toBe(false);
  });

  it("is not added while the broker is down, or does not answer in time", async () => {
    const [engine, a] = await room();
    const since = (await say(a, 1)).replace(/1$/, "2");
    const [link] = engine.links;
    const { peer } = await a.client();
    const topic = a.server.topic("room");
    link!.down();
    expect(await rejection(topic.join(peer, { since }))).toMatchObject(NOT_SENT);
    link!.up();
    await turn();
    link!.blocks("read");
    const joining = rejection(topic.join(peer, { since }));
    await pass(3_000);
    expect([await joining, topic.has(peer)]).toMatchObject([{ code: "ENGINE" }, false]);
    link!.before = () => {};
    expect((await topic.join(peer, { since })).outcome).toBe("gap");
  });

  it("is open when the broker is, if its first `onOpen` needs that: `connect` rejects, or tries again", async () => {
    const engine = new FaultyEngine();
    const node = makeNode({
      engine,
      ...RULES,
      methods: {
        join: async (_params: unknown, { peer }: any) => (await node.server.topic("room").join(peer)).outcome,
      },
    });
    node.server.on("error", () => {});
    await turn();
    engine.links[0]!.down();
    const outcomes: unknown[] = [];
    const onOpen = async (server: any): Promise<void> => void outcomes.push(await server.request("join"));
    const { url } = node.server;
    expect(await failure(node.connect(url, { onOpen }))).toMatchObject({ code: ErrorCode.TryAgainLater });
    const client = node.open(url, { onOpen, reconnect: { initial: true } });
    const errors: unknown[] = [];
    client.on("error", (error) => errors.push((error as RpcError).code));
    await pass(10_000);
    expect([outcomes, new Set(errors)]).toEqual([[], new Set([ErrorCode.TryAgainLater])]);
    engine.links[0]!.up();
    await settled(client.opened);
    expect(outcomes).toEqual(["gap"]);
    await client.close();
  });

  it("joins once, if it joins twice at the same time", async () => {
    const [, a, b] = await room();
    const since = await say(a, 1);
    await say(b, 2, 100);
    const client = await a.client();
    const topic = a.server.topic("room");
    const joins = await Promise.all([topic.join(client.peer, { since }), topic.join(client.peer, { since })]);
    expect(joins.map(({ outcome }) => outcome)).toEqual(["complete", "gap"]);
    await say(b, 101);
    await client.until(100);
    expect(numbers(client)).toEqual(count(2, 101));
  });
});

describe("a node that misses messages", () => {
  it("heals after its subscription was restored, also if a read fails, and after the position that another node repeats", async () => {
    const [engine, a, b, , bob] = await room();
    await say(a, 1, 2);
    await bob.until(2);
    const [, link] = engine.links;
    link!.down();
    await say(a, 3, 6);
    link!.fails("read");
    link!.up();
    await bob.until(6);
    link!.loses = isPublication;
    await say(a, 7, 8);
    await pass(900);
    expect(numbers(bob)).toEqual(count(1, 6));
    // The first repetition is lost too.
    link!.loses = () => true;
    await pass(1_000);
    link!.loses = () => false;
    await pass(9_000);
    expect(numbers(bob)).toEqual(count(1, 8));
    expect(b.server.stats().engine).toMatchObject({ healed: 6, gaps: 0 });
  });

  it("reads a shorter page if one is not answered in time, has a gap at last, and then reads longer ones again", async () => {
    const [engine, a, b, , bob] = await room();
    const gaps = gapsOf(b);
    let missed = 0;
    bob.client.on("missed", ({ count: more }) => (missed += more));
    const [, link] = engine.links;
    let isSlow = true;
    const pages = readsOf(link!, (bytes) => isSlow && bytes > 0);
    const miss = async (from: number, to: number): Promise<void> => {
      link!.loses = isPublication;
      await say(a, from, to);
      link!.loses = () => false;
      await say(a, to + 1);
    };
    await miss(1, 2);
    await pass(9_000);
    expect([pages, gaps]).toEqual([SHORTER, [["room", "the log no longer has all entries"]]]);
    isSlow = false;
    await miss(4, 14);
    await bob.until(12);
    expect([numbers(bob), gaps.length, missed]).toEqual([count(4, 15), 1, 1]);
    expect(pages.slice(SHORTER.length)).toEqual([
      [2 ** 4, 1],
      [2 ** 8, 6],
      [2 ** 12, 5],
    ]);
  });

  it("reads no shorter page because the connection was lost, or because too much is unanswered", async () => {
    const [engine, a, b, , bob] = await room();
    const [, link] = engine.links;
    const pages = readsOf(link!);
    link!.down();
    await say(a, 1, 2);
    for (let i = 1; i < SHORTER.length; i++) {
      const read = link!.blocks("read");
      link!.up();
      await turn();
      link!.down();
      read.reject(new EngineError("faulty: lost", "unknown"));
      await turn();
    }
    link!.before = (command) => {
      if (command === "read") throw new EngineError("faulty: full", "not-sent");
    };
    link!.up();
    await pass(1_000 * SHORTER.length);
    link!.before = () => {};
    await bob.until(2);
    expect([pages, b.server.stats().engine!.gaps]).toEqual([[[2 ** 18, 2]], 0]);
  });

  it("asks the broker for nothing while its topics are quiet, however many they are", async () => {
    const [{ links }, a, b, ann, bob] = await room({ topics: () => ({ log: {}, members: true }) });
    const pairs = [[a.server, ann.peer] as const, [b.server, bob.peer] as const];
    for (const n of count(1, 100)) for (const [one, peer] of pairs) await one.topic(`quiet ${n}`).join(peer, { as: n });
    await say(a, 1, 2);
    await pass(61_000);
    for (const link of links) link.commands.length = 0;
    await pass(600_000);
    // Three beats in 10 s.
    for (const { commands } of links) expect([new Set(commands), commands.length]).toEqual([new Set(["send"]), 180]);
  });

  it("gets what another node repeats of the 100,000 topics that it has published to last, and not of an older one", async () => {
    const [{ links }, a, b, , bob] = await room();
    for (const name of ["0", "1"]) await b.server.topic(name).join(bob.peer);
    const gaps = gapsOf(b);
    links[1]!.loses = isPublication;
    // Unanswered, so that only the first 128 are sent.
    links[0]!.after = (command) => (command === "send" ? gate().promise : undefined);
    for (let n = 0; n <= 100_000; n++) await a.server.topic(String(n)).publish("said", { n });
    await expectSoon(() => numbers(bob), [1]);
    await pass(1_000);
    expect([numbers(bob), gaps]).toEqual([[1], []]);
  });

  it("gets the position that is the last one when another node sends it, behind other work", async () => {
    const [{ links }, a] = await room();
    const [link] = links;
    const digests = (): string[] => link!.sent.filter((frame) => frame.startsWith("1d"));
    for (let n = 1; n <= 200; n++) await a.server.topic(String(n)).publish("said");
    const answer = link!.blocks("send");
    await pass(1_000);
    expect(digests()).toHaveLength(128);
    await a.server.topic("200").publish("said");
    answer.resolve();
    await expectSoon(() => digests().length, 200);
    expect(digests().at(-1)).toMatch(/\t2\n$/);
  });

  it("counts a frame that is too long as foreign, and goes on after an entry that is no notification", async () => {
    const [engine, a, b, ann, bob] = await room();
    const at = await say(a, 1);
    const foreignNode = await engine.foreign();
    const evil = '{"jsonrpc":"2.0","method":"evil","params":{}}';
    const long = `{"jsonrpc":"2.0","method":"evil","params":["${"x".repeat(16 * 2 ** 20)}"]}`;
    const { foreign } = b.server.stats().engine!;
    await foreignNode.send("t:room", `1N\tforeign\n${long}`);
    await turn();
    expect(b.server.stats().engine!.foreign).toBe(foreign + 1);
    for (const body of ["not json", "[]", evil.replace("{}", "[1]"), '{"jsonrpc":"2.0","method":"evil"}'])
      await foreignNode.log!.append("room", body, { length: 200, bytes: 2 ** 20, ttlMs: 60_000 }, undefined);
    const last = await say(a, 2);
    await foreignNode.close();
    await Promise.all([ann.until(2), bob.until(2)]);
    expect([ann.got.length, numbers(bob)]).toEqual([2, [1, 2]]);
    // The skipped entries have offsets too, so a position after them is complete.
    expect((await back(b, at)).joined).toEqual({ at: last, outcome: "complete" });
  });
});

/** Returns how many reads a client costs that has missed so many publications, each with so many characters. */
async function reads(missed: number, length: number): Promise<number> {
  const [engine, a] = await room();
  const since = await say(a, 1);
  for (let n = 2; n <= missed + 1; n++) await publish(a, n, "x".repeat(length));
  await turn();
  const before = engine.links[0]!.count("read");
  const { peer } = await a.client();
  expect(await a.server.topic("room").join(peer, { since })).toMatchObject({ outcome: "complete" });
  return engine.links[0]!.count("read") - before;
}

describe("the tail that a node keeps of a log", () => {
  it.each([
    [64, 0, 0],
    [65, 0, 1],
    [3, 20_000, 0],
    [4, 20_000, 1],
    [1, 100_000, 0],
    [2, 100_000, 1],
  ])(
    "has 64 entries and 64 KiB, or one longer entry: a client that missed %i of %i characters costs %i reads",
    async (...[missed, length, cost]) => {
      expect(await reads(missed, length)).toBe(cost);
    },
  );
});

describe("a member that does not accept a publication, because of its length,", () => {
  it("is skipped, stays a member, and the topic has a gap", async () => {
    const [, a, b, , bob] = await room();
    const gaps = gapsOf(b);
    const missed: unknown[] = [];
    b.server.on("missed", (peer, method) => missed.push([peer, method]));
    const eve = await limited(b);
    const told: string[] = [];
    for (const [name, { client }] of Object.entries({ bob, eve })) client.on("missed", () => told.push(name));
    await b.server.topic("room").join(eve.peer);
    await say(a, 1);
    await publish(a, 2, TEXT);
    await say(a, 3);
    await Promise.all([bob.until(3), eve.until(2)]);
    expect([numbers(bob), numbers(eve)]).toEqual([
      [1, 2, 3],
      [1, 3],
    ]);
    expect(gaps).toEqual([["room", expect.stringContaining("`maxMessageB")]]);
    expect([missed, told]).toEqual([[[eve.peer, "said"]], ["eve"]]);
    expect([a, b].map(({ server }) => server.stats().engine!.gaps)).toEqual([0, 1]);
  });

  it.each([0, 100])("has a gap if it missed that publication, with %i others after it", async (others) => {
    const [, a, b] = await room();
    const at = await say(a, 1);
    const long = await publish(a, 2, TEXT);
    const last = await say(a, 3, 3 + others);
    const topic = b.server.topic("room");
    const [eve, max] = [await limited(b), await limited(b)];
    expect(await topic.join(eve.peer, { since: at })).toEqual({ at: last, outcome: "gap" });
    expect(await topic.join(max.peer, { since: long })).toEqual({ at: last, outcome: "complete" });
    const end = 4 + others;
    await say(a, end);
    await Promise.all([eve.until(1), max.until(2 + others)]);
    expect([numbers(eve), numbers(max)]).toEqual([[end], count(3, end)]);
  });

  it.each<[what: string, connect: typeof limited, act: (one: Joining) => unknown, isLost: boolean]>([
    ["it arrives while the member joins", limited, () => {}, false],
    ["the limit is known only when it is sent", connectLimited, ({ client }) => showLimit(client), false],
    [
      "the application adds the member, and the log cannot be read",
      limited,
      ({ a, client }) => a.server.topic("room").add(client.peer),
      true,
    ],
  ])("has a gap and gets what is sent for it, if %s", async (_what, connect, act, isLost) => {
    const one = await joiningClient({}, connect);
    const { a, b, client, read, joining } = one;
    const missed: unknown[] = [];
    a.server.on("missed", (peer, method) => missed.push([peer, method]));
    const gaps = gapsOf(a);
    a.server.on("gap", (topic) => a.server.topic(topic).notify("reload", {}, { here: true }));
    await publish(b, 101, TEXT);
    await say(b, 102);
    await turn();
    await act(one);
    if (isLost) read.reject(new Error("faulty: lost"));
    else read.resolve();
    expect((await joining).outcome).toBe("gap");
    const lastTwo = (): unknown => new Set(client.got.slice(-2).map(([method, { n }]) => n ?? method));
    await expectSoon(lastTwo, new Set([102, "reload"]));
    expect([gaps.length, missed]).toEqual([1, [[client.peer, "said"]]]);
  });
});

it("a slow member is closed with 1013 and not skipped, so that it can recover", async () => {
  const [, a, b, , bob] = await room({ limits: { maxUnsentBytes: 20_000, maxReplyBytes: 20_000 } });
  b.network.of(bob.client).stop();
  for (let n = 2; n < 80; n++) await publish(a, n, TEXT);
  expect((await settled(bob.peer.closed)).code).toBe(1013);
  expect(bob.peer.stats().dropped).toBe(0);
});
