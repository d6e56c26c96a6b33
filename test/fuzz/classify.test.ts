import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { encodeError, encodeNotification, encodeRequest, encodeResult } from "../../src/core/text.js";
import type { ProtocolError } from "../../src/core/errors.js";
import { classify, parseMessage, type Id, type StructuredParams } from "../../src/core/message.js";
import { isUsableId, referenceKind } from "./reference.js";

const RUNS = { numRuns: 5_000 };

const oddNumbers = fc.constantFrom(0, -0, 1.5, 2 ** 53, 2 ** 53 - 1, -(2 ** 53), 1e21, Infinity, -Infinity, 5e-324);
const value = fc.oneof(fc.jsonValue({ maxDepth: 3 }), oddNumbers, fc.constantFrom(null, true, false, "", [], {}));
const errorObject = fc.record({ code: value, message: value, data: value }, { requiredKeys: [] });

/** Objects that are messages or resemble them. Each member is present or absent, valid or invalid. */
const nearMessage = fc.record(
  {
    jsonrpc: fc.oneof({ weight: 5, arbitrary: fc.constant("2.0") }, { weight: 1, arbitrary: value }),
    id: fc.oneof(fc.integer(), fc.string(), value),
    method: fc.oneof(fc.constantFrom("echo", "later", "fail", "__proto__", "rpc.x"), fc.string(), value),
    params: fc.oneof(fc.array(value), fc.dictionary(fc.string(), value), value),
    result: value,
    error: fc.oneof(errorObject, fc.record({ code: fc.integer(), message: fc.string() }), value),
    ["__proto__"]: value,
    extra: value,
  },
  { requiredKeys: [] },
);

/** A value as a parser returns it: 1e400 is Infinity, and `__proto__` is an ordinary member. */
const anything = fc.oneof({ weight: 4, arbitrary: nearMessage }, { weight: 1, arbitrary: value });
const batch = fc.array(fc.oneof({ weight: 6, arbitrary: anything }, { weight: 1, arbitrary: fc.array(anything) }));

describe("classify", { timeout: 60_000 }, () => {
  it("agrees with the reference on every JSON value, and never throws", () => {
    fc.assert(
      fc.property(anything, (message) => classify(message) === referenceKind(message)),
      { numRuns: 50_000 },
    );
  });

  it("returns each of its kinds for the values that these tests generate", () => {
    const kinds = new Set(fc.sample(anything, 5_000).map((message) => referenceKind(message)));
    expect(kinds).toEqual(new Set(["broken", "invalid", "notification", "request", "response"]));
  });
});

/** Returns the expected result of `parseMessage` for one parsed value, by the reference. */
function expectRead(read: unknown, parsed: unknown): void {
  const kind = referenceKind(parsed);
  if (kind === "invalid") expect(read).toMatchObject({ name: "RpcError", code: -32600, message: "Invalid Request" });
  else if (kind === "broken") expect((read as ProtocolError).raw).toEqual(parsed);
  else expect(read).toEqual(parsed);
}

/** `parsed` is the value of the text, or a SyntaxError. */
function expectReadText(read: unknown, parsed: unknown): void {
  if (Array.isArray(parsed)) expectReadBatch(read, parsed);
  else if (!(parsed instanceof SyntaxError)) expectRead(read, parsed);
  else expect(read).toMatchObject({ name: "RpcError", code: -32700, message: "Parse error" });
}

function expectReadBatch(read: unknown, parsed: unknown[]): void {
  if (parsed.length === 0) return expectRead(read, undefined);
  expect(read).toHaveLength(parsed.length);
  for (const [i, member] of parsed.entries()) expectRead((read as unknown[])[i], member);
}

function orThrown(read: () => unknown): unknown {
  try {
    return read();
  } catch (error) {
    return error;
  }
}

describe("parseMessage", { timeout: 60_000 }, () => {
  it("reads any text as its message, or throws the error to answer it with", () => {
    fc.assert(
      fc.property(fc.oneof(anything.map(toText), batch.map(toText), fc.string(), fc.json()), (text) => {
        expectReadText(
          orThrown(() => parseMessage(text)),
          orThrown(() => JSON.parse(text)),
        );
      }),
      RUNS,
    );
  });
});

const id: fc.Arbitrary<Id> = fc
  .oneof(fc.string({ unit: "binary" }), fc.maxSafeInteger(), fc.double({ noNaN: true }), fc.constant(null))
  .filter((candidate) => isUsableId(candidate) && !Object.is(candidate, -0));
const name = fc.oneof(fc.string({ unit: "binary" }), fc.constantFrom("__proto__", "\ud800", "\u2028", '"\\'));
const params: fc.Arbitrary<StructuredParams | undefined> = fc.oneof(
  fc.array(fc.jsonValue()),
  fc.dictionary(fc.string({ unit: "binary" }), fc.jsonValue()),
  fc.constant(undefined),
);
const lossless = (given: unknown): unknown => JSON.parse(JSON.stringify(given));

describe("an encoded message", { timeout: 60_000 }, () => {
  it("is read back as the same request or notification", () => {
    fc.assert(
      fc.property(id, name, params, (callId, method, given) => {
        const call = { jsonrpc: "2.0", method, ...(given !== undefined && { params: lossless(given) }) };
        expect(parseMessage(encodeRequest(callId, method, given))).toStrictEqual({ ...call, id: callId });
        expect(parseMessage(encodeNotification(method, given))).toStrictEqual(call);
      }),
      RUNS,
    );
  });

  it("is read back as the same result or error", () => {
    fc.assert(
      fc.property(id, fc.jsonValue(), fc.integer(), name, (callId, data, code, message) => {
        const answer = { jsonrpc: "2.0", id: callId };
        const kept = lossless(data);
        expect(parseMessage(encodeResult(callId, data))).toStrictEqual({ ...answer, result: kept });
        const error = { code, message };
        expect(parseMessage(encodeError(callId, error))).toStrictEqual({ ...answer, error });
        const withData = { ...error, data: kept };
        expect(parseMessage(encodeError(callId, { ...error, data }))).toStrictEqual({ ...answer, error: withData });
      }),
      RUNS,
    );
  });

  it("is a valid result for any return value of a handler, or is not made", () => {
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
          expect(referenceKind(JSON.parse(text))).toBe("response");
        },
      ),
      RUNS,
    );
  });
});

/** Returns the JSON of a value in which Infinity represents a number beyond the range of a double. */
function toText(given: unknown): string {
  const json = JSON.stringify(given, (_key, part: unknown) =>
    part === Infinity ? "\u0001" : part === -Infinity ? "\u0002" : part,
  );
  return json.replaceAll('"\\u0001"', "1e400").replaceAll('"\\u0002"', "-1e400");
}
