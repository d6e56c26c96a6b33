import { expect, it } from "vitest";
import type { Server } from "../../src/node.js";
import { pass, rejection, useVirtualClock } from "../support/time.js";
import { join, makeServer, networkOf, type Member } from "./members.js";

useVirtualClock();

const MANY = "x".repeat(1_000);

function missedBy(server: Server): Record<string, number> {
  const missed: Record<string, number> = {};
  server.on("missed", (_peer, method) => (missed[method] = (missed[method] ?? 0) + 1));
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

it("a topic's message with a key reaches a plain client in the same way, which gets nothing else", async () => {
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
  expect(missed).toEqual({});
});

it("a volatile message reaches a connected client, and none that is suspended, and is not counted", async () => {
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
  expect(missed).toEqual({});
});

it("a dropped message arrives or is reported, each one, after floods while the client was away", async () => {
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
  expect([peer.stats().dropped, missed]).toEqual([count, { said: count }]);
});
