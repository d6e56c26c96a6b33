import { describe, expect, it } from "vitest";
import {
  classify,
  encodeError,
  encodeNotification,
  encodeRequest,
  encodeResult,
  isInternalMethod,
  isNotification,
  isRequest,
  isResponse,
  JSONRPC_VERSION,
  parseMessage,
  type Id,
  type Kind,
} from "../../src/index.js";
import { encodedBytes, exceeds, utf8Bytes } from "../../src/core/codec.js";

const V = { jsonrpc: JSONRPC_VERSION };

describe("classify", () => {
  it.each<[Kind, unknown]>([
    ["request", { ...V, method: "m", id: "", params: {}, extra: 1 }],
    ["request", { ...V, method: "", id: null, result: 1 }],
    ["notification", { ...V, method: "rpc.x", params: [] }],
    ["response", { ...V, id: 0, result: null }],
    ["response", { ...V, id: null, error: { code: -1, message: "" } }],
    ["response", { ...V, id: 1, result: 1, error: null }],
    ["broken", { ...V, id: 1 }],
    ["broken", { ...V, id: 1, result: 1, error: { code: 1, message: "m" } }],
    ["broken", { ...V, id: 1, error: { code: 1.5, message: "m" } }],
    ["broken", { id: 1, result: 1 }],
    ["invalid", V],
    ["invalid", []],
    ["invalid", null],
    ["invalid", { method: "m", id: 1 }],
    ["invalid", { ...V, method: "m", params: null }],
    ["invalid", { ...V, method: "m", id: 2 ** 53 }],
    ["invalid", { ...V, id: 1, params: [] }],
  ])("returns %s for %j", (kind, value) => {
    expect(classify(value)).toBe(kind);
    expect(isRequest(value)).toBe(kind === "request");
    expect(isNotification(value)).toBe(kind === "notification");
    expect(isResponse(value)).toBe(kind === "response");
  });
});

describe("the encoders", () => {
  it("write a message without params, result or data as JSON-RPC requires", () => {
    expect(JSON.parse(encodeRequest(null, "m"))).toStrictEqual({ ...V, id: null, method: "m" });
    expect(JSON.parse(encodeResult(1.5, undefined))).toStrictEqual({ ...V, id: 1.5, result: null });
    const error = { code: 1, message: "m" };
    for (const data of [undefined, () => 1]) {
      expect(JSON.parse(encodeError(0, { ...error, data }))).toStrictEqual({ ...V, id: 0, error });
    }
  });

  it.each<Id>([0, -0, -1, 1e21, 1.5, "", "é", null])("write the id %s as JSON does", (id) => {
    expect(encodeResult(id, 1)).toBe(JSON.stringify({ ...V, id, result: 1 }));
  });

  it("throw for a value without a JSON form", () => {
    expect(() => encodeResult(1, 1n)).toThrow(TypeError);
    expect(() => encodeRequest(1, 5 as never)).toThrow("Expected `method` to be a string, got `5` (number)");
    expect(() => encodeNotification("m", 5 as never)).toThrow("Expected `params` to be an array or an object");
  });
});

describe("parseMessage", () => {
  it("keeps the error of JSON.parse as the cause", () => {
    expect(() => parseMessage("{")).toThrow(expect.objectContaining({ cause: expect.any(SyntaxError) }));
  });

  it("knows the reserved methods", () => {
    const names = ["rpc.", "rpc.x", "rpc", "RPC.x", "xrpc.", ""];
    expect(names.filter(isInternalMethod)).toEqual(["rpc.", "rpc.x"]);
  });
});

describe("counting bytes", () => {
  it.each(["", "a", "abc", "é", "€", "😀", "a\ud800b", "\udc00", "😀\ud83d", "日本語 é 😀"])(
    "of %j agrees with the encoder",
    (text) => {
      const bytes = Buffer.byteLength(text);
      expect(utf8Bytes(text)).toBe(bytes);
      expect(encodedBytes(text)).toBe(bytes);
      expect(exceeds(text, bytes)).toBe(false);
      expect(exceeds(text, bytes - 1)).toBe(true);
    },
  );
});
