/** Offering a stream inside params or a result: its place, its lifetime and its end. The other side is the test. */
import { describe, expect, it } from "vitest";
import { type AnyPeer, type Context, type WebStream } from "../../src/index.js";
import { pass, useFakeClock } from "../support/clock.js";
import { expectEmpty } from "../support/pair.js";
import { failure, rawPeer, request, result, type RawPeer } from "../support/raw.js";
import { rejection, turn } from "../support/turns.js";
import { counted, Fed } from "./sources.js";
import { abort, answersTo, feed, more, next, NO_SUCH_STREAM, streamsOf } from "./tailing.js";

useFakeClock();

function webStream(): ReadableStream<number> {
  return new ReadableStream({ start: (to) => (to.enqueue(1), to.enqueue(2), to.close()) });
}

function notIterable<T>(stream: ReadableStream<T>): WebStream<T> {
  return { getReader: () => stream.getReader(), pipeTo: (destination) => stream.pipeTo(destination as WritableStream) };
}

describe("a stream that is offered", () => {
  it.each<[string, (peer: AnyPeer, source: Iterable<unknown>) => object, object]>([
    ["a member of params", (peer, source) => ({ lines: peer.offer(source) }), { lines: { token: 1 } }],
    ["an element of params", (peer, source) => [0, peer.offer(source)], [0, { token: 1 }]],
    ["deep inside", (peer, source) => [{ a: [{ b: peer.offer(source) }] }], [{ a: [{ b: { token: 1 } }] }]],
    ["all of them", (peer, source) => peer.offer(source), { token: 1 }],
  ])("may be %s, and is not begun before the first next", async (_name, make, params) => {
    const raw = rawPeer();
    const source = counted(3);
    const call = raw.peer.request("m", make(raw.peer, source as never));
    expect(raw.messages()).toEqual([request(1, "m", params)]);
    await turn();
    expect(source.asked).toBe(0);
    expect(await answersTo(raw, next(1, 1))).toEqual([more(1, [1, 2, 3], true)]);
    raw.feed(result(1, null));
    await call;
    expectEmpty(raw.peer);
  });

  it.each<[string, () => Parameters<AnyPeer["offer"]>[0]]>([
    ["an array", () => [1, 2]],
    ["a Set", () => new Set([1, 2])],
    ["a generator", () => (function* () { yield 1; yield 2; })()],
    ["promises", () => [Promise.resolve(1), Promise.resolve(2)]],
    ["a web stream", webStream],
    ["a web stream that is no async iterable, as in some browsers", () => notIterable(webStream())],
  ])("may be made of %s", async (_name, make) => {
    const raw = rawPeer();
    const call = raw.peer.request("m", [raw.peer.offer(make())]);
    const values: unknown[] = [];
    for (let id = 1, isLast = false; !isLast; id++) {
      raw.feed(next(id, 1));
      while (raw.sent.length === id) await turn();
      const { result: reply } = raw.messages().at(-1);
      values.push(...reply.values);
      isLast = reply.finished;
    }
    expect(values).toEqual([1, 2]);
    raw.feed(result(1, null));
    await call;
  }); // prettier-ignore

  it.each([5, "text", null, undefined, {}, () => {}])("is not made of %j", (source) => {
    const { peer } = rawPeer();
    expect(() => peer.offer(source as never)).toThrow(TypeError);
    expect(() => peer.offer(source as never)).toThrow("Expected `source` to be an iterable or web stream, got ");
  });

  it("can be one of several, each with its own token", async () => {
    const raw = rawPeer();
    const call = raw.peer.request("m", { a: raw.peer.offer([1]), b: [raw.peer.offer([2]), raw.peer.offer([3])] });
    expect(raw.messages()[0].params).toEqual({ a: { token: 1 }, b: [{ token: 2 }, { token: 3 }] });
    expect(await answersTo(raw, next("y", 2), next("x", 1))).toEqual([more("y", [2], true), more("x", [1], true)]);
    expect(streamsOf(raw)).toBe(1);
    raw.feed(result(1, null));
    await call;
    expectEmpty(raw.peer);
  });

  it("may be nested in a result, and outlives the answer", async () => {
    const source = new Fed().give(1);
    let context!: Context;
    const raw = rawPeer({
      methods: { open: (_params, given) => ((context = given), { lines: given.peer.offer(source), count: 1 }) },
    });
    expect(await answersTo(raw, request(1, "open"))).toEqual([result(1, { lines: { token: 1 }, count: 1 })]);
    expect(await answersTo(raw, next(2, 1), abort(1))).toEqual([more(2, [1])]);
    expect(source.returned).toBe(1);
    // Aborting one of several must not end the others.
    expect(context.signal.aborted).toBe(false);
    expectEmpty(raw.peer);
  });

  it("may be part of the params of a batch's request, and of a batch's answer", async () => {
    const raw = rawPeer({ methods: { open: (_params, { peer }) => [peer.offer([7])] } });
    const batch = raw.peer.batch();
    const call = batch.request("m", [raw.peer.offer([1, 2])]);
    batch.send();
    await turn();
    expect(raw.messages()).toEqual([[request(1, "m", [{ token: 1 }])]]);
    expect(await answersTo(raw, [next(1, 1), request(2, "open")])).toEqual([
      [more(1, [1, 2], true), result(2, [{ token: 2 }])],
    ]);
    expect(await answersTo(raw, next(3, 2))).toEqual([more(3, [7], true)]);
    raw.feed([result(1, "done")]);
    expect(await call).toBe("done");
    expectEmpty(raw.peer);
  });
});

describe("a stream in params ends with its call", () => {
  const ends: [string, (raw: RawPeer, controller: AbortController) => unknown][] = [
    ["is answered", ({ feed: give }) => give(result(1, null))],
    ["fails", ({ feed: give }) => give(failure(1, 5, "no"))],
    ["is aborted", (_raw, controller) => controller.abort("x")],
    ["times out", () => pass(60_000)],
    ["is lost with the connection", ({ cut }) => cut()],
    ["is lost by closing", ({ peer }) => peer.close()],
  ];

  it.each(ends)("when that %s", async (_name, end) => {
    const raw = rawPeer();
    const sources = [counted(), new Fed().give(1)];
    const controller = new AbortController();
    const params = sources.map((source) => raw.peer.offer(source));
    const call = Promise.allSettled([raw.peer.request("m", params, { signal: controller.signal })]);
    // One stream that was never read, and one with a pending request for its second value.
    await feed(raw, next("a", 2), next("b", 2));
    await end(raw, controller);
    await call;
    await turn();
    expect(sources.map(({ returned }) => returned)).toEqual([1, 1]);
    expectEmpty(raw.peer);
  });

  it("and a pending next is answered with an error, not as finished", async () => {
    const raw = rawPeer();
    const source = new Fed().give(1);
    const call = raw.peer.request("m", [raw.peer.offer(source)]);
    await feed(raw, next("a", 1), next("b", 1));
    expect(await answersTo(raw, result(1, null), next("c", 1))).toEqual([
      failure("b", -32001, "The stream was given up"),
      failure("c", ...NO_SUCH_STREAM),
    ]);
    await call;
    expect(raw.errors).toEqual([]);
  });

  it("also when the call was in a batch that was never sent", async () => {
    const raw = rawPeer();
    const source = counted();
    const controller = new AbortController();
    const call = raw.peer.batch().request("m", [raw.peer.offer(source)], { signal: controller.signal });
    await turn();
    expect(streamsOf(raw)).toBe(1);
    controller.abort("x");
    expect(await rejection(call)).toBe("x");
    expect([source.asked, source.returned]).toEqual([0, 1]);
    expectEmpty(raw.peer);
  });

  it("also when the connection accepts no more messages", async () => {
    const closed = rawPeer();
    const refusing = rawPeer({}, { onSend: () => false });
    await closed.peer.close();
    for (const { peer } of [closed, refusing]) {
      const source = counted();
      expect(await rejection(peer.request("m", [peer.offer(source)]))).toMatchObject({ outcome: "not-sent" });
      await turn();
      expect([source.asked, source.returned]).toEqual([0, 1]);
      expectEmpty(peer);
    }
  });

  it("but not with another call", async () => {
    const raw = rawPeer();
    const source = new Fed();
    const calls = [raw.peer.request("m", [raw.peer.offer(source)]), raw.peer.request("m")];
    raw.feed(result(2, null));
    await calls[1];
    expect([streamsOf(raw), source.returned]).toEqual([1, 0]);
    raw.feed(result(1, null));
    await calls[0];
  });
});
