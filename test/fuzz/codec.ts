/** Any JSON value is classified, read and written as the reference says, and any binary frame keeps its bytes or is refused. */
import * as fc from "fast-check";
import { describe, expect } from "vitest";
import { bytes, bytesOf, encodeError, encodeNotification, encodeRequest, encodeResult } from "../../src/index.js";
import type { ProtocolError } from "../../src/index.js";
import type { TextWithBytes } from "../../src/message/bytes.js";
import * as codec from "../../src/message/codec.js";
import { classify, parseMessage, type Id, type StructuredParams } from "../../src/message/message.js";
import { Mutator } from "./mutate.js";
import { isUsableId, referenceKind } from "./reference.js";
import { it, seed } from "./run.js";

const oddNumbers = fc.constantFrom(0, -0, 1.5, 2 ** 53, 2 ** 53 - 1, -(2 ** 53), 1e21, Infinity, -Infinity, 5e-324);
const anyValue = fc.oneof(fc.jsonValue({ maxDepth: 3 }), oddNumbers, fc.constantFrom(null, true, false, "", [], {}));
const errorObject = fc.record({ code: anyValue, message: anyValue, data: anyValue }, { requiredKeys: [] });

/** Objects that are messages or resemble them. Each member is present or absent, valid or invalid. */
const nearMessage = fc.record(
  {
    jsonrpc: fc.oneof({ weight: 5, arbitrary: fc.constant("2.0") }, { weight: 1, arbitrary: anyValue }),
    id: fc.oneof(fc.integer(), fc.string(), anyValue),
    method: fc.oneof(fc.constantFrom("echo", "later", "fail", "__proto__", "rpc.x"), fc.string(), anyValue),
    params: fc.oneof(fc.array(anyValue), fc.dictionary(fc.string(), anyValue), anyValue),
    result: anyValue,
    error: fc.oneof(errorObject, fc.record({ code: fc.integer(), message: fc.string() }), anyValue),
    ["__proto__"]: anyValue,
    extra: anyValue,
  },
  { requiredKeys: [] },
);

/** A value as a parser returns it: 1e400 is Infinity, and `__proto__` is an ordinary member. */
const anything = fc.oneof({ weight: 4, arbitrary: nearMessage }, { weight: 1, arbitrary: anyValue });
const anyBatch = fc.array(fc.oneof({ weight: 6, arbitrary: anything }, { weight: 1, arbitrary: fc.array(anything) }));

/** Asserts what `parseMessage` returned for a text, by the reference. `parsed` is the value of the text, or a SyntaxError. */
function expectRead(read: unknown, parsed: unknown): void {
  if (Array.isArray(parsed) && parsed.length > 0) {
    expect(read).toHaveLength(parsed.length);
    for (const [i, member] of parsed.entries()) expectReadMessage((read as unknown[])[i], member);
  } else if (parsed instanceof SyntaxError) expect(read).toMatchObject({ name: "RpcError", code: -32700 });
  else expectReadMessage(read, parsed);
}

function expectReadMessage(read: unknown, parsed: unknown): void {
  const kind = referenceKind(parsed);
  if (kind === "invalid") expect(read).toMatchObject({ name: "RpcError", code: -32600 });
  else expect(kind === "broken" ? (read as ProtocolError).raw : read).toEqual(parsed);
}

function orThrown(read: () => unknown): unknown {
  try {
    return read();
  } catch (error) {
    return error;
  }
}

const id: fc.Arbitrary<Id> = fc
  .oneof(fc.string({ unit: "binary" }), fc.maxSafeInteger(), fc.double({ noNaN: true }), fc.constant(null))
  .filter((candidate) => isUsableId(candidate) && !Object.is(candidate, -0));
const methodName = fc.oneof(fc.string({ unit: "binary" }), fc.constantFrom("__proto__", "\ud800", "\u2028", '"\\'));
const params: fc.Arbitrary<StructuredParams | undefined> = fc.oneof(
  fc.array(fc.jsonValue()),
  fc.dictionary(fc.string({ unit: "binary" }), fc.jsonValue()),
  fc.constant(undefined),
);
const throughJson = (given: unknown): unknown => JSON.parse(JSON.stringify(given));

/** Returns the JSON of a value in which Infinity represents a number beyond the range of a double. */
function toText(given: unknown): string {
  const json = JSON.stringify(given, (_key, part: unknown) =>
    part === Infinity ? "\u0001" : part === -Infinity ? "\u0002" : part,
  );
  return json.replaceAll('"\\u0001"', "1e400").replaceAll('"\\u0002"', "-1e400");
}

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

function mapViews(value: unknown, map: (view: Uint8Array) => unknown): unknown {
  if (value instanceof Uint8Array) return map(value);
  if (Array.isArray(value)) return value.map((member) => mapViews(member, map));
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, mapViews(member, map)]));
}

const marked = (value: unknown): TextWithBytes =>
  codec.encodeResult(
    1,
    mapViews(value, (view) => bytes(view)),
  ) as TextWithBytes;

/** Returns a value with a text for each view, changed by JSON, which makes 0 of -0. */
const comparable = (value: unknown): unknown =>
  throughJson(mapViews(value, (view) => `view of ${Buffer.from(view).toString("base64")}`));

/** A list with at least one view, so that it is sent as a binary frame. */
const listWithBytes = fc.array(tree).map((values) => [...values, new Uint8Array(1)]);

export function codecSuite(share: number): void {
  const runs = (count: number): { numRuns: number; seed: number } => ({ numRuns: Math.ceil(count * share), seed });

  it("classify agrees with the reference on every JSON value, and returns each of its kinds", () => {
    const kinds = new Set<string>();
    fc.assert(
      fc.property(anything, (message) => {
        const kind = referenceKind(message);
        kinds.add(kind);
        return classify(message) === kind;
      }),
      runs(50_000),
    );
    expect(kinds).toEqual(new Set(["broken", "invalid", "notification", "request", "response"]));
  });

  it("parseMessage reads any text as its message, or throws the error to answer it with", () => {
    fc.assert(
      fc.property(fc.oneof(anything.map(toText), anyBatch.map(toText), fc.string(), fc.json()), (text) => {
        expectRead(
          orThrown(() => parseMessage(text)),
          orThrown(() => JSON.parse(text)),
        );
      }),
      runs(5_000),
    );
  });

  describe("an encoded message", () => {
    it("is read back as the same request, notification, result or error", () => {
      fc.assert(
        fc.property(id, methodName, params, fc.jsonValue(), fc.integer(), (callId, method, given, value, code) => {
          const call = { jsonrpc: "2.0", method, ...(given !== undefined && { params: throughJson(given) }) };
          expect(parseMessage(encodeRequest(callId, method, given))).toStrictEqual({ ...call, id: callId });
          expect(parseMessage(encodeNotification(method, given))).toStrictEqual(call);
          const answer = { jsonrpc: "2.0", id: callId };
          const data = throughJson(value);
          expect(parseMessage(encodeResult(callId, value))).toStrictEqual({ ...answer, result: data });
          for (const error of [
            { code, message: method },
            { code, message: method, data },
          ])
            expect(parseMessage(encodeError(callId, error))).toStrictEqual({ ...answer, error });
        }),
        runs(5_000),
      );
    });

    it("is a valid result for any return value of a handler, or is not made", () => {
      let made = 0;
      fc.assert(
        fc.property(
          fc.anything({ withBigInt: true, withDate: true, withMap: true, withNullPrototype: true }),
          (result) => {
            let text: string;
            try {
              text = encodeResult(1, result);
            } catch {
              return;
            }
            made++;
            expect(referenceKind(JSON.parse(text))).toBe("response");
          },
        ),
        runs(5_000),
      );
      expect(made).toBeGreaterThan(runs(5_000).numRuns / 10);
    });
  });

  describe("a message with bytes", () => {
    it("is read back from its binary frame and from its text, and changes nothing else", () => {
      fc.assert(
        fc.property(listWithBytes, (values) => {
          const text = marked(values);
          const { result } = bytes.read(text.frame) as { result: unknown[] };
          expect(comparable(result)).toEqual(comparable(values));
          const plain = (JSON.parse(codec.plainText(text)) as { result: unknown }).result;
          expect(plain).toEqual(mapViews(result, (view) => Buffer.from(view).toString("base64")));
        }),
        runs(2_000),
      );
    });

    it("is one of many in a batch, and each keeps its bytes", () => {
      fc.assert(
        fc.property(fc.array(listWithBytes, { minLength: 1, maxLength: 5 }), (lists) => {
          const batch = codec.joinTexts("[", [...lists.map(marked), '{"id":7}'], "]") as TextWithBytes;
          const answers = bytes.read(batch.frame) as { result?: unknown }[];
          expect(answers.map(({ result }) => comparable(result ?? []))).toEqual([...lists.map(comparable), []]);
        }),
        runs(2_000),
      );
    });
  });

  it("a changed binary frame is refused, or read as an object whose views are inside of the frame's length, and never throws", () => {
    const mutator = new Mutator(seed);
    const base = marked({ list: ["a", new Uint8Array(5), { deep: new Uint8Array(3) }] }).frame;
    const count = runs(50_000).numRuns;
    let refused = 0;
    for (let i = 0; i < count; i++) {
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
    expect(refused).toBeGreaterThan(count / 5);
    expect(refused).toBeLessThan(count * 0.9);
  });

  it("bytesOf reads what any encoder of base64 writes, and refuses any other text", () => {
    fc.assert(
      fc.property(fc.oneof(fc.base64String(), fc.string(), fc.string({ unit: "binary" })), (text) => {
        const isBase64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/.test(text);
        if (isBase64) expect(bytesOf(text)).toEqual(Uint8Array.from(Buffer.from(text, "base64")));
        else expect(() => bytesOf(text)).toThrow(TypeError);
      }),
      runs(2_000),
    );
  });
}
