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

describe("a peer's options", () => {
  it.each<[string, object, string]>([
    ["methods", { methods: null }, "Expected `methods` to be a plain object, got `null` (null)"],
    ["methods", { methods: [] }, "Expected `methods` to be a plain object, got an array"],
    ["methods", { methods: new Service() }, "Expected `methods` to be a plain object, got an object"],
    ["methods", { methods: new Map() }, "Expected `methods` to be a plain object, got an object"],
    ["methods", { methods: () => 1 }, "Expected `methods` to be a plain object, got a function"],
    ["one method", { methods: { add: 5 } }, "Expected `methods.add` to be a function, got `5` (number)"],
    ["one method", { methods: { add: null } }, "Expected `methods.add` to be a function, got `null` (null)"],
    ["schemas", { schemas: new Service() }, "Expected `schemas` to be a plain object, got an object"],
    ["schemas", { schemas: null }, "Expected `schemas` to be a plain object, got `null` (null)"],
    ["one schema", { schemas: { add: {} } }, "Expected `schemas.add` to be a Standard Schema, got an object"],
    [
      "one schema",
      { schemas: { add: { "~standard": {} } } },
      "Expected `schemas.add` to be a Standard Schema, got an object",
    ],
    ["timeoutMs", { timeoutMs: 0 }, "Expected `timeoutMs` to be a positive number, got `0` (number)"],
    ["timeoutMs", { timeoutMs: -1 }, "Expected `timeoutMs` to be a positive number, got `-1` (number)"],
    ["timeoutMs", { timeoutMs: NaN }, "Expected `timeoutMs` to be a positive number, got `NaN` (number)"],
    ["timeoutMs", { timeoutMs: "5" }, "Expected `timeoutMs` to be a positive number, got `5` (string)"],
    ["timeoutMs", { timeoutMs: null }, "Expected `timeoutMs` to be a positive number, got `null` (null)"],
    ["fallback", { fallback: {} }, "Expected `fallback` to be a function, got an object"],
    ["fallback", { fallback: null }, "Expected `fallback` to be a function, got `null` (null)"],
    ["fallback", { fallback: false }, "Expected `fallback` to be a function, got `false` (boolean)"],
    ["around", { around: "log" }, "Expected `around` to be a function, got `log` (string)"],
    ["around", { around: 0 }, "Expected `around` to be a function, got `0` (number)"],
    ["limits", { limits: 5 }, "Expected `limits` to be an object, got `5` (number)"],
    ["limits", { limits: null }, "Expected `limits` to be an object, got `null` (null)"],
    [
      "an unknown option",
      { metods: {} },
      "Unknown name `metods` in `options`; known are methods, schemas, timeoutMs, fallback, around, limits, dialect, compat, onForeignMessage",
    ],
    [
      "an unknown limit",
      { limits: { maxInflight: 1 } },
      "Unknown name `maxInflight` in `limits`; known are maxMessageBytes, maxReplyBytes, maxBatchEntries, maxInFlight, maxStreams, maxUnsentBytes, maxMessagesPerSecond, maxMalformedPerMinute",
    ],
  ])("refuse an invalid %s (case %#), with its name, the rule and the value", (_name, options, message) => {
    expect(() => make(options)).toThrow(new TypeError(message));
    expect(() => pair(options as never, {})).toThrow(TypeError);
  });

  it.each([null, 5, "x"])("may not be %s", (options) => {
    expect(() => make(options as never)).toThrow(/^Expected `options` to be an object, got /);
  });

  it("may each be omitted or undefined", () => {
    const options = {
      methods: undefined,
      schemas: undefined,
      timeoutMs: undefined,
      fallback: undefined,
      around: undefined,
      limits: undefined,
    };
    expect(() => make(options)).not.toThrow();
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
    const shown = `\`${String(value)}\` (${value === null ? "null" : typeof value})`;
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
