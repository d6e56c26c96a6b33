/** Topics of several nodes, and of a server without an engine. */
import { describe, expect, it } from "vitest";
import { bytes, bytesOf, EngineError, ErrorCode, type AnyPeer } from "../../src/node.js";
import { pass } from "../support/time.js";
import { rejection, turn } from "../support/turns.js";
import { FaultyEngine } from "./faulty.js";
import { expectSoon, makeNode, makeNodes, room as roomOf, settled, useFleet, type Client, type Node } from "./nodes.js";

useFleet();

const room = (options: object = {}): ReturnType<typeof roomOf> => roomOf({ topics: undefined, ...options });

const said = (n: number): [string, object] => ["said", { n }];
const END: [string, undefined] = ["end", undefined];
const LOG = { log: { length: 10, ttlMs: 60_000 } };

describe("notify of a topic", () => {
  it("reaches the members on its own node before the tick ends, as without an engine", async () => {
    const [, a, , ann, bob] = await room();
    const sent = ann.peer.stats().notificationsSent;
    a.server.topic("room").notify("said", { data: bytes(new Uint8Array([1, 2, 255])) });
    expect(ann.peer.stats().notificationsSent).toBe(sent + 1);
    for (const client of [ann, bob]) expect([...bytesOf((await client.until(1))[0]![1].data)]).toEqual([1, 2, 255]);
  });

  it("omits the peers in `except`, and other nodes with `here`, also through `server.peers`", async () => {
    const nodes = makeNodes(3);
    const [a] = nodes as [Node];
    const clients = await Promise.all([0, 1, 2, 0, 1, 2].map((i) => nodes[i]!.client()));
    for (const [i, { peer }] of clients.entries())
      for (const name of ["room", ...(i < 4 ? ["left"] : []), ...(i > 1 ? ["right"] : []), ...(i % 2 ? ["odd"] : [])])
        await nodes[i % 3]!.server.topic(name).join(peer);
    const [p0, p1, p2, p3, p4, p5] = clients.map(({ peer }) => peer) as [AnyPeer, ...AnyPeer[]];
    const strange = ["gone", `${"x".repeat(64)}.gone`, "a,b.c", "\ud800.x"];
    const rows: [options: object, omitted: number[]][] = [
      [{ except: p0 }, [0]],
      [{ except: p1!.id }, [1]],
      [{ except: a.server.peer(p2!.id) }, [2]],
      [{ except: [p1, p2] }, [1, 2]],
      [{ except: new Set([p0, p4!.id]) }, [0, 4]],
      [{ except: [p3, a.server.peer(p5!.id), ...strange] }, [3, 5]],
      [{ except: [] }, []],
      [{ except: a.server.topic("odd") }, [1, 3, 5]],
      [{ except: new Set([p4, p1!.id, a.server.topics("void", "right")]) }, [1, 2, 3, 4, 5]],
      [{ here: true }, [1, 2, 4, 5]],
      [{}, []],
    ];
    const { server } = a;
    const union = server.topics("left", "right", "void", "left");
    expect([union.size, union.topics, server.topicNames[0]]).toEqual([2, ["left", "right", "void"], "room"]);
    const groups = [server.topic("room"), server.peers, union];
    const methods = ["said", "all", "any"];
    server.topics().notify("any", { n: -1 });
    for (const [n, [options]] of rows.entries())
      for (const [i, group] of groups.entries()) group.notify(methods[i]!, { n }, options);
    for (const [i, client] of clients.entries()) {
      const numbers = rows.flatMap(([, omitted], n) => (omitted.includes(i) ? [] : [n]));
      const got = await client.until(3 * numbers.length);
      for (const method of methods)
        expect(got.flatMap(([name, { n }]) => (name === method ? [n as number] : []))).toEqual(numbers);
    }
    expect(() => server.topics(...Array.from({ length: 257 }, (_, n) => String(n)))).toThrow("at most 256");
    const { peer: foreign } = await makeNode({}).client();
    for (const except of [foreign, [p0, foreign], server.peers, { topics: [""] }])
      expect(() => a.server.topic("room").notify("said", {}, { except: except as never })).toThrow("Expected `except`");
  });

  it("omits 256 peers, the most that `except` takes, with the longest `latest` and ids", async () => {
    const [, a, b, , bob] = await room();
    const other = await b.client();
    await b.server.topic("room").join(other.peer);
    const gone = Array.from({ length: 255 }, (_, i) => `${"x".repeat(64)}.${String(i).padStart(63, "y")}`);
    const options = { except: [...gone, bob.peer], latest: "\ud83d\ude00".repeat(128) };
    a.server.topic("room").notify("said", { n: 1 }, options);
    a.server.topic("room").notify("end");
    expect(await other.until(2)).toEqual([said(1), END]);
    expect(await bob.until(1)).toEqual([END]);
    expect(b.server.stats().engine).toMatchObject({ foreign: 0 });
  });

  it("calls `around` once, on the node that notifies, also if no member is there", async () => {
    const calls: unknown[] = [];
    const around = (call: any, next: () => Promise<unknown>): unknown => {
      if (call.peer !== undefined) return next();
      calls.push([call.topics, call.method, call.peers.length]);
      call.params = { n: 7 };
      return next();
    };
    const [a, b] = makeNodes(2, { around }) as [Node, Node];
    const bob = await b.client();
    await b.server.topic("room").join(bob.peer);
    a.server.topic("room").notify("said", { n: 1 });
    expect(await bob.until(1)).toEqual([said(7)]);
    a.server.topic("room").notify("said", { n: 1 }, { here: true });
    expect(calls).toEqual([[["room"], "said", 0]]);
  });
});

const messagesOf = ({ got }: Client): unknown[] =>
  got.filter(([method]) => method !== "pad").map(([method, params]) => (params?.n === undefined ? method : params.n));

describe.each(["topic", "peers"] as const)("to a slow peer of another node, a message of a %s", (kind) => {
  const PAD = "x".repeat(20_000);

  /** Two members on the second node: the socket of `bob` is full, and `eve` reads all the time. Notifies from the first node. */
  async function slow() {
    const limits = { maxUnsentBytes: 200_000, maxReplyBytes: 200_000 };
    const [, a, b, , bob] = await room({ limits });
    const eve = await b.client("eve");
    await b.server.topic("room").join(eve.peer);
    const line = b.network.of(bob.client);
    line.stop();
    const group = kind === "topic" ? a.server.topic("room") : a.server.peers;
    const notify = async (method: string, params: object, options?: object): Promise<void> => {
      const before = eve.got.length;
      group.notify(method, params, options);
      await eve.until(before + 1);
    };
    while (bob.peer.stats().unsentBytes < 60_000) await notify("pad", { PAD });
    const missed: unknown[] = [];
    b.server.on("missed", (peer, method) => missed.push([peer, method]));
    a.server.on("missed", () => missed.push("at the node that notified"));
    return { a, b, bob, eve, missed, notify, line };
  }

  it("with `latest` is kept as the newest of its key, and a volatile one is dropped and not counted", async () => {
    const { a, bob, missed, notify, line } = await slow();
    for (let n = 1; n <= 20; n++) {
      await notify("moved", { n, pad: "x".repeat(5_000) }, { latest: n % 2 === 0 ? "ann" : "" });
      await notify("typing", { n }, { volatile: true });
    }
    for (const except of [bob.peer, bob.peer.id, a.server.peer(bob.peer.id)])
      for (const options of [{}, { latest: "k" }, { whenSlow: "close" }])
        await notify("said", { n: 0 }, { except, ...options });
    await notify("end", {});
    line.start();
    await expectSoon(() => messagesOf(bob), [19, 20, "end"]);
    expect([bob.peer.stats().dropped, missed]).toEqual([0, []]);
  });

  it("is dropped and counted on the node of the peer, once, which reports it to the peer", async () => {
    const { b, bob, missed, notify, line } = await slow();
    let counted = 0;
    bob.client.on("missed", (report) => (counted += report.count));
    // The bound ends the test if the message is sent again and again.
    b.server.on("missed", (peer) => {
      const topic = b.server.topic("room");
      topic.delete(peer);
      if (missed.length < 1_000) topic.add(peer);
    });
    for (let n = 1; n <= 20; n++) await notify("said", { n, PAD });
    await notify("end", {}, { whenSlow: "close" });
    const { dropped } = bob.peer.stats();
    expect(dropped).toBeGreaterThan(0);
    expect(missed).toEqual(Array.from({ length: dropped }, () => [bob.peer, "said"]));
    line.start();
    await expectSoon(() => [counted, messagesOf(bob).length], [dropped, 21 - dropped]);
  });

  it('closes the peer with `whenSlow: "close"`', async () => {
    const { bob, eve, notify, line } = await slow();
    for (let n = 1; n <= 100; n++) await notify("said", { n, PAD }, { whenSlow: "close" });
    line.start();
    expect(await settled(bob.peer.closed)).toMatchObject({ code: 1013 });
    expect(eve.peer.state).toBe("open");
  });
});

describe("a subscription", () => {
  it("exists while the topic has members, and 5 s longer", async () => {
    const [{ links }, a, , ann] = await room();
    const { peer } = await a.client();
    const topic = a.server.topic("room");
    await topic.join(peer);
    topic.delete(peer);
    topic.delete(ann.peer);
    await pass(4_900);
    // The topic gets a member again without a command.
    await topic.join(peer);
    expect([links[0]!.count("subscribe"), links[0]!.count("unsubscribe")]).toEqual([1, 0]);
    await peer.close();
    await pass(4_900);
    expect(links[0]!.count("unsubscribe")).toBe(0);
    await pass(200);
    expect(links[0]!.count("unsubscribe")).toBe(1);
  });

  it("is tried again if it fails, and `join` rejects meanwhile", async () => {
    const [{ links }, a, b, ann] = await room();
    links[0]!.fails("subscribe");
    const topic = a.server.topic("other");
    await expect(topic.join(ann.peer)).rejects.toThrow("faulty");
    expect(topic.has(ann.peer)).toBe(false);
    topic.add(ann.peer);
    await pass(1_100);
    b.server.topic("other").notify("end");
    expect(await ann.until(1)).toEqual([END]);
  });

  it("is one of 32 that are asked for at once, also if all are refused and tried again, and questions are counted", async () => {
    const [{ links }, a, , ann] = await room({ topics: () => ({ members: true }) });
    const [link] = links;
    const before = link!.count("subscribe");
    const refusal = link!.blocks("subscribe");
    for (let i = 0; i < 49; i++) a.server.topic(`room${i}`).add(ann.peer);
    expect(link!.count("subscribe") - before).toBe(32);
    refusal.reject(new EngineError("faulty: refused", "not-sent"));
    await turn();
    const answer = link!.blocks("subscribe");
    await pass(1_100);
    expect(link!.count("subscribe") - before).toBe(49 + 32);
    answer.resolve();
    await expectSoon(() => link!.count("subscribe") - before, 2 * 49);
    link!.blocks("send");
    link!.host.resubscribed(["t:room"]);
    expect(a.server.stats().engine!.pendingBytes).toBeGreaterThan(0);
  });

  it("is counted each time that it fails, and reported as `error` once, when it fails again", async () => {
    const [{ links }, a, , ann] = await room();
    const found: unknown[] = [];
    a.server.on("error", (error) => found.push((error as Error).message));
    links[0]!.fails("subscribe", { times: 4 });
    a.server.topic("other").add(ann.peer);
    for (let second = 0; second < 6; second++, await pass(1_000)) {
      await turn();
      found.push(a.server.stats().engine!.failedSubscriptions);
    }
    expect(found).toEqual([1, expect.stringMatching(/^faulty does not subscribe to "t:other"/), 2, 3, 4, 4, 4]);
  });

  it("is restored after a loss, and `engine` reports how long that took", async () => {
    const [{ links }, a, b, ann, bob] = await room();
    const states: unknown[] = [];
    b.server.on("engine", ({ state, downMs, error }) => states.push([state, downMs, error?.message]));
    links[1]!.down();
    expect(b.server.health()).toMatchObject({ ok: false, engine: "down" });
    a.server.topic("room").notify("said", { n: 1 });
    b.server.topic("room").notify("said", { n: 2 });
    await expect(b.server.topic("other").join(bob.peer)).rejects.toMatchObject({ outcome: "not-sent", code: "ENGINE" });
    expect(b.server.topic("other").size).toBe(0);
    await pass(70);
    links[1]!.up();
    a.server.topic("room").notify("end");
    // What the others sent meanwhile is lost to this node. What this node sent reached its own peers.
    expect(await bob.until(2)).toEqual([said(2), END]);
    expect(await ann.until(2)).toEqual([said(1), END]);
    expect(states).toEqual([
      ["down", 0, "faulty: lost"],
      ["up", 70, undefined],
    ]);
    expect(b.server.health()).toMatchObject({ ok: true, engine: "up" });
    expect(b.server.stats()).toMatchObject({ peers: 1, engine: { dropped: 1, reconnects: 1 } });
  });
});

describe("a slow broker", () => {
  it.each([
    ["10,000 unanswered commands", 10_000, ""],
    ["16 MiB", 16, "x".repeat(1_040_000)],
  ])("has at most %s: beyond that, notifications to other nodes are dropped", async (_what, count, text) => {
    const [{ links }, a, , ann] = await room();
    const engine = (): { dropped: number; pendingBytes: number } => a.server.stats().engine!;
    expect(engine().pendingBytes).toBe(0);
    const answer = links[0]!.blocks("send");
    for (let n = 0; n < count; n++) a.server.topic("other").notify("said", { text });
    expect(engine().dropped).toBe(0);
    expect(engine().pendingBytes).toBeLessThanOrEqual(16 * 2 ** 20);
    a.server.topic("room").notify("said", { text });
    expect(engine().dropped).toBe(1);
    // The peers of this node get it nevertheless.
    await ann.until(1);
    answer.resolve();
    await expectSoon(() => engine().pendingBytes, 0);
  });

  it("is asked for at most 32 logs at once after a loss, and meanwhile for members", async () => {
    const [{ links }, a, , ann] = await room({ topics: () => ({ ...LOG, members: true }) });
    const [link] = links;
    await Promise.all(Array.from({ length: 49 }, (_, i) => a.server.topic(`room${i}`).join(ann.peer)));
    const before = link!.count("read");
    link!.down();
    const answer = link!.blocks("read");
    link!.up();
    await turn();
    expect(link!.count("read") - before).toBe(32);
    expect(await Promise.race([a.server.topic("other").members(), pass(1_000)])).toEqual([]);
    answer.resolve();
    await expectSoon(() => link!.count("read") - before, 51);
  });
});

const single = (): Node => makeNode({ topics: () => ({ ...LOG, members: true }) });

describe("without an engine", () => {
  it("a server reads a log and lists members at once, before anything else has happened", async () => {
    expect((await single().server.topic("room").read()).entries).toEqual([]);
    expect(await single().server.topic("room").members({ limit: 1 })).toEqual([]);
  });

  it("a server has no fleet, and a peer's id has no name of a node", async () => {
    const a = makeNode({});
    const ann = await a.client();
    a.server.topic("room").add(ann.peer).notify("said", { n: 1 }, { except: "nobody", here: true });
    a.server.topic("room").notify("said", { n: 2 }, { except: ann.peer.id });
    a.server.topic("room").notify("end");
    expect(await ann.until(2)).toEqual([said(1), END]);
    expect(ann.peer.id).not.toContain(".");
    expect(a.server.stats()).not.toHaveProperty("engine");
    expect(a.server.health()).toEqual({ ok: true, engine: "none", lagMs: undefined });
  });

  it("`join` resolves in the same tick, as do `publish` and `members`, also for peers that were there before", async () => {
    const a = single();
    const [ann, bob] = [await a.client(), await a.client()];
    const topic = a.server.topic("room").add(ann.peer);
    const results: unknown[] = [];
    void topic.publish("said", { n: 1 }).then(async (at) => {
      results.push(await topic.join(bob.peer, { since: at, as: { name: "bob" } }), { at, outcome: "complete" });
      results.push(await topic.members(), [{ id: bob.peer.id, as: { name: "bob" } }]);
    });
    await turn();
    expect(results).toHaveLength(4);
    expect([results[0], results[2]]).toEqual([results[1], results[3]]);
    expect(a.server.nodes.live).toEqual([a.server.nodes.id]);
  });
});

it("a handler that fails because the broker is down answers with -32011 and no details, which are emitted as `error`", async () => {
  const engine = new FaultyEngine();
  const methods = {
    join: (_params: unknown, { peer, server }: any) => server.topic("room").join(peer),
    publish: (_params: unknown, { server }: any) => server.topic("room").publish("said", {}, { timeoutMs: 1 }),
  };
  const node = makeNode({ engine, topics: () => LOG, methods });
  const errors: unknown[] = [];
  node.server.on("error", (error) => errors.push(error));
  const { client } = await node.client();
  engine.links[0]!.down();
  for (const method of ["join", "publish"]) {
    const { name, code, data } = await settled(rejection(client.request(method)));
    expect([name, code, data]).toEqual(["RpcError", ErrorCode.TryAgainLater, undefined]);
  }
  const down = expect.objectContaining({ name: "EngineError", outcome: "not-sent" }) as unknown;
  expect(errors).toEqual([down, down]);
  engine.links[0]!.up();
  expect(await client.request("join")).toMatchObject({ outcome: "gap" });
});
