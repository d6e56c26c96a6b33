import { once } from "node:events";
import { afterEach, describe, expect, it, vi } from "vitest";
import { WebSocket } from "ws";
import { attach, connect as connectNode, EngineError, serve, type AnyPeer, type Receiver } from "../../src/node.js";
import type { EngineConnection } from "../../src/fleet/engine.js";
import { frameOf, Kind } from "../../src/fleet/frames.js";
import { memory } from "../../src/fleet/memory.js";
import { connect } from "../../src/index.js";
import { gate, rejection, turn } from "../support/turns.js";
import { FaultyEngine } from "./faulty.js";
import { closeAll, makeNode, makeNodes, type Node } from "./nodes.js";

let nodes: Node[] = [];
const topics = () => ({ log: { length: 10, ttlMs: 60_000 }, members: true as const });
const principal = ({ name }: { name: string }): string => name;
afterEach(() => closeAll(nodes));

describe("server.nodes", () => {
  it("lists the nodes that live, and notifies the others", async () => {
    const got: unknown[] = [];
    const engine = new FaultyEngine({ leaseMs: 60 });
    nodes = Array.from({ length: 3 }, (_, i) =>
      makeNode({
        engine,
        nodes: { methods: { reload: (params: unknown, { from }: { from: string }) => got.push([i, params, from]) } },
      }),
    );
    const ids = nodes.map(({ server }) => server.nodes.id);
    expect(new Set(ids).size).toBe(3);
    for (const { server } of nodes) await expect.poll(() => new Set(server.nodes.live)).toEqual(new Set(ids));
    nodes[1]!.server.nodes.notify("reload", { n: 1 });
    nodes[1]!.server.nodes.notify("unknown");
    await expect.poll(() => got.length).toBe(2);
    expect(got).toEqual([
      [0, { n: 1 }, ids[1]],
      [2, { n: 1 }, ids[1]],
    ]);
    await nodes[2]!.server.close();
    for (const { server } of nodes.slice(0, 2))
      await expect.poll(() => new Set(server.nodes.live)).toEqual(new Set(ids.slice(0, 2)));
    expect(nodes[0]!.server.stats().engine!.nodes).toBe(2);
  });

  it("emits as `error` what a handler throws or rejects with", async () => {
    const engine = memory();
    const errors: unknown[] = [];
    const methods = {
      fail: () => {
        throw new Error("thrown");
      },
      reject: async () => {
        throw new Error("rejected");
      },
    };
    nodes = [makeNode({ engine }), makeNode({ engine, nodes: { methods } })];
    nodes[1]!.server.on("error", (error) => errors.push((error as Error).message));
    await turn();
    nodes[0]!.server.nodes.notify("fail");
    nodes[0]!.server.nodes.notify("reject");
    await expect.poll(() => errors).toEqual(["thrown", "rejected"]);
  });
});

describe("attach", () => {
  it("notifies, publishes, reads, watches, calls and finds, without a client", async () => {
    const engine = memory();
    nodes = [makeNode({ engine, topics, principal }, { add: ([x, y]: number[]) => x! + y! })];
    const [node] = nodes as [Node];
    const worker = await attach({ engine, topics, nodes: { methods: {} } });
    const events: unknown[] = [];
    worker.topic("room").watch((event, member) => events.push([event, member.as]));
    const [ann, bob] = [await node.client("ann"), await node.client("bob")];
    await node.server.topic("room").join(ann.peer, { as: "ann" });
    await node.server.topic("room").join(bob.peer, { as: "bob" });
    worker.topic("room").notify("said", { n: 1 }, { except: bob.peer.id });
    const at = await worker.topic("room").publish("said", { n: 2 });
    worker.principal("bob").notify("said", { n: 3 });
    worker.peer(ann.peer.id).notify("said", { n: 4 });
    expect(await ann.until(3)).toEqual([
      ["said", { n: 1 }],
      ["said", { n: 2, at }],
      ["said", { n: 4 }],
    ]);
    expect(await bob.until(2)).toEqual([
      ["said", { n: 2, at }],
      ["said", { n: 3 }],
    ]);
    expect(await worker.peer(ann.peer.id).request("add", [1, 2])).toBe(3);
    expect((await worker.topic("room").members()).map(({ as }) => as)).toEqual(["ann", "bob"]);
    expect((await worker.topic("room").read()).entries).toHaveLength(1);
    expect((await worker.principal("ann").peers()).peers.map(({ id }) => id)).toEqual([ann.peer.id]);
    expect(events).toEqual([
      ["joined", "ann"],
      ["joined", "bob"],
    ]);
    expect(worker.health().ok).toBe(true);
    worker.topic("room").notify("said", { n: 5 }, { except: new Set([ann.peer.id, bob.peer]) });
    for (const except of [true, ann.client, { id: ann.peer.id }])
      expect(() => worker.topic("room").notify("said", { n: 6 }, { except: except as never })).toThrow(
        "Expected `except` to be a peer",
      );
    worker.topic("room").notify("end");
    expect((await ann.until(4)).at(3)).toEqual(["end", undefined]);
    expect((await bob.until(3)).at(2)).toEqual(["end", undefined]);
    const notifying: ((options: unknown) => unknown)[] = [
      (options) => (worker.peer(ann.peer.id).notify as any)("said", {}, options),
      (options) => (worker.principal("bob").notify as any)("said", {}, options),
      (options) => (worker.nodes.notify as any)("said", {}, options),
      (options) => (node.server.peer(ann.peer.id).notify as any)("said", {}, options),
      (options) => (node.server.nodes.notify as any)("said", {}, options),
    ];
    for (const notify of notifying) {
      for (const options of [{ volatile: true }, {}, null])
        expect(() => notify(options)).toThrow("Expected `options` to be absent, because this `notify` takes none");
    }
    for (const name of [undefined, 5, "", "x".repeat(513), "\ud800"])
      expect(() => worker.topic(name as string)).toThrow("a well-formed string of 1 to 512 bytes of UTF-8");
    await worker.close();
    expect(await rejection(worker.peer(ann.peer.id).request("add", [1, 2]))).toMatchObject({ outcome: "not-sent" });
    await expect(attach({} as never)).rejects.toThrow("Expected `engine` to be an engine");
  });

  it("rejects if the broker cannot be reached, and emits only known events", async () => {
    const engine = new FaultyEngine({ startTimeoutMs: 20 });
    await expect(attach({ engine: lateEngine(engine) })).rejects.toThrow("no connection to faulty within 20 ms");
    const worker = await attach({ engine: new FaultyEngine() });
    expect(() => worker.on("other" as never, () => {})).toThrow("known are engine, gap, error");
    await worker.close();
  });
});

/** Makes the first connection wait for `up` of its link. */
function lateEngine(engine: FaultyEngine): FaultyEngine {
  engine.isLate = true;
  return engine;
}

/** Returns a connection of a node without a server, which puts the frames that it receives into `got`. */
function receiverOf(engine: FaultyEngine, node: string, got: string[]): EngineConnection {
  return engine.inner.createConnection(node, {
    received: (_channel, frame) => got.push(frame),
    up() {},
    down() {},
    heard() {},
  });
}

describe("nodes of several releases", () => {
  it("say in their names how many kinds of frames they know, and are sent none that they do not know", async () => {
    const engine = new FaultyEngine({ leaseMs: 60 });
    nodes = makeNodes(2, { principal }, engine);
    const [a, b] = nodes as [Node, Node];
    expect(a.server.nodes.id).toMatch(/^[\w-]{12}-1e$/);
    const got: string[] = [];
    // It knows the kinds up to progress reports. Whatever it got of a later kind, it would ignore.
    const older = receiverOf(engine, "an-older-node-19", got);
    await older.open();
    const keep = setInterval(() => void older.roster!.beat("an-older-node-19/1", 60), 20);
    await older.roster!.enter("an-older-node-19/1", 60);
    await expect.poll(() => a.server.nodes.live.length).toBe(3);
    const bob = await b.client("bob");
    const startedAt = performance.now();
    const { peers, unheard } = await a.server.principal("bob").peers();
    expect([peers.map(({ id }) => id), unheard]).toEqual([[bob.peer.id], ["an-older-node-19"]]);
    expect(performance.now() - startedAt).toBeLessThan(4_000);
    const closing = await rejection(a.server.peer("an-older-node-19.x").close());
    expect(closing).toMatchObject({ outcome: "not-sent", cause: { message: expect.stringContaining("release") } });
    // A call is of a kind that it knows. It does not answer.
    const call = await rejection(a.server.peer("an-older-node-19.x").request("work", {}, { timeoutMs: 50 }));
    expect(call).toMatchObject({ code: "TIMEOUT", outcome: "unknown" });
    expect(got.map((frame) => frame.slice(0, 2)).filter((head) => head !== "1u")).toEqual(["1q", "1c"]);
    clearInterval(keep);
    await older.close();
  });
});

describe("the start", () => {
  it("rejects with the last error of the engine if the broker cannot be reached in time", async () => {
    const engine = lateEngine(new FaultyEngine({ startTimeoutMs: 30 }));
    const starting = rejection(serve({ port: 0, engine }));
    await turn();
    engine.links[0]!.host.down(new EngineError("could not connect to example:6379", "not-sent"));
    expect(await starting).toMatchObject({ code: "ENGINE", message: "could not connect to example:6379" });
    expect(engine.leftovers()).toEqual([]);
  });

  it("answers a question that comes before it knows the broker, as soon as it does", async () => {
    const engine = lateEngine(new FaultyEngine());
    nodes = [makeNode({ engine, principal })];
    await turn();
    const got: string[] = [];
    const asking = receiverOf(engine, "asking-1e", got);
    await asking.open();
    const [link] = engine.links;
    link!.host.received("a:all", frameOf(Kind.Principal, [1, "asking-1e", "peers", 0, "bob"], "null"));
    link!.up();
    await expect.poll(() => got.filter((frame) => /^1a\t1\t.*\tok\t\n\[\]$/.test(frame))).toHaveLength(1);
    await asking.close();
  });

  it("goes on without the broker with `startWithout`, and joins the fleet later", async () => {
    const engine = new FaultyEngine({ startTimeoutMs: 10, startWithout: true });
    nodes = [makeNode({ engine })];
    await turn();
    const server = await serve({ noServer: true, engine: lateEngine(engine) });
    const states: string[] = [];
    server.on("engine", ({ state }) => states.push(state));
    expect(server.health()).toMatchObject({ ok: false, engine: "down" });
    const { accepted } = await accept(server);
    const topic = server.topic("room").add(accepted);
    await expect(topic.join(accepted)).rejects.toMatchObject({ outcome: "not-sent" });
    engine.links[1]!.up();
    await expect.poll(() => server.health().ok).toBe(true);
    expect(states).toEqual(["up"]);
    await topic.join(accepted);
    await server.close();
  });

  it("emits as `error` that the broker refuses it for good, if it went on without", async () => {
    const engine = lateEngine(new FaultyEngine({ startTimeoutMs: 10, startWithout: true }));
    await using server = await serve({ noServer: true, engine });
    const errors: unknown[] = [];
    server.on("error", (error) => errors.push(error));
    const refusal = new EngineError("wrong password", "not-sent");
    engine.links[0]!.refuse(refusal);
    await expect.poll(() => errors).toEqual([refusal]);
    expect(server.health()).toMatchObject({ ok: false, engine: "down" });
    await expect(server.topic("room").join((await accept(server)).accepted)).rejects.toMatchObject({ cause: refusal });
  });

  it("rejects for an engine that is none", async () => {
    await expect(serve({ noServer: true, engine: {} as never })).rejects.toThrow("Expected `engine` to be an engine");
    await expect(serve({ noServer: true, nodes: { methods: { a: 1 } } as never })).rejects.toThrow("nodes.methods.a");
    await expect(serve({ noServer: true, topics: 1 as never })).rejects.toThrow("Expected `topics` to be a function");
  });

  it("leaves nothing if the address is in use", async () => {
    const engine = new FaultyEngine();
    const first = await serve({ port: 0, engine });
    const port = Number(new URL(first.url).port);
    await expect(serve({ port, engine })).rejects.toMatchObject({ code: "EADDRINUSE" });
    await first.close();
    expect(engine.leftovers()).toEqual([]);
  });
});

/** A peer over a transport that takes everything. */
async function accept(server: Awaited<ReturnType<typeof serve>>): Promise<{ accepted: any }> {
  let receiver: Receiver;
  const transport = {
    start: (given: Receiver) => void (receiver = given),
    send: () => true,
    close: (code = 1000, reason = "") => receiver.closed({ code, reason }),
  };
  return { accepted: server.accept(transport, undefined) };
}

describe("the end", () => {
  it("leaves no key, no subscription and no deadline", async () => {
    const { countDeadlines } = await import("../../src/core/deadlines.js");
    const before = countDeadlines().waiting;
    const engine = new FaultyEngine();
    nodes = makeNodes(2, { topics }, engine);
    const [a, b] = nodes as [Node, Node];
    const [ann, bob] = [await a.client(), await b.client()];
    const stop = a.server.topic("watched").watch(() => {});
    await a.server.topic("room").join(ann.peer, { as: 1 });
    await b.server.topic("room").join(bob.peer, { as: 2 });
    await b.server.topic("room").publish("said");
    const call = rejection(a.server.peer(bob.peer.id).request("never"));
    b.server.topic("room").delete(bob.peer);
    engine.links[0]!.down();
    const waiting = rejection(a.server.topic("room").publish("said", {}, { timeoutMs: 60_000 }));
    await closeAll(nodes);
    expect(await waiting).toMatchObject({ outcome: "not-sent" });
    await call;
    stop();
    expect(engine.leftovers()).toEqual([]);
    await expect.poll(() => countDeadlines().waiting).toBe(before);
    // Nothing of a closed server throws, and nothing is sent.
    a.server.topic("room").notify("said");
    await expect(a.server.topic("room").join(ann.peer)).rejects.toMatchObject({ outcome: "not-sent" });
    await expect(a.server.topic("room").publish("said")).rejects.toMatchObject({ outcome: "not-sent" });
    await expect(a.server.topic("room").members()).rejects.toMatchObject({ outcome: "not-sent" });
    expect(engine.leftovers()).toEqual([]);
    await expect.poll(() => countDeadlines().waiting).toBe(before);
  });

  it("leaves no deadline if the connection is lost and restored while it closes", async () => {
    const { countDeadlines } = await import("../../src/core/deadlines.js");
    const before = countDeadlines().waiting;
    const engine = new FaultyEngine();
    nodes = makeNodes(1, { topics }, engine);
    const [a] = nodes as [Node];
    const ann = await a.client();
    await a.server.topic("room").join(ann.peer, { as: 1 });
    const [link] = engine.links;
    const answer = gate();
    link!.before = (command) => (command === "put" ? answer.promise : undefined);
    const closing = a.server.close();
    await expect.poll(() => link!.commands.filter((command) => command === "put").length).toBe(2);
    link!.down();
    link!.up();
    answer.resolve();
    await closing;
    await expect.poll(() => countDeadlines().waiting).toBe(before);
  });

  it("drains: members leave, and the other node goes on", async () => {
    nodes = makeNodes(2, { topics });
    const [a, b] = nodes as [Node, Node];
    const [ann, bob] = [await a.client(), await b.client()];
    await a.server.topic("room").join(ann.peer, { as: "ann" });
    await b.server.topic("room").join(bob.peer, { as: "bob" });
    await a.server.drain({ retryMs: 1 });
    await expect.poll(async () => (await b.server.topic("room").members()).map(({ as }) => as)).toEqual(["bob"]);
    b.server.topic("room").notify("end");
    await bob.until(1);
  });
});

describe("echoes", () => {
  it("measure the lag, and the connection is opened anew if two do not arrive", async () => {
    const engine = new FaultyEngine({ leaseMs: 60 });
    nodes = makeNodes(1, {}, engine);
    const [node] = nodes as [Node];
    const [link] = engine.links;
    await expect.poll(() => node.server.health().lagMs).toBeGreaterThanOrEqual(0);
    const states: string[] = [];
    node.server.on("engine", ({ state }) => states.push(state));
    link!.loses = (_channel, frame) => frame.startsWith("1e");
    await expect.poll(() => link!.reconnects, { interval: 5 }).toBe(1);
    link!.loses = () => false;
    expect(states).toEqual(["down", "up"]);
    await expect.poll(() => node.server.health().ok).toBe(true);
  });
});

/** Resolves with the next peer of a node. */
function next(node: Node): Promise<AnyPeer> {
  return new Promise((resolve) => node.server.once("peer", (peer) => resolve(peer as AnyPeer)));
}

/** A client of a page, which a balancer sends to one node and then to another when it connects again. */
async function moving(
  a: Node,
  b: Node,
  options: object = {},
): Promise<{ client: AnyPeer; peer: AnyPeer; move: () => Promise<AnyPeer> }> {
  let target = a;
  const Sockets = function (url: string, protocols: string[]): object {
    return new (target.WebSocket as any)(url, protocols) as object;
  };
  vi.stubGlobal("WebSocket", Object.assign(Sockets, target.WebSocket));
  const first = next(a);
  const client = (await connect(a.server.url, options)) as AnyPeer;
  const move = (): Promise<AnyPeer> => {
    const second = next(b);
    target = b;
    a.network.cut();
    return second;
  };
  return { client, peer: await first, move };
}

/** Starts a server beside another node. `refuse` returns a socket whose `resume` it has refused; `frames` are what the node receives. */
async function reporting(options: object = {}) {
  const engine = new FaultyEngine();
  nodes = makeNodes(1, {}, engine);
  const server = await serve({ port: 0, engine, ...options });
  const frames: string[] = [];
  engine.links[0]!.loses = (_channel, frame) => /^1[zs]/.test(frame) && frames.push(frame.slice(0, 2)) > 0;
  const limits = { maxMessageBytes: 1_000, logFrames: 10, logLength: 1_000 };
  const refuse = async (): Promise<WebSocket> => {
    const socket = new WebSocket(server.url, ["reciproc.v1", "reciproc.resume"]);
    await once(socket, "message");
    socket.send(JSON.stringify({ resume: { token: "elsewhere", received: 0, attempt: 1, limits } }));
    await once(socket, "message");
    return socket;
  };
  return { server, frames, refuse, [Symbol.asyncDispose]: () => server.close() };
}

describe("a client that begins a session on another node", () => {
  afterEach(() => void vi.unstubAllGlobals());

  it("ends its session on the first node at once, and is a member once", async () => {
    nodes = makeNodes(2, { topics, principal });
    const [a, b] = nodes as [Node, Node];
    const { client, peer, move } = await moving(a, b);
    const lost: unknown[] = [];
    client.on("lost", (error) => lost.push(error));
    await a.server.topic("room").join(peer, { as: "ann" });
    const later = await move();
    expect(await peer.closed).toMatchObject({
      code: 4000,
      reason: "the client has discarded this session, because another node refused it",
    });
    await b.server.topic("room").join(later, { as: "ann" });
    expect(await b.server.topic("room").members()).toEqual([{ id: later.id, as: "ann" }]);
    expect(a.server.stats()).toMatchObject({ peers: 0, suspended: 0 });
    await expect.poll(() => lost.length).toBe(1);
    await client.close();
  });

  it("ends its session also if others do the same at the same time", async () => {
    nodes = makeNodes(2);
    const [a, b] = nodes as [Node, Node];
    const { client, move } = await moving(a, b);
    const clients = [client, ...(await Promise.all(Array.from({ length: 9 }, () => connect(a.server.url))))];
    const peers = (): number[] => [a, b].map(({ server }) => server.stats().peers);
    await expect.poll(peers).toEqual([10, 0]);
    await move();
    await expect.poll(peers).toEqual([0, 10]);
    await Promise.all(clients.map((one) => one.close()));
  });

  it.each([{}, { auth: "ann" }])(
    "settles the calls of that session, of its own node and of others: %j",
    async (auth) => {
      const options = { principal, authenticate: (_request: unknown, name = "") => ({ name }) };
      nodes = makeNodes(3, options);
      const [a, b, c] = nodes as [Node, Node, Node];
      const { client, peer, move } = await moving(a, b, { ...auth, methods: { never: () => new Promise(() => {}) } });
      const calls = [peer.request("never"), c.server.peer(peer.id).request("never")].map(rejection);
      await expect.poll(() => client.stats().running).toBe(2);
      await move();
      for (const error of await Promise.all(calls))
        expect(error).toMatchObject({ code: "CONNECTION_LOST", outcome: "unknown" });
      expect(await rejection(c.server.peer(peer.id).request("never"))).toMatchObject({ outcome: "not-sent" });
      await client.close();
    },
  );

  it("ends it as soon as the broker is back, for each of the two nodes", async () => {
    for (const cut of [0, 1]) {
      const engine = new FaultyEngine({ leaseMs: 60 });
      nodes = makeNodes(2, { principal }, engine);
      const [a, b] = nodes as [Node, Node];
      await expect.poll(() => b.server.nodes.live.length).toBe(2);
      const { client, peer, move } = await moving(a, b);
      engine.links[cut]!.down();
      await move();
      await turn();
      expect(peer.state).toBe("suspended");
      engine.links[cut]!.up();
      expect(await peer.closed).toMatchObject({ code: 4000 });
      await client.close();
      await closeAll(nodes);
    }
  });

  it("is reported when its hello has come, and not before", async () => {
    await using node = await reporting();
    for (const isGreeted of [false, true]) {
      const socket = await node.refuse();
      const peer = isGreeted ? new Promise((resolve) => node.server.once("peer", resolve)) : undefined;
      if (isGreeted) socket.send('{"hello":{}}');
      await peer;
      socket.close();
      await once(socket, "close");
      node.server.nodes.notify("after");
      await expect.poll(() => node.frames.at(-1)).toBe("1s");
    }
    expect(node.frames).toEqual(["1s", "1z", "1s"]);
  });

  it("is reported also if there is no slot for it any more", async () => {
    await using node = await reporting({ limits: { maxConnections: 2 } });
    const client = await connectNode(node.server.url);
    const sockets = [await node.refuse(), await node.refuse()];
    for (const socket of sockets) socket.send('{"hello":{}}');
    const [code] = await Promise.race(sockets.map((socket) => once(socket, "close")));
    expect([code, node.server.stats().peers]).toEqual([4503, 2]);
    await expect.poll(() => node.frames).toEqual(["1z", "1z"]);
    for (const socket of sockets) socket.close();
    await client.close();
  });

  const closing = { code: 1001, reason: "the server is closing" };
  const bye = '{"bye":{"code":1000,"reason":""}}';
  it.each([
    ["drains", "its hello", '{"hello":{}}', { ...closing, retryMs: 10 }],
    ["drains", "its bye", bye, undefined],
    ["drains", "nothing within a second", undefined, undefined],
    ["closes", "its hello", '{"hello":{}}', closing],
    ["closes", "nothing within a second", undefined, undefined],
  ])("is waited for by a server that %s, which receives %s", async (how, what, frame, answer) => {
    // The wait itself must end.
    await using node = await reporting({ limits: { handshakeTimeoutMs: 300_000 } });
    const socket = await node.refuse();
    const answers: unknown[] = [];
    socket.on("message", (data) => answers.push(JSON.parse((data as Buffer).toString())));
    const closed = once(socket, "close");
    const over = how === "drains" ? node.server.drain({ retryMs: 10 }) : node.server.close();
    socket.ping();
    await Promise.race([once(socket, "pong"), closed]);
    expect(socket.readyState).toBe(WebSocket.OPEN);
    if (frame !== undefined) socket.send(frame);
    expect((await closed)[0]).toBe(1001);
    await over;
    expect(answers).toEqual(answer === undefined ? [] : [{ bye: answer }]);
    await turn();
    expect(node.frames).toEqual(what === "its hello" ? ["1z"] : []);
  });

  it("ends no session of another principal, and no unknown one", async () => {
    const engine = new FaultyEngine();
    nodes = makeNodes(2, { principal }, engine);
    const [a, b] = nodes as [Node, Node];
    const { client, peer, move } = await moving(a, b);
    const [first, second] = engine.links;
    const frames: string[] = [];
    first!.loses = (_channel, frame) => frame.startsWith("1z") && frames.push(frame) > 0;
    await move();
    await expect.poll(() => frames.length).toBe(1);
    first!.loses = () => false;
    const [frame] = frames as [string];
    const [kind, from, hash, has, name] = frame.slice(0, -1).split("\t");
    const others = [
      [kind, from, hash, has, "eve"],
      [kind, from, hash, "", ""],
      [kind, from, "other", has, name],
      [kind, from],
      [kind],
    ];
    for (const fields of others) await second!.send("a:all", `${fields.join("\t")}\n`);
    await turn();
    expect(peer.state).toBe("suspended");
    await second!.send("a:all", frame);
    expect(await peer.closed).toMatchObject({ code: 4000 });
    await client.close();
  });
});
