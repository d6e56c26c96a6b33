/** `volatile`, `latest` and `missed` between a server and its clients. */
import { describe, expect, it } from "vitest";
import type { AnyPeer, Server } from "../../src/node.js";
import { pass } from "../support/time.js";
import { rejection } from "../support/turns.js";
import { ByHand, drop, serving, suspended, useTime } from "./by-hand.js";
import { join, makeServer, networkOf, type Member } from "./members.js";

useTime();

const MANY = "x".repeat(1_000);

/** Records the `missed` events of a server: the peers, and the count of each method. */
function missedBy(server: Server): { peers: Set<AnyPeer>; methods: Record<string, number> } {
  const missed = { peers: new Set<AnyPeer>(), methods: {} as Record<string, number> };
  server.on("missed", (peer: AnyPeer, method) => {
    missed.peers.add(peer);
    missed.methods[method] = (missed.methods[method] ?? 0) + 1;
  });
  return missed;
}

/** Connects a client whose session can be resumed. `got` also has the counts that it is reported. */
async function joinSession(server: Server, options: object = {}): Promise<Member> {
  const member = await join(server, {}, options);
  // The second response follows the client's ack of the token.
  for (let i = 0; i < 2; i++) await rejection(member.client.request("nothing", [], { timeoutMs: 1_000 }));
  member.client.on("missed", ({ count }) => member.got.push(count));
  return member;
}

/** Returns what the first data frame after a resume has. */
async function firstData({ byHand }: { byHand: ByHand }): Promise<unknown> {
  for (;;) {
    const frame: unknown = await byHand.next();
    if (Array.isArray(frame) || "missed" in (frame as object)) return frame;
  }
}

describe("a topic's message with a key", () => {
  it("reaches a plain client in the same way, which gets nothing else", async () => {
    await using server = makeServer({ limits: { maxUnsentBytes: 200_000 } });
    const { peer, got } = await join(server, {}, { link: "plain" });
    const missed = missedBy(server);
    networkOf(server).stop();
    while (peer.stats().unsentBytes < 60_000) server.peers.notify("pad", [MANY.repeat(40)]);
    for (let i = 1; i <= 5_000; i++) server.peers.notify("moved", [i], { latest: "ann" });
    server.peers.notify("moved", [0], { volatile: true });
    networkOf(server).start();
    await pass(1_000);
    expect(got.at(-1)).toEqual(["moved", [5_000]]);
    expect(new Set(got.slice(0, -1).map((message) => (message as [string])[0]))).toEqual(new Set(["pad"]));
    expect(missed.methods).toEqual({});
  });
});

describe("a volatile message", () => {
  it("reaches a connected client, and none that is suspended, and is not counted", async () => {
    await using server = makeServer();
    const missed = missedBy(server);
    const { peer, client, got } = await joinSession(server);
    server.peers.notify("moved", [1], { volatile: true });
    expect(peer.notify("moved", [2], { volatile: true })).toBe(true);
    await pass(0);
    networkOf(server).cut();
    const { notificationsSent } = peer.stats();
    server.peers.notify("moved", [3], { volatile: true });
    for (const one of [peer, client]) expect(one.notify("moved", [4], { volatile: true })).toBe(false);
    server.peers.notify("moved", [5]);
    await pass(0);
    expect(got).toEqual([1, 2, 5].map((n) => ["moved", [n]]));
    expect(peer.stats()).toMatchObject({ dropped: 0, notificationsSent: notificationsSent + 1 });
    expect(missed.methods).toEqual({});
  });
});

describe("a dropped message", () => {
  it("is emitted by the server with its peer and method, and reported to the client before the next message, once", async () => {
    const world = await serving({ limits: { maxUnsentBytes: 40_000 } });
    const { server, url } = world;
    const missed = missedBy(server);
    const { peer, token } = await suspended(world);
    for (let i = 0; i < 30; i++) server.peers.notify("said", [MANY]);
    const { dropped } = peer.stats();
    expect(dropped).toBeGreaterThan(10);
    expect(missed).toEqual({ peers: new Set([peer]), methods: { said: dropped } });
    const first = await ByHand.resume(url, token, 1);
    expect(await firstData(first)).toEqual({ missed: dropped });
    // The report is replayed like any data frame, because the client has acknowledged nothing.
    await drop({ byHand: first.byHand, peer });
    const { token: next } = (first.answer as { resumed: { token: string } }).resumed;
    expect(await firstData(await ByHand.resume(url, next, 2))).toEqual({ missed: dropped });
  });

  it("arrives or is reported, each one, after floods while the client was away", async () => {
    await using server = makeServer({ limits: { maxUnsentBytes: 40_000 } });
    const missed = missedBy(server);
    const { peer, got } = await joinSession(server);
    let sent = 0;
    for (let round = 0; round < 4; round++) {
      networkOf(server).cut();
      for (let i = 0; i < 50; i++) server.peers.notify("said", [++sent, MANY]);
      await pass(60_000);
    }
    const counts = got.filter((value) => typeof value === "number");
    const count = counts.reduce((sum, value) => sum + value, 0);
    expect(got.length - counts.length + count).toBe(sent);
    expect(count).toBeGreaterThan(0);
    expect([peer.stats().dropped, missed.methods]).toEqual([count, { said: count }]);
  });
});
