/** Clients that read slowly or not at all, clients that subscribe often, and processes that stall. */
import { once } from "node:events";
import { describe, expect, it, vi } from "vitest";
import { WebSocket } from "ws";
import {
  connect,
  serve,
  type AnyPeer,
  type Server,
  TimeoutError,
  Subscriptions,
  type ServerContext,
} from "../../src/node.js";
import { sendUpgrade, plainPeer } from "../support/network.js";
import { gate, turn, rejection } from "../support/turns.js";
import { nextPeer } from "./by-hand.js";
import { busyFor } from "../support/busy.js";
import { request } from "../support/raw.js";

const MIB = 2 ** 20;
const CAP = 512 * 1024;
const LIMITS = { maxUnsentBytes: CAP, maxReplyBytes: CAP };
const LONG = "x".repeat(64 * 1024);

/** Connects a client that never reads. Returns the server's peer for it. */
async function slowReader(server: Server): Promise<{ peer: AnyPeer; webSocket: WebSocket }> {
  const arrived = nextPeer(server);
  const webSocket = new WebSocket(server.url);
  webSocket.on("error", () => {});
  await once(webSocket, "open");
  webSocket.pause();
  return { peer: await arrived, webSocket };
}

describe("a peer that never reads", () => {
  it("loses broadcasts, counted, and stays, while a peer that reads loses none", async () => {
    await using server = await serve({ port: 0, limits: LIMITS });
    const { peer, webSocket } = await slowReader(server);
    const reader = new WebSocket(server.url);
    let read = 0;
    reader.on("message", () => read++);
    await once(reader, "open");
    await vi.waitFor(() => expect(server.peers.size).toBe(2));
    for (let i = 0; i < 100; i++) {
      server.peers.notify("n", [LONG]);
      await vi.waitFor(() => expect(read).toBe(i + 1), { interval: 1 });
      expect(peer.stats().unsentBytes).toBeLessThanOrEqual(CAP / 2 + LONG.length + 100);
    }
    const { dropped, notificationsSent } = peer.stats();
    expect(dropped).toBeGreaterThan(0);
    expect(dropped + notificationsSent).toBe(100);
    expect(peer.state).toBe("open");
    webSocket.terminate();
    reader.terminate();
  });

  it("is closed by a broadcast if `whenSlow` says so", async () => {
    await using server = await serve({ port: 0, limits: LIMITS });
    const { peer, webSocket } = await slowReader(server);
    for (let i = 0; i < 500 && peer.state === "open"; i++) {
      server.peers.notify("n", [LONG], { whenSlow: "close" });
      await turn();
    }
    expect(peer.state).toBe("closed");
    expect(peer.stats().dropped).toBe(0);
    webSocket.terminate();
    await peer.closed;
  });

  it("gets no pongs while 64 KiB are queued for it", async () => {
    await using server = await serve({ port: 0, limits: LIMITS });
    const arrived = nextPeer(server);
    const socket = await sendUpgrade(server.url);
    const peer = await arrived;
    socket.pause();
    // More than the system buffers for a client that does not read.
    while (peer.stats().unsentBytes < 64 * 1024) {
      peer.notify("fill", ["x".repeat(50_000)]);
      await new Promise(setImmediate);
    }
    const { unsentBytes, bytesReceived } = peer.stats();
    // Masked with zeros: a ping of 125 bytes.
    const ping = Buffer.concat([Buffer.from([0x89, 0x80 | 125, 0, 0, 0, 0]), Buffer.alloc(125)]);
    socket.write(Buffer.concat(Array.from({ length: 500 }, () => ping)));
    await vi.waitFor(() => expect(peer.stats().bytesReceived).toBe(bytesReceived + 500 * ping.length));
    expect(peer.stats().unsentBytes).toBe(unsentBytes);
    expect(peer.state).toBe("open");
    socket.destroy();
  });
});

describe("a broadcast", () => {
  it("refuses a bad `whenSlow`, and names the rule and the value", async () => {
    await using server = await serve({ port: 0 });
    expect(() => server.peers.notify("n", [], { whenSlow: "wait" as never })).toThrow(
      new TypeError('Expected `whenSlow` to be "drop" or "close", got `wait` (string)'),
    );
  });
});

describe("a peer that does not answer pings", () => {
  it("is cut, and its close gives the reason", async () => {
    await using server = await serve({ port: 0, heartbeat: { intervalMs: 50, deadAfterMs: 100 } });
    const arrived = nextPeer(server);
    const socket = await sendUpgrade(server.url);
    const peer = await arrived;
    const { code, error } = await peer.closed;
    expect(code).toBe(1006);
    expect(error!.message).toMatch(/^nothing was heard for \d+ ms$/);
    socket.destroy();
  });

  it("stays while its bytes arrive, however slowly", async () => {
    await using server = await serve({
      port: 0,
      heartbeat: { intervalMs: 100, deadAfterMs: 200 },
      methods: { length: ([text]: [string]) => text.length },
    });
    const socket = await sendUpgrade(server.url);
    const text = Buffer.from(JSON.stringify({ jsonrpc: "2.0", id: 1, method: "length", params: ["x".repeat(1000)] }));
    const header = Buffer.alloc(8);
    // A masked text frame, whose mask changes nothing.
    header.writeUInt16BE(0x81fe);
    header.writeUInt16BE(text.length, 2);
    socket.write(header);
    const received: Buffer[] = [];
    socket.on("data", (chunk: Buffer) => received.push(chunk));
    for (let i = 0; i < text.length; i += 100) {
      socket.write(text.subarray(i, i + 100));
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    await vi.waitFor(() => expect(Buffer.concat(received).toString("latin1")).toContain('"result":1000'));
    socket.destroy();
  });

  it("stays if the heartbeat is off, or if it answers", async () => {
    await using off = await serve({ port: 0, heartbeat: false });
    await using on = await serve({ port: 0, heartbeat: { intervalMs: 100, deadAfterMs: 1_000 } });
    const silent = await sendUpgrade(off.url);
    const living = new WebSocket(on.url);
    const pings = new Promise<void>((resolve) => {
      let count = 0;
      living.on("ping", () => ++count === 15 && resolve());
    });
    await pings;
    expect(on.peers.size).toBe(1);
    expect(off.peers.size).toBe(1);
    silent.destroy();
    living.terminate();
  });
});

describe("a peer that reads", () => {
  it.each(["packed", "plain"] as const)(
    "gets every response of a burst of 19 MiB in one tick, and later messages (%s)",
    async (link) => {
      const answers = gate();
      let waiting = 0;
      await using server = await serve({
        port: 0,
        methods: {
          async long() {
            waiting++;
            await answers.promise;
            return LONG;
          },
          short: () => 1,
        },
      });
      const arrived = nextPeer(server);
      const client = await connect(server.url, { link });
      const peer = await arrived;
      const notices: string[] = [];
      for (const event of ["suspend", "lost", "close"] as const) client.on(event, () => notices.push(event));
      const calls = Array.from({ length: 300 }, () => client.request("long"));
      await vi.waitFor(() => expect(waiting).toBe(300));
      // All of them are answered in one tick.
      answers.resolve();
      await turn();
      expect(peer.stats().unsentBytes).toBeGreaterThan(4 * MIB);
      // This one is answered while the burst is still in flight.
      expect(await client.request("short")).toBe(1);
      expect((await Promise.all(calls)).every((text) => text === LONG)).toBe(true);
      expect(notices).toEqual([]);
      expect(server.stats().closed).toEqual({});
      await client.close();
    },
  );

  it.each(["packed", "plain"] as const)(
    "can read the maximum of streams at once, however fast they are (%s)",
    async (link) => {
      await using server = await serve({
        port: 0,
        methods: {
          async *long() {
            for (let i = 0; i < 3; i++) yield LONG;
          },
        },
      });
      const peer = await connect(server.url, { link });
      const readOne = async (): Promise<number> => {
        let length = 0;
        for await (const text of peer.stream("long")) length += (text as string).length;
        return length;
      };
      expect(await Promise.all(Array.from({ length: 256 }, readOne))).toEqual(Array(256).fill(3 * LONG.length));
      await peer.close();
    },
  );
});

const TIMEOUT_MS = 150;

describe("a process that stalls beyond the timeout of a call", () => {
  it("still reads the response from the socket's buffer", async () => {
    await using server = await serve({
      port: 0,
      // The response is in flight, and not read yet.
      methods: { m: () => (process.nextTick(busyFor, 2 * TIMEOUT_MS), "in time") },
    });
    await using peer = await connect(server.url);
    expect(await peer.request("m", [], { timeoutMs: TIMEOUT_MS })).toBe("in time");
  });

  it("rejects a call whose response has not arrived", async () => {
    await using server = await serve({
      port: 0,
      methods: { m: () => (process.nextTick(busyFor, 2 * TIMEOUT_MS), new Promise(() => {})) },
    });
    await using peer = await connect(server.url);
    expect(await rejection(peer.request("m", [], { timeoutMs: TIMEOUT_MS }))).toBeInstanceOf(TimeoutError);
  });
});

/** Serves `subscribe`, which notifies once, and `unsubscribe`. */
function subscribable(): Promise<Server> {
  const kind = new Subscriptions<number>({ method: "said", limits: { maxPerPeer: 10_000 } });
  const methods = {
    subscribe(_params: unknown, context: ServerContext) {
      const { id, notify } = kind.open(context);
      notify(1);
      return id;
    },
    unsubscribe: ([id]: [string], { peer }: ServerContext) => kind.close(peer, id),
  };
  return serve({ port: 0, methods });
}

it.each(["packed", "plain"] as const)(
  "lets a client subscribe and unsubscribe 2,000 times in a row (%s)",
  async (link) => {
    await using server = await subscribable();
    const said = new Map<unknown, () => void>();
    let closes = 0;
    const methods = { said: ({ subscription }: { subscription: string }) => said.get(subscription)!() };
    await using client = await connect(server.url, { link, methods });
    client.on("lost", () => closes++).on("close", () => closes++);
    const again = async (times: number): Promise<void> => {
      for (let i = 0; i < times; i++) {
        const id = await client.request("subscribe");
        await new Promise<void>((resolve) => said.set(id, resolve));
        expect(await client.request("unsubscribe", [id])).toBe(true);
      }
    };
    await Promise.all(Array.from({ length: 20 }, () => again(100)));
    expect(said.size).toBe(2000);
    expect(closes).toBe(0);
  },
);

it("lets a client of `ws` with default options subscribe 300 times at once", async () => {
  await using server = await subscribable();
  using client = await plainPeer(server.url);
  for (let i = 0; i < 300; i++) client.webSocket.send(JSON.stringify(request(i, "subscribe")));
  await vi.waitFor(() => expect(client.received).toHaveLength(600));
  const messages = client.received.map((text) => JSON.parse(text) as { id?: number; method?: string });
  expect(messages.filter(({ id }) => id !== undefined)).toHaveLength(300);
  expect(messages.filter(({ method }) => method === "said")).toHaveLength(300);
});
