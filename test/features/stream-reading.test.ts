/** Reading a stream: the messages sent for it, and the handling of replies, ends and failures. The other side is the test. */
import { describe, expect, it } from "vitest";
import { pair, ProtocolError, RpcError, TimeoutError } from "../../src/index.js";
import { countedSignal } from "../support/counting.js";
import { expectEmpty } from "../support/pair.js";
import { failure, rawPeer, request, result, type RawPeer } from "../support/raw.js";
import { sessionPeer } from "../support/session-peer.js";
import { pass, useVirtualClock } from "../support/time.js";
import { Outcomes, rejection, turn } from "../support/turns.js";
import { abort, cancel, feed, more, next, readAll } from "./kit.js";

useVirtualClock();

/** The values that were read, and the outcome of reading: "end" or the error. */
interface Read {
  readonly raw: RawPeer;
  readonly values: unknown[];
  readonly end: unknown[];
}

/** Reads a stream in the background. */
async function reading(raw: RawPeer, options?: object): Promise<Read> {
  const values: unknown[] = [];
  const end: unknown[] = [];
  const read = async (): Promise<void> => {
    for await (const value of raw.peer.stream("tail", undefined, options)) values.push(value);
  };
  read().then(
    () => end.push("end"),
    (error: unknown) => end.push(error),
  );
  await turn();
  return { raw, values, end };
}

/** Reads a stream of a new peer in the background, and answers its calls with these messages, one after the other. */
async function readingFrom(...messages: object[]): Promise<Read> {
  const read = await reading(rawPeer());
  await feed(read.raw, ...messages);
  return read;
}

/** Begins to read a stream of a new peer, and answers its call with this stream, if there is one. */
async function beginReading(
  opening?: object,
  options?: object,
  isReciproc = false,
): Promise<{ raw: RawPeer; stream: AsyncIterator<unknown>; first: Promise<IteratorResult<unknown>> }> {
  const raw = rawPeer({}, { isReciproc });
  const stream = raw.peer.stream("tail", undefined, options)[Symbol.asyncIterator]();
  const first = stream.next();
  await turn();
  if (opening !== undefined) await feed(raw, result(1, opening));
  return { raw, stream, first };
}

const DONE = { done: true, value: undefined };

describe("reading a stream", () => {
  it("calls when reading begins, requests more values ahead, and ends with the last value", async () => {
    const raw = rawPeer();
    const stream = raw.peer.stream("tail", { file: "log" })[Symbol.asyncIterator]();
    await turn();
    expect(raw.sent).toEqual([]);
    const first = stream.next();
    await turn();
    expect(raw.messages()).toEqual([request(1, "tail", { file: "log" })]);
    await feed(raw, result(1, { token: "t", values: [1, 2] }));
    expect(await first).toEqual({ done: false, value: 1 });
    // Sent before the value 2 is read.
    expect(raw.messages()[1]).toEqual(next(2, "t"));
    await feed(raw, more(2, [3]));
    expect(raw.sent).toHaveLength(2);
    expect([await stream.next(), await stream.next()].map(({ value }) => value)).toEqual([2, 3]);
    expect(raw.messages()[2]).toEqual(next(3, "t"));
    await feed(raw, more(3, [4], true));
    expect(await stream.next()).toEqual({ done: false, value: 4 });
    for (let i = 0; i < 2; i++) expect(await stream.next()).toEqual(DONE);
    await stream.return!();
    expect(raw.sent).toHaveLength(3);
    expectEmpty(raw.peer);
  });

  it.each<[string, object, unknown[]]>([
    ["an empty one", {}, []],
    ["a complete one", { values: [1, null, "", false, [2], {}] }, [1, null, "", false, [2], {}]],
    ["one with a token that is null", { token: null, values: [1] }, [1]],
    ["one with members of another kind", { values: [1], more: true }, [1]],
  ])("reads %s from the first reply, and requests no more", async (_name, stream, values) => {
    const read = await readingFrom(result(1, stream));
    expect([read.values, read.end]).toEqual([values, ["end"]]);
    expect(read.raw.sent).toHaveLength(1);
    expectEmpty(read.raw.peer);
  });

  const most = "x".repeat(1024);
  const nested = { deep: [most.slice('{"deep":[""]}'.length)] };

  it.each([0, "", -1.5, false, true, [], {}, 2 ** 60, most, nested])(
    "sends a token of at most 1,024 characters back unchanged (%#)",
    async (token) => {
      const { raw, end } = await readingFrom(result(1, { token }));
      expect(raw.messages()[1]).toEqual(next(2, token));
      await feed(raw, more(2, [], true));
      expect(end).toEqual(["end"]);
    },
  );

  it.each<[string, unknown]>([
    ["a string", `${most}x`],
    ["an object", { ...nested, x: "" }],
  ])("refuses a longer token, and sends it not once: %s", async (_kind, token) => {
    const refusal = expect.objectContaining({ name: "ProtocolError", raw: { token, values: [1] } });
    const { raw, values, end } = await readingFrom(result(1, { token, values: [1] }));
    expect([values, end]).toEqual([[], [refusal]]);
    expect(() => raw.peer.iterate({ token, values: [1] } as never)).toThrow(ProtocolError);
    await turn();
    expect(raw.sent).toHaveLength(1);
    expectEmpty(raw.peer);
  });

  it.each([
    [false, 1],
    [true, 2],
  ])("at a reciproc peer (%s) requests %s replies ahead, and reads them in order", async (isReciproc, depth) => {
    const { raw, stream, first } = await beginReading({ token: 9, values: ["a"] }, undefined, isReciproc);
    expect(await first).toMatchObject({ value: "a" });
    const ids = Array.from({ length: depth }, (_, i) => 2 + i);
    expect(raw.messages().slice(1)).toEqual(ids.map((id) => next(id, 9)));
    for (const id of ids) await feed(raw, more(id, [id], id === ids.at(-1)));
    // Nothing is requested before the first of them is read.
    expect(raw.sent).toHaveLength(1 + depth);
    for (const value of ids) expect(await stream.next()).toEqual({ done: false, value });
    expect(await stream.next()).toEqual(DONE);
    expect(raw.sent).toHaveLength(1 + depth);
    expectEmpty(raw.peer);
  });

  it("has one request pending at most at a foreign peer, and settles calls of next() in their order", async () => {
    const raw = rawPeer();
    const stream = raw.peer.stream("tail")[Symbol.asyncIterator]();
    const outcomes = new Outcomes();
    for (let i = 0; i < 6; i++) outcomes.watch(`${i}`, stream.next());
    await turn();
    await feed(raw, result(1, { token: 9 }), more(2, ["a", "b"]), more(3, ["c"]), more(4, ["d"], true));
    expect(outcomes.list).toEqual([
      ...["a", "b", "c", "d"].map((value, i) => ({ name: `${i}`, value: { done: false, value } })),
      ...[4, 5].map((i) => ({ name: `${i}`, value: DONE })),
    ]);
    expect(raw.sent).toHaveLength(4);
  });

  it("is possible only once", async () => {
    const raw = rawPeer();
    const stream = raw.peer.stream("tail");
    const read = readAll(stream);
    expect(await rejection(readAll(stream))).toMatchObject({ message: "a stream can be read once" });
    await turn();
    raw.feed(result(1, { values: [1] }));
    expect(await read).toEqual([1]);
    // A received array stays as it was.
    const received = Object.freeze({ values: Object.freeze([1]) as unknown[] }) as never;
    const again = readAll(raw.peer.iterate(received));
    expect(() => raw.peer.iterate(received)).toThrow("a stream can be read once");
    expect(await again).toEqual([1]);
  });

  it("that never begins sends nothing", async () => {
    const raw = rawPeer();
    raw.peer.stream("tail");
    raw.peer.iterate({ token: 0 } as never);
    const returned = raw.peer.stream("tail")[Symbol.asyncIterator]();
    expect(await returned.return!(5)).toEqual({ done: true, value: 5 });
    expect(await returned.next()).toEqual(DONE);
    await raw.peer.close();
    expect(raw.sent).toEqual([]);
  });
});

describe("a reader that stops", () => {
  it.each<[string, object, object[]]>([
    ["an abort", { token: "t", values: [1, 2, 3] }, [next(2, "t"), abort("t")]],
    ["no abort at the last value", { values: [1, 2] }, []],
  ])("sends %s when it breaks its loop, and ignores a late reply", async (_what, opening, sent) => {
    const raw = rawPeer();
    const read = async (): Promise<void> => {
      for await (const value of raw.peer.stream("tail")) if (value === 2) break;
    };
    const done = read();
    await turn();
    await feed(raw, result(1, opening));
    await done;
    await feed(raw, more(2, [4], true));
    expect(raw.messages().slice(1)).toEqual(sent);
    expectEmpty(raw.peer);
  });

  it("settles a pending next() at once when it returns", async () => {
    const { raw, stream, first } = await beginReading({ token: 7 });
    expect(await stream.return!("bye")).toEqual({ done: true, value: "bye" });
    expect(await first).toEqual(DONE);
    await stream.return!();
    expect(raw.messages().slice(1)).toEqual([next(2, 7), abort(7)]);
  });

  it.each<
    [string, object | undefined, (stop: { stream: AsyncIterator<unknown>; controller: AbortController }) => unknown]
  >([
    ["returns", undefined, ({ stream }) => stream.return!()],
    ["is aborted", undefined, ({ controller }) => controller.abort()],
    ["times out", { timeoutMs: 100 }, () => pass(100)],
  ])("cancels the call when it %s before the first reply, with or without a dialect", async (how, options, stop) => {
    const controller = new AbortController();
    const { raw, stream, first } = await beginReading(undefined, { signal: controller.signal, ...options });
    const outcome = Promise.allSettled([first]);
    await stop({ stream, controller });
    const reason = how === "times out" ? expect.any(TimeoutError) : controller.signal.reason;
    expect(await outcome).toMatchObject([how === "returns" ? { value: DONE } : { reason }]);
    expectEmpty(raw.peer);
    await feed(raw, failure(1, -32800, "Request cancelled"));
    expect(raw.messages().slice(1)).toEqual([cancel(1)]);
  });

  it.each<[string, object, object[]]>([
    ["aborts the stream of the first reply", { token: "t", values: [1] }, [abort("t")]],
    ["sends no abort for a complete stream", { values: [1] }, []],
  ])("%s when it stops before reading that reply", async (_what, opening, sent) => {
    const { raw, stream, first } = await beginReading();
    // The call is settled, and its result has not been read yet.
    raw.feed(result(1, opening));
    void stream.return!();
    expect(await first).toEqual(DONE);
    await turn();
    expect(raw.messages().slice(1)).toEqual(sent);
    expectEmpty(raw.peer);
  });
});

describe("a reader's signal", () => {
  it("aborts the producer at once after the first reply, even with unread values", async () => {
    const controller = new AbortController();
    const { raw, stream } = await beginReading({ token: "t", values: [1, 2] }, { signal: controller.signal });
    controller.abort("x");
    expect(raw.messages().slice(1)).toEqual([next(2, "t"), abort("t")]);
    expect(await rejection(stream.next())).toBe("x");
    // A failure is reported once.
    expect(await stream.next()).toEqual(DONE);
  });

  it("does nothing after the end, and has no listeners left", async () => {
    const { controller, listeners } = countedSignal();
    const { raw, end } = await reading(rawPeer(), { signal: controller.signal });
    await feed(raw, result(1, { token: "t" }));
    expect(listeners()).toBe(1);
    await feed(raw, more(2, [], true));
    expect([end, listeners()]).toEqual([["end"], 0]);
    controller.abort("late");
    await turn();
    expect(raw.sent).toHaveLength(2);
  });

  it.each([
    ["signal", { signal: "soon" }],
    ["timeoutMs", { timeoutMs: 0 }],
    ["timeout", { timeout: 5 }],
  ])("and options reject the first read if %s is invalid", async (name, options) => {
    const { raw, end } = await reading(rawPeer(), options);
    expect(end).toEqual([expect.any(TypeError)]);
    expect((end[0] as Error).message).toContain(`\`${name}\``);
    expect(raw.sent).toEqual([]);
  });
});

it("a reader's timeout does not apply after the first reply", async () => {
  const { raw, values, end } = await reading(rawPeer({ timeoutMs: 50 }), { timeoutMs: 100, maxTotalTimeoutMs: 200 });
  await pass(99);
  await feed(raw, result(1, { token: "t" }));
  await pass(10 ** 9);
  expect(end).toEqual([]);
  await feed(raw, more(2, [1], true));
  expect([values, end]).toEqual([[1], ["end"]]);
});

describe("a stream that fails", () => {
  it.each<[string, object[], unknown[], object, object[]]>([
    ["its call", [failure(1, 404, "no file", { file: "log" })], [], { code: 404, data: { file: "log" } }, []],
    // The error freed the token.
    [
      "more values",
      [result(1, { token: "t", values: [1] }), failure(2, 5, "no more")],
      [1],
      { code: 5 },
      [next(2, "t")],
    ],
    [
      "a busy request for more values, which left the token in use",
      [result(1, { token: "t" }), failure(2, -32009, "Too many messages")],
      [],
      { code: -32009 },
      [next(2, "t"), abort("t")],
    ],
  ])("with an error for %s rejects after the values before it", async (_what, messages, values, error, sent) => {
    const read = await readingFrom(...messages);
    expect(read.end[0]).toBeInstanceOf(RpcError);
    expect([read.values, read.end]).toMatchObject([values, [{ method: "tail", ...error }]]);
    expect(read.raw.messages().slice(1)).toEqual(sent);
  });

  it.each<[string, unknown, object[]]>([
    ["null", null, []],
    ["a number", 5, []],
    ["an array", [1, 2], []],
    ["an object whose values are none", { values: "abc" }, []],
    ["an object whose values are null", { values: null }, []],
    ["an object that is no stream", { rows: [1, 2] }, []],
    ["an object with invalid values beside a token", { token: "t", values: {} }, [abort("t")]],
  ])("because its first reply is %s rejects with a ProtocolError", async (_name, stream, sent) => {
    const { raw, end } = await readingFrom(result(1, stream));
    expect(end).toEqual([expect.any(ProtocolError)]);
    expect(end[0]).toMatchObject({ raw: stream });
    expect(raw.messages().slice(1)).toEqual(sent);
    expectEmpty(raw.peer);
  });

  it.each<[string, () => unknown, string]>([
    ["an empty object", () => ({}), "an object"],
    ["a list", () => [1, 2], "an array"],
    ["nothing", () => undefined, "`null`"],
    ["a long text", () => "x".repeat(1000), `\`${"x".repeat(99)}`],
  ])("because the method of a reciproc peer returns %s names the method and what came", async (_name, rows, came) => {
    const [peer, other] = pair({}, { methods: { rows } });
    const error = await rejection(readAll(peer.stream("rows")));
    expect(error).toBeInstanceOf(ProtocolError);
    expect(error.message).toBe(`expected a stream of "rows", got ${came}`);
    await Promise.all([peer.close(), other.closed]);
  });

  it.each<[string, object]>([
    ["null", result(2, null)],
    ["an array", result(2, [1])],
    ["an object without values", result(2, { finished: true })],
    ["an object with values that are none", result(2, { values: { length: 1 }, finished: false })],
    ["an object that does not say whether it is finished", result(2, { values: [1] })],
    ["an object that says so by something else", result(2, { values: [1], finished: 1 })],
    ["an object with no values that says there are more", result(2, { values: [], finished: false })],
    ["no response", { jsonrpc: "2.0", id: 2 }],
  ])("because more of it is %s rejects with a ProtocolError, and is aborted", async (_name, reply) => {
    const { raw, values, end } = await readingFrom(result(1, { token: "t", values: [0] }), reply);
    expect([values, end]).toEqual([[0], [expect.any(ProtocolError)]]);
    if ("result" in reply) expect(end[0]).toMatchObject({ raw: reply.result });
    expect(raw.messages().slice(2)).toEqual([abort("t")]);
    expectEmpty(raw.peer);
  });
});

it("a stream whose connection is lost rejects as unknown, even if the request for more was never sent", async () => {
  const cause = new Error("the session is over");
  const { peer, transport } = sessionPeer();
  transport.onSend = (text) => {
    if (!text.includes('"tail"')) return;
    transport.suspend();
    transport.feed(result(1, { token: "t", values: [1, 2] }));
  };
  const stream = peer.stream("tail")[Symbol.asyncIterator]();
  expect([await stream.next(), await stream.next()].map(({ value }) => value)).toEqual([1, 2]);
  const last = rejection(stream.next());
  transport.lose(cause);
  expect(await last).toMatchObject({ code: "CONNECTION_LOST", outcome: "unknown", method: "tail", cause });
});

describe("iterate", () => {
  it.each([undefined, null, 5, "stream", true])("throws for %j", (stream) => {
    expect(() => rawPeer().peer.iterate(stream as never)).toThrow(/^Expected `stream` to be .*, got /);
  });

  it("aborts an unread stream once when its iterator is returned", async () => {
    const raw = rawPeer();
    const stream = raw.peer.iterate({ token: 0 } as never)[Symbol.asyncIterator]();
    await stream.return!();
    await stream.return!();
    expect(await stream.next()).toEqual(DONE);
    const begun = raw.peer.iterate({ token: 1 } as never)[Symbol.asyncIterator]();
    void begun.next();
    void begun.return!();
    const complete = raw.peer.iterate({ values: [1] } as never)[Symbol.asyncIterator]();
    await complete.return!();
    await turn();
    expect(raw.messages()).toEqual([abort(0), abort(1)]);
  });
});
