import { once } from "node:events";
import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import { afterEach, expect, it, vi } from "vitest";
import { WebSocket, WebSocketServer } from "ws";
import { GatheringWebSocket, WsSocket } from "../../src/sockets/ws.js";
import { SharedFrame } from "../../src/core/transport.js";
import { bareHttp } from "../support/network.js";
import { Recorder } from "./behaviour.js";
import { describeWebSocket, overNetwork } from "./websocket.js";

// A real server and client stop a longer message while they read it, as here.
const options = (maxPayload: number): object => ({ maxPayload, perMessageDeflate: false });

describeWebSocket(
  "over ws",
  overNetwork((webSocket, most) => new WsSocket(webSocket, most), options),
  { tooLarge: 1009 },
);

// As Bun does, which replaces `ws`: its `upgrade` event holds no socket.
const makeWithoutSocket = overNetwork((webSocket, most) => {
  const socket = new WsSocket(webSocket, most);
  webSocket.emit("upgrade", { socket: null });
  return socket;
}, options);

describeWebSocket("over ws that hands out no socket", makeWithoutSocket, { tooLarge: 1009 });

afterEach(() => {
  vi.doUnmock("ws");
  vi.resetModules();
});

it("writes nothing to a server's socket where `ws` makes no frames of its own, as in Bun", async () => {
  vi.doMock("ws", async (original) => ({ ...(await original<object>()), Sender: class {} }));
  vi.resetModules();
  const replaced = await import("../../src/sockets/ws.js");
  await using http = await bareHttp();
  const upgrader = new WebSocketServer({ noServer: true, WebSocket: replaced.GatheringWebSocket });
  const arrived = new Promise<{ webSocket: GatheringWebSocket; raw: Duplex }>((resolve) => {
    http.server.on("upgrade", (request: IncomingMessage, raw: Duplex, head: Buffer) => {
      upgrader.handleUpgrade(request, raw, head, (webSocket) => resolve({ webSocket, raw }));
    });
  });
  const client = new WebSocket(http.url);
  const received: string[] = [];
  client.on("message", (data: Buffer) => received.push(data.toString()));
  const { webSocket, raw } = await arrived;
  const socket = new replaced.WsSocket(webSocket as never, 1000, raw);
  const recorder = new Recorder();
  socket.start(recorder);
  const sentByWebSocket = vi.spyOn(webSocket, "send");
  socket.send("one", true);
  socket.sendShared(new SharedFrame("two"));
  socket.send("three");
  expect(sentByWebSocket.mock.calls).toEqual([["one"], ["two"], ["three"]]);
  expect(socket.traffic).toBeUndefined();
  await vi.waitFor(() => expect(received).toEqual(["one", "two", "three"]));
  // What waits for the end of the turn when the other side is gone has nowhere to go.
  client.terminate();
  await once(webSocket, "close");
  socket.flush();
  expect((await recorder.ended).code).toBe(1006);
});
