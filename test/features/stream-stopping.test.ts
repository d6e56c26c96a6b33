/** The end of a served stream before its last value. The other side is the test. */
import { Readable } from "node:stream";
import { describe, expect, it } from "vitest";
import { mcp, RpcError, type Context } from "../../src/index.js";
import { useFakeClock } from "../support/clock.js";
import { expectEmpty } from "../support/pair.js";
import { failure, notification, rawPeer, request, result } from "../support/raw.js";
import { gate, turn } from "../support/turns.js";
import { counted, Fed } from "./sources.js";
import { abort, answersTo, cancel, feed, more, next, NO_SUCH_STREAM, streamsOf, tailing } from "./tailing.js";

useFakeClock();

describe("$/enumerator/abort", () => {
  it("fires the signal, answers a pending next as finished, and then ends the source, which may hang", async () => {
    const log: string[] = [];
    const source: AsyncIterable<unknown> = {
      [Symbol.asyncIterator]: () => ({
        next: async () => (log.length === 0 ? (log.push("next"), { done: false, value: 1 }) : gate<any>().promise),
        return: async () => (log.push("return"), gate<any>().promise),
      }),
    };
    const raw = rawPeer({
      methods: {
        tail(_params, { signal }) {
          signal.addEventListener("abort", () => log.push("signal"));
          return source;
        },
      },
    });
    await feed(raw, request(1, "tail"), next(2, 1));
    expect(await answersTo(raw, abort(1))).toEqual([more(2, [], true)]);
    expect(log).toEqual(["next", "signal", "return"]);
    expectEmpty(raw.peer);
    expect(await answersTo(raw, abort(1), next(3, 1))).toEqual([failure(3, ...NO_SUCH_STREAM)]);
    expect(log).toHaveLength(3);
  });

  it("destroys a Node stream that waits for data, which its iterator could not end", async () => {
    const source = new Readable({ read() {}, objectMode: true });
    source.push(1);
    const raw = tailing(source);
    raw.feed(request(1, "tail"));
    while (raw.sent.length === 0) await turn();
    await feed(raw, abort(1));
    expect(source.destroyed).toBe(true);
    await turn();
    expect(raw.errors).toEqual([]);
  });

  it("cancels a web stream that waits for data, which its iterator could not end", async () => {
    const reasons: unknown[] = [];
    const raw = tailing(
      new ReadableStream({ start: (to) => to.enqueue(1), cancel: (reason) => void reasons.push(reason) }),
    );
    await feed(raw, request(1, "tail"), next(2, 1));
    expect(await answersTo(raw, abort(1))).toEqual([more(2, [], true)]);
    expect(reasons).toEqual([undefined]);
    expect(raw.errors).toEqual([]);
    expectEmpty(raw.peer);
  });

  it.each([undefined, mcp])("is ignored before the first reply has sent the token", async (dialect) => {
    const source = new Fed();
    const raw = tailing(source, { dialect });
    expect(await answersTo(raw, request(1, "tail"), abort(1))).toEqual([]);
    source.give(1).finish();
    await turn();
    expect(raw.messages()).toEqual([result(1, { values: [1] })]);
    expectEmpty(raw.peer);
  });

  it.each<[string, unknown]>([
    ["an unknown token", { token: 2 }],
    ["the token as a string", { token: "1" }],
    ["no params", undefined],
    ["no place", []],
  ])("with %s is ignored", async (_name, params) => {
    const raw = tailing(new Fed().give(1));
    const seen: string[] = [];
    raw.peer.on("notification", (method) => seen.push(method));
    await feed(raw, request(1, "tail"), notification("$/enumerator/abort", params));
    expect(streamsOf(raw)).toBe(1);
    expect(seen).toEqual([]);
  });

  it("as a request is an unknown method", async () => {
    const raw = tailing(new Fed().give(1));
    await feed(raw, request(1, "tail"));
    const answers = await answersTo(raw, request(2, "$/enumerator/abort", { token: 1 }));
    expect(answers).toEqual([failure(2, -32601, "Method not found")]);
    expect(streamsOf(raw)).toBe(1);
  });
});

const failing = (error: unknown): AsyncIterable<unknown> => ({
  [Symbol.asyncIterator]: () => ({
    next: async () => ({ done: false, value: "x".repeat(70_000) }),
    return: async () => {
      throw error;
    },
  }),
});

function failingReadable(): Readable {
  return new Readable({ read() {}, objectMode: true, destroy: (_error, done) => done(new Error("on destroy")) });
}

describe("a source that fails", () => {
  it.each<[string, unknown, object, number]>([
    ["with an RpcError", new RpcError(7, "no", { why: 1 }), failure(1, 7, "no", { why: 1 }), 0],
    ["with anything else", new Error("secret"), failure(1, -32603, "Internal error"), 1],
    ["with undefined", undefined, failure(1, -32603, "Internal error"), 1],
  ])("before its first value is the call's error, %s", async (_name, thrown, expected, errors) => {
    const raw = tailing(new Fed().fail(thrown));
    expect(await answersTo(raw, request(1, "tail"))).toEqual([expected]);
    expect(raw.errors).toHaveLength(errors);
    expectEmpty(raw.peer);
  });

  it.each<[string, unknown]>([
    ["cannot be iterated", { [Symbol.asyncIterator]: 5 }],
    ["has no iterator", { [Symbol.asyncIterator]: () => undefined }],
    ["has no next", { [Symbol.asyncIterator]: () => ({}) }],
    ["yields what is no result", { [Symbol.asyncIterator]: () => ({ next: () => null }) }],
    ["throws when it is asked", { [Symbol.asyncIterator]: () => { throw new Error("secret"); } }],
  ])("because it %s causes one error", async (_name, source) => {
    const raw = tailing(source);
    expect(await answersTo(raw, request(1, "tail"))).toEqual([failure(1, -32603, "Internal error")]);
    expect(raw.errors).toHaveLength(1);
    expectEmpty(raw.peer);
  }); // prettier-ignore

  it.each<[string, (i: number) => unknown, readonly [number, string], number]>([
    ["a BigInt", () => 1n, [-32603, "Internal error"], 1],
    ["a toJSON that throws", () => ({ toJSON: () => { throw new Error("secret"); } }), [-32603, "Internal error"], 1],
    ["more than a reply may hold", () => "x".repeat(1000), [-32008, "Value of a stream is too large"], 0],
  ])("because it yields %s is ended, after the values before", async (_name, spoil, error, errors) => {
    const source = counted(Infinity, (i) => (i < 3 ? i : spoil(i)));
    const raw = tailing(source, { limits: { maxReplyBytes: 1000 } });
    const got: any[] = await answersTo(raw, request(1, "tail"));
    for (let id = 2; got.at(-1).error === undefined; id++) got.push(...(await answersTo(raw, next(id, 1))));
    expect(got.flatMap((message) => message.result?.values ?? [])).toEqual([1, 2]);
    expect(got.at(-1)).toEqual(failure(got.at(-1).id, ...error));
    expect(source.returned).toBe(1);
    expect(raw.errors).toHaveLength(errors);
    expectEmpty(raw.peer);
  }); // prettier-ignore

  it("while no next is pending is emitted as `error` if no next follows", async () => {
    const source = new Fed().give(1);
    const raw = tailing(source);
    await feed(raw, request(1, "tail"));
    source.fail(new Error("disk"));
    await turn();
    expect(raw.errors).toEqual([]);
    await feed(raw, abort(1));
    expect(raw.errors).toEqual([new Error("disk")]);
    expectEmpty(raw.peer);
  });

  it.each(["a result", "params"])(
    "before it is read, as a Node stream in %s, causes no uncaught exception",
    async (where) => {
      const source = new Readable({ read() {} });
      const raw = rawPeer({ methods: { get: (_params, { peer }: Context) => [peer.offer(source)] } });
      if (where === "a result") await feed(raw, request(1, "get"));
      else raw.peer.request("put", [raw.peer.offer(source)]).catch(() => {});
      // Without a listener, its error would be thrown at the process.
      source.destroy(new Error("no such file"));
      await turn();
      expect(raw.errors).toEqual([]);
      expect(await answersTo(raw, next(2, 1))).toEqual([failure(2, -32603, "Internal error")]);
      expect(raw.errors).toEqual([new Error("no such file")]);
    },
  );

  it("while it is ended is emitted as `error` once, also by a Node stream", async () => {
    const [waiting, idle] = [failingReadable(), failingReadable()];
    const raw = rawPeer({ methods: { get: (_params, { peer }: Context) => [peer.offer(waiting), peer.offer(idle)] } });
    await feed(raw, request(1, "get"), next(2, 1));
    await feed(raw, abort(1), abort(2));
    expect(raw.errors).toEqual([new Error("on destroy"), new Error("on destroy")]);
    expectEmpty(raw.peer);
  });

  it("while it is ended is emitted as `error`, unless the error is the abort", async () => {
    const errors = [new Error("on return"), new DOMException("stopped", "AbortError")];
    const raw = rawPeer({ methods: { tail: ([i]) => failing(errors[i]) } });
    await feed(raw, request(1, "tail", [0]), request(2, "tail", [1]));
    await feed(raw, abort(1), abort(2));
    expect(raw.errors).toEqual([errors[0]]);
  });

  it.each<[string, unknown, number]>([
    ["nothing, for the signal's reason", "reason", 0],
    ["it as `error`, for anything else", new Error("late"), 1],
  ])("after it was aborted emits %s", async (_name, thrown, errors) => {
    const source = new Fed().give(1);
    let context!: Context;
    const raw = rawPeer({ methods: { tail: (_params, given) => ((context = given), source) } });
    await feed(raw, request(1, "tail"), next(2, 1));
    await feed(raw, abort(1));
    source.fail(thrown === "reason" ? context.signal.reason : thrown);
    await turn();
    expect(raw.errors).toHaveLength(errors);
    expect(raw.sent).toHaveLength(2);
  });
});

describe("a call that is cancelled", () => {
  it("while its first value is awaited is answered with -32800, and its source ended", async () => {
    const source = new Fed();
    const raw = tailing(source);
    expect(await answersTo(raw, request("s", "tail"), cancel("s"))).toEqual([
      failure("s", -32800, "Request cancelled"),
    ]);
    expect(source.returned).toBe(1);
    expect(raw.errors).toEqual([]);
    expectEmpty(raw.peer);
  });

  it("while its answer is pending still reaches the stream", async () => {
    const source = new Fed().give(1);
    let context!: Context;
    const raw = tailing(undefined, { methods: { tail: (_params, given) => ((context = given), source) } });
    await feed(raw, request(1, "tail"));
    expect(raw.sent).toHaveLength(1);
    await feed(raw, cancel(2), cancel("1"));
    expect(streamsOf(raw)).toBe(1);
    await feed(raw, cancel(1));
    expect(source.returned).toBe(1);
    expect(context.signal.aborted).toBe(true);
    expectEmpty(raw.peer);
  });

  it("while a next is pending answers that next with an error, not as finished", async () => {
    const raw = tailing(new Fed().give(1));
    await feed(raw, request(1, "tail"), next(2, 1));
    expect(await answersTo(raw, cancel(1))).toEqual([failure(2, -32001, "The stream was given up")]);
  });

  it.each([
    ["while its first value is awaited", () => new Fed()],
    ["before it has its iterable", async (open: Promise<void>) => (await open, counted())],
  ])("under mcp sends nothing, %s", async (_name, make) => {
    const open = gate();
    const raw = tailing(make(open.promise), { dialect: mcp });
    await feed(raw, request(1, "tail"), notification("notifications/cancelled", { requestId: 1 }));
    open.resolve();
    await turn();
    expect(raw.sent).toEqual([]);
    expectEmpty(raw.peer);
  });
});

describe("the end of the connection", () => {
  it("ends every source and aborts its signal, with or without a pending next", async () => {
    const sources = [new Fed(), new Fed().give(1), new Fed().give(1), counted()];
    const contexts: Context[] = [];
    const raw = tailing(undefined, { methods: { tail: ([i], context) => (contexts.push(context), sources[i]) } });
    await feed(raw, ...sources.map((_source, i) => request(i, "tail", [i])), next("n", 2));
    expect(streamsOf(raw)).toBe(4);
    raw.cut();
    await turn();
    expect(sources.map(({ returned }) => returned)).toEqual([1, 1, 1, 1]);
    expect(contexts.map(({ signal }) => signal.reason.message)).toEqual(sources.map(() => "closed with 1006"));
    expect(raw.errors).toEqual([]);
    expectEmpty(raw.peer);
  });

  it("before a handler returned its iterable opens no stream", async () => {
    const open = gate();
    const source = counted();
    const raw = tailing(undefined, { methods: { tail: async () => (await open.promise, source) } });
    raw.feed(request(1, "tail"));
    raw.cut();
    open.resolve();
    await turn();
    expect([source.asked, source.returned]).toEqual([0, 1]);
    expectEmpty(raw.peer);
  });
});
