import { describe, expect, it, onTestFinished, vi } from "vitest";
import { serve, type AnyPeer, type Server } from "../../src/node.js";
import { testServer } from "../../src/testing/index.js";
import { busyFor } from "../support/busy.js";
import { pass, useFakeClock } from "../support/clock.js";
import { portOf, upgrade } from "../support/network.js";
import { post } from "../support/post.js";
import { notification, request } from "../support/raw.js";
import { gate, Outcomes, rejection, turn } from "../support/turns.js";
import {
  begun,
  ByHand,
  connect,
  drop,
  emitted,
  nextPeer,
  serving,
  servingOnPort,
  statusOf,
  suspended,
} from "./by-hand.js";

const REASON = "the server is closing";

/** Makes a server in memory, with `count` clients that do not reconnect. */
async function joined(count: number): Promise<{ server: Server; clients: AnyPeer[]; open: () => void }> {
  const { promise, resolve } = gate();
  const kit = testServer({ methods: { slow: () => promise } });
  const { server } = kit;
  const connecting = Array.from({ length: count }, () => kit.connect(server.url, { reconnect: false }));
  const clients = await Promise.all(connecting);
  await kit.network.settle();
  return { server, clients, open: resolve };
}

describe("server.drain() with running handlers", () => {
  it("refuses new clients with 503 and Retry-After", async () => {
    const open = gate();
    const started = gate();
    const { server, url } = await servingOnPort({ methods: { slow: () => (started.resolve(), open.promise) } });
    await using client = await connect(url, { reconnect: false });
    const call = client.request("slow");
    await started.promise;
    const drained = server.drain();
    const upgraded = await upgrade(url);
    const posted = await post(url, request(1, "slow"));
    expect([upgraded.status, posted.status]).toEqual([503, 503]);
    for (const after of [upgraded.headers["retry-after"], posted.headers.get("retry-after")]) {
      expect(Number(after)).toBeGreaterThan(0);
    }
    // A page cannot read the status.
    for (const returns of [false, true]) {
      const byHand = await ByHand.open(url, { returns });
      expect(await byHand.next()).toEqual({ bye: { code: 4503, reason: REASON } });
      expect((await byHand.closed).code).toBe(4503);
    }
    expect(server.stats().refused).toEqual({ 503: 4 });
    open.resolve();
    expect(await call).toBeNull();
    await drained;
  });

  it("lets a handler finish, and sends its response before the close", async () => {
    const open = gate<string>();
    const started = gate();
    const { server, url } = await serving({ methods: { slow: () => (started.resolve(), open.promise) } });
    await using client = await connect(url, { reconnect: false });
    const outcomes = new Outcomes().watch("answer", client.request("slow")).watch("closed", client.closed);
    await started.promise;
    const drained = server.drain();
    // Still served: the handler might wait for it.
    expect(await rejection(client.request("no-such-method"))).toMatchObject({ code: -32601 });
    expect(outcomes.names).toEqual([]);
    open.resolve("done");
    await drained;
    await client.closed;
    await turn();
    expect(outcomes.list).toEqual([
      { name: "answer", value: "done" },
      { name: "closed", value: expect.objectContaining({ code: 1001, reason: REASON }) as unknown },
    ]);
  });

  it("responds to a call whose stream has not begun yet, and then ends the stream", async () => {
    const open = gate<number>();
    const started = gate();
    const { server, url } = await serving({
      methods: {
        async *tail() {
          started.resolve();
          yield await open.promise;
        },
      },
    });
    await using client = await connect(url, { reconnect: false });
    const call = client.request("tail");
    await started.promise;
    const drained = server.drain();
    await turn();
    open.resolve(1);
    expect(await call).toEqual({ values: [1] });
    await drained;
  });

  it("lets a POST finish, and the handlers of a POSTed notification", async () => {
    const open = gate();
    const started = [gate(), gate()];
    let finished = 0;
    const { server, url } = await servingOnPort({
      methods: {
        slow: async ([i]: [number], { signal }) => {
          started[i]!.resolve();
          await open.promise;
          expect(signal.aborted).toBe(false);
          finished++;
          return i;
        },
      },
    });
    const asked = post(url, request(1, "slow", [0]));
    const notified = post(url, notification("slow", [1]));
    await Promise.all(started.map(({ promise }) => promise));
    // The response was sent before the handler ended.
    expect((await notified).status).toBe(204);
    let isDrained = false;
    const drained = server.drain().then(() => (isDrained = true));
    expect((await upgrade(url)).status).toBe(503);
    expect({ isDrained, running: server.stats().running }).toEqual({ isDrained: false, running: 2 });
    open.resolve();
    expect(await (await asked).json()).toEqual({ jsonrpc: "2.0", id: 1, result: 0 });
    await drained;
    expect(finished).toBe(2);
  });

  it("aborts a POST at the deadline, with an error that the call may have run", async () => {
    const started = gate();
    const { server, url } = await servingOnPort({
      methods: { stuck: () => (started.resolve(), new Promise(() => {})) },
    });
    const asked = post(url, request(1, "stuck"));
    await started.promise;
    await server.drain({ timeoutMs: 50 });
    const answer = await asked;
    expect(answer.status).toBe(500);
    expect(await answer.text()).toContain("may have run");
  });

  it.each(["plain", "packed"] as const)("lets messages finish that are deferred to a later tick (%s)", async (link) => {
    const started = gate();
    const work = ([i]: [number]): number => {
      started.resolve();
      busyFor(1);
      return i;
    };
    const { server, url } = await servingOnPort({ methods: { work } });
    await using client = await connect(url, { link, reconnect: false });
    const batch = client.batch();
    const numbers = Array.from({ length: 40 }, (_, i) => i);
    const answers = numbers.map((i) => batch.request("work", [i]));
    batch.send();
    await started.promise;
    const drained = server.drain();
    expect(await Promise.all(answers)).toEqual(numbers);
    await drained;
  });

  it("does not wait for messages that arrive after it began", async () => {
    const { server, url } = await servingOnPort({ methods: { work: () => busyFor(0.2) } });
    await using client = await connect(url, { link: "plain", reconnect: false });
    const flood = setInterval(() => {
      for (let i = 0; i < 200; i++) client.notify("work");
    }, 2);
    onTestFinished(() => clearInterval(flood));
    await new Promise((resolve) => setTimeout(resolve, 50));
    const beganAt = performance.now();
    await server.drain({ timeoutMs: 10_000 });
    expect(performance.now() - beganAt).toBeLessThan(5_000);
    clearInterval(flood);
  });
});

describe("server.drain()", () => {
  it("sends bye with a reconnect delay to peers of reciproc.v1", async () => {
    for (const session of [undefined, false] as const) {
      const { server, url } = await serving({ session });
      const coming = nextPeer(server);
      const byHand = await ByHand.open(url);
      await byHand.next();
      byHand.say({ hello: {} });
      byHand.say({ ping: 1 });
      await byHand.next();
      await coming;
      const drained = server.drain({ retryMs: 1_234.5 });
      expect(await byHand.next()).toEqual({ bye: { code: 1001, reason: REASON, retryMs: 1_235 } });
      expect(await byHand.closed).toEqual({ code: 1001, reason: REASON });
      await drained;
    }
  });

  it("spreads reconnects over 5 s by default", async () => {
    const world = await serving();
    const { byHand } = await begun(world);
    const drained = world.server.drain();
    expect(await byHand.next()).toEqual({ bye: { code: 1001, reason: REASON, retryMs: 5_000 } });
    await drained;
  });

  it("lets its clients reconnect to the next server on the same port, where they report a lost session", async () => {
    const methods = { add: ([a, b]: [number, number]) => a + b };
    const first = await serve({ port: 0, methods: { ...methods, slow: () => new Promise(() => {}) } });
    await using client = await connect(first.url);
    expect(await client.request("add", [1, 2])).toBe(3);
    const events: string[] = [];
    for (const event of ["suspend", "lost", "resume", "close"] as const) client.on(event, () => events.push(event));
    const back = emitted(client, "resume");
    const stuck = rejection(client.request("slow"));
    const port = portOf(first.url);
    await first.drain({ retryMs: 200, timeoutMs: 100 });
    await using second = await serve({ port, methods });
    expect(await stuck).toMatchObject({ code: "CONNECTION_LOST", outcome: "unknown" });
    await back;
    expect(await client.request("add", [3, 4])).toBe(7);
    expect(events).toEqual(["suspend", "lost", "resume"]);
    expect(second.peers.size).toBe(1);
  });

  it("does not get attempts from the clients that it closed while others still finish", async () => {
    const random = vi.spyOn(Math, "random").mockReturnValue(0.99);
    onTestFinished(() => random.mockRestore());
    const open = gate();
    const started = gate();
    const { server, url } = await serving({ methods: { slow: () => (started.resolve(), open.promise) } });
    await using idle = await connect(url);
    // The result shows that its session is open.
    await rejection(idle.request("no-such-method"));
    const { byHand: busy } = await ByHand.begin(url);
    busy.say([request(1, "slow")]);
    await started.promise;
    const lost = emitted(idle, "lost");
    const drained = server.drain({ retryMs: 60_000 });
    await lost;
    // A client that reconnected at once would arrive before these.
    for (let i = 0; i < 3; i++) expect(await statusOf(url)).toBe(503);
    open.resolve();
    await drained;
    expect(server.stats().refused).toEqual({ 503: 3 });
  });

  it("ends suspended peers without running handlers, and waits for the handlers of the others", async () => {
    const open = gate();
    const started = gate();
    const world = await serving({ methods: { slow: () => (started.resolve(), open.promise) } });
    const { server } = world;
    const idle = await suspended(world);
    const session = await begun(world);
    const busy = session.peer;
    session.byHand.say([request(1, "slow")]);
    await started.promise;
    await drop(session);
    const drained = server.drain();
    expect((await idle.peer.closed).code).toBe(1001);
    expect(busy.state).toBe("suspended");
    open.resolve();
    expect((await busy.closed).code).toBe(1001);
    await drained;
  });

  it("closes the socket of a client that offered to resume and has sent nothing", async () => {
    const { server, url } = await serving();
    const undecided = await ByHand.open(url, { returns: true });
    await server.drain();
    expect((await undecided.closed).code).toBe(1001);
  });

  it.each<[string, unknown]>([
    ["timeoutMs", { timeoutMs: 0 }],
    ["timeoutMs", { timeoutMs: NaN }],
    ["timeoutMs", { timeoutMs: "5" }],
    ["retryMs", { retryMs: -1 }],
    ["retryMs", { retryMs: Infinity }],
    ["retryMs", { retryMs: 600_001 }],
    ["timeout", { timeout: 5 }],
    ["options", null],
    ["options", 5],
  ])("rejects for a bad %s, and continues to serve: %j", async (name, options) => {
    await using server = await serve({ port: 0, methods: { one: () => 1 } });
    const error = await rejection(server.drain(options as never));
    expect(error).toBeInstanceOf(TypeError);
    expect((error as Error).message).toContain(`\`${name}\``.replace("`options`", "options"));
    await using client = await connect(server.url);
    expect(await client.request("one")).toBe(1);
  });
});

describe("the timing of server.drain()", () => {
  useFakeClock();

  it.each([400, 2_000])("closes idle peers first, some at a time, all within a second: of %i", async (count) => {
    const { server, clients, open } = await joined(count);
    const busy = clients.slice(0, 5).map((client) => client.request("slow"));
    await turn();
    let isDrained = false;
    const drained = server.drain().then(() => (isDrained = true));
    for (const [share, ms] of [
      [1, 0],
      [2, 25],
      [22, 500],
    ] as const) {
      await pass(ms);
      expect(server.peers.size).toBe(count - (share * count) / 40);
    }
    await pass(475);
    expect(server.peers.size).toBe(5);
    await pass(10_000);
    expect({ isDrained, size: server.peers.size }).toEqual({ isDrained: false, size: 5 });
    open();
    await Promise.all(busy);
    await pass(25);
    await drained;
  });

  it("closes the remaining peers at the deadline, and aborts their handlers", async () => {
    const { server, clients } = await joined(2);
    const call = rejection(clients[0]!.request("slow"));
    await turn();
    const [peer] = server.peers;
    const drained = server.drain({ timeoutMs: 1_000 });
    expect(server.peers.size).toBe(1);
    await pass(975);
    expect(server.peers.size).toBe(1);
    await pass(25);
    await drained;
    expect(await call).toMatchObject({ outcome: "unknown" });
    expect(await peer!.closed).toMatchObject({ code: 1001, reason: REASON });
  });

  it("waits for 30 s by default, and without limit if configured so", async () => {
    for (const [options, isOver] of [
      [undefined, true],
      [{ timeoutMs: Infinity }, false],
    ] as const) {
      const { server, clients } = await joined(1);
      const call = rejection(clients[0]!.request("slow", [], { timeoutMs: Infinity }));
      await turn();
      const drained = server.drain(options);
      await pass(29_950);
      expect(server.peers.size).toBe(1);
      await pass(50);
      expect(server.peers.size === 0).toBe(isOver);
      await server.close();
      await pass(25);
      await Promise.all([drained, call]);
    }
  });

  it("drains once, however often it is called: a second call waits for the first", async () => {
    const { server, clients } = await joined(1);
    const call = rejection(clients[0]!.request("slow"));
    await turn();
    const order: string[] = [];
    const first = server.drain({ timeoutMs: 1_000 }).then(() => order.push("first"));
    const second = server.drain({ timeoutMs: 1 }).then(() => order.push("second"));
    expect(await rejection(server.drain({ timeoutMs: 0 }))).toBeInstanceOf(TypeError);
    await pass(500);
    expect(order).toEqual([]);
    await pass(500);
    await Promise.all([first, second, call]);
    expect(order).toEqual(["first", "second"]);
  });

  it("is cut short by close()", async () => {
    const { server, clients } = await joined(1);
    const call = rejection(clients[0]!.request("slow"));
    await turn();
    const drained = server.drain();
    await server.close();
    expect(await call).toMatchObject({ outcome: "unknown" });
    await pass(25);
    await drained;
  });

  it("has no effect after close()", async () => {
    const { server } = await joined(3);
    await server.close();
    await server.drain();
    expect(server.peers.size).toBe(0);
  });
});
