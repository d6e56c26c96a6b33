/** Imports `server/random`: no interface shows that the bytes of a secret are used once and forgotten. What a server keeps in memory. */
import { createHash } from "node:crypto";
import { once } from "node:events";
import { describe, expect, it, vi } from "vitest";
import { WebSocket } from "ws";
import { objectsKept } from "../support/objects.js";
import { notification, request } from "../support/raw.js";
import { gate, turn, until } from "../support/turns.js";
import { begun, ByHand, connect, drop, nextPeer, serving, servingOnPort, suspended } from "./by-hand.js";
import { stringsIn } from "./reachable.js";
import { randomText } from "../../src/server/random.js";

/** Keeps its params in a stream that never yields them. */
async function* kept(given: unknown): AsyncGenerator<unknown> {
  yield 1;
  await gate().promise;
  yield given;
}

/** Acks each received pack, which empties the replay log. */
async function ackAll(byHand: ByHand): Promise<void> {
  byHand.say({ ping: 1 });
  let packs = 0;
  while (Array.isArray(await byHand.next())) packs++;
  byHand.say({ ack: packs });
  byHand.say({ ping: 2 });
  await byHand.next();
}

const objects = (length: number): object[] => Array.from({ length }, () => ({}));

/** The number of values of 1,002 characters that are read ahead. */
const FULL = Math.ceil((64 * 1024 - 2) / 1002);

function calls(...all: object[]): (byHand: ByHand) => Promise<void> {
  return async (byHand) => {
    await byHand.hello();
    byHand.say(all);
  };
}

describe("the size of a suspended session", () => {
  const LENGTH = 50_000;
  const params = { text: "x".repeat(LENGTH) };
  it.each<[what: string, act: (byHand: ByHand) => Promise<void>, running: number, left: 0 | 1, times?: number]>([
    [
      "of running calls, and those of one frame once",
      calls(request(1, "wait", params), request(2, "wait"), request(3, "wait"), request(4, "soon", params)),
      3,
      0,
      2,
    ],
    [
      "as bytes",
      async (byHand) => {
        await byHand.hello();
        byHand.sayBytes(request(1, "wait", { data: "a" }), new Uint8Array(LENGTH));
      },
      1,
      0,
    ],
    [
      "of a call that was made before the session began",
      async (byHand) => {
        byHand.say(request(1, "wait", params));
        await byHand.hello();
      },
      1,
      0,
    ],
    ["of a generator, whose stream keeps them", calls(request(1, "stream", params)), 0, 1],
    ["of a generator that is returned later", calls(request(1, "later", params)), 0, 1],
    ["of a generator inside the result", calls(request(1, "inside", params)), 0, 1],
  ])("counts the params %s", async (_what, act, running, left, times = 1) => {
    const open = gate();
    const world = await serving({
      methods: {
        wait: () => open.promise,
        soon: async () => 1,
        stream: kept,
        later: async (given) => (await turn(), kept(given)),
        inside: (given, { peer }) => [peer.offer(kept(given))],
      },
    });
    const coming = nextPeer(world.server);
    const byHand = await ByHand.open(world.url);
    await act(byHand);
    const peer = await coming;
    await until(() => peer.stats().running === running && peer.stats().streams === left);
    await drop({ byHand, peer });
    const counted = (): number => world.server.stats().suspendedBytes / LENGTH;
    expect(counted()).toBeGreaterThan(times);
    expect(counted()).toBeLessThan(times + 0.1);
    open.resolve();
    await until(() => peer.stats().running === 0);
    // Of a call, only the response is queued now.
    expect(Math.floor(counted())).toBe(left);
    await peer.close();
    expect(counted()).toBe(0);
  });

  it("keeps nothing of the finished members of a batch that waits for one response", async () => {
    const open = gate();
    const world = await serving({ methods: { wait: () => open.promise, note: () => {} } });
    const { byHand, peer } = await begun(world);
    const long = notification("note", objects(20_000));
    const before = await objectsKept();
    for (let i = 0; i < 3; i++) byHand.say([[request(i, "wait"), long]]);
    await until(() => peer.stats().notificationsReceived === 3);
    expect((await objectsKept()) - before).toBeLessThan(2_000);
    open.resolve();
  });

  it("counts values of the client's streams that arrived and were not read", async () => {
    const open = gate();
    const got = gate();
    const world = await serving({
      methods: {
        async upload(stream, { peer }) {
          for await (const _ of peer.iterate(stream)) {
            got.resolve();
            await open.promise;
          }
        },
      },
    });
    const { byHand, peer } = await begun(world);
    byHand.say([request(1, "upload", { token: 7 })]);
    const values = Array.from({ length: 10 }, () => "x".repeat(5_000));
    // The second reply is requested while the first is read. A short frame behind it does not hide its length.
    for (let i = 0; i < 2; i++) {
      const [{ id, method }] = await byHand.next();
      expect(method).toBe("$/enumerator/next");
      byHand.say([{ jsonrpc: "2.0", id, result: { values, finished: false } }]);
      byHand.say([]);
      await got.promise;
    }
    byHand.say({ ping: 1 });
    while (!("pong" in (await byHand.next())));
    await drop({ byHand, peer });
    const { suspendedBytes } = world.server.stats();
    expect(suspendedBytes).toBeGreaterThan(100_000);
    expect(suspendedBytes).toBeLessThan(102_000);
    await peer.close();
    open.resolve();
    await until(() => world.server.stats().running === 0);
    expect(world.server.stats().suspendedBytes).toBe(0);
  });
});

it("an idle client keeps few objects more than a bare WebSocket", async () => {
  const { url } = await servingOnPort();
  const before = await objectsKept();
  await Promise.all(Array.from({ length: 100 }, () => once(new WebSocket(url, "reciproc.v1"), "open")));
  const bare = (await objectsKept()) - before;
  await Promise.all(Array.from({ length: 100 }, () => connect(url)));
  expect(((await objectsKept()) - before - 2 * bare) / 100).toBeLessThan(30);
});

it("a call that runs keeps its params once", async () => {
  const given: unknown[] = [];
  const open = gate();
  const world = await serving({ methods: { keep: (params: unknown) => (given.push(params), open.promise) } });
  const { byHand } = await begun(world);
  const before = await objectsKept();
  const [length, few] = [50_000, 2_000];
  byHand.say([request(1, "keep", objects(length))]);
  await until(() => given.length === 1);
  expect(Math.abs((await objectsKept()) - before - length)).toBeLessThan(few);
  open.resolve();
});

it("20,000 disconnects leave no memory behind beside a client that authenticated before them", async () => {
  const { server, url } = await serving<string>({
    authenticate: (_request, auth) => auth as string,
    principal: (name) => name,
  });
  await using client = await connect(url, { auth: "ada" });
  await server.principal("eve").disconnect();
  const before = await objectsKept();
  for (let i = 0; i < 20_000; i++) await server.principal(`a user with a long name, number ${i}`).disconnect();
  expect((await objectsKept()) - before).toBeLessThan(1_000);
  expect(client.state).toBe("open");
});

it("limits.maxSuspendedBytes limits the memory of suspended sessions with many open streams", async () => {
  const limits = { maxSuspendedBytes: 5 * 2 ** 20 };
  let yielded = 0;
  async function* lines(): AsyncGenerator<string> {
    yield "";
    // The reply is sent without waiting for more values.
    await turn();
    for (;;) {
      yielded++;
      yield "x".repeat(1_000);
    }
  }
  const world = await serving({ limits, methods: { lines } });
  // Each holds 1.3 MiB of values that its streams have read ahead, and nothing in its replay log.
  for (let i = 1; i <= 16; i++) {
    const session = await begun(world);
    session.byHand.say(Array.from({ length: 20 }, (_, n) => request(n, "lines")));
    await until(() => yielded === i * 20 * FULL);
    await ackAll(session.byHand);
    await drop(session);
    expect(world.server.stats().suspendedBytes).toBeLessThanOrEqual(limits.maxSuspendedBytes);
  }
  expect(world.server.stats().suspended).toBe(3);
});

it("a token is stored only as a hash, and not at all once the server is closed", async () => {
  const world = await servingOnPort();
  const { token } = await suspended(world);
  const { answer } = await ByHand.resume(world.url, token, 1);
  const { token: next } = (answer as { resumed: { token: string } }).resumed;
  const hashes = [token, next].map((secret) => createHash("sha256").update(secret).digest("base64"));
  const holds = (part: string): boolean => stringsIn(world.server).some((text) => text.includes(part));
  // If the search finds the hash, it would find the token too.
  expect(hashes.map(holds)).toEqual([true, true]);
  expect([token, next].map(holds)).toEqual([false, false]);
  await world.server.close();
  expect(hashes.map(holds)).toEqual([false, false]);
});

it("a text has the requested length of at most 2,048, and all 64 characters appear in texts, of which no two are equal", () => {
  const texts = Array.from({ length: 10_000 }, () => randomText(22));
  expect(texts.filter((text) => !/^[\w-]{22}$/.test(text))).toEqual([]);
  expect(new Set(texts.join(""))).toHaveProperty("size", 64);
  expect(() => randomText(2_049)).toThrow(RangeError);
  expect(new Set([...texts, randomText(2_048), randomText(2_048)])).toHaveProperty("size", 10_002);
  expect([0, 1, 21, 2_048].map((length) => randomText(length).length)).toEqual([0, 1, 21, 2_048]);
});

it("no bytes of a text stay in memory", () => {
  randomText(2_048);
  const fill = vi.spyOn(crypto, "getRandomValues");
  const filled: Uint8Array[] = [];
  const { getRandomValues } = Object.getPrototypeOf(crypto) as Crypto;
  fill.mockImplementation((array) => {
    getRandomValues.call(crypto, array as Uint8Array<ArrayBuffer>);
    filled.push(array as Uint8Array, (array as Uint8Array).slice());
    return array;
  });
  randomText(22);
  randomText(21);
  const [pool, bytes] = filled as [Uint8Array, Uint8Array];
  expect(pool.slice(0, 43)).toEqual(new Uint8Array(43));
  expect(pool.slice(43)).toEqual(bytes.slice(43));
});
