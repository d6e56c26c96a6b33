import { describe, expect, it } from "vitest";
import { inspect } from "../../src/peer/peer.js";
import { connectedPair } from "../support/pair.js";
import { rawPeer } from "../support/raw.js";
import { rejection } from "../support/turns.js";

const cyclic: Record<string, unknown> = {};
cyclic["self"] = cyclic;

const RULE = "Expected `params` to be an array or an object, got";

/** Values that are not valid `params` (section 4.2), and the text of the error. */
const BAD: [name: string, params: unknown, message: string | RegExp][] = [
  ["null", null, `${RULE} \`null\``],
  ["a number", 5, `${RULE} \`5\` (number)`],
  ["zero", 0, `${RULE} \`0\` (number)`],
  ["NaN", NaN, `${RULE} \`NaN\` (number)`],
  ["a string", "[1]", `${RULE} \`[1]\` (string)`],
  ["false", false, `${RULE} \`false\` (boolean)`],
  ["a function", () => 1, `${RULE} a function`],
  ["a symbol", Symbol("s"), `${RULE} \`Symbol(s)\` (symbol)`],
  ["a Date, whose JSON is a string", new Date(0), RULE],
  ["a boxed string", Object("{}"), RULE],
  ["an object whose toJSON answers null", { toJSON: () => null }, RULE],
  ["an object whose toJSON answers undefined", { toJSON: () => undefined }, RULE],
  ["something cyclic", cyclic, "circular"],
  ["a BigInt", 5n, "BigInt"],
  ["a BigInt inside", [5n], "BigInt"],
];

describe("params", () => {
  it.each(BAD)("that are %s are refused with a TypeError, and nothing is sent", async (_name, params, message) => {
    const { peer, sent } = rawPeer();
    const error = await rejection(peer.request("m", params));
    expect(error).toBeInstanceOf(TypeError);
    expect(error.message).toContain(message);
    expect(() => peer.notify("m", params as object)).toThrow(error);
    expect(sent).toEqual([]);
    expect(inspect(peer).pending).toBe(0);
  });

  it.each<[string, unknown, string]>([
    ["an empty array", [], '"params":[]'],
    ["an empty object", {}, '"params":{}'],
    ["an array with holes and undefined", Object.assign(Array<number>(3), { 2: NaN }), '"params":[null,null,null]'],
    ["an object with undefined members", { a: undefined, b: 1 }, '"params":{"b":1}'],
    ["whatever toJSON makes an object", { toJSON: () => [1] }, '"params":[1]'],
  ])("may be %s", (_name, params, text) => {
    const { peer, sent } = rawPeer();
    expect(peer.notify("m", params as object)).toBe(true);
    expect(sent).toEqual([`{"jsonrpc":"2.0","method":"m",${text}}`]);
  });

  it("are absent when they are undefined", () => {
    const { peer, sent } = rawPeer();
    peer.notify("m", undefined);
    void peer.request("m").catch(() => {});
    expect(sent).toEqual(['{"jsonrpc":"2.0","method":"m"}', '{"jsonrpc":"2.0","id":1,"method":"m"}']);
    void peer.close();
  });

  it("reject with the error of a throwing toJSON", async () => {
    const { peer, sent } = rawPeer();
    const thrown = new Error("mine");
    const params = {
      toJSON() {
        throw thrown;
      },
    };
    expect(await rejection(peer.request("m", params))).toBe(thrown);
    expect(() => peer.notify("m", params)).toThrow(thrown);
    expect(sent).toEqual([]);
  });

  it("keep a __proto__ member without changing any prototype", async () => {
    await using pair = connectedPair({ methods: { keys: (params) => Object.keys(params) } });
    expect(await pair.b.request("keys", JSON.parse('{"__proto__":{"polluted":1},"constructor":2}'))).toEqual([
      "__proto__",
      "constructor",
    ]);
    expect(({} as { polluted?: unknown }).polluted).toBeUndefined();
  });
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
    await using pair = connectedPair({ methods: { [method]: () => method } });
    expect(await pair.b.request(method)).toBe(method);
  });
});
