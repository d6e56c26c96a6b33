import { once } from "node:events";
import type { IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import { describe, expect, it } from "vitest";
import type { AnyPeer } from "../../src/node.js";
import { bareHttp, sendUpgrade } from "../support/network.js";
import { notification } from "../support/raw.js";
import { gate, pass, rejection, timersSet, useVirtualClock } from "../support/time.js";
import {
  begun,
  ByHand,
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
const FAILED = { code: 4401, reason: "authentication failed" };

interface User {
  user: string;
  n?: number;
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

/** Opens a connection of a client that sends `auth`, with a session if the server keeps one. */
async function authenticated({ server, url }: Serving<User>, auth: unknown) {
  const coming = nextPeer(server);
  const byHand = await says(url, auth);
  const { session } = (await byHand.next()).hello;
  byHand.say({ hello: session === undefined ? {} : { session: true, limits: LIMITS } });
  byHand.say({ ping: 0 });
  expect(await byHand.next()).toEqual({ pong: 0 });
  return { byHand, peer: await coming, token: session?.token as string };
}

/** Opens a WebSocket that sends `auth` and then resumes a session. Returns the server's reply. */
async function resumes(url: string, auth: unknown, token: string, attempt = 1) {
  const byHand = await says(url, auth, { returns: true });
  expect(await byHand.next()).toEqual(OFFERS_SESSION);
  byHand.say({ resume: { token, received: 0, attempt, limits: LIMITS } });
  return { byHand, answer: await byHand.next() };
}

function refreshes({ server }: Serving<User>): unknown[] {
  const list: unknown[] = [];
  server.on("refresh", (peer, old) => list.push({ peer, auth: peer.auth, old }));
  return list;
}

/** Accepts the first `auth`, and never decides on a later one. */
function undecided(options: object = {}): Promise<Serving<User>> {
  let calls = 0;
  const authenticate = (_request: IncomingMessage, auth: unknown): unknown =>
    calls++ === 0 ? auth : new Promise(() => {});
  return users({ authenticate, ...options });
}

describe("a client that offers `auth`", () => {
  it.each([{ token: [1, "ä"] }, "", 0, false, null, undefined])(
    "is asked for it before it gets a token, and authenticate gets it with the upgrade request: %j",
    async (auth) => {
      const { server, url } = await serving<object>({
        authenticate: ({ headers }, given) => ({ page: headers["x-page"], given }),
      });
      const coming = nextPeer(server);
      const byHand = await says(url, auth, { headers: { "x-page": "7" } });
      expect(await byHand.next()).toEqual(OFFERS_SESSION);
      expect((await coming).auth).toEqual({ page: "7", given: auth });
    },
  );

  it.each([
    ["has no authenticate", {}, OFFERS_SESSION],
    ["has neither authenticate nor sessions", { session: false as const }, { hello: { bytes: true } }],
  ])("is not asked for it by a server that %s", async (_what, options, hello) => {
    const { url } = await serving(options);
    const byHand = await ByHand.open(url, { offersAuth: true });
    expect(await byHand.next()).toEqual(hello);
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
    ] as const)
      expect([offer, await statusOf(url, { "Sec-WebSocket-Protocol": offer })]).toEqual([offer, 101]);
    expect(calls).toEqual([[undefined], [undefined], [undefined], [undefined]]);
  });

  it("is refused by a bye and a close if authenticate rejects", async () => {
    const { server, url } = await serving<any>({ authenticate: () => Promise.reject(new Error("secret")) });
    const { errors } = recorded(server);
    const byHand = await says(url, "token");
    expect(await byHand.next()).toEqual({ bye: FAILED });
    expect(await byHand.closed).toEqual(FAILED);
    expect(errors).toHaveLength(1);
    expect(server.stats()).toMatchObject({ opened: 0, peers: 0, refused: { 401: 1 } });
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
    expect([ran, server.stats().opened]).toEqual([0, 0]);
  });

  it("can send 16 KiB in its hello and in a later `auth`, and is closed with 1009 for one byte more", async () => {
    const lengths: number[] = [];
    const world = await serving<any>({ authenticate: (_request, auth) => lengths.push((auth as string).length) });
    const most = 16_384 - '{"hello":{"auth":""}}'.length;
    expect((await (await says(world.url, "x".repeat(most + 1))).closed).code).toBe(1009);
    const { byHand } = await authenticated(world, "x".repeat(most));
    // The last character but one takes two bytes.
    const longest = `${"x".repeat(16_384 - '{"auth":"äx"}'.length - 1)}äx`;
    byHand.say({ auth: longest });
    expect(await byHand.next()).toEqual({ authenticated: true });
    byHand.say({ auth: `${longest}y` });
    expect((await byHand.closed).code).toBe(1009);
    expect(lengths).toEqual([most, longest.length]);
  });

  it("counts as a connection before it is accepted, and while its authenticate runs on after it has disconnected", async () => {
    const [open, asked] = [gate<object>(), gate()];
    const { server, url } = await serving<any>({
      authenticate: (_request, auth) => (auth === "slow" ? (asked.resolve(), open.promise) : {}),
      limits: { maxConnections: 1 },
    });
    const mute = await ByHand.open(url, { offersAuth: true });
    expect(await statusOf(url)).toBe(503);
    mute.cut();
    await expect.poll(() => statusOf(url)).toBe(101);
    await expect.poll(() => server.stats().peers).toBe(0);
    const byHand = await says(url, "slow");
    await asked.promise;
    byHand.cut();
    await byHand.closed;
    for (let i = 0; i < 5; i++) expect(await statusOf(url)).toBe(503);
    open.resolve({});
    await expect.poll(() => statusOf(url)).toBe(101);
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
    const late = await ByHand.open(world.url, { offersAuth: true });
    expect(await late.next()).toEqual(ASKS);
    for (const [i, user] of ["ada", "bob"].entries())
      expect((await resumes(world.url, { user }, sessions[i]!.token)).answer).toEqual(RESUMED);
    late.say({ hello: { auth: { user: "carl" } } });
    expect(await late.next()).toMatchObject({ bye: { code: 4503 } });
    expect(refusals).toEqual([expect.stringMatching(/^503 .*`limits.maxConnections`/)]);
  });
});

it("a client that offers `auth` over a socket is not read further than that, in fragments neither: it is closed once, and its socket is paused", async () => {
  await using http = await bareHttp();
  const { server } = await servingOnPort<any>({
    server: http.server,
    authenticate: () => ({}),
    limits: { maxMessageBytes: 2 ** 24 },
  });
  const connected = once(http.server, "connection") as Promise<[Socket]>;
  const socket = await sendUpgrade(http.url, { "Sec-WebSocket-Protocol": "reciproc.v1, reciproc.auth" });
  const [theirs] = await connected;
  const text = socket.toArray() as Promise<Buffer[]>;
  const [first, read] = [gate(), gate()];
  let bytes = 0;
  theirs.on("data", (part: Buffer) => {
    bytes += part.length;
    if (bytes > 18_000) first.resolve();
    if (bytes > 30_000) read.resolve();
  });
  // A masked fragment of 8 MiB that is not the last, of which a part comes.
  const head = Buffer.from([0x01, 0xff, 0, 0, 0, 0, 0, 0x80, 0, 0, 0, 0, 0, 0]);
  socket.write(Buffer.concat([head, Buffer.alloc(18_100)]));
  await first.promise;
  expect(theirs.isPaused()).toBe(true);
  // As the WebSocket may. Then more parts come.
  theirs.resume();
  socket.write(Buffer.alloc(14_000));
  await read.promise;
  expect(server.stats().opened).toBe(0);
  theirs.destroy();
  const frames = Buffer.concat(await text)
    .toString("latin1")
    .split("message is too large");
  expect(frames).toHaveLength(2);
});

it("a client that offers `auth` over a socket passed the checks of Origin and Host before it is asked", async () => {
  let asked = 0;
  const { url } = await servingOnPort<any>({ authenticate: () => ++asked });
  for (const headers of [{ Origin: "https://evil.example" }, { Host: "evil.example" }]) {
    const byHand = await ByHand.open(url, { offersAuth: true, headers });
    expect((await byHand.next()).bye.code).toBe(4403);
  }
  expect(asked).toBe(0);
});

describe("the time of a client that offers `auth`", () => {
  useVirtualClock();
  const limits = { handshakeTimeoutMs: 1_000 };

  it("is closed with 4000 if it does not send it within handshakeTimeoutMs, and with 4503 if authenticate takes longer", async () => {
    const world = await undecided({ limits });
    const { byHand: renewing } = await authenticated(world, { user: "ada" });
    renewing.say({ auth: { user: "ada" } });
    const silent = await ByHand.open(world.url, { offersAuth: true });
    const waiting = await says(world.url, "token");
    await pass(1_000);
    const closes = await Promise.all([silent, waiting, renewing].map(({ closed }) => closed));
    expect(closes.map(({ code }) => code)).toEqual([4000, 4503, 4503]);
    // The session continues: nothing was decided about its client.
    expect(renewing.unread).toEqual([]);
    expect(world.server.stats()).toMatchObject({ opened: 1, suspended: 1, refused: { 503: 2 } });
  });

  it("is closed with 1001 by a server that closes, while it is silent and while authenticate runs", async () => {
    const open = gate<object>();
    let calls = 0;
    const world = await users({
      authenticate: (_request: IncomingMessage, auth: unknown) => (calls++ ? open.promise : auth),
    });
    const { byHand: renewing } = await authenticated(world, { user: "ada" });
    renewing.say({ auth: { user: "ada" } });
    const mute = await ByHand.open(world.url, { offersAuth: true });
    const waiting = await says(world.url, "token");
    const refused = rejection(ByHand.open(world.url));
    await pass(0);
    expect(calls).toBe(4);
    await Promise.all([world.server.close(), refused]);
    expect([(await mute.closed).code, (await waiting.closed).code]).toEqual([1001, 1001]);
    // The timer of all deadlines stays for a moment. None of an authenticate does.
    await pass(1_000);
    expect(timersSet()).toBe(0);
    open.resolve({});
    await pass(0);
    expect(world.server.stats().opened).toBe(1);
  });

  it("waits for authenticate beyond `maxMessagesPerSecond`, which its messages share, and never runs it after a disconnect", async () => {
    const calls: unknown[] = [];
    const authenticate = (_request: IncomingMessage, auth: unknown): unknown => (calls.push(auth), auth);
    const methods = { ran: () => {} };
    const rate = { maxMessagesPerSecond: 10 };
    const world = await users({ authenticate, principal: () => "ada", methods, limits: rate, session: false });
    const { byHand, peer } = await authenticated(world, 1);
    byHand.say(Array.from({ length: 9 }, () => notification("ran")));
    byHand.say({ auth: 2 });
    expect(await byHand.next()).toEqual({ authenticated: true });
    byHand.say({ auth: 3 });
    await pass(99);
    expect(calls).toEqual([1, 2]);
    await pass(1);
    expect([await byHand.next(), calls]).toEqual([{ authenticated: true }, [1, 2, 3]]);
    byHand.say({ auth: 4 });
    await pass(0);
    byHand.cut();
    await pass(10_000);
    expect(calls).toEqual([1, 2, 3]);
    expect(peer.stats()).toMatchObject({ notificationsReceived: 9, refusedRate: 0 });
  });
});

it.each(["headers", "auth"])("resuming refreshes peer.auth by its %s, and the server emits `refresh`", async (way) => {
  const noted = gate<unknown>();
  const world = await serving<User>({
    authenticate: ({ headers }, auth) => (auth as User | undefined) ?? (JSON.parse(headers.cookie!) as User),
    principal: ({ user }) => user,
    methods: { note: (_params, { peer }: { peer: AnyPeer }) => noted.resolve(peer.auth) },
  });
  const [before, after] = [1, 2].map((n) => ({ user: "ada", n })) as [User, User];
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
  expect(await noted.promise).toEqual(after);
  expect(list).toEqual([{ peer: session.peer, auth: after, old: before }]);
  expect(session.peer.data).toBe(data);
  expect(data).toEqual({ room: "den" });
  expect(world.server.stats()).toMatchObject({ opened: 1, resumed: 1 });
});

describe("`auth` on an open connection", () => {
  it.each<[string, unknown, string]>([
    ["authenticate refuses it", { user: "eve" }, FAILED.reason],
    ["the principal would change", { user: "bob" }, "the `principal` of a connection cannot change"],
  ])("closes with 4401, and leaves peer.auth, if %s", async (_what, auth, reason) => {
    const world = await users();
    const { refusals } = recorded(world.server);
    const list = refreshes(world);
    const { byHand, peer, token } = await authenticated(world, { user: "ada" });
    const before = peer.auth;
    byHand.say({ auth });
    expect(await byHand.next()).toEqual({ bye: { code: 4401, reason } });
    expect(await byHand.closed).toEqual({ code: 4401, reason });
    expect(await peer.closed).toMatchObject({ code: 4401, reason });
    expect(peer.auth).toBe(before);
    expect(list).toEqual([]);
    expect(refusals).toEqual([`401 ${reason}`]);
    expect((await resumes(world.url, { user: "ada" }, token)).answer).toEqual(REFUSED);
  });

  it("closes with 1002 if another one comes before the reply", async () => {
    const { byHand } = await authenticated(await undecided(), { user: "ada" });
    byHand.say({ auth: 1 });
    byHand.say({ auth: 2 });
    expect(await byHand.closed).toEqual({ code: 1002, reason: "a second `auth` before the reply to the first" });
  });

  it("is ignored from a client that was authenticated by its request", async () => {
    let calls = 0;
    const world = await serving<any>({ authenticate: () => ++calls });
    // The first client never offers `auth`. The second one does at first, and not when it resumes.
    for (const session of [await begun(world), await authenticated(world, "token")]) {
      await drop(session);
      const { byHand, answer } = await ByHand.resume(world.url, session.token, 1);
      expect(answer).toEqual(RESUMED);
      byHand.say({ auth: "token" });
      byHand.say({ ping: 1 });
      expect(await byHand.next()).toEqual({ pong: 1 });
    }
    expect(calls).toBe(4);
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
