/** Binary frames: bytes in any message arrive unchanged, and any other frame is refused. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { bytes, bytesOf } from "../../src/index.js";
import type { TextWithBytes } from "../../src/core/bytes.js";
import * as codec from "../../src/core/codec.js";
import { randomOf, Mutator } from "./mutate.js";
import { seed, useSeed } from "./run.js";

useSeed();

const RUNS = { numRuns: 2_000, seed };

/** A message with bytes anywhere. `JSON.parse` returns members with names such as `__proto__`, and so does this. */
const { tree } = fc.letrec((tie) => ({
  tree: fc.oneof(
    { maxDepth: 4 },
    fc.uint8Array({ maxLength: 20 }),
    fc.jsonValue({ maxDepth: 1 }),
    fc.array(tie("tree"), { maxLength: 4 }),
    fc
      .dictionary(fc.oneof(fc.string(), fc.constantFrom("__proto__", "constructor", "1", "toJSON")), tie("tree"), {
        maxKeys: 4,
      })
      .map((members) => Object.fromEntries(Object.entries(members))),
  ),
}));

/** Returns a copy in which each view is replaced. */
function mapViews(value: unknown, map: (view: Uint8Array) => unknown): unknown {
  if (value instanceof Uint8Array) return map(value);
  if (Array.isArray(value)) return value.map((member) => mapViews(member, map));
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, mapViews(member, map)]));
}

const marked = (value: unknown): codec.MessageText =>
  codec.encodeResult(
    1,
    mapViews(value, (view) => bytes(view)),
  );

describe("a message with bytes", { timeout: 60_000 }, () => {
  it("is read back from its binary frame and from its text, and changes nothing else", () => {
    fc.assert(
      fc.property(fc.array(tree), (values) => {
        const text = marked([...values, new Uint8Array(1)]) as TextWithBytes;
        const result = (bytes.read(text.frame) as { result: unknown[] }).result;
        expect(mapViews(result, (view) => [...view])).toEqual(
          mapViews([...lossless(values), new Uint8Array(1)], (view) => [...view]),
        );
        const plain = (JSON.parse(codec.plainText(text)) as { result: unknown }).result;
        expect(plain).toEqual(mapViews(result, (view) => Buffer.from(view).toString("base64")));
      }),
      RUNS,
    );
  });

  it("is one of many in a batch, and each keeps its bytes", () => {
    fc.assert(
      fc.property(fc.array(fc.array(tree), { minLength: 1, maxLength: 5 }), (lists) => {
        const one = marked(new Uint8Array([7]));
        const batch = codec.joinTexts("[", [...lists.map(marked), one], "]") as TextWithBytes;
        const answers = bytes.read(batch.frame) as { result: unknown }[];
        const expected = [...lists.map(lossless), new Uint8Array([7])];
        expect(answers.map(({ result }) => mapViews(result, (view) => [...view]))).toEqual(
          expected.map((value) => mapViews(value, (view) => [...view])),
        );
      }),
      RUNS,
    );
  });
});

/** Returns the values as JSON changes them, such as -0. */
function lossless(values: unknown[]): unknown[] {
  const views: Uint8Array[] = [];
  const text = JSON.stringify(mapViews(values, (view) => ({ view: views.push(view) - 1, isView: "of this test" })));
  const restore = (value: unknown): unknown => {
    if (Array.isArray(value)) return value.map(restore);
    if (typeof value !== "object" || value === null) return value;
    const { isView, view } = value as { isView?: unknown; view: number };
    if (isView === "of this test") return views[view];
    return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, restore(member)]));
  };
  return restore(JSON.parse(text)) as unknown[];
}

describe("a changed binary frame", { timeout: 60_000 }, () => {
  it("is refused, or read as an object whose views are inside of the frame's length, and never throws", () => {
    const random = randomOf(seed);
    const mutator = new Mutator(random);
    const base = (marked({ list: ["a", new Uint8Array(5), { deep: new Uint8Array(3) }] }) as TextWithBytes).frame;
    let refused = 0;
    for (let i = 0; i < 50_000; i++) {
      const frame = base.slice(0, mutator.below(4) === 0 ? mutator.below(base.length + 1) : base.length);
      for (let n = mutator.below(4); n > 0 && frame.length > 0; n--)
        frame[mutator.below(frame.length)] =
          mutator.below(2) === 0 ? mutator.below(256) : mutator.pick([...'"[]{},0']).charCodeAt(0);
      const message = bytes.read(frame);
      if (message === undefined) refused++;
      else {
        expect(typeof message).toBe("object");
        mapViews(message, (view) => expect(view.length).toBeLessThan(frame.length));
      }
    }
    expect(refused).toBeGreaterThan(10_000);
    expect(refused).toBeLessThan(45_000);
  });

  it("of random bytes is refused", () => {
    const mutator = new Mutator(randomOf(seed + 1));
    for (let i = 0; i < 20_000; i++) expect(bytes.read(Uint8Array.from(mutator.bytes(64)))).toBeUndefined();
  });
});

describe("`bytesOf`", () => {
  it("reads what any encoder of base64 writes, and refuses any other text", { timeout: 60_000 }, () => {
    fc.assert(
      fc.property(fc.oneof(fc.base64String(), fc.string(), fc.string({ unit: "binary" })), (text) => {
        const isBase64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/.test(text);
        if (isBase64) expect(bytesOf(text)).toEqual(Uint8Array.from(Buffer.from(text, "base64")));
        else expect(() => bytesOf(text)).toThrow(TypeError);
      }),
      RUNS,
    );
  });
});
