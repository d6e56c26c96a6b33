/** Long frames are written from pooled buffers, and never from a buffer that is still in use. */
import { EventEmitter, once } from "node:events";
import type { AddressInfo } from "node:net";
import { Duplex } from "node:stream";
import { expect, it } from "vitest";
import { WebSocketServer } from "ws";
import { borrow, giveBack, isBorrowed } from "../../src/sockets/buffers.js";
import { GatheringWebSocket, WsSocket } from "../../src/sockets/ws.js";
import { overWs } from "./websocket.js";

/** Distinct texts that are long enough for a buffer of their own. */
const TEXTS = Array.from({ length: 60 }, (_, i) => String.fromCharCode(65 + i).repeat(60_000 + 1_100 * i));
/** More than the system buffers for a client that does not read. */
const MANY = Array.from({ length: 6 }, () => TEXTS).flat();

it("lends the buffer that was released last, and otherwise another", () => {
  const first = borrow(70_000);
  const second = borrow(100_000);
  expect([first.length, second.length]).toEqual([70_000, 100_000]);
  expect(second.buffer === first.buffer).toBe(false);
  giveBack(first);
  expect(borrow(80_000).buffer === first.buffer).toBe(true);
  expect(borrow(80_000).buffer === second.buffer).toBe(false);
});

it("keeps no more than eight", () => {
  const lent = Array.from({ length: 20 }, () => borrow(70_000));
  for (const buffer of lent) giveBack(buffer);
  const known = new Set(lent.map(({ buffer }) => buffer));
  const again = Array.from({ length: 20 }, () => borrow(70_000));
  expect(again.filter(({ buffer }) => known.has(buffer))).toHaveLength(8);
});

it.each([
  ["short", 64 * 1024 - 1, false],
  ["middling", 64 * 1024, true],
  ["as long as there is", 128 * 1024, true],
  ["longer", 128 * 1024 + 1, false],
])("lends buffers only for medium lengths: %s", (_what, size, isLent) => {
  expect(isBorrowed(borrow(size))).toBe(isLent);
  expect(borrow(size)).toHaveLength(size);
});

it("does not accept a foreign buffer of the same length", () => {
  expect(isBorrowed(Buffer.allocUnsafeSlow(128 * 1024))).toBe(false);
});

it("does not overwrite queued frames", async () => {
  const server = new WebSocketServer({ port: 0, host: "127.0.0.1", WebSocket: GatheringWebSocket });
  await once(server, "listening");
  const received = { client: [] as string[], server: [] as string[] };
  const opened = new Promise<{ far: GatheringWebSocket; socket: WsSocket }>((resolve) =>
    server.on("connection", (far, request) => {
      far.on("message", (data: Buffer) => received.server.push(data.toString()));
      resolve({ far, socket: new WsSocket(far, 2 ** 20, request.socket) });
    }),
  );
  const webSocket = new GatheringWebSocket(`ws://127.0.0.1:${(server.address() as AddressInfo).port}`);
  webSocket.on("message", (data: Buffer) => received.client.push(data.toString()));
  const near = new WsSocket(webSocket, 2 ** 20);
  await once(webSocket, "open");
  const { far, socket } = await opened;
  near.start({ frame: () => {}, closed: () => {} });
  socket.start({ frame: () => {}, closed: () => {} });
  far.pause();
  webSocket.pause();
  for (const text of MANY) {
    near.send(text);
    socket.send(text);
    // Some frames are sent, and their buffers are released.
    await new Promise(setImmediate);
  }
  expect(near.unsentBytes).toBeGreaterThan(0);
  far.resume();
  webSocket.resume();
  const counts = (): number[] => [received.client.length, received.server.length];
  await expect.poll(counts, { timeout: 20_000 }).toEqual([MANY.length, MANY.length]);
  expect(received).toEqual({ client: MANY, server: MANY });
  webSocket.terminate();
  server.close();
});

it("lends nothing to a full socket: its queued frames take no more memory than is counted", async () => {
  await using ends = await overWs(2 ** 20);
  ends.far.pause();
  const before = process.memoryUsage().arrayBuffers;
  // Just over half of a buffer's length.
  const text = "x".repeat(66_000);
  for (let i = 0; i < 600; i++) {
    ends.socket.send(text);
    if (i % 50 === 0) await new Promise(setImmediate);
  }
  expect(ends.socket.unsentBytes).toBeGreaterThan(20_000_000);
  expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(1.5 * ends.socket.unsentBytes);
});

it("lends nothing to a stream that is no system socket: such a stream can keep its chunks", async () => {
  const kept: Buffer[] = [];
  const raw = new Duplex({
    read: () => {},
    write: (chunk: Buffer, _encoding, done) => {
      kept.push(chunk);
      done();
    },
  });
  const webSocket = Object.assign(new EventEmitter(), { readyState: 1, OPEN: 1, bufferedAmount: 0 });
  const socket = new WsSocket(webSocket as unknown as GatheringWebSocket, 2 ** 20, raw);
  // Some of them make a write that is exactly as long as a buffer.
  const texts = TEXTS.flatMap((text, i) => [text, String.fromCharCode(97 + (i % 26)).repeat(128 * 1024 - 10)]);
  for (const text of texts) {
    socket.send(text);
    await new Promise(setImmediate);
  }
  expect(kept.map((frame) => frame.toString().slice(-20_000))).toEqual(texts.map((text) => text.slice(-20_000)));
});
