/** The network of a test server, under a fake clock: everything below happens without a real timer. */
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { bytes, pair, type AnyPeer } from "../../src/index.js";
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
});

describe("network.slow()", () => {
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
