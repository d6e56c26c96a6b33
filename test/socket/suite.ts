/** The behaviour suite over every kind of socket, by two peers that it joins. */
import { describe, expect, it } from "vitest";
import { bytes, type AnyPeer } from "../../src/index.js";
import type { AnyOptions } from "../support/pair.js";
import { turn } from "../support/turns.js";

export type Join = (
  near: Omit<AnyOptions, "around">,
  far: Omit<AnyOptions, "around">,
  link: "packed" | "plain",
) => Promise<{ near: AnyPeer; far: AnyPeer } & AsyncDisposable>;

export interface Traits {
  /** The close code that the other side gets for a message that is too long. */
  readonly tooLarge: number;
}

/** Lengths around the limits of the length field of a frame, and around the switches to other ways of writing. */
const LENGTHS = [0, 1, 62, 63, 124, 125, 126, 127, 128, 255, 256, 511, 512, 4095, 4096, 65_535, 65_536];
const UNITS = ["a", "é", "€", "😀"];
const MOST = 1000;

/** Returns what a peer receives from now on, and a function that resolves when it has received so many messages. */
function received(peer: AnyPeer): { values: unknown[]; count(count: number): Promise<void> } {
  const values: unknown[] = [];
  let changed: (() => void) | undefined;
  peer.on("notification", (_method, params) => {
    values.push((params as unknown[])[0]);
    changed?.();
  });
  return {
    values,
    async count(count) {
      while (values.length < count) await new Promise<void>((resolve) => (changed = resolve));
    },
  };
}

function textOf(length: number, unit: string): string {
  const left = length - JSON.stringify({ jsonrpc: "2.0", method: "n", params: [""] }).length;
  return unit.repeat(left / Buffer.byteLength(unit)) + "x".repeat(left % Buffer.byteLength(unit));
}

export function describeSocket(name: string, join: Join, { tooLarge }: Traits): void {
  describe(`${name}: frames`, () => {
    it.each(UNITS)("delivers texts of any length in order, both ways, in one tick and in several: %s", async (unit) => {
      await using ends = await join({}, {}, "plain");
      const texts = LENGTHS.map((length) => unit.repeat(length));
      const [here, there] = [received(ends.near), received(ends.far)];
      for (const waits of [false, true]) {
        for (const text of texts) {
          expect([ends.near.notify("n", [text]), ends.far.notify("n", [text])]).toEqual([true, true]);
          if (waits) await turn();
        }
      }
      const all = [...texts, ...texts];
      await Promise.all([here.count(all.length), there.count(all.length)]);
      expect([here.values, there.values]).toEqual([all, all]);
      expect(ends.near.stats().unsentBytes).toBe(0);
    });

    it.each(["x", "é"])("closes for a frame over the limit in bytes, and reports only the close: %s", async (unit) => {
      await using ends = await join({ limits: { maxMessageBytes: MOST } }, {}, "plain");
      const here = received(ends.near);
      const longest = textOf(MOST, unit);
      for (const text of [longest, `${longest}x`, "after"]) ends.far.notify("n", [text]);
      expect(await ends.far.closed).toMatchObject({ code: tooLarge });
      expect(await ends.near.closed).toMatchObject({ code: 1009 });
      expect(here.values).toEqual([longest]);
      expect(ends.near.notify("n")).toBe(false);
    });
  });

  describe(`${name}: the end`, () => {
    it.each<[number | undefined, string]>([
      [1000, ""],
      [3000, "three thousand"],
      [4999, "é".repeat(61)],
      [undefined, ""],
    ])("reports a close with %j %j at both ends, from either side, once", async (code, reason) => {
      for (const side of ["near", "far"] as const) {
        await using ends = await join({}, {}, "plain");
        const closes: unknown[] = [];
        for (const peer of [ends.near, ends.far])
          peer.on("close", (info) => closes.push([info.code, info.reason, info.error]));
        await Promise.all([
          code === undefined ? ends[side].close() : ends[side].close(code, reason),
          ends[side].close(4001),
        ]);
        await Promise.all([ends.near.closed, ends.far.closed]);
        const one = [code ?? 1000, reason, undefined];
        expect(closes).toEqual([one, one]);
        expect([ends.near.notify("n"), ends.far.notify("n")]).toEqual([false, false]);
      }
    });

    it("reports the close exactly once if both sides close at the same time", async () => {
      await using ends = await join({}, {}, "plain");
      let closes = 0;
      for (const peer of [ends.near, ends.far]) peer.on("close", () => closes++);
      await Promise.all([ends.near.close(4000, "here"), ends.far.close(4001, "there")]);
      expect(closes).toBe(2);
    });

    it("follows all frames that were sent before it, and no frame follows it", async () => {
      await using ends = await join({}, {}, "plain");
      const [here, there] = [received(ends.near), received(ends.far)];
      for (const text of ["one", "two"]) ends.near.notify("n", [text]);
      void ends.near.close();
      expect(ends.near.notify("n", ["after"])).toBe(false);
      ends.far.notify("n", ["late"]);
      await Promise.all([ends.near.closed, ends.far.closed]);
      expect([here.values, there.values]).toEqual([[], ["one", "two"]]);
    });
  });
}

const arrays = (values: unknown[]): unknown[] => values.map((one) => (one instanceof Uint8Array ? [...one] : one));

export function describeBytes(name: string, join: Join): void {
  it(`${name}: delivers binary frames unchanged and in order with texts, both ways`, async () => {
    await using ends = await join({}, {}, "packed");
    // A server sends binary frames from the client's hello on.
    await ends.near.request("no-such-method").catch(() => {});
    await ends.far.request("no-such-method").catch(() => {});
    const [here, there] = [received(ends.near), received(ends.far)];
    const long = Uint8Array.from({ length: 300_000 }, (_, i) => i * 31);
    const sent = [0, 1, 4, 125, 126, 65_535, 65_536].map((length) => Uint8Array.from({ length }, (_, i) => i * 7));
    const expected: unknown[] = [];
    for (const frame of [...sent, long, long.subarray(3, 1000), Uint8Array.of(0, 0xff, 0xfe, 0x80)]) {
      for (const value of [frame, "text"]) {
        ends.near.notify("n", [typeof value === "string" ? value : bytes(value)]);
        ends.far.notify("n", [typeof value === "string" ? value : bytes(value)]);
        expected.push(typeof value === "string" ? value : [...value]);
      }
    }
    await Promise.all([here.count(expected.length), there.count(expected.length)]);
    expect(arrays(here.values)).toEqual(expected);
    expect(arrays(there.values)).toEqual(expected);
  });
}
