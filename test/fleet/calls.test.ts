import { afterEach, describe, expect, it } from "vitest";
import { ConnectionLostError, RpcError, TimeoutError, TooLargeError, type Receiver } from "../../src/node.js";
import { gate, rejection, turn } from "../support/turns.js";
import { FaultyEngine } from "./faulty.js";
import { closeAll, makeNode, type Client, type Node } from "./nodes.js";

let nodes: Node[] = [];
afterEach(() => closeAll(nodes));

/** Two nodes. Client bob is on the second and serves `methods`. */
async function world(
  methods: object = {},
  settings = {},
  options = {},
): Promise<{ engine: FaultyEngine; a: Node; b: Node; bob: Client }> {
  const engine = new FaultyEngine(settings);
  nodes = [makeNode({ engine, ...options }), makeNode({ engine, ...options }, methods)];
  const [a, b] = nodes as [Node, Node];
  return { engine, a, b, bob: await b.client("bob") };
}

const outcomeOf = (error: any): unknown => [error.constructor.name, error.outcome];
const NOT_SENT = ["ConnectionLostError", "not-sent"];
const UNKNOWN = ["ConnectionLostError", "unknown"];

describe("a call to a peer of another node", () => {
  it("has the peer's result, as a call on its own node has", async () => {
    const { a, b, bob } = await world({
      add: ([x, y]: number[]) => x! + y!,
      nothing: () => undefined,
      params: (params: unknown) => [params],
    });
    for (const node of [a, b]) {
      const handle = node.server.peer(bob.peer.id);
      expect(handle.id).toBe(bob.peer.id);
      expect(await handle.request("add", [1, 2])).toBe(3);
      expect(await handle.remote.add([3, 4])).toBe(7);
      expect(await handle.request("nothing")).toBe(null);
      expect(await handle.request("params", { a: "é😀\u2028\n\t" })).toEqual([{ a: "é😀\u2028\n\t" }]);
    }
  });

  it("has bytes as base64", async () => {
    const { bytes, bytesOf } = await import("../../src/node.js");
    const { a, bob } = await world({ twice: ({ data }: any) => ({ data: bytes(bytesOf(data).map((x) => 2 * x)) }) });
    const result: any = await a.server.peer(bob.peer.id).request("twice", { data: bytes(new Uint8Array([1, 100])) });
    expect([...bytesOf(result.data)]).toEqual([2, 200]);
  });

  it("rejects with the peer's error", async () => {
    const { a, bob } = await world({
      fail: () => {
        throw new RpcError(7, "no", { why: 1 });
      },
    });
    const error = await rejection(a.server.peer(bob.peer.id).request("fail"));
    expect(error).toBeInstanceOf(RpcError);
    expect(error).toMatchObject({ code: 7, message: "no", data: { why: 1 }, method: "fail" });
  });

  it("rejects with an error that names the method, and begins with the line of the caller", async () => {
    const { a, b, bob } = await world({ refuse: () => Promise.reject(new RpcError(7, "no")) });
    const call = (node: Node, params: unknown): Promise<unknown> =>
      node.server.peer(bob.peer.id).request("refuse", params);
    for (const node of [a, b]) {
      for (const [params, name] of [
        [[], "RpcError"],
        [5, "TypeError"],
      ] as const) {
        const error = await rejection(call(node, params));
        const frames = error.stack.split("\n").filter((line: string) => !line.includes("node:internal"));
        expect(frames[0]).toMatch(new RegExp(`^${name}: "refuse": `));
        expect(frames[1]).toContain("test/support/turns.ts");
      }
    }
  });

  it("reports progress, in order, and restarts its timeout if asked", async () => {
    const go = gate();
    const { a, bob } = await world({
      work: async (_params: unknown, { progress }: any) => {
        for (let i = 1; i <= 3; i++) progress({ i });
        await go.promise;
        return "done";
      },
    });
    const seen: unknown[] = [];
    const result = a.server.peer(bob.peer.id).request("work", {}, { onProgress: (value: unknown) => seen.push(value) });
    await expect.poll(() => seen).toEqual([{ i: 1 }, { i: 2 }, { i: 3 }]);
    go.resolve();
    expect(await result).toBe("done");
  });

  it("is `not-sent` if there is no such peer, node or connection", async () => {
    const { engine, a, b, bob } = await world({ work: () => 1 });
    const request = (id: string, options = {}): Promise<any> =>
      rejection(a.server.peer(id).request("work", undefined, options));
    for (const id of [`${b.server.nodes.id}.none`, `${a.server.nodes.id}.none`, "none.none", "none", "", "\ud800.x"])
      expect([id, ...(outcomeOf(await request(id)) as string[])]).toEqual([id, ...NOT_SENT]);
    await bob.client.close();
    await expect.poll(() => b.server.peers.size).toBe(0);
    expect(outcomeOf(await request(bob.peer.id))).toEqual(NOT_SENT);
    const [link] = engine.links;
    link!.down();
    expect(outcomeOf(await request(bob.peer.id, { timeoutMs: 20 }))).toEqual(NOT_SENT);
    const aborted = new AbortController();
    const call = rejection(a.server.peer(bob.peer.id).request("work", undefined, { signal: aborted.signal }));
    aborted.abort("enough");
    expect(await call).toBe("enough");
    link!.up();
    await b.server.close();
    expect(outcomeOf(await request(bob.peer.id))).toEqual(NOT_SENT);
  });

  it("is not `not-sent` if its node may have received it although the broker counts no receiver", async () => {
    const engine = new FaultyEngine({ leaseMs: 60 });
    engine.undercounts = true;
    nodes = [makeNode({ engine }), makeNode({ engine }, { work: () => "done" })];
    const [a, b] = nodes as [Node, Node];
    const bob = await b.client("bob");
    await expect.poll(() => a.server.nodes.live).toContain(b.server.nodes.id);
    engine.links[0]!.counted = () => 0;
    expect(await a.server.peer(bob.peer.id).request("work")).toBe("done");
    await b.server.close();
    expect(outcomeOf(await rejection(a.server.peer(bob.peer.id).request("work")))).toEqual(UNKNOWN);
  });

  it("is `not-sent` without a message if its id can be of no node", async () => {
    const { engine, a } = await world({}, { leaseMs: 600_000 });
    const { commands } = engine.links[0]!;
    const before = commands.length;
    for (const id of ["none", "", ".x", "*.x", "a b.x", "\ud800.x", `${"x".repeat(65)}.x`]) {
      const handle = a.server.peer(id);
      expect([id, ...(outcomeOf(await rejection(handle.request("work"))) as string[])]).toEqual([id, ...NOT_SENT]);
      expect(outcomeOf(await rejection(handle.close()))).toEqual(NOT_SENT);
      handle.notify("work");
    }
    expect(commands.slice(before)).toEqual([]);
  });

  it("settles truly whatever a stranger sends in the name of its node", async () => {
    const options = { principal: ({ name }: { name: string }) => name };
    const { engine, a, b, bob } = await world({ work: () => new Promise(() => {}) }, { leaseMs: 60 }, options);
    await expect.poll(() => a.server.nodes.live.length).toBe(2);
    const [, link] = engine.links;
    const from = b.server.nodes.id;
    // A value that can be converted neither to a text nor to a number.
    const trap = '{"toString":1,"valueOf":1}';
    const answer = (number: number, verdict: string, body: string): Promise<unknown> =>
      link!.send(`n:${a.server.nodes.id}`, `1a\t${number}\t${from}\t${verdict}\t\n${body}`);
    const calls = [1, 2].map(() => rejection(a.server.peer(bob.peer.id).request("work")));
    await expect.poll(() => bob.client.stats().running).toBe(2);
    const { foreign } = a.server.stats().engine!;
    await answer(1, "ok", "not json");
    await turn();
    expect(a.server.stats().engine!.foreign).toBe(foreign + 1);
    await answer(1, "protocol", `{"message":${trap}}`);
    await answer(2, "large", `{"bytes":${trap}}`);
    expect((await Promise.all(calls)).map(({ code }) => code as string)).toEqual(["PROTOCOL", "TOO_LARGE"]);
    link!.loses = (_channel, frame) => frame.startsWith("1u");
    const asking = a.server.principal("bob").disconnect();
    await answer(3, "ok", trap);
    expect(await asking).toEqual({ closed: 0, unheard: [] });
    link!.loses = () => false;
    await link!.send(`n:${from}`, `1x\t7\tstranger\t${bob.peer.id.split(".")[1]!}\t4001\n${trap}`);
    expect(await bob.peer.closed).toMatchObject({ code: 4001, reason: "" });
  });

  it("waits for a connection within its timeout", async () => {
    const { engine, a, bob } = await world({ work: () => 1 });
    engine.links[0]!.down();
    const call = a.server.peer(bob.peer.id).request("work");
    await turn();
    engine.links[0]!.up();
    expect(await call).toBe(1);
  });

  it("is `unknown` if the peer is lost while it runs", async () => {
    const started = gate();
    const { a, bob } = await world({
      work: () => {
        started.resolve();
        return new Promise(() => {});
      },
    });
    const call = rejection(a.server.peer(bob.peer.id).request("work"));
    await started.promise;
    await bob.client.close();
    expect(outcomeOf(await call)).toEqual(UNKNOWN);
  });

  it("is `unknown` if the lease of the node ends before it answers", async () => {
    const { engine, a, bob } = await world({ work: () => new Promise(() => {}) }, { leaseMs: 60 });
    const call = rejection(a.server.peer(bob.peer.id).request("work"));
    await expect.poll(() => bob.client.stats().running).toBe(1);
    engine.links[1]!.before = () => new Promise(() => {});
    await engine.links[1]!.expire();
    expect(outcomeOf(await call)).toEqual(UNKNOWN);
  });

  it("times out with the outcome that the node reports", async () => {
    const { a, bob } = await world({ work: () => new Promise(() => {}) });
    const handle = a.server.peer(bob.peer.id);
    const sent = await rejection(handle.request("work", undefined, { timeoutMs: 100 }));
    expect(sent).toBeInstanceOf(TimeoutError);
    expect(sent).toMatchObject({ outcome: "unknown", method: "work", timeoutMs: 100 });
  });

  it("times out as `not-sent` if the peer was suspended the whole time", async () => {
    const { a, b, bob } = await world({ work: () => 1 }, {}, { session: { ttlMs: 60_000 } });
    const suspended = new Promise<void>((resolve) => bob.peer.once("suspend", resolve));
    b.network.of(bob.client).cut();
    b.network.of(bob.client).stop();
    await suspended;
    const error = await rejection(a.server.peer(bob.peer.id).request("work", undefined, { timeoutMs: 4_000 }));
    expect([error.constructor, error.outcome]).toEqual([TimeoutError, "not-sent"]);
  });

  it("is cancelled on the node of the peer when its signal aborts", async () => {
    const cancelled = gate();
    const { a, bob } = await world({
      work: (_params: unknown, { signal }: any) => {
        signal.addEventListener("abort", () => cancelled.resolve());
        return new Promise(() => {});
      },
    });
    const controller = new AbortController();
    const call = rejection(a.server.peer(bob.peer.id).request("work", undefined, { signal: controller.signal }));
    await expect.poll(() => bob.client.stats().running).toBe(1);
    controller.abort("enough");
    expect(await call).toBe("enough");
    await cancelled.promise;
    const already = a.server.peer(bob.peer.id).request("work", undefined, { signal: AbortSignal.abort("early") });
    expect(await rejection(already)).toBe("early");
  });

  it("accepts the answer once, although the node sends it until it arrives", async () => {
    const { engine, a, b, bob } = await world({ work: () => "result" });
    const [first, second] = engine.links;
    let answers = 0;
    // The node of the peer gets no confirmation of its first answer, and sends it again.
    second!.before = (command) => {
      if (command === "send" && ++answers === 2) throw Object.assign(new Error("lost"), { outcome: "unknown" });
    };
    const frames: string[] = [];
    first!.loses = (_channel, frame) => {
      if (frame.startsWith("1a")) frames.push(frame);
      return false;
    };
    expect(await a.server.peer(bob.peer.id).request("work")).toBe("result");
    expect(await a.server.peer(bob.peer.id).request("work")).toBe("result");
    await expect.poll(() => frames.length).toBeGreaterThanOrEqual(2);
    // An answer that comes again settles nothing.
    for (const frame of Array.from(frames)) await second!.send(`n:${a.server.nodes.id}`, frame);
    await turn();
    expect(await b.server.peer(bob.peer.id).request("work")).toBe("result");
  });

  it("gets its answer after the caller's node was away for a moment", async () => {
    const go = gate();
    const { engine, a, bob } = await world({ work: () => go.promise.then(() => "late") });
    const call = a.server.peer(bob.peer.id).request("work");
    await expect.poll(() => bob.client.stats().running).toBe(1);
    const [first] = engine.links;
    first!.down();
    // A broker counts a node without a connection as no receiver. Here its subscription is ended for that time.
    const inbox = `n:${a.server.nodes.id}` as const;
    first!.unsubscribe(inbox);
    go.resolve();
    await new Promise((resolve) => setTimeout(resolve, 20));
    first!.up();
    await first!.subscribe(inbox);
    expect(await call).toBe("late");
  });

  it("is accepted only from the node that was called", async () => {
    const { engine, a, bob } = await world({ work: () => new Promise(() => {}) });
    const call = a.server.peer(bob.peer.id).request("work", undefined, { timeoutMs: 100 });
    await expect.poll(() => bob.client.stats().running).toBe(1);
    for (let number = 0; number < 10; number++)
      await engine.links[1]!.send(`n:${a.server.nodes.id}`, `1a\t${number}\tstranger\tok\t\n"forged"`);
    expect(await rejection(call)).toBeInstanceOf(TimeoutError);
  });

  it("rejects with `TooLargeError` for params and results that do not cross", async () => {
    const { a, bob } = await world({ work: () => 1 }, {}, { limits: { maxMessageBytes: 64 * 2 ** 20 } });
    const handle = a.server.peer(bob.peer.id);
    const error = await rejection(handle.request("work", { text: "x".repeat(16 * 2 ** 20) }));
    expect(error).toBeInstanceOf(TooLargeError);
    expect(error.maxMessageBytes).toBe(16 * 2 ** 20);
  });

  it("rejects options and params that it cannot take, and streams", async () => {
    const { a, b, bob } = await world({ work: () => 1 });
    const handle = a.server.peer(bob.peer.id);
    expect(await rejection(handle.request("work", undefined, { timeoutMs: -1 }))).toBeInstanceOf(TypeError);
    expect(await rejection(handle.request("work", 5))).toBeInstanceOf(TypeError);
    expect(await rejection(handle.request("work", { stream: bob.peer.offer([1]) }))).toBeInstanceOf(TypeError);
    expect(() => handle.notify("work", 5)).toThrow(TypeError);
    expect(() => a.server.peer(5 as never)).toThrow(TypeError);
    expect(b.server.stats().requestsSent).toBe(0);
  });

  it("passes `around` on the node of the peer", async () => {
    const seen: unknown[] = [];
    const { a, bob } = await world(
      { work: () => 1 },
      {},
      {
        around: (call: any, next: () => Promise<unknown>) => {
          seen.push([call.direction, call.method, call.peer.id]);
          return next();
        },
      },
    );
    expect(await a.server.peer(bob.peer.id).request("work")).toBe(1);
    expect(seen).toEqual([["outgoing", "work", bob.peer.id]]);
  });

  it.each<[what: string, around: () => unknown, error: string]>([
    ["a result without a JSON form", () => 1n, "BigInt"],
    [
      "an error without a text",
      () => {
        throw Object.create(null);
      },
      "cannot be converted",
    ],
    [
      "an error whose data has no JSON form",
      () => {
        throw new RpcError(7, "no", 1n);
      },
      "cannot be converted",
    ],
  ])("rejects if `around` on the node of the peer ends with %s", async (_what, around, text) => {
    const { a, bob } = await world({ work: () => 1 }, {}, { around });
    const error = await rejection(a.server.peer(bob.peer.id).request("work"));
    expect(error).toBeInstanceOf(Error);
    expect(error.message).toContain(text);
  });

  it("takes no room among those that wait for the connection when it has settled", async () => {
    const { engine, a, bob } = await world({ work: () => 1 });
    engine.links[0]!.down();
    const controllers = Array.from({ length: 1_000 }, () => new AbortController());
    const request = (options: object): Promise<unknown> => a.server.peer(bob.peer.id).request("work", {}, options);
    const calls = controllers.map(({ signal }) => rejection(request({ signal, timeoutMs: Infinity })));
    await turn();
    expect(outcomeOf(await rejection(request({})))).toEqual(NOT_SENT);
    for (const controller of controllers) controller.abort("enough");
    expect(new Set(await Promise.all(calls))).toEqual(new Set(["enough"]));
    expect(a.server.stats().engine!.pendingBytes).toBe(0);
    const call = request({});
    engine.links[0]!.up();
    expect(await call).toBe(1);
  });

  it("is cancelled when its own node closes, and is `not-sent` from then on", async () => {
    const cancelled = gate();
    const { a, bob } = await world({
      work: (_params: unknown, { signal }: any) => {
        signal.addEventListener("abort", () => cancelled.resolve());
        return new Promise(() => {});
      },
    });
    const handle = a.server.peer(bob.peer.id);
    const call = rejection(handle.request("work"));
    await expect.poll(() => bob.client.stats().running).toBe(1);
    const closing = a.server.close();
    await cancelled.promise;
    expect(outcomeOf(await call)).toEqual(UNKNOWN);
    expect(outcomeOf(await rejection(handle.request("work", {}, { timeoutMs: Infinity })))).toEqual(NOT_SENT);
    await closing;
  });

  it("is `unknown` or `not-sent` when its own node closes", async () => {
    const { engine, a, bob } = await world({ work: () => new Promise(() => {}) });
    const handle = a.server.peer(bob.peer.id);
    const sent = rejection(handle.request("work"));
    await expect.poll(() => bob.client.stats().running).toBe(1);
    engine.links[0]!.down();
    const unsent = rejection(handle.request("work"));
    await a.server.close();
    expect(outcomeOf(await sent)).toEqual(UNKNOWN);
    expect(outcomeOf(await unsent)).toEqual(NOT_SENT);
    expect(outcomeOf(await rejection(handle.request("work")))).toEqual(NOT_SENT);
  });
});

describe("a peer of another node", () => {
  it("is notified, and closed with code and reason", async () => {
    const { a, b, bob } = await world();
    for (const node of [a, b]) node.server.peer(bob.peer.id).notify("toast", { text: "\t\n" });
    expect(await bob.until(2)).toEqual([
      ["toast", { text: "\t\n" }],
      ["toast", { text: "\t\n" }],
    ]);
    const handle = a.server.peer(bob.peer.id);
    await expect(handle.close(1001)).rejects.toThrow("Expected `code`");
    await expect(handle.close(4001, 5 as never)).rejects.toThrow("Expected `reason`");
    await handle.close(4001, "moved");
    expect(await bob.peer.closed).toMatchObject({ code: 4001, reason: "moved" });
    expect(await rejection(handle.close())).toBeInstanceOf(ConnectionLostError);
    handle.notify("toast");
    expect(await rejection(b.server.peer(bob.peer.id).close())).toMatchObject({ outcome: "not-sent" });
  });
});

describe("a principal", () => {
  const options = { principal: ({ name }: { name: string }) => name };

  it("is notified on all nodes, its peers are found, and are disconnected", async () => {
    const { engine, a, b, bob } = await world({}, {}, options);
    nodes.push(makeNode({ engine, ...options }));
    const [, , c] = nodes as [Node, Node, Node];
    const bobs = [bob, await a.client("bob"), await a.client("bob")];
    const eve = await c.client("eve");
    for (const node of [a, b, c]) await expect.poll(() => node.server.nodes.live.length, { timeout: 5_000 }).toBe(3);
    a.server.principal("bob").notify("toast", { n: 1 });
    c.server.principal("bob").notify("toast", { n: 2 });
    for (const one of bobs)
      expect((await one.until(2)).map(([, { n }]) => n as number)).toEqual(expect.arrayContaining([1, 2]));
    for (const node of [a, b, c]) {
      const { peers, unheard } = await node.server.principal("bob").peers();
      expect(new Set(peers.map(({ id }) => id))).toEqual(new Set(bobs.map(({ peer }) => peer.id)));
      expect(unheard).toEqual([]);
    }
    const found = await c.server.principal("bob").peers();
    found.peers[0]!.notify("found");
    expect(await c.server.principal("nobody").peers()).toEqual({ peers: [], unheard: [] });
    expect(await c.server.principal("bob").disconnect(4003, "banned")).toEqual({ closed: 3, unheard: [] });
    for (const one of bobs) expect(await one.peer.closed).toMatchObject({ code: 4003, reason: "banned" });
    expect([eve.got, eve.client.state]).toEqual([[], "open"]);
    await expect(c.server.principal("eve").disconnect(1001)).rejects.toThrow("Expected `code`");
  });

  it("has the peers that `accept` made, too", async () => {
    const { a, b } = await world({}, {}, options);
    let receiver: Receiver;
    const transport = {
      start: (given: Receiver) => void (receiver = given),
      send: () => true,
      close: (code = 1000, reason = "") => receiver.closed({ code, reason }),
    };
    const peer = b.server.accept(transport, { name: "ann" });
    expect((await a.server.principal("ann").peers()).peers.map(({ id }) => id)).toEqual([peer.id]);
    expect(await a.server.principal("ann").disconnect(4003)).toMatchObject({ closed: 1 });
    expect(await peer.closed).toMatchObject({ code: 4003 });
  });

  it("names a node whose answer was too long to cross", async () => {
    const { engine, a, b } = await world({}, {}, options);
    await expect.poll(() => a.server.nodes.live.length).toBe(2);
    const [, link] = engine.links;
    link!.loses = (_channel, frame) => frame.startsWith("1u");
    const asking = a.server.principal("bob").peers();
    await turn();
    const from = b.server.nodes.id;
    await link!.send(`n:${a.server.nodes.id}`, `1a\t1\t${from}\tlarge\tunknown\n{"bytes":2000000}`);
    expect(await asking).toEqual({ peers: [], unheard: [from] });
  });

  it("has a name of at most 8,192 characters of any kind", async () => {
    const { a, b } = await world({}, {}, options);
    const name = "é".repeat(8_192);
    for (const wrong of [`${name}é`, "\ud800", undefined, 5])
      expect(() => a.server.principal(wrong as string)).toThrow("a well-formed string of at most 8192 characters");
    const { foreign } = b.server.stats().engine!;
    expect(await a.server.principal(name).disconnect()).toEqual({ closed: 0, unheard: [] });
    expect(b.server.stats().engine!.foreign).toBe(foreign);
  });

  it("requires the option `principal`, and works without an engine", async () => {
    nodes = [makeNode({}), makeNode(options)];
    const [without, alone] = nodes as [Node, Node];
    expect(() => without.server.principal("bob")).toThrow("requires the option `principal`");
    const bob = await alone.client("bob");
    const { peers, unheard } = await alone.server.principal("bob").peers();
    expect([peers.map(({ id }) => id), unheard]).toEqual([[bob.peer.id], []]);
    const later = await alone.client("bob");
    alone.server.principal("bob").notify("toast");
    await later.until(1);
    expect(await alone.server.principal("bob").disconnect()).toEqual({ closed: 2, unheard: [] });
  });
});
