/** A socket encodes frames itself, differently for each role, size and kind of text. `ws` decodes them. */
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { expect, it } from "vitest";
import { WebSocketServer } from "ws";
import { GatheringWebSocket, WsSocket } from "../../src/sockets/ws.js";
import { maskedFrames } from "../../src/sockets/frames.js";
import { plainPeer } from "../support/network.js";
import { overWs } from "./websocket.js";

/** Lengths around the limits of the length field, and around the switch to another way of writing. */
const LENGTHS = [0, 1, 62, 63, 124, 125, 126, 127, 128, 255, 256, 511, 512, 4095, 4096, 65_535, 65_536];

const UNITS = [
  ["of ASCII", "a"],
  ["that one byte for each character would hold", "é"],
  ["of three bytes for each character", "€"],
  ["of pairs of surrogates", "😀"],
] as const;

/** Sends all texts in one tick, and then each in its own tick. */
function sendAll(socket: WsSocket, texts: readonly string[]): void {
  socket.sendAll(texts);
  const late = [...texts];
  const next = (): void => {
    if (late.length === 0) return;
    socket.send(late.shift()!);
    setImmediate(next);
  };
  setImmediate(next);
}

it.each(UNITS)("sends texts %s, of any length, in one tick and in separate ticks, as a server", async (_what, unit) => {
  const server = new WebSocketServer({ port: 0, host: "127.0.0.1", WebSocket: GatheringWebSocket });
  await once(server, "listening");
  const texts = LENGTHS.map((length) => unit.repeat(length));
  server.on("connection", (webSocket, request) => sendAll(new WsSocket(webSocket, 2 ** 20, request.socket), texts));
  using client = await plainPeer(`ws://127.0.0.1:${(server.address() as AddressInfo).port}`);
  await expect.poll(() => client.received.length).toBe(2 * texts.length);
  expect(client.received).toEqual([...texts, ...texts]);
  server.close();
});

it.each(UNITS)("sends texts %s, of any length, in one tick and in separate ticks, as a client", async (_what, unit) => {
  await using ends = await overWs(2 ** 20);
  const texts = LENGTHS.map((length) => unit.repeat(length));
  sendAll(ends.socket as WsSocket, texts);
  expect(await ends.far.received(2 * texts.length)).toEqual([...texts, ...texts]);
});

it("masks each frame of a client with its own key, at every offset", () => {
  const text = "0123456789".repeat(20);
  const bytes = maskedFrames(Array.from({ length: 300 }, (_, i) => text.slice(0, 100 + (i % 7))));
  const keys = new Set<string>();
  for (let at = 0; at < bytes.length;) {
    const length = bytes[at + 1]! & 0x7f;
    const key = bytes.subarray(at + 2, at + 6);
    keys.add(key.toString("hex"));
    const unmasked = bytes.subarray(at + 6, at + 6 + length).map((byte, i) => byte ^ key[i % 4]!);
    expect(Buffer.from(unmasked).toString()).toBe(text.slice(0, length));
    at += 6 + length;
  }
  expect(keys.size).toBe(300);
});
