/** JSON-RPC 1.0, enabled by `compat: "1.0"`. */
import { describe, expect, it } from "vitest";
import { lsp, mcp, ProtocolError, RpcError, type Context } from "../../src/index.js";
import { inspect } from "../../src/peer/peer.js";
import { useFakeClock } from "../support/clock.js";
import { expectEmpty, type AnyOptions } from "../support/pair.js";
import { failure, notification, rawPeer, request, result, type RawPeer } from "../support/raw.js";
import { rejection, turn } from "../support/turns.js";

useFakeClock();

const compat = "1.0" as const;

const call1 = (id: unknown, method: string, params: unknown = []): object => ({ id, method, params });
const answer1 = (id: unknown, value: unknown): object => ({ id, result: value, error: null });
/** An error for a request without a version. A 2.0 program that omits `jsonrpc` would read a null result as a success. */
const failure1 = (id: unknown, code: number, message: string, data?: unknown): object => ({
  id,
  error: { code, message, ...(data !== undefined && { data }) },
});
/** An error for a request with `"jsonrpc": "1.0"`. */
const failureNamed1 = (id: unknown, code: number, message: string, data?: unknown): object => ({
  result: null,
  ...failure1(id, code, message, data),
});

function serving(options: AnyOptions = {}): RawPeer & { emitted: unknown[] } {
  const emitted: unknown[] = [];
  const raw = rawPeer({
    compat,
    ...options,
    methods: {
      echo: (params) => params,
      later: async (params) => params,
      nothing: () => {},
      fail: () => {
        throw new RpcError(7, "no", { why: [1] });
      },
      crash: () => {
        throw new Error("secret");
      },
      emitted: (params) => void emitted.push(params),
      text: ([length]) => "x".repeat(length),
      wait: (_params, { signal }: Context) =>
        new Promise((_resolve, reject) => signal.addEventListener("abort", () => reject(signal.reason))),
    },
  });
  return { ...raw, emitted };
}

/** Returns the messages that the peer sends in answer. */
async function answersTo(raw: RawPeer, ...messages: unknown[]): Promise<any[]> {
  const before = raw.sent.length;
  for (const message of messages) raw.feed(message);
  await turn();
  return raw.messages().slice(before);
}

describe("a peer without compat", () => {
  it.each(["1", "2.0", 1, null, true])("refuses %j as `compat`", (value) => {
    expect(() => rawPeer({ compat: value as never })).toThrow('Expected `compat` to be "1.0", got ');
  });
});

async function* tail(): AsyncGenerator {
  yield 1;
  yield "x".repeat(70_000);
  yield 2;
}

describe("a request of version 1.0", () => {
  it.each<[string, object, object]>([
    ["a result that takes its time", call1("a", "later", ["x"]), answer1("a", ["x"])],
    ["null for nothing", call1(0, "nothing"), answer1(0, null)],
    ["params by name, which it tolerates", call1(2, "echo", { a: 1 }), answer1(2, { a: 1 })],
    ["no params, which it tolerates", { id: 3, method: "nothing" }, answer1(3, null)],
    [
      "what is no message, with a result, to the version in its `jsonrpc`",
      { jsonrpc: "1.0", a: 1 },
      failureNamed1(null, -32600, "Invalid Request"),
    ],
    ["an internal error", call1(6, "crash"), failure1(6, -32603, "Internal error")],
    ["params that are null", call1(8, "echo", null), failure1(8, -32600, "Invalid Request")],
    ["a method that is no string", { id: 9, method: 5, params: [] }, failure1(9, -32600, "Invalid Request")],
    ["an id that is none", call1([1], "echo"), failure1(null, -32600, "Invalid Request")],
    ["nothing of a message", { a: 1 }, failure1(null, -32600, "Invalid Request")],
    ["nothing at all", {}, failure1(null, -32600, "Invalid Request")],
  ])("is answered in kind: %s", async (_name, message, answer) => {
    const raw = serving();
    expect(await answersTo(raw, message)).toEqual([answer]);
    expectEmpty(raw.peer);
  });

  it("is refused in kind, at the limit", async () => {
    const raw = serving({ limits: { maxInFlight: 1 } });
    expect(await answersTo(raw, call1(1, "wait"), call1(2, "echo"))).toEqual([failure1(2, -32009, "Server is busy")]);
  });

  it.each([",", '","error":', '\\",\\"error\\":{', "\u2028"])("is answered in kind under the id %j", async (id) => {
    const raw = serving();
    const tricky = [{ a: 1, error: 2, result: 3 }];
    expect(await answersTo(raw, call1(id, "echo", tricky), call1(id, "fail", tricky))).toEqual([
      answer1(id, tricky),
      failure1(id, 7, "no", { why: [1] }),
    ]);
  });

  it("is answered with a deeply nested result, which is not encoded twice", async () => {
    const raw = serving();
    // Near the depth at which `JSON.stringify` fails, which depends on the stack in use.
    let depth = 1000;
    while (isEncodable(depth) && depth < 20_000) depth += 10;
    for (let i = depth - 100; i < depth + 100; i++) raw.feed(`{"id":${i},"method":"later","params":${nested(i)}}`);
    await turn();
    expect(raw.sent).toHaveLength(200);
    raw.errors.length = 0;
  });

  it("is refused in kind if it has only an id without a pending call", async () => {
    const raw = serving();
    expect(await answersTo(raw, { id: 2 }, { jsonrpc: "1.0", id: 2 })).toEqual([
      failure1(null, -32600, "Invalid Request"),
      failureNamed1(null, -32600, "Invalid Request"),
    ]);
  });

  it("can be cancelled, and is answered in kind", async () => {
    const raw = serving({ dialect: lsp });
    const cancel = { method: "$/cancelRequest", params: [1], id: null };
    expect(await answersTo(raw, call1(1, "wait"), cancel)).toEqual([failure1(1, -32800, "Request cancelled")]);
  });

  it("may read a stream, in kind", async () => {
    const raw = serving();
    raw.peer.handle("tail", tail);
    const [first] = await answersTo(raw, call1(1, "tail"));
    expect(first).toMatchObject({ id: 1, error: null, result: { token: 1 } });
    const [second] = await answersTo(raw, call1(2, "$/enumerator/next", [1]));
    expect(second).toEqual(answer1(2, { values: [2], finished: true }));
    expect(await answersTo(raw, call1(3, "$/enumerator/next", [1]))).toEqual([failure1(3, -32001, "No such stream")]);
    expectEmpty(raw.peer);
  });
});

function nested(depth: number): string {
  return "[".repeat(depth) + "]".repeat(depth);
}

function isEncodable(depth: number): boolean {
  try {
    JSON.stringify(JSON.parse(nested(depth)));
    return true;
  } catch {
    return false;
  }
}

describe("a notification of version 1.0", () => {
  it.each([
    ["its id is null", { method: "emitted", params: [1], id: null }],
    ["it has no id, which is tolerated", { method: "emitted", params: [1] }],
  ])("is run and not answered: %s", async (_name, message) => {
    const raw = serving();
    expect(await answersTo(raw, message)).toEqual([]);
    expect(raw.emitted).toEqual([[1]]);
  });
});

describe("messages of both versions", () => {
  it("are distinguished in one batch", async () => {
    const raw = serving();
    const batch = [
      call1(1, "later", [1]),
      request(2, "later", [2]),
      call1(null, "emitted"),
      call1(3, "fail"),
      { ...call1(3, "fail"), jsonrpc: "1.0" },
      request(4, "fail"),
      { a: 1 },
      { jsonrpc: "2.0", a: 1 },
    ];
    expect(await answersTo(raw, batch)).toEqual([
      [
        answer1(1, [1]),
        result(2, [2]),
        failure1(3, 7, "no", { why: [1] }),
        failureNamed1(3, 7, "no", { why: [1] }),
        failure(4, 7, "no", { why: [1] }),
        failure1(null, -32600, "Invalid Request"),
        failure(null, -32600, "Invalid Request"),
      ],
    ]);
  });

  it("in a batch omit cancelled calls if the dialect requires it", async () => {
    const raw = serving({ dialect: mcp });
    const cancelled = notification("notifications/cancelled", { requestId: 1 });
    expect(await answersTo(raw, [call1(1, "wait"), call1(2, "echo")], cancelled)).toEqual([[answer1(2, [])]]);
  });

  it("in a batch share the limit of a reply, measured as they are sent", async () => {
    const raw = serving({ limits: { maxReplyBytes: 200 } });
    const [first] = await answersTo(raw, [call1(1, "text", [100]), call1(2, "text", [100]), request(3, "echo", [])]);
    const error = [-32008, "Response is too large", { maxReplyBytes: 200 }] as const;
    expect(first).toEqual([answer1(1, "x".repeat(100)), failure1(2, ...error), result(3, [])]);
  });

  it("that are of neither version are answered as without compat", async () => {
    const raw = serving();
    const invalid = failure(null, -32600, "Invalid Request");
    expect(await answersTo(raw, 5, "[]", "null", "{", '{"jsonrpc":"3.0"}')).toEqual([
      invalid,
      invalid,
      invalid,
      failure(null, -32700, "Parse error"),
      invalid,
    ]);
    expect(inspect(raw.peer).malformed).toBe(5);
  });
});

async function called(answer: object): Promise<{ value?: unknown; error?: any }> {
  const raw = serving();
  const call = raw.peer.request("m", [1]);
  // Sent messages stay version 2.0.
  expect(raw.messages()).toEqual([request(1, "m", [1])]);
  raw.feed(answer);
  const outcome = await call.then(
    (value: unknown) => ({ value }),
    (error: unknown) => ({ error }),
  );
  expectEmpty(raw.peer);
  return outcome;
}

describe("an answer of version 1.0", () => {
  it.each([[1], null, 0, "", false, { error: null }])("resolves the call: %j", async (value) => {
    expect(await called(answer1(1, value))).toEqual({ value });
  });

  it.each<[string, unknown, number, string, unknown]>([
    ["a string", "boom", -32603, "boom", "boom"],
    ["an object of its own kind", { name: "JSONRPCError" }, -32603, "Error", { name: "JSONRPCError" }],
    ["a number", 0, -32603, "Error", 0],
    ["false", false, -32603, "Error", false],
  ])("rejects the call with %s for its error", async (_name, error, code, message, data) => {
    const outcome = await called({ id: 1, result: null, error });
    expect(outcome.error).toBeInstanceOf(RpcError);
    expect(outcome.error).toMatchObject({ code, message, data, method: "m" });
    // Some servers omit the result.
    expect((await called({ id: 1, error })).error).toMatchObject({ code, message });
  });

  it.each<[string, object]>([
    ["both", { id: 1, result: 1, error: { code: 1, message: "no" } }],
    ["neither", { id: 1 }],
    ["an error in 2.0 that is none", { jsonrpc: "2.0", id: 1, error: "boom" }],
    ["both in 2.0, though one is null", { jsonrpc: "2.0", id: 1, result: null, error: { code: 1, message: "no" } }],
  ])("that is malformed rejects the call with a ProtocolError: %s", async (_name, answer) => {
    expect((await called(answer)).error).toBeInstanceOf(ProtocolError);
  });

  it("without a pending call is counted and not answered", async () => {
    const raw = serving();
    expect(await answersTo(raw, answer1(9, 1), answer1(null, 1), { id: "x", result: null, error: "boom" })).toEqual([]);
    expect(inspect(raw.peer).unmatched).toBe(3);
  });

  it("settles a batch", async () => {
    const raw = serving();
    const batch = raw.peer.batch();
    const calls = [batch.request("a"), batch.request("b")];
    batch.send();
    await turn();
    raw.feed([answer1(2, "b"), { id: 1, result: null, error: "boom" }]);
    expect(await calls[1]).toBe("b");
    expect(await rejection(calls[0]!)).toMatchObject({ message: "boom" });
    expectEmpty(raw.peer);
  });
});
