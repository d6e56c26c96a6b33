/** Which clients get a connection slot of a full server, mostly over a network in memory. */
import type { Socket } from "node:net";
import { describe, expect, it } from "vitest";
import { plain } from "../../src/link/plain.js";
import { connect, lsp, mcp, serve, type AnyPeer } from "../../src/node.js";
import { memorySockets } from "../../src/sockets/memory.js";
import { bareHttp, upgrade } from "../support/network.js";
import { post as postTo } from "../support/post.js";
import { request } from "../support/raw.js";
import { gate } from "../support/turns.js";
import {
  begun,
  ByHand,
  drop,
  emitted,
  LIMITS,
  nextPeer,
  REFUSED,
  RESUMED,
  serving,
  servingOnPort,
  statusOf,
  suspended,
} from "./by-hand.js";

/** Returns the close of a session that a new client evicted, on a server with this many slots. */
function evicted(maxConnections: number): object {
  const reason = `a new client needed the slot: \`limits.maxConnections\`, ${maxConnections}, is reached`;
  return { code: 1013, reason };
}

/** Returns the status of a POST. */
async function post(url: string, headers?: Record<string, string>): Promise<number> {
  return (await postTo(url, request(1, "one"), headers)).status;
}

describe("a new client of a full server", () => {
  it("gets the slot of the session that was suspended first, which closes with the reason", async () => {
    const world = await serving({ limits: { maxConnections: 2 } });
    const { server, url } = world;
    const one = await suspended(world);
    const two = await suspended(world);
    const { byHand, peer } = await begun(world);
    expect(peer.state).toBe("open");
    expect(await one.peer.closed).toEqual(evicted(2));
    expect(two.peer.state).toBe("suspended");
    expect(server.stats()).toMatchObject({ peers: 2, suspended: 1, closed: { 1013: 1 }, refused: {} });
    // Its client learns that when it tries to resume, and then counts as a new client: now the other session is the
    // oldest.
    const { byHand: late, answer } = await ByHand.resume(url, one.token, 1);
    expect(answer).toEqual(REFUSED);
    expect(two.peer.state).toBe("suspended");
    await late.hello();
    expect(await two.peer.closed).toEqual(evicted(2));
    byHand.cut();
    late.cut();
  });

  it("is refused with 503 when every slot has a socket, and ends nothing", async () => {
    const world = await servingOnPort({ limits: { maxConnections: 2 } });
    const { server, url } = world;
    const { peer } = await suspended(world);
    await ByHand.begin(url);
    await ByHand.begin(url);
    expect(await peer.closed).toEqual(evicted(2));
    expect((await upgrade(url)).status).toBe(503);
    expect(await (await ByHand.open(url)).next()).toMatchObject({ bye: { code: 4503 } });
    expect(await post(url)).toBe(503);
    expect(server.stats()).toMatchObject({ peers: 2, suspended: 0, refused: { 503: 3 } });
  });

  it("can be a POST, which gets a slot for as long as it runs", async () => {
    const world = await servingOnPort({ limits: { maxConnections: 2 }, methods: { one: () => 1 } });
    const first = await suspended(world);
    const second = await suspended(world);
    for (let i = 0; i < 5; i++) expect(await post(world.url)).toBe(200);
    expect(await first.peer.closed).toEqual(evicted(2));
    expect(second.peer.state).toBe("suspended");
  });

  it("evicts nothing before it is admitted: not for a bad origin, without authentication, nor while a body is due", async () => {
    const asked = gate();
    const open = gate<null>();
    const world = await servingOnPort<string>({
      authenticate: ({ headers }) => (headers.cookie === "later" ? (asked.resolve(), open.promise) : headers.cookie),
      limits: { maxConnections: 1 },
    });
    const { peer } = await suspended(world, { cookie: "ada" });
    const forged = { origin: "https://evil.example", cookie: "eve" };
    expect((await upgrade(world.url, forged)).status).toBe(403);
    expect((await upgrade(world.url)).status).toBe(401);
    for (const offered of ["a,a", "reciproc.v1\u00a0"])
      expect((await upgrade(world.url, { cookie: "ada", "Sec-WebSocket-Protocol": offered })).status).toBe(400);
    expect(await post(world.url)).toBe(401);
    const late = upgrade(world.url, { cookie: "later" });
    await asked.promise;
    expect(peer.state).toBe("suspended");
    open.resolve(null);
    expect((await late).status).toBe(401);
    expect(peer.state).toBe("suspended");
    await ByHand.begin(world.url, { cookie: "ada" });
    expect(await peer.closed).toEqual(evicted(1));
  });
});

describe("limits.maxConnections", () => {
  it("counts a client that offers to resume and begins a new session, however often it does", async () => {
    const { server, url } = await serving({ limits: { maxConnections: 3 } });
    const peers: AnyPeer[] = [];
    server.on("peer", (peer) => peers.push(peer));
    for (let i = 0; i < 10; i++) {
      const byHand = await ByHand.open(url, { returns: true });
      await byHand.hello();
      await drop({ byHand, peer: peers[i]! });
      expect(server.stats().peers).toBeLessThanOrEqual(3);
    }
    expect(server.stats()).toMatchObject({ opened: 10, peers: 3, suspended: 3, closed: { 1013: 7 } });
    expect(peers.map(({ state }) => state).lastIndexOf("closed")).toBe(6);
  });

  it.each<[string, (url: string, offer: Record<string, string>) => Promise<number>, number, string]>([
    ["a WebSocket", async (url, offer) => (await upgrade(url, offer)).status, 101, "reciproc.resume"],
    [
      "another dialect",
      async (url, offer) => (await upgrade(url, offer)).status,
      101,
      "mcp, reciproc.v1, reciproc.resume",
    ],
    ["a POST", post, 200, "reciproc.v1, reciproc.resume"],
  ])("counts a client that offers to resume over a link without sessions: %s", async (_what, open, status, offered) => {
    const methods = { one: () => 1 };
    const world = await servingOnPort({ limits: { maxConnections: 1 }, dialect: [lsp, mcp], methods });
    const { peer } = await suspended(world);
    expect(await open(world.url, { "Sec-WebSocket-Protocol": offered })).toBe(status);
    expect(await peer.closed).toEqual(evicted(1));
  });

  it.each([
    ["says hello", { hello: {} }, "with a bye"],
    // The client keeps its session, which another server behind the same address may know.
    [
      "resumes an unknown session",
      { resume: { token: "never-given", received: 0, attempt: 1, limits: LIMITS } },
      "without one",
    ],
  ])(
    "closes with 4503 a client that offered to resume and %s where every slot has a socket",
    async (_what, first, how) => {
      const { server, url } = await serving({ limits: { maxConnections: 1 } });
      const refusals: unknown[] = [];
      server.on("refuse", (refusal) => refusals.push(refusal));
      await ByHand.begin(url);
      const byHand = await ByHand.open(url, { returns: true });
      expect(await byHand.next()).toMatchObject({ hello: { session: { ttlMs: 60_000 } } });
      byHand.say(first);
      const reason = "`limits.maxConnections`, 1, is reached";
      expect(await byHand.closed).toEqual({ code: 4503, reason });
      expect(byHand.unread).toEqual(how === "with a bye" ? [{ bye: { code: 4503, reason } }] : []);
      expect(refusals).toEqual([{ status: 503, reason }]);
      expect(server.stats()).toMatchObject({ opened: 1, peers: 1, refused: { 503: 1 } });
    },
  );

  it("lets a client resume over a new socket, though every slot has a socket and its old one is not known to be dead", async () => {
    const { server, url } = await serving({ limits: { maxConnections: 2 } });
    const first = await ByHand.begin(url);
    const second = await ByHand.begin(url);
    expect(await statusOf(url)).toBe(503);
    for (const { byHand, token } of [first, second]) {
      expect((await ByHand.resume(url, token, 1)).answer).toEqual(RESUMED);
      expect(await byHand.closed).toMatchObject({ code: 4000 });
    }
    expect(server.stats()).toMatchObject({ opened: 2, peers: 2, resumed: 2, closed: {} });
  });

  it("limits the sockets that have sent neither hello nor `resume`, by the sessions with a socket", async () => {
    const { server, url } = await serving({ limits: { maxConnections: 3 } });
    await ByHand.begin(url);
    await ByHand.begin(url);
    const third = await ByHand.open(url);
    third.say({ hello: {} });
    third.say({ ping: 1 });
    while ((await third.next()).pong !== 1);
    for (let i = 0; i < 2; i++)
      expect(await (await ByHand.open(url, { returns: true })).next()).toHaveProperty("hello");
    expect(await (await ByHand.open(url, { returns: true })).next()).toMatchObject({ bye: { code: 4503 } });
    expect(server.stats().peers).toBe(3);
  });

  it("does not count peers of the application's own transports", async () => {
    const world = await serving({ limits: { maxConnections: 1 } });
    const { server, url } = world;
    const [near] = memorySockets(2 ** 20, 2 ** 20);
    const own = server.accept(plain(near), undefined);
    const session = await begun(world);
    expect(server.stats().peers).toBe(2);
    await drop(session);
    await own.close();
    expect(server.stats()).toMatchObject({ peers: 1, suspended: 1 });
    await ByHand.begin(url);
    expect(server.stats()).toMatchObject({ peers: 1, suspended: 0 });
  });

  it("refuses a client whose session was evicted until a slot is free, and then admits it", async () => {
    await using http = await bareHttp();
    await using server = await serve({ noServer: true, limits: { maxConnections: 1 }, methods: { one: () => 1 } });
    let isReachable = true;
    http.server.on("upgrade", (asking, socket, head: Buffer) => {
      const returns = asking.headers["sec-websocket-protocol"]?.includes("reciproc.resume") === true;
      if (returns && !isReachable) socket.destroy();
      else server.handleUpgrade(asking, socket, head);
    });
    const connected = new Promise<Socket>((resolve) => void http.server.once("connection", resolve));
    const coming = nextPeer(server);
    await using client = await connect(http.url);
    for (let i = 0; i < 2; i++) expect(await client.request("one")).toBe(1);
    const gone = emitted(await coming, "suspend");
    isReachable = false;
    (await connected).destroy();
    await gone;
    const { byHand } = await ByHand.begin(http.url);
    const refused = new Promise((resolve) => void server.once("refuse", resolve));
    const seen: string[] = [];
    for (const event of ["lost", "resume"] as const) client.on(event, () => seen.push(event));
    isReachable = true;
    await refused;
    expect(seen).toEqual([]);
    const lost = emitted(client, "lost");
    byHand.cut();
    await lost;
    expect(await client.request("one")).toBe(1);
    expect(seen).toEqual(["lost", "resume"]);
    expect(server.stats()).toMatchObject({ peers: 1, closed: { 1013: 2 } });
  });
});
