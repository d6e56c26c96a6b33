import { once } from "node:events";
import type { AddressInfo, Socket as TcpSocket } from "node:net";
import { expect, it, vi } from "vitest";
import { WebSocketServer } from "ws";
import { connect, serve } from "../../src/node.js";
import { SharedMessage } from "../../src/core/transport.js";
import { WsSocket } from "../../src/sockets/ws.js";
import { stranger } from "../support/network.js";

/** Counts what a TCP socket hands to the system: each is one call. */
function countWrites(socket: TcpSocket): { count: number } {
  const writes = { count: 0 };
  const inner = socket as unknown as Record<"_write" | "_writev", (...args: unknown[]) => void>;
  for (const name of ["_write", "_writev"] as const) {
    const original = inner[name].bind(socket);
    inner[name] = (...args) => {
      writes.count++;
      original(...args);
    };
  }
  return writes;
}

it("makes at most two writes of a hundred sends of a turn", async () => {
  await using server = await serve({ port: 0 });
  const arrived = new Promise<{ tcp: TcpSocket; notify: () => void }>((resolve) =>
    server.on("peer", (peer, { socket }) => resolve({ tcp: socket, notify: () => peer.notify("n", [1, 2, 3]) })),
  );
  using client = await stranger(server.url);
  const { tcp, notify } = await arrived;
  const writes = countWrites(tcp);
  for (let i = 0; i < 100; i++) notify();
  await vi.waitFor(() => expect(client.received).toHaveLength(100));
  expect(writes.count).toBeGreaterThan(0);
  expect(writes.count).toBeLessThanOrEqual(2);
});

it("sends a long frame at once, with what was corked before it", async () => {
  const server = new WebSocketServer({ port: 0 });
  await once(server, "listening");
  server.on("connection", (webSocket, request) => {
    const socket = new WsSocket(webSocket, 1000, request.socket);
    const writes = countWrites(request.socket);
    for (let i = 0; i < 3; i++) socket.send(`${i}`);
    const before = writes.count;
    socket.send("x".repeat(600));
    const after = writes.count;
    socket.send(`${before} ${after}`);
  });
  using client = await stranger(`ws://127.0.0.1:${(server.address() as AddressInfo).port}`);
  await vi.waitFor(() => expect(client.received).toHaveLength(5));
  expect(client.received.map((text) => text.slice(0, 3))).toEqual(["0", "1", "2", "xxx", "1 2"]);
  server.close();
});

it("writes the same bytes to every plain peer of a topic, in order with what else it sends", async () => {
  await using server = await serve({ port: 0 });
  server.on("peer", (peer) => server.topic("all").add(peer));
  using a = await stranger(server.url);
  using b = await stranger(server.url);
  await using packed = await connect(server.url, { methods: {} });
  const heard: unknown[] = [];
  packed.on("notification", (_method, params) => heard.push(params));
  await vi.waitFor(() => expect(server.topic("all").size).toBe(3));
  const frames: Uint8Array[] = [];
  const bytes = Object.getOwnPropertyDescriptor(SharedMessage.prototype, "plain")!;
  vi.spyOn(SharedMessage.prototype, "plain", "get").mockImplementation(function (this: SharedMessage) {
    const frame = (bytes.get as () => { bytes: Uint8Array }).call(this);
    if (frame.bytes !== undefined) frames.push(frame.bytes);
    return frame as never;
  });
  const long = "é".repeat(70_000);
  const texts = ["short", "x".repeat(124), "x".repeat(300), long];
  for (const [i, text] of texts.entries()) {
    for (const peer of server.peers) peer.notify("before", [i]);
    server.topic("all").notify("shared", [i, text]);
    for (const peer of server.peers) peer.notify("after", [i]);
  }
  await vi.waitFor(() => expect(b.received).toHaveLength(12));
  await vi.waitFor(() => expect(a.received).toHaveLength(12));
  await vi.waitFor(() => expect(heard).toHaveLength(12));
  vi.restoreAllMocks();
  const expected = texts.flatMap((text, i) => [[i], [i, text], [i]]);
  expect(a.received.map((text) => (JSON.parse(text) as { params: unknown }).params)).toEqual(expected);
  expect(b.received).toEqual(a.received);
  expect(heard).toEqual(expected);
  // Made for the first plain peer, and found there by the second.
  expect(frames).toHaveLength(texts.length);
});
