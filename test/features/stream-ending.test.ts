import { Readable } from "node:stream";
import { describe, expect, it } from "vitest";
import { lsp, RpcError, type Context } from "../../src/index.js";
import { expectEmpty } from "../support/pair.js";
import { failure, rawPeer, request, result, sessionPeer, type RawPeer } from "../support/raw.js";
import { gate, raising, rejection, turn, useVirtualClock } from "../support/time.js";
import { abort, answersTo, cancel, CANCELLED, counted, Fed, feed, GIVEN_UP, more, next } from "./kit.js";
import { NO_SUCH_STREAM, streamsOf, tailing } from "./kit.js";

useVirtualClock();

async function answered(raw: RawPeer, call: Promise<unknown>): Promise<void> {
  raw.feed(result(1, null));
  await call;
  expectEmpty(raw.peer);
}

const idle = (): Readable => new Readable({ read() {}, objectMode: true });

it("$/enumerator/abort fires the signal, answers a pending next as finished, and then ends the source, which may hang", async () => {
  const log: string[] = [];
  const source: AsyncIterable<unknown> = {
    [Symbol.asyncIterator]: () => ({
      next: async () => (log.length === 0 ? (log.push("next"), { done: false, value: 1 }) : gate<any>().promise),
      return: async () => (log.push("return"), gate<any>().promise),
    }),
  };
  const raw = tailing((_params: unknown, { signal }: Context) => {
    signal.addEventListener("abort", () => log.push("signal"));
    return source;
  });
  await feed(raw, request(1, "tail"), next(2, 1));
  expect(await answersTo(raw, abort(1))).toEqual([more(2, [], true)]);
  expect(log).toEqual(["next", "signal", "return"]);
  expectEmpty(raw.peer);
  expect(await answersTo(raw, abort(1), next(3, 1))).toEqual([failure(3, ...NO_SUCH_STREAM)]);
  expect(log).toHaveLength(3);
});

it("$/enumerator/abort destroys a Node stream and cancels a web stream that wait for data, which their iterators could not end", async () => {
  const reasons: unknown[] = [];
  const readable = idle();
  readable.push(1);
  const web = new ReadableStream({ start: (to) => to.enqueue(1), cancel: (reason) => void reasons.push(reason) });
  for (const source of [readable, web]) {
    const raw = tailing(source);
    raw.feed(request(1, "tail"));
    while (raw.sent.length === 0) await turn();
    await feed(raw, next(2, 1));
    expect(await answersTo(raw, abort(1))).toEqual([more(2, [], true)]);
    await turn();
    expect(raw.errors).toEqual([]);
    expectEmpty(raw.peer);
  }
  expect([readable.destroyed, reasons]).toEqual([true, [undefined]]);
});

const failing = (error: unknown): AsyncIterable<unknown> => ({
  [Symbol.asyncIterator]: () => ({
    next: async () => ({ done: false, value: "x".repeat(70_000) }),
    return: async () => raising(error)(),
  }),
});

describe("a source that fails", () => {
  it.each<[string, unknown]>([
    ["has no next", { [Symbol.asyncIterator]: () => ({}) }],
    ["throws when it is asked", { [Symbol.asyncIterator]: () => { throw new Error("secret"); } }],
  ])("because it %s causes one error", async (_name, source) => {
    const raw = tailing(source);
    expect(await answersTo(raw, request(1, "tail"))).toEqual([failure(1, -32603, "Internal error")]);
    expect(raw.errors).toHaveLength(1);
    expectEmpty(raw.peer);
  }); // prettier-ignore

  it.each<[string, (i: number) => unknown, readonly [number, string], number]>([
    ["a BigInt", () => 1n, [-32603, "Internal error"], 1],
    ["a member that JSON cannot carry", () => ({ map: new Map() }), [-32603, "Internal error"], 1],
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
    await feed(raw, request(1, "tail"), () => source.fail(new Error("disk")));
    expect(raw.errors).toEqual([]);
    await feed(raw, abort(1));
    expect([source.returned, raw.errors]).toEqual([0, [new Error("disk")]]);
    expectEmpty(raw.peer);
  });

  it("before it is read, as a Node stream in a result, causes no uncaught exception", async () => {
    const source = idle();
    const raw = rawPeer({ methods: { get: (_params, { peer }: Context) => [peer.offer(source)] } });
    await feed(raw, request(1, "get"));
    // Without a listener, its error would be thrown at the process.
    source.destroy(new Error("no such file"));
    await turn();
    expect(raw.errors).toEqual([]);
    expect(await answersTo(raw, next(2, 1))).toEqual([failure(2, -32603, "Internal error")]);
    expect(raw.errors).toEqual([new Error("no such file")]);
  });

  it("while it is ended is emitted as `error` once, unless the error is the abort", async () => {
    const onDestroy = new Error("on destroy");
    const onReturn = new Error("on return");
    const readable = (): Readable => new Readable({ read() {}, destroy: (_error, done) => done(onDestroy) });
    const sources = [failing(onReturn), failing(new DOMException("stopped", "AbortError")), readable(), readable()];
    const raw = rawPeer({ methods: { get: (_params, { peer }: Context) => sources.map((one) => peer.offer(one)) } });
    // One of the Node streams was begun, and the other was not.
    await feed(raw, request(1, "get"), next(2, 1), next(3, 2), next(4, 3), abort(1), abort(2), abort(3), abort(4));
    expect(raw.errors).toEqual([onReturn, onDestroy, onDestroy]);
    expectEmpty(raw.peer);
  });
});

it("a call that is cancelled while its answer is pending still reaches the stream", async () => {
  const source = new Fed().give(1);
  const raw = tailing(source);
  await feed(raw, request(1, "tail"), cancel(2), cancel("1"));
  expect([raw.sent.length, streamsOf(raw)]).toEqual([1, 1]);
  await feed(raw, cancel(1));
  expect([source.returned, raw.contexts[0]!.signal.aborted]).toEqual([1, true]);
  expectEmpty(raw.peer);
});

it("the end of the connection ends every source and aborts its signal, with or without a pending next", async () => {
  const sources = [new Fed(), new Fed().give(1), new Fed().give(1), counted()] as const;
  const raw = tailing(([i]: [number]) => sources[i]);
  await feed(raw, ...sources.map((_source, i) => request(i, "tail", [i])), next("n", 2), () => sources[2].finish());
  raw.cut();
  await turn();
  // A source that throws the reason has not failed.
  await feed(raw, () => sources[1].fail(raw.contexts[1]!.signal.reason));
  expect(sources.map(({ returned }) => returned)).toEqual([1, 1, 0, 1]);
  for (const { signal } of raw.contexts) expect(signal.reason.message).toContain("1006");
  expect(raw.errors).toEqual([]);
  expectEmpty(raw.peer);
});

/** Fails after the other members of its batch. Their errors make the reply longer than 200 bytes, which no result may. */
async function late(): Promise<never> {
  await turn();
  throw new RpcError(7, "no");
}

const LATE = [7, 8, 9].map((id) => request(id, "late"));
const tooLarge = (maxReplyBytes: number) => [-32008, "Response is too large", { maxReplyBytes }] as const;

describe("a stream whose message is not sent is ended", () => {
  it("in params, when the rest of them cannot be encoded", async () => {
    const { peer, sent, errors } = rawPeer();
    const source = counted();
    const readable = idle();
    const params = [peer.offer(source), peer.offer(readable), 5n];
    expect(await rejection(peer.request("m", params))).toBeInstanceOf(TypeError);
    await turn();
    expect([sent.length, source.asked, source.returned, readable.destroyed, errors]).toEqual([0, 0, 1, true, []]);
    expectEmpty(peer);
  });

  it.each<[string, (stream: object) => unknown, object | undefined]>([
    ["cannot be encoded", (stream) => [stream, 5n], failure(1, -32603, "Internal error")],
    ["is refused by the transport", (stream) => [stream], undefined],
  ])("in a result, alone and in a batch, when it %s", async (_name, make, answer) => {
    for (const isBatch of [false, true]) {
      const source = counted();
      const open = (_params: unknown, { peer }: Context): unknown => make(peer.offer(source as never));
      const onSend = (): boolean => answer !== undefined;
      const raw = rawPeer({ methods: { open } }, { onSend });
      const answers = await answersTo(raw, isBatch ? [request(1, "open")] : request(1, "open"));
      if (answer !== undefined) expect(answers).toEqual([isBatch ? [answer] : answer]);
      expect(source.returned).toBe(1);
      expectEmpty(raw.peer);
    }
  });

  it("when the reply to a batch is too long to be sent: in its results, and of its requests for more", async () => {
    const [source, tail] = [new Fed().give(1), new Fed().give(1)];
    const open = (_params: unknown, { peer: own }: Context): unknown => [own.offer(source)];
    const { peer, transport, take } = sessionPeer({ methods: { late, open, tail: () => tail } });
    transport.feed(request(1, "tail"));
    await turn();
    take();
    tail.give(2);
    transport.maxMessageBytes = 200;
    transport.feed([request(2, "open"), next(3, 1), ...LATE]);
    for (let i = 0; i < 3; i++) await turn();
    expect(take()).toEqual([failure(null, ...tooLarge(200))]);
    expect([source.returned, tail.returned]).toEqual([1, 1]);
    expectEmpty(peer);
  });

  it("in a result of a call that was cancelled before", async () => {
    const source = counted();
    const later = async (_params: unknown, { peer }: Context): Promise<unknown> => [peer.offer(source)];
    const raw = rawPeer({ dialect: lsp, methods: { later } });
    expect(await answersTo(raw, [request(1, "later"), cancel(1)])).toEqual([[failure(1, ...CANCELLED)]]);
    expect([source.asked, source.returned, raw.errors]).toEqual([0, 1, []]);
    expectEmpty(raw.peer);
  });

  it("in a result whose call is cancelled while the answer is pending, with all other streams in it", async () => {
    const sources = [counted(), new Fed().give(1)];
    const raw = rawPeer({ methods: { open: (_params, { peer }) => sources.map((source) => peer.offer(source)) } });
    await feed(raw, request(1, "open"), next(2, 2), next(3, 2));
    expect(await answersTo(raw, cancel(1))).toEqual([failure(3, ...GIVEN_UP)]);
    expect(sources.map(({ returned }) => returned)).toEqual([1, 1]);
    expectEmpty(raw.peer);
  });

  it("when its reply to next is replaced, because its values are lost", async () => {
    const id = "i".repeat(250);
    const source = new Fed().give(1, "x".repeat(300));
    const raw = tailing(source, { limits: { maxReplyBytes: 600 } });
    expect(await answersTo(raw, request(1, "tail"))).toEqual([result(1, { token: 1, values: [1] })]);
    const answers = await answersTo(raw, next(id, 1), next(2, 1));
    expect(answers).toEqual([failure(id, ...tooLarge(600)), failure(2, ...NO_SUCH_STREAM)]);
    expect(source.returned).toBe(1);
    expectEmpty(raw.peer);
  });
});

it("a stream that is offered is made of nothing but an iterable", () => {
  const { peer } = rawPeer();
  for (const source of [5, null, {}])
    expect(() => peer.offer(source as never)).toThrow(/^Expected `source` to be .*, got /);
});

it("a stream that is offered may be nested in a result, and outlives the answer", async () => {
  const source = new Fed().give(1);
  const raw = tailing((_params: unknown, { peer }: Context) => ({ lines: peer.offer(source), count: 1 }));
  expect(await answersTo(raw, request(1, "tail"))).toEqual([result(1, { lines: { token: 1 }, count: 1 })]);
  expect(await answersTo(raw, next(2, 1), abort(1))).toEqual([more(2, [1])]);
  expect(source.returned).toBe(1);
  // Aborting one of several must not end the others.
  expect(raw.contexts[0]!.signal.aborted).toBe(false);
  expectEmpty(raw.peer);
});

describe("a stream in params ends with its call", () => {
  it.each(["is aborted", "is lost with the connection"])("when that %s", async (how) => {
    const raw = rawPeer();
    const sources = [counted(), new Fed().give(1)];
    const controller = new AbortController();
    const params = sources.map((source) => raw.peer.offer(source));
    const call = Promise.allSettled([raw.peer.request("m", params, { signal: controller.signal })]);
    // One stream that was never read, and one with a pending request for its second value.
    await feed(raw, next("a", 2), next("b", 2));
    if (how === "is aborted") controller.abort();
    else raw.cut();
    await call;
    await turn();
    expect(sources.map(({ asked, returned }) => [asked, returned])).toEqual([
      [0, 1],
      [2, 1],
    ]);
    expectEmpty(raw.peer);
  });

  it("and a pending next is answered with an error, not as finished", async () => {
    const raw = rawPeer();
    const call = raw.peer.request("m", [raw.peer.offer(new Fed().give(1))]);
    await feed(raw, next("a", 1), next("b", 1));
    expect(await answersTo(raw, result(1, null), next("c", 1))).toEqual([
      failure("b", ...GIVEN_UP),
      failure("c", ...NO_SUCH_STREAM),
    ]);
    await call;
    expect(raw.errors).toEqual([]);
  });

  it("also when that is not sent", async () => {
    const [refusing, closed] = [rawPeer({}, { onSend: () => false }), rawPeer()];
    await closed.peer.close();
    for (const { peer } of [refusing, closed]) {
      const source = counted();
      expect(await rejection(peer.request("m", [peer.offer(source)]))).toMatchObject({ outcome: "not-sent" });
      await turn();
      expect([source.asked, source.returned]).toEqual([0, 1]);
      expectEmpty(peer);
    }
  });
});

describe("offering a stream where none is allowed", () => {
  const NOWHERE = new TypeError("a stream can be sent only in a request or a result");
  const TWICE = new TypeError("a stream can be sent once");

  it("throws or rejects, in a notification and in another peer's request", async () => {
    const [{ peer, sent }, other] = [rawPeer(), rawPeer()];
    const source = counted();
    const stream = peer.offer(source);
    other.peer.offer([]);
    expect(() => peer.notify("m", [stream])).toThrow(NOWHERE);
    expect(() => peer.batch().notify("m", [stream])).toThrow(NOWHERE);
    expect(await rejection(other.peer.request("m", [stream]))).toEqual(NOWHERE);
    expect([sent.length, other.sent.length, source.asked, source.returned]).toEqual([0, 0, 0, 0]);
    for (const { peer: one } of [{ peer }, other]) expectEmpty(one);
  });

  it.each<[string, (context: Context) => unknown]>([
    ["an error's data", ({ peer }) => Promise.reject(new RpcError(1, "no", peer.offer([1])))],
    ["another stream's values", ({ peer }) => counted(2, () => peer.offer([1]))],
  ])("causes an internal error, in %s", async (_where, m) => {
    const raw = tailing((_params: unknown, context: Context) => m(context));
    expect(await answersTo(raw, request(1, "tail"))).toEqual([failure(1, -32603, "Internal error")]);
    expect(raw.errors).toEqual([NOWHERE]);
    expectEmpty(raw.peer);
  });

  it("rejects the second time, during and after the first call", async () => {
    const raw = rawPeer();
    const stream = raw.peer.offer([1]);
    const first = raw.peer.request("m", [stream]);
    expect(await rejection(raw.peer.request("m", [stream]))).toEqual(TWICE);
    await answered(raw, first);
    expect(await rejection(raw.peer.request("m", [stream]))).toEqual(TWICE);
    const twice = raw.peer.offer([1]);
    expect(await rejection(raw.peer.request("m", [twice, twice]))).toEqual(TWICE);
    expect(raw.sent).toHaveLength(1);
    expectEmpty(raw.peer);
  });

  it("keeps the streams of a request apart from those of a request made during its encoding", async () => {
    const raw = rawPeer();
    const { peer } = raw;
    let inner!: Promise<unknown>;
    const outer = peer.request("outer", [
      peer.offer([1]),
      { toJSON: () => ((inner = peer.request("inner", [peer.offer([2])])), null) },
      peer.offer([3]),
    ]);
    expect(raw.messages()).toEqual([
      request(2, "inner", [{ token: 2 }]),
      request(1, "outer", [{ token: 1 }, null, { token: 3 }]),
    ]);
    raw.feed(result(2, null));
    await inner;
    const answers = await answersTo(raw, next("a", 2), next("b", 3));
    expect(answers).toEqual([failure("a", ...NO_SUCH_STREAM), more("b", [3], true)]);
    await answered(raw, outer);
  });
});

describe("limits.maxStreams", () => {
  const limits = { maxStreams: 2 };

  it("is 256 by default", async () => {
    const raw = tailing(() => new Fed().give(1));
    await feed(raw, ...Array.from({ length: 257 }, (_, id) => request(id, "tail")));
    const refused = raw.messages().filter(({ error }) => error !== undefined);
    expect(refused).toEqual([failure(256, -32009, "Too many streams are open")]);
  });

  it("rejects a call with a RangeError for a stream in its params, and ends all streams in them", async () => {
    const raw = rawPeer({ limits });
    const sources = [counted(), counted(), counted()];
    const call = raw.peer.request("m", [raw.peer.offer([1])]);
    const params = sources.map((source) => raw.peer.offer(source));
    expect(await rejection(raw.peer.request("m", params))).toBeInstanceOf(RangeError);
    expect(sources.map(({ returned }) => returned)).toEqual([1, 1, 0]);
    expect(raw.sent).toHaveLength(1);
    expect(raw.peer.stats()).toMatchObject({ pending: 1, streams: 1 });
    await answered(raw, call);
  });
});
