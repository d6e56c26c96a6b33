/** The network of a test server, under a fake clock: everything below happens without a real timer. */
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { bytes, ConnectError, pair, TimeoutError, type AnyPeer } from "../../src/index.js";
import { testServer, type TestServer } from "../../src/testing/index.js";
import { pass, useVirtualClock } from "../support/time.js";
import { Outcomes, rejection } from "../support/turns.js";

type AnyTestServer = TestServer<any, any, unknown>;

let kit: AnyTestServer;
/** What the handlers of the server got, in order. */
let heard: unknown[];

function serveAgain(options: object = {}): void {
  heard = [];
  kit = testServer({
    methods: {
      echo: (params: unknown) => params,
      note: ([value]: unknown[]) => void heard.push(value),
      never: () => new Promise(() => {}),
    },
    ...options,
  }) as AnyTestServer;
}

useVirtualClock();
beforeEach(() => serveAgain());
// No timer is left after it, which the fake clock asserts.
afterEach(() => kit.server.close());

/** Connects a client whose session both sides have confirmed. Returns both its peers, and the events of each. */
async function joined(options: object = {}): Promise<{ client: AnyPeer; peer: AnyPeer; events: string[] }> {
  const coming = new Promise<AnyPeer>((resolve) => kit.server.once("peer", (one) => resolve(one as AnyPeer)));
  const client = (await kit.connect(kit.server.url, options)) as AnyPeer;
  const peer = await coming;
  for (let i = 0; i < 2; i++) await client.request("echo", [i]);
  const events: string[] = [];
  for (const [side, one] of Object.entries({ client, server: peer }))
    for (const name of ["suspend", "lost", "resume", "close"] as const)
      one.on(name, () => events.push(`${side} ${name}`));
  return { client, peer, events };
}

describe("network.cut()", () => {
  it("suspends both peers at once, and the session resumes without loss when the client's delay has passed", async () => {
    const { client, peer, events } = await joined();
    client.notify("note", ["under way"]);
    kit.network.cut();
    expect([client.state, peer.state]).toEqual(["suspended", "suspended"]);
    client.notify("note", ["queued"]);
    const call = client.request("echo", ["later"]);
    await kit.network.settle();
    expect([heard, client.state]).toEqual([[], "suspended"]);
    await pass(0);
    expect(await call).toEqual(["later"]);
    expect(heard).toEqual(["under way", "queued"]);
    for (const side of ["client", "server"])
      expect(events.filter((one) => one.startsWith(side))).toEqual([`${side} suspend`, `${side} resume`]);
    expect(kit.server.stats()).toMatchObject({ opened: 1, resumed: 1, peers: 1 });
  });

  it("closes peers without a session", async () => {
    const { client, peer } = await joined({ link: "plain" });
    const call = rejection(client.request("never"));
    kit.network.cut();
    expect([client.state, peer.state]).toEqual(["closed", "closed"]);
    expect(await call).toMatchObject({ name: "ConnectionLostError", outcome: "unknown" });
    expect((await client.closed).code).toBe(1006);
  });

  it("may be called while nothing is connected, and again before the client has connected", async () => {
    kit.network.cut();
    const { client } = await joined();
    kit.network.cut();
    kit.network.cut();
    await pass(0);
    expect(client.state).toBe("open");
  });
});

describe("network.lose()", () => {
  it("ends the session: calls reject, the server's peer closes, and the client continues with a new session", async () => {
    const { client, peer, events } = await joined();
    kit.server.topic("den").add(peer);
    const call = rejection(client.request("never"));
    await kit.network.settle();
    kit.network.lose();
    expect([client.state, peer.state]).toEqual(["suspended", "closed"]);
    await pass(0);
    expect(await call).toMatchObject({ name: "ConnectionLostError", outcome: "unknown" });
    expect(events.filter((one) => one.startsWith("client"))).toEqual([
      "client suspend",
      "client lost",
      "client resume",
    ]);
    expect(await client.request("echo", [1])).toEqual([1]);
    expect(kit.server.stats()).toMatchObject({ opened: 2, resumed: 0, peers: 1, suspended: 0, closed: { 1006: 1 } });
    expect([...kit.server.topic("den")]).toEqual([]);
    // The line of the client has the new peer of the server.
    const [next] = kit.server.peers;
    expect(kit.network.of(next!)).toBe(kit.network.of(client));
  });

  it("closes a client that does not reconnect", async () => {
    const { client } = await joined({ reconnect: false });
    kit.network.lose();
    expect(client.state).toBe("closed");
  });
});

describe("network.stop()", () => {
  it("lets nothing pass until `start`, and then everything in order, once", async () => {
    const { client, peer } = await joined();
    kit.network.stop();
    for (let i = 0; i < 3; i++) client.notify("note", [i]);
    const call = client.request("echo", ["late"]);
    await pass(10_000);
    expect(heard).toEqual([]);
    expect(client.stats().unsentBytes).toBeGreaterThan(0);
    expect([client.state, peer.state]).toEqual(["open", "open"]);
    kit.network.start();
    expect(await call).toEqual(["late"]);
    expect(heard).toEqual([0, 1, 2]);
    expect(client.stats().unsentBytes).toBe(0);
  });

  it("lets the heartbeats of both sides find the connection dead, and the session resumes after `start`", async () => {
    const heartbeat = { intervalMs: 1_000, deadAfterMs: 3_000 };
    await kit.server.close();
    serveAgain({ heartbeat });
    const { client, peer } = await joined({ heartbeat });
    await pass(60_000);
    expect([client.state, peer.state]).toEqual(["open", "open"]);
    kit.network.stop();
    await pass(2_000);
    expect([client.state, peer.state]).toEqual(["open", "open"]);
    await pass(3_000);
    expect([client.state, peer.state]).toEqual(["suspended", "suspended"]);
    const call = client.request("echo", ["again"]);
    kit.network.start();
    await pass(20_000);
    expect(await call).toEqual(["again"]);
    expect(kit.server.stats()).toMatchObject({ opened: 1, resumed: 1 });
  });

  it("lets a client over plain JSON-RPC end by its heartbeat", async () => {
    const { client } = await joined({ link: "plain", heartbeat: { intervalMs: 1_000, deadAfterMs: 2_000 } });
    await pass(10_000);
    expect(client.state).toBe("open");
    kit.network.stop();
    await pass(3_000);
    expect(await client.closed).toMatchObject({
      code: 1006,
      reason: expect.stringMatching(/^nothing was heard for \d+ ms$/),
    });
  });

  it("lets a client wait for the handshake until its timeout", async () => {
    kit.network.stop();
    const connecting = rejection(kit.connect(kit.server.url, { openTimeoutMs: 5_000 }));
    const patient = kit.connect(kit.server.url, { openTimeoutMs: 60_000 });
    await pass(5_000);
    expect(await connecting).toBeInstanceOf(ConnectError);
    expect((await connecting).message).toContain("not open within 5000 ms");
    kit.network.start();
    expect((await patient).state).toBe("open");
    expect(kit.server.stats().opened).toBe(1);
  });

  it("lets a suspended session expire, so that the server forgets its peer", async () => {
    await kit.server.close();
    serveAgain({ session: { ttlMs: 30_000 } });
    const { client, peer } = await joined();
    kit.network.cut();
    kit.network.stop();
    await pass(29_999);
    expect([client.state, peer.state]).toEqual(["suspended", "suspended"]);
    await pass(1);
    expect(peer.state).toBe("closed");
    kit.network.start();
    await pass(60_000);
    expect(client.state).toBe("open");
    expect(kit.server.stats()).toMatchObject({ opened: 2, resumed: 0 });
  });
});

describe("network.slow()", () => {
  it("delays messages by their bytes, in each direction", async () => {
    const { client } = await joined({ link: "plain" });
    kit.network.slow(1_000);
    const outcomes = new Outcomes().watch("echo", client.request("echo", ["x".repeat(940)]));
    await pass(900);
    expect(outcomes.names).toEqual([]);
    await pass(1_000);
    expect(outcomes.names).toEqual([]);
    await pass(200);
    expect(outcomes.names).toEqual(["echo"]);
    kit.network.slow(Infinity);
    expect(await client.request("echo", [1])).toEqual([1]);
  });

  it("makes backpressure: broadcasts to a slow peer are dropped and counted, and those to others arrive", async () => {
    await kit.server.close();
    serveAgain({ limits: { maxUnsentBytes: 10_000 } });
    const got: Record<string, number> = { slow: 0, fast: 0 };
    const [slow] = [
      await joined({ methods: { tick: () => void got["slow"]!++ } }),
      await joined({ methods: { tick: () => void got["fast"]!++ } }),
    ];
    kit.network.of(slow.client).slow(1_000);
    for (let i = 0; i < 20; i++) {
      kit.server.peers.notify("tick", ["x".repeat(1_000)]);
      await kit.network.settle();
    }
    expect(slow.peer.stats().unsentBytes).toBeGreaterThan(5_000);
    expect(got).toEqual({ slow: 0, fast: 20 });
    const { dropped } = kit.server.stats();
    expect(dropped).toBeGreaterThan(10);
    await pass(60_000);
    expect(got["slow"]).toBe(20 - dropped);
    expect(slow.peer.stats().unsentBytes).toBe(0);
  });

  it("leaves a slow peer the newest message of each key, and no volatile one, in order with the others", async () => {
    const got: unknown[] = [];
    const take = (params: unknown, { method }: { method: string }): void => void got.push([method, params]);
    const { client, peer } = await joined({ fallback: take });
    const missed: unknown[] = [];
    client.on("missed", (info) => missed.push(info));
    kit.server.on("missed", (_peer, method) => missed.push(method));
    kit.network.of(client).slow(100_000);
    // More than the low-water mark, an eighth of the 4 MiB of `maxUnsentBytes`.
    for (let i = 0; i < 12; i++) peer.notify("long", ["x".repeat(100_000)]);
    await kit.network.settle();
    for (let i = 1; i <= 100; i++) {
      kit.server.peers.notify("moved", { ada: i }, { latest: "ada" });
      kit.server.peers.notify("moved", { bob: i }, { latest: "bob" });
      kit.server.peers.notify("ping", [i], { volatile: true });
      if (i === 50) peer.notify("said", ["halfway"]);
    }
    peer.notify("said", ["end"]);
    await pass(60_000);
    expect(got.filter((one) => (one as string[])[0] !== "long")).toEqual([
      ["said", ["halfway"]],
      ["moved", { ada: 100 }],
      ["moved", { bob: 100 }],
      ["said", ["end"]],
    ]);
    expect([missed, peer.stats().dropped]).toEqual([[], 0]);
  });

  it("makes both sides report the messages that a slow peer missed", async () => {
    await kit.server.close();
    serveAgain({ limits: { maxUnsentBytes: 10_000 } });
    let got = 0;
    const { client, peer } = await joined({ methods: { tick: () => void got++ } });
    let count = 0;
    client.on("missed", (info) => (count += info.count));
    const missed: unknown[] = [];
    kit.server.on("missed", (one, method) => missed.push([one === peer, method]));
    kit.network.of(client).slow(1_000);
    for (let i = 0; i < 20; i++) {
      kit.server.peers.notify("tick", ["x".repeat(1_000)]);
      await kit.network.settle();
    }
    expect(count).toBe(0);
    await pass(60_000);
    expect(count).toBeGreaterThan(0);
    expect(got + count).toBe(20);
    expect(missed).toEqual(Array.from({ length: count }, () => [true, "tick"]));
  });

  it.each([undefined, false] as const)(
    "makes the report of missed messages wait until the reader has caught up, in one count (session %s)",
    async (session) => {
      await kit.server.close();
      serveAgain({ limits: { maxUnsentBytes: 100_000 }, session });
      const { client, peer } = await joined({ methods: { tick: () => {} } });
      const counts: number[] = [];
      client.on("missed", ({ count }) => counts.push(count));
      kit.network.stop();
      while (peer.stats().dropped < 2_000) {
        kit.server.peers.notify("tick", ["x".repeat(1_000)]);
        await kit.network.settle();
      }
      expect(peer.stats().unsentBytes).toBeLessThan(60_000);
      kit.network.start();
      await pass(1_000);
      expect([counts, client.state]).toEqual([[2_000], "open"]);
    },
  );

  it("counts bytes in full", async () => {
    const { client } = await joined();
    kit.network.slow(10_000);
    const outcomes = new Outcomes().watch("note", client.request("note", [bytes(new Uint8Array(100_000))]));
    await pass(9_900);
    expect([outcomes.names, heard]).toEqual([[], []]);
    await pass(1_000);
    expect(outcomes.names).toEqual(["note"]);
    expect(heard).toEqual([new Uint8Array(100_000)]);
  });

  it("closes the connection of a peer that reads too slowly with 1013", async () => {
    await kit.server.close();
    serveAgain({ session: false, limits: { maxUnsentBytes: 10_000 } });
    const { client, peer } = await joined({ reconnect: false });
    kit.network.slow(100);
    for (let i = 0; i < 20; i++) peer.notify("tick", ["x".repeat(1_000)]);
    expect(peer.state).toBe("open");
    await pass(20_000);
    expect(peer.state).toBe("closed");
    kit.network.slow(Infinity);
    expect((await client.closed).code).toBe(1013);
  });

  it.each([0, -1, Number.NaN, "1"])("throws a TypeError for %j bytes per second", (speed) => {
    expect(() => kit.network.slow(speed as number)).toThrow(TypeError);
  });
});

describe("the line of one client", () => {
  it("is found by either peer, and changes only that client", async () => {
    const [one, two] = [await joined(), await joined()];
    expect(kit.network.of(one.peer)).toBe(kit.network.of(one.client));
    kit.network.of(one.peer).cut();
    expect([one.client.state, two.client.state]).toEqual(["suspended", "open"]);
    await pass(0);
    expect(one.client.state).toBe("open");
    kit.network.of(two.client).stop();
    expect(await one.client.request("echo", [1])).toEqual([1]);
    const call = two.client.request("echo", [2]);
    await kit.network.settle();
    expect(two.client.stats().pending).toBe(1);
    kit.network.of(two.client).start();
    expect(await call).toEqual([2]);
    kit.network.of(one.client).lose();
    expect([one.peer.state, two.peer.state]).toEqual(["closed", "open"]);
  });

  it("begins as the network is when the client connects, and stays the same when it connects again", async () => {
    kit.network.slow(1_000);
    const connecting = kit.connect(kit.server.url);
    await pass(1_000);
    const client = await connecting;
    kit.network.of(client).slow(500);
    kit.network.cut();
    await pass(1_000);
    expect(client.state).toBe("open");
    const call = new Outcomes().watch("echo", client.request("echo", ["x".repeat(500)]));
    await pass(1_500);
    expect(call.names).toEqual([]);
    await pass(1_000);
    expect(call.names).toEqual(["echo"]);
  });

  it("does not exist for other peers", async () => {
    const [a, b] = pair({}, {});
    expect(() => kit.network.of(a)).toThrow(
      new TypeError("Expected `client` to be a peer or a WebSocket of this test server or its clients, got an object"),
    );
    await Promise.all([a.close(), b.close()]);
  });
});

describe("time", () => {
  it("does not pass: calls, handlers and streams need no timer, and a call times out when the clock advances", async () => {
    const { client } = await joined();
    expect(await client.request("echo", ["at once"])).toEqual(["at once"]);
    const call = rejection(client.request("never", undefined, { timeoutMs: 5_000 }));
    await pass(4_999);
    expect(client.stats().pending).toBe(1);
    await pass(1);
    expect(await call).toBeInstanceOf(TimeoutError);
  });

  it("passes between the attempts of a peer that `open` has returned, which reports each", async () => {
    await kit.server.close();
    let isUp = false;
    serveAgain({ authenticate: () => (isUp ? {} : new Promise(() => {})) });
    const client = kit.open(kit.server.url, { reconnect: { initial: true }, openTimeoutMs: 1_000 }) as AnyPeer;
    const attempts: number[] = [];
    client.on("attempt", ({ number }) => attempts.push(number));
    const call = client.request("echo", ["queued"], { timeoutMs: 60_000 });
    await pass(10_000);
    expect(client.state).toBe("connecting");
    expect(attempts.length).toBeGreaterThan(2);
    expect(attempts).toEqual(attempts.map((_, i) => i + 2));
    isUp = true;
    await pass(20_000);
    await client.opened;
    expect(await call).toEqual(["queued"]);
  });

  it("passes for `drain`, which closes busy peers at its deadline", async () => {
    const { client } = await joined();
    const call = rejection(client.request("never"));
    await kit.network.settle();
    let isDrained = false;
    const drained = kit.server.drain({ timeoutMs: 5_000 }).then(() => (isDrained = true));
    await pass(4_900);
    expect([isDrained, client.state]).toEqual([false, "open"]);
    await pass(200);
    await drained;
    expect(await call).toMatchObject({ outcome: "unknown" });
    expect(client.state).toBe("closed");
  });

  it("passes for `authenticate` and its timeout", async () => {
    await kit.server.close();
    serveAgain({ authenticate: () => new Promise(() => {}), limits: { handshakeTimeoutMs: 2_000 } });
    const connecting = rejection(kit.connect(kit.server.url));
    await pass(2_000);
    expect(await connecting).toMatchObject({ status: 503 });
  });
});
