/** Reading a stream: the messages sent for it, and its end. The table `streams` of test/conformance has its replies. The other side is the test. */
import { describe, expect, it } from "vitest";
import { ProtocolError } from "../../src/index.js";
import { expectEmpty, readAll } from "../support/pair.js";
import { failure, rawPeer, request, result, sessionPeer, type RawPeer } from "../support/raw.js";
import { countedSignal, pass, rejection, turn, useVirtualClock } from "../support/time.js";
import { abort, cancel, feed, more, next } from "./kit.js";

useVirtualClock();

/** Reads a stream in the background. Returns the values that were read, and the outcome of reading: "end" or the error. */
async function reading(raw: RawPeer, options?: object) {
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

/** Begins to read a stream of a new peer, and answers its call with this stream, if there is one. */
async function beginReading(opening?: object, options?: object, isReciproc = false) {
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

  it("requests two replies ahead from a reciproc peer, and reads them in order", async () => {
    const { raw, stream, first } = await beginReading({ token: 9, values: ["a"] }, undefined, true);
    expect(await first).toMatchObject({ value: "a" });
    expect(raw.messages().slice(1)).toEqual([next(2, 9), next(3, 9)]);
    await feed(raw, more(2, [2]), more(3, [3], true));
    // Nothing is requested before the first of them is read.
    expect(raw.sent).toHaveLength(3);
    for (const value of [2, 3]) expect(await stream.next()).toEqual({ done: false, value });
    expect(await stream.next()).toEqual(DONE);
    expect(raw.sent).toHaveLength(3);
    expectEmpty(raw.peer);
  });

  it("is possible only once", async () => {
    const raw = rawPeer();
    const stream = raw.peer.stream("tail");
    const read = readAll(stream);
    expect(await rejection(readAll(stream))).toMatchObject({ message: expect.stringContaining("once") });
    await turn();
    raw.feed(result(1, { values: [1] }));
    expect(await read).toEqual([1]);
    // A received array stays as it was.
    const received = Object.freeze({ values: Object.freeze([1]) as unknown[] }) as never;
    const again = readAll(raw.peer.iterate(received));
    expect(() => raw.peer.iterate(received)).toThrow("once");
    expect(await again).toEqual([1]);
  });
});

describe("a reader that stops", () => {
  it("settles a pending next() at once when it returns", async () => {
    const { raw, stream, first } = await beginReading({ token: 7 });
    expect(await stream.return!("bye")).toEqual({ done: true, value: "bye" });
    expect(await first).toEqual(DONE);
    await stream.return!();
    expect(raw.messages().slice(1)).toEqual([next(2, 7), abort(7)]);
  });

  it.each<[string, (stream: AsyncIterator<unknown>, controller: AbortController) => unknown, object]>([
    ["returns", (stream) => stream.return!(), { value: DONE }],
    ["is aborted", (_stream, controller) => controller.abort("enough"), { reason: "enough" }],
  ])("cancels the call when it %s before the first reply, with or without a dialect", async (_how, stop, outcome) => {
    const controller = new AbortController();
    const { raw, stream, first } = await beginReading(undefined, { signal: controller.signal });
    const settled = Promise.allSettled([first]);
    await stop(stream, controller);
    expect(await settled).toMatchObject([outcome]);
    expectEmpty(raw.peer);
    await feed(raw, failure(1, -32800, "Request cancelled"));
    expect(raw.messages().slice(1)).toEqual([cancel(1)]);
  });

  it("aborts the stream of the first reply when it stops before reading that reply", async () => {
    const { raw, stream, first } = await beginReading();
    // The call is settled, and its result has not been read yet.
    raw.feed(result(1, { token: "t", values: [1] }));
    void stream.return!();
    expect(await first).toEqual(DONE);
    await turn();
    expect(raw.messages().slice(1)).toEqual([abort("t")]);
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

  it("rejects the first read if it is none", async () => {
    const { raw, end } = await reading(rawPeer(), { signal: "soon" });
    expect(end).toEqual([expect.any(TypeError)]);
    expect((end[0] as Error).message).toContain("`signal`");
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

it("a stream rejects with a ProtocolError that names the method if the first reply of a reciproc peer is empty", async () => {
  const read = await reading(rawPeer({}, { isReciproc: true }));
  await feed(read.raw, result(1, {}));
  expect(read.end).toEqual([expect.any(ProtocolError)]);
  expect((read.end[0] as Error).message).toContain('"tail", got an object');
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

it("iterate throws for what is no stream, and for a token that is too long", () => {
  const { peer, sent } = rawPeer();
  for (const stream of [undefined, null, 5])
    expect(() => peer.iterate(stream as never)).toThrow(/^Expected `stream` to be .*, got /);
  expect(() => peer.iterate({ token: "x".repeat(1025) } as never)).toThrow(ProtocolError);
  expect(sent).toEqual([]);
});

it("iterate aborts an unread stream once when its iterator is returned", async () => {
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
