/** How frames are written to the stream of a connection: how many writes and allocations, and of which memory. */
import { once } from "node:events";
import type { IncomingMessage } from "node:http";
import type { Socket as TcpSocket } from "node:net";
import { Duplex } from "node:stream";
import { afterEach, expect, it, onTestFinished, vi } from "vitest";
import { connect, serve, type AnyPeer, type Server } from "../../src/node.js";
import { maskedFrames } from "../../src/socket/frames.js";
import { virtualClock } from "../../src/testing/index.js";
import { bareHttp, plainPeer, type PlainPeer } from "../support/network.js";
import { turn } from "../support/turns.js";
import { nextPeer } from "../server/by-hand.js";

afterEach(() => {
  vi.doUnmock("ws");
  vi.resetModules();
});

/** Serves a bare client over a stream of the application, which counts the writes. */
async function overStream(options: object = {}, protocols: string[] = []) {
  const http = await bareHttp();
  const server = await serve({ noServer: true, ...options } as never);
  onTestFinished(async () => {
    await server.close();
    await http[Symbol.asyncDispose]();
  });
  /** Each chunk as it was, and the same memory later. */
  const written = { writes: 0, chunks: [] as { memory: Buffer; copy: Buffer }[] };
  let tcp!: TcpSocket;
  http.server.on("upgrade", (request: IncomingMessage, socket: TcpSocket, head: Buffer) => {
    tcp = socket;
    const write = (chunks: Buffer[], done: () => void): void => {
      written.writes++;
      for (const memory of chunks) written.chunks.push({ memory, copy: Buffer.from(memory) });
      socket.write(Buffer.concat(chunks), () => done());
    };
    const stream = new Duplex({
      read: () => void socket.resume(),
      write: (chunk: Buffer, _encoding, done) => write([chunk], done),
      writev: (parts, done) =>
        write(
          parts.map(({ chunk }) => chunk as Buffer),
          done,
        ),
      final: (done) => socket.end(() => done()),
    });
    socket.on("data", (data: Buffer) => stream.push(data));
    socket.on("end", () => stream.push(null));
    socket.on("error", () => stream.destroy());
    server.handleUpgrade(request, stream, head);
  });
  const arrived = nextPeer(server);
  const client = await plainPeer(http.url, protocols);
  onTestFinished(() => client[Symbol.dispose]());
  return { client, peer: await arrived, written, server, tcp };
}

/** Serves a bare client, or another. Returns the server, what `open` returns, and the server's peer. */
async function served<T = PlainPeer>(options: object, open: (url: string) => Promise<T> = plainPeer as never) {
  const server = await serve({ port: 0, ...options } as never);
  onTestFinished(() => server.close());
  const arrived = nextPeer(server);
  const client = await open(server.url);
  return { server, client, peer: await arrived };
}

async function another(server: Server, url = server.url, protocols: string[] = []): Promise<[PlainPeer, AnyPeer]> {
  const arrived = nextPeer(server);
  const client = await plainPeer(url, protocols);
  onTestFinished(() => client[Symbol.dispose]());
  return [client, await arrived];
}

const firstParams = (texts: readonly string[]): unknown[] =>
  texts.map((text) => (JSON.parse(text) as { params: unknown[] }).params[0]);

async function until({ webSocket, received }: PlainPeer, count: number): Promise<void> {
  while (received.length < count) await once(webSocket, "message");
}

it("answers the pings of `reciproc.v1` in one read with one write", async () => {
  // The work of a read takes no time here, so it is done in one tick.
  using clock = virtualClock();
  const { client, written } = await overStream({}, ["reciproc.v1"]);
  client.webSocket.send('{"hello":{}}');
  // A client that says nothing of bytes may send its texts as binary frames.
  client.webSocket.send(Buffer.from('{"ping":0}'));
  while (client.received.at(-1) !== '{"pong":0}') await once(client.webSocket, "message");
  const before = [written.writes, client.received.length] as const;
  const { _socket: raw } = client.webSocket as unknown as { _socket: TcpSocket };
  raw.write(maskedFrames(Array.from({ length: 100 }, () => '{"ping":1}')));
  await until(client, before[1] + 100);
  expect(client.received.slice(before[1])).toEqual(Array(100).fill('{"pong":1}'));
  await clock.pass(0);
  expect(written.writes - before[0]).toBe(1);
});

it("writes a message at once if the previous tick had a single one, or beyond 8 KiB, and else at the end of the tick", async () => {
  const { client, peer, written } = await overStream();
  await turn();
  /** Returns the number of writes when the tick has sent its messages, and when it has ended. */
  const tick = async (messages: number, expected: number, length = 0): Promise<[number, number]> => {
    const before = written.writes;
    for (let i = 0; i < messages; i++) peer.notify("n", ["x".repeat(length)]);
    const within = written.writes - before;
    await until(client, expected);
    return [within, written.writes - before];
  };
  expect(await tick(1, 1)).toEqual([0, 1]);
  expect(await tick(1, 2)).toEqual([1, 1]);
  expect((await tick(3, 5))[0]).toBe(1);
  expect((await tick(3, 8))[0]).toBe(0);
  expect((await tick(2, 10, 4_100))[0]).toBe(1);
});

it.each(["packed", "plain"] as const)("does not count the current tick as unread, over a %s link", async (link) => {
  const options = { limits: { maxUnsentBytes: 4096 }, session: false };
  const { server, client, peer } = await served(options, (url) => connect(url, { link }));
  let left = 44;
  const all = new Promise<void>((resolve) => client.on("notification", () => void (--left === 0 && resolve())));
  server.topic("all").add(peer);
  for (let i = 0; i < 40; i++) {
    peer.notify("n", [i, "x".repeat(300)]);
    if (i % 10 === 9) server.topic("all").notify("t", [i]);
  }
  await all;
  expect([peer.stats().dropped, client.state]).toEqual([0, "open"]);
});

it("writes the same memory to every plain peer of a topic, in order with its other messages", async () => {
  const { client, peer, written, server } = await overStream();
  const [other, second] = await another(server, (client.webSocket as { url: string }).url);
  for (const one of [peer, second]) server.topic("all").add(one);
  const texts = ["short", "x".repeat(124), "x".repeat(300), "é".repeat(70_000)];
  for (const [i, text] of texts.entries()) {
    for (const one of server.peers) one.notify("before", [i]);
    server.topic("all").notify("shared", [i, text]);
    for (const one of server.peers) one.notify("after", [i]);
  }
  await Promise.all([until(client, 12), until(other, 12)]);
  const expected = texts.flatMap((text, i) => [[i], [i, text], [i]]);
  expect(client.received.map((text) => (JSON.parse(text) as { params: unknown }).params)).toEqual(expected);
  expect(other.received).toEqual(client.received);
  // The frames of the topic are encoded for the first plain peer, and reused for the second.
  const memories = written.chunks.filter(({ copy }) => copy.includes("shared")).map(({ memory }) => memory);
  expect(memories).toHaveLength(2 * texts.length);
  expect(new Set(memories.map((one) => `${one.byteOffset} ${one.length}`)).size).toBe(texts.length);
  // The first broadcast of a tick is written at once, and all further ones together, to each of the two.
  const before = written.writes;
  for (let i = 0; i < 20; i++) server.topic("all").notify("shared", [i]);
  expect(written.writes - before).toBe(2);
  await Promise.all([until(client, 32), until(other, 32)]);
  expect(written.writes - before).toBe(4);
  // No more than 8 KiB of a tick do not count as unsent.
  for (let i = 0; i < 20; i++) server.topic("all").notify("shared", ["x".repeat(1000)]);
  expect(peer.stats().unsentBytes).toBeGreaterThan(8192);
});

it("writes one pack with the further broadcasts of a tick, from the same memory to every packed peer, in order with others", async () => {
  const { client, peer, written, server } = await overStream({ session: false }, ["reciproc.v1"]);
  const [other, second] = await another(server, (client.webSocket as { url: string }).url, ["reciproc.v1"]);
  for (const one of [client, other]) {
    one.webSocket.send('{"hello":{}}');
    one.webSocket.send('{"ping":0}');
    while (one.received.at(-1) !== '{"pong":0}') await once(one.webSocket, "message");
    one.received.length = 0;
  }
  for (const one of [peer, second]) server.topic("all").add(one);
  const packs = (): unknown[][] =>
    client.received.map((text) => (JSON.parse(text) as { params: unknown[] }[]).map(({ params }) => params[0]));
  const broadcast = (i: number, length = 0): void => server.topic("all").notify("t", [i, "x".repeat(length)]);
  for (let i = 0; i < 20; i++) broadcast(i);
  await Promise.all([until(client, 2), until(other, 2)]);
  expect(packs()).toEqual([[0], Array.from({ length: 19 }, (_, i) => i + 1)]);
  expect(other.received).toEqual(client.received);
  const memories = written.chunks.filter(({ copy }) => copy.includes('"t"')).map(({ memory }) => memory);
  expect(new Set(memories.map((one) => `${one.byteOffset} ${one.length}`)).size).toBe(memories.length / 2);
  // A message between them is in the pack of its peer.
  client.received.length = 0;
  for (let i = 0; i < 3; i++) broadcast(i);
  peer.notify("n", ["own"]);
  broadcast(3);
  await until(client, 2);
  expect(packs()).toEqual([[0], [1, 2, "own", 3]]);
  // A pack has at most 8 KiB.
  client.received.length = 0;
  for (let i = 0; i < 4; i++) broadcast(i, 4_000);
  await until(client, 3);
  expect(packs()).toEqual([[0], [1, 2], [3]]);
});

/** Distinct texts that are long enough for a buffer of their own. */
const TEXTS = Array.from({ length: 60 }, (_, i) => String.fromCharCode(65 + i).repeat(60_000 + 1_100 * i));
const WIDE = { maxUnsentBytes: 2 ** 28 };

it("does not overwrite queued frames of a server whose client does not read, and uses few buffers again", async () => {
  const { server, client, peer } = await served({ limits: WIDE, link: "plain" });
  const spy = vi.spyOn(Buffer, "allocUnsafeSlow");
  const allocated = (): number => spy.mock.calls.filter(([size]) => size === 128 * 1024).length;
  // Each is read, and known to be written, before the next: the buffers are used again.
  for (const [i, text] of TEXTS.entries()) {
    peer.notify("n", [text]);
    await until(client, i + 1);
    while (peer.stats().unsentBytes > 0) await turn();
  }
  expect(allocated()).toBeLessThanOrEqual(8);
  client.webSocket.pause();
  const [other, second] = await another(server);
  const many = Array.from({ length: 6 }, () => TEXTS).flat();
  for (const text of many) {
    peer.notify("n", [text]);
    await turn();
    // It may not borrow a buffer that the system has not read yet.
    second.notify("n", [text]);
    await turn();
  }
  expect(peer.stats().unsentBytes).toBeGreaterThan(0);
  // A full socket gets no pooled buffer, so that its frames take no more memory than is counted.
  expect(allocated()).toBeLessThan(100);
  client.webSocket.resume();
  await Promise.all([until(client, TEXTS.length + many.length), until(other, many.length)]);
  expect(firstParams(client.received)).toEqual([...TEXTS, ...many]);
  expect(firstParams(other.received)).toEqual(many);
});

it("lends nothing to a stream that is no system socket: such a stream can keep its chunks", async () => {
  const { client, peer, written } = await overStream({ limits: WIDE });
  for (const [i, text] of TEXTS.entries()) {
    peer.notify("n", [text]);
    await until(client, i + 1);
  }
  for (const { memory, copy } of written.chunks) expect(memory.equals(copy)).toBe(true);
});

it("lets the WebSocket write if `ws` does not make its own frames, as in Bun", async () => {
  vi.doMock("ws", async (original) => ({ ...(await original<object>()), Sender: function () {} }));
  vi.resetModules();
  const replaced = await import("../../src/node.js");
  await using server = await replaced.serve({ port: 0 });
  const arrived = nextPeer(server);
  using client = await plainPeer(server.url);
  const peer = await arrived;
  server.topic("all").add(peer);
  for (const n of [1, 2]) peer.notify("n", [n]);
  server.topic("all").notify("n", [3]);
  await until(client, 3);
  expect(firstParams(client.received)).toEqual([1, 2, 3]);
  // The bytes are not counted there.
  expect(peer.stats().bytesSent).toBe(0);
  client.webSocket.terminate();
  expect((await peer.closed).code).toBe(1006);
  expect(peer.notify("n")).toBe(false);
  const arriving = nextPeer(server);
  const packed = await replaced.connect(server.url, { methods: { sum: ({ data }) => data[0] + data[1] } });
  const other = await arriving;
  // With the answer to the first call, the client says that it takes bytes.
  for (const data of [[1, 2], replaced.bytes(Uint8Array.of(1, 2))])
    expect(await other.request("sum", { data })).toBe(3);
  await packed.close();
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
