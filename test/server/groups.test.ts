import { describe, expect, it } from "vitest";
import { z } from "zod";
import type { Link } from "../../src/message/transport.js";
import { contract, ProtocolError } from "../../src/node.js";
import type { Server, ServerAround, ServerCall } from "../../src/node.js";
import { notification, result } from "../support/raw.js";
import { countedSignal, gate, Outcomes, pass, rejection, turn, useVirtualClock } from "../support/time.js";
import { join, joinSilent, makeServer, type Silent } from "./members.js";

useVirtualClock();

function joinDen(server: Server, count: number): Silent[] {
  const members = Array.from({ length: count }, () => joinSilent(server));
  for (const { peer } of members) server.topic("den").add(peer);
  return members;
}

function paramsOf(members: readonly Silent[]): unknown[] {
  return members.map(({ sent }) => sent.map((text) => (JSON.parse(text) as { params?: unknown }).params));
}

describe("a request to a group", () => {
  it("calls all that are members at the call at once, and waits for all, also for one that is deleted meanwhile", async () => {
    await using server = makeServer();
    const [a, b] = joinDen(server, 2);
    const topic = server.topic("den");
    const outcomes = new Outcomes().watch("all", topic.request("ask"));
    topic.delete(a!.peer);
    const [late] = joinDen(server, 1);
    expect([a, b, late].map((member) => member!.sent.length)).toEqual([1, 1, 0]);
    b!.feed(result(1, "2"));
    await turn();
    expect(outcomes.list).toEqual([]);
    a!.feed(result(1, "1"));
    await turn();
    expect(outcomes.list).toMatchObject([{ value: [{ value: "1" }, { value: "2" }] }]);
  });

  it.each<[string, Partial<Link>, object, (silent: Silent) => unknown, object]>([
    ["is late, after `timeoutMs`", {}, { timeoutMs: 10 }, () => pass(10), { name: "TimeoutError", outcome: "unknown" }],
    ["closes meanwhile", {}, {}, ({ peer }) => peer.close(), { name: "ConnectionLostError", outcome: "unknown" }],
    ["has a lower limit", { maxMessageBytes: 100, send: () => false }, {}, () => {}, { name: "TooLargeError" }],
  ])("rejects for a member that %s, and for no other", async (_what, behaviour, options, act, reason) => {
    await using server = makeServer({ timeoutMs: 20 });
    const [other, silent] = [await join(server, { ask: () => 1 }), joinSilent(server, behaviour)];
    const topic = server.topic("den").add(silent.peer).add(other.peer);
    const all = topic.request("ask", ["x".repeat(100)], options);
    await act(silent);
    expect(await all).toMatchObject([
      { peer: silent.peer, status: "rejected", reason },
      { peer: other.peer, status: "fulfilled", value: 1 },
    ]);
  });

  it("rejects as not sent for a member that closes while the others are called", async () => {
    await using server = makeServer();
    const first = joinSilent(server, { send: () => (void second.peer.close(), true) });
    const second = joinSilent(server);
    const all = server.topic("den").add(first.peer).add(second.peer).request("ask", [], { timeoutMs: 10 });
    await pass(10);
    expect((await all)[1]).toMatchObject({ peer: second.peer, status: "rejected", reason: { outcome: "not-sent" } });
    expect(second.sent).toEqual([]);
  });

  it("encodes its params once for all members, with an id for each", async () => {
    await using server = makeServer();
    const members = joinDen(server, 3);
    const before = rejection(members[1]!.peer.request("before"));
    let encoded = 0;
    const all = server.topic("den").request("ask", { toJSON: () => ({ encoded: ++encoded }) });
    expect(members.map(({ sent }) => JSON.parse(sent.at(-1)!) as unknown)).toEqual(
      [1, 2, 1].map((id) => ({ jsonrpc: "2.0", id, method: "ask", params: { encoded: 1 } })),
    );
    await server.close();
    await Promise.all([all, before]);
  });

  it.each<[string, unknown, object | undefined, string]>([
    ["params that are no array and no object", 5, undefined, "params"],
    ["an unknown option", [], { onProgress: () => {} }, "onProgress"],
    ["a signal that is none", [], { signal: {} }, "signal"],
  ])("rejects with a TypeError for %s, and sends nothing", async (_what, params, options, named) => {
    await using server = makeServer();
    const members = joinDen(server, 1);
    for (const name of ["den", "empty"]) {
      const error = await rejection(server.topic(name).request("ask", params, options));
      expect(error).toBeInstanceOf(TypeError);
      expect(error.message).toContain(named);
    }
    expect(paramsOf(members)).toEqual([[]]);
  });
});

it("a notification with a key is encoded once for all slow members, which queue the same text", async () => {
  await using server = makeServer();
  const slow = [1, 2, 3].map(() => joinSilent(server, { unsentBytes: 2 ** 20 }));
  let encoded = 0;
  server.peers.notify("moved", { toJSON: () => [++encoded] }, { latest: "ann" });
  expect(paramsOf(slow)).toEqual([[], [], []]);
  await server.close();
  expect(paramsOf(slow)).toEqual([[[1]], [[1]], [[1]]]);
  expect(encoded).toBe(1);
});

it("a request to a group rejects for each member whose result does not fit the contract", async () => {
  const remote = contract({ vote: { params: z.tuple([z.string()]), result: z.boolean() } });
  await using server = makeServer({ remote, check: "both" });
  for (const vote of [() => true, () => "yes"]) await join(server, { vote });
  const outcomes = await server.peers.request("vote", ["?"]);
  expect(outcomes).toMatchObject([{ value: true }, { status: "rejected", reason: { raw: "yes" } }]);
  expect(outcomes[1]!.reason).toBeInstanceOf(ProtocolError);
});

describe("the signal of a request to a group", () => {
  it("rejects the calls that are pending, cancels them, and leaves no listener", async () => {
    await using server = makeServer();
    const [done] = joinDen(server, 1);
    const pending = joinSilent(server, { isReciproc: true });
    server.topic("den").add(pending.peer);
    const { controller, signal, listeners } = countedSignal();
    const all = server.topic("den").request("ask", { a: 1 }, { signal });
    done!.feed(result(1, 1));
    expect(listeners()).toBe(1);
    const reason = new Error("decided");
    controller.abort(reason);
    expect(await all).toEqual([
      { peer: done!.peer, status: "fulfilled", value: 1 },
      { peer: pending.peer, status: "rejected", reason },
    ]);
    expect(paramsOf([done!, pending])).toEqual([[{ a: 1 }], [{ a: 1 }, { id: 1 }]]);
    expect(listeners()).toBe(0);
    expect(server.stats().pending).toBe(0);
  });

  it.each<[string, boolean]>([
    ["before it is made", true],
    ["while the members are called", false],
  ])("rejects every outcome, and sends nothing more, if it aborts %s", async (_when, isBefore) => {
    await using server = makeServer();
    const controller = new AbortController();
    let sent = 0;
    const first = joinSilent(server, { send: () => (sent++, controller.abort("enough"), true) });
    const second = joinSilent(server);
    if (isBefore) controller.abort("enough");
    const topic = server.topic("den").add(first.peer).add(second.peer);
    expect(await topic.request("ask", [], { signal: controller.signal })).toEqual(
      [first, second].map(({ peer }) => ({ peer, status: "rejected", reason: "enough" })),
    );
    expect([sent, second.sent]).toEqual([isBefore ? 0 : 1, []]);
  });
});

const bug = new Error("bug in around");

function serverAround(around: ServerAround) {
  const calls: ServerCall[] = [];
  const server = makeServer({
    around: (call, next) => (calls.push(call), around(call, next)),
    methods: { join: () => {} },
  });
  const errors: unknown[] = [];
  server.on("error", (error) => errors.push(error));
  return { server, calls, errors, [Symbol.asyncDispose]: () => server.close() };
}

describe("around, for messages to a group", () => {
  it("is called once for a message, with the topic and the peers that it is for, and receives the outcomes of a request", async () => {
    const results: unknown[] = [];
    await using world = serverAround(async (call, next) => {
      const value = await next();
      if (call.peer === undefined && call.isRequest) results.push(value);
      return value;
    });
    const { server, calls } = world;
    const [a, b, c] = joinDen(server, 3);
    server.topic("den").notify("said", { n: 1 });
    server.peers.notify("said", { n: 2 }, { except: [b!.peer] });
    // Sent inside `notify`, because `around` calls `next` at once.
    expect(paramsOf([a!, b!, c!])).toEqual([[{ n: 1 }, { n: 2 }], [{ n: 1 }], [{ n: 1 }, { n: 2 }]]);
    const all = server.topic("den").request("ask", [0], { except: [a!.peer, b!.peer] });
    c!.feed(result(1, "yes"));
    expect(await all).toEqual([{ peer: c!.peer, status: "fulfilled", value: "yes" }]);
    expect(results[0]).toBe(await all);
    b!.peer.notify("alone");
    b!.feed(notification("join"));
    const same = { direction: "outgoing", peer: undefined, topics: ["den"], method: "said", isRequest: false };
    expect(calls).toMatchObject([
      { ...same, id: undefined, context: undefined, peers: [a!.peer, b!.peer, c!.peer], params: { n: 1 } },
      { ...same, topics: undefined, peers: [a!.peer, c!.peer], params: { n: 2 } },
      { ...same, method: "ask", isRequest: true, peers: [c!.peer], params: [0] },
      { direction: "outgoing", peer: b!.peer, method: "alone" },
      { direction: "incoming", peer: b!.peer, method: "join" },
    ]);
  });

  it("may change the params for all members, also in place, send a message twice or never, and give the result", async () => {
    await using world = serverAround((call, next) => {
      if (call.method === "dropped") return "nothing was sent";
      if (call.params.inPlace) call.params.by = "around";
      else call.params = { by: "around" };
      if (call.params.inPlace) void next();
      return next();
    });
    const members = joinDen(world.server, 2);
    const topic = world.server.topic("den");
    topic.notify("said", { inPlace: true });
    topic.notify("said", {});
    topic.notify("dropped");
    expect(await topic.request("dropped")).toBe("nothing was sent");
    const all = topic.request("ask", {});
    const inPlace = { inPlace: true, by: "around" };
    const changed = [inPlace, inPlace, { by: "around" }, { by: "around" }];
    expect(paramsOf(members)).toEqual([changed, changed]);
    await world.server.close();
    await all;
  });

  it.each<[string, ServerAround, unknown]>([
    [
      "throws",
      () => {
        throw bug;
      },
      bug,
    ],
    ["rejects", () => Promise.reject(bug), bug],
    ["sets params that cannot be encoded", (call, next) => ((call.params = 5), next()), expect.any(TypeError)],
  ])("sends nothing if it %s: a notification emits `error`, and a request rejects", async (_how, around, error) => {
    await using world = serverAround(around);
    const members = joinDen(world.server, 2);
    const topic = world.server.topic("den");
    topic.notify("said");
    await turn();
    expect(await rejection(topic.request("ask"))).toEqual(error);
    expect(world.errors).toEqual([error]);
    expect(paramsOf(members)).toEqual([[], []]);
  });

  it("is not called for params that cannot be encoded, and not if no peer gets the message", async () => {
    await using world = serverAround((_call, next) => next());
    const topic = world.server.topic("den");
    topic.notify("said");
    expect(await topic.request("ask")).toEqual([]);
    const [only] = joinDen(world.server, 1);
    topic.notify("said", [], { except: only!.peer });
    expect(await topic.request("ask", [], { except: only!.peer })).toEqual([]);
    for (const params of [5, [1n]]) {
      expect(() => topic.notify("said", params)).toThrow(TypeError);
      expect(await rejection(topic.request("ask", params))).toBeInstanceOf(TypeError);
    }
    expect([world.calls, only!.sent]).toEqual([[], []]);
  });

  it("has no peer that a volatile message is dropped for, and is not called if it is dropped for all", async () => {
    const open = gate();
    await using world = serverAround(async (_call, next) => (await open.promise, next()));
    const { server, calls } = world;
    const [a, b, c] = [{ unsentBytes: 2 ** 30 }, {}, {}].map((behaviour) => joinSilent(server, behaviour));
    server.peers.notify("moved", [1], { volatile: true, except: b!.peer });
    server.peers.notify("moved", [2], { volatile: true });
    expect(calls).toMatchObject([{ peers: [c!.peer] }, { peers: [b!.peer, c!.peer] }]);
    await c!.peer.close();
    server.topic("slow").add(a!.peer).notify("moved", [3], { volatile: true });
    expect(calls).toHaveLength(2);
    open.resolve();
    await turn();
    expect(paramsOf([a!, b!])).toEqual([[], [[2]]]);
    // A message that is not volatile passes `around`, and is dropped then.
    server.topic("slow").notify("moved", [4]);
    await turn();
    expect(calls).toHaveLength(3);
    expect(a!.peer.stats()).toMatchObject({ dropped: 1, notificationsSent: 0 });
  });

  it("may await before next: the message goes to the members at the call that are still open", async () => {
    const open = gate();
    await using world = serverAround(async (_call, next) => (await open.promise, next()));
    const { server } = world;
    const [stays, closes, leaves] = joinDen(server, 3);
    const topic = server.topic("den");
    topic.notify("said", [1]);
    const all = topic.request("ask", [2], { timeoutMs: 1 });
    await closes!.peer.close();
    topic.delete(leaves!.peer);
    const [joins] = joinDen(server, 1);
    expect(paramsOf([stays!])).toEqual([[]]);
    open.resolve();
    await pass(1);
    expect((await all).map(({ peer, status }) => [peer, status])).toEqual(
      [stays, closes, leaves].map((member) => [member!.peer, "rejected"]),
    );
    expect(paramsOf([stays!, closes!, leaves!, joins!])).toEqual([[[1], [2]], [], [[1], [2]], []]);
    expect(closes!.peer.stats().dropped).toBe(0);
  });
});
