/** Schemas of params, and `contract()`, which also checks results, progress and streams. The types are tested in `test/types`. */
import { type } from "arktype";
import * as v from "valibot";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { contract, type Context, type SchemaContract, type StandardSchema } from "../../src/index.js";
import { testServer } from "../../src/testing/index.js";
import { connectedPair, inBatch, readAll, type AnyOptions, type ConnectedPair } from "../support/pair.js";
import { notification, rawPeer, request, result } from "../support/raw.js";
import { gate, raising, rejection, turn } from "../support/turns.js";

const CHECKED = contract({
  add: { params: z.tuple([z.number(), z.number()]), result: z.object({ sum: z.number() }) },
  copy: { result: z.string(), progress: z.object({ done: z.number() }) },
  tail: { stream: z.object({ line: z.string() }) },
});

const CONTRACTS: Record<string, SchemaContract> = {
  zod: contract({
    find: { params: z.object({ name: z.string(), at: z.array(z.number()) }) },
    day: { params: z.object({ day: z.string().transform((day) => day.length) }) },
    sum: { result: z.number() },
  }),
  valibot: contract({
    find: { params: v.object({ name: v.string(), at: v.array(v.number()) }) },
    day: {
      params: v.pipe(
        v.object({ day: v.string() }),
        v.transform(({ day }) => ({ day: day.length })),
      ),
    },
    sum: { result: v.number() },
  }),
  arktype: contract({
    find: { params: type({ name: "string", at: "number[]" }) },
    day: { params: type({ day: type("string").pipe((day) => day.length) }) },
    sum: { result: type("number") },
  }),
};

/** Joins `a`, which serves, to `b`, which calls. Both check all that their contract has. */
function checking(ofServing: object, ofCalling: object = {}): ConnectedPair {
  return connectedPair({ check: "both", ...ofServing } as AnyOptions, { check: "both", ...ofCalling } as AnyOptions);
}

/** Returns the handlers of the first contract, which return, report and stream this. */
function handlersOf(sum: unknown, reports: unknown[], lines: unknown[]): Record<string, unknown> {
  return {
    add: () => ({ sum }),
    copy: (_params: unknown, { progress }: Context) => {
      for (const done of reports) progress({ done });
      return "ok";
    },
    async *tail() {
      for (const line of lines) yield { line };
    },
  };
}

/** Calls `copy`. Returns its result or its error, and the progress that came before. */
async function copied({ b }: ConnectedPair): Promise<unknown[]> {
  const reports: unknown[] = [];
  const call = b.request("copy", undefined, { onProgress: (report) => reports.push(report) });
  return [await call.catch((error: unknown) => error), ...reports];
}

const messages = (pair: ConnectedPair): string[] => pair.takeErrors().map((error) => (error as Error).message);

const INTERNAL = { code: -32603, message: "Internal error" };

describe.each(Object.entries(CONTRACTS))("a contract of %s", (_name, one) => {
  it("refuses invalid params with -32602 and the path of each issue, and runs no handler", async () => {
    const methods = { find: raise, day: ({ day }: { day: unknown }) => day, sum: () => "3" };
    await using pair = checking({ contract: one, methods });
    const error = await rejection(pair.b.request("find", { name: "p4ssword-sent-by-mistake", at: [1, "two"] }));
    // Only message and path of each issue.
    const [{ message: issue, ...rest }] = error.data.issues;
    expect(rest).toEqual({ path: ["at", 1] });
    // Some schemas name the path in their message.
    const place = issue.includes("at[1]") ? "" : " at at[1]";
    expect(error).toMatchObject({ code: -32602, message: `Invalid params: ${issue}${place}` });
    for (const params of [undefined, {}, [], { name: 5, at: [] }])
      expect(await rejection(pair.b.request("find", params))).toMatchObject({ code: -32602 });
    // The handler gets what the schema makes of the params.
    expect(await pair.b.request("day", { day: "monday" })).toBe(6);
    expect(await rejection(pair.b.request("sum"))).toMatchObject(INTERNAL);
    expect(messages(pair)).toEqual([expect.stringMatching(/^The result of "sum" does not fit its schema: /)]);
  });
});

describe("a contract", () => {
  const wrong = handlersOf("3", [1, "2"], ["a", 7]);

  it("checks nothing but params without `check`", async () => {
    await using pair = connectedPair(
      { contract: CHECKED, methods: wrong } as AnyOptions,
      { remote: CHECKED } as AnyOptions,
    );
    expect(await rejection(pair.b.request("add", [1, "2"]))).toMatchObject({ code: -32602 });
    expect(await pair.b.request("add", [1, 2])).toEqual({ sum: "3" });
    expect(await copied(pair)).toEqual(["ok", { done: 1 }, { done: "2" }]);
    expect(await readAll(pair.b.stream("tail"))).toEqual([{ line: "a" }, { line: 7 }]);
  });

  it("sends no value that does not fit, and reports it where it was made", async () => {
    await using pair = checking({ contract: CHECKED, methods: wrong });
    expect(await rejection(pair.b.request("add", [1, 2]))).toMatchObject(INTERNAL);
    const seen: unknown[] = [];
    expect(await rejection(readAll(pair.b.stream("tail"), seen))).toMatchObject(INTERNAL);
    expect(seen).toEqual([{ line: "a" }]);
    expect(await copied(pair)).toEqual([expect.objectContaining(INTERNAL), { done: 1 }]);
    const errors = pair.takeErrors();
    expect(errors).toMatchObject([
      { message: expect.stringMatching(/^The result of "add" does not fit its schema: .*sum/) },
      { message: expect.stringMatching(/^A value of the stream of "tail" does not fit its schema: .*line/) },
      { message: expect.stringMatching(/^A progress value of "copy" does not fit its schema: .*done/) },
    ]);
    for (const error of errors) expect(error).toBeInstanceOf(TypeError);
  });

  it("rejects a call for a result that does not fit, and reports progress that does not as an error", async () => {
    await using pair = checking({ methods: wrong }, { remote: CHECKED });
    for (const call of [pair.b.request("add", [1, 2]), pair.b.remote.add([1, 2]), inBatch(pair.b, "add", [1, 2])]) {
      const error = await rejection(call);
      expect(error).toMatchObject({ name: "ProtocolError", code: "PROTOCOL", raw: { sum: "3" } });
      expect(error.message).toMatch(/^The result of "add" does not fit its schema: .*sum/);
    }
    expect(await copied(pair)).toEqual(["ok", { done: 1 }]);
    expect(pair.takeErrors()).toMatchObject([{ code: "PROTOCOL", raw: { done: "2" } }]);
  });

  it("rejects reading a stream at a value that does not fit, and ends the source", async () => {
    const stopped = gate();
    const left = [{ line: "a" }, { line: 7 }];
    const source = {
      next: async () => (left.length > 0 ? { done: false, value: left.shift() } : new Promise(() => {})),
      return: async () => (stopped.resolve(), { done: true, value: undefined }),
      [Symbol.asyncIterator]: () => source,
    };
    await using pair = checking({ methods: { tail: () => source } }, { remote: CHECKED });
    const reader = pair.b.stream("tail")[Symbol.asyncIterator]();
    expect(await reader.next()).toEqual({ done: false, value: { line: "a" } });
    const error = await rejection(reader.next() as Promise<unknown>);
    expect(error).toMatchObject({ code: "PROTOCOL", raw: { line: 7 } });
    expect(error.message).toMatch(/^A value of the stream of "tail" does not fit its schema: .*line/);
    await stopped.promise;
  });
});

/** What a schema returns. Accepting, it changes the value. */
const outcome = (isRight: boolean): any => (isRight ? { value: "changed" } : { issues: [{ message: "no" }] });

function schemaOf(accepts: (value: unknown) => boolean | Promise<boolean>): StandardSchema<any, any> {
  return {
    "~standard": {
      validate(value) {
        const isRight = accepts(value);
        return typeof isRight === "boolean" ? outcome(isRight) : isRight.then(outcome);
      },
    },
  };
}

const standard = (validate: () => unknown): StandardSchema<any, any> => ({
  "~standard": { validate: validate as () => never },
});
const no = schemaOf(() => false);

const raise = raising(new Error("secret"));

/** Returns the error that a peer answers a call with, if the schema of its params finds these issues. */
function refusalFor(...issues: object[]): { message: string; data: unknown } {
  const raw = rawPeer({ methods: { m: () => 1 }, schemas: { m: standard(() => ({ issues })) } });
  raw.feed(request(1, "m"));
  const [{ error }] = raw.messages();
  expect(error.code).toBe(-32602);
  return error;
}

describe("a schema of params", () => {
  it("emits the error of a notification as `error`, sends nothing, and calls no handler", () => {
    let ran = 0;
    const raw = rawPeer({ methods: { m: () => ran++ }, schemas: { m: no } });
    raw.feed(notification("m", [1]));
    expect(raw.errors).toEqual([expect.objectContaining({ code: -32602, data: { issues: [{ message: "no" }] } })]);
    expect([raw.sent, ran]).toEqual([[], 0]);
  });

  it("that are refused name the first issue in a message of bounded length, and only message and path of each issue", () => {
    const deep = ["list", 0, { key: "deep" }, { key: 12 }, Symbol("s")];
    const places: [unknown, string][] = [
      [[1], "no at [1]"],
      [["name"], "no at name"],
      [deep, "no at list[0].deep[12].Symbol(s)"],
      [[], "no"],
      [undefined, "no"],
    ];
    for (const [path, message] of places)
      expect(refusalFor({ message: "no", path }, { message: "another" }).message).toBe(`Invalid params: ${message}`);
    const long = "x".repeat(1000);
    for (const path of [[], [long], Array(1000).fill("part")])
      expect(refusalFor({ message: long, path }).message.length).toBeLessThanOrEqual(300);
    expect(refusalFor().message).toBe("Invalid params");
    const { data } = refusalFor({ message: "bare" }, { message: "deep", path: deep, input: "secret" });
    expect(data).toEqual({
      issues: [{ message: "bare" }, { message: "deep", path: ["list", 0, "deep", 12, "Symbol(s)"] }],
    });
  });

  it("under a name that no method has checks what `fallback` is called with", async () => {
    const seen: unknown[] = [];
    const raw = rawPeer({
      methods: { own: () => "own", toString: () => "mine" },
      fallback: (params, { method }) => (seen.push(params), method),
      schemas: { strict: z.tuple([z.number()]).transform(([n]) => [n + 1]), own: no, "rpc.own": no },
    });
    raw.feed(request(1, "strict", ["text"]));
    raw.feed(request(2, "strict", [1]));
    raw.feed(request(3, "free", ["text"]));
    raw.feed(request(4, "rpc.own"));
    raw.feed(request(5, "toString"));
    expect(raw.messages()).toMatchObject([
      { id: 1, error: { code: -32602 } },
      result(2, "strict"),
      result(3, "free"),
      { id: 4, error: { code: -32601 } },
      result(5, "mine"),
    ]);
    expect(seen).toEqual([[2], ["text"]]);
  });
});

describe("the values of a contract", () => {
  it("give a handler without params `undefined`, whatever arrives", () => {
    const seen: unknown[] = [];
    const ping = (params: unknown): null => (seen.push(params), null);
    const api = contract({ ping: { result: z.null() }, bye: {} });
    const raw = rawPeer({ contract: api, methods: { ping, bye: ping } } as AnyOptions);
    raw.feed(request(1, "ping", ["unexpected"]));
    raw.feed(notification("bye", { unexpected: true }));
    expect(seen).toEqual([undefined, undefined]);
    expect(raw.messages()).toEqual([result(1, null)]);
  });

  it("that are undefined arrive as null, and fit a schema that accepts undefined", async () => {
    const api = contract({
      find: { result: z.object({ id: z.string() }).optional() },
      copy: { result: z.void(), progress: z.undefined() },
      none: { stream: z.undefined() },
      text: { result: z.string() },
    });
    const methods = {
      find: () => undefined,
      copy: (_params: unknown, { progress }: Context) => progress(undefined),
      none: async function* () {
        yield undefined;
      },
      text: () => null,
    };
    await using pair = checking({ methods }, { remote: api });
    expect(await pair.b.request("find")).toBe(null);
    expect(await copied(pair)).toEqual([null, null]);
    expect(await readAll(pair.b.stream("none"))).toEqual([null]);
    // The issue is that of the value that arrived.
    expect((await rejection(pair.b.request("text"))).message).toContain("received null");
  });

  it("may have asynchronous schemas of params and results, also by a thenable", async () => {
    const open = gate();
    const isEven = schemaOf(async (value) => (await open.promise, String(value) === "2"));
    const thenable = standard(() => ({ then: (succeed: any) => succeed(outcome(false)) as unknown }));
    const api = contract({ even: { params: isEven, result: isEven }, no: { params: thenable } });
    await using pair = checking({ contract: api, methods: { even: async () => 2, no: () => 1 } }, { remote: api });
    await using other = checking({ methods: { even: () => 3 } }, { remote: api });
    let isSettled = false;
    const even = pair.b.request("even", [2]).finally(() => (isSettled = true));
    const odd = rejection(pair.b.request("even", [3]));
    await turn();
    expect(isSettled).toBe(false);
    open.resolve();
    expect(await even).toBe(2);
    for (const error of [await odd, await rejection(pair.b.request("no"))])
      expect(error).toMatchObject({ code: -32602, data: { issues: [{ message: "no" }] } });
    expect(await rejection(other.b.request("even", [2]))).toMatchObject({ code: "PROTOCOL", raw: 3 });
  });

  it("must have synchronous schemas of progress and streams", async () => {
    const later = schemaOf(async () => false);
    const api = contract({ tail: { stream: later }, copy: { result: z.string(), progress: later } });
    const { tail, copy } = handlersOf(0, [1], [1]);
    await using pair = checking({ contract: api, methods: { tail, copy } });
    expect(await rejection(readAll(pair.b.stream("tail")))).toMatchObject({ code: -32603 });
    expect(await copied(pair)).toMatchObject([{ code: -32603 }]);
    expect(messages(pair)).toEqual([
      'The schema of `stream` of "tail" must be synchronous, and it returned a promise',
      'The schema of `progress` of "copy" must be synchronous, and it returned a promise',
    ]);
  });

  it("that are a stream must be an async iterable or an offered stream, and the values of a stream inside a result are not checked", async () => {
    const api = contract({ tail: { stream: z.number() }, ticket: { result: z.object({ calls: z.any() }) } });
    const answers: unknown[] = [[1, 2], null];
    const tail = (_params: unknown, { peer }: Context): unknown =>
      answers.length > 0 ? answers.shift() : peer.offer([1, 2]);
    const methods = { tail, ticket: (_params: unknown, { peer }: Context) => ({ calls: peer.offer([1, "2"]) }) };
    await using pair = checking({ contract: api, methods }, { remote: api });
    for (let i = 0; i < 2; i++) expect(await rejection(readAll(pair.b.stream("tail")))).toMatchObject({ code: -32603 });
    expect(await readAll(pair.b.stream("tail"))).toEqual([1, 2]);
    const message = 'The result of "tail" does not fit its schema: expected an async iterable';
    expect(messages(pair)).toEqual([message, message]);
    const { calls } = (await pair.b.request("ticket")) as any;
    expect(await readAll(pair.b.iterate(calls))).toEqual([1, "2"]);
  });

  it("are checked inside the `around` of the caller, and around the handler: params inside its `around`, results after it", async () => {
    const api = contract({ add: { params: z.tuple([z.number()]), result: z.number() } });
    const seen: unknown[] = [];
    const asText = async (call: any, next: any): Promise<string> => (seen.push(call.params), String(await next()));
    await using pair = checking({ contract: api, methods: { add: () => 0 }, around: asText });
    // A handler that is added later is checked, too.
    pair.a.handle("add", () => 1);
    expect(await rejection(pair.b.request("add", ["x"]))).toMatchObject({ code: -32602 });
    expect(await rejection(pair.b.request("add", [1]))).toMatchObject({ code: -32603 });
    expect([seen.splice(0), pair.takeErrors().length]).toEqual([[["x"], [1]], 1]);
    const around = (_call: any, next: any): any => next().catch((error: unknown) => (seen.push(error), "instead"));
    await using other = checking({ methods: { add: () => "1", toString: () => 1 } }, { remote: api, around });
    expect(await other.b.request("add")).toBe("instead");
    expect(seen).toMatchObject([{ code: "PROTOCOL" }]);
    // The contract has no such name.
    expect(await other.b.request("toString")).toBe(1);
  });

  it.each([
    ["throws", () => raise()],
    ["rejects", async () => raise()],
  ])("are refused as by a handler that fails, if a schema %s", async (_how, validate) => {
    const api = contract({ add: { result: standard(validate) }, give: { params: standard(validate) } });
    await using pair = checking({ contract: api, methods: { add: () => 1, give: () => 1 } });
    for (const method of ["add", "give"]) {
      expect(await rejection(pair.b.request(method))).toMatchObject(INTERNAL);
      expect(messages(pair)).toEqual(["secret"]);
    }
    await using other = checking({ methods: { add: () => 1 } }, { remote: api });
    expect(await rejection(other.b.request("add"))).toMatchObject({ message: "secret" });
  });
});

describe("a contract", () => {
  it("gives the `meta` of the method to `around`: that of the side that serves it, also for a method of any name", async () => {
    const [mine, theirs] = ["mine", "theirs"].map((of) => contract({ m: { meta: { of } }, n: {} }));
    const metas: unknown[] = [];
    const around = ({ meta }: { meta?: unknown }, next: () => unknown): unknown => (metas.push(meta), next());
    await using pair = checking({ contract: theirs, remote: mine, methods: { m: () => {}, n: () => {} }, around });
    await pair.b.request("m");
    for (const method of ["n", "constructor"]) await pair.b.request(method).catch(() => {});
    pair.a.notify("m");
    expect(metas).toEqual([{ of: "theirs" }, undefined, undefined, { of: "mine" }]);
    await using kit = testServer({ remote: mine!, around });
    const client = await kit.connect(kit.server.url);
    kit.server.peers.notify("m");
    await client.close();
    expect(metas.slice(4)).toEqual([{ of: "mine" }]);
  });

  it("is made of entries of schemas, and refused with handlers or options that do not fit it, with an error that names them", () => {
    const both = { params: z.tuple([z.number()]), result: z.number() };
    const given = contract({ add: both, ping: { result: z.string() } });
    const methods = { add: () => 1, ping: () => "" };
    const refused: [object, string][] = [
      [{ contract: given, methods: { ...methods, add: undefined } }, "Expected `methods.add` to be a function, as "],
      [{ contract: given, methods: { ...methods, pin: () => "" } }, "Unknown name `pin` in `methods`; known are add, "],
      [{ contract: given, schemas: {}, methods }, "`schemas` must not be given beside `contract`"],
      [
        { schemas: { add: no, ad: no }, methods: { ...methods, ad: undefined } },
        "Unknown name `ad` in `schemas`; known ",
      ],
      [{ contract: { add: {} } }, "Expected `contract` to be a contract, got an object"],
      [{ remote: { add: {} } }, "Expected `remote` to be a contract, got an object"],
      [{ remote: given, check: "results" }, 'Expected `check` to be "both", got `results` (string)'],
    ];
    for (const [options, message] of refused) expect(() => rawPeer(options as AnyOptions)).toThrow(message);
    const bad: [unknown, string][] = [
      [undefined, "Expected `contract` to be a plain object, got `undefined`"],
      [{ add: { reslt: z.number() } }, "Unknown name `reslt` in `contract.add`; known are params, result, "],
      [{ add: { result: Number } }, "Expected `contract.add.result` to be a Standard Schema, got a function"],
      [{ add: null }, "Expected `contract.add` to be an object, got `null`"],
      [{ add: { result: no, stream: no } }, "`contract.add` must not have both `result` and `stream`"],
    ];
    for (const [entries, message] of bad) expect(() => contract(entries as never)).toThrow(message);
  });

  it("may have entries without a handler if there is a `fallback`, whose params and results it checks", async () => {
    await using pair = checking({ contract: CHECKED, fallback: (_params: unknown, { method }: Context) => method });
    expect(await pair.b.request("copy")).toBe("copy");
    expect(await rejection(pair.b.request("add", ["x"]))).toMatchObject({ code: -32602 });
    expect(await rejection(pair.b.request("add", [1, 2]))).toMatchObject(INTERNAL);
    expect(await pair.b.request("other")).toBe("other");
    expect(pair.takeErrors()).toHaveLength(1);
  });
});
