/** Reading a stream: the messages sent for it, and the handling of the replies. The other side is the test. */
import { describe, expect, it } from "vitest";
import { TimeoutError } from "../../src/index.js";
import { pass, useFakeClock } from "../support/clock.js";
import { countedSignal } from "../support/counting.js";
import { expectEmpty } from "../support/pair.js";
import { failure, notification, rawPeer, request, result } from "../support/raw.js";
import { Outcomes, rejection, turn } from "../support/turns.js";
import { readAll } from "./joined.js";
import { beginReading, reading, readingFrom } from "./reading.js";
import { abort, feed, more, next } from "./tailing.js";

useFakeClock();

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
    for (let i = 0; i < 3; i++) expect(await stream.next()).toEqual({ done: true, value: undefined });
    await stream.return!();
    expect(raw.sent).toHaveLength(3);
    expectEmpty(raw.peer);
  });

  it.each<[string, object, unknown[]]>([
    ["an empty one", {}, []],
    ["an empty one with values", { values: [] }, []],
    ["a complete one", { values: [1, null, "", false, [2], {}] }, [1, null, "", false, [2], {}]],
    ["one with a token that is null", { token: null, values: [1] }, [1]],
    ["one with members of another kind", { values: [1], more: true }, [1]],
  ])("reads %s from the first reply, and requests no more", async (_name, stream, values) => {
    const raw = rawPeer();
    const read = readAll(raw.peer.stream("tail"));
    await turn();
    raw.feed(result(1, stream));
    expect(await read).toEqual(values);
    expect(raw.sent).toHaveLength(1);
    expectEmpty(raw.peer);
  });

  it.each([0, "", "t", -1.5, false, true, [], {}, { deep: [1] }, 2 ** 60])(
    "sends the token %j back unchanged",
    async (token) => {
      const raw = rawPeer();
      const read = readAll(raw.peer.stream("tail"));
      await turn();
      await feed(raw, result(1, { token }));
      expect(raw.messages()[1]).toEqual(next(2, token));
      raw.feed(more(2, [], true));
      expect(await read).toEqual([]);
    },
  );

  const most = "x".repeat(1024);
  const nested = { deep: [most.slice('{"deep":[""]}'.length)] };

  it.each<[string, unknown]>([
    ["a string", most],
    ["an object", nested],
  ])("sends a token of 1,024 characters back: %s", async (_kind, token) => {
    const { raw, first } = await beginReading({ token });
    expect(raw.messages()[1]).toEqual(next(2, token));
    await feed(raw, more(2, [], true));
    expect(await first).toEqual({ done: true, value: undefined });
  });

  it.each<[string, unknown]>([
    ["a string", `${most}x`],
    ["an object", { ...nested, x: "" }],
  ])("refuses a longer token, and sends it not once: %s", async (_kind, token) => {
    const refusal = expect.objectContaining({
      message: "a stream must have a token of at most 1024 characters",
      raw: { token, values: [1] },
    });
    const { raw, values, end } = await readingFrom(result(1, { token, values: [1] }));
    expect([values, end]).toEqual([[], [refusal]]);
    expect(() => raw.peer.iterate({ token, values: [1] } as never)).toThrow(refusal as Error);
    await turn();
    expect(raw.sent).toHaveLength(1);
    expectEmpty(raw.peer);
  });

  it.each([
    [false, 1],
    [true, 2],
  ])("at a reciproc peer (%s) requests %s replies ahead, and reads them in order", async (isReciproc, depth) => {
    const raw = rawPeer({}, { isReciproc });
    const stream = raw.peer.stream("tail")[Symbol.asyncIterator]();
    const first = stream.next();
    await turn();
    await feed(raw, result(1, { token: 9, values: ["a"] }));
    expect(await first).toMatchObject({ value: "a" });
    const ids = Array.from({ length: depth }, (_, i) => 2 + i);
    expect(raw.messages().slice(1)).toEqual(ids.map((id) => next(id, 9)));
    for (const id of ids) await feed(raw, more(id, [id], id === ids.at(-1)));
    // Nothing is requested before the first of them is read.
    expect(raw.sent).toHaveLength(1 + depth);
    for (const value of ids) expect(await stream.next()).toEqual({ done: false, value });
    expect(await stream.next()).toEqual({ done: true, value: undefined });
    expect(raw.sent).toHaveLength(1 + depth);
    expectEmpty(raw.peer);
  });

  it.each(["break", "return", "the end"])("leaves a received array as it was, after %s", async (how) => {
    const raw = rawPeer();
    const received = Object.freeze({ values: Object.freeze([1, 2, 3]) as unknown[] });
    const stream = raw.peer.iterate(received as never)[Symbol.asyncIterator]();
    expect(await stream.next()).toEqual({ done: false, value: 1 });
    if (how === "return") await stream.return!();
    else if (how === "break")
      for await (const value of { [Symbol.asyncIterator]: () => stream }) if (value === 2) break;
    if (how === "the end") expect([await stream.next(), await stream.next()].map(({ value }) => value)).toEqual([2, 3]);
    expect(await stream.next()).toEqual({ done: true, value: undefined });
    expect(received.values).toEqual([1, 2, 3]);
    expectEmpty(raw.peer);
  });

  it("ends with the last value of a reciproc peer, whatever it answers to the request after that", async () => {
    const raw = rawPeer({}, { isReciproc: true });
    const read = readAll(raw.peer.stream("tail"));
    await turn();
    await feed(raw, result(1, { token: 9 }));
    raw.feed(more(2, ["a", "b"], true));
    raw.feed(failure(3, -32001, "No such stream"));
    expect(await read).toEqual(["a", "b"]);
    expectEmpty(raw.peer);
  });

  it("has one request pending at most at a foreign peer, and settles calls of next() in their order", async () => {
    const raw = rawPeer();
    const stream = raw.peer.stream("tail")[Symbol.asyncIterator]();
    const outcomes = new Outcomes();
    for (let i = 0; i < 6; i++) outcomes.watch(`${i}`, stream.next());
    await turn();
    await feed(raw, result(1, { token: 9 }));
    await feed(raw, more(2, ["a", "b"]));
    await feed(raw, more(3, ["c"]));
    await feed(raw, more(4, ["d"], true));
    expect(outcomes.list).toEqual([
      ...["a", "b", "c", "d"].map((value, i) => ({ name: `${i}`, value: { done: false, value } })),
      ...[4, 5].map((i) => ({ name: `${i}`, value: { done: true, value: undefined } })),
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
    expect(await rejection(readAll(stream))).toMatchObject({ message: "a stream can be read once" });
  });

  it("that never begins sends nothing", async () => {
    const raw = rawPeer();
    raw.peer.stream("tail");
    const returned = raw.peer.stream("tail")[Symbol.asyncIterator]();
    expect(await returned.return!(5)).toEqual({ done: true, value: 5 });
    expect(await returned.next()).toEqual({ done: true, value: undefined });
    await raw.peer.close();
    expect(raw.sent).toEqual([]);
    expectEmpty(raw.peer);
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
    expect(await first).toEqual({ done: true, value: undefined });
    expect(raw.messages().slice(1)).toEqual([next(2, 7), abort(7)]);
    await stream.return!();
    expect(raw.sent).toHaveLength(3);
  });

  it("cancels the call when it returns before the first reply, with or without a dialect", async () => {
    const { raw, stream, first } = await beginReading();
    await stream.return!();
    expect(await first).toEqual({ done: true, value: undefined });
    expect(raw.messages()[1]).toEqual(notification("$/cancelRequest", { id: 1 }));
    expectEmpty(raw.peer);
    await feed(raw, failure(1, -32800, "Request cancelled"));
    expect(raw.sent).toHaveLength(2);
  });

  it("aborts the stream of the first reply when it stops before reading that reply", async () => {
    const { raw, stream, first } = await beginReading();
    // The call is settled, and its result has not been read yet.
    raw.feed(result(1, { token: "t", values: [1] }));
    void stream.return!();
    expect(await first).toEqual({ done: true, value: undefined });
    await turn();
    expect(raw.messages()).toEqual([request(1, "tail"), abort("t")]);
    expectEmpty(raw.peer);
  });

  it("sends no abort when it stops at that moment and the stream is complete", async () => {
    const { raw, stream } = await beginReading();
    raw.feed(result(1, { values: [1] }));
    void stream.return!();
    await turn();
    expect(raw.sent).toHaveLength(1);
  });
});

describe("a reader's signal", () => {
  it("that is aborted already sends nothing", async () => {
    const raw = rawPeer();
    const { values, end } = reading(raw, [], { signal: AbortSignal.abort("before") });
    await turn();
    expect([values, end]).toEqual([[], ["before"]]);
    expect(raw.sent).toEqual([]);
    expectEmpty(raw.peer);
  });

  it("cancels the call before the first reply", async () => {
    const raw = rawPeer();
    const controller = new AbortController();
    const { end } = reading(raw, [], { signal: controller.signal });
    await turn();
    controller.abort("x");
    await turn();
    expect(end).toEqual(["x"]);
    expect(raw.messages().slice(1)).toEqual([notification("$/cancelRequest", { id: 1 })]);
    expectEmpty(raw.peer);
  });

  it("aborts the producer at once after the first reply, even with unread values", async () => {
    const controller = new AbortController();
    const { raw, stream } = await beginReading({ token: "t", values: [1, 2] }, { signal: controller.signal });
    controller.abort("x");
    expect(raw.messages().slice(1)).toEqual([next(2, "t"), abort("t")]);
    expect(await rejection(stream.next())).toBe("x");
    // A failure is reported once.
    expect(await stream.next()).toEqual({ done: true, value: undefined });
  });

  it("does nothing after the end, and has no listeners left", async () => {
    const raw = rawPeer();
    const { controller, listeners } = countedSignal();
    const { end } = reading(raw, [], { signal: controller.signal });
    await turn();
    expect(listeners()).toBe(1);
    await feed(raw, result(1, { token: "t" }));
    expect(listeners()).toBe(1);
    await feed(raw, more(2, [], true));
    expect(end).toEqual(["end"]);
    expect(listeners()).toBe(0);
    controller.abort("late");
    await turn();
    expect(raw.sent).toHaveLength(2);
  });

  it.each([
    ["signal", { signal: "soon" }, "Expected `signal` to be an AbortSignal, got `soon` (string)"],
    ["timeoutMs", { timeoutMs: 0 }, "Expected `timeoutMs` to be a positive number, got `0` (number)"],
    ["name", { timeout: 5 }, "Unknown name `timeout` in `options`"],
  ])("and options reject the first read if %s is invalid", async (_name, options, message) => {
    const raw = rawPeer();
    const { end } = reading(raw, [], options);
    await turn();
    expect(end).toEqual([expect.any(TypeError)]);
    expect((end[0] as Error).message).toContain(message);
    expect(raw.sent).toEqual([]);
  });
});

describe("a reader's timeout", () => {
  it("applies to the first reply, and cancels the call", async () => {
    const raw = rawPeer();
    const { end } = reading(raw, [], { timeoutMs: 100 });
    await pass(100);
    expect(end).toEqual([expect.any(TimeoutError)]);
    expect(raw.messages().slice(1)).toEqual([notification("$/cancelRequest", { id: 1 })]);
    expectEmpty(raw.peer);
  });

  it("does not apply after the first reply", async () => {
    const raw = rawPeer({ timeoutMs: 50 });
    const { values, end } = reading(raw, [], { timeoutMs: 100, maxTotalTimeoutMs: 200 });
    await pass(99);
    await feed(raw, result(1, { token: "t" }));
    await pass(10 ** 9);
    expect(end).toEqual([]);
    await feed(raw, more(2, [1], true));
    expect([values, end]).toEqual([[1], ["end"]]);
  });
});
