import { describe, expect, it } from "vitest";
import { type AnyPeer, type Server, type ServerAround, type ServerCall } from "../../src/node.js";
import { gate, rejection, turn } from "../support/turns.js";
import { connect, serving } from "./by-hand.js";
import { join, joinSilent, makeServer } from "./members.js";

/** Makes a server whose `around` is given, and records its `error` events. */
async function serverAround(
  around: ServerAround,
): Promise<{ server: Server; errors: unknown[]; [Symbol.asyncDispose](): Promise<void> }> {
  const server = makeServer({ around });
  const errors: unknown[] = [];
  server.on("error", (error) => errors.push(error));
  return { server, errors, [Symbol.asyncDispose]: () => server.close() };
}

const texts = (members: { sent: string[] }[]): unknown[] =>
  members.map(({ sent }) => sent.map((text) => paramsOf(text)));
const paramsOf = (text: string): unknown => (JSON.parse(text) as { params?: unknown }).params;

/** Adds `count` clients that never answer to the topic "den". */
function joinDen(server: Server, count: number): { peer: AnyPeer; sent: string[] }[] {
  const members = Array.from({ length: count }, () => joinSilent(server));
  for (const { peer } of members) server.topic("den").add(peer);
  return members;
}

const bug = new Error("bug in around");

describe("around, for messages to a group", () => {
  it("is called once for a notification, with the topic and the peers that it is for", async () => {
    const calls: ServerCall[] = [];
    await using world = await serverAround((call, next) => (calls.push(call), next()));
    const { server } = world;
    const [a, b, c] = joinDen(server, 3);
    server.topic("den").notify("said", { n: 1 });
    server.peers.notify("said", { n: 2 }, { except: b!.peer });
    const same = { direction: "outgoing", peer: undefined, method: "said", id: undefined, context: undefined };
    expect(calls).toEqual([
      { ...same, topic: "den", peers: [a!.peer, b!.peer, c!.peer], isRequest: false, params: { n: 1 } },
      { ...same, topic: undefined, peers: [a!.peer, c!.peer], isRequest: false, params: { n: 2 } },
    ]);
    // Sent inside `notify`, because `around` calls `next` at once.
    expect(texts([a!, b!, c!])).toEqual([[{ n: 1 }, { n: 2 }], [{ n: 1 }], [{ n: 1 }, { n: 2 }]]);
  });

  it("gets the peers without those of a list in `except`", async () => {
    const peers: unknown[] = [];
    await using world = await serverAround((call, next) => {
      if (call.peer === undefined) peers.push(call.peers);
      return next();
    });
    const { server } = world;
    const [a, b, c] = joinDen(server, 3);
    server.topic("den").notify("said", { n: 1 }, { except: [a!.peer, c!.peer.id] });
    void server.peers.request("ask", [], { except: new Set([b!.peer.id]) });
    expect(peers).toEqual([[b!.peer], [a!.peer, c!.peer]]);
    expect(texts([b!])).toEqual([[{ n: 1 }]]);
    expect([a!.sent.length, c!.sent.length]).toEqual([1, 1]);
  });

  it("is called once for a request, and receives the outcomes of all members", async () => {
    const calls: ServerCall[] = [];
    const results: unknown[] = [];
    await using world = await serverAround(async (call, next) => {
      if (call.direction === "incoming") return next();
      calls.push(call);
      const outcomes = await next();
      results.push(outcomes);
      return outcomes;
    });
    const { server } = world;
    const members = [await join(server, { ask: () => 1 }), await join(server, { ask: () => 2 })];
    for (const { peer } of members) server.topic("den").add(peer);
    const outcomes = await server.topic("den").request("ask", [0]);
    expect(outcomes).toMatchObject([{ value: 1 }, { value: 2 }]);
    expect(calls).toMatchObject([{ peer: undefined, topic: "den", method: "ask", isRequest: true, params: [0] }]);
    expect(results).toEqual([outcomes]);
    expect(results[0]).toBe(outcomes);
  });

  it("still has the peer of a call through one peer", async () => {
    const peers: unknown[] = [];
    await using world = await serverAround(({ peer }, next) => (peers.push(peer), next()));
    const [one] = joinDen(world.server, 1);
    one!.peer.notify("said");
    expect(peers).toEqual([one!.peer]);
  });

  it("may change the params, also in place, for all members", async () => {
    await using world = await serverAround((call, next) => {
      if (call.params.inPlace) call.params.by = "around";
      else call.params = { by: "around" };
      return next();
    });
    const { server } = world;
    const members = joinDen(server, 2);
    const topic = server.topic("den");
    topic.notify("said", { inPlace: true });
    topic.notify("said", {});
    const all = topic.request("ask", {}, { timeoutMs: 1 });
    const changed = [{ inPlace: true, by: "around" }, { by: "around" }, { by: "around" }];
    expect(texts(members)).toEqual([changed, changed]);
    await all;
  });

  it("may drop a message, and give the result of a request", async () => {
    await using world = await serverAround(() => "nothing was sent");
    const members = joinDen(world.server, 2);
    world.server.topic("den").notify("said");
    expect(await world.server.topic("den").request("ask")).toBe("nothing was sent");
    expect(texts(members)).toEqual([[], []]);
    expect(world.errors).toEqual([]);
  });

  it.each<[string, ServerAround]>([
    [
      "throws",
      () => {
        throw bug;
      },
    ],
    ["rejects", () => Promise.reject(bug)],
  ])("sends nothing if it %s: a notification emits `error`, and a request rejects", async (_how, around) => {
    await using world = await serverAround(around);
    const members = joinDen(world.server, 2);
    const topic = world.server.topic("den");
    topic.notify("said");
    await turn();
    expect(world.errors).toEqual([bug]);
    expect(await rejection(topic.request("ask"))).toBe(bug);
    expect(world.errors).toEqual([bug]);
    expect(texts(members)).toEqual([[], []]);
  });

  it("emits `error` if it sets params that cannot be encoded, and rejects a request", async () => {
    await using world = await serverAround((call, next) => ((call.params = 5), next()));
    const members = joinDen(world.server, 2);
    const topic = world.server.topic("den");
    topic.notify("said");
    await turn();
    expect(world.errors).toEqual([expect.any(TypeError)]);
    expect(await rejection(topic.request("ask"))).toBeInstanceOf(TypeError);
    expect(texts(members)).toEqual([[], []]);
  });

  it("is not called for params that cannot be encoded, which the caller of `notify` gets thrown", async () => {
    let calls = 0;
    await using world = await serverAround((_call, next) => (calls++, next()));
    const topic = world.server.topic("den");
    joinDen(world.server, 1);
    expect(() => topic.notify("said", 5)).toThrow(TypeError);
    expect(await rejection(topic.request("ask", 5))).toBeInstanceOf(TypeError);
    expect(calls).toBe(0);
  });

  it("is not called if no peer gets the message", async () => {
    let calls = 0;
    await using world = await serverAround((_call, next) => (calls++, next()));
    const topic = world.server.topic("den");
    topic.notify("said");
    expect(await topic.request("ask")).toEqual([]);
    const [only] = joinDen(world.server, 1);
    topic.notify("said", [], { except: only!.peer });
    expect(await topic.request("ask", [], { except: only!.peer })).toEqual([]);
    expect(calls).toBe(0);
  });

  it("has no peer that a volatile message is dropped for, and is not called if it is dropped for all", async () => {
    const calls: ServerCall[] = [];
    const open = gate();
    await using world = await serverAround(async (call, next) => (calls.push(call), await open.promise, next()));
    const behaviours = [{ unsentBytes: 2 ** 30 }, {}, {}];
    const [a, b, c] = behaviours.map((behaviour) => joinSilent(world.server, behaviour));
    world.server.peers.notify("moved", [1], { volatile: true, except: b!.peer });
    expect(calls).toMatchObject([{ peers: [c!.peer] }]);
    world.server.peers.notify("moved", [2], { volatile: true });
    expect(calls).toMatchObject([{ peers: [c!.peer] }, { peers: [b!.peer, c!.peer] }]);
    await c!.peer.close();
    world.server.topic("slow").add(a!.peer).notify("moved", [3], { volatile: true });
    expect(calls).toHaveLength(2);
    open.resolve();
    await turn();
    expect(texts([a!, b!])).toEqual([[], [[2]]]);
  });

  it("may await before next: the message goes to the members at the call that are still open", async () => {
    const open = gate();
    await using world = await serverAround(async (_call, next) => (await open.promise, next()));
    const { server } = world;
    const [stays, closes, leaves] = joinDen(server, 3);
    const topic = server.topic("den");
    topic.notify("said", [1]);
    const all = topic.request("ask", [2], { timeoutMs: 1 });
    await closes!.peer.close();
    topic.delete(leaves!.peer);
    const [joins] = joinDen(server, 1);
    expect(texts([stays!])).toEqual([[]]);
    open.resolve();
    expect((await all).map(({ peer, status }) => [peer, status])).toEqual(
      [stays, closes, leaves].map((member) => [member!.peer, "rejected"]),
    );
    expect(texts([stays!, closes!, leaves!, joins!])).toEqual([[[1], [2]], [], [[1], [2]], []]);
    expect(closes!.peer.stats().dropped).toBe(0);
  });

  it("sends again at each next", async () => {
    await using world = await serverAround(async (_call, next) => (await next(), next()));
    const members = joinDen(world.server, 2);
    world.server.topic("den").notify("said", [1]);
    await turn();
    expect(texts(members)).toEqual([
      [[1], [1]],
      [[1], [1]],
    ]);
  });

  it("leaves the drop of messages to slow readers as it is", async () => {
    await using world = await serverAround((_call, next) => next());
    const slow = joinSilent(world.server, { unsentBytes: 2 ** 30 });
    world.server.peers.notify("said");
    expect(slow.sent).toEqual([]);
    expect(slow.peer.stats()).toMatchObject({ dropped: 1, notificationsSent: 0 });
  });

  it("wraps a message to a topic over a network once, beside the calls of its members", async () => {
    const seen: unknown[] = [];
    const { server, url } = await serving({
      around: (call, next) => (seen.push([call.direction, call.method, call.peer === undefined]), next()),
      methods: { join: (_params, { peer }) => void server.topic("den").add(peer) },
    });
    const said = [gate<unknown>(), gate<unknown>()];
    const clients = await Promise.all(said.map(({ resolve }) => connect(url, { methods: { said: resolve } })));
    for (const client of clients) await client.request("join");
    server.topic("den").notify("said", { n: 1 });
    expect(await Promise.all(said.map(({ promise }) => promise))).toEqual([{ n: 1 }, { n: 1 }]);
    expect(seen).toEqual([
      ["incoming", "join", false],
      ["incoming", "join", false],
      ["outgoing", "said", true],
    ]);
    await Promise.all(clients.map((client) => client.close()));
  });
});
