import { once } from "node:events";
import { describe, expect, it } from "vitest";
import { serve, type AnyPeer } from "../../src/node.js";
import { testServer } from "../../src/testing/index.js";
import { bareHttp, plainPeer, portOf, sendUpgrade, upgrade } from "../support/network.js";
import { post, write } from "../support/post.js";
import { notification, request } from "../support/raw.js";
import { gate, Outcomes, pass, passUntil, rejection, stall, turn, useVirtualClock } from "../support/time.js";
import { begun, ByHand, connect, drop, serving, servingOnPort, suspended } from "./by-hand.js";
import { joinSilent } from "./members.js";

const REASON = "the server is closing";
const END = { code: 1001, reason: REASON };

function slowMethod() {
  const [started, open] = [gate(), gate<unknown>()];
  return { started: started.promise, open: open.resolve, slow: () => (started.resolve(), open.promise) };
}

describe("server.close()", () => {
  it("closes every peer with 1001, settles pending calls, and frees the port", async () => {
    const aborted = gate<unknown>();
    const server = await serve({
      port: 0,
      methods: {
        slow: (_params, { signal }) =>
          new Promise((resolve) => signal.addEventListener("abort", () => resolve(aborted.resolve(signal.reason)))),
        ask: (_params, { peer }) => peer.request("never"),
      },
    });
    const client = await connect(server.url, { reconnect: false, methods: { never: () => new Promise(() => {}) } });
    const calls = ["ask", "slow"].map((method) => rejection(client.request(method)));
    using other = await plainPeer(server.url);
    await rejection(client.request("none"));
    const { url } = server;
    const closing = server.close();
    expect(server.close()).toBe(closing);
    await closing;
    await server[Symbol.asyncDispose]();
    expect(await client.closed).toMatchObject(END);
    expect(await other.closed).toEqual(END);
    for (const call of calls) expect(await call).toMatchObject({ outcome: "unknown" });
    expect(await aborted.promise).toMatchObject({ message: expect.stringContaining(`1001 (${REASON})`) });
    expect([server.peers.size, server.url]).toEqual([0, ""]);
    await using again = await serve({ port: portOf(url) });
    expect(again.url).toBe(url);
  });

  it("does not wait for a running authenticate, whose result then makes no peer", async () => {
    const { slow, started, open } = slowMethod();
    const server = await serve({ port: 0, authenticate: slow });
    const socket = await sendUpgrade(server.url);
    socket.on("error", () => {});
    await started;
    await Promise.all([once(socket, "close"), server.close()]);
    open({});
    await turn();
    expect(server.stats().opened).toBe(0);
  });

  it.each([
    ["sends nothing", ""],
    ["stops within its request", "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow:"],
    ["keeps its connection alive", "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"],
  ])("does not wait for an HTTP client that %s", async (_what, text) => {
    const server = await serve({ port: 0 });
    const socket = await write(server.url, text);
    // The server has accepted the connection: it answers a later one.
    expect((await upgrade(server.url)).status).toBe(101);
    socket.resume();
    await Promise.all([once(socket, "close"), server.close()]);
  });

  it("refuses with 503 the upgrades and POSTs that the application passes on afterwards", async () => {
    await using http = await bareHttp();
    const server = await serve({ noServer: true });
    http.server.on("request", (asking, response) => server.handleRequest(asking, response));
    http.server.on("upgrade", (asking, socket, head) => server.handleUpgrade(asking, socket, head));
    await server.close();
    const response = await post(http.url, request(1, "add"));
    expect(Number(response.headers.get("retry-after"))).toBeGreaterThan(0);
    expect(response.status).toBe(503);
    expect((await upgrade(http.url)).status).toBe(503);
    const { peer } = joinSilent(server);
    expect([peer.state, await peer.closed]).toEqual(["closed", END]);
  });
});

describe("server.close(), with a clock", () => {
  useVirtualClock();

  it("cuts a client that never answers the close after 5 s, and refuses new clients with 503 until then", async () => {
    await using http = await bareHttp();
    const server = await serve({ server: http.server });
    const mute = await sendUpgrade(server.url);
    await once(mute, "data");
    const goodbye = once(mute, "data");
    const outcomes = new Outcomes().watch("closed", server.close());
    // A close frame: 1001, then the reason.
    const [frame] = (await goodbye) as [Buffer];
    expect([frame[0], frame.readUInt16BE(2)]).toEqual([0x88, 1001]);
    expect((await upgrade(http.url)).status).toBe(503);
    await pass(4_900);
    expect(outcomes.list).toEqual([]);
    const cut = once(mute, "close");
    await pass(100);
    await Promise.all([cut, server.close()]);
  });
});

it("server.drain() with running handlers refuses new clients with 503 and Retry-After", async () => {
  const { slow, started, open } = slowMethod();
  const { server, url } = await servingOnPort({ methods: { slow } });
  await using client = await connect(url, { reconnect: false });
  const call = client.request("slow");
  await started;
  const drained = server.drain();
  const upgraded = await upgrade(url);
  const posted = await post(url, request(1, "slow"));
  expect([upgraded.status, posted.status]).toEqual([503, 503]);
  for (const after of [upgraded.headers["retry-after"], posted.headers.get("retry-after")])
    expect(Number(after)).toBeGreaterThan(0);
  // A page cannot read the status.
  for (const returns of [false, true]) {
    const byHand = await ByHand.open(url, { returns });
    expect(await byHand.next()).toEqual({ bye: { code: 4503, reason: REASON } });
    expect((await byHand.closed).code).toBe(4503);
  }
  expect(server.stats().refused).toEqual({ 503: 4 });
  open("done");
  expect(await call).toBe("done");
  await drained;
});

it("server.drain() with running handlers lets a POST finish, and the handlers of a POSTed notification", async () => {
  const open = gate();
  const started = [gate(), gate()];
  const signals: boolean[] = [];
  const { server, url } = await servingOnPort({
    methods: {
      slow: async ([i]: [number], { signal }) => {
        started[i]!.resolve();
        await open.promise;
        signals.push(signal.aborted);
        return i;
      },
    },
  });
  const asked = post(url, request(1, "slow", [0]));
  const notified = post(url, notification("slow", [1]));
  await Promise.all(started.map(({ promise }) => promise));
  // The response was sent before the handler ended.
  expect((await notified).status).toBe(204);
  const outcomes = new Outcomes();
  const drained = server.drain();
  outcomes.watch("drained", drained);
  expect((await upgrade(url)).status).toBe(503);
  expect([outcomes.list, server.stats().running]).toEqual([[], 2]);
  open.resolve();
  expect(await (await asked).json()).toEqual({ jsonrpc: "2.0", id: 1, result: 0 });
  await drained;
  expect(signals).toEqual([false, false]);
});

describe("server.drain()", () => {
  it.each<[boolean, object | undefined, number]>([
    [true, { retryMs: 1_234.5 }, 1_235],
    [false, { retryMs: 1_234.5 }, 1_235],
    [true, undefined, 5_000],
  ])("sends bye with a reconnect delay to peers of reciproc.v1: sessions %j, %j", async (keeps, options, retryMs) => {
    const { server, url } = await serving(keeps ? {} : { session: false });
    const byHand = await ByHand.open(url);
    byHand.say({ hello: {} });
    byHand.say({ ping: 1 });
    while ((await byHand.next()).pong !== 1);
    const drained = server.drain(options);
    expect(await byHand.next()).toEqual({ bye: { ...END, retryMs } });
    expect(await byHand.closed).toEqual(END);
    await drained;
  });

  it("ends suspended peers without running handlers and sockets that have sent nothing, and waits for the handlers of the others", async () => {
    const { slow, started, open } = slowMethod();
    const world = await serving({ methods: { slow } });
    const idle = await suspended(world);
    const session = await begun(world);
    session.byHand.say([request(1, "slow")]);
    await started;
    await drop(session);
    const undecided = await ByHand.open(world.url, { returns: true });
    const drained = world.server.drain();
    expect((await undecided.closed).code).toBe(1001);
    expect((await idle.peer.closed).code).toBe(1001);
    expect(session.peer.state).toBe("suspended");
    open(1);
    expect((await session.peer.closed).code).toBe(1001);
    await drained;
  });

  it("rejects for a bad option, and continues to serve", async () => {
    const { server, url } = await serving({ methods: { one: () => 1 } });
    for (const [name, values] of Object.entries({
      timeoutMs: [0, NaN, "5"],
      retryMs: [-1, Infinity, 600_001],
      timeout: [5],
    })) {
      for (const value of values) {
        const error = await rejection(server.drain({ [name]: value }));
        expect(error).toBeInstanceOf(TypeError);
        expect(error.message).toContain(`\`${name}\``);
      }
    }
    for (const options of [null, 5]) expect(await rejection(server.drain(options as never))).toBeInstanceOf(TypeError);
    expect(await (await connect(url)).request("one")).toBe(1);
  });
});

/** Makes a server in memory, with `count` clients that do not reconnect, of which the first ones make a slow call. */
async function joined(count: number, busy: number) {
  const { promise, resolve } = gate();
  const kit = testServer({ methods: { slow: () => promise } });
  const { server } = kit;
  const connecting = Array.from({ length: count }, () => kit.connect(server.url, { reconnect: false }));
  const clients: AnyPeer[] = await Promise.all(connecting);
  await kit.network.settle();
  const calls = clients.slice(0, busy).map((client) => {
    const call = client.request("slow", [], { timeoutMs: Infinity });
    return call.catch((error: unknown) => error);
  });
  await turn();
  return { server, open: resolve, calls };
}

describe("the timing of server.drain()", () => {
  useVirtualClock();

  it.each(["plain", "packed"] as const)("lets messages finish that are deferred to a later tick (%s)", async (link) => {
    const started = gate();
    const work = ([i]: [number]): number => (started.resolve(), stall(1), i);
    const { server, url } = await servingOnPort({ methods: { work } });
    await using client = await connect(url, { link, reconnect: false });
    const batch = client.batch();
    const numbers = Array.from({ length: 40 }, (_, i) => i);
    const answers = numbers.map((i) => batch.request("work", [i]));
    batch.send();
    await started.promise;
    const drained = server.drain();
    expect(await Promise.all(answers)).toEqual(numbers);
    await passUntil(drained, 25);
  });

  it("does not wait for messages that arrive after it began", async () => {
    const started = gate();
    const { server, url } = await servingOnPort({ methods: { work: () => (started.resolve(), stall(1)) } });
    await using client = await connect(url, { link: "plain", reconnect: false });
    // The server processes six in a tick.
    const over = new AbortController();
    const flood = (async () => {
      for (; !over.signal.aborted; await turn()) for (let i = 0; i < 20; i++) client.notify("work");
    })();
    await started.promise;
    await passUntil(server.drain({ timeoutMs: Infinity }), 25);
    over.abort();
    await flood;
  });

  it("closes idle peers first, some at a time, all within a second", async () => {
    const count = 800;
    const { server, open } = await joined(count, 5);
    const drained = server.drain();
    const outcomes = new Outcomes().watch("drained", drained);
    for (const [share, ms] of Object.entries({ 1: 0, 2: 25, 22: 500 })) {
      await pass(ms);
      expect(server.peers.size).toBe(count - (Number(share) * count) / 40);
    }
    await pass(475);
    expect(server.peers.size).toBe(5);
    await pass(10_000);
    expect([outcomes.list, server.peers.size]).toEqual([[], 5]);
    open();
    await pass(25);
    await drained;
  });

  it.each([
    [undefined, 30_000],
    [{ timeoutMs: Infinity }, undefined],
  ])("closes the remaining peers at the deadline, and aborts their handlers: with %j", async (options, deadlineMs) => {
    const { server, calls } = await joined(2, 1);
    const [peer] = server.peers;
    const drained = server.drain(options);
    await pass((deadlineMs ?? 100_000) - 25);
    expect(server.peers.size).toBe(1);
    if (deadlineMs === undefined) await server.close();
    await pass(25);
    await drained;
    expect(await calls[0]).toMatchObject({ outcome: "unknown" });
    expect(await peer!.closed).toMatchObject(END);
    await server.drain();
  });

  it("drains once, however often it is called: a second call waits for the first", async () => {
    const { server } = await joined(1, 1);
    const outcomes = new Outcomes()
      .watch("first", server.drain({ timeoutMs: 1_000 }))
      .watch("second", server.drain({ timeoutMs: 1 }));
    expect(await rejection(server.drain({ timeoutMs: 0 }))).toBeInstanceOf(TypeError);
    await pass(500);
    expect(outcomes.names).toEqual([]);
    await pass(500);
    expect(outcomes.names).toEqual(["first", "second"]);
  });
});
