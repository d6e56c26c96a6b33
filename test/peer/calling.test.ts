/* oxlint-disable unicorn/no-thenable -- what has a `then` is what some of these tests are about */
import { inspect as print, isDeepStrictEqual } from "node:util";
import { describe, expect, it } from "vitest";
import {
  batches,
  bytes,
  encodeNotification,
  encodeRequest,
  encodeResult,
  isInternalMethod,
  isNotification,
  isRequest,
  isResponse,
  pair,
  parseMessage,
  Peer,
  schemas,
  type AnyPeer,
  type Receiver,
  type Transport,
} from "../../src/index.js";
import { encodedBytes, exceeds, utf8Bytes } from "../../src/message/codec.js";
import { connectedPair, expectEmpty } from "../support/pair.js";
import { notification, rawPeer, request, result } from "../support/raw.js";
import { rejection, turn } from "../support/turns.js";

const silent: Transport = { start() {}, send: () => true, close() {} };

const make = (options: object): unknown => new Peer(silent, options);

class Service {
  add(): number {
    return 1;
  }
}

const PLAIN = "a plain object";
const FUNCTION = "a function";
const MOST_BYTES = 2 ** 28;

describe("a peer's options", () => {
  it.each<[name: string, rule: string, values: unknown[]]>([
    ["methods", PLAIN, [null, [], new Service(), new Map(), () => 1]],
    ["methods.add", FUNCTION, [5, null]],
    ["schemas", PLAIN, [new Service(), null]],
    ["schemas.add", "a Standard Schema", [{}, { "~standard": {} }]],
    ["timeoutMs", "a positive number", [0, -1, NaN, "5", null]],
    ["retry", '"not-sent" or "always" or false', ["sent", true, null]],
    ["fallback", FUNCTION, [{}, null, false]],
    ["around", FUNCTION, ["log", 0, ["log"]]],
    ["onForeignMessage", FUNCTION, [5]],
    ["compat", '"1.0"', ["1", 1, null]],
    ["limits", "an object", [5, null]],
    ...["maxMessageBytes", "maxReplyBytes"].map((name): [string, string, unknown[]] => [
      `limits.${name}`,
      `a whole number from 1 to ${MOST_BYTES}`,
      [0, -1, 1.5, NaN, Infinity, 3 * 2 ** 30, MOST_BYTES + 1, "5", null],
    ]),
    ...["maxBatchEntries", "maxInFlight", "maxMalformedPerMinute"].map((name): [string, string, unknown[]] => [
      `limits.${name}`,
      "a whole number from 1 to Infinity",
      [0, -1, 1.5, NaN, 2 ** 53, "5", null],
    ]),
  ])("refuse a bad `%s`, with the name and the rule", (name, rule, values) => {
    const [top, inner] = name.split(".") as [string, string?];
    for (const value of values) {
      const options = { use: [schemas], [top]: inner === undefined ? value : { [inner]: value } };
      expect(() => make(options)).toThrow(TypeError);
      expect(() => make(options)).toThrow(`Expected \`${name}\` to be ${rule}, got `);
    }
  });

  it("are an object after a transport, are refused if unknown, and may be undefined or at the ends of their ranges", async () => {
    for (const options of [null, 5, "x"])
      expect(() => make(options as never)).toThrow(/^Expected `options` to be an object, got /);
    for (const transport of [undefined, 5, {}, { start() {}, send() {} }, { start() {}, close() {} }])
      expect(() => new Peer(transport as never, {})).toThrow(/^Expected `transport\.\w+` to be a function/);
    expect(() => make({ metods: {} })).toThrow(/^Unknown name `metods` in `options`; known are methods, /);
    expect(() => make({ limits: { maxInflight: 1 } })).toThrow(/^Unknown name `maxInflight` in `limits`; known are /);
    for (const name of ["methods", "schemas", "timeoutMs", "fallback", "around", "limits"]) make({ [name]: undefined });
    for (const value of [undefined, 1, MOST_BYTES]) make({ limits: { maxMessageBytes: value, maxReplyBytes: value } });
    for (const value of [undefined, 1, Infinity])
      make({ limits: { maxBatchEntries: value, maxInFlight: value, maxMalformedPerMinute: value } });
  });

  it("of a call are refused if they are bad or unknown, because a misspelt one would have no effect", async () => {
    const { peer, sent } = rawPeer();
    const refused: [object, RegExp][] = [
      [{ timeout: 5 }, /^Unknown name `timeout` in `options`; known are timeoutMs, .*, retry$/],
      [{ timeoutMs: 0 }, /^Expected `timeoutMs` to be a positive number, got /],
      [{ signal: { aborted: false } }, /^Expected `signal` to be an AbortSignal, got /],
      [{ signal: { aborted: false, addEventListener: () => {} } }, /^Expected `signal` to be an AbortSignal, got /],
      [{ signal: null }, /^Expected `signal` to be an AbortSignal, got /],
      [{ retry: true }, /^Expected `retry` to be "not-sent" or "always" or false, got /],
      [{ retry: null }, /^Expected `retry` to be "not-sent" or "always" or false, got /],
    ];
    for (const [options, message] of refused) {
      const error = await rejection(peer.request("m", {}, options));
      expect(error).toBeInstanceOf(TypeError);
      expect(error.message).toMatch(message);
    }
    expect([sent, peer.stats().pending]).toEqual([[], 0]);
  });
});

const cyclic: Record<string, unknown> = {};
cyclic["self"] = cyclic;

const RULE = "Expected `params` to be an array or an object, got";

/** Values that are not valid `params` (section 4.2), and the text of the error. */
const BAD: [name: string, params: unknown, message: string][] = [
  ["null", null, `${RULE} \`null\``],
  ["NaN", NaN, `${RULE} \`NaN\` (number)`],
  ["a string", "[1]", `${RULE} \`[1]\` (string)`],
  ["a function", () => 1, `${RULE} a function`],
  ["a Date, whose JSON is a string", new Date(0), RULE],
  ["an object whose toJSON returns null", { toJSON: () => null }, RULE],
  ["something cyclic", cyclic, "circular"],
  ["bytes, whose JSON is a string", bytes(new Uint8Array(3)), RULE],
  ["a BigInt inside", [5n], "BigInt"],
];

it.each(BAD)("params that are %s are refused with a TypeError, and nothing is sent", async (_name, params, message) => {
  const { peer, sent } = rawPeer();
  const error = await rejection(peer.request("m", params));
  expect(error).toBeInstanceOf(TypeError);
  expect(error.message).toContain(message);
  expect(() => peer.notify("m", params as object)).toThrow(message);
  expect([sent, peer.stats().pending]).toEqual([[], 0]);
});

it.each<[string, unknown, string]>([
  ["absent if they are undefined", undefined, ""],
  ["an empty array", [], ',"params":[]'],
  ["an empty object", {}, ',"params":{}'],
  ["an array with holes and undefined", Object.assign(Array<number>(3), { 2: NaN }), ',"params":[null,null,null]'],
  ["an object with undefined members", { a: undefined, b: 1 }, ',"params":{"b":1}'],
  ["whatever toJSON makes an object", { toJSON: () => [1] }, ',"params":[1]'],
])("params may be %s", (_name, params, text) => {
  const { peer, sent } = rawPeer();
  expect(peer.notify("m", params as object)).toBe(true);
  void peer.request("m", params).catch(() => {});
  expect(sent).toEqual([`{"jsonrpc":"2.0","method":"m"${text}}`, `{"jsonrpc":"2.0","id":1,"method":"m"${text}}`]);
  void peer.close();
});

describe("the method's name", () => {
  it.each([undefined, null, 5, {}, Symbol("s")])("must be a string, not %s", async (method) => {
    const { peer, sent } = rawPeer();
    const error = await rejection(peer.request(method as never));
    expect(error).toBeInstanceOf(TypeError);
    expect(error.message).toContain("Expected `method` to be a string, got ");
    expect(() => peer.notify(method as never)).toThrow("Expected `method` to be a string");
    expect(sent).toEqual([]);
  });

  it.each(["", "then", "room/join", 'quo"te', "ünï", "\u2028", "__proto__"])("may be %j", async (method) => {
    await using both = connectedPair({ methods: { [method]: () => method } });
    expect(await both.b.request(method)).toBe(method);
  });
});

it("peer.remote calls a method as a function, with params and options, also one named like a member of Object", async () => {
  const methods = { add: ([a, b]: [number, number]) => a + b, "room/join": () => "in", constructor: () => "mine" };
  await using both = connectedPair({ methods });
  const { remote } = both.b;
  const results = await Promise.all([remote.add([1, 2]), remote["room/join"](), remote.constructor()]);
  expect(results).toEqual([3, "in", "mine"]);
  expect(await rejection(remote.add([1, 2], { signal: AbortSignal.abort("no") }))).toBe("no");
});

it("peer.remote is one object, which can be awaited, encoded and printed without calling anything, and not be assigned to", async () => {
  const { peer, sent } = rawPeer();
  const remote = peer.remote as Record<PropertyKey, unknown>;
  expect(await peer.remote).toBe(remote);
  for (const member of ["then", "toString", "valueOf", Symbol.iterator, Symbol.toPrimitive, Symbol.toStringTag])
    expect(remote[member]).toBeUndefined();
  expect(JSON.stringify({ remote })).toBe('{"remote":"remote"}');
  expect([print(remote), { ...remote }]).toEqual(["{}", {}]);
  expect(() => `${remote as any}`).toThrow(TypeError);
  expect(() => (remote["add"] = 1)).toThrow(TypeError);
  expect(() => delete remote["add"]).not.toThrow();
  expect(typeof remote["add"]).toBe("function");
  expect(sent).toEqual([]);
});

it("pair joins two peers that call each other, and passes text in a microtask, so that the peers share no object", async () => {
  const sent = { list: [1], at: new Date(0) };
  let got: unknown;
  const [a, b] = pair({ methods: { m: (params) => void (got = params) } }, { methods: { greet: () => "hi" } });
  b.notify("m", sent);
  expect(got).toBeUndefined();
  await Promise.resolve();
  expect(got).toEqual({ list: [1], at: "1970-01-01T00:00:00.000Z" });
  expect(await a.remote.greet()).toBe("hi");
  await a.close();
  expect((await b.closed).code).toBe(1000);
  for (const peer of [a, b]) expectEmpty(peer);
});

it("pair makes peers that are different for test matchers", async () => {
  const [a, b] = pair({}, {});
  for (const peer of [a, b]) Object.assign(peer.data as object, { room: "den" });
  expect(a).not.toEqual(b);
  expect(isDeepStrictEqual(a, b)).toBe(false);
  expect(print(a)).toContain(a.id);
  await a.close();
});

it("a transport may deliver parsed values, and return nothing from `send`", async () => {
  let receiver!: Receiver;
  const sent: unknown[] = [];
  const transport: Transport = {
    start: (given) => (receiver = given),
    send: (text) => void sent.push(JSON.parse(text)),
    close: (code = 1000, reason = "") => receiver.closed({ code, reason }),
  };
  const peer: AnyPeer = new Peer(transport, { methods: { m: ([n]: [unknown]) => n }, use: [batches] });
  receiver.dispatch([request(1, "m", ["one"]), 5]);
  receiver.dispatch(null);
  const call = peer.request("x");
  expect(peer.notify("n")).toBe(true);
  receiver.dispatch(result(1, "answer"));
  expect(await call).toBe("answer");
  const refused = { id: null, error: { code: -32600 } };
  expect(sent).toMatchObject([[result(1, "one"), refused], refused, request(1, "x"), notification("n")]);
  await peer.close();
  receiver.dispatch(request(3, "m", ["late"]));
  await turn();
  expect(sent).toHaveLength(4);
});

it("the functions for messages throw for a value without a JSON form, and know the kinds and the reserved methods", () => {
  expect(() => encodeResult(1, 1n)).toThrow(TypeError);
  expect(() => encodeRequest(1, 5 as never)).toThrow("`method`");
  expect(() => encodeNotification("m", 5 as never)).toThrow("`params`");
  expect(() => parseMessage("{")).toThrow(expect.objectContaining({ cause: expect.any(SyntaxError) }));
  const invalid = expect.objectContaining({ name: "ProtocolError" });
  expect(() => parseMessage('{"jsonrpc":"2.0","id":[1],"result":1}')).toThrow(invalid);
  const names = ["rpc.", "rpc.x", "rpc", "RPC.x", "xrpc.", ""];
  expect(names.filter(isInternalMethod)).toEqual(["rpc.", "rpc.x"]);
  const kinds = [request(1, "m"), notification("m"), result(1, 1), null];
  for (const [i, is] of [isRequest, isNotification, isResponse].entries())
    expect(kinds.map((message) => is(message))).toEqual(kinds.map((_message, kind) => kind === i));
});

it.each(["", "abc", "é€", "a\ud800b", "\udc00", "😀\ud83d", "日本語 é 😀"])(
  "the bytes of %j are counted as the encoder writes them",
  (text) => {
    const length = Buffer.byteLength(text);
    expect([utf8Bytes(text), encodedBytes(text)]).toEqual([length, length]);
    expect([exceeds(text, length), exceeds(text, length - 1)]).toEqual([false, true]);
  },
);
