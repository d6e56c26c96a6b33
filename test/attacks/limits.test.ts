import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, it, vi } from "vitest";
import { WebSocket } from "ws";
import { z } from "zod";
import type { ServerContext } from "../../src/node.js";
import { inspect } from "../../src/peer/peer.js";
import { plainPeer } from "../support/network.js";
import { failure, notification, request } from "../support/raw.js";
import { attacker } from "./support/attacker.js";
import { floodBeside } from "./support/bystander.js";
import { expectKept, MIB } from "./support/memory.js";
import { frame, rawSocket, target, TEXT } from "./support/server.js";

const SLACK = 3 * MIB;
const EMPTY = { pending: 0, openBatches: 0, running: 0, streams: 0, progress: 0 };
const BUSY = { code: -32009, message: "Server is busy" };

/** Handlers that run until they are aborted. */
function hanging() {
  const seen = { started: 0, aborted: 0 };
  const hang = (_params: unknown, { signal }: ServerContext): Promise<void> =>
    new Promise((resolve) => {
      seen.started++;
      signal.addEventListener("abort", () => {
        seen.aborted++;
        resolve();
      });
    });
  return { seen, methods: { hang } };
}

describe("a flood of calls to a slow handler", () => {
  it("runs 1,024 at once, and the rest get -32009; all of them are aborted when the connection ends", async () => {
    const { seen, methods } = hanging();
    await using on = await target({ methods });
    using client = await plainPeer(on.url);
    for (let id = 1; id <= 5000; id++) client.webSocket.send(JSON.stringify(request(id, "hang")));
    await vi.waitFor(() => expect(client.received).toHaveLength(3976));
    const answers = client.received.map((text) => JSON.parse(text) as unknown);
    expect(answers).toEqual(Array.from({ length: 3976 }, (_, i) => ({ jsonrpc: "2.0", id: 1025 + i, error: BUSY })));
    const [peer] = on.peers;
    expect(peer!.stats()).toMatchObject({ requestsReceived: 5000, refusedBusy: 3976, running: 1024 });
    client.webSocket.terminate();
    await peer!.closed;
    expect(seen).toEqual({ started: 1024, aborted: 1024 });
    await vi.waitFor(() => expect(inspect(peer!)).toMatchObject(EMPTY));
  });

  it("counts each call of a batch", async () => {
    const { methods } = hanging();
    await using on = await target({ methods, limits: { maxInFlight: 10 } });
    using client = await plainPeer(on.url);
    client.webSocket.send(JSON.stringify(Array.from({ length: 1000 }, (_, id) => request(id, "hang"))));
    await vi.waitFor(() => expect(on.peers[0]!.stats()).toMatchObject({ running: 10, refusedBusy: 990 }));
  });

  it("runs 1,024 notifications at once, and the rest are dropped, counted and reported as `error`; calls still run", async () => {
    const { seen, methods } = hanging();
    await using on = await target({ methods });
    using client = await plainPeer(on.url);
    for (let i = 0; i < 3000; i++) client.webSocket.send(JSON.stringify(notification("hang")));
    client.webSocket.send(JSON.stringify(request(1, "here")));
    expect(await client.next()).toMatchObject({ id: 1, result: true });
    expect(seen.started).toBe(1024);
    expect(on.peers[0]!.stats()).toMatchObject({ notificationsReceived: 3000, refusedBusy: 1976, running: 1024 });
    expect(on.errors).toHaveLength(1976);
    expect(on.errors[0]).toMatchObject(BUSY);
    expect(client.received).toHaveLength(1);
  });

  it("delays no other client, and leaves nothing after its end", async () => {
    const { methods } = hanging();
    await using attack = await attacker();
    await using on = await target({ methods, limits: { maxInFlight: 100 } });
    const texts = ['{"jsonrpc":"2.0","id":$i,"method":"hang"}', '{"jsonrpc":"2.0","method":"hang"}'];
    await expectKept(SLACK, async () => {
      const damage = await floodBeside(attack, { url: on.url, texts, burst: 20 });
      const [peer] = on.peers.splice(0);
      await peer!.closed;
      on.errors.length = 0;
      expect(damage).toMatchObject({ opened: 1, closes: {} });
      expect(Object.keys(damage.answers)).toEqual(["-32009"]);
    });
  });
});

describe("a message over `maxMessagesPerSecond`", () => {
  const RATE = 200;
  const limits = { maxMessagesPerSecond: RATE };

  it.each([
    ["one by one", 1],
    ["in batches", 100],
  ])("is refused with -32009 and runs no handler: %s", async (_how, size) => {
    let ran = 0;
    await using attack = await attacker();
    await using on = await target({ limits, methods: { count: () => ++ran } });
    const call = '{"jsonrpc":"2.0","id":$i,"method":"count"}';
    const text = size === 1 ? call : `[${Array<string>(size).fill(call).join(",")}]`;
    const began = performance.now();
    await attack.start({ url: on.url, texts: [text], burst: size === 1 ? 20 : 1 });
    await sleep(1000);
    const damage = await attack.stop();
    const [peer] = on.peers;
    await peer!.closed;
    const seconds = (performance.now() - began) / 1000;
    const { requestsReceived, refusedRate } = peer!.stats();
    expect(requestsReceived).toBeGreaterThan(2 * RATE);
    expect(requestsReceived - refusedRate).toBe(ran);
    expect(ran).toBeGreaterThanOrEqual(RATE);
    expect(ran).toBeLessThanOrEqual(RATE * (1 + seconds));
    expect(damage).toMatchObject({ opened: 1, closes: {} });
  });

  it("is dropped, counted and not answered if it is a notification in a pack", async () => {
    let ran = 0;
    await using on = await target({ limits, methods: { count: () => void ran++ } });
    using raw = await rawSocket(on, { "Sec-WebSocket-Protocol": "reciproc.v1" });
    raw.socket.resume();
    await raw.write(frame(TEXT, '{"hello":{}}'));
    const { bytesSent } = raw.peer.stats();
    const pack = Array.from({ length: 20_000 }, () => notification("count"));
    await raw.write(frame(TEXT, JSON.stringify(pack)));
    await vi.waitFor(() => expect(raw.peer.stats().notificationsReceived).toBe(20_000));
    expect(ran).toBeGreaterThanOrEqual(RATE);
    // Reading the pack takes time, in which a few more are allowed.
    expect(ran).toBeLessThan(2 * RATE);
    expect(raw.peer.stats()).toMatchObject({ refusedRate: 20_000 - ran, bytesSent });
  });

  it("does not affect other clients", async () => {
    await using attack = await attacker();
    await using on = await target({ limits: { maxMessagesPerSecond: 1000 } });
    const texts = ['{"jsonrpc":"2.0","id":$i,"method":"here"}'];
    const damage = await floodBeside(attack, { url: on.url, texts, burst: 50 });
    expect(damage.answers["-32009"]).toBeGreaterThan(0);
  });
});

describe("a batch", () => {
  it("gets one -32010 with 524,288 entries, and none of it runs", async () => {
    await using on = await target();
    using client = await plainPeer(on.url);
    client.webSocket.send(`[${"1,".repeat(524_286)}1]`);
    expect(await client.next()).toEqual(failure(null, -32010, "Batch is too large", { maxBatchEntries: 1000 }));
    expect(on.peers[0]!.stats()).toMatchObject({ malformed: 0, requestsReceived: 0 });
  });

  it("closes with 1008 after the hundredth of 1,000 bad entries, and is not answered", async () => {
    await using on = await target();
    using client = await plainPeer(on.url);
    client.webSocket.send(`[${"{},".repeat(999)}{}]`);
    expect(await client.closed).toMatchObject({ code: 1008 });
    expect(client.received).toEqual([]);
    expect(on.peers[0]!.stats().malformed).toBe(101);
  });

  it("gets one response of `maxReplyBytes` for 1,000 calls with results of 100 KiB, and -32008 for the rest", async () => {
    const long = "x".repeat(100 * 1024);
    await using on = await target({ methods: { long: () => long } });
    using client = await plainPeer(on.url);
    client.webSocket.send(JSON.stringify(Array.from({ length: 1000 }, (_, id) => request(id, "long"))));
    const reply = (await client.next()) as { error?: { code: number } }[];
    expect(reply).toHaveLength(1000);
    expect(reply.filter(({ error }) => error === undefined)).toHaveLength(10);
    expect(reply.filter(({ error }) => error?.code === -32008)).toHaveLength(990);
    // The errors do not count: about a hundred bytes each.
    expect(client.received[0]!.length).toBeLessThan(MIB + 1000 * 120);
  });

  it("has limits of its own among 100 batches of 1,000 in one pack, and delays no other client", async () => {
    await using attack = await attacker();
    await using on = await target({ methods: { none: () => undefined } });
    const batch = `[${Array<string>(10).fill('{"jsonrpc":"2.0","id":$i,"method":"none"}').join(",")}]`;
    const flood = { url: on.url, protocols: ["reciproc.v1"], first: ['{"hello":{}}'] };
    const damage = await floodBeside(attack, {
      ...flood,
      texts: [`[${Array<string>(10).fill(batch).join(",")}]`],
      burst: 1,
      everyMs: 10,
    });
    expect(damage).toMatchObject({ opened: 1, closes: {} });
    expect(damage.answers["result"]).toBeGreaterThan(2);
  });

  it("closes with 1008 after the hundredth of 300,000 empty batches in one pack", async () => {
    await using on = await target();
    const webSocket = new WebSocket(on.url, ["reciproc.v1"]);
    await once(webSocket, "message");
    webSocket.send('{"hello":{}}');
    webSocket.send(`[${"[],".repeat(299_999)}[]]`);
    expect((await once(webSocket, "close"))[0]).toBe(1008);
    expect(on.peers[0]!.stats().malformed).toBe(101);
  });
});

describe("a call with 500,000 errors in its params", () => {
  it("gets one -32602 that names the first hundred", async () => {
    await using on = await target({ methods: { m: () => 1 }, schemas: { m: z.array(z.string()) } });
    using client = await plainPeer(on.url);
    client.webSocket.send(`{"jsonrpc":"2.0","id":1,"method":"m","params":[${"1,".repeat(499_999)}1]}`);
    const { error } = (await client.next()) as { error: { code: number; data: { issues: { path: number[] }[] } } };
    expect(error.code).toBe(-32602);
    expect(error.data.issues.map(({ path }) => path[0])).toEqual(Array.from({ length: 100 }, (_, i) => i));
  });
});

/** Makes an endless stream, and counts open and returned sources. */
function counting() {
  const seen = { begun: 0, read: 0, returned: 0 };
  async function* count(): AsyncGenerator<string> {
    seen.begun++;
    try {
      for (;;) {
        seen.read++;
        yield "x".repeat(100);
      }
    } finally {
      seen.returned++;
    }
  }
  return { seen, methods: { count } };
}

describe("a flood of endless streams that are not read", () => {
  it("opens at most 256, each read 64 KiB ahead; further ones get -32009, and all are returned when the connection ends", async () => {
    const { seen, methods } = counting();
    // The first values of 256 streams are 16 MiB in one tick.
    await using on = await target({ methods, limits: { maxUnsentBytes: 64 * MIB } });
    using client = await plainPeer(on.url);
    for (let id = 1; id <= 1000; id++) client.webSocket.send(JSON.stringify(request(id, "count")));
    await vi.waitFor(() => expect(client.received).toHaveLength(1000), 10_000);
    const refused = client.received.filter((text) => text.includes("-32009"));
    expect(refused).toHaveLength(744);
    const [peer] = on.peers;
    expect(inspect(peer!)).toMatchObject({ streams: 256, running: 0 });
    const { read } = seen;
    // The first reply, and the next 64 KiB.
    expect(read).toBeLessThanOrEqual(256 * 2 * (65_536 / 102 + 2));
    client.webSocket.terminate();
    await peer!.closed;
    await vi.waitFor(() => expect(seen).toEqual({ begun: 256, read, returned: 256 }));
    expect(inspect(peer!)).toMatchObject(EMPTY);
  });

  it("cannot read a stream twice at once (-32600), nor by unknown tokens (-32001)", async () => {
    await using on = await target({
      methods: {
        // eslint-disable-next-line require-yield
        async *never(_params: unknown, { signal }: ServerContext) {
          await once(signal, "abort");
        },
      },
    });
    using client = await plainPeer(on.url);
    client.webSocket.send(JSON.stringify(request(1, "never")));
    const { token } = ((await client.next()) as { result: { token: number } }).result;
    for (let id = 2; id <= 101; id++)
      client.webSocket.send(JSON.stringify(request(id, "$/enumerator/next", { token })));
    for (let id = 102; id <= 201; id++)
      client.webSocket.send(JSON.stringify(request(id, "$/enumerator/next", { token: `${token}` })));
    await vi.waitFor(() => expect(client.received).toHaveLength(200));
    expect(client.received.filter((text) => text.includes("-32600"))).toHaveLength(99);
    expect(client.received.filter((text) => text.includes("-32001"))).toHaveLength(100);
    expect(inspect(on.peers[0]!)).toMatchObject({ streams: 1 });
  });

  it("delays no other client, however often they are opened and returned", async () => {
    const { seen, methods } = counting();
    await using attack = await attacker();
    await using on = await target({ methods, limits: { maxStreams: 16 } });
    const texts = [
      '{"jsonrpc":"2.0","id":$i,"method":"count"}',
      '{"jsonrpc":"2.0","method":"count"}',
      '{"jsonrpc":"2.0","id":"x$i","method":"$/enumerator/next","params":{"token":$i}}',
    ];
    await expectKept(SLACK, async () => {
      const damage = await floodBeside(attack, { url: on.url, texts, burst: 9 });
      expect(damage).toMatchObject({ opened: 1, closes: {} });
      const [peer] = on.peers.splice(0);
      await peer!.closed;
      expect(inspect(peer!)).toMatchObject(EMPTY);
      await vi.waitFor(() => expect(seen.returned).toBe(seen.begun));
    });
  });
});
