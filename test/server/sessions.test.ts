/** Sessions of a server, over a network in memory. `test/session` tests their frames. */
import { describe, expect, it } from "vitest";
import { confirmed } from "../client/clients.js";
import { ByHand, connect, nextPeer, serving } from "./by-hand.js";

describe("a client that resumes its session", () => {
  it("keeps its peer in the topics and among the peers, and causes no `peer` event, and no `lost` at the client", async () => {
    const { server, url, cut } = await serving();
    const events: string[] = [];
    server.on("peer", () => events.push("peer"));
    const coming = nextPeer(server);
    const client = await confirmed(connect, url);
    client.on("lost", () => events.push("lost"));
    const peer = await coming;
    server.topic("room").add(peer);
    const [back, resumed] = [client.waitFor("resume"), peer.waitFor("resume")];
    cut();
    await Promise.all([back, resumed]);
    expect([[...server.peers], [...server.topic("room")]]).toEqual([[peer], [peer]]);
    expect([events, peer.state]).toEqual([["peer"], "open"]);
    expect(server.stats()).toMatchObject({ opened: 1, resumed: 1, peers: 1, suspended: 0 });
  });

  it("resumes at a server whose longest message is shorter than its `resume`", async () => {
    const { server, url, cut } = await serving({ limits: { maxMessageBytes: 50 }, methods: { add: () => 3 } });
    let refreshed = 0;
    server.on("refresh", () => refreshed++);
    const client = await connect(url);
    for (let i = 0; i < 2; i++) expect(await client.request("add")).toBe(3);
    const back = client.waitFor("resume");
    cut();
    await back;
    expect(await client.request("add")).toBe(3);
    expect(server.stats()).toMatchObject({ opened: 1, resumed: 1 });
    // There is no `authenticate` that could refresh anything.
    expect(refreshed).toBe(0);
  });
});

describe("the option `session`", () => {
  it.each([
    [undefined, 60_000],
    [{}, 60_000],
    [{ ttlMs: 1_234 }, 1_234],
  ])("is sent to the client, 60 s by default: %j", async (session, ttlMs) => {
    const { url } = await serving({ session });
    const byHand = await ByHand.open(url);
    expect(await byHand.next()).toMatchObject({ hello: { session: { token: expect.any(String), ttlMs } } });
  });

  it.each([false, true])("is off if it is false: a peer ends with its socket, offer to resume %s", async (returns) => {
    const { server, url } = await serving({ session: false });
    const coming = nextPeer(server);
    const byHand = await ByHand.open(url, { returns });
    expect(await byHand.next()).toEqual({ hello: { bytes: true } });
    byHand.say({ hello: { session: true, limits: { maxMessageBytes: 1, logFrames: 1, logLength: 1 } } });
    byHand.say({ ping: 1 });
    expect(await byHand.next()).toEqual({ pong: 1 });
    byHand.cut();
    expect((await (await coming).closed).code).toBe(1006);
    expect(server.stats().suspended).toBe(0);
  });
});
