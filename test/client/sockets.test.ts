/** Clients over real sockets: what the network in memory does not have. */
import { getEventListeners, once } from "node:events";
import type { IncomingMessage } from "node:http";
import { createServer as createTcpServer, type Socket } from "node:net";
import { expect, it } from "vitest";
import type { AnyPeer, Attempt, CloseInfo } from "../../src/index.js";
import { connect as connectNode, serve } from "../../src/node.js";
import { listening } from "../support/network.js";
import { Relay } from "../support/relay.js";
import { rejection } from "../support/turns.js";
import { bareServer, confirmed, event, record, type Connect } from "./clients.js";

it.each([
  ["headers", new Map([["a", "b"]])],
  ["headers", "a: b"],
  ["tls", 5],
  ["signal", null],
  ["signal", new AbortController()],
])("a client in Node refuses `%s` that is %j", async (name, value) => {
  const error = await rejection(connectNode("ws://localhost:1", { [name]: value } as never));
  expect(error).toBeInstanceOf(TypeError);
  expect(error.message).toContain(`\`${name}\``);
});

it("a client in Node sends the headers of a function, new ones for each attempt", async () => {
  const cookies: unknown[] = [];
  const authenticate = ({ headers }: IncomingMessage): unknown => cookies.push(headers.cookie);
  await using server = await serve<any, any, any>({ port: 0, authenticate });
  await using relay = await Relay.to(server.url);
  await using peer = await confirmed(connectNode as Connect, relay.url, {
    headers: ({ number, reason }: Attempt) => ({ cookie: `${number} ${(reason as CloseInfo | undefined)?.code}` }),
  });
  const back = event(peer, "resume");
  relay.cut();
  await back;
  expect(cookies).toEqual(["1 undefined", "1 1006"]);
});

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

it("disconnects from a server that never answers when its signal aborts", async () => {
  const controller = new AbortController();
  const { signal } = controller;
  const listener = createTcpServer();
  await using silent = await listening(listener);
  const arrival = once(listener, "connection");
  const connecting = rejection(connectNode(silent.url, { signal }));
  const [socket] = (await arrival) as [Socket];
  socket.resume();
  socket.on("error", () => {});
  const gone = once(socket, "close");
  const reason = new Error("the user went elsewhere");
  controller.abort(reason);
  expect(await connecting).toBe(reason);
  await gone;
  expect(getEventListeners(signal, "abort")).toEqual([]);
});
