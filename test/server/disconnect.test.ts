/** Clients that are being admitted while their principal is disconnected. */
import { describe, expect, it } from "vitest";
import { memory, type AnyPeer } from "../../src/node.js";
import { post } from "../support/post.js";
import { request } from "../support/raw.js";
import { gate } from "../support/turns.js";
import {
  begun,
  ByHand,
  connect,
  describeNetworks,
  LIMITS,
  recorded,
  REFUSED,
  serving,
  servingOnPort,
  statusOf,
  suspended,
  type Serving,
} from "./by-hand.js";

const REASON = "the principal was disconnected while this client was admitted";
const BYE = { code: 4503, reason: REASON };

/** A server whose `authenticate` waits for the test, for each client that comes with the header `x-slow` or asks it by its `auth`. */
interface World extends Serving<string> {
  /** Resolves when `authenticate` waits. */
  readonly asked: Promise<void>;
  /** Lets `authenticate` accept its client. */
  accept(): void;
  readonly peers: AnyPeer[];
  readonly refusals: string[];
  readonly errors: unknown[];
}

interface Auth {
  name?: string;
  isSlow?: boolean;
}

async function slow(options: object = {}, serve: typeof serving = serving): Promise<World> {
  const asked = gate();
  const answer = gate();
  const world = await serve<string>({
    authenticate: async ({ headers }, auth) => {
      const { name = String(headers["x-name"]), isSlow = headers["x-slow"] !== undefined } = (auth ?? {}) as Auth;
      if (!isSlow) return name;
      asked.resolve();
      await answer.promise;
      return name;
    },
    principal: (name) => name,
    ...options,
  });
  const peers: AnyPeer[] = [];
  world.server.on("peer", (peer) => peers.push(peer as AnyPeer));
  return { ...world, asked: asked.promise, accept: () => answer.resolve(), peers, ...recorded(world.server) };
}

const HELLO = { hello: { session: true, limits: LIMITS } };
const EVE = { "x-name": "eve" };
const SLOW_EVE = { ...EVE, "x-slow": "1" };

describeNetworks("disconnect, while authenticate runs for a client of the principal", () => {
  it.each<[string, (url: string) => Promise<unknown>, unknown]>([
    ["plain JSON-RPC", (url) => statusOf(url, SLOW_EVE), 503],
    [
      "reciproc.v1",
      async (url) => (await ByHand.open(url, { headers: SLOW_EVE })).closed,
      expect.objectContaining(BYE),
    ],
    [
      "`auth` in its hello",
      async (url) => {
        const byHand = await ByHand.open(url, { offersAuth: true });
        byHand.say({ hello: { auth: { name: "eve", isSlow: true } } });
        return byHand.closed;
      },
      expect.objectContaining(BYE),
    ],
  ])("refuses a client with %s when authenticate ends, and makes no peer", async (_name, arrive, answer) => {
    const { server, url, asked, accept, peers, refusals } = await slow();
    const arriving = arrive(url);
    await asked;
    expect(await server.principal("eve").disconnect(4403, "banned")).toEqual({ closed: 0, unheard: [] });
    accept();
    expect(await arriving).toEqual(answer);
    expect([peers, refusals, server.peers.size]).toEqual([[], [`503 ${REASON}`], 0]);
  });

  it("refuses a client that wants to resume the session that was ended", async () => {
    const world = await slow();
    const { server, url, asked, accept, peers, refusals } = world;
    const { token, peer } = await suspended(world, EVE);
    const arriving = ByHand.resume(url, token, 1, SLOW_EVE);
    await asked;
    expect(await server.principal("eve").disconnect(4403, "banned")).toEqual({ closed: 1, unheard: [] });
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
    let auth: Auth = { name: "eve" };
    const client = await connect(url, { auth: () => auth, reconnect: false });
    auth = { name: "eve", isSlow: true };
    const renewing = client.reauthenticate().catch(() => "failed");
    await asked;
    const [peer] = peers;
    let refreshed = 0;
    server.on("refresh", () => refreshed++);
    expect(await server.principal("eve").disconnect(4403, "banned")).toEqual({ closed: 1, unheard: [] });
    accept();
    expect(await renewing).toBe("failed");
    expect(await client.closed).toMatchObject({ code: 4403, reason: "banned" });
    await peer!.closed;
    expect([refreshed, peers.length, server.peers.size, errors]).toEqual([0, 1, 0, []]);
  });

  it("refuses no client of another principal, and none that comes afterwards", async () => {
    const { server, url, asked, accept, peers, refusals } = await slow();
    const arriving = connect(url, { headers: { "x-name": "ada", "x-slow": "1" } });
    await asked;
    await server.principal("eve").disconnect(4403, "banned");
    const later = await connect(url, { headers: EVE });
    accept();
    const ada = await arriving;
    expect(peers.map(({ auth }) => auth)).toEqual(["eve", "ada"]);
    expect(refusals).toEqual([]);
    await Promise.all([later.close(), ada.close()]);
  });
});

describeNetworks("disconnect, after authenticate has accepted a client that offers to resume", () => {
  it("refuses the client when it sends its hello", async () => {
    const { server, url, peers, refusals } = await slow();
    const byHand = await ByHand.open(url, { returns: true, headers: EVE });
    await byHand.next();
    await server.principal("eve").disconnect();
    byHand.say(HELLO);
    expect(await byHand.closed).toMatchObject(BYE);
    expect([peers, refusals]).toEqual([[], [`503 ${REASON}`]]);
  });

  it("lets no client resume a session whose close it has not answered", async () => {
    const world = await slow();
    const { server, url } = world;
    const { token, peer } = await begun(world, EVE);
    const byHand = await ByHand.open(url, { returns: true, headers: EVE });
    await byHand.next();
    await server.principal("eve").disconnect();
    byHand.say({ resume: { token, received: 0, attempt: 1, limits: LIMITS } });
    expect(await byHand.next()).toEqual(REFUSED);
    byHand.say(HELLO);
    expect(await byHand.closed).toMatchObject(BYE);
    await peer.closed;
  });
});

describe("disconnect, while a POST of the principal is admitted", () => {
  it("refuses the POST with 503, and runs no handler", async () => {
    let calls = 0;
    const { server, url, asked, accept } = await slow({ methods: { call: () => ++calls } }, servingOnPort);
    const answer = post(url, request(1, "call"), SLOW_EVE);
    await asked;
    await server.principal("eve").disconnect();
    accept();
    expect((await answer).status).toBe(503);
    expect(calls).toBe(0);
  });
});

describe("disconnect on another node", () => {
  it("refuses the clients that this node admits meanwhile, until it has admitted them", async () => {
    const engine = memory();
    const { server } = await slow({ engine });
    const other = await slow({ engine });
    const arriving = ByHand.open(other.url, { headers: SLOW_EVE });
    await other.asked;
    expect(await server.principal("eve").disconnect(4403)).toEqual({ closed: 0, unheard: [] });
    other.accept();
    expect(await (await arriving).closed).toMatchObject(BYE);
    expect(other.peers).toEqual([]);
    await (await connect(other.url, { headers: EVE })).close();
    expect(other.peers).toHaveLength(1);
  });

  it("is seen in the tick in which authenticate accepts", async () => {
    const engine = memory();
    const { server } = await slow({ engine });
    const verdict = gate<string>();
    const asked = gate();
    const other = await slow({ engine, authenticate: () => (asked.resolve(), verdict.promise) });
    const arriving = ByHand.open(other.url, { headers: EVE });
    await asked.promise;
    verdict.resolve("eve");
    await Promise.resolve();
    const disconnecting = other.server.principal("eve").disconnect();
    expect(await (await arriving).closed).toMatchObject(BYE);
    expect((await disconnecting).closed).toBe(0);
    expect(server.peers.size).toBe(0);
  });
});
