/** What a link knows of its sockets: their traffic, when they last received, and how they ping. */
import { describe, expect, it, vi } from "vitest";
import { serverLink, TestClient } from "../../support/links.js";
import { useFakeClock } from "../../support/clock.js";
import { LIMITS, Rig, Told, ToldLost } from "./rig.js";
import { Wire } from "./wire.js";

useFakeClock();

describe("traffic", () => {
  it("sums all sockets of a link, the lost ones included", async () => {
    const rig = await Rig.live();
    expect(rig.client.link.traffic).toBeUndefined();
    rig.wire.client.traffic = { received: 10, sent: 20 };
    expect(rig.client.link.traffic).toEqual({ received: 10, sent: 20 });
    rig.cut();
    // The traffic of a socket is added when the socket is lost.
    expect(rig.client.link.traffic).toEqual({ received: 10, sent: 20 });
    const { client } = rig.reconnect();
    client.traffic = { received: 1, sent: 2 };
    await rig.settle();
    expect(rig.client.link.traffic).toEqual({ received: 11, sent: 22 });
    client.traffic = { received: 3, sent: 4 };
    rig.client.link.giveUp("it is quiet");
    expect(rig.client.link.traffic).toEqual({ received: 13, sent: 24 });
    await rig.close();
    expect(rig.client.link.traffic).toEqual({ received: 13, sent: 24 });
  });

  it("sums only the sockets that count traffic", async () => {
    const rig = await Rig.live();
    await rig.cutAndResume();
    rig.wire.server.traffic = { received: 5, sent: 6 };
    expect(rig.server.link.traffic).toEqual({ received: 5, sent: 6 });
    await rig.cutAndResume();
    expect(rig.server.link.traffic).toEqual({ received: 5, sent: 6 });
    await rig.close();
  });

  it("includes a socket that a newer socket evicts", async () => {
    const rig = await Rig.live();
    rig.wire.server.traffic = { received: 5, sent: 6 };
    rig.client.link.giveUp("it is quiet");
    const { server } = rig.reconnect();
    server.traffic = { received: 1, sent: 1 };
    await rig.settle();
    expect(rig.server.link.traffic).toEqual({ received: 6, sent: 7 });
    await rig.close();
  });
});

describe("the last time a link received", () => {
  it("is that of its current socket, if the socket records it", async () => {
    const rig = await Rig.live();
    expect(rig.client.link.heardAt).toBeUndefined();
    rig.wire.client.heardAt = 5;
    expect(rig.client.link.heardAt).toBe(5);
    rig.cut();
    expect(rig.client.link.heardAt).toBeUndefined();
    await rig.close();
  });
});

describe("a liveness probe", () => {
  it("is a ping frame if the other side understands it, and not a ping of the socket", async () => {
    const rig = await Rig.live();
    const ping = (rig.wire.client.ping = vi.fn<() => void>());
    expect(rig.client.link.canPing).toBe(true);
    rig.client.link.ping();
    expect(rig.wire.client.sent.at(-1)).toBe('{"ping":1}');
    expect(ping).not.toHaveBeenCalled();
    await rig.close();
  });

  it("is a ping of the socket if the link is plain and the socket can ping", async () => {
    const wire = new Wire();
    wire.server.start({ frame() {}, closed() {} });
    const flows = vi.fn<(isFresh: boolean) => void>();
    const client = new TestClient(wire.client, LIMITS, { flows, over: () => false }, "plain");
    client.link.start(new ToldLost());
    expect(flows).toHaveBeenCalledExactlyOnceWith(true);
    expect(client.link.canPing).toBe(false);
    client.link.ping();
    const ping = (wire.client.ping = vi.fn<() => void>());
    expect(client.link.canPing).toBe(true);
    client.link.ping();
    expect(ping).toHaveBeenCalledTimes(1);
    expect(wire.client.sent).toEqual([]);
    // A plain link for good: a packed control frame is not understood on it.
    wire.server.send('{"hello":{"session":true}}');
    client.link.send("[1]");
    await wire.settle();
    expect(wire.client.sent).toEqual(["[1]"]);
    client.link.close();
  });

  it("is not sent before messages flow", async () => {
    const rig = await Rig.live();
    rig.cut();
    const { client } = rig.reconnect();
    const ping = (client.ping = vi.fn<() => void>());
    rig.client.link.ping();
    expect(ping).not.toHaveBeenCalled();
    expect(client.sent).toEqual([]);
    await rig.close();
  });

  it("can be sent by a server right after its hello", () => {
    const { server } = new Wire();
    const link = serverLink(server);
    link.start(new Told());
    expect(link.canPing).toBe(true);
  });
});
