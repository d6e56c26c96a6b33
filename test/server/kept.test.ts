/** Imports `server/random`: no interface shows that the bytes of a secret are used once and forgotten. What a server keeps in memory. */
import { describe, expect, it, afterEach, vi } from "vitest";
import { type AnyPeer } from "../../src/node.js";
import { bytesKept, MIB } from "../soak/memory.js";
import { request } from "../support/raw.js";
import { gate, turn } from "../support/turns.js";
import {
  begun,
  ByHand,
  drop,
  nextPeer,
  serving,
  type Serving,
  servingOnPort,
  suspended as suspendedSession,
} from "./by-hand.js";
import { createHash } from "node:crypto";
import { stringsIn } from "./reachable.js";
import { randomText } from "../../src/server/random.js";

/** A method with a short reply and an endless stream, and the number of values that it has yielded. */
class Lines {
  yielded = 0;
  readonly #length: number;

  constructor(length: number) {
    this.#length = length;
  }

  readonly method = async function* (this: Lines): AsyncGenerator<string> {
    yield "";
    // The reply is sent without waiting for more values.
    await turn();
    for (;;) {
      this.yielded++;
      yield "x".repeat(this.#length);
    }
  }.bind(this);
}

/** Keeps its params in a stream that never yields them. */
async function* kept(given: unknown): AsyncGenerator<unknown> {
  yield 1;
  await gate().promise;
  yield given;
}

/**
 * Opens a session, makes these calls, and drops the socket when `isReady` returns true. If it `acks`, it acks all packs
 * before that.
 */
async function dropped<D>(
  world: Serving<D>,
  calls: unknown[],
  isReady: (peer: AnyPeer) => boolean,
  acks = true,
): Promise<AnyPeer> {
  const session = await begun(world);
  const { byHand, peer } = session;
  byHand.say(calls);
  await until(() => isReady(peer));
  if (acks) await ackAll(byHand);
  await drop(session);
  return peer;
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

/** The number of values of 1,002 characters that are read ahead. */
const FULL = Math.ceil((64 * 1024 - 2) / 1002);

async function until(isSo: () => boolean): Promise<void> {
  while (!isSo()) await turn();
}

describe("the size of a suspended session", () => {
  it("counts the params of running calls, and those of one frame once", async () => {
    const open = gate();
    const world = await serving({ methods: { wait: () => open.promise, soon: async () => 1 } });
    const params = { text: "x".repeat(50_000) };
    const all = [request(1, "wait", params), ...[2, 3, 4].map((id) => request(id, "wait")), request(5, "soon", params)];
    await dropped(world, all, (peer) => peer.stats().running === 4);
    const { suspendedBytes } = world.server.stats();
    expect(suspendedBytes).toBeGreaterThan(100_000);
    expect(suspendedBytes).toBeLessThan(102_000);
    open.resolve();
    await until(() => world.server.stats().running === 0);
    // Only the responses are queued now.
    expect(world.server.stats().suspendedBytes).toBeLessThan(1_000);
  });

  it.each<[string, (byHand: ByHand) => unknown]>([
    [
      "as bytes",
      async (byHand) => {
        await byHand.hello();
        byHand.sayBytes(request(1, "wait", { data: "a" }), new Uint8Array(50_000));
      },
    ],
    [
      "of calls that were made before the session began",
      async (byHand) => {
        byHand.say(request(1, "wait", { text: "x".repeat(50_000) }));
        await byHand.hello();
      },
    ],
  ])("counts the params %s", async (_what, call) => {
    const open = gate();
    const world = await serving({ methods: { wait: () => open.promise } });
    const coming = nextPeer(world.server);
    const byHand = await ByHand.open(world.url);
    await call(byHand);
    const peer = await coming;
    await until(() => peer.stats().running === 1);
    await drop({ byHand, peer });
    const { suspendedBytes } = world.server.stats();
    expect(suspendedBytes).toBeGreaterThan(50_000);
    expect(suspendedBytes).toBeLessThan(52_000);
    open.resolve();
  });

  it("counts the params of a generator, whose stream keeps them", async () => {
    const params = { text: "x".repeat(50_000) };
    const methods: Record<string, (given: unknown, context: { peer: AnyPeer }) => unknown> = {
      stream: kept,
      later: async (given) => (await turn(), kept(given)),
      inside: (given, { peer }) => [peer.offer(kept(given))],
    };
    for (const method of Object.keys(methods)) {
      const world = await serving({ methods });
      const peer = await dropped(world, [request(1, method, params)], (one) => {
        const { streams, running } = one.stats();
        return streams === 1 && running === 0;
      });
      const { suspendedBytes } = world.server.stats();
      expect(suspendedBytes).toBeGreaterThan(50_000);
      expect(suspendedBytes).toBeLessThan(55_000);
      await peer.close();
      expect(world.server.stats().suspendedBytes).toBe(0);
    }
  });

  it("keeps nothing of the finished members of a batch that waits for one response", async () => {
    const open = gate();
    const world = await serving({ methods: { wait: () => open.promise, note: () => {} } });
    const { byHand, peer } = await begun(world);
    const before = await bytesKept();
    const long = { jsonrpc: "2.0", method: "note", params: ["x".repeat(500_000)] };
    for (let i = 0; i < 20; i++) byHand.say([[request(i, "wait"), long]]);
    await until(() => peer.stats().notificationsReceived === 20);
    expect((await bytesKept()) - before).toBeLessThan(2 * MIB);
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

describe("limits.maxSuspendedBytes", () => {
  it("limits the memory of suspended sessions with many open streams", async () => {
    const limits = { maxSuspendedBytes: 5 * MIB };
    const lines = new Lines(1_000);
    const world = await serving({ limits, methods: { lines: lines.method } });
    const before = await bytesKept();
    const calls = Array.from({ length: 20 }, (_, i) => request(i, "lines"));
    // Each holds 1.3 MiB of values that its streams have read ahead, and nothing in its replay log.
    for (let i = 1; i <= 16; i++) {
      await dropped(world, calls, () => lines.yielded === i * 20 * FULL);
      expect(world.server.stats().suspendedBytes).toBeLessThanOrEqual(limits.maxSuspendedBytes);
    }
    const { suspended, suspendedBytes } = world.server.stats();
    expect(suspended).toBe(3);
    const bytes = (await bytesKept()) - before;
    expect(bytes, `${bytes} bytes kept, ${suspendedBytes} counted`).toBeLessThan(2 * limits.maxSuspendedBytes);
  });
});

describe("a token", () => {
  it("is stored only as a hash, and not at all once the server is closed", async () => {
    const world = await servingOnPort();
    const { token } = await suspendedSession(world);
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
});

afterEach(() => void vi.restoreAllMocks());

/** Records the arrays that are filled with random bytes. Returns a copy of each, as it was then, beside the array. */
function recordBytes(): { array: Uint8Array; bytes: Uint8Array }[] {
  const filled: { array: Uint8Array; bytes: Uint8Array }[] = [];
  const fill = crypto.getRandomValues.bind(crypto);
  vi.spyOn(crypto, "getRandomValues").mockImplementation((array) => {
    fill(array as Uint8Array<ArrayBuffer>);
    filled.push({ array: array as Uint8Array, bytes: (array as Uint8Array).slice() });
    return array;
  });
  return filled;
}

it("a text has the requested length, and all 64 characters appear in texts, of which no two are equal", () => {
  const texts = Array.from({ length: 10_000 }, () => randomText(22));
  expect(texts.filter((text) => !/^[\w-]{22}$/.test(text))).toEqual([]);
  expect(new Set(texts.join(""))).toHaveProperty("size", 64);
  expect(new Set(texts)).toHaveProperty("size", 10_000);
  expect([0, 1, 21, 2_048].map((length) => randomText(length).length)).toEqual([0, 1, 21, 2_048]);
});

it("a text of more than 2,048 characters is refused, and the next one is made of fresh bytes", () => {
  for (const length of [2_049, 4_096])
    expect(() => randomText(length)).toThrow(new RangeError(`Expected at most 2048 characters, got \`${length}\``));
  const text = randomText(2_048);
  expect(new Set(text).size).toBeGreaterThan(40);
  expect(randomText(2_048)).not.toBe(text);
});

it("no bytes of a text stay in memory", () => {
  randomText(2_048);
  const filled = recordBytes();
  randomText(22);
  randomText(21);
  const [{ array, bytes }] = filled as [{ array: Uint8Array; bytes: Uint8Array }];
  expect(array.slice(0, 43)).toEqual(new Uint8Array(43));
  expect(array.slice(43)).toEqual(bytes.slice(43));
});
