/** Serving a stream: the iterables that a handler may return, and the answers to their reader. The other side is the test. */
import { Readable } from "node:stream";
import { describe, expect, it } from "vitest";
import { RpcError, type Context } from "../../src/index.js";
import { pass, useFakeClock } from "../support/clock.js";
import { expectEmpty } from "../support/pair.js";
import { failure, notification, request, result, type RawPeer } from "../support/raw.js";
import { sessionPeer } from "../support/session-peer.js";
import { gate, turn } from "../support/turns.js";
import { counted, Fed } from "./sources.js";
import { abort, answersTo, feed, more, next, NO_SUCH_STREAM, streamsOf, tailing } from "./tailing.js";

useFakeClock();

const counting = (from: number, to: number): number[] => Array.from({ length: to - from + 1 }, (_, i) => from + i);

describe("a handler's iterable", () => {
  const kinds: [string, () => unknown][] = [
    ["an async generator", async function* () { yield* [1, 2]; }],
    ["a promise of one", async () => (async function* () { yield 1; yield 2; })()],
    ["a hand-made one", () => counted(2)],
    ["a Node stream", () => Readable.from([1, 2])],
    ["a web stream", () => new ReadableStream({ start: (c) => (c.enqueue(1), c.enqueue(2), c.close()) })],
    ["a web stream that is no async iterable, as in Safari", () => {
      const stream = new ReadableStream({ start: (c) => (c.enqueue(1), c.enqueue(2), c.close()) });
      return { getReader: () => stream.getReader() };
    }],
    ["a generator", function* () { yield 1; yield Promise.resolve(2); }],
    ["a promise of a generator", async () => (function* () { yield* [1, 2]; })()],
    ["the iterator of a Map", () => new Map([[1, "a"], [2, "b"]]).keys()],
  ]; // prettier-ignore

  it.each<[string, unknown, unknown]>([
    ["an array", [1, 2], [1, 2]],
    ["an object with a member `next` that is data", { next: "page 2" }, { next: "page 2" }],
    ["an iterable that has a JSON form", { toJSON: () => "it", [Symbol.iterator]: () => [1][Symbol.iterator]() }, "it"],
  ])("is not %s, which is the result itself", async (_name, value, json) => {
    const raw = tailing(undefined, { methods: { tail: () => value } });
    expect(await answersTo(raw, request(1, "tail"))).toEqual([result(1, json)]);
  });

  it("that is a generator is closed for a notification", async () => {
    let isClosed = false;
    function* tail(): Generator<number> {
      try {
        yield 1;
        yield 2;
      } finally {
        isClosed = true;
      }
    }
    const begun = tail();
    begun.next();
    const raw = tailing(undefined, { methods: { tail: () => begun } });
    await feed(raw, notification("tail"));
    expect([isClosed, raw.sent]).toEqual([true, []]);
  });

  it.each(kinds)("may be %s", async (_name, make) => {
    const raw = tailing(undefined, { methods: { tail: make } });
    raw.feed(request(1, "tail"));
    while (raw.sent.length === 0) await turn();
    const [first, ...rest] = raw.messages();
    expect(rest).toEqual([]);
    const values = [...(first.result.values ?? [])];
    if (first.result.token !== undefined) {
      const [reply] = await answersTo(raw, next(2, first.result.token));
      expect(reply.result.finished).toBe(true);
      values.push(...reply.result.values);
    }
    expect(values).toEqual([1, 2]);
    expectEmpty(raw.peer);
  });

  it("continues after the values of the first reply, and ends with the last value", async () => {
    const source = new Fed().give("a", "b");
    const raw = tailing(source);
    expect(await answersTo(raw, request(1, "tail"))).toEqual([result(1, { token: 1, values: ["a", "b"] })]);
    expect(await answersTo(raw, next(2, 1))).toEqual([]);
    source.give("c");
    await turn();
    expect(raw.messages()[1]).toEqual(more(2, ["c"]));
    source.give("d").finish();
    expect(await answersTo(raw, next("x", 1))).toEqual([more("x", ["d"], true)]);
    expect(await answersTo(raw, next(null, 1))).toEqual([failure(null, ...NO_SUCH_STREAM)]);
    expect(source.returned).toBe(0);
    expectEmpty(raw.peer);
  });

  it("that ends after its last value was read ends with an empty batch", async () => {
    const source = new Fed().give(1);
    const raw = tailing(source);
    await feed(raw, request(1, "tail"), next(2, 1));
    source.finish();
    await turn();
    expect(raw.messages().slice(1)).toEqual([more(2, [], true)]);
    expectEmpty(raw.peer);
  });

  it("that is slow is answered without a value, so that the call does not time out", async () => {
    const source = new Fed();
    const raw = tailing(source);
    raw.feed(request(1, "tail"));
    await pass(99);
    expect(raw.sent).toEqual([]);
    await pass(1);
    expect(raw.messages()).toEqual([result(1, { token: 1 })]);
    await feed(raw, next(2, 1));
    await pass(10 ** 9);
    source.give("at last").finish();
    await turn();
    expect(raw.messages()[1]).toEqual(more(2, ["at last"], true));
    expectEmpty(raw.peer);
  });

  it.each([
    ["undefined", undefined, null],
    ["a function", () => 1, null],
    ["NaN", NaN, null],
    ["an object with a toJSON", { toJSON: () => [1] }, [1]],
    ["null", null, null],
  ])("may yield %s, which is sent as a result would be", async (_name, value, sent) => {
    const raw = tailing(counted(1, () => value));
    expect(await answersTo(raw, request(1, "tail"))).toEqual([result(1, { values: [sent] })]);
  });

  it("is ended without being read for a notification", async () => {
    const source = counted();
    const raw = tailing(source);
    await feed(raw, notification("tail"));
    expect([source.asked, source.returned, raw.sent.length]).toEqual([0, 1, 0]);
    expectEmpty(raw.peer);
  });

  it("that a notification's handler resolves with is ended too, even a Node stream", async () => {
    const source = new Readable({ read() {} });
    const raw = tailing(Promise.resolve(source));
    await feed(raw, notification("tail"));
    expect(source.destroyed).toBe(true);
    expect([raw.sent, raw.errors]).toEqual([[], []]);
  });

  it("has the signal of its call, which outlives the answer", async () => {
    let context!: Context;
    const source = new Fed().give(1);
    const raw = tailing(source, { methods: { tail: (_params, given) => ((context = given), source) } });
    await feed(raw, request(1, "tail"));
    const { signal } = context;
    expect(signal.aborted).toBe(false);
    await feed(raw, abort(1));
    expect(signal).toMatchObject({ aborted: true, reason: { name: "AbortError" } });
  });

  it("never aborts the signal of a call whose stream was read to the end", async () => {
    let context!: Context;
    const raw = tailing(undefined, { methods: { tail: (_params, given) => ((context = given), counted(2)) } });
    await feed(raw, request(1, "tail"));
    await raw.peer.close();
    expect(context.signal.aborted).toBe(false);
  });

  it("reports progress until its first reply and not after", async () => {
    const open = gate();
    const raw = tailing(undefined, {
      methods: {
        async *tail(_params, { progress }: Context) {
          progress("before");
          yield 1;
          await open.promise;
          progress("after");
          yield 2;
        },
      },
    });
    await feed(raw, request(1, "tail", { workDoneToken: "t" }));
    open.resolve();
    await feed(raw, next(2, 1));
    expect(raw.messages()).toEqual([
      notification("$/progress", { token: "t", value: "before" }),
      result(1, { token: 1, values: [1] }),
      more(2, [2], true),
    ]);
  });
});

describe("$/enumerator/next", () => {
  it("is refused before its token was sent, without effect on the stream", async () => {
    const source = new Fed();
    const raw = tailing(source);
    expect(await answersTo(raw, request(1, "tail"), next(2, 1))).toEqual([failure(2, ...NO_SUCH_STREAM)]);
    source.give("a");
    await turn();
    expect(raw.messages()[1]).toEqual(result(1, { token: 1, values: ["a"] }));
  });

  it("can be pending on several tokens at once", async () => {
    const sources = [new Fed().give("a0"), new Fed().give("b0")];
    const raw = tailing(undefined, { methods: { tail: ([i]) => sources[i] } });
    await feed(raw, request(1, "tail", [0]), request(2, "tail", [1]), next(3, 1), next(4, 2));
    sources[1]!.give("b1");
    await turn();
    sources[0]!.give("a1");
    await turn();
    expect(raw.messages().slice(2)).toEqual([more(4, ["b1"]), more(3, ["a1"])]);
  });

  it("is answered after those before it, with the values that came since", async () => {
    const source = new Fed().give("a");
    const raw = tailing(source);
    await feed(raw, request(1, "tail"), next(2, 1), next(3, 1), next(4, 1));
    const refusal = failure(4, -32600, "Too many `next`");
    expect(raw.messages().slice(1)).toEqual([refusal]);
    source.give("b");
    await turn();
    expect(raw.messages().slice(2)).toEqual([more(2, ["b"])]);
    // The refused one holds no place.
    await feed(raw, next(5, 1));
    source.give("c");
    await turn();
    source.give("d");
    await turn();
    expect(raw.messages().slice(3)).toEqual([more(3, ["c"]), more(5, ["d"])]);
    expect(await answersTo(raw, next(6, 1), next(7, 1), abort(1))).toEqual([more(6, [], true), more(7, [], true)]);
    expect(streamsOf(raw)).toBe(0);
  });

  it("may come inside the reply to an earlier one, while another one is pending", async () => {
    const source = new Fed().give("a");
    const third = next(4, 1);
    const onSend = (text: string, { feed: deliver }: RawPeer): void => {
      if (text.includes('"b"')) deliver(third);
    };
    const raw = tailing(source, {}, { onSend });
    await feed(raw, request(1, "tail"), next(2, 1), next(3, 1));
    for (const value of ["b", "c", "d"]) {
      source.give(value);
      await turn();
    }
    expect(raw.messages().slice(1)).toEqual([more(2, ["b"]), more(3, ["c"]), more(4, ["d"])]);
  });

  it("is answered with the error of the source once, and then without a value", async () => {
    const source = new Fed().give("a");
    const raw = tailing(source);
    const errors: unknown[] = [];
    raw.peer.on("error", (error) => errors.push(error));
    await feed(raw, request(1, "tail"), next(2, 1), next(3, 1));
    source.fail(new RpcError(7, "no"));
    await turn();
    expect(raw.messages().slice(1)).toEqual([failure(2, 7, "no"), more(3, [], true)]);
    expect(streamsOf(raw)).toBe(0);
    expect(errors).toEqual([]);
  });

  it("is answered when there is a socket with free capacity, so that streams alone end no session", async () => {
    const { transport, take } = sessionPeer({
      methods: { tail: () => counted() },
      limits: { maxUnsentBytes: 4000 },
    });
    transport.feed(request(1, "tail"));
    await turn();
    const [{ result: first }] = take();
    expect(first.values).toHaveLength(1000);
    transport.suspend();
    transport.feed(next(2, 1));
    transport.feed(request(3, "tail"));
    await pass(1000);
    expect(transport.waiting.map((text) => JSON.parse(text))).toEqual([result(3, { token: 2 })]);
    transport.unsentBytes = 1001;
    transport.resume();
    take();
    await pass(1000);
    expect(take()).toEqual([]);
    transport.unsentBytes = 1000;
    await pass(160);
    expect(take()).toEqual([more(2, counting(1001, 2000))]);
    transport.feed(next(4, 1));
    transport.unsentBytes = 1001;
    await turn();
    transport.feed(abort(1));
    await turn();
    expect(take()).toEqual([more(4, [], true)]);
    transport.feed(next(5, 2));
    await turn();
  });

  it("keeps to a limit of the other side that became known after the stream was opened", async () => {
    const source = new Fed().give(1);
    const { transport, take } = sessionPeer({ methods: { tail: () => source } });
    transport.feed(request(1, "tail"));
    await turn();
    expect(take()).toEqual([result(1, { token: 1, values: [1] })]);
    transport.maxMessageBytes = 400;
    const values = ["a", "b"].map((text) => text.repeat(200));
    source.give(...values, "c".repeat(400));
    for (const id of [2, 3, 4]) {
      transport.feed(next(id, 1));
      await turn();
    }
    expect(take()).toEqual([
      more(2, [values[0]]),
      more(3, [values[1]]),
      failure(4, -32008, "Value of a stream is too large"),
    ]);
  });

  it("counts against no limit, even if the peer is at its limit", async () => {
    const raw = tailing(new Fed().give(1), {
      limits: { maxInFlight: 1 },
      methods: { wait: (_params, { signal }) => new Promise((resolve) => signal.addEventListener("abort", resolve)) },
    });
    await feed(raw, request(1, "tail"), request(2, "wait"), request(3, "tail"));
    expect(raw.messages()[1]).toEqual(failure(3, -32009, "Server is busy"));
    expect(await answersTo(raw, next(4, 1), abort(1))).toEqual([more(4, [], true)]);
  });

  it("is a method of the application if that registers it", async () => {
    const raw = tailing(undefined, { methods: { "$/enumerator/next": () => "mine" } });
    expect(await answersTo(raw, next(1, 1))).toEqual([result(1, "mine")]);
  });

  it("as a notification is only emitted", async () => {
    const raw = tailing(new Fed().give(1));
    const seen: string[] = [];
    raw.peer.on("notification", (method) => seen.push(method));
    await feed(raw, request(1, "tail"), notification("$/enumerator/next", { token: 1 }));
    expect(seen).toEqual(["$/enumerator/next"]);
  });
});
