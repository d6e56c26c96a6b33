/** Clients over sockets that read slowly or not at all, that are silent, and that subscribe often. */
import { once } from "node:events";
import { describe, expect, it, vi } from "vitest";
import { WebSocket } from "ws";
import { connect, serve, Subscriptions, type AnyPeer, type Server, type ServerContext } from "../../src/node.js";
import { plainPeer, sendUpgrade } from "../support/network.js";
import { request } from "../support/raw.js";
import { pass, passUntil, useVirtualClock } from "../support/time.js";
import { gate, turn } from "../support/turns.js";
import { nextPeer } from "./by-hand.js";

const MIB = 2 ** 20;
const CAP = 512 * 1024;
const LIMITS = { maxUnsentBytes: CAP, maxReplyBytes: CAP };
const LONG = "x".repeat(64 * 1024);

useVirtualClock();

/** Connects a client that never reads. Returns its socket and the server's peer for it. */
async function slowReader(server: Server) {
  const arrived = nextPeer(server);
  const socket = await sendUpgrade(server.url);
  const peer = await arrived;
  socket.pause();
  return { peer, socket };
}

describe("a peer that never reads", () => {
  it("loses broadcasts, counted, and stays, while a peer that reads loses none", async () => {
    await using server = await serve({ port: 0, limits: LIMITS });
    const { peer, socket } = await slowReader(server);
    const arrived = nextPeer(server);
    using reader = await plainPeer(server.url);
    await arrived;
    for (let i = 0; i < 100; i++) {
      const read = once(reader.webSocket, "message");
      server.peers.notify("n", [LONG]);
      await read;
      expect(peer.stats().unsentBytes).toBeLessThanOrEqual(CAP / 2 + LONG.length + 100);
    }
    const { dropped, notificationsSent } = peer.stats();
    expect(dropped).toBeGreaterThan(0);
    expect([dropped + notificationsSent, peer.state]).toEqual([100, "open"]);
    socket.destroy();
    await peer.closed;
  });

  it("is closed by a broadcast if `whenSlow` says so", async () => {
    await using server = await serve({ port: 0, limits: LIMITS });
    const { peer, socket } = await slowReader(server);
    for (let i = 0; i < 500 && peer.state === "open"; i++) {
      server.peers.notify("n", [LONG], { whenSlow: "close" });
      await turn();
    }
    expect([peer.state, peer.stats().dropped]).toEqual(["closed", 0]);
    socket.destroy();
    await peer.closed;
    const bad = (): unknown => server.peers.notify("n", [], { whenSlow: "wait" as never });
    expect(bad).toThrow(TypeError);
    expect(bad).toThrow("`whenSlow`");
  });
});

/** Resolves when a peer has received something more than `before`. */
async function heard(peer: AnyPeer, before: number): Promise<void> {
  while (peer.stats().bytesReceived === before) await turn();
}

describe("a peer that does not answer pings", () => {
  const heartbeat = { intervalMs: 100, deadAfterMs: 200 };

  it("is cut, and its close gives the reason", async () => {
    await using server = await serve({ port: 0, heartbeat });
    const { peer } = await slowReader(server);
    await pass(200);
    expect(await peer.closed).toMatchObject({
      code: 1006,
      error: { message: expect.stringContaining("heard for 200") },
    });
  });

  it("stays while its bytes arrive, however slowly", async () => {
    await using server = await serve({ port: 0, heartbeat, methods: { length: ([text]: [string]) => text.length } });
    const { peer, socket } = await slowReader(server);
    const text = Buffer.from(JSON.stringify(request(1, "length", ["x".repeat(1000)])));
    // A masked text frame, whose mask changes nothing.
    const header = Buffer.alloc(8);
    header.writeUInt16BE(0x81fe);
    header.writeUInt16BE(text.length, 2);
    for (const piece of [header, ...Array.from({ length: 11 }, (_, i) => text.subarray(100 * i, 100 * i + 100))]) {
      if (piece.length === 0) continue;
      const before = peer.stats().bytesReceived;
      socket.write(piece);
      await heard(peer, before);
      await pass(150);
    }
    expect([peer.state, peer.stats().requestsReceived]).toEqual(["open", 1]);
    socket.destroy();
    await peer.closed;
  });

  it("stays if the heartbeat is off, or if it answers", async () => {
    await using off = await serve({ port: 0, heartbeat: false });
    await using on = await serve({ port: 0, heartbeat });
    const silent = await slowReader(off);
    const arrived = nextPeer(on);
    using living = await plainPeer(on.url);
    const peer = await arrived;
    for (let i = 0; i < 5; i++) {
      const before = peer.stats().bytesReceived;
      await pass(100);
      await heard(peer, before);
    }
    expect([living.webSocket.readyState, peer.state, silent.peer.state]).toEqual([WebSocket.OPEN, "open", "open"]);
    silent.socket.destroy();
    await silent.peer.closed;
  });
});

describe.each(["packed", "plain"] as const)("a peer that reads, over a %s link", (link) => {
  it("gets every response of a burst of 10 MiB in one tick, and later messages", async () => {
    const answers = gate();
    const all = gate();
    let waiting = 0;
    const long = async (): Promise<string> => {
      if (++waiting === 160) all.resolve();
      await answers.promise;
      return LONG;
    };
    const limits = { maxUnsentBytes: 2 * MIB, maxReplyBytes: 2 * MIB };
    await using server = await serve({ port: 0, limits, methods: { long, short: () => 1 } });
    const arrived = nextPeer(server);
    await using client = await connect(server.url, { link });
    const peer = await arrived;
    const notices: string[] = [];
    for (const event of ["suspend", "lost", "close"] as const) client.on(event, () => notices.push(event));
    const calls = Array.from({ length: 160 }, () => client.request("long"));
    await all.promise;
    // All of them are answered in one tick.
    answers.resolve();
    await turn();
    expect(peer.stats().unsentBytes).toBeGreaterThan(2 * MIB);
    // This one is answered while the burst is still in flight.
    expect(await client.request("short")).toBe(1);
    expect((await Promise.all(calls)).every((text) => text === LONG)).toBe(true);
    expect([notices, server.stats().closed]).toEqual([[], {}]);
  });

  it("can read the maximum of streams at once, however fast they are", async () => {
    const limits = { maxStreams: 64, maxUnsentBytes: 2 * MIB, maxReplyBytes: 2 * MIB };
    async function* long(): AsyncGenerator<string> {
      for (let i = 0; i < 3; i++) yield LONG;
    }
    await using server = await serve({ port: 0, limits, heartbeat: false, methods: { long } });
    await using peer = await connect(server.url, { link, heartbeat: false, timeoutMs: Infinity });
    const readOne = async (): Promise<number> => {
      let length = 0;
      for await (const text of peer.stream("long")) length += (text as string).length;
      return length;
    };
    // The server checks from time to time whether its queue is shorter.
    const lengths = await passUntil(Promise.all(Array.from({ length: 64 }, readOne)), 1);
    expect(lengths).toEqual(Array(64).fill(3 * LONG.length));
  });
});

it("sends one ping for all that subscribe in 5 ms, so a client of `ws` with default options can do it 300 times at once", async () => {
  const kind = new Subscriptions<number>({ method: "said", limits: { maxPerPeer: 300 } });
  const subscribe = (_params: unknown, context: ServerContext): string => {
    const { id, notify } = kind.open(context);
    notify(1);
    return id as string;
  };
  await using server = await serve({ port: 0, methods: { subscribe } });
  using client = await plainPeer(server.url);
  let pings = 0;
  client.webSocket.on("ping", () => pings++);
  for (let i = 0; i < 300; i++) client.webSocket.send(JSON.stringify(request(i, "subscribe")));
  const count = (member: string): number => client.received.filter((text) => text.includes(`"${member}":`)).length;
  await vi.waitFor(() => expect([count("id"), count("method") > 0, pings]).toEqual([300, true, 1]));
  await pass(5);
  await vi.waitFor(() => expect([count("id"), count("method"), pings]).toEqual([300, 300, 2]));
});
