import { afterEach, describe, expect, it } from "vitest";
import { countDeadlines } from "../../src/core/deadlines.js";
import { memory } from "../../src/fleet/memory.js";
import { ErrorCode, type AnyPeer } from "../../src/node.js";
import { HOSTILE_NAMES } from "../engines/rig.js";
import { gate, rejection, turn } from "../support/turns.js";
import { FaultyEngine } from "./faulty.js";
import { closeAll, makeNode, makeNodes, type Client, type Node } from "./nodes.js";

let nodes: Node[] = [];
afterEach(() => closeAll(nodes));

/** Two nodes with one member each in the topic "room". */
async function room(options?: object): Promise<[a: Node, b: Node, ann: Client, bob: Client]> {
  nodes = makeNodes(2, options);
  const [a, b] = nodes as [Node, Node];
  const [ann, bob] = [await a.client("ann"), await b.client("bob")];
  await a.server.topic("room").join(ann.peer);
  await b.server.topic("room").join(bob.peer);
  return [a, b, ann, bob];
}

const said = (n: number): [string, object] => ["said", { n }];
const END: [string, undefined] = ["end", undefined];

describe("notify of a topic", () => {
  it("reaches the members on all nodes, once, and no others", async () => {
    const [a, b, ann, bob] = await room();
    const outsider = await b.client();
    a.server.topic("room").notify("said", { n: 1 });
    b.server.topic("room").notify("said", { n: 2 });
    a.server.topic("other").notify("said", { n: 3 });
    a.server.topic("room").notify("end");
    expect(await bob.until(3)).toEqual([said(2), said(1), END]);
    expect(await ann.until(3)).toEqual([said(1), END, said(2)]);
    await turn();
    expect([ann.got.length, bob.got.length, outsider.got.length]).toEqual([3, 3, 0]);
  });

  it("reaches the members on this node before the tick ends, as without an engine", async () => {
    const [a, , ann] = await room();
    const sent = ann.peer.stats().notificationsSent;
    a.server.topic("room").notify("said", { n: 1 });
    expect(ann.peer.stats().notificationsSent).toBe(sent + 1);
  });

  it("keeps the order of each node's messages", async () => {
    const [a, b, ann, bob] = await room();
    for (let n = 0; n < 200; n++) [a, b][n % 2]!.server.topic("room").notify("said", { n });
    for (const { got } of [ann, bob]) {
      await ann.until(200);
      await bob.until(200);
      for (const parity of [0, 1])
        expect(got.map(([, { n }]) => n as number).filter((n) => n % 2 === parity)).toEqual(
          Array.from({ length: 100 }, (_, i) => 2 * i + parity),
        );
    }
  });

  it("omits a peer in `except`, on whichever node: the peer itself, its id or its handle", async () => {
    const [a, b, ann, bob] = await room();
    const other = await b.client();
    await b.server.topic("room").join(other.peer);
    const topic = a.server.topic("room");
    topic.notify("said", { n: 1 }, { except: ann.peer });
    topic.notify("said", { n: 2 }, { except: ann.peer.id });
    topic.notify("said", { n: 3 }, { except: bob.peer });
    topic.notify("said", { n: 4 }, { except: bob.peer.id });
    topic.notify("said", { n: 5 }, { except: a.server.peer(bob.peer.id) });
    topic.notify("said", { n: 6 }, { except: "no such peer" });
    topic.notify("end");
    expect(await ann.until(5)).toEqual([said(3), said(4), said(5), said(6), END]);
    expect(await bob.until(4)).toEqual([said(1), said(2), said(6), END]);
    expect(await other.until(7)).toEqual([...[1, 2, 3, 4, 5, 6].map(said), END]);
  });

  it("omits the peers of a list or a Set in `except` on all nodes", async () => {
    nodes = makeNodes(3);
    const [a] = nodes as [Node];
    const clients = await Promise.all([0, 1, 2, 0, 1, 2].map((i) => nodes[i]!.client()));
    for (const [i, { peer }] of clients.entries()) await nodes[i % 3]!.server.topic("room").join(peer);
    const [p0, p1, p2, p3, p4, p5] = clients.map(({ peer }) => peer) as [AnyPeer, ...AnyPeer[]];
    const excepts: [unknown, number[]][] = [
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
    const [a, b, , bob] = await room();
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
    const engine = memory();
    nodes = makeNodes(2, {}, engine);
    const [a, b] = nodes as [Node, Node];
    const [ann, bob, eve] = [await a.client(), await b.client(), await b.client()];
    const frames: string[] = [];
    const received = (_channel: string, frame: string): void => void frames.push(frame.slice(0, frame.indexOf("\n")));
    const spy = engine.createConnection("spy", { received, up() {}, down() {}, heard() {} });
    await spy.open();
    await spy.subscribe("t:room");
    const topic = a.server.topic("room");
    topic.notify("said", {}, { except: bob.peer });
    topic.notify("said", {}, { except: [ann.peer, bob.peer.id, eve.peer, "gone", "-"] });
    topic.notify("said", {}, { except: ann.peer });
    await turn();
    const { id } = a.server.nodes;
    expect(frames.filter((frame) => frame.startsWith("1N"))).toEqual([
      `1N\t${id}\t${bob.peer.id}\t\t\t`,
      `1N\t${id}\t${bob.peer.id},${eve.peer.id}\t\t\t`,
      `1N\t${id}\t\t\t\t`,
    ]);
    await spy.close();
  });

  it("refuses an `except` of a client, or of a server without an engine", async () => {
    const [a, , ann] = await room();
    const alone = makeNode({});
    nodes.push(alone);
    const cyd = await alone.client();
    for (const except of [ann.client, cyd.peer, [ann.peer, cyd.peer]])
      expect(() => a.server.topic("room").notify("said", {}, { except: except as never })).toThrow(
        "Expected `except` to be a peer of this server or of one with its engine",
      );
  });

  it("stays on this node with `here`", async () => {
    const [a, , ann, bob] = await room();
    a.server.topic("room").notify("said", { n: 1 }, { here: true });
    a.server.topic("room").notify("end");
    expect(await ann.until(2)).toEqual([said(1), END]);
    expect(await bob.until(1)).toEqual([END]);
  });

  it("reaches all peers of all nodes through `server.peers`", async () => {
    nodes = makeNodes(3);
    const clients = await Promise.all(nodes.map((node) => node.client()));
    nodes[1]!.server.peers.notify("said", { n: 1 }, { except: clients[2]!.peer });
    nodes[1]!.server.peers.notify("said", { n: 2 }, { here: true });
    nodes[1]!.server.peers.notify("end");
    expect(await clients[0]!.until(2)).toEqual([said(1), END]);
    expect(await clients[1]!.until(3)).toEqual([said(1), said(2), END]);
    expect(await clients[2]!.until(1)).toEqual([END]);
  });

  it("reaches a peer that was added and not joined, once its node is subscribed", async () => {
    nodes = makeNodes(2);
    const [a, b] = nodes as [Node, Node];
    const bob = await b.client();
    b.server.topic("room").add(bob.peer);
    await turn();
    a.server.topic("room").notify("end");
    expect(await bob.until(1)).toEqual([END]);
  });

  it("carries bytes as base64 to other nodes", async () => {
    const { bytes, bytesOf } = await import("../../src/node.js");
    const [a, , ann, bob] = await room();
    a.server.topic("room").notify("said", { data: bytes(new Uint8Array([1, 2, 255])) });
    for (const client of [ann, bob]) {
      const [[, { data }]] = (await client.until(1)) as [[string, { data: unknown }]];
      expect([...bytesOf(data)]).toEqual([1, 2, 255]);
    }
  });

  it("keeps `latest` for a slow peer of another node, and drops what is `volatile`", async () => {
    const [a, b, , bob] = await room();
    const resumed = new Promise<void>((resolve) => bob.client.once("resume", resolve));
    const suspended = new Promise<void>((resolve) => bob.peer.once("suspend", resolve));
    b.network.of(bob.client).cut();
    await suspended;
    const topic = a.server.topic("room");
    for (let n = 1; n <= 50; n++) {
      topic.notify("moved", { n }, { latest: "ann" });
      topic.notify("typing", { n }, { volatile: true });
    }
    topic.notify("end");
    await resumed;
    expect(await bob.until(2)).toEqual([["moved", { n: 50 }], END]);
    expect(bob.peer.stats().dropped).toBe(0);
  });

  it("calls `around` once, on the node that notifies, also if no member is there", async () => {
    const calls: unknown[] = [];
    const around = (call: any, next: () => Promise<unknown>): unknown => {
      if (call.peer !== undefined) return next();
      calls.push([call.topic, call.method, call.peers.length]);
      call.params = { n: 7 };
      return next();
    };
    const engine = memory();
    nodes = [makeNode({ engine, around }), makeNode({ engine })];
    const [a, b] = nodes as [Node, Node];
    const bob = await b.client();
    await b.server.topic("room").join(bob.peer);
    a.server.topic("room").notify("said", { n: 1 });
    expect(await bob.until(1)).toEqual([said(7)]);
    expect(calls).toEqual([["room", "said", 0]]);
    a.server.topic("room").notify("said", { n: 1 }, { here: true });
    expect(calls).toHaveLength(1);
  });

  it.each([undefined, null, 5, "", "x".repeat(513), "ß".repeat(257), "\ud800"])(
    "throws a TypeError for the name %j, and no peer of any node is notified",
    async (name) => {
      nodes = makeNodes(2);
      const [a] = nodes as [Node];
      const clients = await Promise.all(nodes.map((node) => node.client()));
      const topic = (): any => a.server.topic(name as string);
      expect(() => topic().add(clients[0]!.peer)).toThrow(TypeError);
      expect(() => topic().notify("said", { n: 1 })).toThrow(/a well-formed string of 1 to 512 bytes of UTF-8/);
      expect(a.server.stats().topics).toBe(0);
      a.server.peers.notify("end");
      for (const client of clients) expect(await client.until(1)).toEqual([END]);
    },
  );
});

describe("a subscription", () => {
  it("exists while the topic has members, and 5 s longer", async () => {
    const engine = new FaultyEngine();
    nodes = makeNodes(1, {}, engine);
    const [a] = nodes as [Node];
    const [ann, bob] = [await a.client(), await a.client()];
    const topic = a.server.topic("room");
    await topic.join(ann.peer);
    await topic.join(bob.peer);
    const subscribed = (): boolean => engine.leftovers().includes("subscription t:room");
    topic.delete(ann.peer);
    topic.delete(bob.peer);
    // It lingers: the topic gets a member again without a command.
    await topic.join(ann.peer);
    expect(subscribed()).toBe(true);
    expect(engine.links[0]!.commands.filter((command) => command.endsWith("subscribe"))).toEqual(["subscribe"]);
    await ann.peer.close();
    await expect.poll(subscribed, { timeout: 10_000, interval: 50 }).toBe(false);
    expect(engine.links[0]!.commands).toContain("unsubscribe");
  });

  it("is tried again if it fails, and `join` rejects meanwhile", async () => {
    const engine = new FaultyEngine();
    nodes = makeNodes(2, {}, engine);
    const [a, b] = nodes as [Node, Node];
    const ann = await a.client();
    let failures = 1;
    engine.links[0]!.before = (command) => {
      if (command === "subscribe" && failures-- > 0) throw new Error("faulty");
    };
    const topic = a.server.topic("room");
    await expect(topic.join(ann.peer)).rejects.toThrow("faulty");
    expect(topic.has(ann.peer)).toBe(false);
    topic.add(ann.peer);
    await expect
      .poll(
        () => {
          b.server.topic("room").notify("end");
          return ann.got.length;
        },
        { timeout: 5_000, interval: 20 },
      )
      .toBeGreaterThan(0);
  });

  it("is restored after a loss, and `engine` reports how long that took", async () => {
    const engine = new FaultyEngine();
    nodes = makeNodes(2, {}, engine);
    const [a, b] = nodes as [Node, Node];
    const [ann, bob] = [await a.client(), await b.client()];
    await a.server.topic("room").join(ann.peer);
    await b.server.topic("room").join(bob.peer);
    const states: unknown[] = [];
    b.server.on("engine", ({ state, downMs, error }) => states.push([state, downMs >= 0, error?.message]));
    engine.links[1]!.down();
    expect(b.server.health()).toMatchObject({ ok: false, engine: "down" });
    a.server.topic("room").notify("said", { n: 1 });
    b.server.topic("room").notify("said", { n: 2 });
    await expect(b.server.topic("other").join(bob.peer)).rejects.toMatchObject({ outcome: "not-sent", code: "ENGINE" });
    expect(b.server.topic("other").size).toBe(0);
    engine.links[1]!.up();
    a.server.topic("room").notify("end");
    // What the others sent meanwhile is lost to this node. What this node sent reached its own peers.
    expect(await bob.until(2)).toEqual([said(2), END]);
    expect(await ann.until(2)).toEqual([said(1), END]);
    expect(states).toEqual([
      ["down", true, "faulty: lost"],
      ["up", true, undefined],
    ]);
    expect(b.server.health()).toMatchObject({ ok: true, engine: "up" });
    expect(b.server.stats().engine).toMatchObject({ dropped: 1, reconnects: 1 });
    expect([bob.peer.state, b.server.stats().peers]).toEqual(["open", 1]);
  });

  it("waits in `join` until a restored subscription is heard", async () => {
    const engine = new FaultyEngine();
    nodes = makeNodes(1, {}, engine);
    const [a] = nodes as [Node];
    const [ann, bob] = [await a.client(), await a.client()];
    await a.server.topic("room").join(ann.peer);
    const [link] = engine.links;
    link!.down();
    link!.host.up();
    let hasJoined = false;
    const joining = a.server
      .topic("room")
      .join(bob.peer)
      .then(() => (hasJoined = true));
    await turn();
    expect(hasJoined).toBe(false);
    link!.up();
    await joining;
  });
});

describe("a slow broker", () => {
  it("has at most 10,000 unanswered commands, and 16 MiB: beyond that, notifications to other nodes are dropped", async () => {
    for (const [count, text] of [
      [10_000, ""],
      [16, "x".repeat(1_040_000)],
    ] as const) {
      const engine = new FaultyEngine();
      nodes = makeNodes(1, {}, engine);
      const [a] = nodes as [Node];
      const ann = await a.client();
      await a.server.topic("room").join(ann.peer);
      const answer = gate();
      const [link] = engine.links;
      // The echo of the first beat is answered.
      await expect.poll(() => a.server.health().lagMs).toBeGreaterThanOrEqual(0);
      link!.before = () => answer.promise;
      const { pendingBytes } = a.server.stats().engine!;
      expect(pendingBytes).toBe(0);
      for (let n = 0; n < count; n++) a.server.topic("other").notify("said", { text });
      expect(a.server.stats().engine).toMatchObject({ dropped: 0 });
      expect(a.server.stats().engine!.pendingBytes).toBeLessThanOrEqual(16 * 2 ** 20);
      a.server.topic("room").notify("said", { text });
      expect(a.server.stats().engine).toMatchObject({ dropped: 1 });
      // The peers of this node get it nevertheless.
      await ann.until(1);
      answer.resolve();
      await expect.poll(() => a.server.stats().engine!.pendingBytes).toBe(0);
      await closeAll(nodes);
    }
  });

  it("is asked for at most 32 logs at once after a loss", async () => {
    const engine = new FaultyEngine();
    nodes = makeNodes(1, { topics: () => ({ log: { length: 10, ttlMs: 60_000 } }) }, engine);
    const [a] = nodes as [Node];
    const ann = await a.client();
    await Promise.all(Array.from({ length: 50 }, (_, i) => a.server.topic(`room${i}`).join(ann.peer)));
    const [link] = engine.links;
    link!.down();
    const answer = gate();
    let reads = 0;
    link!.before = (command) => (command === "read" && ++reads > 0 ? answer.promise : undefined);
    link!.up();
    await turn();
    expect(reads).toBe(32);
    answer.resolve();
    await expect.poll(() => reads).toBe(50);
  });
});

describe("without an engine", () => {
  it("keeps topics with hostile names apart, also when one is joined", async () => {
    nodes = [makeNode({})];
    const [a] = nodes as [Node];
    const ann = await a.client();
    for (const name of HOSTILE_NAMES) a.server.topic(name).add(ann.peer);
    await a.server.topic("room").join(ann.peer);
    for (const [n, name] of HOSTILE_NAMES.entries()) a.server.topic(name).notify("said", { n });
    expect(await ann.until(HOSTILE_NAMES.length)).toEqual(HOSTILE_NAMES.map((_name, n) => said(n)));
  });

  it("reads a log and lists members at once, before anything else has happened", async () => {
    const options = { topics: () => ({ log: { length: 10, ttlMs: 60_000 }, members: true }) };
    nodes = [makeNode(options), makeNode(options)];
    const [a, b] = nodes as [Node, Node];
    const { entries } = await a.server.topic("room").read();
    expect(entries).toEqual([]);
    expect(await b.server.topic("room").members({ limit: 1 })).toEqual([]);
    await b.server.close();
    await expect(b.server.topic("room").members()).rejects.toThrow("there is no connection to memory");
  });

  it("makes no fleet, and a peer's id has no name of a node", async () => {
    nodes = [makeNode({})];
    const [a] = nodes as [Node];
    const ann = await a.client();
    a.server.topic("room").add(ann.peer).notify("said", { n: 1 }, { except: "nobody", here: true });
    a.server.topic("room").notify("said", { n: 2 }, { except: ann.peer.id });
    a.server.topic("room").notify("end");
    expect(await ann.until(2)).toEqual([said(1), END]);
    expect(ann.peer.id).not.toContain(".");
    expect(a.server.stats()).not.toHaveProperty("engine");
    expect(a.server.health()).toEqual({ ok: true, engine: "none", lagMs: undefined });
  });

  it("resolves `join` in the same tick", async () => {
    nodes = [makeNode({ topics: () => ({ log: { length: 10, ttlMs: 60_000 }, members: true }) })];
    const [a] = nodes as [Node];
    const ann = await a.client();
    let outcome: unknown;
    void a.server
      .topic("room")
      .join(ann.peer, { as: "ann" })
      .then((joined) => (outcome = joined.outcome));
    await turn();
    expect(outcome).toBe("gap");
  });

  it("serves `join`, `publish` and `members` from memory, also to peers that were there before", async () => {
    const log = { length: 10, ttlMs: 60_000 };
    nodes = [makeNode({ topics: () => ({ log, members: true }) })];
    const [a] = nodes as [Node];
    const [ann, bob] = [await a.client(), await a.client()];
    const topic = a.server.topic("room").add(ann.peer);
    const at = await topic.publish("said", { n: 1 });
    expect(await topic.join(bob.peer, { since: at, as: { name: "bob" } })).toEqual({ at, outcome: "complete" });
    expect(await topic.members()).toEqual([{ id: bob.peer.id, as: { name: "bob" } }]);
    await topic.publish("said", { n: 2 });
    expect(await ann.until(2)).toEqual([
      ["said", { n: 1, at }],
      ["said", { n: 2, at: expect.any(String) }],
    ]);
    expect(await bob.until(1)).toHaveLength(1);
    expect(ann.peer.id).not.toContain(".");
    expect(a.server.nodes.live).toEqual([a.server.nodes.id]);
    expect(a.server.peer(ann.peer.id).id).toBe(ann.peer.id);
    a.server.peer(ann.peer.id).notify("end");
    expect(await ann.until(3)).toContainEqual(END);
  });
});

describe("a handler that fails because the broker is down", () => {
  it("answers with -32011 and no details, which are emitted as `error`", async () => {
    const engine = new FaultyEngine();
    nodes = [
      makeNode({
        engine,
        topics: () => ({ log: { length: 10, ttlMs: 60_000 } }),
        methods: {
          join: (_params: unknown, { peer, server }: any) => server.topic("room").join(peer),
          publish: (_params: unknown, { server }: any) => server.topic("room").publish("said", {}, { timeoutMs: 1 }),
        },
      }),
    ];
    const [node] = nodes as [Node];
    const errors: unknown[] = [];
    node.server.on("error", (error) => errors.push(error));
    const { client } = await node.client();
    engine.links[0]!.down();
    for (const method of ["join", "publish"]) {
      const { name, code, message, data } = await rejection(client.request(method));
      expect([name, code, message, data]).toEqual(["RpcError", -32011, "Try again later", undefined]);
      expect(code).toBe(ErrorCode.TryAgainLater);
    }
    const down = expect.objectContaining({ name: "EngineError", outcome: "not-sent" }) as unknown;
    expect(errors).toEqual([down, down]);
    engine.links[0]!.up();
    expect(await client.request("join")).toMatchObject({ outcome: "gap" });
  });
});

it("a server without an engine that is closed connects to nothing", async () => {
  const node = makeNode({ topics: () => ({ log: { length: 10, ttlMs: 60_000 }, members: true }) });
  await node.server.close();
  const topic = node.server.topic("room");
  const { waiting } = countDeadlines();
  for (const result of [topic.publish("said", {}), topic.read(), topic.members()])
    expect(await rejection(result)).toMatchObject({ code: "ENGINE", outcome: "not-sent" });
  expect(node.server.nodes.id).not.toBe("");
  expect(countDeadlines().waiting).toBeLessThanOrEqual(waiting);
});
