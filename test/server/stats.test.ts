import { describe, expect, it, vi } from "vitest";
import type { ServerStats } from "../../src/node.js";
import { plainPeer } from "../support/network.js";
import { post } from "../support/post.js";
import { gate, rejection, turn } from "../support/turns.js";
import { ByHand, connect, nextPeer, serving, servingOnPort, suspended } from "./by-hand.js";

const GAUGES = ["peers", "suspended", "suspendedBytes", "topics", "pending", "running", "streams", "unsentBytes"];

function countsOf(stats: ServerStats): [name: string, count: number][] {
  const numbers = Object.entries(stats).filter(([name, value]) => typeof value === "number" && !GAUGES.includes(name));
  return numbers as [string, number][];
}

describe("server.stats()", () => {
  it("sums open peers, ended peers and POSTs", async () => {
    const { server, url } = await servingOnPort({
      methods: { one: () => 1, ask: (_p, { peer }) => peer.request("confirm") },
    });
    const methods = { confirm: () => true };
    const first = await connect(url, { methods });
    const second = await connect(url, { methods });
    for (const client of [first, second]) {
      await client.request("one");
      await client.request("ask");
      client.notify("one");
    }
    await first.close();
    await post(url, '[{"jsonrpc":"2.0","id":1,"method":"one"},{"jsonrpc":"2.0","method":"one"}, 5]');
    await second.request("one");
    await vi.waitFor(() => expect(server.stats().peers).toBe(1));
    expect(server.stats()).toMatchObject({
      peers: 1,
      opened: 3,
      requestsReceived: 6,
      notificationsReceived: 3,
      requestsSent: 2,
      malformed: 1,
      closed: { 1000: 2 },
    });
    await second.close();
    await vi.waitFor(() => expect(server.stats().peers).toBe(0));
    expect(server.stats()).toMatchObject({ opened: 3, requestsReceived: 6, requestsSent: 2, closed: { 1000: 3 } });
  });

  it("reports the present peers, topics, running handlers, streams and pending calls", async () => {
    const open = gate();
    const { server, url } = await serving({
      methods: {
        slow: () => open.promise,
        async *tail() {
          yield 1;
          await open.promise;
        },
      },
    });
    const coming = nextPeer(server);
    await using client = await connect(url, { methods: { never: () => new Promise(() => {}) } });
    const peer = await coming;
    server.topic("a").add(peer);
    server.topic("b").add(peer);
    const slow = client.request("slow");
    const stream = client.stream("tail")[Symbol.asyncIterator]();
    await stream.next();
    const never = rejection(peer.request("never"));
    expect(server.stats()).toMatchObject({ peers: 1, topics: 2, running: 1, streams: 1, pending: 1 });
    open.resolve();
    await slow;
    await stream.next();
    server.topic("a").delete(peer);
    expect(server.stats()).toMatchObject({ topics: 1, running: 0, streams: 0, pending: 1 });
    await client.close();
    await never;
    await vi.waitFor(() => expect(server.stats()).toMatchObject({ peers: 0, topics: 0, pending: 0 }));
  });

  it("counts ends by close code, and a resumed session as resumed and not as opened", async () => {
    const world = await serving({ limits: { maxMalformedPerMinute: 1 } });
    const { server, url } = world;
    const { peer, token } = await suspended(world);
    expect(server.stats()).toMatchObject({ peers: 1, suspended: 1, opened: 1, resumed: 0, closed: {} });
    peer.notify("n", { text: "x".repeat(1_000) });
    expect(server.stats().suspendedBytes).toBeGreaterThan(1_000);
    const { byHand } = await ByHand.resume(url, token, 1);
    expect(server.stats()).toMatchObject({ peers: 1, suspended: 0, suspendedBytes: 0, opened: 1, resumed: 1 });
    byHand.say([1, 2]);
    await peer.closed;
    const plain = { link: "plain", reconnect: false } as const;
    await (await connect(url, plain)).close(4_321);
    await connect(url, plain);
    world.cut();
    await vi.waitFor(() => expect(server.stats().peers).toBe(0));
    expect(server.stats()).toMatchObject({ opened: 3, closed: { 1008: 1, 4321: 1, 1006: 1 } });
  });

  it("never decreases when connections are cut, also one that has queued bytes", async () => {
    const { server, url, cut } = await servingOnPort({
      methods: { one: () => 1 },
      limits: { maxUnsentBytes: 2 ** 20 },
    });
    let last = countsOf(server.stats());
    const look = (): void => {
      const now = countsOf(server.stats());
      for (const [i, [name, count]] of last.entries()) expect([name, now[i]![1] >= count]).toEqual([name, true]);
      last = now;
    };
    const client = await connect(url);
    for (let i = 0; i < 2; i++) await client.request("one");
    const coming = nextPeer(server);
    using deaf = await plainPeer(url);
    deaf.webSocket.pause();
    const slow = await coming;
    for (; slow.stats().unsentBytes < 2 ** 19; await turn()) slow.notify("n", ["x".repeat(2 ** 16)]);
    look();
    const back = client.waitFor("resume");
    cut();
    look();
    await Promise.all([back, slow.closed]);
    look();
    await client.close();
    await vi.waitFor(() => expect(server.stats().peers).toBe(0));
    look();
    expect(server.stats()).toMatchObject({ opened: 2, resumed: 1 });
  });
});
