/** Sessions of a server, over a network in memory. `test/session` tests their frames. */
import { describe, expect, it } from "vitest";
import type { AnyPeer, Server } from "../../src/node.js";
import { request } from "../support/raw.js";
import { pass } from "../support/time.js";
import { rejection } from "../support/turns.js";
import {
  begun,
  ByHand,
  connect,
  drop,
  emitted,
  nextPeer,
  REFUSED,
  RESUMED,
  serving,
  suspended,
  useTime,
  type Serving,
} from "./by-hand.js";

/**
 * Resolves when the server knows that the client has its token. The first response follows the token, and the second
 * call follows the ack.
 */
async function settled(client: AnyPeer): Promise<void> {
  for (let i = 0; i < 2; i++) await rejection(client.request("no-such-method"));
}

/** Admits clients with a cookie. The principal is the part before the dot: `ada.1` and `ada.2` are both ada. */
function named(options: object = {}): Promise<Serving<string>> {
  return serving<string>({
    authenticate: ({ headers }) => headers.cookie,
    principal: (cookie) => cookie.split(".")[0]!,
    ...options,
  });
}

describe("a client that resumes its session", () => {
  it("gets its peer with its auth, topics and place among the peers, and no `peer` event", async () => {
    const { server, url, cut } = await serving<{ user: string }>({
      authenticate: ({ headers }) => ({ user: String(headers.cookie) }),
      methods: { who: (_params, { peer }) => (peer.auth as { user: string }).user },
    });
    let newcomers = 0;
    server.on("peer", () => newcomers++);
    const coming = nextPeer(server);
    const client = await connect(url, { headers: { cookie: "ada" } });
    await settled(client);
    const peer = await coming;
    server.topic("room").add(peer);
    const [back, resumed] = [emitted(client, "resume"), emitted(peer, "resume")];
    let lost = 0;
    client.on("lost", () => lost++);
    cut();
    await Promise.all([back, resumed]);
    expect([...server.peers]).toEqual([peer]);
    expect([...server.topic("room")]).toEqual([peer]);
    expect(peer.auth).toEqual({ user: "ada" });
    expect(await client.request("who")).toBe("ada");
    expect({ newcomers, lost, state: peer.state }).toEqual({ newcomers: 1, lost: 0, state: "open" });
    expect(server.stats()).toMatchObject({ opened: 1, resumed: 1, peers: 1, suspended: 0 });
  });

  it("gets the messages of its topics and the broadcasts of the meantime, in order", async () => {
    const world = await serving();
    const { server, url } = world;
    const { peer, token } = await suspended(world);
    server.topic("room").add(peer);
    server.topic("room").notify("said", { n: 1 });
    server.peers.notify("said", { n: 2 });
    expect(peer.notify("said", { n: 3 })).toBe(true);
    const { byHand, answer } = await ByHand.resume(url, token, 1);
    expect(answer).toEqual(RESUMED);
    const said: { params: unknown }[] = [];
    while (said.length < 3) said.push(...(await byHand.next()));
    expect(said.map(({ params }) => params)).toEqual([{ n: 1 }, { n: 2 }, { n: 3 }]);
  });

  it("resumes at a server whose longest message is shorter than its `resume`", async () => {
    const { server, url, cut } = await serving({ limits: { maxMessageBytes: 50 }, methods: { add: () => 3 } });
    const client = await connect(url);
    for (let i = 0; i < 2; i++) expect(await client.request("add")).toBe(3);
    const back = emitted(client, "resume");
    cut();
    await back;
    expect(await client.request("add")).toBe(3);
    expect(server.stats()).toMatchObject({ opened: 1, resumed: 1 });
  });
});

describe("the principal", () => {
  it("resumes its own session, whatever else authenticate returns", async () => {
    const world = await named();
    const { peer, token } = await suspended(world, { cookie: "ada.1" });
    expect((await ByHand.resume(world.url, token, 1, { cookie: "ada.2" })).answer).toEqual(RESUMED);
    expect(peer.auth).toBe("ada.2");
  });

  it("cannot resume another principal's session, even with its token, and does not change that session", async () => {
    const world = await named();
    let refreshed = 0;
    world.server.on("refresh", () => refreshed++);
    const { peer, token } = await suspended(world, { cookie: "ada.1" });
    const { byHand, answer } = await ByHand.resume(world.url, token, 5, { cookie: "eve.1" });
    expect(answer).toEqual(REFUSED);
    expect([peer.state, peer.auth, refreshed]).toEqual(["suspended", "ada.1", 0]);
    // Its attempt number has not counted either.
    expect((await ByHand.resume(world.url, token, 1, { cookie: "ada.1" })).answer).toEqual(RESUMED);
    // Eve can begin a session of her own.
    await byHand.hello();
    expect(world.server.peers.size).toBe(2);
  });
});

describe("authenticate", () => {
  it("is called for each attempt, and a client that it refuses has ended", async () => {
    let asked = 0;
    let isBanned = false;
    const { server, url, cut } = await serving<object>({ authenticate: () => (asked++, isBanned ? null : {}) });
    const coming = nextPeer(server);
    const client = await connect(url);
    await settled(client);
    const peer = await coming;
    const back = emitted(client, "resume");
    cut();
    await back;
    expect(asked).toBe(2);
    isBanned = true;
    cut();
    expect(await client.closed).toMatchObject({ code: 4401 });
    expect(asked).toBe(3);
    // Its session stays suspended, unchanged, until an admitted client resumes it.
    expect(peer.state).toBe("suspended");
    expect(server.stats()).toMatchObject({ peers: 1, suspended: 1, refused: { 401: 1 } });
  });
});

describe("the option `session`", () => {
  it.each([
    [undefined, 60_000],
    [{}, 60_000],
    [{ ttlMs: 1_234 }, 1_234],
  ])("is sent to the client, 60 s by default: %j", async (session, ttlMs) => {
    const { url } = await serving({ session });
    const byHand = await ByHand.open(url);
    expect(await byHand.next()).toMatchObject({ hello: { session: { token: expect.any(String), ttlMs } } });
  });

  it.each([false, true])("is off if it is false: a peer ends with its socket, offer to resume %s", async (returns) => {
    const { server, url } = await serving({ session: false });
    const coming = nextPeer(server);
    const byHand = await ByHand.open(url, { returns });
    expect(await byHand.next()).toEqual({ hello: { bytes: true } });
    byHand.say({ hello: { session: true, limits: { maxMessageBytes: 1, logFrames: 1, logLength: 1 } } });
    byHand.say({ ping: 1 });
    expect(await byHand.next()).toEqual({ pong: 1 });
    byHand.cut();
    expect((await (await coming).closed).code).toBe(1006);
    expect(server.stats().suspended).toBe(0);
  });
});

describe("the time of a session", () => {
  useTime();

  it("makes no peer, and is closed if it sends nothing for handshakeTimeoutMs", async () => {
    const { server, url } = await serving({ limits: { handshakeTimeoutMs: 100 } });
    const mute = await ByHand.open(url, { returns: true });
    await pass(100);
    expect(await mute.closed).toEqual({ code: 4000, reason: "neither `resume` nor a hello came in time" });
    expect(server.stats()).toMatchObject({ opened: 0, peers: 0 });
  });

  it("ends a peer that stays suspended for longer, and the client begins a new session", async () => {
    const world = await serving({ session: { ttlMs: 50 } });
    const session = await suspended(world);
    const { token, peer } = session;
    await pass(49);
    expect(peer.state).toBe("suspended");
    await pass(1);
    expect(await peer.closed).toEqual({ code: 1006, reason: "the session was not resumed within 50 ms" });
    expect(world.server.stats()).toMatchObject({ peers: 0, suspended: 0, suspendedBytes: 0, closed: { 1006: 1 } });
    expect((await ByHand.resume(world.url, token, 1)).answer).toEqual(REFUSED);
  });

  it("ends a call that was sent as unknown when the session expires", async () => {
    const world = await serving({ session: { ttlMs: 1 } });
    const { byHand, peer } = await begun(world);
    const call = rejection(peer.request("never"));
    expect(await byHand.next()).toEqual([request(1, "never")]);
    await drop({ byHand, peer });
    await pass(1);
    expect(await call).toMatchObject({ code: "CONNECTION_LOST", outcome: "unknown" });
  });
});

describe("the limits of suspended sessions", () => {
  it("allows maxSuspendedPerPrincipal sessions of one principal, and ends its oldest beyond that", async () => {
    const world = await named({ limits: { maxSuspendedPerPrincipal: 2 } });
    const other = await suspended(world, { cookie: "eve" });
    const first = await suspended(world, { cookie: "ada.1" });
    const second = await suspended(world, { cookie: "ada.2" });
    const third = await suspended(world, { cookie: "ada.3" });
    expect((await first.peer.closed).code).toBe(1013);
    expect([other, second, third].map(({ peer }) => peer.state)).toEqual(["suspended", "suspended", "suspended"]);
    expect(world.server.stats()).toMatchObject({ suspended: 3, closed: { 1013: 1 } });
  });

  it.each<[string, (server: Server<any, any, any>, peer: AnyPeer) => unknown]>([
    ["notifications", (_server, peer) => peer.notify("said", ["x".repeat(1_000)])],
    [
      'broadcasts with `whenSlow: "close"`',
      ({ peers }) => peers.notify("said", ["x".repeat(1_000)], { whenSlow: "close" }),
    ],
  ])("allows half of maxUnsentBytes for each session, which more %s end", async (_what, notify) => {
    const world = await serving({ limits: { maxUnsentBytes: 40_000 } });
    const { peer, token } = await suspended(world);
    const call = rejection(peer.request("never"));
    let sent = 0;
    for (; peer.state !== "closed" && sent < 100; sent++) {
      notify(world.server, peer);
      await Promise.resolve();
    }
    expect(sent).toBeGreaterThan(10);
    expect(sent).toBeLessThan(25);
    expect(await peer.closed).toMatchObject({ code: 1013 });
    expect(peer.stats().dropped).toBe(0);
    expect(await call).toMatchObject({ outcome: "not-sent" });
    expect((await ByHand.resume(world.url, token, 1)).answer).toEqual(REFUSED);
  });

  it("drops broadcasts to a session beyond a quarter of its queue limit, which ends none", async () => {
    const world = await serving({ limits: { maxUnsentBytes: 40_000 } });
    const { peer } = await suspended(world);
    for (let i = 0; i < 30; i++) world.server.peers.notify("said", ["x".repeat(1_000)]);
    expect(peer.state).toBe("suspended");
    expect(peer.stats()).toMatchObject({ notificationsSent: 9, dropped: 21 });
  });
});
