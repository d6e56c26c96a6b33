import { describe, expect, it } from "vitest";
import { lsp, mcp } from "../../src/node.js";
import { virtualClock } from "../../src/testing/index.js";
import { plainPeer, upgrade } from "../support/network.js";
import { post as postTo, postText, write } from "../support/post.js";
import { notification, request } from "../support/raw.js";
import { gate } from "../support/turns.js";
import {
  begun,
  ByHand,
  drop,
  LIMITS,
  REFUSED,
  RESUMED,
  serving,
  servingOnPort,
  statusOf,
  suspended,
} from "./by-hand.js";
import { joinSilent } from "./members.js";

/** Returns the close of a session that a new client evicted, on a server with this many slots. */
function evicted(maxConnections: number): object {
  const reason = `a new client needed the slot: \`limits.maxConnections\`, ${maxConnections}, is reached`;
  return { code: 1013, reason };
}

async function post(url: string, headers?: Record<string, string>): Promise<number> {
  return (await postTo(url, request(1, "one"), headers)).status;
}

async function upgraded(url: string, offer: Record<string, string>): Promise<number> {
  return (await upgrade(url, offer)).status;
}

const one = (): number => 1;

describe("a new client of a full server", () => {
  it("gets the slot of the session that was suspended first, which closes with the reason", async () => {
    const world = await serving({ limits: { maxConnections: 2 } });
    const { server, url } = world;
    const [second, first] = [await begun(world), await begun(world)];
    for (const session of [first, second]) await drop(session);
    expect((await begun(world)).peer.state).toBe("open");
    expect(await first.peer.closed).toEqual(evicted(2));
    expect(second.peer.state).toBe("suspended");
    expect(server.stats()).toMatchObject({ peers: 2, suspended: 1, closed: { 1013: 1 }, refused: {} });
    // Its client learns that when it tries to resume, and then counts as a new client: now the other session is the
    // oldest.
    const { byHand: late, answer } = await ByHand.resume(url, first.token, 1);
    expect(answer).toEqual(REFUSED);
    expect(second.peer.state).toBe("suspended");
    await late.hello();
    expect(await second.peer.closed).toEqual(evicted(2));
  });

  it("is refused with 503 when every slot has a socket, and ends nothing", async () => {
    const world = await servingOnPort({ limits: { maxConnections: 2 } });
    const { server, url } = world;
    const { peer } = await suspended(world);
    await ByHand.begin(url);
    await ByHand.begin(url);
    expect(await peer.closed).toEqual(evicted(2));
    const refused = await upgrade(url);
    expect(refused.status).toBe(503);
    expect(Number(refused.headers["retry-after"])).toBeGreaterThan(0);
    expect(await (await ByHand.open(url)).next()).toMatchObject({ bye: { code: 4503 } });
    expect(await post(url)).toBe(503);
    expect(server.stats()).toMatchObject({ peers: 2, suspended: 0, refused: { 503: 3 } });
  });

  it("evicts nothing before it is admitted: not for a bad origin, without authentication, nor while a body is due", async () => {
    const [asked, open] = [gate(), gate<null>()];
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
  it("counts a connection that does not answer its close until its socket is gone", async () => {
    using clock = virtualClock();
    const { server, url } = await servingOnPort({ limits: { maxConnections: 1, maxMalformedPerMinute: 1 } });
    using first = await plainPeer(url);
    first.webSocket.pause();
    first.webSocket.send("garbage");
    first.webSocket.send("garbage");
    await expect.poll(() => server.peers.size).toBe(0);
    await clock.pass(4_999);
    expect(await upgrade(url)).toMatchObject({ status: 503 });
    first.webSocket.terminate();
    await expect.poll(async () => (await upgrade(url)).status).toBe(101);
  });

  it.each<[string, (url: string, offer: Record<string, string>) => Promise<number>, number, string]>([
    ["a WebSocket", upgraded, 101, "reciproc.resume"],
    ["another dialect", upgraded, 101, "mcp, reciproc.v1, reciproc.resume"],
    ["a POST", post, 200, "reciproc.v1, reciproc.resume"],
  ])("counts a client that offers to resume over a link without sessions: %s", async (_what, open, status, offered) => {
    const world = await servingOnPort({ limits: { maxConnections: 1 }, dialect: [lsp, mcp], methods: { one } });
    const { peer } = await suspended(world);
    expect(await open(world.url, { "Sec-WebSocket-Protocol": offered })).toBe(status);
    expect(await peer.closed).toEqual(evicted(1));
  });

  const unknown = { token: "never-given", received: 0, attempt: 1, limits: LIMITS };
  it.each([
    ["says hello", { hello: {} }, true],
    // The client keeps its session, which another server behind the same address may know.
    ["resumes an unknown session", { resume: unknown }, false],
  ])("closes with 4503 a client that offered to resume and %s, if no slot is free", async (_what, first, hasBye) => {
    const { server, url } = await serving({ limits: { maxConnections: 1 } });
    await ByHand.begin(url);
    const byHand = await ByHand.open(url, { returns: true });
    expect(await byHand.next()).toMatchObject({ hello: { session: { ttlMs: 60_000 } } });
    byHand.say(first);
    const bye = { code: 4503, reason: "`limits.maxConnections`, 1, is reached" };
    expect(await byHand.closed).toEqual(bye);
    expect(byHand.unread).toEqual(hasBye ? [{ bye }] : []);
    expect(server.stats()).toMatchObject({ opened: 1, peers: 1, refused: { 503: 1 } });
  });

  it("lets a client resume over a new socket, though every slot has a socket and its old one is not known to be dead", async () => {
    const world = await serving({ limits: { maxConnections: 2 } });
    const { server, url } = world;
    const [present, lost] = [await ByHand.begin(url), await suspended(world)];
    for (const { byHand, token } of [lost, present]) {
      expect((await ByHand.resume(url, token, 1)).answer).toEqual(RESUMED);
      await byHand.closed;
      expect(await statusOf(url)).toBe(503);
    }
    expect(server.stats()).toMatchObject({ opened: 2, peers: 2, suspended: 0, resumed: 2, closed: {} });
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
    const own = joinSilent(server).peer;
    const session = await begun(world);
    expect(server.stats().peers).toBe(2);
    await drop(session);
    await own.close();
    expect(server.stats()).toMatchObject({ peers: 1, suspended: 1 });
    await ByHand.begin(url);
    expect(server.stats()).toMatchObject({ peers: 1, suspended: 0 });
  });
});

describe("limits.maxConnections, for POSTs", () => {
  it("counts the handlers of notifications as a connection while they run", async () => {
    const open = gate();
    const { url } = await servingOnPort({
      limits: { maxConnections: 1 },
      methods: { one, work: () => open.promise },
    });
    expect((await postTo(url, notification("work"))).status).toBe(204);
    expect(await post(url)).toBe(503);
    open.resolve();
    await expect.poll(() => post(url)).toBe(200);
  });

  it.each([true, false])("frees its slot and runs nothing if its client leaves (it sends: %s)", async (isSending) => {
    const [asked, gone, open] = [gate(), gate(), gate<object>()];
    let [ran, count] = [0, 0];
    const { url } = await servingOnPort({
      limits: { maxConnections: 1 },
      authenticate: ({ socket: theirs }) => {
        if (count++ > 0) return {};
        asked.resolve();
        theirs.once("close", () => gone.resolve());
        return isSending ? {} : open.promise;
      },
      methods: { one, run: () => ++ran },
    });
    const text = postText(url, JSON.stringify(request(1, "run")));
    const socket = await write(url, isSending ? text.slice(0, -1) : text);
    await asked.promise;
    socket.destroy();
    await gone.promise;
    open.resolve({});
    await expect.poll(() => post(url)).toBe(200);
    expect(ran).toBe(0);
  });
});
