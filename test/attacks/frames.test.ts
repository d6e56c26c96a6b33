import { once } from "node:events";
import { describe, expect, it, vi } from "vitest";
import { WebSocket } from "ws";
import {
  BINARY,
  CLOSE,
  CONTINUATION,
  frame,
  frameHead,
  PING,
  PONG,
  TEXT,
  upgradeText,
} from "../../bench/attacks/floods.js";
import { bytesOf, connect } from "../../src/node.js";
import { virtualClock } from "../../src/testing/index.js";
import { bareServer } from "../client/clients.js";
import { binaryFrame } from "../support/binary.js";
import { plainPeer, sendUpgrade } from "../support/network.js";
import { write } from "../support/post.js";
import { notification, request } from "../support/raw.js";
import { gate, turn } from "../support/turns.js";
import { closeFrame, rawSocket, target, type RawSocket, type Target } from "./support/server.js";

const MIB = 2 ** 20;
const CALL = JSON.stringify(request(1, "here"));
const PACKED = { "Sec-WebSocket-Protocol": "reciproc.v1" };

it.each([MIB + 3, 2n ** 62n])("a frame of %d bytes closes with 1009 by its head, unbuffered", async (length) => {
  await using on = await target();
  using raw = await rawSocket(on);
  await raw.write(frameHead(TEXT, length));
  expect((await closeFrame(raw.socket)).code).toBe(1009);
  expect((await raw.peer.closed).code).toBe(1009);
});

it("a message in fragments is read in a thousand fragments, and closes with 1008 if it has more than a message of that length needs", async () => {
  await using on = await target();
  using raw = await rawSocket(on);
  const last = frame(CONTINUATION, " ");
  const fragment = frame(CONTINUATION, " ", false);
  await raw.write(Buffer.concat([frame(TEXT, CALL, false), ...Array<Buffer>(1000).fill(fragment), last]));
  await vi.waitFor(() => expect(raw.peer.stats().requestsReceived).toBe(1));
  await raw.write(Buffer.concat([frame(TEXT, " ", false), ...Array<Buffer>(2000).fill(fragment)]));
  expect((await closeFrame(raw.socket)).code).toBe(1008);
  expect((await raw.peer.closed).code).toBe(1008);
});

it("reads a handshake and a call that arrive byte by byte", async () => {
  const called = gate();
  await using on = await target({ methods: { here: called.resolve } });
  const arrived = on.next();
  const socket = (await write(on.url, "")).setNoDelay(true);
  for (const byte of upgradeText(new URL(on.url).host) + frame(TEXT, CALL).toString("latin1")) {
    socket.write(byte, "latin1");
    await turn();
  }
  const peer = await arrived;
  expect(await Promise.race([peer.closed, called.promise])).toBeUndefined();
  socket.destroy();
});

it("closes with 1008 if a long message arrives in more pieces than it needs", async () => {
  await using on = await target({ limits: { maxMessageBytes: 20_000 } });
  using raw = await rawSocket(on);
  raw.socket.setNoDelay(true);
  const closed = closeFrame(raw.socket);
  await raw.write(frameHead(TEXT, 10_000));
  let written = 0;
  for (; !raw.socket.destroyed && written < 1_000; written++) {
    raw.socket.write(" ");
    // Each byte is a read of its own.
    await turn();
  }
  expect(written).toBeLessThan(1_000);
  expect((await closed).code).toBe(1008);
});

const ROOM = 64 * 1024;
const CALLS = frame(TEXT, `[${CALL}]`);

it.each<[string, Record<string, string>, ping: Buffer, pongBytes: number]>([
  ["short control frames of reciproc.v1", PACKED, frame(TEXT, `{"ping":"${"x".repeat(1000)}"}`), 1100],
  ["long control frames of reciproc.v1", PACKED, frame(TEXT, `{"ping":"${"x".repeat(MIB / 2)}"}`), MIB / 2 + 100],
  // The pongs of one tick count up to 8 KiB later.
  ["WebSocket pings", {}, frame(PING, "x".repeat(125)), 8 * 1024 + 127],
])("a client that never reads queues at most 64 KiB and one pong for %s", async (_what, headers, ping, pongBytes) => {
  await using on = await target();
  using raw = await rawSocket(on, headers);
  raw.socket.pause();
  await raw.write(Buffer.concat([frame(TEXT, '{"hello":{}}'), CALLS]));
  await vi.waitFor(() => expect(raw.peer.stats().requestsReceived).toBe(1));
  // The system buffers some MiB, and may take more a little later.
  for (let full = 0; full < 20; full = raw.peer.stats().unsentBytes === 0 ? 0 : full + 1) {
    if (full === 0) raw.peer.notify("fill", ["x".repeat(ROOM / 2)]);
    await turn();
  }
  await raw.write(Buffer.concat([...Array<Buffer>(1 + Math.ceil(MIB / 8 / ping.length)).fill(ping), CALLS]));
  await vi.waitFor(() => expect(raw.peer.stats().requestsReceived).toBe(2));
  expect(raw.peer.state).toBe("open");
  expect(raw.peer.stats().unsentBytes).toBeGreaterThanOrEqual(ROOM);
  expect(raw.peer.stats().unsentBytes).toBeLessThan(ROOM + pongBytes + 100);
});

describe("a flood of WebSocket pings and pongs", () => {
  it.each([
    ["pings", [PING]],
    ["unsolicited pongs", [PONG]],
    ["both in turn", [PING, PONG]],
  ])("closes with 1008 beyond 1,000 in a second, and reads nothing more: %s", async (_what, opcodes) => {
    using clock = virtualClock();
    await using on = await target();
    using raw = await rawSocket(on);
    const closed = closeFrame(raw.socket);
    const flood = Buffer.concat(Array.from({ length: MIB / 16 }, (_, i) => frame(opcodes[i % opcodes.length]!, "")));
    await raw.write(flood);
    const { code, reason } = await closed;
    expect(code).toBe(1008);
    await clock.pass(1_000);
    expect(await raw.peer.closed).toMatchObject({ code, error: { message: reason } });
    expect(raw.peer.stats().bytesReceived).toBeLessThan(flood.length);
  });

  it("closes a client with 1008 too", async () => {
    using clock = virtualClock();
    await using bare = await bareServer();
    await using peer = await connect(bare.url, { link: "plain", reconnect: false });
    const [far] = bare.webSockets;
    for (let i = 0; i <= 1000; i++) far!.ping();
    await vi.waitFor(() => expect(far!.readyState).toBe(WebSocket.CLOSING));
    await clock.pass(1_000);
    expect(await peer.closed).toMatchObject({ code: 1008 });
  });

  it("answers up to 1,000 at once", async () => {
    await using on = await target();
    using client = await plainPeer(on.url);
    let pongs = 0;
    client.webSocket.on("pong", () => pongs++);
    for (let i = 0; i < 1000; i++) client.webSocket.ping();
    await vi.waitFor(() => expect(pongs).toBe(1000));
    expect(on.peers[0]!.state).toBe("open");
  });
});

describe("a close", () => {
  it.each(["server", "client"])("is cut between characters at 123 bytes if the %s has a longer one", async (side) => {
    await using on = await target();
    const arrived = on.next();
    await using client = await connect(on.url, { reconnect: false });
    const [near, far] = side === "server" ? [await arrived, client] : [client, await arrived];
    await near.close(4000, "é".repeat(100));
    // 61 characters of 2 bytes: another would make 124.
    expect(await far.closed).toMatchObject({ code: 4000, reason: "é".repeat(61) });
  });

  it("is cut for a refusal too, and `bye` has the whole reason", async () => {
    await using on = await target();
    const origin = `https://${"x".repeat(200)}.example`;
    const webSocket = new WebSocket(on.url, ["reciproc.v1"], { headers: { Origin: origin } });
    const emitted = once(webSocket, "message");
    const [code, reason] = (await once(webSocket, "close")) as [number, Buffer];
    expect([code, reason.length]).toEqual([4403, 123]);
    const { bye } = JSON.parse(String((await emitted)[0])) as { bye: { code: number; reason: string } };
    expect(bye.code).toBe(4403);
    expect(bye.reason).toContain(origin);
    expect(bye.reason.startsWith(reason.toString())).toBe(true);
  });

  it.each([
    ["a reason that is no UTF-8", Buffer.from([0x0f, 0xa0, 0xff, 0xfe]), 1007],
    ["a reserved code", Buffer.from([0x03, 0xed]), 1002],
    ["half a code", Buffer.from([0x03]), 1002],
  ])("closes the connection if it has %s, and other clients are served", async (_what, payload, code) => {
    await using on = await target();
    await using other = await connect(on.url);
    using raw = await rawSocket(on);
    await raw.write(frame(CLOSE, payload));
    expect((await closeFrame(raw.socket)).code).toBe(code);
    expect((await raw.peer.closed).code).toBe(code);
    expect(await other.request("here")).toBe(true);
  });

  it("stops reading even if it is not answered: a continuing flood reaches no handler", async () => {
    await using on = await target();
    using raw = await rawSocket(on);
    const closed = raw.peer.close(4000);
    const { bytesReceived } = raw.peer.stats();
    await raw.write(Buffer.concat(Array<Buffer>(1000).fill(frame(TEXT, JSON.stringify(notification("here"))))));
    await vi.waitFor(() => expect(raw.peer.stats().bytesReceived).toBeGreaterThan(bytesReceived + 30_000));
    expect(raw.peer.stats().notificationsReceived).toBe(0);
    raw.socket.destroy();
    await closed;
  });
});

/** Opens a raw socket that has said that it takes bytes. */
async function opened(on: Target): Promise<RawSocket> {
  const raw = await rawSocket(on, PACKED);
  await raw.write(frame(TEXT, '{"hello":{"bytes":true}}'));
  return raw;
}

it("a hostile binary frame closes with 1002 if it nests 400,000 deep without its placeholder, runs nothing, and others are served", async () => {
  let runs = 0;
  await using on = await target({ methods: { put: () => ++runs } });
  using raw = await opened(on);
  const closed = closeFrame(raw.socket);
  const content = binaryFrame(`[["a",0],${"[".repeat(4e5)}${"]".repeat(4e5)}]`);
  await raw.write(Buffer.concat([frame(BINARY, content), frame(TEXT, JSON.stringify([notification("put")]))]));
  expect((await closed).code).toBe(1002);
  await using other = await connect(on.url);
  expect([await other.request("here"), runs]).toEqual([true, 0]);
});

it("a hostile binary frame gives the application short bytes in a buffer of their own, so that keeping them keeps nothing else", async () => {
  let kept: Uint8Array | undefined;
  await using on = await target({ methods: { put: ([value]: [unknown]) => void (kept = bytesOf(value)) } });
  using raw = await opened(on);
  const json = `[["a",100,"b",500000],${JSON.stringify(notification("put", ["a", "b"]))}]`;
  await raw.write(frame(BINARY, Buffer.concat([binaryFrame(json), Buffer.alloc(500_100)])));
  await vi.waitFor(() => expect(kept).toHaveLength(100));
  expect(kept!.buffer.byteLength).toBe(100);
});

it.each([
  ["text", frame(TEXT, "")],
  ["pings", frame(PING, "")],
])("a client that was refused by a frame is not read after 100 frames of %s", async (_what, one) => {
  using clock = virtualClock();
  await using on = await target({ authenticate: () => undefined });
  const socket = await sendUpgrade(on.url, PACKED);
  socket.on("error", () => {});
  await vi.waitFor(() => expect(on.sockets.size).toBe(1));
  const [server] = on.sockets;
  const cut = new Promise((resolve) => server!.once("close", resolve));
  socket.write(Buffer.concat(Array<Buffer>(200_000).fill(one)));
  await vi.waitFor(() => expect(on.server.stats().refused).toEqual({ 401: 1 }));
  await clock.pass(1_000);
  await cut;
  // Two reads of 64 KiB, and what the system has taken.
  expect(server!.bytesRead).toBeLessThan(MIB);
  socket.destroy();
});
