/** A server's socket writes frames itself, in a way for each size and kind of text. `ws` reads them. */
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { expect, it } from "vitest";
import { WebSocketServer } from "ws";
import { WsSocket } from "../../src/sockets/ws.js";
import { stranger } from "../support/network.js";

/** Around where a frame's length takes more bytes, and where it is written in another way. */
const LENGTHS = [0, 1, 62, 63, 124, 125, 126, 127, 128, 255, 256, 511, 512, 4095, 4096, 65_535, 65_536];

it.each([
  ["of ASCII", "a"],
  ["that one byte for each character would hold", "é"],
  ["of three bytes for each character", "€"],
  ["of pairs of surrogates", "😀"],
])("sends texts %s, of any length, in one turn and in turns of their own", async (_what, unit) => {
  const server = new WebSocketServer({ port: 0, host: "127.0.0.1" });
  await once(server, "listening");
  const texts = LENGTHS.map((length) => unit.repeat(length));
  server.on("connection", (webSocket, request) => {
    const socket = new WsSocket(webSocket, 2 ** 20, request.socket);
    for (const text of texts) socket.send(text);
    const late = [...texts];
    const next = (): void => {
      if (late.length === 0) return;
      socket.send(late.shift()!);
      setImmediate(next);
    };
    setImmediate(next);
  });
  using client = await stranger(`ws://127.0.0.1:${(server.address() as AddressInfo).port}`);
  await expect.poll(() => client.received.length).toBe(2 * texts.length);
  expect(client.received).toEqual([...texts, ...texts]);
  server.close();
});
