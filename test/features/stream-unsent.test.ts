/** Streams that cannot be sent or were not sent. No stream without a reader may stay open. The other side is the test. */
import { Readable } from "node:stream";
import { describe, expect, it } from "vitest";
import { lsp, mcp, RpcError, type Context } from "../../src/index.js";
import { inspect } from "../../src/peer/peer.js";
import { useFakeClock } from "../support/clock.js";
import { expectEmpty } from "../support/pair.js";
import { failure, notification, rawPeer, request, result, type RawPeer } from "../support/raw.js";
import { sessionPeer } from "../support/session-peer.js";
import { rejection, turn } from "../support/turns.js";
import { counted, Fed } from "./sources.js";
import { abort, answersTo, cancel, feed, more, next, NO_SUCH_STREAM } from "./tailing.js";

useFakeClock();

describe("offering a stream where none is allowed", () => {
  const NOWHERE = "a stream can be sent only in a request or a result";

  it("throws, in a notification and a batch's", async () => {
    const { peer, sent } = rawPeer();
    const source = counted();
    const stream = peer.offer(source);
    expect(() => peer.notify("m", [stream])).toThrow(new TypeError(NOWHERE));
    expect(() => peer.batch().notify("m", [stream])).toThrow(new TypeError(NOWHERE));
    expect(() => JSON.stringify(stream)).toThrow(new TypeError(NOWHERE));
    expect([sent.length, source.asked, source.returned]).toEqual([0, 0, 0]);
    expectEmpty(peer);
  });

  it("throws, in a notification that another peer sends", () => {
    const [one, other] = [rawPeer(), rawPeer()];
    other.peer.offer([]);
    expect(() => other.peer.notify("m", [one.peer.offer([1])])).toThrow(NOWHERE);
  });

  it("rejects, in another peer's request, and opens no stream in either peer", async () => {
    const [one, other] = [rawPeer(), rawPeer()];
    other.peer.offer([]);
    expect(await rejection(other.peer.request("m", [one.peer.offer([1])]))).toEqual(new TypeError(NOWHERE));
    expect(other.sent).toEqual([]);
    for (const { peer } of [one, other]) expectEmpty(peer);
  });

  it("causes an internal error, in an error's data", async () => {
    const raw = rawPeer({
      methods: {
        m: (_params, { peer }) => {
          throw new RpcError(1, "no", peer.offer([1]));
        },
      },
    });
    expect(await answersTo(raw, request(1, "m"))).toEqual([failure(1, -32603, "Internal error")]);
    expect(raw.errors).toEqual([new TypeError(NOWHERE)]);
  });

  it("fails the stream, in another stream's values", async () => {
    const raw = rawPeer({ methods: { m: (_params, { peer }) => counted(2, () => peer.offer([1])) } });
    expect(await answersTo(raw, request(1, "m"))).toEqual([failure(1, -32603, "Internal error")]);
    expect(raw.errors).toEqual([new TypeError(NOWHERE)]);
    expectEmpty(raw.peer);
  });

  it("rejects the second time, during and after the first call", async () => {
    const raw = rawPeer();
    const stream = raw.peer.offer([1]);
    const first = raw.peer.request("m", [stream]);
    expect(await rejection(raw.peer.request("m", [stream]))).toEqual(new TypeError("a stream can be sent once"));
    raw.feed(result(1, null));
    await first;
    expect(await rejection(raw.peer.request("m", [stream]))).toEqual(new TypeError("a stream can be sent once"));
    const twice = raw.peer.offer([1]);
    expect(await rejection(raw.peer.request("m", [twice, twice]))).toEqual(new TypeError("a stream can be sent once"));
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
    expect(await answersTo(raw, next("a", 2), next("b", 3))).toEqual([
      failure("a", ...NO_SUCH_STREAM),
      more("b", [3], true),
    ]);
    raw.feed(result(1, null));
    await outer;
    expectEmpty(raw.peer);
  });
});

/** Returns a peer whose `open` returns the value that `make` builds around an offered source. */
function opening(source: unknown, make: (stream: object) => unknown, options: object = {}): RawPeer {
  const open = (_params: unknown, { peer }: Context): unknown => make(peer.offer(source as never));
  return rawPeer({ ...options, methods: { open, later: async (...args) => open(...(args as [unknown, Context])) } });
}

/** Fails after the other members of its batch. Their errors make the reply longer than 200 bytes, which no result may. */
async function late(): Promise<never> {
  await turn();
  throw new RpcError(7, "no");
}

const LATE = [7, 8, 9].map((id) => request(id, "late"));

describe("a stream whose message is not sent is ended", () => {
  it.each<[string, unknown, unknown]>([
    ["cannot be encoded", 5n, expect.any(TypeError)],
    ["has a toJSON that throws", { toJSON: () => { throw new Error("no"); } }, new Error("no")],
  ])("in params, when the rest of them %s", async (_name, spoiled, error) => {
    const { peer, sent, errors } = rawPeer();
    const source = counted();
    expect(await rejection(peer.request("m", [peer.offer(source), spoiled]))).toEqual(error);
    await turn();
    expect([sent.length, source.asked, source.returned]).toEqual([0, 0, 1]);
    expect(errors).toEqual([]);
    expectEmpty(peer);
  }); // prettier-ignore

  it("in a result, when the rest of it cannot be encoded", async () => {
    const source = counted();
    const raw = opening(source, (stream) => [stream, 5n]);
    expect(await answersTo(raw, request(1, "open"))).toEqual([failure(1, -32603, "Internal error")]);
    expect(source.returned).toBe(1);
    expectEmpty(raw.peer);
  });

  it("in a result that is too large, alone and in a batch", async () => {
    const sources = [counted(), counted()];
    const rest = [...sources];
    const raw = rawPeer({
      limits: { maxReplyBytes: 100 },
      methods: { open: (_params, { peer }) => [peer.offer(rest.shift()!), "x".repeat(100)] },
    });
    const tooLarge = [-32008, "Response is too large", { maxReplyBytes: 100 }] as const;
    expect(await answersTo(raw, request(1, "open"), [request(2, "open")])).toEqual([
      failure(1, ...tooLarge),
      [failure(2, ...tooLarge)],
    ]);
    expect(sources.map(({ returned }) => returned)).toEqual([1, 1]);
    expectEmpty(raw.peer);
  });

  it.each<[string, (source: AsyncIterable<unknown>, context: Context) => unknown]>([
    ["is a stream", (source) => source],
    ["holds a stream", (source, { peer }) => [peer.offer(source)]],
  ])("when the reply to a batch is too long to be sent, and one of its results %s", async (_name, open) => {
    const source = new Fed().give(1);
    const methods = { late, open: (_params: unknown, context: Context) => open(source, context) };
    const { peer, transport, take } = sessionPeer({ methods });
    transport.maxMessageBytes = 200;
    transport.feed([request(1, "open"), ...LATE]);
    for (let i = 0; i < 3; i++) await turn();
    expect(take()).toEqual([failure(null, -32008, "Response is too large", { maxReplyBytes: 200 })]);
    expect(source.returned).toBe(1);
    expectEmpty(peer);
  });

  it("in a result that the transport refused", async () => {
    const source = counted();
    const open = (_params: unknown, { peer }: Context): object => [peer.offer(source)];
    const raw = rawPeer({ methods: { open } }, { onSend: () => false });
    await feed(raw, request(1, "open"));
    expect(source.returned).toBe(1);
    expectEmpty(raw.peer);
  });

  it("in a result returned after the end of the connection", async () => {
    const source = counted();
    const raw = opening(source, (stream) => [stream]);
    raw.feed(request(1, "later"));
    raw.cut();
    await turn();
    expect([source.asked, source.returned]).toEqual([0, 1]);
    expect(raw.errors).toEqual([]);
    expectEmpty(raw.peer);
  });

  it.each([
    ["answered", lsp, cancel(1), [failure(1, -32800, "Request cancelled")]],
    ["not answered", mcp, notification("notifications/cancelled", { requestId: 1 }), []],
  ])("in the result of a call that was cancelled before, if that is %s", async (_name, dialect, message, answers) => {
    const source = counted();
    const raw = opening(source, (stream) => [stream], { dialect });
    raw.feed(request(1, "later"));
    expect(await answersTo(raw, message)).toEqual(answers);
    expect([source.asked, source.returned]).toEqual([0, 1]);
    expect(raw.errors).toEqual([]);
    expectEmpty(raw.peer);
  });

  it("in a result whose call is cancelled while the answer is pending, with all other streams in it", async () => {
    const sources = [counted(), new Fed().give(1)];
    const raw = rawPeer({ methods: { open: (_params, { peer }) => sources.map((source) => peer.offer(source)) } });
    await feed(raw, request(1, "open"), next(2, 2), next(3, 2));
    expect(await answersTo(raw, cancel(1))).toEqual([failure(3, -32001, "The stream was given up")]);
    expect(sources.map(({ returned }) => returned)).toEqual([1, 1]);
    expectEmpty(raw.peer);
  });

  it.each(["open", "later"])("in the return value of a notification's handler (%s)", async (method) => {
    const source = counted();
    const raw = opening(source, (stream) => ({ stream }));
    await feed(raw, notification(method));
    expect([source.asked, source.returned]).toEqual([0, 1]);
    expect([raw.sent, raw.errors]).toEqual([[], []]);
    expectEmpty(raw.peer);
  });

  it("even if it was never begun, also as a Node stream", async () => {
    const source = new Readable({ read() {} });
    const { peer } = rawPeer();
    await rejection(peer.request("m", [peer.offer(source), 5n]));
    await turn();
    expect(source.destroyed).toBe(true);
  });
});

describe("limits.maxStreams", () => {
  const limits = { maxStreams: 2 };

  it("is 256 by default", async () => {
    const raw = rawPeer({ methods: { tail: () => new Fed().give(1) } });
    for (let id = 1; id <= 257; id++) raw.feed(request(id, "tail"));
    await turn();
    const answers = raw.messages();
    expect(answers.filter(({ result: stream }) => stream?.token !== undefined)).toHaveLength(256);
    expect(answers.find(({ error }) => error)).toEqual(failure(257, -32009, "Too many streams are open"));
  });

  it("refuses a handler's stream with -32009, ends its source, and accepts another when one has ended", async () => {
    const sources: Fed[] = [];
    const raw = rawPeer({ limits, methods: { tail: () => (sources.push(new Fed().give(1)), sources.at(-1)) } });
    await feed(raw, request(1, "tail"), request(2, "tail"));
    expect(await answersTo(raw, request(3, "tail"))).toEqual([failure(3, -32009, "Too many streams are open")]);
    expect(sources.map(({ returned }) => returned)).toEqual([0, 0, 1]);
    expect(await answersTo(raw, abort(1), request(4, "tail"))).toEqual([result(4, { token: 3, values: [1] })]);
    expect(raw.errors).toEqual([]);
  });

  it("refuses a stream in a result with -32009, and ends all streams in it", async () => {
    const sources = [counted(), counted(), counted()];
    const raw = rawPeer({
      limits,
      methods: { open: (_params, { peer }) => sources.map((source) => peer.offer(source)) },
    });
    expect(await answersTo(raw, request(1, "open"))).toEqual([failure(1, -32009, "Too many streams are open")]);
    expect(sources.map(({ returned }) => returned)).toEqual([1, 1, 1]);
    expect(raw.errors).toEqual([]);
    expectEmpty(raw.peer);
  });

  it("rejects a call with a RangeError for a stream in its params, and ends all streams in them", async () => {
    const raw = rawPeer({ limits });
    const sources = [counted(), counted(), counted()];
    const call = raw.peer.request("m", [raw.peer.offer([1])]);
    const error = await rejection(
      raw.peer.request(
        "m",
        sources.map((source) => raw.peer.offer(source)),
      ),
    );
    expect(error).toEqual(new RangeError("`limits.maxStreams`, 2, is reached"));
    expect(sources.map(({ returned }) => returned)).toEqual([1, 1, 0]);
    expect(raw.sent).toHaveLength(1);
    expect(inspect(raw.peer)).toMatchObject({ pending: 1, streams: 1 });
    raw.feed(result(1, null));
    await call;
    expectEmpty(raw.peer);
  });
});

describe("a reply to next that is replaced or not sent", () => {
  it.each<[string, (id: string) => unknown]>([
    ["alone, for its id", (id) => next(id, 1)],
    ["in a batch", (id) => [next(id, 1)]],
  ])("ends the stream, because its values are lost: %s", async (_name, ask) => {
    const source = new Fed().give(1, "x".repeat(300));
    const raw = rawPeer({ limits: { maxReplyBytes: 600 }, methods: { tail: () => source } });
    expect(await answersTo(raw, request(1, "tail"))).toEqual([result(1, { token: 1, values: [1] })]);
    const id = "i".repeat(250);
    const answers = await answersTo(raw, ask(id), next(2, 1));
    expect(answers.flat()).toEqual([
      failure(id, -32008, "Response is too large", { maxReplyBytes: 600 }),
      failure(2, ...NO_SUCH_STREAM),
    ]);
    expect(source.returned).toBe(1);
    expectEmpty(raw.peer);
  });

  it("ends the stream if the whole reply to a batch is too long", async () => {
    const source = new Fed().give(1);
    const { peer, transport, take } = sessionPeer({ methods: { late, tail: () => source } });
    transport.feed(request(1, "tail"));
    await turn();
    expect(take()).toEqual([result(1, { token: 1, values: [1] })]);
    source.give(2);
    transport.maxMessageBytes = 200;
    transport.feed([next(2, 1), ...LATE]);
    for (let i = 0; i < 3; i++) await turn();
    expect(take()).toEqual([failure(null, -32008, "Response is too large", { maxReplyBytes: 200 })]);
    expect(source.returned).toBe(1);
    expectEmpty(peer);
  });

  it("ends the stream of a first reply as well", async () => {
    const source = new Fed().give("x".repeat(300));
    const raw = rawPeer({ limits: { maxReplyBytes: 500 }, methods: { tail: () => source } });
    const id = "i".repeat(250);
    expect(await answersTo(raw, request(id, "tail"))).toEqual([
      failure(id, -32008, "Response is too large", { maxReplyBytes: 500 }),
    ]);
    expect(source.returned).toBe(1);
    expectEmpty(raw.peer);
  });
});
