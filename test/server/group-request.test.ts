import { getEventListeners } from "node:events";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { ConnectionLostError, contract, ProtocolError, RpcError, TimeoutError, TooLargeError } from "../../src/node.js";
import { testServer } from "../../src/testing/index.js";
import { gate, Outcomes, rejection, turn } from "../support/turns.js";
import { connect, describeNetworks, emitted, nextPeer, serving, suspended } from "./by-hand.js";
import { join, joinSilent, makeServer } from "./members.js";

const refuse = (): never => {
  throw new RpcError(403, "no");
};

describe("a request to a topic", () => {
  it("resolves with the outcome of each member, in the order of the topic", async () => {
    await using server = makeServer();
    const [a, b, c] = [
      await join(server, { vote: ([x]) => x + 1 }),
      await join(server, { vote: refuse }),
      await join(server),
    ];
    const outsider = await join(server);
    const topic = server.topic("den").add(a.peer).add(b.peer).add(c.peer);
    const [first, second, third] = await topic.request("vote", [1]);
    expect(first).toEqual({ peer: a.peer, status: "fulfilled", value: 2 });
    expect(second).toMatchObject({ peer: b.peer, status: "rejected", reason: { code: 403, method: "vote" } });
    expect(third).toEqual({ peer: c.peer, status: "fulfilled", value: null });
    expect(c.got).toEqual([["vote", [1]]]);
    expect(outsider.got).toEqual([]);
  });

  it("can be made without params, and not to the peer in `except`", async () => {
    await using server = makeServer();
    const [a, b] = [await join(server, { who: () => "a" }), await join(server)];
    const topic = server.topic("den").add(a.peer).add(b.peer);
    expect(await topic.request("who", undefined, { except: b.peer })).toEqual([
      { peer: a.peer, status: "fulfilled", value: "a" },
    ]);
    expect(b.got).toEqual([]);
  });

  it("is not made to the peers in `except`, which may be ids, what `server.peer` returns, a list or a Set", async () => {
    await using server = makeServer();
    const [a, b, c] = [
      await join(server, { who: () => "a" }),
      await join(server, { who: () => "b" }),
      await join(server, { who: () => "c" }),
    ];
    const topic = server.topic("den").add(a.peer).add(b.peer).add(c.peer);
    const answersOf = async (except: unknown): Promise<unknown[]> => {
      const outcomes = await topic.request("who", [], { except: except as never });
      return outcomes.map(({ value }) => value as unknown);
    };
    expect(await answersOf(b.peer.id)).toEqual(["a", "c"]);
    expect(await answersOf(server.peer(a.peer.id))).toEqual(["b", "c"]);
    expect(await answersOf([a.peer, c.peer.id])).toEqual(["b"]);
    expect(await answersOf(new Set([a.peer, b.peer, c.peer]))).toEqual([]);
    expect(await answersOf(["gone"])).toEqual(["a", "b", "c"]);
  });

  it("can be made to all peers of a server", async () => {
    await using server = makeServer();
    const [a, b] = [await join(server, { who: () => "a" }), await join(server, { who: () => "b" })];
    expect(await server.peers.request("who")).toEqual([
      { peer: a.peer, status: "fulfilled", value: "a" },
      { peer: b.peer, status: "fulfilled", value: "b" },
    ]);
    expect(server.stats()).toMatchObject({ requestsSent: 2, pending: 0 });
  });

  it("calls all members at once, and waits for all", async () => {
    await using server = makeServer();
    const slow = gate<string>();
    const quick = gate<string>();
    const started: string[] = [];
    const asked = (name: string, answer: Promise<string>) => () => (started.push(name), answer);
    const a = await join(server, { ask: asked("slow", slow.promise) });
    const b = await join(server, { ask: asked("quick", quick.promise) });
    const outcomes = new Outcomes().watch("all", server.topic("den").add(a.peer).add(b.peer).request("ask"));
    await turn();
    expect(started).toEqual(["slow", "quick"]);
    quick.resolve("2");
    await turn();
    expect(outcomes.list).toEqual([]);
    slow.resolve("1");
    await turn();
    expect(outcomes.list).toMatchObject([{ value: [{ value: "1" }, { value: "2" }] }]);
  });

  it("resolves at once with an empty list if there is no member to call", async () => {
    await using server = makeServer();
    expect(await server.topic("den").request("ask")).toEqual([]);
    const { peer } = await join(server);
    expect(await server.topic("den").add(peer).request("ask", [], { except: peer })).toEqual([]);
  });

  it("rejects for a member that is late, after `timeoutMs` or the server's, and waits for no other", async () => {
    await using server = makeServer({ timeoutMs: 20 });
    const [a, late] = [await join(server, { ask: () => 1 }), joinSilent(server)];
    const topic = server.topic("den").add(late.peer).add(a.peer);
    for (const timeoutMs of [10, undefined]) {
      const [rejected, fulfilled] = await topic.request("ask", [], { timeoutMs });
      expect(rejected).toMatchObject({ peer: late.peer, status: "rejected", reason: { outcome: "unknown" } });
      expect(rejected!.status === "rejected" && rejected!.reason).toBeInstanceOf(TimeoutError);
      expect(String(rejected!.status === "rejected" && rejected!.reason)).toContain(`${timeoutMs ?? 20} ms`);
      expect(fulfilled).toMatchObject({ peer: a.peer, value: 1 });
    }
  });

  it("rejects for a member that closes meanwhile", async () => {
    await using server = makeServer();
    const [a, b] = [await join(server, { ask: () => 1 }), joinSilent(server)];
    const topic = server.topic("den").add(b.peer).add(a.peer);
    const all = topic.request("ask");
    void b.peer.close();
    const [lost, fulfilled] = await all;
    expect(lost).toMatchObject({ peer: b.peer, status: "rejected", reason: { outcome: "unknown" } });
    expect(lost!.status === "rejected" && lost!.reason).toBeInstanceOf(ConnectionLostError);
    expect(fulfilled).toMatchObject({ value: 1 });
    expect(topic.size).toBe(1);
  });

  it("rejects as not sent for a member that closes while the others are called", async () => {
    await using server = makeServer();
    const first = joinSilent(server, { send: () => (void second.peer.close(), true) });
    const second = joinSilent(server);
    const [, lost] = await server.topic("den").add(first.peer).add(second.peer).request("ask", [], { timeoutMs: 10 });
    expect(lost).toMatchObject({ peer: second.peer, status: "rejected", reason: { outcome: "not-sent" } });
    expect(second.sent).toEqual([]);
  });

  it("has the members at the call: one that is deleted meanwhile, and none that is added", async () => {
    await using server = makeServer();
    const open = gate<number>();
    const [a, b] = [await join(server, { ask: () => open.promise }), await join(server, { ask: () => 2 })];
    const topic = server.topic("den").add(a.peer);
    const all = topic.request("ask");
    topic.delete(a.peer);
    topic.add(b.peer);
    open.resolve(1);
    expect(await all).toEqual([{ peer: a.peer, status: "fulfilled", value: 1 }]);
  });

  it("encodes its params once for all members, with an id for each", async () => {
    await using server = makeServer();
    const members = [joinSilent(server), joinSilent(server), joinSilent(server)];
    const topic = server.topic("den");
    for (const { peer } of members) topic.add(peer);
    const before = rejection(members[1]!.peer.request("before"));
    let encoded = 0;
    const all = topic.request("ask", { toJSON: () => ({ encoded: ++encoded }) }, { timeoutMs: 10 });
    expect(members.map(({ sent }) => JSON.parse(sent.at(-1)!) as unknown)).toEqual(
      [1, 2, 1].map((id) => ({ jsonrpc: "2.0", id, method: "ask", params: { encoded: 1 } })),
    );
    await all;
    void members[1]!.peer.close();
    await before;
  });

  it("rejects for a member that does not take so long a message", async () => {
    await using server = makeServer();
    const [a, b] = [
      await join(server, { ask: () => 1 }),
      joinSilent(server, { maxMessageBytes: 100, send: () => false }),
    ];
    const [short, long] = await server
      .topic("den")
      .add(a.peer)
      .add(b.peer)
      .request("ask", ["x".repeat(100)]);
    expect(short).toMatchObject({ value: 1 });
    expect(long).toMatchObject({ peer: b.peer, reason: { maxMessageBytes: 100 } });
    expect(long!.status === "rejected" && long!.reason).toBeInstanceOf(TooLargeError);
  });

  it.each<[string, unknown, object | undefined, string]>([
    ["params that are no array and no object", 5, undefined, "params"],
    ["params that JSON cannot carry", [1n], undefined, "BigInt"],
    ["an unknown option", [], { onProgress: () => {} }, "onProgress"],
    ["a bad timeout", [], { timeoutMs: 0 }, "timeoutMs"],
    ["a signal that is none", [], { signal: {} }, "signal"],
  ])("rejects with a TypeError for %s, and sends nothing", async (_what, params, options, named) => {
    await using server = makeServer();
    const { peer, sent } = joinSilent(server);
    const error = await rejection(server.topic("den").add(peer).request("ask", params, options));
    expect(error).toBeInstanceOf(TypeError);
    expect(error.message).toContain(named);
    expect(await rejection(server.topic("empty").request("ask", params, options))).toBeInstanceOf(TypeError);
    expect(sent).toEqual([]);
  });
});

describe("a request to a topic whose contract checks results", () => {
  const theirs = contract({
    vote: { params: z.tuple([z.string()]), result: z.boolean() },
    late: { result: z.string().refine(async (text) => text !== "no") },
  });

  it.each([false, true])(
    "rejects for each member whose result does not fit, with an `around`: %s",
    async (hasAround) => {
      const around = hasAround ? (_call: unknown, next: () => Promise<unknown>) => next() : undefined;
      await using server = makeServer({ remote: theirs, check: "both", around });
      const own = [{ vote: () => true }, { vote: () => "yes" }, { vote: refuse }, {}];
      const members = await Promise.all(own.map((methods) => join(server, methods)));
      const topic = server.topic("den");
      for (const { peer } of members) topic.add(peer);
      const outcomes = await topic.request("vote", ["?"]);
      expect(outcomes.map(({ peer }) => peer)).toEqual(members.map(({ peer }) => peer));
      expect(outcomes).toMatchObject([
        { status: "fulfilled", value: true },
        {
          status: "rejected",
          reason: { message: expect.stringContaining('The result of "vote" does not fit its schema') },
        },
        { status: "rejected", reason: { code: 403 } },
        // Answered by the fallback of the member, with null.
        { status: "rejected", reason: { message: expect.stringContaining("expected boolean, received null") } },
      ]);
      expect(outcomes[1]!.reason).toBeInstanceOf(ProtocolError);
      expect(outcomes[1]!.reason).toEqual(await rejection(members[1]!.peer.request("vote", ["?"])));
    },
  );

  it("awaits a schema that is asynchronous", async () => {
    await using server = makeServer({ remote: theirs, check: "both" });
    const a = await join(server, { late: () => "yes" });
    const b = await join(server, { late: () => "no" });
    const outcomes = await server.topic("den").add(a.peer).add(b.peer).request("late");
    expect(outcomes).toMatchObject([{ value: "yes" }, { status: "rejected", reason: { name: "ProtocolError" } }]);
  });

  it("takes any result without `check`", async () => {
    await using server = makeServer({ remote: theirs });
    const { peer } = await join(server, { vote: () => "yes" });
    expect(await server.topic("den").add(peer).request("vote", ["?"])).toMatchObject([{ value: "yes" }]);
  });
});

describe("the signal of a request to a topic", () => {
  it("rejects the calls that are pending, cancels them, and leaves no listener", async () => {
    await using server = makeServer();
    const aborted = gate<unknown>();
    const pending = await join(server, {
      ask: (_params, { signal }: { signal: AbortSignal }) =>
        new Promise((resolve) => signal.addEventListener("abort", () => (aborted.resolve(signal.reason), resolve(0)))),
    });
    const [done, silent] = [await join(server, { ask: () => 1 }), joinSilent(server)];
    const topic = server.topic("den").add(pending.peer).add(done.peer).add(silent.peer);
    const controller = new AbortController();
    const all = topic.request("ask", { a: 1 }, { signal: controller.signal });
    await turn();
    expect(getEventListeners(controller.signal, "abort")).toHaveLength(1);
    const reason = new Error("decided");
    controller.abort(reason);
    expect(await all).toEqual([
      { peer: pending.peer, status: "rejected", reason },
      { peer: done.peer, status: "fulfilled", value: 1 },
      { peer: silent.peer, status: "rejected", reason },
    ]);
    expect(getEventListeners(controller.signal, "abort")).toEqual([]);
    expect(server.stats().pending).toBe(0);
  });

  it("cancels the call on the other side of a reciproc peer", async () => {
    const { server, url } = await serving();
    const [started, aborted] = [gate(), gate()];
    const ask = (_params: unknown, { signal }: { signal: AbortSignal }): Promise<void> => {
      signal.addEventListener("abort", () => aborted.resolve());
      started.resolve();
      return aborted.promise;
    };
    await using client = await connect(url, { methods: { ask } });
    const controller = new AbortController();
    const all = server.peers.request("ask", undefined, { signal: controller.signal });
    await started.promise;
    controller.abort();
    await aborted.promise;
    expect(await all).toMatchObject([{ status: "rejected", reason: { name: "AbortError" } }]);
    expect(client.state).toBe("open");
  });

  it("that is aborted already rejects every outcome, and nothing is sent", async () => {
    await using server = makeServer();
    const members = [joinSilent(server), joinSilent(server)];
    for (const { peer } of members) server.topic("den").add(peer);
    const signal = AbortSignal.abort("before");
    expect(await server.topic("den").request("ask", [], { signal })).toEqual(
      members.map(({ peer }) => ({ peer, status: "rejected", reason: "before" })),
    );
    expect(members.map(({ sent }) => sent)).toEqual([[], []]);
  });

  it("that aborts while the members are called stops the rest", async () => {
    await using server = makeServer();
    const controller = new AbortController();
    const first = joinSilent(server, { send: () => (controller.abort("enough"), true) });
    const second = joinSilent(server);
    const topic = server.topic("den").add(first.peer).add(second.peer);
    const outcomes = await topic.request("ask", [], { signal: controller.signal });
    expect(outcomes.map((outcome) => outcome.status === "rejected" && outcome.reason)).toEqual(["enough", "enough"]);
    expect(second.sent).toEqual([]);
  });
});

describeNetworks("a request to a topic", () => {
  it("reaches a suspended member when it resumes, and rejects for one that does not in time", async () => {
    const world = await serving();
    const { server, url, cut } = world;
    const { peer: away } = await suspended(world);
    const coming = nextPeer(server);
    await using client = await connect(url, { methods: { ask: ([x]: [number]) => x * 2 } });
    // The second response follows the client's ack of the token, without which the session cannot be resumed.
    for (let i = 0; i < 2; i++) await rejection(client.request("no-such-method"));
    const back = await coming;
    const topic = server.topic("den").add(back).add(away);
    const isSuspended = emitted(back, "suspend");
    cut();
    await isSuspended;
    const [resumed, late] = await topic.request("ask", [21], { timeoutMs: 1_000 });
    expect(resumed).toEqual({ peer: back, status: "fulfilled", value: 42 });
    expect(late).toMatchObject({ peer: away, status: "rejected", reason: { outcome: "not-sent" } });
    expect(late!.status === "rejected" && late!.reason).toBeInstanceOf(TimeoutError);
    expect([...topic]).toEqual([back, away]);
  });
});

describe("a request to a topic whose member ends its session", () => {
  it("rejects with `unknown` if the member has got it, and with `not-sent` if it was queued", async () => {
    const started = gate();
    const kit = testServer({ session: { ttlMs: 50 } });
    const { server, network } = kit;
    const ask = (): Promise<void> => (started.resolve(), new Promise(() => {}));
    const client = await kit.connect(server.url, { methods: { ask } });
    for (let i = 0; i < 2; i++) await rejection(client.request("no-such-method"));
    const topic = server.topic("den");
    for (const peer of server.peers) topic.add(peer);
    const sent = topic.request("ask", undefined, { timeoutMs: Infinity });
    await started.promise;
    network.cut();
    network.stop();
    const queued = topic.request("ask", undefined, { timeoutMs: Infinity });
    const reason = { name: "ConnectionLostError", method: "ask" };
    expect(await sent).toMatchObject([{ status: "rejected", reason: { ...reason, outcome: "unknown" } }]);
    expect(await queued).toMatchObject([{ status: "rejected", reason: { ...reason, outcome: "not-sent" } }]);
    expect(topic.size).toBe(0);
    await server.close();
  });

  it("rejects with `unknown` if the server forgets the session, and the client's next peer is no member", async () => {
    await using kit = testServer({});
    const { server, network } = kit;
    const started = gate();
    const ask = (): Promise<void> => (started.resolve(), new Promise(() => {}));
    const client = await kit.connect(server.url, { methods: { ask } });
    for (let i = 0; i < 2; i++) await rejection(client.request("no-such-method"));
    const topic = server.topic("den");
    for (const peer of server.peers) topic.add(peer);
    const all = topic.request("ask");
    await started.promise;
    const back = emitted(client, "resume");
    network.lose();
    expect(await all).toMatchObject([{ status: "rejected", reason: { outcome: "unknown" } }]);
    await back;
    expect([server.peers.size, topic.size]).toEqual([1, 0]);
  });
});

it("checks the result of each member of a topic by the contract of its clients", async () => {
  const theirs = contract({ count: { params: z.object({ of: z.string() }), result: z.number() } });
  await using kit = testServer({ remote: theirs, check: "both" });
  const { server } = kit;
  for (const result of [1, "two", 3]) await kit.connect(server.url, { methods: { count: () => result as number } });
  await kit.network.settle();
  const outcomes = await server.peers.request("count", { of: "cards" });
  expect(outcomes.map(({ status }) => status)).toEqual(["fulfilled", "rejected", "fulfilled"]);
  expect(outcomes[1]!.reason).toMatchObject({ name: "ProtocolError", raw: "two" });
  expect(outcomes.map(({ value }) => value)).toEqual([1, undefined, 3]);
});
