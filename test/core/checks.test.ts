/** `contract()`: the checks of params, results, progress and streams at run time. The types are tested in `test/types`. */
import { type } from "arktype";
import * as v from "valibot";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { contract, pair, type Peer, type SchemaContract, type StandardSchema } from "../../src/index.js";
import { expectEmpty, type AnyOptions } from "../support/pair.js";
import { notification, rawPeer, request, result } from "../support/raw.js";
import { gate, rejection, turn } from "../support/turns.js";

/** The same contract in three validators. */
const CONTRACTS: Record<string, SchemaContract> = {
  zod: contract({
    add: {
      params: z.tuple([z.number(), z.number()]),
      result: z.object({ sum: z.number() }),
    },
    copy: { params: z.object({ files: z.number() }), result: z.string(), progress: z.object({ done: z.number() }) },
    tail: { stream: z.object({ line: z.string() }) },
  }),
  valibot: contract({
    add: { params: v.tuple([v.number(), v.number()]), result: v.object({ sum: v.number() }) },
    copy: { params: v.object({ files: v.number() }), result: v.string(), progress: v.object({ done: v.number() }) },
    tail: { stream: v.object({ line: v.string() }) },
  }),
  arktype: contract({
    add: { params: type(["number", "number"]), result: type({ sum: "number" }) },
    copy: { params: type({ files: "number" }), result: type("string"), progress: type({ done: "number" }) },
    tail: { stream: type({ line: "string" }) },
  }),
};

/** What the handlers of a test return, report and stream. */
interface Returned {
  result?: unknown;
  progress?: unknown[];
  lines?: unknown[];
}

/** The handlers of the contracts above. */
function handlersOf({ result: returned, progress: reports = [], lines = [] }: Returned): Record<string, unknown> {
  return {
    add: () => returned,
    copy: (_params: unknown, { progress }: { progress: (value: unknown) => void }) => {
      for (const report of reports) progress(report);
      return returned;
    },
    async *tail() {
      yield* lines;
    },
  };
}

/** A server's peer and a client's peer, which must leave no state. */
interface Sides extends AsyncDisposable {
  readonly serving: Peer;
  readonly calling: Peer;
  /** The `error` events of both, in order. */
  readonly errors: { serving: Error[]; calling: Error[] };
  /** Returns the messages of the errors of a side. */
  messages(side: "serving" | "calling"): string[];
  /** Calls `copy`. Returns its result or its error, and the progress that came before. */
  copied(): Promise<unknown[]>;
}

/** Joins a side that serves `api` to a side that calls it. */
function sidesOf(ofServing: object, ofCalling: object): Sides {
  const [serving, calling] = pair(ofServing as AnyOptions, ofCalling as AnyOptions);
  const errors: Sides["errors"] = { serving: [], calling: [] };
  serving.on("error", (error) => errors.serving.push(error as Error));
  calling.on("error", (error) => errors.calling.push(error as Error));
  return {
    serving,
    calling,
    errors,
    messages: (side) => errors[side].map(({ message }) => message),
    async copied() {
      const reports: unknown[] = [];
      const onProgress = (report: unknown): unknown => reports.push(report);
      const call = calling.request("copy", { files: 2 }, { onProgress });
      return [await call.catch((error: unknown) => error), ...reports];
    },
    async [Symbol.asyncDispose]() {
      await Promise.all([serving.close(), calling.close()]);
      await turn();
      expectEmpty(serving);
      expectEmpty(calling);
    },
  };
}

/** Reads a stream into `values`, which it returns. */
async function read(stream: AsyncIterable<unknown>, values: unknown[] = []): Promise<unknown[]> {
  for await (const value of stream) values.push(value);
  return values;
}

function inBatch(peer: Peer): Promise<unknown> {
  const batch = peer.batch();
  const call = batch.request("add", [1, 2]);
  batch.send();
  return call;
}

describe.each(Object.entries(CONTRACTS))("a contract of %s", (_name, api) => {
  const lines = [{ line: "a" }, { line: "b" }];
  const wrong = { result: { sum: "3" }, lines: [{ line: "a" }, { line: 7 }] };

  it("checks params without `check`, and nothing else", async () => {
    await using sides = sidesOf({ contract: api, methods: handlersOf(wrong) }, { remote: api });
    const refused = { code: -32602, message: expect.stringContaining("[1]") };
    expect(await rejection(sides.calling.request("add", [1, "2"]))).toMatchObject(refused);
    expect(await sides.calling.request("add", [1, 2])).toEqual({ sum: "3" });
    expect(await read(sides.calling.stream("tail"))).toEqual(wrong.lines);
    expect(sides.errors).toEqual({ serving: [], calling: [] });
  });

  it("accepts values that fit, on both sides", async () => {
    const { copy } = handlersOf({ result: "ok", progress: [{ done: 1 }, { done: 2 }] });
    const methods = { ...handlersOf({ result: { sum: 3 }, lines }), copy };
    await using sides = sidesOf({ contract: api, methods, check: "both" }, { remote: api, check: "both" });
    expect(await sides.calling.request("add", [1, 2])).toEqual({ sum: 3 });
    expect(await sides.copied()).toEqual(["ok", { done: 1 }, { done: 2 }]);
    expect(await read(sides.calling.stream("tail"))).toEqual(lines);
    expect(await inBatch(sides.calling)).toEqual({ sum: 3 });
    expect(sides.errors).toEqual({ serving: [], calling: [] });
  });

  it('with `check: "both"` on the serving side, sends no value that does not fit, and reports it there', async () => {
    const { copy } = handlersOf({ result: "ok", progress: [{ done: 1 }, { done: "2" }] });
    const methods = { ...handlersOf(wrong), copy };
    await using sides = sidesOf({ contract: api, methods, check: "both" }, {});
    const internal = { code: -32603, message: "Internal error" };
    expect(await rejection(sides.calling.request("add", [1, 2]))).toMatchObject(internal);
    const seen: unknown[] = [];
    expect(await rejection(read(sides.calling.stream("tail"), seen))).toMatchObject(internal);
    expect(seen).toEqual([{ line: "a" }]);
    expect(await sides.copied()).toEqual([expect.objectContaining(internal), { done: 1 }]);
    expect(sides.messages("serving")).toEqual([
      expect.stringMatching(/^The result of "add" does not fit its schema: .*sum/),
      expect.stringMatching(/^A value of the stream of "tail" does not fit its schema: .*line/),
      expect.stringMatching(/^A progress value of "copy" does not fit its schema: .*done/),
    ]);
    for (const error of sides.errors.serving) expect(error).toBeInstanceOf(TypeError);
  });

  it('with `check: "both"` on the calling side, rejects for a result that does not fit', async () => {
    await using sides = sidesOf({ methods: handlersOf(wrong) }, { remote: api, check: "both" });
    for (const call of [
      sides.calling.request("add", [1, 2]),
      sides.calling.remote.add([1, 2]),
      inBatch(sides.calling),
    ]) {
      const error = await rejection(call);
      expect(error).toMatchObject({ name: "ProtocolError", code: "PROTOCOL", raw: { sum: "3" } });
      expect(error.message).toMatch(/^The result of "add" does not fit its schema: .*sum/);
    }
    expect(sides.errors).toEqual({ serving: [], calling: [] });
  });

  it('with `check: "both"` on the calling side, rejects reading at a value that does not fit, and ends the source', async () => {
    const stopped = gate();
    const left = [...wrong.lines];
    const source = {
      next: async () => (left.length > 0 ? { done: false, value: left.shift() } : new Promise(() => {})),
      return: async () => (stopped.resolve(), { done: true, value: undefined }),
      [Symbol.asyncIterator]: () => source,
    };
    await using sides = sidesOf({ methods: { tail: () => source } }, { remote: api, check: "both" });
    const reader = sides.calling.stream("tail")[Symbol.asyncIterator]();
    expect(await reader.next()).toEqual({ done: false, value: { line: "a" } });
    const error = await rejection(reader.next() as Promise<unknown>);
    expect(error).toMatchObject({ code: "PROTOCOL", raw: { line: 7 } });
    expect(error.message).toMatch(/^A value of the stream of "tail" does not fit its schema: .*line/);
    await stopped.promise;
  });

  it('with `check: "both"` on the calling side, emits `error` for a progress value that does not fit', async () => {
    const methods = handlersOf({ result: "ok", progress: [{ done: "1" }, { done: 2 }] });
    await using sides = sidesOf({ methods }, { remote: api, check: "both" });
    expect(await sides.copied()).toEqual(["ok", { done: 2 }]);
    expect(sides.errors.calling).toMatchObject([{ code: "PROTOCOL", raw: { done: "1" } }]);
  });
});

/** What a schema returns. Accepting, it changes the value. */
const outcome = (isRight: boolean): any => (isRight ? { value: "changed" } : { issues: [{ message: "no" }] });

/** A schema that accepts what `accepts` does. */
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

const no = schemaOf(() => false);

describe("the values of a contract", () => {
  it("give the handler what the schema of params returns, and the caller what the handler returned", async () => {
    const api = contract({
      at: {
        params: z.object({ day: z.string().transform((day) => day.length) }),
        result: z.number().transform((n) => `${n}!`),
      },
    });
    const methods = { at: ({ day }: { day: unknown }) => day };
    await using sides = sidesOf({ contract: api, methods, check: "both" }, { remote: api, check: "both" });
    expect(await sides.calling.request("at", { day: "monday" })).toBe(6);
  });

  it("give a handler without params `undefined`, whatever arrives", async () => {
    const seen: unknown[] = [];
    const api = contract({ ping: { result: z.null() }, bye: {} });
    const methods = {
      ping: (params: unknown) => (seen.push(params), null),
      bye: (params: unknown) => seen.push(params),
    };
    const raw = rawPeer({ contract: api, methods } as AnyOptions);
    raw.feed(request(1, "ping", ["unexpected"]));
    raw.feed(notification("bye", { unexpected: true }));
    expect(seen).toEqual([undefined, undefined]);
    expect(raw.messages()).toEqual([result(1, null)]);
  });

  it("that are undefined arrive as null, and fit a schema that accepts undefined", async () => {
    const api = contract({
      find: { result: z.object({ id: z.string() }).optional() },
      done: { result: z.void(), progress: z.undefined() },
      none: { stream: z.undefined() },
      text: { result: z.string() },
    });
    const methods = {
      find: () => undefined,
      done: (_params: unknown, { progress }: { progress: (value: unknown) => void }) => progress(undefined),
      none: async function* () {
        yield undefined;
      },
      text: () => null,
    };
    await using sides = sidesOf({ methods }, { remote: api, check: "both" });
    expect(await sides.calling.request("find")).toBe(null);
    const reports: unknown[] = [];
    await sides.calling.request("done", undefined, { onProgress: (report) => reports.push(report) });
    expect(reports).toEqual([null]);
    expect(await read(sides.calling.stream("none"))).toEqual([null]);
    // The issue is that of the value that arrived.
    expect((await rejection(sides.calling.request("text"))).message).toContain("received null");
  });

  it("may have asynchronous schemas of params and results", async () => {
    const open = gate();
    const isEven = schemaOf(async (value) => (await open.promise, (value as number[] | number).toString() === "2"));
    const api = contract({ even: { params: isEven, result: isEven } });
    const methods = { even: async () => 2, odd: () => 3 };
    await using sides = sidesOf(
      { contract: api, methods: { even: methods.even }, check: "both" },
      { remote: api, check: "both" },
    );
    let isSettled = false;
    const even = sides.calling.request("even", [2]);
    void even.then(() => (isSettled = true));
    const odd = rejection(sides.calling.request("even", [3]));
    await turn();
    expect(isSettled).toBe(false);
    open.resolve();
    expect(await even).toBe(2);
    expect(await odd).toMatchObject({ code: -32602 });
    await using other = sidesOf({ methods: { even: methods.odd } }, { remote: api, check: "both" });
    expect(await rejection(other.calling.request("even", [2]))).toMatchObject({ code: "PROTOCOL", raw: 3 });
  });

  it("must have synchronous schemas of progress and streams", async () => {
    const later = schemaOf(async () => false);
    const api = contract({ tail: { stream: later }, copy: { result: z.null(), progress: later } });
    const methods = {
      tail: async function* () {
        yield 1;
      },
      copy: (_params: unknown, { progress }: { progress: (value: unknown) => void }) => (progress(1), null),
    };
    await using sides = sidesOf({ contract: api, methods, check: "both" }, {});
    expect(await rejection(read(sides.calling.stream("tail")))).toMatchObject({ code: -32603 });
    expect(await rejection(sides.calling.request("copy", {}, { onProgress() {} }))).toMatchObject({ code: -32603 });
    expect(sides.messages("serving")).toEqual([
      'The schema of `stream` of "tail" must be synchronous, and it returned a promise',
      'The schema of `progress` of "copy" must be synchronous, and it returned a promise',
    ]);
  });

  it("that are a stream must be an async iterable or an offered stream", async () => {
    const api = contract({ tail: { stream: z.number() } });
    const answers: unknown[] = [[1, 2], null];
    const methods = {
      tail: (_params: unknown, { peer }: { peer: Peer }) => (answers.length > 0 ? answers.shift() : peer.offer([1, 2])),
    };
    await using sides = sidesOf({ contract: api, methods, check: "both" }, { remote: api, check: "both" });
    for (let i = 0; i < 2; i++)
      expect(await rejection(read(sides.calling.stream("tail")))).toMatchObject({ code: -32603 });
    expect(await read(sides.calling.stream("tail"))).toEqual([1, 2]);
    expect(sides.messages("serving")).toEqual(
      Array.from({ length: 2 }, () => 'The result of "tail" does not fit its schema: expected an async iterable'),
    );
  });

  it("that stand inside a result may be streams, whose values are not checked", async () => {
    const api = contract({ ticket: { result: z.object({ seat: z.number(), calls: z.any() }) } });
    const methods = {
      ticket: (_params: unknown, { peer }: { peer: Peer }) => ({ seat: 1, calls: peer.offer([1, 2]) }),
    };
    await using sides = sidesOf({ contract: api, methods, check: "both" }, { remote: api, check: "both" });
    const { calls } = await sides.calling.request("ticket");
    expect(await read(sides.calling.iterate(calls))).toEqual([1, 2]);
  });

  it("are checked after `around`, which may replace a result", async () => {
    const api = contract({ add: { result: z.number() } });
    await using sides = sidesOf(
      {
        contract: api,
        methods: { add: () => 1 },
        check: "both",
        around: async (_call: unknown, next: () => Promise<unknown>) => String(await next()),
      },
      {},
    );
    expect(await rejection(sides.calling.request("add"))).toMatchObject({ code: -32603 });
    expect(sides.errors.serving).toHaveLength(1);
  });

  it("are checked before the caller's `around` sees them", async () => {
    const api = contract({ add: { result: no } });
    const seen: unknown[] = [];
    const around = (_call: unknown, next: () => Promise<unknown>): unknown =>
      next().catch((error: unknown) => (seen.push(error), "instead"));
    await using sides = sidesOf({ methods: { add: () => 1 } }, { remote: api, check: "both", around });
    expect(await sides.calling.request("add")).toBe("instead");
    expect(seen).toMatchObject([{ code: "PROTOCOL" }]);
  });

  it("are those of a handler that `handle` added, too", async () => {
    const api = contract({ add: { params: z.tuple([z.number()]), result: z.number() } });
    await using sides = sidesOf({ contract: api, methods: { add: () => 1 }, check: "both" }, {});
    sides.serving.handle("add", () => "text");
    expect(await rejection(sides.calling.request("add", ["x"]))).toMatchObject({ code: -32602 });
    expect(await rejection(sides.calling.request("add", [1]))).toMatchObject({ code: -32603 });
    expect(sides.errors.serving).toHaveLength(1);
  });

  it("are refused as by a handler that fails, if a schema throws or rejects", async () => {
    for (const validate of [() => raise(), async () => raise()]) {
      const api = contract({ add: { result: { "~standard": { validate } } } });
      await using sides = sidesOf({ contract: api, methods: { add: () => 1 }, check: "both" }, {});
      expect(await rejection(sides.calling.request("add"))).toMatchObject({ code: -32603 });
      expect(sides.messages("serving")).toEqual(["secret"]);
      await using other = sidesOf({ methods: { add: () => 1 } }, { remote: api, check: "both" });
      expect(await rejection(other.calling.request("add"))).toMatchObject({ message: "secret" });
    }
  });

  it("are not checked under a name of Object's that the contract does not have", async () => {
    const api = contract({ add: { result: z.number() } });
    await using sides = sidesOf({ methods: { toString: () => 1 } }, { remote: api, check: "both" });
    expect(await sides.calling.request("toString")).toBe(1);
  });
});

function raise(): never {
  throw new Error("secret");
}

describe("a contract", () => {
  const api = contract({ add: { params: z.tuple([z.number()]), result: z.number() }, ping: { result: z.string() } });

  it.each<[string, object, string]>([
    [
      "an entry without a handler",
      { contract: api, methods: { add: () => 1 } },
      "Expected `methods.ping` to be a function, as `contract` has that name, got `undefined`",
    ],
    [
      "an entry whose handler is undefined",
      { contract: api, methods: { add: undefined, ping: () => "" } },
      "Expected `methods.add` to be a function, as `contract` has that name, got `undefined`",
    ],
    [
      "a handler without an entry",
      { contract: api, methods: { add: () => 1, ping: () => "", pin: () => "" } },
      "Unknown name `pin` in `methods`; known are add, ping",
    ],
    [
      "schemas beside a contract",
      { contract: api, schemas: {}, methods: { add: () => 1, ping: () => "" } },
      "`contract` has the schemas: `schemas` must not be given beside it",
    ],
    [
      "entries in place of a contract",
      { contract: { add: {} } },
      "Expected `contract` to be a contract, got an object",
    ],
    ["entries in place of a remote one", { remote: { add: {} } }, "Expected `remote` to be a contract, got an object"],
    ["an unknown check", { remote: api, check: "results" }, 'Expected `check` to be "both", got `results` (string)'],
  ])("is refused with %s, and the error names it", (_name, options, message) => {
    expect(() => rawPeer(options as AnyOptions)).toThrow(new TypeError(message));
  });

  it.each<[string, unknown, string]>([
    ["no entries", undefined, "Expected `contract` to be a plain object, got `undefined`"],
    [
      "a misspelt part",
      { add: { reslt: z.number() } },
      "Unknown name `reslt` in `contract.add`; known are params, result, stream, progress",
    ],
    [
      "a part that is no schema",
      { add: { result: Number } },
      "Expected `contract.add.result` to be a Standard Schema, got a function",
    ],
    ["an entry that is no object", { add: null }, "Expected `contract.add` to be an object, got `null`"],
    [
      "a result and a stream",
      { add: { result: z.number(), stream: z.number() } },
      "`contract.add` must not have both `result` and `stream`",
    ],
  ])("cannot be made of %s", (_name, entries, message) => {
    expect(() => contract(entries as never)).toThrow(new TypeError(message));
  });

  it("may have entries without a handler if there is a `fallback`, whose params and results it checks", async () => {
    await using sides = sidesOf(
      { contract: api, fallback: (_params: unknown, { method }: { method: string }) => method, check: "both" },
      {},
    );
    expect(await sides.calling.request("ping")).toBe("ping");
    expect(await rejection(sides.calling.request("add", ["x"]))).toMatchObject({ code: -32602 });
    expect(await rejection(sides.calling.request("add", [1]))).toMatchObject({ code: -32603 });
    expect(await sides.calling.request("other")).toBe("other");
    expect(sides.errors.serving).toHaveLength(1);
  });

  it("may be that of both sides of one peer", async () => {
    const theirs = contract({ confirm: { params: z.tuple([z.string()]), result: z.boolean() } });
    const [a, b] = pair(
      { contract: api, remote: theirs, check: "both", methods: { add: ([n]) => n + 1, ping: () => "pong" } },
      { contract: theirs, remote: api, check: "both", methods: { confirm: ([text]) => text === "?" } },
    );
    expect(await b.request("add", [1])).toBe(2);
    expect(await b.remote.ping()).toBe("pong");
    expect(await a.request("confirm", ["?"])).toBe(true);
    await a.close();
  });
});
