/** Streams between two peers, in both directions, on every kind of link. */
import { describe, expect, it } from "vitest";
import { acp, lsp, mcp, type Context, type Dialect } from "../../src/index.js";
import type { AnyOptions } from "../support/pair.js";
import { rejection, turn } from "../support/turns.js";
import { asPlainPeers, everyWay, expectIdle, expectNoDeadlines, readAll, until, type Join } from "./joined.js";
import { counted, Fed } from "./sources.js";

expectNoDeadlines();

const plainPeers =
  (dialect: Dialect): Join =>
  (a, b) =>
    asPlainPeers({ dialect, ...a }, { dialect, ...b });

/** Each with how many replies a reader requests ahead. */
const ways: [string, Join, number][] = [
  ...everyWay.map(([name, join]): [string, Join, number] => [name, join, 2]),
  ["between plain peers", asPlainPeers, 1],
  ...[lsp, mcp, acp].map((dialect): [string, Join, number] => [
    `between plain peers that chose ${dialect.name}`,
    plainPeers(dialect),
    1,
  ]),
];

const numbers = (count: number): number[] => Array.from({ length: count }, (_, i) => i + 1);

describe.each(ways)("a stream %s", (_name, join, requested) => {
  const serving: AnyOptions = {
    methods: {
      count: ([n]) => counted(n),
      sized: ([n, length]) => counted(n, (i) => `${i}`.padEnd(length, "x")),
      nested: ([n], { peer }: Context) => ({ even: peer.offer(counted(n, (i) => 2 * i)), odd: [peer.offer(counted(n, (i) => 2 * i - 1))] }),
      async sum({ of }, { peer }: Context) {
        let total = 0;
        for await (const value of peer.iterate<number>(of)) total += value;
        return total;
      },
    },
  }; // prettier-ignore

  it.each([0, 1, 2, 999, 1000, 1001, 20_000])(
    "of %i values is read completely and in order, in both directions",
    async (n) => {
      await using both = await join(serving, serving);
      const [atA, atB] = await Promise.all([both.a, both.b].map((peer) => readAll(peer.stream("count", [n]))));
      expect(atA).toEqual(numbers(n));
      expect(atB).toEqual(numbers(n));
      await both.settled();
      expectIdle(both);
    },
  );

  it.each([
    [5, 100_000],
    [3, 1_000_000],
    [400, 1000],
  ])("of %i values of %i characters is read completely", async (n, length) => {
    await using both = await join(serving);
    const values = await readAll(both.b.stream("sized", [n, length]));
    expect(values).toEqual(numbers(n).map((i) => `${i}`.padEnd(length, "x")));
    await both.settled();
    expectIdle(both);
  });

  it("may be part of a result, also several in one", async () => {
    await using both = await join(serving);
    const { even, odd }: any = await both.b.request("nested", [1500]);
    const [evens, odds] = await Promise.all([readAll(both.b.iterate(even)), readAll(both.b.iterate(odd[0]))]);
    expect(evens).toEqual(numbers(1500).map((i) => 2 * i));
    expect(odds).toEqual(numbers(1500).map((i) => 2 * i - 1));
    await both.settled();
    expectIdle(both);
  });

  it("may be part of params, and is read by the handler", async () => {
    await using both = await join(serving);
    expect(await both.b.request("sum", { of: both.b.offer(numbers(5000)) })).toBe(12_502_500);
    expect(await both.b.request("sum", { of: both.b.offer([]) })).toBe(0);
    await both.settled();
    expectIdle(both);
  });

  it.each(["its signal", "return()"])(
    "ends at its source when it is aborted by %s, after any number of microtasks",
    async (how) => {
      const sources: Fed[] = [];
      await using both = await join({ methods: { tail: () => (sources.push(new Fed().give(1, 2)), sources.at(-1)) } });
      for (let moment = 0; moment < 80; moment++) {
        const controller = new AbortController();
        const stream = both.b.stream("tail", [], { signal: controller.signal })[Symbol.asyncIterator]();
        const reads = Promise.allSettled([stream.next(), stream.next(), stream.next()]);
        for (let i = 0; i < moment; i++) await Promise.resolve();
        if (how === "return()") await stream.return!();
        else controller.abort("x");
        await reads;
        await both.settled();
        expect(sources.map(({ returned }) => returned)).toEqual(sources.map(() => 1));
        expectIdle(both);
      }
      expect(sources.length).toBeGreaterThan(70);
    },
  );

  it.each(["a", "b"] as const)("ends on both sides when %s closes", async (side) => {
    const source = new Fed().give(1);
    await using both = await join({ methods: { tail: () => source } });
    const stream = both.b.stream("tail")[Symbol.asyncIterator]();
    await stream.next();
    const waiting = rejection(stream.next());
    await turn();
    await both[side].close();
    expect(await waiting).toMatchObject({ code: "CONNECTION_LOST" });
    await until(() => source.returned === 1);
  });

  it("bounds the values taken from its source while no value is read", async () => {
    const source = counted();
    await using both = await join({ methods: { forever: () => source } });
    const stream = both.b.stream("forever")[Symbol.asyncIterator]();
    await stream.next();
    await both.settled();
    // One reply being read, those requested, and one prepared.
    const ahead = source.asked;
    expect(ahead).toBe((2 + requested) * 1000);
    await both.settled();
    expect(source.asked).toBe(ahead);
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
