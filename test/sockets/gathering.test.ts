import type { IncomingMessage } from "node:http";
import type { Socket as TcpSocket } from "node:net";
import { Duplex, PassThrough } from "node:stream";
import { expect, it, onTestFinished, vi } from "vitest";
import { connect, serve, type AnyPeer } from "../../src/node.js";
import { EncodedMessage } from "../../src/core/transport.js";
import { maskedFrames } from "../../src/sockets/frames.js";
import { bareHttp, plainPeer } from "../support/network.js";

/** Counts the system calls with which a TCP socket writes. */
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

/** Connects a bare client to a new server. Returns it, the server's peer, and the counter of that peer's writes. */
async function connected(protocols: string[] = []) {
  const server = await serve({ port: 0 });
  onTestFinished(() => server.close());
  const arrived = new Promise<[peer: AnyPeer, tcp: TcpSocket]>((resolve) =>
    server.on("peer", (peer, { socket }) => resolve([peer, socket])),
  );
  const client = await plainPeer(server.url, protocols);
  onTestFinished(() => client[Symbol.dispose]());
  const [peer, tcp] = await arrived;
  return { client, peer, writes: countWrites(tcp) };
}

it("makes at most two writes for a hundred sends in one tick", async () => {
  const { client, peer, writes } = await connected();
  for (let i = 0; i < 100; i++) peer.notify("n", [1, 2, 3]);
  await vi.waitFor(() => expect(client.received).toHaveLength(100));
  expect(writes.count).toBeGreaterThan(0);
  expect(writes.count).toBeLessThanOrEqual(2);
});

it("answers the pings of `reciproc.v1` in one read with one write", async () => {
  const { client, writes } = await connected(["reciproc.v1"]);
  client.webSocket.send('{"hello":{}}');
  client.webSocket.send('{"ping":0}');
  await vi.waitFor(() => expect(client.received.at(-1)).toBe('{"pong":0}'));
  const before = writes.count;
  const { _socket: raw } = client.webSocket as unknown as { _socket: TcpSocket };
  raw.write(maskedFrames(Array.from({ length: 100 }, () => '{"ping":1}')));
  await vi.waitFor(() => expect(client.received.filter((text) => text === '{"pong":1}')).toHaveLength(100));
  expect(writes.count - before).toBeLessThanOrEqual(2);
});

it("joins the long frames of a tick too, in pieces that the other side can begin to read", async () => {
  const { client, peer, writes } = await connected();
  for (let i = 0; i < 60; i++) peer.notify("n", ["x".repeat(1000)]);
  // 62 KB in pieces of 8 KiB: most of them before the end of the tick.
  expect(writes.count).toBe(7);
  await vi.waitFor(() => expect(client.received).toHaveLength(60));
  expect(writes.count).toBe(8);
});

it("writes a message at once if the previous tick had a single one, and else at the end of the tick", async () => {
  const { client, peer, writes } = await connected();
  /** Returns the number of writes when the tick has sent its messages, and when it has ended. */
  const turn = async (messages: number): Promise<[number, number]> => {
    const before = writes.count;
    for (let i = 0; i < messages; i++) peer.notify("n");
    const within = writes.count - before;
    await new Promise(setImmediate);
    return [within, writes.count - before];
  };
  expect(await turn(1)).toEqual([0, 1]);
  expect(await turn(1)).toEqual([1, 1]);
  expect(await turn(3)).toEqual([1, 2]);
  expect(await turn(3)).toEqual([0, 1]);
  await vi.waitFor(() => expect(client.received).toHaveLength(8));
});

it.each(["packed", "plain"] as const)(
  "does not count frames of the current tick as unread, with a link that is %s",
  async (link) => {
    await using server = await serve({ port: 0, limits: { maxUnsentBytes: 4096 }, session: false });
    const arrived = new Promise<AnyPeer>((resolve) =>
      server.on("peer", (peer) => {
        server.topic("all").add(peer);
        resolve(peer);
      }),
    );
    await using client = await connect(server.url, { link });
    const heard: unknown[] = [];
    client.on("notification", (_method, params) => heard.push(params));
    const peer = await arrived;
    for (let i = 0; i < 40; i++) {
      peer.notify("n", [i, "x".repeat(300)]);
      if (i % 10 === 9) server.topic("all").notify("t", [i]);
    }
    await vi.waitFor(() => expect(heard).toHaveLength(44));
    expect(peer.stats().dropped).toBe(0);
    expect(client.state).toBe("open");
  },
);

it("writes to the socket of the upgrade", async () => {
  await using http = await bareHttp();
  const methods = { echo: (params: unknown) => params };
  await using server = await serve({ noServer: true, methods });
  let written = 0;
  http.server.on("upgrade", (request: IncomingMessage, socket: TcpSocket, head: Buffer) => {
    const counting = new PassThrough();
    counting.on("data", (chunk: Buffer) => (written += chunk.length));
    counting.pipe(socket);
    server.handleUpgrade(request, Duplex.from({ readable: socket, writable: counting }), head);
  });
  await using client = await connect(http.url);
  expect(await client.request("echo", ["x".repeat(1000)])).toEqual(["x".repeat(1000)]);
  expect(written).toBeGreaterThan(1000);
});

it("writes the same bytes to every plain peer of a topic, in order with its other messages", async () => {
  await using server = await serve({ port: 0 });
  server.on("peer", (peer) => server.topic("all").add(peer));
  using a = await plainPeer(server.url);
  using b = await plainPeer(server.url);
  await using packed = await connect(server.url, { methods: {} });
  const heard: unknown[] = [];
  packed.on("notification", (_method, params) => heard.push(params));
  await vi.waitFor(() => expect(server.topic("all").size).toBe(3));
  const frames: Uint8Array[] = [];
  const bytes = Object.getOwnPropertyDescriptor(EncodedMessage.prototype, "plain")!;
  vi.spyOn(EncodedMessage.prototype, "plain", "get").mockImplementation(function (this: EncodedMessage) {
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
  // Encoded for the first plain peer, and reused for the second.
  expect(frames).toHaveLength(texts.length);
});
