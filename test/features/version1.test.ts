/** JSON-RPC 1.0, enabled by `compat: "1.0"`. The table `version1` of test/conformance has its plain cases. */
import { describe, expect, it } from "vitest";
import { lsp, mcp, ProtocolError, RpcError } from "../../src/index.js";
import { expectEmpty, type AnyOptions } from "../support/pair.js";
import { failure, rawPeer, request, result, type RawPeer } from "../support/raw.js";
import { useVirtualClock } from "../support/time.js";
import { answersTo, cancelMcp, untilAborted } from "./kit.js";

useVirtualClock();

const call1 = (id: unknown, method: string, params: unknown = []): object => ({ id, method, params });
const answer1 = (id: unknown, value: unknown): object => ({ id, result: value, error: null });
/** An error for a request without a version. A 2.0 program that omits `jsonrpc` would read a null result as a success. */
const failure1 = (id: unknown, code: number, message: string, data?: unknown): object => ({
  id,
  error: { code, message, data },
});
/** An error for a request with `"jsonrpc": "1.0"`. */
const failureNamed1 = (...error: Parameters<typeof failure1>): object => ({ result: null, ...failure1(...error) });
const INVALID = [-32600, "Invalid Request"] as const;

function serving(options: AnyOptions = {}): RawPeer & { emitted: unknown[] } {
  const emitted: unknown[] = [];
  const raw = rawPeer({
    compat: "1.0",
    ...options,
    methods: {
      echo: (params) => params,
      nothing: () => {},
      fail: () => Promise.reject(new RpcError(7, "no", { why: [1] })),
      emitted: (params) => void emitted.push(params),
      text: ([length]) => "x".repeat(length),
      wait: (_params, context) => untilAborted(context),
      async *tail() {
        yield* [1, "x".repeat(70_000), 2];
      },
    },
  });
  return { ...raw, emitted };
}

it("refuses any other value as `compat`", () => {
  for (const value of ["1", 1, null])
    expect(() => rawPeer({ compat: value as never })).toThrow('Expected `compat` to be "1.0", got ');
});

describe("a request of version 1.0", () => {
  it.each<[string, object, object]>([
    ["no params, which it tolerates", { id: 3, method: "nothing" }, answer1(3, null)],
    ["params that are null", call1(8, "echo", null), failure1(8, ...INVALID)],
    ["a method that is no string", { id: 9, method: 5, params: [] }, failure1(9, ...INVALID)],
    ["an id that is none", call1([1], "echo"), failure1(null, ...INVALID)],
    ["nothing of a message", { a: 1 }, failure1(null, ...INVALID)],
    ["the same, to the version in its `jsonrpc`", { jsonrpc: "1.0", a: 1 }, failureNamed1(null, ...INVALID)],
    ["an id without a pending call", { id: 2 }, failure1(null, ...INVALID)],
    ["the same, to the version in its `jsonrpc`", { jsonrpc: "1.0", id: 2 }, failureNamed1(null, ...INVALID)],
  ])("is answered in kind: %s", async (_name, message, answer) => {
    const raw = serving();
    expect(await answersTo(raw, message)).toEqual([answer]);
    expectEmpty(raw.peer);
  });

  it.each([",", '","error":', '\\",\\"error\\":{', "\u2028"])("is answered in kind under the id %j", async (id) => {
    const tricky = [{ a: 1, error: 2, result: 3 }];
    const answers = await answersTo(serving(), call1(id, "echo", tricky), call1(id, "fail", tricky));
    expect(answers).toEqual([answer1(id, tricky), failure1(id, 7, "no", { why: [1] })]);
  });

  it("can be cancelled, and may read a stream, in kind", async () => {
    const raw = serving({ dialect: lsp });
    const cancel1 = { method: "$/cancelRequest", params: [1], id: null };
    expect(await answersTo(raw, call1(1, "wait"), cancel1)).toEqual([failure1(1, -32800, "Request cancelled")]);
    const [first] = await answersTo(raw, call1(1, "tail"));
    expect(first).toMatchObject({ id: 1, error: null, result: { token: 1 } });
    const next1 = (id: number): object => call1(id, "$/enumerator/next", [1]);
    expect(await answersTo(raw, next1(2), next1(3))).toEqual([
      answer1(2, { values: [2], finished: true }),
      failure1(3, -32001, "No such stream"),
    ]);
    expectEmpty(raw.peer);
  });
});

it("a notification of version 1.0 is run and not answered, with the id null or, which is tolerated, without one", async () => {
  const raw = serving();
  const params = [1];
  expect(await answersTo(raw, { method: "emitted", params, id: null }, { method: "emitted", params })).toEqual([]);
  expect(raw.emitted).toEqual([[1], [1]]);
});

describe("messages of both versions", () => {
  it("in a batch are refused in kind, in their places", async () => {
    const batch = [call1(3, "fail"), { ...call1(3, "fail"), jsonrpc: "1.0" }, request(4, "fail"), { a: 1 }];
    const error = [7, "no", { why: [1] }] as const;
    expect(await answersTo(serving(), [...batch, { jsonrpc: "2.0", a: 1 }])).toEqual([
      [
        failure1(3, ...error),
        failureNamed1(3, ...error),
        failure(4, ...error),
        failure1(null, ...INVALID),
        failure(null, ...INVALID),
      ],
    ]);
  });

  it("in a batch omit cancelled calls if the dialect requires it", async () => {
    const raw = serving({ dialect: mcp });
    const answers = await answersTo(raw, [call1(1, "wait"), call1(2, "echo")], cancelMcp(1));
    expect(answers).toEqual([[answer1(2, [])]]);
  });

  it("in a batch share the limit of a reply, measured as they are sent", async () => {
    const raw = serving({ limits: { maxReplyBytes: 200 } });
    const [first] = await answersTo(raw, [call1(1, "text", [100]), call1(2, "text", [100]), request(3, "echo", [])]);
    const error = [-32008, "Response is too large", { maxReplyBytes: 200 }] as const;
    expect(first).toEqual([answer1(1, "x".repeat(100)), failure1(2, ...error), result(3, [])]);
  });
});

/** Makes a call, answers it, and returns its outcome. */
async function called(answer: object): Promise<{ value?: unknown; error?: any }> {
  const raw = serving();
  const call = raw.peer.request("m", [1]);
  // Sent messages stay version 2.0.
  expect(raw.messages()).toEqual([request(1, "m", [1])]);
  raw.feed(answer);
  const outcome = await call.then((value: unknown) => ({ value })).catch((error: unknown) => ({ error }));
  expectEmpty(raw.peer);
  return outcome;
}

describe("an answer of version 1.0", () => {
  it.each([[1], null, 0, "", false, { error: null }])("resolves the call: %j", async (value) => {
    expect(await called(answer1(1, value))).toEqual({ value });
  });

  it.each<[string, object]>([
    ["both", { id: 1, result: 1, error: { code: 1, message: "no" } }],
    ["neither", { id: 1 }],
    ["an error in 2.0 that is none", { jsonrpc: "2.0", id: 1, error: "boom" }],
    ["both in 2.0, though one is null", { jsonrpc: "2.0", id: 1, result: null, error: { code: 1, message: "no" } }],
  ])("that is malformed rejects the call with a ProtocolError: %s", async (_name, answer) => {
    expect((await called(answer)).error).toBeInstanceOf(ProtocolError);
  });
});
