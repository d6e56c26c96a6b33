/** Topics of several nodes, and of a server without an engine. What every engine carries is in test/engines/fleet-suite.ts. */
import { describe, expect, it } from "vitest";
import { bytes, bytesOf, ErrorCode, type AnyPeer } from "../../src/node.js";
import { pass } from "../support/time.js";
import { rejection, turn } from "../support/turns.js";
import { FaultyEngine } from "./faulty.js";
import { expectSoon, makeNode, makeNodes, settled, useFleet, when, type Client, type Node } from "./nodes.js";

useFleet();

/** Two nodes with one member each in the topic "room". */
async function room(options?: object): Promise<[FaultyEngine, a: Node, b: Node, ann: Client, bob: Client]> {
  const engine = new FaultyEngine();
  const [a, b] = makeNodes(2, options, engine) as [Node, Node];
  const [ann, bob] = [await a.client("ann"), await b.client("bob")];
  await a.server.topic("room").join(ann.peer);
  await b.server.topic("room").join(bob.peer);
  return [engine, a, b, ann, bob];
}

const said = (n: number): [string, object] => ["said", { n }];
const END: [string, undefined] = ["end", undefined];
const LOG = { log: { length: 10, ttlMs: 60_000 } };

describe("notify of a topic", () => {
  it("reaches the members on its own node before the tick ends, as without an engine", async () => {
    const [, a, , ann] = await room();
    const sent = ann.peer.stats().notificationsSent;
    a.server.topic("room").notify("said", { n: 1 });
    expect(ann.peer.stats().notificationsSent).toBe(sent + 1);
  });

  it("keeps the order of each node's messages", async () => {
    const [, a, b, ann, bob] = await room();
    for (let n = 0; n < 200; n++) [a, b][n % 2]!.server.topic("room").notify("said", { n });
    for (const client of [ann, bob])
      for (const parity of [0, 1])
        expect((await client.until(200)).map(([, { n }]) => n as number).filter((n) => n % 2 === parity)).toEqual(
          Array.from({ length: 100 }, (_, i) => 2 * i + parity),
        );
  });

  it("omits the peers in `except` on all nodes: a peer, an id, a handle, or a list or Set of these", async () => {
    const nodes = makeNodes(3);
    const [a] = nodes as [Node];
    const clients = await Promise.all([0, 1, 2, 0, 1, 2].map((i) => nodes[i]!.client()));
    for (const [i, { peer }] of clients.entries()) await nodes[i % 3]!.server.topic("room").join(peer);
    const [p0, p1, p2, p3, p4, p5] = clients.map(({ peer }) => peer) as [AnyPeer, ...AnyPeer[]];
    const excepts: [except: unknown, reached: number[]][] = [
      [p0, [1, 2, 3, 4, 5]],
      [p1!.id, [0, 2, 3, 4, 5]],
      [a.server.peer(p2!.id), [0, 1, 3, 4, 5]],
      ["no such peer", [0, 1, 2, 3, 4, 5]],
      [
        [p1, p2],
        [0, 3, 4, 5],
      ],
      [new Set([p0, p4!.id]), [1, 2, 3, 5]],
      [
        [p3, a.server.peer(p5!.id), "gone", `${"x".repeat(64)}.gone`, "a,b.c", "\ud800.x"],
        [0, 1, 2, 4],
      ],
      [[], [0, 1, 2, 3, 4, 5]],
    ];
    for (const [n, [except]] of excepts.entries()) {
      a.server.topic("room").notify("said", { n }, { except: except as never });
      a.server.peers.notify("all", { n }, { except: except as never });
    }
    a.server.topic("room").notify("end");
    a.server.peers.notify("end");
    for (const [i, client] of clients.entries()) {
      const numbers = excepts.flatMap(([, reached], n) => (reached.includes(i) ? [n] : []));
      await client.until(2 * numbers.length + 2);
      for (const method of ["said", "all"])
        expect(client.got.filter(([name]) => name === method).map(([, params]) => params.n as number)).toEqual(numbers);
    }
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

  it("has the ids of other nodes in its frame, separated by commas, and those alone", async () => {
    const [{ links }, a, b, ann, bob] = await room();
    const eve = await b.client();
    const excepts = [bob.peer, [ann.peer, bob.peer.id, eve.peer, "gone", "-"], ann.peer];
    for (const except of excepts) a.server.topic("room").notify("said", {}, { except });
    await turn();
    const heads = links[0]!.sent.filter((frame) => frame.startsWith("1N")).map((frame) => frame.split("\n")[0]);
    const ids = [bob.peer.id, `${bob.peer.id},${eve.peer.id}`, ""];
    expect(heads).toEqual(ids.map((id) => `1N\t${a.server.nodes.id}\t${id}\t\t\t`));
  });

  it("refuses an `except` of a client, or of a server without an engine", async () => {
    const [, a, , ann] = await room();
    const cyd = await makeNode({}).client();
    for (const except of [ann.client, cyd.peer, [ann.peer, cyd.peer]])
      expect(() => a.server.topic("room").notify("said", {}, { except: except as never })).toThrow(
        "Expected `except` to be a peer of this server or of one with its engine",
      );
  });

  it("stays on its node with `here`, also through `server.peers`", async () => {
    const [, a, , ann, bob] = await room();
    for (const group of [a.server.topic("room"), a.server.peers]) {
      group.notify("said", { n: 1 }, { here: true });
      group.notify("end");
    }
    expect(await ann.until(4)).toEqual([said(1), END, said(1), END]);
    expect(await bob.until(2)).toEqual([END, END]);
  });

  it("reaches a peer that was added and not joined, once its node is subscribed", async () => {
    const [a, b] = makeNodes(2) as [Node, Node];
    const bob = await b.client();
    b.server.topic("room").add(bob.peer);
    await turn();
    a.server.topic("room").notify("end");
    expect(await bob.until(1)).toEqual([END]);
  });

  it("carries bytes as base64 to other nodes", async () => {
    const [, a, , ann, bob] = await room();
    a.server.topic("room").notify("said", { data: bytes(new Uint8Array([1, 2, 255])) });
    for (const client of [ann, bob]) expect([...bytesOf((await client.until(1))[0]![1].data)]).toEqual([1, 2, 255]);
  });

  it("calls `around` once, on the node that notifies, also if no member is there", async () => {
    const calls: unknown[] = [];
    const around = (call: any, next: () => Promise<unknown>): unknown => {
      if (call.peer !== undefined) return next();
      calls.push([call.topic, call.method, call.peers.length]);
      call.params = { n: 7 };
      return next();
    };
    const [a, b] = makeNodes(2, { around }) as [Node, Node];
    const bob = await b.client();
    await b.server.topic("room").join(bob.peer);
    a.server.topic("room").notify("said", { n: 1 });
    expect(await bob.until(1)).toEqual([said(7)]);
    a.server.topic("room").notify("said", { n: 1 }, { here: true });
    expect(calls).toEqual([["room", "said", 0]]);
  });
});

const isOver = ({ got: all }: Client): boolean => all.at(-1)?.[0] === "end";

/** Returns what a client got except the messages that filled its socket. */
const messagesOf = ({ got: all }: Client): unknown[] =>
  all
    .filter(([method]) => method !== "pad")
    .map(([method, params]) => (params?.n === undefined ? [method] : [method, params.n]));

describe.each(["topic", "peers"] as const)("to a slow peer of another node, a message of a %s", (kind) => {
  const PAD = "x".repeat(20_000);

  /** Two members on the second node: the socket of `bob` is full, and `eve` reads all the time. Notifies from the first node. */
  async function slow() {
    const limits = { maxUnsentBytes: 200_000, maxReplyBytes: 200_000 };
    const [, a, b, ann, bob] = await room({ limits });
    const eve = await b.client("eve");
    await b.server.topic("room").join(eve.peer);
    a.server.topic("room").delete(ann.peer);
    const line = b.network.of(bob.client);
    line.stop();
    for (let pads = 1; bob.peer.stats().unsentBytes < 60_000; pads++) {
      a.server.peers.notify("pad", { PAD });
      await eve.until(pads);
    }
    const group = kind === "topic" ? a.server.topic("room") : a.server.peers;
    const missed: unknown[] = [];
    b.server.on("missed", (peer, method) => missed.push([peer, method]));
    a.server.on("missed", () => missed.push("at the node that notified"));
    /** Sends the last message, which eve gets, and with `start` bob too. */
    const end = async (options: object = {}): Promise<void> => {
      group.notify("end", undefined, options);
      await when(() => isOver(eve));
    };
    const start = async (): Promise<void> => {
      line.start();
      await when(() => isOver(bob));
    };
    /** Notifies, and waits until the other node has it. */
    const notify = async (params: object, options?: object): Promise<void> => {
      const before = eve.got.length;
      group.notify("said", { PAD, ...params }, options);
      await eve.until(before + 1);
    };
    return { a, b, bob, eve, group, missed, end, start, notify, line };
  }

  it("with `latest` is kept as the newest of its key, and a volatile one is dropped and not counted", async () => {
    const { bob, eve, group, missed, end, start } = await slow();
    const { unsentBytes } = bob.peer.stats();
    for (let n = 1; n <= 800; n++) {
      group.notify("moved", { n, PAD: "x".repeat(100) }, { latest: n % 2 === 0 ? "ann" : "" });
      if (n % 40 === 0) group.notify("typing", { n }, { volatile: true });
    }
    await end();
    expect(messagesOf(eve)).toHaveLength(821);
    // One message of each key, and "end".
    expect(bob.peer.stats().unsentBytes).toBeLessThan(unsentBytes + 1_000);
    await start();
    expect(messagesOf(bob)).toEqual([["moved", 799], ["moved", 800], ["end"]]);
    expect([bob.peer.stats().dropped, missed]).toEqual([0, []]);
  });

  it("is dropped and counted on the node of the peer, which reports it to the peer", async () => {
    const { bob, missed, notify, end, start } = await slow();
    let counted = 0;
    bob.client.on("missed", (report) => (counted += report.count));
    for (let n = 1; n <= 20; n++) await notify({ n });
    await end({ whenSlow: "close" });
    const { dropped } = bob.peer.stats();
    expect(dropped).toBeGreaterThan(0);
    expect(missed).toEqual(Array.from({ length: dropped }, () => [bob.peer, "said"]));
    await start();
    expect([counted, messagesOf(bob).length]).toEqual([dropped, 21 - dropped]);
  });

  it("is dropped once, also if a listener of `missed` adds the peer again", async () => {
    const { b, bob, missed, notify } = await slow();
    const topic = b.server.topic("room");
    b.server.on("missed", (peer) => {
      // The bound ends the test if the message is sent again and again.
      if (missed.length < 1_000) topic.add((topic.delete(peer), peer));
    });
    while (missed.length === 0) await notify({});
    expect([missed.length, bob.peer.stats().dropped]).toEqual([1, 1]);
  });

  it('closes the peer with `whenSlow: "close"`', async () => {
    const { bob, eve, notify, line } = await slow();
    for (let n = 1; n <= 100; n++) await notify({ n }, { whenSlow: "close" });
    line.start();
    expect(await settled(bob.peer.closed)).toMatchObject({ code: 1013 });
    expect(eve.peer.state).toBe("open");
  });

  it("does not reach the peer that `except` names, nor another node with `here`", async () => {
    const { a, bob, eve, group, end, start } = await slow();
    for (const except of [bob.peer, bob.peer.id, a.server.peer(bob.peer.id)])
      for (const options of [{}, { latest: "k" }, { whenSlow: "close" as const }])
        group.notify("said", {}, { except, ...options });
    group.notify("here", {}, { here: true, latest: "k" });
    await end();
    await start();
    expect([messagesOf(bob), messagesOf(eve).length]).toEqual([[["end"]], 10]);
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

  it("delays `join` until it is heard after a loss", async () => {
    const [{ links }, a] = await room();
    const { peer } = await a.client();
    links[0]!.down();
    links[0]!.host.up();
    let hasJoined = false;
    const joining = a.server
      .topic("room")
      .join(peer)
      .then(() => (hasJoined = true));
    await turn();
    expect(hasJoined).toBe(false);
    links[0]!.up();
    await joining;
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

  it("is asked for at most 32 logs at once after a loss", async () => {
    const [{ links }, a, , ann] = await room({ topics: () => LOG });
    const [link] = links;
    await Promise.all(Array.from({ length: 49 }, (_, i) => a.server.topic(`room${i}`).join(ann.peer)));
    const before = link!.count("read");
    link!.down();
    const answer = link!.blocks("read");
    link!.up();
    await turn();
    expect(link!.count("read") - before).toBe(32);
    answer.resolve();
    await expectSoon(() => link!.count("read") - before, 50);
  });
});

const single = (): Node => makeNode({ topics: () => ({ ...LOG, members: true }) });

describe("without an engine", () => {
  it("a server reads a log and lists members at once, before anything else has happened", async () => {
    expect((await single().server.topic("room").read()).entries).toEqual([]);
    const { server } = single();
    expect(await server.topic("room").members({ limit: 1 })).toEqual([]);
    await server.close();
    await expect(server.topic("room").members()).rejects.toMatchObject({ outcome: "not-sent" });
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
    await topic.publish("said", { n: 2 });
    expect((await ann.until(2)).map(([, { n }]) => n as number)).toEqual([1, 2]);
    expect(await bob.until(1)).toHaveLength(1);
    expect(a.server.nodes.live).toEqual([a.server.nodes.id]);
    expect(a.server.peer(ann.peer.id).id).toBe(ann.peer.id);
    a.server.peer(ann.peer.id).notify("end");
    expect(await ann.until(3)).toContainEqual(END);
  });

  it("a closed server connects to nothing", async () => {
    const { server } = single();
    await server.close();
    const topic = server.topic("room");
    for (const result of [topic.publish("said", {}), topic.read(), topic.members()])
      expect(await rejection(result)).toMatchObject({ code: "ENGINE", outcome: "not-sent" });
    expect(server.nodes.id).not.toBe("");
  });
});

describe("a handler that fails because the broker is down", () => {
  it("answers with -32011 and no details, which are emitted as `error`", async () => {
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
      const { name, code, message, data } = await settled(rejection(client.request(method)));
      expect([name, code, message, data]).toEqual(["RpcError", -32011, "Try again later", undefined]);
      expect(code).toBe(ErrorCode.TryAgainLater);
    }
    const down = expect.objectContaining({ name: "EngineError", outcome: "not-sent" }) as unknown;
    expect(errors).toEqual([down, down]);
    engine.links[0]!.up();
    expect(await client.request("join")).toMatchObject({ outcome: "gap" });
  });
});
