import { describe, expect, it } from "vitest";
import { pair, Peer, type Transport } from "../../src/index.js";
import { peerLimits } from "../../src/core/limits.js";

const MOST_BYTES = 2 ** 28;

/** A transport that delivers no message. */
const silent: Transport = { start() {}, send: () => true, close() {} };

const make = (options: object): unknown => new Peer(silent, options);

class Service {
  add(): number {
    return 1;
  }
}

const PLAIN = "` to be a plain object";
const FUNCTION = "` to be a function";
const POSITIVE = "` to be a positive number";

describe("a peer's options", () => {
  it.each<[options: object, rule: string, shown: string]>([
    [{ methods: null }, `methods${PLAIN}`, "`null`"],
    [{ methods: [] }, `methods${PLAIN}`, "an array"],
    [{ methods: new Service() }, `methods${PLAIN}`, "an object"],
    [{ methods: new Map() }, `methods${PLAIN}`, "an object"],
    [{ methods: () => 1 }, `methods${PLAIN}`, "a function"],
    [{ methods: { add: 5 } }, `methods.add${FUNCTION}`, "`5` (number)"],
    [{ methods: { add: null } }, `methods.add${FUNCTION}`, "`null`"],
    [{ schemas: new Service() }, `schemas${PLAIN}`, "an object"],
    [{ schemas: null }, `schemas${PLAIN}`, "`null`"],
    [{ schemas: { add: {} } }, "schemas.add` to be a Standard Schema", "an object"],
    [{ schemas: { add: { "~standard": {} } } }, "schemas.add` to be a Standard Schema", "an object"],
    [{ timeoutMs: 0 }, `timeoutMs${POSITIVE}`, "`0` (number)"],
    [{ timeoutMs: -1 }, `timeoutMs${POSITIVE}`, "`-1` (number)"],
    [{ timeoutMs: NaN }, `timeoutMs${POSITIVE}`, "`NaN` (number)"],
    [{ timeoutMs: "5" }, `timeoutMs${POSITIVE}`, "`5` (string)"],
    [{ timeoutMs: null }, `timeoutMs${POSITIVE}`, "`null`"],
    [{ fallback: {} }, `fallback${FUNCTION}`, "an object"],
    [{ fallback: null }, `fallback${FUNCTION}`, "`null`"],
    [{ fallback: false }, `fallback${FUNCTION}`, "`false` (boolean)"],
    [{ around: "log" }, `around${FUNCTION}`, "`log` (string)"],
    [{ around: 0 }, `around${FUNCTION}`, "`0` (number)"],
    [{ onForeignMessage: 5 }, `onForeignMessage${FUNCTION}`, "`5` (number)"],
    [{ limits: 5 }, "limits` to be an object", "`5` (number)"],
    [{ limits: null }, "limits` to be an object", "`null`"],
  ])("refuse %j, with the name, the rule and the value", (options, rule, shown) => {
    expect(() => make(options)).toThrow(new TypeError(`Expected \`${rule}, got ${shown}`));
    expect(() => pair(options as never, {})).toThrow(TypeError);
  });

  it.each<[string, object, string]>([
    [
      "option",
      { metods: {} },
      "Unknown name `metods` in `options`; known are methods, schemas, contract, remote, check, timeoutMs, retry, fallback, around, limits, dialect, compat, onForeignMessage, bytes",
    ],
    [
      "limit",
      { limits: { maxInflight: 1 } },
      "Unknown name `maxInflight` in `limits`; known are maxMessageBytes, maxReplyBytes, maxBatchEntries, maxInFlight, maxStreams, maxUnsentBytes, maxMessagesPerSecond, maxMalformedPerMinute",
    ],
  ])("refuse an unknown %s, and name those that exist", (_what, options, message) => {
    expect(() => make(options)).toThrow(new TypeError(message));
  });

  it.each([null, 5, "x"])("may not be %s", (options) => {
    expect(() => make(options as never)).toThrow(/^Expected `options` to be an object, got /);
  });

  it("may each be omitted or undefined", () => {
    const names = ["methods", "schemas", "timeoutMs", "fallback", "around", "limits"];
    expect(() => make(Object.fromEntries(names.map((name) => [name, undefined])))).not.toThrow();
    expect(() => make({})).not.toThrow();
  });

  it("may hold limits that are undefined, which leaves the defaults", () => {
    expect(peerLimits({ maxInFlight: undefined as never, maxBatchEntries: 5 })).toEqual({
      maxMessageBytes: 2 ** 20,
      maxReplyBytes: 2 ** 20,
      maxBatchEntries: 5,
      maxInFlight: 1024,
      maxStreams: 256,
      maxUnsentBytes: 4 * 2 ** 20,
      maxMessagesPerSecond: Infinity,
      maxMalformedPerMinute: 100,
    });
  });
});

describe("limits", () => {
  const BYTES = ["maxMessageBytes", "maxReplyBytes"];
  const COUNTS = ["maxBatchEntries", "maxInFlight", "maxMalformedPerMinute"];

  it.each(
    BYTES.flatMap((name) =>
      [0, -1, 1.5, NaN, Infinity, 3 * 2 ** 30, MOST_BYTES + 1, "5", null].map((bad) => [name, bad]),
    ),
  )("refuse a %s of %s", (name, value) => {
    const shown = value === null ? "`null`" : `\`${String(value)}\` (${typeof value})`;
    const message = `Expected \`limits.${name}\` to be a whole number from 1 to ${MOST_BYTES}, got ${shown}`;
    expect(() => make({ limits: { [name as string]: value } })).toThrow(new TypeError(message));
  });

  it.each(COUNTS.flatMap((name) => [0, -1, 1.5, NaN, 2 ** 53, "5", null].map((bad) => [name, bad])))(
    "refuse a %s of %s",
    (name, value) => {
      expect(() => make({ limits: { [name as string]: value } })).toThrow(
        `Expected \`limits.${name}\` to be a whole number from 1 to Infinity`,
      );
    },
  );

  it("accept the ends of their ranges, and Infinity if no other limit applies", () => {
    for (const name of BYTES)
      for (const value of [1, MOST_BYTES]) expect(() => make({ limits: { [name]: value } })).not.toThrow();
    for (const name of COUNTS)
      for (const value of [1, Infinity]) expect(() => make({ limits: { [name]: value } })).not.toThrow();
  });
});
