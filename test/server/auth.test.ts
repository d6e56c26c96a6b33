/** Clients that send `auth`: in their hello, when they resume, and on an open connection. */
import { once } from "node:events";
import type { IncomingMessage } from "node:http";
import { Duplex } from "node:stream";
import { expect, it, vi } from "vitest";
import { WebSocket } from "ws";
import type { Socket } from "../../src/link/socket.js";
import { type AnyPeer } from "../../src/node.js";
import { AuthArrivals, type AuthHooks } from "../../src/server/arrival.js";
import { MAX_AUTH_BYTES } from "../../src/server/link.js";
import { gate } from "../support/turns.js";
import {
  begun,
  ByHand,
  describeNetworks,
  drop,
  LIMITS,
  nextPeer,
  recorded,
  REFUSED,
  RESUMED,
  serving,
  servingOnPort,
  statusOf,
  type Serving,
} from "./by-hand.js";

const ASKS = { hello: { auth: true } };
const OFFERS_SESSION = {
  hello: { session: expect.objectContaining({ token: expect.any(String) as string }) as object, bytes: true },
};
const ACCEPTS = { hello: { session: true, limits: LIMITS } };

interface User {
  user: string;
  n?: number;
}

/** Returns a hello of that length. */
function helloOf(bytes: number): object {
  return { hello: { auth: "x".repeat(bytes - '{"hello":{"auth":""}}'.length) } };
}

/** Takes `{ user, n }` as `auth`, and refuses the user "eve". */
function users(options: object = {}): Promise<Serving<User>> {
  return serving<User>({
    authenticate: (_request, auth) => ((auth as User | undefined)?.user === "eve" ? null : (auth as User)),
    principal: ({ user }) => user,
    ...options,
  });
}

/** Opens a WebSocket that offers `auth`, reads the server's question, and sends `auth`. */
async function says(url: string, auth: unknown, options: object = {}): Promise<ByHand> {
  const byHand = await ByHand.open(url, { offersAuth: true, ...options });
  expect(await byHand.next()).toEqual(ASKS);
  byHand.say({ hello: { auth } });
  return byHand;
}

/** Opens a session of a client that sends `auth`. */
async function authenticated(
  { server, url }: Serving<User>,
  auth: unknown,
): Promise<{ byHand: ByHand; peer: AnyPeer; token: string }> {
  const coming = nextPeer(server);
  const byHand = await says(url, auth);
  const token = await byHand.hello();
  return { byHand, peer: await coming, token };
}

/** Opens a WebSocket that sends `auth` and then resumes a session. Returns the server's reply. */
async function resumes(
  url: string,
  auth: unknown,
  token: string,
  attempt = 1,
): Promise<{ byHand: ByHand; answer: any }> {
  const byHand = await says(url, auth, { returns: true });
  expect(await byHand.next()).toEqual(OFFERS_SESSION);
  byHand.say({ resume: { token, received: 0, attempt, limits: LIMITS } });
  return { byHand, answer: await byHand.next() };
}

/** Records the `refresh` events of a server. */
function refreshes({ server }: Serving<User>): unknown[] {
  const list: unknown[] = [];
  server.on("refresh", (peer, old) => list.push({ peer, auth: peer.auth, old }));
  return list;
}

describeNetworks("a client that offers `auth`", () => {
  it("is asked for it before it gets a token, and authenticate gets it with the upgrade request", async () => {
    const calls: unknown[] = [];
    const world = await serving<object>({
      authenticate: ({ headers }, auth) => (calls.push([headers["x-page"], auth]), { auth }),
    });
    const coming = nextPeer(world.server);
    const byHand = await says(world.url, { token: [1, "ä"] }, { headers: { "x-page": "7" } });
    expect(await byHand.next()).toEqual(OFFERS_SESSION);
    expect(calls).toEqual([["7", { token: [1, "ä"] }]]);
    expect((await coming).auth).toEqual({ auth: { token: [1, "ä"] } });
    byHand.say(ACCEPTS);
    byHand.say({ ping: 1 });
    expect(await byHand.next()).toEqual({ pong: 1 });
  });

  it("may have none: authenticate gets undefined", async () => {
    const world = await serving<object>({ authenticate: (_request, auth) => ({ auth }) });
    const coming = nextPeer(world.server);
    const byHand = await ByHand.open(world.url, { offersAuth: true });
    byHand.say({ hello: {} });
    expect((await coming).auth).toEqual({ auth: undefined });
  });

  it.each([
    ["has no authenticate", {}, OFFERS_SESSION],
    ["has neither authenticate nor sessions", { session: false as const }, { hello: { bytes: true } }],
  ])("is not asked for it by a server that %s", async (_what, options, hello) => {
    const { url } = await serving(options);
    const byHand = await ByHand.open(url, { offersAuth: true });
    expect(await byHand.next()).toEqual(hello);
  });

  it("begins a connection without a session on a server that keeps none", async () => {
    const world = await users({ session: false });
    const coming = nextPeer(world.server);
    const byHand = await says(world.url, { user: "ada" });
    expect(await byHand.next()).toEqual({ hello: { bytes: true } });
    expect((await coming).auth).toEqual({ user: "ada" });
  });

  it("is authenticated before the 101, with `auth` undefined, if it does not get reciproc.v1", async () => {
    const calls: unknown[] = [];
    const authenticate = (...given: unknown[]): object => (calls.push(given.slice(1)), {});
    const plain = await serving({ authenticate, link: "plain" });
    const packed = await serving({ authenticate });
    for (const [{ url }, offer] of [
      [plain, "reciproc.v1, reciproc.auth"],
      [packed, "reciproc.auth"],
      [packed, "reciproc.v1"],
      [packed, "reciproc.v1, reciproc.authority"],
    ] as const) {
      const status = await statusOf(url, { "Sec-WebSocket-Protocol": offer });
      expect([offer, status]).toEqual([offer, 101]);
    }
    expect(calls).toEqual([[undefined], [undefined], [undefined], [undefined]]);
  });

  it.each<[string, () => unknown, { code: number; reason: string }, number]>([
    ["returns null", () => null, { code: 4401, reason: "authentication failed" }, 0],
    ["returns undefined", () => undefined, { code: 4401, reason: "authentication failed" }, 0],
    ["returns a promise of false", async () => false, { code: 4401, reason: "authentication failed" }, 0],
    ["returns an empty string", () => "", { code: 4401, reason: "authentication failed" }, 0],
    ["returns a promise of 0", async () => 0, { code: 4401, reason: "authentication failed" }, 0],
    ["returns NaN", () => NaN, { code: 4401, reason: "authentication failed" }, 0],
    [
      "throws",
      () => {
        throw new Error("secret");
      },
      { code: 4401, reason: "authentication failed" },
      1,
    ],
    ["rejects", () => Promise.reject(new Error("secret")), { code: 4401, reason: "authentication failed" }, 1],
    [
      "takes too long",
      () => new Promise(() => {}),
      { code: 4503, reason: "authentication took longer than 1000 ms" },
      0,
    ],
  ])("is refused by a bye and a close if authenticate %s", async (_what, authenticate, bye, thrown) => {
    const { server, url } = await serving<any>({ authenticate, limits: { handshakeTimeoutMs: 1_000 } });
    const { refusals, errors } = recorded(server);
    const byHand = await says(url, "token");
    expect(await byHand.next()).toEqual({ bye });
    expect(await byHand.closed).toEqual(bye);
    expect(refusals).toEqual([`${bye.code - 4000} ${bye.reason}`]);
    expect(errors).toHaveLength(thrown);
    expect(server.stats()).toMatchObject({ opened: 0, peers: 0, refused: { [bye.code - 4000]: 1 } });
  });

  it.each<[string, object[]]>([
    ["a message first", [{ jsonrpc: "2.0", id: 1, method: "ran" }]],
    ["a pack first", [[{ jsonrpc: "2.0", id: 1, method: "ran" }]]],
    ["`resume` first", [{ resume: { token: "x", received: 0, attempt: 1, limits: LIMITS } }]],
    ["`auth` without a hello", [{ auth: { user: "ada" } }]],
    ["a second frame before it is accepted", [{ hello: { auth: {} } }, { hello: { auth: {} } }]],
  ])("is closed with 1002 if it sends %s, and nothing runs", async (_what, frames) => {
    let ran = 0;
    const { server, url } = await serving<any>({
      authenticate: () => new Promise(() => {}),
      methods: { ran: () => ran++ },
    });
    const byHand = await ByHand.open(url, { offersAuth: true });
    for (const frame of frames) byHand.say(frame);
    expect(await byHand.closed).toEqual({ code: 1002, reason: "not one hello with `auth`" });
    expect(ran).toBe(0);
    expect(server.stats().opened).toBe(0);
  });

  it("can send a hello of 16 KiB, and is closed with 1009 for one byte more", async () => {
    const lengths: number[] = [];
    const { url } = await serving<any>({
      authenticate: (_request, auth) => lengths.push((auth as string).length),
      limits: { maxMessageBytes: 2 ** 20 },
    });
    const most = await ByHand.open(url, { offersAuth: true });
    most.say(helloOf(16_384));
    expect([await most.next(), await most.next()]).toEqual([ASKS, OFFERS_SESSION]);
    const more = await ByHand.open(url, { offersAuth: true });
    more.say(helloOf(16_385));
    expect(await more.closed).toEqual({ code: 1009, reason: "message is too large" });
    expect(lengths).toEqual([16_384 - '{"hello":{"auth":""}}'.length]);
  });

  it("is not read further than that, in fragments neither", async () => {
    const { server, url } = await servingOnPort<any>({
      authenticate: () => ({}),
      limits: { maxMessageBytes: 2 ** 24 },
    });
    const webSocket = new WebSocket(url, ["reciproc.v1", "reciproc.auth"]);
    await once(webSocket, "open");
    const closed = once(webSocket, "close") as Promise<[number]>;
    let sent = 0;
    webSocket.send('{"hello":{"auth":"', { fin: false });
    const more = (): void => {
      if (webSocket.readyState !== WebSocket.OPEN || sent >= 2 ** 24 - 2 ** 16) return;
      sent += 1024;
      webSocket.send("x".repeat(1024), { fin: false }, more);
    };
    more();
    expect((await closed)[0]).toBe(1009);
    expect(sent).toBeLessThan(2 ** 23);
    expect(server.stats().opened).toBe(0);
  });

  it("is closed once if more of its bytes come in parts, and each part pauses its socket", () => {
    const raw = new Duplex({ read() {}, write() {} });
    const closes: unknown[] = [];
    const socket = {
      start() {},
      send: () => true,
      close: (...given: unknown[]) => closes.push(given),
      maxFrameBytes: 0,
    };
    const arrivals = new AuthArrivals(60_000);
    arrivals.take(socket as unknown as Socket, raw, {} as AuthHooks);
    raw.emit("data", Buffer.alloc(MAX_AUTH_BYTES));
    expect(closes).toEqual([]);
    for (let i = 0; i < 3; i++) {
      raw.emit("data", Buffer.alloc(2048));
      expect(raw.isPaused()).toBe(true);
      raw.resume();
    }
    expect(closes).toEqual([[1009, "message is too large"]]);
    raw.destroy();
  });

  it("is closed with 4000 if it does not send it within handshakeTimeoutMs", async () => {
    const { server, url } = await serving<any>({ authenticate: () => ({}), limits: { handshakeTimeoutMs: 50 } });
    const byHand = await ByHand.open(url, { offersAuth: true });
    expect(await byHand.closed).toEqual({ code: 4000, reason: "no `auth` came in time" });
    expect(server.stats().opened).toBe(0);
  });

  it("passed the checks of Origin and Host before it is asked", async () => {
    let asked = 0;
    const { url } = await servingOnPort<any>({ authenticate: () => ++asked });
    for (const headers of [{ Origin: "https://evil.example" }, { Host: "evil.example" }]) {
      const byHand = await ByHand.open(url, { offersAuth: true, headers });
      expect((await byHand.next()).bye.code).toBe(4403);
    }
    expect(asked).toBe(0);
  });

  it("counts as a connection before it is accepted", async () => {
    const { url } = await serving<any>({ authenticate: () => ({}), limits: { maxConnections: 2 } });
    const mute = await ByHand.open(url, { offersAuth: true });
    await ByHand.open(url, { offersAuth: true });
    expect(await statusOf(url)).toBe(503);
    mute.cut();
    await vi.waitFor(async () => expect(await statusOf(url)).toBe(101));
  });

  it("counts as a connection while its authenticate runs on after it has disconnected", async () => {
    const open = gate<object>();
    const asked = gate();
    const { url } = await serving<any>({
      authenticate: (_request, auth) => (auth === "slow" ? (asked.resolve(), open.promise) : {}),
      limits: { maxConnections: 1 },
    });
    const byHand = await says(url, "slow");
    await asked.promise;
    byHand.cut();
    await byHand.closed;
    for (let i = 0; i < 5; i++) expect(await statusOf(url)).toBe(503);
    open.resolve({});
    await vi.waitFor(async () => expect(await statusOf(url)).toBe(101));
  });

  it("evicts no session before it is accepted, and then gets its slot", async () => {
    const world = await users({ limits: { maxConnections: 1 } });
    const suspended = await authenticated(world, { user: "ada" });
    await drop(suspended);
    const eve = await says(world.url, { user: "eve" });
    expect((await eve.closed).code).toBe(4401);
    expect(suspended.peer.state).toBe("suspended");
    const bob = await says(world.url, { user: "bob" });
    expect(await bob.next()).toEqual(OFFERS_SESSION);
    expect((await suspended.peer.closed).code).toBe(1013);
  });

  it("is refused with 4503 if every slot has a socket when it is accepted", async () => {
    const world = await users({ limits: { maxConnections: 2 } });
    const { refusals } = recorded(world.server);
    const sessions = [await authenticated(world, { user: "ada" }), await authenticated(world, { user: "bob" })];
    for (const session of sessions) await drop(session);
    const undecided = await ByHand.open(world.url, { offersAuth: true });
    expect(await undecided.next()).toEqual(ASKS);
    for (const [i, user] of ["ada", "bob"].entries())
      expect((await resumes(world.url, { user }, sessions[i]!.token)).answer).toEqual(RESUMED);
    undecided.say({ hello: { auth: { user: "carl" } } });
    const reason = "`limits.maxConnections`, 2, is reached";
    expect(await undecided.next()).toEqual({ bye: { code: 4503, reason } });
    expect(await undecided.closed).toEqual({ code: 4503, reason });
    expect(refusals).toEqual([`503 ${reason}`]);
  });

  it("is closed with 1001 by a server that closes, while it is silent and while authenticate runs", async () => {
    const asked = gate();
    const open = gate<object>();
    const { server, url } = await serving<any>({ authenticate: () => (asked.resolve(), open.promise) });
    const mute = await ByHand.open(url, { offersAuth: true });
    const waiting = await says(url, "token");
    await asked.promise;
    const closing = server.close();
    const end = { code: 1001, reason: "the server is closing" };
    expect([await mute.closed, await waiting.closed]).toEqual([end, end]);
    open.resolve({});
    await closing;
    expect(server.stats().opened).toBe(0);
  });
});

describeNetworks("a client that resumes", () => {
  it.each(["headers", "auth"])("refreshes peer.auth by its %s, and the server emits `refresh`", async (way) => {
    const seen: unknown[] = [];
    const world = await serving<User>({
      authenticate: ({ headers }, auth) => (auth as User | undefined) ?? (JSON.parse(headers.cookie!) as User),
      principal: ({ user }) => user,
      methods: { note: (_params, { peer }: { peer: AnyPeer }) => seen.push(peer.auth) },
    });
    const [before, after] = [
      { user: "ada", n: 1 },
      { user: "ada", n: 2 },
    ];
    const list = refreshes(world);
    const session =
      way === "auth" ? await authenticated(world, before) : await begun(world, { cookie: JSON.stringify(before) });
    const { data } = session.peer;
    data["room"] = "den";
    await drop(session);
    const { byHand, answer } =
      way === "auth"
        ? await resumes(world.url, after, session.token)
        : await ByHand.resume(world.url, session.token, 1, { cookie: JSON.stringify(after) });
    expect(answer).toEqual(RESUMED);
    byHand.say([{ jsonrpc: "2.0", method: "note" }]);
    await vi.waitFor(() => expect(seen).toEqual([after]));
    expect(list).toEqual([{ peer: session.peer, auth: after, old: before }]);
    expect(session.peer.data).toBe(data);
    expect(data).toEqual({ room: "den" });
    expect(world.server.stats()).toMatchObject({ opened: 1, resumed: 1 });
  });

  it("cannot resume the session of another principal, which stays as it is, and begins its own", async () => {
    const world = await users();
    const list = refreshes(world);
    const session = await authenticated(world, { user: "ada" });
    await drop(session);
    const { byHand, answer } = await resumes(world.url, { user: "bob" }, session.token);
    expect(answer).toEqual(REFUSED);
    expect(session.peer.auth).toEqual({ user: "ada" });
    expect(session.peer.state).toBe("suspended");
    expect(list).toEqual([]);
    await byHand.hello();
    expect(world.server.peers.size).toBe(2);
  });

  it("and is refused leaves its session suspended", async () => {
    const world = await users();
    const session = await authenticated(world, { user: "ada" });
    await drop(session);
    const byHand = await says(world.url, { user: "eve" }, { returns: true });
    expect((await byHand.next()).bye.code).toBe(4401);
    expect(session.peer.state).toBe("suspended");
    expect(session.peer.auth).toEqual({ user: "ada" });
  });

  it.each(["", 0, false])(
    "is refused if authenticate returns %j, which the client sent as its `auth`",
    async (empty) => {
      const world = await serving<any>({ authenticate: (_request, auth) => auth && { auth } });
      const session = await authenticated(world, "token");
      await drop(session);
      const byHand = await says(world.url, empty, { returns: true });
      expect((await byHand.next()).bye.code).toBe(4401);
      expect(session.peer.state).toBe("suspended");
      expect(session.peer.auth).toEqual({ auth: "token" });
    },
  );

  it("keeps peer.data, and emits no `refresh` on a server without authenticate", async () => {
    const world = await serving<any>();
    const list: unknown[] = [];
    world.server.on("refresh", (...given) => list.push(given));
    const session = await begun(world);
    session.peer.data["name"] = "mine";
    await drop(session);
    expect((await ByHand.resume(world.url, session.token, 1)).answer).toEqual(RESUMED);
    expect(session.peer.data).toEqual({ name: "mine" });
    expect(session.peer.auth).toBeUndefined();
    expect(list).toEqual([]);
  });
});

describeNetworks("`auth` on an open connection", () => {
  it.each([{}, { session: false as const }])("refreshes peer.auth, with the options %j", async (options) => {
    const world = await users(options);
    const list = refreshes(world);
    const { byHand, peer } = await authenticatedWith(world, { user: "ada", n: 1 });
    const { data } = peer;
    byHand.say({ auth: { user: "ada", n: 2 } });
    expect(await byHand.next()).toEqual({ authenticated: true });
    expect(peer.data).toBe(data);
    expect(list).toEqual([{ peer, auth: { user: "ada", n: 2 }, old: { user: "ada", n: 1 } }]);
    byHand.say({ auth: { user: "ada", n: 3 } });
    expect(await byHand.next()).toEqual({ authenticated: true });
    expect(peer.auth).toEqual({ user: "ada", n: 3 });
  });

  it.each([
    ["authenticate refuses it", { user: "eve" }, "authentication failed"],
    ["the principal would change", { user: "bob" }, "the `principal` of a connection cannot change"],
  ])("closes with 4401, and leaves peer.auth, if %s", async (_what, auth, reason) => {
    const world = await users();
    const { refusals } = recorded(world.server);
    const list = refreshes(world);
    const { byHand, peer, token } = await authenticated(world, { user: "ada" });
    byHand.say({ auth });
    expect(await byHand.next()).toEqual({ bye: { code: 4401, reason } });
    expect(await byHand.closed).toEqual({ code: 4401, reason });
    expect(await peer.closed).toMatchObject({ code: 4401, reason });
    expect(peer.auth).toEqual({ user: "ada" });
    expect(list).toEqual([]);
    expect(refusals).toEqual([`401 ${reason}`]);
    expect((await resumes(world.url, { user: "ada" }, token)).answer).toEqual(REFUSED);
  });

  it.each(["", 0, false])("closes with 4401 if authenticate returns %j, which the client sent", async (empty) => {
    const world = await serving<any>({ authenticate: (_request, auth) => auth && { auth } });
    const { byHand, peer } = await authenticated(world, "token");
    byHand.say({ auth: empty });
    expect(await byHand.closed).toEqual({ code: 4401, reason: "authentication failed" });
    expect(peer.auth).toEqual({ auth: "token" });
  });

  it("closes with 4503 if authenticate takes too long", async () => {
    let calls = 0;
    const world = await users({
      authenticate: (_request: IncomingMessage, auth: unknown) => (calls++ === 0 ? auth : new Promise(() => {})),
      limits: { handshakeTimeoutMs: 1_000 },
    });
    const { byHand } = await authenticated(world, { user: "ada" });
    byHand.say({ auth: { user: "ada" } });
    expect(await byHand.closed).toMatchObject({ code: 4503 });
  });

  it.each([
    ["ASCII", "x"],
    ["two bytes a character", "ä"],
  ])("may be a frame of 16 KiB, and closes with 1009 for one byte more: %s", async (_what, letter) => {
    const lengths: number[] = [];
    const world = await serving<any>({
      authenticate: (_request, auth) => lengths.push(Buffer.byteLength(String(auth))),
      limits: { maxMessageBytes: 2 ** 20 },
    });
    const { byHand, peer } = await authenticated(world, "first");
    const most = 16_384 - '{"auth":""}'.length;
    const odd = "y".repeat(most % Buffer.byteLength(letter));
    const longest = odd + letter.repeat((most - odd.length) / Buffer.byteLength(letter));
    byHand.say({ auth: longest });
    expect(await byHand.next()).toEqual({ authenticated: true });
    byHand.say({ auth: `${longest}y` });
    expect(await byHand.closed).toEqual({ code: 1009, reason: "message is too large" });
    expect(await peer.closed).toMatchObject({ code: 1009 });
    expect(lengths).toEqual(["first".length, most]);
  });

  it("closes with 1002 if another one comes before the reply", async () => {
    let calls = 0;
    const world = await users({
      authenticate: (_request: IncomingMessage, auth: unknown) => (calls++ === 0 ? auth : new Promise(() => {})),
    });
    const { byHand } = await authenticated(world, { user: "ada" });
    byHand.say({ auth: 1 });
    byHand.say({ auth: 2 });
    expect(await byHand.closed).toEqual({ code: 1002, reason: "a second `auth` before the reply to the first" });
    expect(calls).toBe(2);
  });

  it("is ignored from a client that was authenticated by its request", async () => {
    let calls = 0;
    const world = await serving<any>({ authenticate: () => ++calls });
    const { byHand, token, peer } = await begun(world);
    byHand.say({ auth: "token" });
    byHand.say({ ping: 1 });
    expect(await byHand.next()).toEqual({ pong: 1 });
    await drop({ byHand, peer });
    const { byHand: back } = await ByHand.resume(world.url, token, 1);
    back.say({ auth: "token" });
    back.say({ ping: 2 });
    expect(await back.next()).toEqual({ pong: 2 });
    expect(calls).toBe(2);
  });

  it("is ignored after a resume whose client did not offer it", async () => {
    let calls = 0;
    const world = await serving<any>({ authenticate: () => ++calls });
    const session = await authenticated(world, "token");
    await drop(session);
    const { byHand, answer } = await ByHand.resume(world.url, session.token, 1);
    expect(answer).toEqual(RESUMED);
    byHand.say({ auth: "token" });
    byHand.say({ ping: 1 });
    expect(await byHand.next()).toEqual({ pong: 1 });
    expect(calls).toBe(2);
  });

  it("has no effect if its socket was lost before authenticate ended", async () => {
    const verdicts = [gate<unknown>(), gate<unknown>()];
    const asked = [gate(), gate()];
    let slow = 0;
    const world = await users({
      authenticate: (_request: IncomingMessage, auth: unknown) => {
        if (auth !== "slow") return auth;
        asked[slow]!.resolve();
        return verdicts[slow++]!.promise;
      },
    });
    const list = refreshes(world);
    const session = await authenticated(world, { user: "ada", n: 1 });
    session.byHand.say({ auth: "slow" });
    await asked[0]!.promise;
    await drop(session);
    // Refused while the session is suspended: the client is authenticated when it resumes.
    verdicts[0]!.resolve(null);
    const { byHand: back, answer } = await resumes(world.url, { user: "ada", n: 2 }, session.token);
    expect(answer).toEqual(RESUMED);
    expect(session.peer.auth).toEqual({ user: "ada", n: 2 });
    // Accepted after the client has resumed over another socket.
    back.say({ auth: "slow" });
    await asked[1]!.promise;
    const { byHand: third } = await resumes(world.url, { user: "ada", n: 3 }, answer.resumed.token, 2);
    verdicts[1]!.resolve({ user: "ada", n: 99 });
    third.say({ auth: { user: "ada", n: 4 } });
    expect(await third.next()).toEqual({ authenticated: true });
    expect(session.peer.auth).toEqual({ user: "ada", n: 4 });
    expect(list.map((one) => (one as { auth: User }).auth.n)).toEqual([2, 3, 4]);
  });
});

/** As `authenticated`, also on a server without sessions. */
async function authenticatedWith(world: Serving<User>, auth: User): Promise<{ byHand: ByHand; peer: AnyPeer }> {
  const coming = nextPeer(world.server);
  const byHand = await says(world.url, auth);
  byHand.say((await byHand.next()).hello.session === undefined ? { hello: {} } : ACCEPTS);
  return { byHand, peer: await coming };
}
