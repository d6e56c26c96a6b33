import { beforeEach, describe, expect, it, onTestFinished } from "vitest";
import { bytes, ConnectError, pair, type AnyPeer, type Context } from "../../src/index.js";
import { Subscriptions } from "../../src/node.js";
import { testServer, type TestServer } from "../../src/testing/index.js";
import { Outcomes, pass, rejection, useVirtualClock } from "../support/time.js";

type AnyTestServer = TestServer<any, any, unknown>;

let kit: AnyTestServer;
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
  // No timer is left after it, which the virtual clock asserts.
  onTestFinished(() => kit.server.close());
}

useVirtualClock();
beforeEach(() => serveAgain());

async function joined(options: object = {}): Promise<{ client: AnyPeer; peer: AnyPeer }> {
  const coming = new Promise<AnyPeer>((resolve) => kit.server.once("peer", (one) => resolve(one as AnyPeer)));
  const client = (await kit.connect(kit.server.url, options)) as AnyPeer;
  for (let i = 0; i < 2; i++) await client.request("echo", [i]);
  return { client, peer: await coming };
}

it.each([
  ["packed", "suspended"],
  ["plain", "closed"],
])("network.cut() ends the sockets of both peers at once, with what is under way (%s: %s)", async (link, state) => {
  const { client, peer } = await joined({ link });
  client.notify("note", ["under way"]);
  const call = new Outcomes().watch("never", client.request("never"));
  kit.network.cut();
  expect([client.state, peer.state]).toEqual([state, state]);
  await kit.network.settle();
  expect([heard, client.state]).toEqual([[], state]);
  await pass(0);
  if (state === "suspended") {
    expect([heard, client.state, call.list]).toEqual([["under way"], "open", []]);
    expect(kit.server.stats()).toMatchObject({ opened: 1, resumed: 1, peers: 1 });
  } else expect([heard, call.list]).toMatchObject([[], [{ reason: { outcome: "unknown" } }]]);
});

it("network.cut() rejects a client that waits for the answer", async () => {
  kit.network.stop();
  const failed = rejection(kit.connect("ws://user:secret@test/path?token=1"));
  await kit.network.settle();
  kit.network.cut();
  const error = await failed;
  expect(error).toBeInstanceOf(ConnectError);
  expect(error.message).toContain("the connection was lost");
  expect(error.message).not.toContain("secret");
});

/** Returns the params of a "note" whose frame has so many bytes. */
function sized(length: number, unit = "x"): string[] {
  const left = length - JSON.stringify({ jsonrpc: "2.0", method: "note", params: [""] }).length;
  const { length: size } = Buffer.from(unit);
  return [unit.repeat(left / size) + "x".repeat(left % size)];
}

describe("network.slow()", () => {
  it("delivers each frame when its last byte has passed, in order, and counts it as unsent until then", async () => {
    const { client, peer } = await joined({ link: "plain" });
    const before = peer.stats().bytesReceived;
    kit.network.slow(1000);
    for (const params of [sized(500), sized(250, "é"), sized(100)]) client.notify("note", params);
    await kit.network.settle();
    for (const [ms, count, unsentBytes] of [
      [499, 0, 850],
      [1, 1, 350],
      [250, 2, 100],
      [99, 2, 100],
      [1, 3, 0],
    ] as const) {
      await pass(ms);
      expect([heard.length, client.stats().unsentBytes]).toEqual([count, unsentBytes]);
    }
    expect(peer.stats().bytesReceived - before).toBe(850);
  });

  it("can change while a frame passes, and whatever has passed counts, as do bytes", async () => {
    const { client } = await joined({ link: "plain" });
    kit.network.slow(100);
    client.notify("note", sized(300));
    await pass(1000);
    kit.network.stop();
    await pass(10_000);
    expect([heard.length, client.stats().unsentBytes]).toEqual([0, 300]);
    kit.network.slow(400);
    kit.network.start();
    await pass(499);
    expect(heard).toHaveLength(0);
    await pass(1);
    expect(heard).toHaveLength(1);
    // At full speed too, a frame that has not arrived stops.
    kit.network.slow(Infinity);
    client.notify("note", ["late"]);
    kit.network.stop();
    await pass(1_000);
    expect(heard).toHaveLength(1);
    kit.network.start();
    await pass(0);
    expect([heard.at(-1), client.stats().unsentBytes]).toEqual(["late", 0]);
    const packed = await joined();
    kit.network.slow(10_000);
    packed.client.notify("note", [bytes(new Uint8Array(100_000))]);
    await pass(9_900);
    expect(heard).toHaveLength(2);
    await pass(1_000);
    expect(heard.at(-1)).toEqual(new Uint8Array(100_000));
  });

  it.each([undefined, false] as const)("reports what a reader missed when it has caught up (%s)", async (session) => {
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
  });

  it.each([0, -1, Number.NaN, "1"])("throws a TypeError for %j bytes per second", (speed) => {
    expect(() => kit.network.slow(speed as number)).toThrow(TypeError);
  });
});

it("ends a close that the other end does not answer after 5 s", async () => {
  const webSocket = new kit.WebSocket("ws://test/");
  await kit.network.settle();
  const [peer] = kit.server.peers as Iterable<AnyPeer>;
  kit.network.stop();
  webSocket.close(4000, "unheard");
  await pass(4_999);
  expect(webSocket.readyState).toBe(2);
  await pass(1);
  expect([webSocket.readyState, peer!.state]).toEqual([3, "open"]);
  kit.network.start();
  expect(await peer!.closed).toMatchObject({ code: 4000, reason: "unheard" });
});

it("reports to a server that a client has read a response, which the values of a subscription follow", async () => {
  await kit.server.close();
  const kind = new Subscriptions<number>({ method: "said" });
  const subscribe = (_params: unknown, context: Context): unknown => {
    const { id, notify } = kind.open(context);
    notify(1);
    return id;
  };
  serveAgain({ methods: { subscribe } });
  const client = (await kit.connect(kit.server.url)) as AnyPeer;
  client.on("notification", (method) => heard.push(method));
  await client.request("subscribe");
  await kit.network.settle();
  expect(heard).toEqual(["said"]);
});

describe("the line of one client", () => {
  it("is found by either peer, also after `lose`, and changes only that client", async () => {
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
    const lost = rejection(one.client.request("never"));
    await kit.network.settle();
    kit.network.of(one.client).lose();
    expect([one.client.state, one.peer.state, two.peer.state]).toEqual(["suspended", "closed", "open"]);
    // After two losses, a delay precedes the attempt.
    await pass(1_000);
    expect(await lost).toMatchObject({ name: "ConnectionLostError", outcome: "unknown" });
    expect(await one.client.request("echo", [1])).toEqual([1]);
    expect(kit.server.stats()).toMatchObject({ opened: 3, peers: 2, closed: { 1006: 1 } });
    const next = [...kit.server.peers].at(-1)!;
    expect(kit.network.of(next)).toBe(kit.network.of(one.client));
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
    expect(() => kit.network.of(a)).toThrow(TypeError);
    await Promise.all([a.close(), b.close()]);
  });
});
