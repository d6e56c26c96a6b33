import { Readable } from "node:stream";
import { describe, expect, it } from "vitest";
import { RpcError } from "../../src/index.js";
import { expectEmpty } from "../support/pair.js";
import { failure, notification, request, result, sessionPeer, type SessionPeer } from "../support/raw.js";
import { gate, pass, rejection, timersSet, turn, useVirtualClock } from "../support/time.js";
import { abort, answersTo, counted, Fed, feed, more, next, NO_SUCH_STREAM, streamsOf, tailing } from "./kit.js";

useVirtualClock();

describe("a handler's iterable", () => {
  it.each<[string, () => unknown]>([
    ["a promise of one", async () => (async function* () { yield 1; yield 2; })()],
    ["a Node stream", () => Readable.from([1, 2])],
    ["a web stream", () => new ReadableStream({ start: (c) => (c.enqueue(1), c.enqueue(2), c.close()) })],
    ["a web stream that is no async iterable, as in Safari", () => {
      const stream = new ReadableStream({ start: (c) => (c.enqueue(1), c.enqueue(2), c.close()) });
      return { getReader: () => stream.getReader() };
    }],
    ["a generator", function* () { yield 1; yield Promise.resolve(2); }],
    ["the iterator of a Map", () => new Map([[1, "a"], [2, "b"]]).keys()],
  ])("may be %s", async (_name, make) => {
    const raw = tailing(make);
    raw.feed(request(1, "tail"));
    while (raw.sent.length === 0) await turn();
    const [first] = raw.messages();
    const values = [...(first.result.values ?? [])];
    if (first.result.token !== undefined) {
      const [reply] = await answersTo(raw, next(2, first.result.token));
      expect(reply.result.finished).toBe(true);
      values.push(...reply.result.values);
    }
    expect(values).toEqual([1, 2]);
    expectEmpty(raw.peer);
  }); // prettier-ignore

  it.each<[string, unknown, unknown]>([
    ["an object with a member `next` that is data", { next: "page 2" }, { next: "page 2" }],
    ["an iterable that has a JSON form", { toJSON: () => "it", [Symbol.iterator]: () => [1][Symbol.iterator]() }, "it"],
  ])("is not %s, which is the result itself", async (_name, value, json) => {
    expect(await answersTo(tailing(value), request(1, "tail"))).toEqual([result(1, json)]);
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

  it("is ended without being read for a notification, even if it is a promise, a begun generator or a Node stream", async () => {
    const log: string[] = [];
    const source = counted();
    const begun = (function* () {
      try {
        yield 1;
        yield 2;
      } finally {
        log.push("closed");
      }
    })();
    begun.next();
    const readable = new Readable({ read() {} });
    for (const given of [source, begun, Promise.resolve(readable)]) {
      const raw = tailing(given);
      await feed(raw, notification("tail"));
      expect([raw.sent, raw.errors]).toEqual([[], []]);
      expectEmpty(raw.peer);
    }
    expect([source.asked, source.returned, log, readable.destroyed]).toEqual([0, 1, ["closed"], true]);
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

  it("may come inside the reply to an earlier one, while another one is pending", async () => {
    const source = new Fed().give("a");
    const raw = tailing(source, {}, { onSend: (text, own) => void (text.includes('"b"') && own.feed(next(4, 1))) });
    const gives = ["b", "c", "d"].map((value) => () => source.give(value));
    await feed(raw, request(1, "tail"), next(2, 1), next(3, 1), ...gives);
    expect(raw.messages().slice(1)).toEqual([more(2, ["b"]), more(3, ["c"]), more(4, ["d"])]);
  });

  it("is answered with the error of the source once, and then without a value", async () => {
    const source = new Fed().give("a");
    const raw = tailing(source);
    await feed(raw, request(1, "tail"), next(2, 1), next(3, 1), () => source.fail(new RpcError(7, "no")));
    expect(raw.messages().slice(1)).toEqual([failure(2, 7, "no"), more(3, [], true)]);
    expect([streamsOf(raw), raw.errors]).toEqual([0, []]);
  });

  it("is answered when there is a socket with free capacity, so that streams alone end no session", async () => {
    const { transport, take } = sessionPeer({ methods: { tail: () => counted() }, limits: { maxUnsentBytes: 4000 } });
    transport.feed(request(1, "tail"));
    await turn();
    expect(take()[0].result.values).toHaveLength(1000);
    transport.suspend();
    transport.feed(next(2, 1));
    transport.feed(request(3, "tail"));
    await pass(1000);
    transport.unsentBytes = 1001;
    transport.resume();
    expect(take()).toEqual([result(3, { token: 2 })]);
    await pass(1000);
    expect(take()).toEqual([]);
    transport.unsentBytes = 1000;
    await pass(160);
    const values = Array.from({ length: 1000 }, (_, i) => 1001 + i);
    expect(take()).toEqual([more(2, values)]);
    transport.feed(next(4, 1));
    transport.unsentBytes = 1001;
    await turn();
    transport.feed(abort(1));
    await turn();
    transport.feed(request(5, "tail"));
    await turn();
    expect(take()).toEqual([more(4, [], true), result(5, { token: 3 })]);
  });

  it("keeps to a limit of the other side that became known after the stream was opened", async () => {
    const source = new Fed().give(1);
    const { transport, take } = sessionPeer({ methods: { tail: () => source } });
    transport.feed(request(1, "tail"));
    await turn();
    take();
    transport.maxMessageBytes = 400;
    const values = ["a", "b"].map((text) => text.repeat(200));
    source.give(...values, "c".repeat(400));
    for (const id of [2, 3, 4]) {
      transport.feed(next(id, 1));
      await turn();
    }
    const refusal = failure(4, -32008, "Value of a stream is too large");
    expect(take()).toEqual([more(2, [values[0]]), more(3, [values[1]]), refusal]);
  });

  it("is a method of the application if that registers it, and as a notification is only emitted", async () => {
    const own = tailing(undefined, { methods: { "$/enumerator/next": () => "mine" } });
    expect(await answersTo(own, next(1, 1))).toEqual([result(1, "mine")]);
    const raw = tailing(new Fed().give(1));
    const seen: string[] = [];
    raw.peer.on("notification", (method) => seen.push(method));
    await feed(raw, request(1, "tail"), notification("$/enumerator/next", { token: 1 }));
    expect(seen).toEqual(["$/enumerator/next"]);
  });
});

async function give(source: Fed, value: string): Promise<void> {
  source.give(value);
  await turn();
}

async function pulled(): Promise<SessionPeer & { source: Fed; token: number }> {
  const source = new Fed().give("first");
  const ends = sessionPeer({ methods: { pull: () => source } });
  ends.transport.feed(request(1, "pull"));
  await turn();
  const [{ result: opening }] = ends.take();
  return { ...ends, source, token: opening.token as number };
}

it("a stream of a connection without a socket keeps the value already requested and requests no other from its source until there is a socket again", async () => {
  const { peer, transport, source, token, take } = await pulled();
  const unread = counted();
  void rejection(peer.request("m", [peer.offer(unread)]));
  transport.suspend();
  await give(source, "second");
  expect(source.asked).toBe(2);
  transport.resume();
  expect([source.asked, unread.asked]).toEqual([3, 0]);
  await give(source, "third");
  take();
  transport.feed(next(2, token));
  await turn();
  expect(take()).toEqual([more(2, ["second", "third"])]);
});

it("a stream of a connection without a socket answers an earlier request when there is a socket, and sets no timer until then", async () => {
  const { transport, source, token, take } = await pulled();
  transport.feed(next(2, token));
  await turn();
  transport.suspend();
  await give(source, "late");
  // The timer of all deadlines may stay for a second after the last one.
  await pass(1_000);
  expect(timersSet()).toBe(0);
  expect(take()).toEqual([]);
  transport.resume();
  await turn();
  expect(take()).toEqual([more(2, ["late"])]);
  // The source yields nothing before there is a socket again.
  transport.feed(next(3, token));
  await turn();
  transport.suspend();
  transport.resume();
  await give(source, "third");
  expect(take()).toEqual([more(3, ["third"])]);
});

it("the data that a connection buffers for the other side includes each value that was read ahead, until it is sent, and an overhead for each value and stream", async () => {
  const { transport, source, token, take } = await pulled();
  const empty = transport.kept;
  expect(empty).toBeGreaterThanOrEqual(1000);
  await give(source, "x".repeat(1000));
  await give(source, "y".repeat(2000));
  expect(transport.kept - empty).toBeGreaterThanOrEqual(3000);
  expect(transport.kept - empty).toBeLessThan(3200);
  transport.feed(next(2, token));
  await turn();
  expect(take()).toHaveLength(1);
  expect(transport.kept).toBe(empty);
  for (let i = 0; i < 100; i++) await give(source, "");
  expect(transport.kept - empty).toBeGreaterThanOrEqual(3000);
  transport.end({ code: 1000, reason: "" });
  await give(source, "after the end");
  expect(transport.kept).toBe(0);
});

it("the data that a connection buffers for the other side includes each reply of a batch, until the batch is answered", async () => {
  const open = gate();
  const { transport, take } = sessionPeer({ methods: { slow: () => open.promise, big: () => "x".repeat(5000) } });
  transport.feed([request(1, "big"), request(2, "slow"), request(3, "big")]);
  await turn();
  expect(transport.kept).toBeGreaterThanOrEqual(10_000);
  expect(transport.kept).toBeLessThan(10_500);
  open.resolve();
  await turn();
  expect(take()).toHaveLength(1);
  expect(transport.kept).toBe(0);
});
