/** Cancels, progress and streams between two peers, in both directions, on every kind of link, and what latency costs a stream. */
import { describe, expect, it } from "vitest";
import { acp, lsp, mcp, Peer, type AnyPeer, type Context } from "../../src/index.js";
import { expectEmpty, type AnyOptions } from "../support/pair.js";
import { pass, useVirtualClock } from "../support/time.js";
import { rejection, turn } from "../support/turns.js";
import {
  counted,
  everyWay,
  expectIdle,
  Fed,
  line,
  plainPeers,
  readAll,
  until,
  untilAborted,
  type Join,
} from "./kit.js";

useVirtualClock();

const chosen = [lsp, mcp, acp].map((dialect): [string, Join] => [
  `between plain peers that chose ${dialect.name}`,
  plainPeers(dialect),
]);

/** Serves `wait`, which ends when it is aborted, and records each context. */
class Waiting {
  readonly started: Context[] = [];
  readonly options: AnyOptions = {
    methods: { wait: (_params, context) => (this.started.push(context), untilAborted(context)) },
  };

  get aborted(): number {
    return this.started.filter(({ signal }) => signal.aborted).length;
  }
}

describe.each([...everyWay, ...chosen])("cancelling %s", (_name, join) => {
  it.each(["a", "b"] as const)("reaches the handler, for calls that %s makes", async (side) => {
    const waiting = new Waiting();
    await using both = await join(waiting.options, waiting.options);
    const controller = new AbortController();
    const call = both[side].request("wait", [], { signal: controller.signal });
    // The first cancel follows its call in the same tick.
    const early = new AbortController();
    const second = both[side].request("wait", [], { signal: early.signal });
    early.abort("y");
    expect(await rejection(second)).toBe("y");
    await until(() => waiting.started.length === 2 && waiting.aborted === 1);
    controller.abort("x");
    expect(await rejection(call)).toBe("x");
    await until(() => waiting.aborted === 2);
    expect(waiting.started[0]!.signal.reason).toMatchObject({ name: "AbortError" });
    await both.settled();
    expectIdle(both);
  });

  it("reaches one of two calls under the same id, one from each side", async () => {
    const [atA, atB] = [new Waiting(), new Waiting()];
    await using both = await join(atA.options, atB.options);
    const controller = new AbortController();
    const fromA = both.a.request("wait", [], { signal: controller.signal });
    const fromB = rejection(both.b.request("wait"));
    await until(() => atA.started.length + atB.started.length === 2);
    expect(atA.started[0]!.id).toBe(atB.started[0]!.id);
    controller.abort("x");
    await rejection(fromA);
    await until(() => atB.aborted === 1);
    await both.settled();
    expect(atA.aborted).toBe(0);
    await both.b.close();
    await fromB;
  });
});

/** Reports each of its values, `build` in a tick of its own, and then returns. */
const reporting: AnyOptions = {
  methods: {
    async build({ values }, { progress }: Context) {
      for (const value of values) {
        await turn();
        progress(value);
      }
      return "built";
    },
    burst: ({ values }, { progress }: Context) => (values.forEach(progress), "built"),
  },
};

describe.each([...everyWay, ...chosen])("progress %s", (_name, join) => {
  it.each(["build", "burst"])("reaches each side in order, all of it before the result (%s)", async (method) => {
    await using both = await join(reporting, reporting);
    const values = Array.from({ length: 50 }, (_, progress) => ({ progress }));
    for (const peer of [both.a, both.b]) {
      const seen: unknown[] = [];
      const onProgress = (value: unknown): void => void seen.push(value);
      seen.push(await peer.request(method, { values }, { onProgress }));
      await both.settled();
      expect(seen).toEqual([...values, "built"]);
    }
    expectIdle(both);
  });
});

const numbers = (count: number): number[] => Array.from({ length: count }, (_, i) => i + 1);

const serving: AnyOptions = {
  methods: {
    count: ([n]) => counted(n),
    sized: ([n, length]) => counted(n, (i) => `${i}`.padEnd(length, "x")),
    nested: ([n], { peer }: Context) => ({ all: peer.offer(counted(n)), none: [peer.offer([])] }),
    async sum({ of }, { peer }: Context) {
      let total = 0;
      for await (const value of peer.iterate<number>(of)) total += value;
      return total;
    },
  },
};

/** Each with how many replies a reader requests ahead. */
const ways: [string, Join, number][] = [
  ...everyWay.map(([name, join]): [string, Join, number] => [name, join, 2]),
  ["between plain peers", plainPeers(), 1],
  ...chosen.map(([name, join]): [string, Join, number] => [name, join, 1]),
];

describe.each(ways)("a stream %s", (_name, join, requested) => {
  it.each([0, 1, 1000, 1001, 5000])("of %i values is read completely and in order, in both directions", async (n) => {
    await using both = await join(serving, serving);
    const read = await Promise.all([both.a, both.b].map((peer) => readAll(peer.stream("count", [n]))));
    expect(read).toEqual([numbers(n), numbers(n)]);
    await both.settled();
    expectIdle(both);
  });

  it.each([[5, 100_000], [2, 1_000_000], [400, 1000]])(
    "of %i values of %i characters is read completely",
    async (n, length) => {
      await using both = await join(serving);
      const values = await readAll(both.b.stream("sized", [n, length]));
      expect(values).toEqual(numbers(n).map((i) => `${i}`.padEnd(length, "x")));
      await both.settled();
      expectIdle(both);
    },
  ); // prettier-ignore

  it("may be part of a result, and of params, and is read by the other side", async () => {
    await using both = await join(serving);
    const { all, none }: any = await both.b.request("nested", [1500]);
    const read = await Promise.all([readAll(both.b.iterate(all)), readAll(both.b.iterate(none[0]))]);
    expect(read).toEqual([numbers(1500), []]);
    expect(await both.b.request("sum", { of: both.b.offer(numbers(5000)) })).toBe(12_502_500);
    await both.settled();
    expectIdle(both);
  });

  it.each(["its signal", "return()"])(
    "ends at its source when it is aborted by %s, after any number of microtasks",
    async (how) => {
      const sources: Fed[] = [];
      await using both = await join({ methods: { tail: () => (sources.push(new Fed().give(1, 2)), sources.at(-1)) } });
      const abortAfter = async (microtasks: number): Promise<void> => {
        const controller = new AbortController();
        const stream = both.b.stream("tail", [], { signal: controller.signal })[Symbol.asyncIterator]();
        const reads = Promise.allSettled([stream.next(), stream.next(), stream.next()]);
        for (let i = 0; i < microtasks; i++) await Promise.resolve();
        if (how === "return()") await stream.return!();
        else controller.abort("x");
        await reads;
      };
      await Promise.all(Array.from({ length: 80 }, (_, microtasks) => abortAfter(microtasks)));
      await both.settled();
      expect(sources.map(({ returned }) => returned)).toEqual(sources.map(() => 1));
      expect(sources.length).toBeGreaterThan(70);
      expectIdle(both);
    },
  );

  it("bounds the values taken from its source while no value is read", async () => {
    const source = counted();
    await using both = await join({ methods: { forever: () => source } });
    const stream = both.b.stream("forever")[Symbol.asyncIterator]();
    await stream.next();
    await both.settled();
    // One reply being read, those requested, and one prepared.
    expect(source.asked).toBe((2 + requested) * 1000);
    await both.settled();
    expect(source.asked).toBe((2 + requested) * 1000);
    for (let i = 0; i < 1000; i++) await stream.next();
    await both.settled();
    expect(source.asked).toBe((3 + requested) * 1000);
    await stream.return!();
    await both.settled();
    expectIdle(both);
  });

  it("of long values bounds each reply to 64 KiB", async () => {
    const source = counted(Infinity, () => "x".repeat(16_000));
    await using both = await join({ methods: { forever: () => source } });
    const stream = both.b.stream("forever")[Symbol.asyncIterator]();
    await stream.next();
    await both.settled();
    expect(source.asked).toBe((2 + requested) * 5);
    await stream.return!();
    await both.settled();
    expectIdle(both);
  });
});

const WAY_MS = 25;
const ROUND_TRIP_MS = 2 * WAY_MS;

const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** Yields `count` values, one each `everyMs`. */
async function* steadily(count: number, everyMs: number): AsyncGenerator<number> {
  for (let i = 1; i <= count; i++) {
    await sleep(everyMs);
    yield i;
  }
}

/** How a stream was read over a link with latency. Times are in milliseconds since the call. */
interface Timed {
  /** When each value arrived. */
  readonly times: number[];
  /** When the reading ended. */
  readonly endMs: number;
  /** The messages of both sides, and the requests for more values among them. */
  readonly messages: number;
  readonly requests: number;
}

/** Reads a stream over a link that delays each message, with a pause of `eachMs` after each value. */
async function timed(source: AsyncIterable<unknown>, eachMs = 0, options?: object): Promise<Timed> {
  const sent: string[] = [];
  const ends = line({ isReciproc: true, delayMs: WAY_MS, onSend: (text) => sent.push(text) });
  const server: AnyPeer = new Peer(ends[0], { methods: { tail: () => source } });
  const client: AnyPeer = new Peer(ends[1], {});
  const startMs = performance.now();
  const times: number[] = [];
  let endMs: number | undefined;
  void (async () => {
    for await (const _ of client.stream("tail", [], options)) {
      times.push(performance.now() - startMs);
      if (eachMs > 0) await sleep(eachMs);
    }
    endMs = performance.now() - startMs;
  })();
  await pass(10_000);
  const requests = sent.filter((text) => text.includes("$/enumerator/next")).length;
  const messages = sent.length;
  await Promise.all([server.close(), client.close()]);
  expectEmpty(server);
  expectEmpty(client);
  return { times, endMs: endMs!, messages, requests };
}

describe(`over a round trip of ${ROUND_TRIP_MS} ms`, () => {
  it("a source that begins later than 100 ms gets an empty first reply, and takes one more round trip", async () => {
    // The request for the first value is pending at the source, so no time is lost. Two requests for more are sent.
    expect(await timed(steadily(1, 400), 0, { timeoutMs: 200 })).toMatchObject({
      endMs: ROUND_TRIP_MS + 400,
      messages: 6,
    });
  });

  it("each value of a steady source arrives half a round trip or one round trip after it was made", async () => {
    const { times, endMs, requests } = await timed(steadily(100, 10));
    expect(times).toHaveLength(100);
    const latencies = times.map((at, i) => at - WAY_MS - 10 * (i + 1));
    // A value is sent at once if a request is pending, and otherwise with the next request.
    expect(Math.min(...latencies)).toBeGreaterThanOrEqual(WAY_MS);
    expect(Math.max(...latencies)).toBeLessThanOrEqual(WAY_MS + ROUND_TRIP_MS);
    // 1,000 ms of work. One value per request would take 5,000 ms.
    expect(endMs).toBeLessThanOrEqual(100 * 10 + 2 * ROUND_TRIP_MS);
    expect(requests).toBeLessThanOrEqual(2 * (1000 / ROUND_TRIP_MS + 1));
  });

  it("a reader that takes 1 ms for each value never waits for a faster source", async () => {
    // One round trip, and then only work.
    expect(await timed(counted(5000), 1)).toMatchObject({ endMs: ROUND_TRIP_MS + 5000, requests: 5 });
  });

  it("a source and a reader without any pause move two full replies each round trip", async () => {
    // The last request is answered without a value.
    expect(await timed(counted(10_000))).toMatchObject({ endMs: 6 * ROUND_TRIP_MS, requests: 11 });
  });
});
