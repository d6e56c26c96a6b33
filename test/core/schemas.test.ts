import { type } from "arktype";
import * as v from "valibot";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import type { SchemaIssue, StandardSchema } from "../../src/index.js";
import { connectedPair, type AnyOptions } from "../support/pair.js";
import { failure, notification, rawPeer, request, result } from "../support/raw.js";
import { gate, rejection, turn } from "../support/turns.js";

/** The same params in three validators. */
const VALIDATORS: Record<string, StandardSchema<any>> = {
  zod: z.object({ name: z.string(), at: z.array(z.number()) }),
  valibot: v.object({ name: v.string(), at: v.array(v.number()) }),
  arktype: type({ name: "string", at: "number[]" }),
};

/** A schema that transforms its params. */
const TRANSFORMS: Record<string, StandardSchema<any>> = {
  zod: z.object({ day: z.string().transform((text) => text.length) }),
  valibot: v.object({
    day: v.pipe(
      v.string(),
      v.transform((text) => text.length),
    ),
  }),
  arktype: type({ day: type("string").pipe((text) => text.length) }),
};

describe.each(Object.entries(VALIDATORS))("a %s schema", (name, schema) => {
  it("refuses invalid params with -32602 and the path of each issue, and runs no handler", async () => {
    let ran = 0;
    await using pair = connectedPair({ methods: { m: () => ran++ }, schemas: { m: schema } });
    const error = await rejection(pair.b.request("m", { name: "p4ssword-sent-by-mistake", at: [1, "two"] }));
    // Only message and path of each issue.
    expect(error).toMatchObject({ code: -32602, data: { issues: [{ path: ["at", 1] }] } });
    expect(new Set(Object.keys(error.data.issues[0]))).toEqual(new Set(["message", "path"]));
    const { message: issue } = error.data.issues[0];
    // Some schemas name the path in their message.
    const place = issue.includes("at[1]") ? "" : " at at[1]";
    expect(error.message).toBe(`Invalid params: ${issue}${place}`);
    for (const params of [undefined, {}, [], { name: 5, at: [] }]) {
      expect(await rejection(pair.b.request("m", params))).toMatchObject({ code: -32602 });
    }
    expect(ran).toBe(0);
  });

  it("passes the transformed params to the handler", async () => {
    await using pair = connectedPair({ methods: { m: ({ day }) => day }, schemas: { m: TRANSFORMS[name]! } });
    expect(await pair.b.request("m", { day: "monday" })).toBe(6);
  });
});

/** The message of -32602 for these issues. */
function messageFor(issues: SchemaIssue[]): string {
  const raw = rawPeer({ methods: { m: () => 1 }, schemas: { m: { "~standard": { validate: () => ({ issues }) } } } });
  raw.feed(request(1, "m"));
  expect(raw.messages()[0].error.code).toBe(-32602);
  return raw.messages()[0].error.message as string;
}

function raise(): never {
  throw new Error("secret");
}

describe("any schema", () => {
  const failing: StandardSchema = { "~standard": { validate: () => ({ issues: [{ message: "no" }] }) } };

  it("may be asynchronous", async () => {
    const open = gate();
    const schema = z.object({ user: z.string().refine(async (user) => (await open.promise, user === "known")) });
    const raw = rawPeer({ methods: { m: ({ user }) => user }, schemas: { m: schema } });
    raw.feed(request(1, "m", { user: "known" }));
    raw.feed(request(2, "m", { user: "plainPeer" }));
    await turn();
    expect(raw.sent).toEqual([]);
    open.resolve();
    await turn();
    expect(raw.messages()[0]).toEqual(result(1, "known"));
    expect(raw.messages()[1]).toMatchObject({ id: 2, error: { code: -32602, data: { issues: [{ path: ["user"] }] } } });
  });

  it("that returns a custom thenable is awaited", async () => {
    const issues = [{ message: "no" }];
    const validate = (): PromiseLike<never> => ({
      then: (succeed: any) => Promise.resolve(succeed({ issues })) as never,
    });
    await using ends = connectedPair({ methods: { add: () => 1 }, schemas: { add: { "~standard": { validate } } } });
    expect(await rejection(ends.b.request("add", [1]))).toMatchObject({ code: -32602, data: { issues } });
  });

  it("emits a failed notification's error as `error` and sends nothing", async () => {
    let ran = 0;
    const raw = rawPeer({ methods: { m: () => ran++ }, schemas: { m: failing } });
    raw.feed(notification("m", [1]));
    expect(raw.errors).toEqual([expect.objectContaining({ code: -32602, data: { issues: [{ message: "no" }] } })]);
    expect(raw.sent).toEqual([]);
    expect(ran).toBe(0);
  });

  it.each<[string, SchemaIssue["path"], string]>([
    ["an index", [1], "expected number at [1]"],
    ["a name", ["name"], "expected number at name"],
    ["both", ["list", 0, { key: "deep" }, { key: 12 }], "expected number at list[0].deep[12]"],
    ["a symbol", [Symbol("s")], "expected number at Symbol(s)"],
    ["an empty path", [], "expected number"],
    ["no path", undefined, "expected number"],
  ])("names its first issue in the message of the refusal: at %s", (_name, path, message) => {
    const issue = { message: "expected number", ...(path && { path }) };
    expect(messageFor([issue, { message: "another" }])).toBe(`Invalid params: ${message}`);
  });

  it("has a message of bounded length for any issue and path", () => {
    const long = "x".repeat(1000);
    expect(messageFor([{ message: long }]).length).toBeLessThanOrEqual(300);
    expect(messageFor([{ message: "m", path: [long] }]).length).toBeLessThanOrEqual(300);
    expect(messageFor([{ message: "m", path: Array.from({ length: 1000 }, () => "part") }]).length).toBeLessThan(301);
    expect(messageFor([])).toBe("Invalid params");
  });

  it("omits an empty path, and names symbols and objects in it", () => {
    const path = [{ key: "a" }, 0, Symbol("s"), { key: Symbol("t") }];
    const schema: StandardSchema = {
      "~standard": {
        validate: () => ({ issues: [{ message: "bare" }, { message: "deep", path, input: "secret" } as never] }),
      },
    };
    const raw = rawPeer({ methods: { m: () => 1 }, schemas: { m: schema } });
    raw.feed(request(1, "m"));
    const issues = [{ message: "bare" }, { message: "deep", path: ["a", 0, "Symbol(s)", "Symbol(t)"] }];
    expect(raw.messages()).toEqual([failure(1, -32602, "Invalid params: bare", { issues })]);
  });

  it.each<[string, () => never]>([
    ["throws", () => raise()],
    ["rejects", (async () => raise()) as () => never],
  ])("that %s causes an Internal error and an `error` event", async (_name, validate) => {
    const raw = rawPeer({ methods: { m: () => 1 }, schemas: { m: { "~standard": { validate } } } });
    raw.feed(request(1, "m"));
    await turn();
    expect(raw.messages()).toEqual([failure(1, -32603, "Internal error")]);
    expect(raw.errors).toMatchObject([{ message: "secret" }]);
  });

  it("checks a handler that was added later, and runs inside around", async () => {
    const seen: unknown[] = [];
    const raw = rawPeer({
      methods: { late: () => "never" },
      schemas: { late: failing },
      around: (call, next) => (seen.push(call.params), next()),
    });
    raw.peer.handle("late", () => 1);
    raw.feed(request(1, "late", [1]));
    await turn();
    expect(seen).toEqual([[1]]);
    expect(raw.messages()).toMatchObject([{ error: { code: -32602 } }]);
  });

  it("of a member of Object is not found for a method that has none", async () => {
    await using pair = connectedPair({ methods: { toString: () => "mine" }, schemas: {} });
    expect(await pair.b.request("toString")).toBe("mine");
  });

  it.each<[string, AnyOptions]>([
    ["another", { methods: { add: () => 1, sub: () => 1 } }],
    ["an undefined", { methods: { add: () => 1, sub: () => 1, ad: undefined as never } }],
  ])("under the name of %s method is refused, and the error names the schema and the methods", (_what, options) => {
    expect(() => rawPeer({ ...options, schemas: { add: failing, ad: failing } })).toThrow(
      new TypeError("Unknown name `ad` in `schemas`; known are add, sub"),
    );
  });

  it("under a name that no method has checks what `fallback` is called with", async () => {
    const seen: unknown[] = [];
    const raw = rawPeer({
      methods: { own: () => "own" },
      fallback: (params, { method }) => (seen.push(params), method),
      schemas: { strict: z.tuple([z.number()]).transform(([n]) => [n + 1]), own: failing, "rpc.own": failing },
    });
    raw.feed(request(1, "strict", ["text"]));
    raw.feed(request(2, "strict", [1]));
    raw.feed(request(3, "free", ["text"]));
    raw.feed(request(4, "rpc.own"));
    expect(raw.messages()).toMatchObject([
      { id: 1, error: { code: -32602 } },
      result(2, "strict"),
      result(3, "free"),
      { id: 4, error: { code: -32601 } },
    ]);
    expect(seen).toEqual([[2], ["text"]]);
  });
});
