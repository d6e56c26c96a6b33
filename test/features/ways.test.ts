import { describe, expect, it } from "vitest";
import { acp, lsp, mcp, type Context } from "../../src/index.js";
import { readAll, type AnyOptions } from "../support/pair.js";
import { rejection, turn, until, untilAborted, useVirtualClock } from "../support/time.js";
import { counted, everyWay, expectIdle, Fed, plainPeers, type Join } from "./kit.js";

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

  it("may be part of a result, and of params, and is read by the other side", async () => {
    await using both = await join(serving);
    const { all, none }: any = await both.b.request("nested", [1500]);
    const read = await Promise.all([readAll(both.b.iterate(all)), readAll(both.b.iterate(none[0]))]);
    expect(read).toEqual([numbers(1500), []]);
    expect(await both.b.request("sum", { of: both.b.offer(numbers(5000)) })).toBe(12_502_500);
    await both.settled();
    expectIdle(both);
  });

  it.each(["its signal", "return()"])("ends at its source after any number of microtasks, by %s", async (how) => {
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
  });

  it.each([
    ["1,000 values", 1000, (i: number) => i],
    ["64 KiB", 5, () => "x".repeat(16_000)],
  ])("bounds each reply to %s, and what is taken from its source while no value is read", async (...row) => {
    const [, most, valueOf] = row;
    const source = counted(Infinity, valueOf);
    await using both = await join({ methods: { forever: () => source } });
    const stream = both.b.stream("forever")[Symbol.asyncIterator]();
    await stream.next();
    await both.settled();
    // One reply being read, those requested, and one prepared.
    expect(source.asked).toBe((2 + requested) * most);
    await both.settled();
    expect(source.asked).toBe((2 + requested) * most);
    for (let i = 0; i < most; i++) await stream.next();
    await both.settled();
    expect(source.asked).toBe((3 + requested) * most);
    await stream.return!();
    await both.settled();
    expectIdle(both);
  });
});
