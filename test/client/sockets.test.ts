/** Clients over real sockets: what the network in memory does not have. */
import { expect, it } from "vitest";
import type { AnyPeer } from "../../src/index.js";
import { connect as connectNode } from "../../src/node.js";
import { virtualClock } from "../../src/testing/index.js";
import { Relay } from "../support/relay.js";
import { rejection } from "../support/turns.js";
import { bareServer, record } from "./clients.js";

const heartbeat = { intervalMs: 100, deadAfterMs: 500 };

it("detects a frozen plain server from Node, by pings of the WebSocket", async () => {
  using clock = virtualClock();
  await using bare = await bareServer();
  await using relay = await Relay.to(bare.url);
  await using peer = (await connectNode(relay.url, { link: "plain", reconnect: true, heartbeat })) as AnyPeer;
  await using other = await connectNode(relay.url, { link: "plain", reconnect: false, heartbeat });
  const emitted = record(peer);
  await peer.request("echo", [1]);
  let pings = 0;
  for (const webSocket of bare.webSockets) webSocket.on("ping", () => pings++);
  // A ping is answered before the call that follows it.
  for (let n = 1; n <= 2; n++) {
    await clock.pass(100);
    await Promise.all([peer.request("echo", [n]), other.request("echo", [n])]);
    expect(pings).toBe(2 * n);
  }
  relay.pause();
  const call = rejection(peer.request("echo", [2]));
  await clock.pass(500);
  expect(await call).toMatchObject({ outcome: "unknown" });
  expect(await other.closed).toMatchObject({ code: 1006 });
  while (relay.accepted < 3) await clock.pass(100);
  const resumed = peer.waitFor("resume");
  relay.mend();
  await resumed;
  expect(await peer.request("echo", [3])).toEqual([3]);
  expect(emitted).toEqual(["suspend", "lost", "resume"]);
});
