/** What a link knows of its sockets: their traffic, when they last received, and how they ping. */
import { describe, expect, it, vi } from "vitest";
import { serverLink, TestClient } from "../../support/links.js";
import { useFakeClock } from "../../support/clock.js";
import { LIMITS, message, numbers, range, Rig, Told, ToldLost } from "./rig.js";
import { Wire } from "./wire.js";

useFakeClock();

describe("traffic", () => {
  it("sums all sockets of a link, also those that it has lost or left", async () => {
    await using rig = await Rig.live();
    const { link } = rig.client;
    expect(link.traffic).toBeUndefined();
    rig.wire.client.traffic = { received: 10, sent: 20 };
    rig.wire.server.traffic = { received: 5, sent: 6 };
    expect(link.traffic).toEqual({ received: 10, sent: 20 });
    link.giveUp("it is quiet");
    expect(link.traffic).toEqual({ received: 10, sent: 20 });
    const { client } = rig.reconnect();
    client.traffic = { received: 1, sent: 2 };
    await rig.settle();
    expect(link.traffic).toEqual({ received: 11, sent: 22 });
    // The server's next socket counts no traffic. It has evicted the first.
    expect(rig.server.link.traffic).toEqual({ received: 5, sent: 6 });
    client.traffic = { received: 3, sent: 4 };
    rig.cut();
    expect(link.traffic).toEqual({ received: 13, sent: 24 });
  });
});

describe("the last time a link received", () => {
  it("is that of its current socket, if the socket records it", async () => {
    await using rig = await Rig.live();
    expect(rig.client.link.heardAt).toBeUndefined();
    rig.wire.client.heardAt = 5;
    expect(rig.client.link.heardAt).toBe(5);
    rig.cut();
    expect(rig.client.link.heardAt).toBeUndefined();
  });
});

describe("a read budget that is spent", () => {
  it("leaves the rest of a pack to later ticks, in order", async () => {
    await using rig = await Rig.live();
    rig.cut();
    const { client } = rig.open(true);
    const deferred: (() => void)[] = [];
    const defer = (then: () => void): unknown => deferred.push(then);
    Object.assign(client, { budget: { isSpent: () => true, defer, adopt() {} } });
    rig.client.dial(client);
    await rig.settle();
    for (const n of [1, 2, 3]) rig.server.link.send(message(n));
    await rig.settle();
    for (const n of [1, 2, 3]) {
      expect(numbers(rig.emitted)).toEqual(range(1, n));
      deferred.shift()?.();
    }
    expect(deferred).toEqual([]);
  });
});

describe("a liveness probe", () => {
  it("is a ping frame if the other side understands it, and not a ping of the socket", async () => {
    await using rig = await Rig.live();
    const ping = (rig.wire.client.ping = vi.fn<() => void>());
    expect(rig.client.link.canPing).toBe(true);
    rig.client.link.ping();
    expect(rig.wire.client.sent.at(-1)).toBe('{"ping":1}');
    expect(ping).not.toHaveBeenCalled();
  });

  it("is a ping of the socket if the link is plain and the socket can ping", () => {
    const { client: socket } = new Wire();
    const flows = vi.fn<(isFresh: boolean) => void>();
    const { link } = new TestClient(socket, LIMITS, { flows, over: () => false }, "plain");
    link.start(new ToldLost());
    expect(flows).toHaveBeenCalledExactlyOnceWith(true);
    expect(link.canPing).toBe(false);
    link.ping();
    const ping = (socket.ping = vi.fn<() => void>());
    expect(link.canPing).toBe(true);
    link.ping();
    expect(ping).toHaveBeenCalledTimes(1);
    expect(socket.sent).toEqual([]);
    link.close();
  });

  it("is not sent before messages flow", async () => {
    await using rig = await Rig.live();
    rig.cut();
    const { client } = rig.reconnect();
    const ping = (client.ping = vi.fn<() => void>());
    rig.client.link.ping();
    expect(ping).not.toHaveBeenCalled();
    expect(client.sent).toEqual([]);
  });

  it("can be sent by a server right after its hello", () => {
    const link = serverLink(new Wire().server);
    link.start(new Told());
    expect(link.canPing).toBe(true);
  });
});
