import { describe, expect, it, vi } from "vitest";
import type { ServerStats } from "../../src/node.js";
import { plainPeer } from "../support/network.js";
import { post } from "../support/post.js";
import { turn } from "../support/turns.js";
import { connect, nextPeer, servingOnPort } from "./by-hand.js";

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
