/** Calls to a peer of another node. */
import { describe, expect, it } from "vitest";
import { bytes, bytesOf, RpcError, TimeoutError, TooLargeError } from "../../src/node.js";
import { pass } from "../support/time.js";
import { raising, rejection, turn } from "../support/turns.js";
import { FaultyEngine } from "./faulty.js";
import { expectSoon, failure, makeNode, settled, useFleet, when, type Client, type Node } from "./nodes.js";

useFleet();

interface TwoNodes {
  readonly engine: FaultyEngine;
  readonly a: Node;
  readonly b: Node;
  /** Is on node b. */
  readonly bob: Client;
  /** Calls a method of bob from node a. */
  readonly call: (method: string, params?: unknown, options?: object) => Promise<any>;
}

const never = (): Promise<never> => new Promise(() => {});

/** Two nodes. Client bob is on the second and serves `methods`. */
async function twoNodes(methods: object = {}, settings = {}, options = {}): Promise<TwoNodes> {
  const engine = new FaultyEngine(settings);
  const [a, b] = [
    makeNode({ engine, ...options }),
    makeNode({ engine, ...options }, { work: () => 1, never, ...methods }),
  ];
  const bob = await b.client("bob");
  const call: TwoNodes["call"] = (...request) => a.server.peer(bob.peer.id).request(...request);
  return { engine, a, b, bob, call };
}

const running = (bob: Client, count = 1): Promise<void> => when(() => bob.client.stats().running === count);
const outcomeOf = (error: any): unknown => [error.constructor.name, error.outcome];
const NOT_SENT = ["ConnectionLostError", "not-sent"];
const UNKNOWN = ["ConnectionLostError", "unknown"];

describe("a call to a peer of another node", () => {
  it("has the peer's result, with bytes as base64, as a call on its own node has", async () => {
    const { a, b, bob } = await twoNodes({
      nothing: () => undefined,
      params: (params: unknown) => [params],
      twice: ({ data }: any) => ({ data: bytes(bytesOf(data).map((x) => 2 * x)) }),
    });
    for (const node of [a, b]) {
      const handle = node.server.peer(bob.peer.id);
      expect(handle.id).toBe(bob.peer.id);
      expect(await handle.remote.nothing()).toBe(null);
      expect(await handle.request("params", { a: "é😀\u2028\n\t" })).toEqual([{ a: "é😀\u2028\n\t" }]);
      const result: any = await handle.request("twice", { data: bytes(new Uint8Array([1, 100])) });
      expect([...bytesOf(result.data)]).toEqual([2, 200]);
    }
  });

  it("rejects with the peer's error, which names the method and begins with the line of the caller", async () => {
    const { a, b, bob } = await twoNodes({ refuse: () => Promise.reject(new RpcError(7, "no", { why: 1 })) });
    for (const node of [a, b])
      for (const [params, name] of [
        [[], "RpcError"],
        [5, "TypeError"],
      ] as const) {
        const error = await rejection(node.server.peer(bob.peer.id).request("refuse", params));
        expect(error.name).toBe(name);
        if (name === "RpcError") expect(error).toMatchObject({ code: 7, data: { why: 1 }, method: "refuse" });
        const frames = error.stack.split("\n").filter((line: string) => !line.includes("node:internal"));
        expect(frames[0]).toContain('"refuse": ');
        expect(frames[1]).toContain("test/support/turns.ts");
      }
  });

  it("is `not-sent` if there is no such peer, node or connection", async () => {
    const { engine, a, b, bob, call } = await twoNodes();
    const request = (id: string, options = {}): Promise<any> =>
      failure(a.server.peer(id).request("work", undefined, options)).then(outcomeOf);
    for (const id of [`${b.server.nodes.id}.none`, `${a.server.nodes.id}.none`, "none.none"])
      expect([id, await request(id)]).toEqual([id, NOT_SENT]);
    const before = engine.links[0]!.sent.length;
    for (const id of ["none", "", ".x", "*.x", "a b.x", "\ud800.x", `${"x".repeat(65)}.x`]) {
      expect([id, await request(id)]).toEqual([id, NOT_SENT]);
      expect(outcomeOf(await failure(a.server.peer(id).close()))).toEqual(NOT_SENT);
    }
    expect(engine.links[0]!.sent).toHaveLength(before);
    await bob.client.close();
    await expectSoon(() => b.server.peers.size, 0);
    expect(await request(bob.peer.id)).toEqual(NOT_SENT);
    const [link] = engine.links;
    link!.down();
    expect(await request(bob.peer.id, { timeoutMs: 20 })).toEqual(NOT_SENT);
    const controller = new AbortController();
    const aborted = rejection(call("work", undefined, { signal: controller.signal }));
    controller.abort("enough");
    expect(await aborted).toBe("enough");
    expect(await rejection(call("work", undefined, { signal: AbortSignal.abort("early") }))).toBe("early");
    expect(b.server.stats().requestsSent).toBe(0);
    link!.up();
    await settled(b.server.close());
    expect(await request(bob.peer.id)).toEqual(NOT_SENT);
  });

  it("is `unknown` if its node may have received it although the broker counts no receiver", async () => {
    const { engine, a, b, call } = await twoNodes({ work: () => "done" });
    engine.facts = { undercounts: true };
    const c = makeNode({ engine });
    await pass(4_000);
    engine.links[2]!.counted = () => 0;
    const [bob] = [...b.server.peers];
    expect(await c.server.peer(bob!.id).request("work")).toBe("done");
    expect(a.server.nodes.live).toHaveLength(3);
    await engine.links[1]!.kill();
    expect(outcomeOf(await failure(c.server.peer(bob!.id).request("work")))).toEqual(UNKNOWN);
    // The broker of the other node counts all.
    expect(outcomeOf(await failure(call("work")))).toEqual(NOT_SENT);
  });

  it("settles truly whatever a foreign node sends in the name of its node", async () => {
    const options = { principal: ({ name }: { name: string }) => name };
    const { engine, a, b, bob, call } = await twoNodes({}, {}, options);
    await pass(4_000);
    const [, link] = engine.links;
    const from = b.server.nodes.id;
    // A value that can be converted neither to a text nor to a number.
    const trap = '{"toString":1,"valueOf":1}';
    const answer = (number: number, verdict: string, body: string, node = from): Promise<unknown> =>
      link!.send(`n:${a.server.nodes.id}`, `1a\t${number}\t${node}\t${verdict}\t\n${body}`);
    const calls = [1, 2].map(() => rejection(call("never")));
    await running(bob, 2);
    const { foreign } = a.server.stats().engine!;
    await answer(1, "ok", "not json");
    await turn();
    expect(a.server.stats().engine!.foreign).toBe(foreign + 1);
    // An answer counts only if it comes from the node that was called.
    for (const number of [1, 2]) await answer(number, "ok", '"forged"', "foreign");
    await answer(1, "protocol", `{"message":${trap}}`);
    await answer(2, "large", `{"bytes":${trap}}`);
    expect((await Promise.all(calls)).map(({ code }) => code as string)).toEqual(["PROTOCOL", "TOO_LARGE"]);
    link!.loses = (_channel, frame) => frame.startsWith("1u");
    const asking = a.server.principal("bob").disconnect();
    await link!.send(`n:${a.server.nodes.id}`, `1r\t1\t${from}\n${trap}`);
    expect(await asking).toEqual({ closed: 0, isComplete: true });
    link!.loses = () => false;
    await link!.send(`n:${from}`, `1x\t7\tforeign\t${bob.peer.id.split(".")[1]!}\t4001\n${trap}`);
    expect(await bob.peer.closed).toMatchObject({ code: 4001, reason: "" });
  });

  it.each<[what: string, end: (nodes: TwoNodes) => unknown]>([
    ["the peer is lost while it runs", ({ bob }) => bob.client.close()],
    [
      "the node is silent for its lease before it answers",
      ({ engine, b }) => void engine.unheard.add(b.server.nodes.id),
    ],
    ["its own node closes while it runs", ({ a }) => void a.server.close()],
  ])("is `unknown` if %s", async (_what, end) => {
    const one = await twoNodes();
    const call = rejection(one.call("never"));
    await running(one.bob);
    await end(one);
    expect(outcomeOf(await settled(call))).toEqual(UNKNOWN);
  });

  it("is `not-sent` if it waits for the connection when its own node closes, or comes later", async () => {
    const { engine, a, call } = await twoNodes();
    const begin = (): Promise<any> => rejection(call("work", {}));
    engine.links[0]!.down();
    const waiting = begin();
    await settled(a.server.close());
    for (const one of [waiting, begin()]) expect(outcomeOf(await one)).toEqual(NOT_SENT);
  });

  it("times out with the outcome that the node reports", async () => {
    const { a, b, bob, call } = await twoNodes({}, {}, { session: { ttlMs: 60_000 } });
    // An answer may be lost, so a call without a timeout would never settle. It does not depend on the node of the peer.
    for (const { server } of [a, b])
      await expect(server.peer(bob.peer.id).request("work", {}, { timeoutMs: Infinity })).rejects.toThrow("finite");
    const error = await failure(call("never", undefined, { timeoutMs: 100 }));
    expect(error).toBeInstanceOf(TimeoutError);
    expect(error).toMatchObject({ outcome: "unknown", method: "never", timeoutMs: 100 });
    b.network.of(bob.client).cut();
    b.network.of(bob.client).stop();
    await when(() => bob.peer.state === "suspended");
    const unsent = await failure(call("work", undefined, { timeoutMs: 4_000 }));
    expect([unsent.constructor, unsent.outcome]).toEqual([TimeoutError, "not-sent"]);
  });

  it("rejects for params that do not cross, and for options, params and streams that it cannot take", async () => {
    const { a, b, bob, call } = await twoNodes({}, {}, { limits: { maxMessageBytes: 64 * 2 ** 20 } });
    const error = await rejection(call("work", { text: "x".repeat(16 * 2 ** 20) }));
    expect(error).toBeInstanceOf(TooLargeError);
    expect(error.maxMessageBytes).toBe(16 * 2 ** 20);
    const wrong = [
      call("work", undefined, { timeoutMs: -1 }),
      call("work", 5),
      call("work", { stream: bob.peer.offer([1]) }),
    ];
    for (const one of wrong) expect(await rejection(one)).toBeInstanceOf(TypeError);
    expect(() => a.server.peer(bob.peer.id).notify("work", 5)).toThrow(TypeError);
    expect(() => a.server.peer(5 as never)).toThrow(TypeError);
    expect(b.server.stats().requestsSent).toBe(0);
  });

  it("passes `around` on the node of the peer, and rejects with any error of it", async () => {
    const seen: unknown[] = [];
    const ends = [() => 1n, raising(Object.create(null)), raising(new RpcError(7, "no", 1n))];
    const around = (one: any, next: () => Promise<unknown>): unknown => {
      seen.push([one.direction, one.method, one.peer.id]);
      return (ends[seen.length - 2] ?? next)();
    };
    const { call, bob } = await twoNodes({}, {}, { around });
    expect(await call("work")).toBe(1);
    expect(seen).toEqual([["outgoing", "work", bob.peer.id]]);
    for (let i = 0; i < ends.length; i++) expect(await rejection(call("work"))).toBeInstanceOf(Error);
  });

  it("waits for the connection within its timeout, in a room of 1,000 that it leaves when it settles", async () => {
    const { engine, a, call } = await twoNodes();
    engine.links[0]!.down();
    const controllers = Array.from({ length: 1_000 }, () => new AbortController());
    const calls = controllers.map(({ signal }) => rejection(call("work", {}, { signal })));
    await turn();
    expect(outcomeOf(await rejection(call("work", {})))).toEqual(NOT_SENT);
    for (const controller of controllers) controller.abort("enough");
    expect(new Set(await Promise.all(calls))).toEqual(new Set(["enough"]));
    expect(a.server.stats().engine!.pendingBytes).toBe(0);
    const waiting = call("work", {});
    engine.links[0]!.up();
    expect(await waiting).toBe(1);
  });
});

const delay = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** Ends the subscription of the caller's inbox, as a broker sees a node without a connection. Returns what begins it again. */
const away = ({ engine, a }: TwoNodes): (() => Promise<void>) => {
  const inbox = `n:${a.server.nodes.id}` as const;
  engine.links[0]!.unsubscribe(inbox);
  return () => engine.links[0]!.subscribe(inbox);
};

/** Calls of a node that is gone, which node b answers. */
const ghost = async (timeoutMs: number, methods?: object) => {
  const one = await twoNodes(methods);
  const [, link] = one.engine.links;
  const id = one.bob.peer.id.split(".")[1]!;
  const ask = (from: number, to: number, peer = id): void => {
    const body = '{"jsonrpc":"2.0","method":"work"}';
    for (let n = from; n <= to; n++)
      link!.host.received(`n:${link!.node}`, `1q\t${n}\tghost-1e\t${peer}\t${timeoutMs}\t\n${body}`);
  };
  const answers = (): number => link!.sent.filter((frame) => frame.startsWith("1a")).length;
  return { ask, answers, link: link!, dropped: () => one.b.server.stats().engine!.dropped };
};

describe("an answer", () => {
  it("is sent again for the whole timeout, counted from the last progress report that restarts it", async () => {
    const one = await twoNodes({
      // Reports progress after 800 ms and after 1,600 ms.
      work: async (_params: unknown, { progress }: any) => {
        for (const percent of [40, 80]) {
          await delay(800);
          progress({ percent });
        }
        await delay(50);
        return "late";
      },
    });
    const seen: unknown[] = [];
    const onProgress = (value: unknown): void => void seen.push(value);
    const call = one.call("work", undefined, { timeoutMs: 1_000, resetTimeoutOnProgress: true, onProgress });
    for (const count of [1, 2]) {
      await pass(800);
      expect(seen).toHaveLength(count);
    }
    const back = away(one);
    await pass(400);
    await back();
    await pass(1_000);
    expect(await call).toBe("late");
  });

  it.each([
    ["10,000", 10_000, "none", ""],
    ["16 Mi", 16, undefined, "x".repeat(1_040_000)],
  ])("is one of at most %s that are sent again", async (_what, most, peer, text) => {
    const { ask, answers, dropped, link } = await ghost(60_000, { work: () => text });
    ask(1, most, peer);
    await when(() => answers() === most);
    await turn();
    expect(dropped()).toBe(0);
    ask(most + 1, most + 1, peer);
    await expectSoon(dropped, 1);
    link.down();
    const before = answers();
    link.up();
    await turn();
    expect(answers() - before).toBe(Math.min(most, 1_000));
  });
});

describe("a peer of another node", () => {
  it("is closed with code and reason", async () => {
    const { a, b, bob } = await twoNodes();
    const handle = a.server.peer(bob.peer.id);
    await expect(handle.close(1001)).rejects.toThrow("Expected `code`");
    await expect(handle.close(4001, 5 as never)).rejects.toThrow("Expected `reason`");
    await handle.close(4001, "moved");
    expect(await bob.peer.closed).toMatchObject({ code: 4001, reason: "moved" });
    for (const one of [handle, b.server.peer(bob.peer.id)])
      expect(outcomeOf(await failure(one.close()))).toEqual(NOT_SENT);
  });

  it("whose node does not answer is closed with an `unknown` outcome after 10 s", async () => {
    const { engine, a, bob } = await twoNodes();
    engine.links[1]!.loses = (_channel, frame) => frame.startsWith("1x");
    let error: any;
    void rejection(a.server.peer(bob.peer.id).close()).then((reason) => (error = reason));
    await pass(9_900);
    expect(error).toBe(undefined);
    await pass(200);
    expect(error).toMatchObject({ code: "TIMEOUT", outcome: "unknown" });
  });
});
