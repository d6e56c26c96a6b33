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
  ProtocolError,
  RpcError,
  type Id,
  type Kind,
} from "../../src/index.js";
import { encodedBytes, exceeds, utf8Bytes } from "../../src/core/codec.js";

const V = { jsonrpc: "2.0" };

describe("classify", () => {
  it.each<[Kind, unknown]>([
    ["request", { ...V, method: "m", id: 1 }],
    ["request", { ...V, method: "", id: null, params: [] }],
    ["request", { ...V, method: "m", id: "", params: {}, extra: 1 }],
    ["request", { ...V, method: "m", id: 1.5, result: 1 }],
    ["notification", { ...V, method: "m" }],
    ["notification", { ...V, method: "rpc.x", params: {} }],
    ["response", { ...V, id: 0, result: null }],
    ["response", { ...V, id: null, error: { code: -1, message: "" } }],
    ["response", { ...V, id: 1, result: 1, error: null }],
    ["broken", { ...V, id: 1 }],
    ["broken", { ...V, id: 1, result: 1, error: { code: 1, message: "m" } }],
    ["broken", { ...V, id: 1, error: null }],
    ["broken", { ...V, id: 1, error: { code: 1.5, message: "m" } }],
    ["broken", { ...V, id: 1, error: { code: 1 } }],
    ["broken", { ...V, id: 1, error: "text" }],
    ["broken", { id: 1, result: 1 }],
    ["broken", { ...V, result: 1 }],
    ["broken", { ...V, id: {}, result: 1 }],
    ["invalid", {}],
    ["invalid", V],
    ["invalid", []],
    ["invalid", null],
    ["invalid", 5],
    ["invalid", "text"],
    ["invalid", { method: "m", id: 1 }],
    ["invalid", { jsonrpc: 2, method: "m" }],
    ["invalid", { ...V, method: 5, id: 1 }],
    ["invalid", { ...V, method: "m", params: null }],
    ["invalid", { ...V, method: "m", params: 5 }],
    ["invalid", { ...V, method: "m", id: {} }],
    ["invalid", { ...V, method: "m", id: true }],
    ["invalid", { ...V, method: "m", id: 2 ** 53 }],
    ["invalid", { ...V, method: "m", id: Infinity }],
    ["invalid", { ...V, id: 1, params: [] }],
  ])("returns %s for %j", (kind, value) => {
    expect(classify(value)).toBe(kind);
    expect(isRequest(value)).toBe(kind === "request");
    expect(isNotification(value)).toBe(kind === "notification");
    expect(isResponse(value)).toBe(kind === "response");
  });
});

describe("the encoders", () => {
  it.each<[string, string, object]>([
    ["a request", encodeRequest(1, "m", [1]), { ...V, id: 1, method: "m", params: [1] }],
    ["a request without params", encodeRequest(null, "m"), { ...V, id: null, method: "m" }],
    ["a request with odd strings", encodeRequest('"', "\n"), { ...V, id: '"', method: "\n" }],
    ["a notification", encodeNotification("m", { a: 0 }), { ...V, method: "m", params: { a: 0 } }],
    ["a result", encodeResult("", 0), { ...V, id: "", result: 0 }],
    ["no result", encodeResult(1.5, undefined), { ...V, id: 1.5, result: null }],
    ["an error", encodeError(0, { code: -1, message: "" }), { ...V, id: 0, error: { code: -1, message: "" } }],
    [
      "an error with data",
      encodeError(0, { code: 1, message: "m", data: null }),
      { ...V, id: 0, error: { code: 1, message: "m", data: null } },
    ],
    [
      "data without a JSON form",
      encodeError(0, { code: 1, message: "m", data: () => 1 }),
      { ...V, id: 0, error: { code: 1, message: "m" } },
    ],
  ])("write %s", (_name, text, message) => {
    expect(JSON.parse(text)).toStrictEqual(message);
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
  it("reads one message, or a batch in which an error replaces each invalid member", () => {
    expect(JSONRPC_VERSION).toBe("2.0");
    expect(parseMessage('{"jsonrpc":"2.0","method":"m"}')).toEqual({ ...V, method: "m" });
    const batch = parseMessage('[{"jsonrpc":"2.0","method":"m"},1,{"jsonrpc":"2.0","id":1},[]]') as unknown[];
    expect(batch[0]).toEqual({ ...V, method: "m" });
    expect(batch.slice(1)).toEqual([expect.any(RpcError), expect.any(ProtocolError), expect.any(RpcError)]);
    expect(batch[1]).toMatchObject({ code: -32600 });
  });

  it.each([
    ["{", -32700],
    ["", -32700],
    ["{}{}", -32700],
    ["5", -32600],
    ["[]", -32600],
    ['{"jsonrpc":"2.0","method":5}', -32600],
    ['{"jsonrpc":"2.0","id":1}', "PROTOCOL"],
  ])("throws the error that answers %j", (text, code) => {
    expect(() => parseMessage(text)).toThrow(expect.objectContaining({ code }));
  });

  it("keeps the error of JSON.parse as the cause", () => {
    expect(() => parseMessage("{")).toThrow(expect.objectContaining({ cause: expect.any(SyntaxError) }));
  });

  it("knows the reserved methods", () => {
    expect(["rpc.", "rpc.x", "rpc", "RPC.x", "xrpc.", ""].map(isInternalMethod)).toEqual([
      true,
      true,
      false,
      false,
      false,
      false,
    ]);
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
