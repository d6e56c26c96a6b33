/** Clients over real sockets: what the network in memory does not have. */
import { expect, it } from "vitest";
import type { AnyPeer } from "../../src/index.js";
import { connect as connectNode } from "../../src/node.js";
import { Relay } from "../support/relay.js";
import { rejection } from "../support/turns.js";
import { bareServer, event, record } from "./clients.js";

const heartbeat = { intervalMs: 100, deadAfterMs: 500 };

it("detects a frozen plain server from Node, by pings of the WebSocket", async () => {
  await using bare = await bareServer();
  await using relay = await Relay.to(bare.url);
  await using peer = (await connectNode(relay.url, { link: "plain", reconnect: true, heartbeat })) as AnyPeer;
  await using other = await connectNode(relay.url, { link: "plain", reconnect: false, heartbeat });
  const emitted = record(peer);
  await peer.request("echo", [1]);
  let pings = 0;
  for (const webSocket of bare.webSockets) webSocket.on("ping", () => pings++);
  await expect.poll(() => pings, { timeout: 5000 }).toBeGreaterThan(1);
  relay.pause();
  const call = rejection(peer.request("echo", [2]));
  await event(peer, "lost");
  expect(await call).toMatchObject({ outcome: "unknown" });
  expect(await other.closed).toMatchObject({ code: 1006 });
  relay.mend();
  await event(peer, "resume");
  expect(await peer.request("echo", [3])).toEqual([3]);
  expect(emitted).toEqual(["suspend", "lost", "resume"]);
});
