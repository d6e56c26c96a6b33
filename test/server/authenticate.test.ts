import { describe, expect, it } from "vitest";
import { type AnyPeer } from "../../src/node.js";
import { maskedFrames } from "../../src/socket/frames.js";
import { sendUpgrade, upgrade } from "../support/network.js";
import { post } from "../support/post.js";
import { request } from "../support/raw.js";
import { gate, pass, raising, turn, useVirtualClock } from "../support/time.js";
import { ByHand, connect, LIMITS, recorded, REFUSED, serving, servingOnPort, statusOf, suspended } from "./by-hand.js";

describe("authenticate", () => {
  it.each<[string, () => unknown, number]>([
    ["null", () => null, 0],
    ["NaN", () => NaN, 0],
    ["a promise of an empty string", async () => "", 0],
    ["a rejection with null", () => Promise.reject(null), 1],
  ])("refuses with 401 for %s, without a reason", async (_name, authenticate, thrown) => {
    const { server, url } = await servingOnPort({ authenticate });
    const { errors } = recorded(server);
    const answer = await upgrade(url);
    expect(answer).toMatchObject({ status: 401, body: "authentication failed\n", headers: { connection: "close" } });
    expect(errors).toHaveLength(thrown);
    expect(server.peers.size).toBe(0);
  });

  it.each([{}, null])("makes no peer for a client that left, and serves others, if it returns %j", async (verdict) => {
    const [asked, decided] = [gate(), gate<object | null>()];
    const authenticate = ({ url }: { url?: string | undefined }): unknown =>
      url === "/slow" ? (asked.resolve(), decided.promise) : {};
    const { server, url } = await servingOnPort({ authenticate, methods: { fine: () => true } });
    const socket = await sendUpgrade(`${url}/slow`);
    await asked.promise;
    socket.resetAndDestroy();
    decided.resolve(verdict);
    await using peer = await connect(url);
    expect(await peer.request("fine")).toBe(true);
    expect(server.peers.size).toBe(1);
  });

  it("can be slow while the client already sends: no message is lost", async () => {
    const open = gate<object>();
    const { url } = await servingOnPort({ authenticate: () => open.promise, methods: { m: () => "heard" } });
    const socket = await sendUpgrade(url);
    socket.write(maskedFrames(['{"jsonrpc":"2.0","id":1,"method":"m"}']));
    open.resolve({});
    let text = "";
    for await (const chunk of socket) {
      text += String(chunk);
      if (text.includes("result")) break;
    }
    expect(text).toContain('{"jsonrpc":"2.0","id":1,"result":"heard"}');
  });
});

describe("the time of authenticate", () => {
  useVirtualClock();

  it.each([2 ** 31, Infinity])("can take as long as handshakeTimeoutMs allows: %d", async (handshakeTimeoutMs) => {
    const [open, asked] = [gate<object>(), gate()];
    const authenticate = (): Promise<object> => (asked.resolve(), open.promise);
    const { url } = await servingOnPort({ authenticate, limits: { handshakeTimeoutMs } });
    const answer = upgrade(url);
    await asked.promise;
    await pass(60_000);
    open.resolve({});
    expect((await answer).status).toBe(101);
  });

  it("counts as a connection after its timeout while it still runs, and its late error is reported", async () => {
    const [late, asked] = [gate(), gate()];
    const { server, url } = await serving({
      authenticate: async () => {
        asked.resolve();
        await late.promise;
        throw new Error("the database is down");
      },
      limits: { maxConnections: 1, handshakeTimeoutMs: 500 },
    });
    const { errors } = recorded(server);
    const first = statusOf(url);
    await asked.promise;
    await pass(500);
    expect([await first, await statusOf(url)]).toEqual([503, 503]);
    late.resolve();
    await turn();
    expect(errors).toMatchObject([{ message: "the database is down" }]);
  });
});

it("refuses WebSockets and POSTs with 503 if it throws an error of that status, and the client tries again", async () => {
  const away = Object.assign(new Error("secret"), { status: 503 });
  let calls = 0;
  const authenticate = (): object => {
    if (++calls < 4) throw away;
    return {};
  };
  const { server, url } = await servingOnPort({ authenticate });
  const { refusals, errors } = recorded(server);
  expect([(await upgrade(url)).status, (await post(url, {})).status]).toEqual([503, 503]);
  await (await connect(url, { auth: "token", reconnect: { initial: true } })).close();
  expect(errors).toEqual([away, away, away]);
  expect(new Set(refusals)).toEqual(new Set(["503 authentication is not available"]));
});

const fail = raising(new Error("no name"));

it.each<[string, () => string, unknown]>([
  ["throws", fail, new Error("no name")],
  ["is a number", () => 7 as never, expect.objectContaining({ message: expect.stringContaining("`principal()`") })],
  ["is a string with a lone surrogate", () => "\ud800", expect.any(TypeError)],
  ["is too long", () => "x".repeat(8_193), expect.any(TypeError)],
])("the principal refuses all with 401, and reports the reason, if it %s", async (_what, principal, error) => {
  const { server, url } = await servingOnPort<string>({ authenticate: () => "ada", principal });
  const { errors } = recorded(server);
  expect([(await upgrade(url)).status, (await post(url, {})).status]).toEqual([401, 401]);
  expect(errors).toEqual([error, error]);
  expect(server.stats()).toMatchObject({ opened: 0, refused: { 401: 2 } });
});

const REASON = "the principal was disconnected while this client was admitted";
const BYE = { code: 4503, reason: REASON };
const HELLO = { hello: { session: true, limits: LIMITS } };
const EVE = { "x-name": "eve" };
const SLOW_EVE = { "x-name": "slow eve" };

/** Serves, with an `authenticate` that waits for `accept` if a client says that it is "slow ...", by a header or by its `auth`. */
async function slow(options: object = {}, serveOn: typeof serving = serving) {
  const [asked, answer] = [gate(), gate()];
  const world = await serveOn<string>({
    authenticate: async ({ headers }, auth) => {
      const name = (auth ?? headers["x-name"]) as string;
      if (!name.startsWith("slow ")) return name;
      asked.resolve();
      await answer.promise;
      return name.slice("slow ".length);
    },
    principal: (name) => name,
    ...options,
  });
  const peers: AnyPeer[] = [];
  world.server.on("peer", (peer) => peers.push(peer as AnyPeer));
  return { ...world, asked: asked.promise, accept: () => answer.resolve(), peers, ...recorded(world.server) };
}

describe("disconnect, while authenticate runs for a client of the principal", () => {
  it.each<[string, (url: string) => Promise<number>]>([
    ["an upgrade", (url) => statusOf(url, SLOW_EVE)],
    ["a POST", async (url) => (await post(url, request(1, "call"), SLOW_EVE)).status],
  ])("refuses %s with 503 when authenticate ends, and makes no peer", async (_what, arrive) => {
    let calls = 0;
    const { server, url, asked, accept, peers } = await slow({ methods: { call: () => ++calls } }, servingOnPort);
    const arriving = arrive(url);
    await asked;
    expect(await server.principal("eve").disconnect(4403, "banned")).toEqual({ closed: 0, isComplete: true });
    accept();
    expect([await arriving, peers, calls]).toEqual([503, [], 0]);
  });

  it("refuses a client that wants to resume the session that was ended", async () => {
    const world = await slow();
    const { server, url, asked, accept, peers, refusals } = world;
    const { token, peer } = await suspended(world, EVE);
    const arriving = ByHand.resume(url, token, 1, SLOW_EVE);
    await asked;
    expect(await server.principal("eve").disconnect(4403, "banned")).toEqual({ closed: 1, isComplete: true });
    expect(peer.state).toBe("closed");
    accept();
    const { byHand, answer } = await arriving;
    expect(answer).toEqual(REFUSED);
    byHand.say(HELLO);
    expect(await byHand.closed).toMatchObject(BYE);
    expect([peers, refusals]).toEqual([[peer], [`503 ${REASON}`]]);
  });

  it("ends a connection whose client authenticates again, and its new result changes nothing", async () => {
    const { server, url, asked, accept, peers, errors } = await slow();
    let auth = "eve";
    const client = await connect(url, { auth: () => auth, reconnect: false });
    auth = "slow eve";
    const renewing = client.reauthenticate().catch(() => "failed");
    await asked;
    const [peer] = peers;
    let refreshed = 0;
    server.on("refresh", () => refreshed++);
    expect(await server.principal("eve").disconnect(4403, "banned")).toEqual({ closed: 1, isComplete: true });
    accept();
    expect(await renewing).toBe("failed");
    expect(await client.closed).toMatchObject({ code: 4403, reason: "banned" });
    await peer!.closed;
    expect([refreshed, peers.length, server.peers.size, errors]).toEqual([0, 1, 0, []]);
  });

  it("refuses no client of another principal, and none that comes afterwards", async () => {
    const { server, url, asked, accept, peers, refusals } = await slow();
    const arriving = connect(url, { headers: { "x-name": "slow ada" } });
    await asked;
    await server.principal("eve").disconnect(4403, "banned");
    await connect(url, { headers: EVE });
    accept();
    await arriving;
    expect(peers.map(({ auth }) => auth)).toEqual(["eve", "ada"]);
    expect(refusals).toEqual([]);
  });
});
