/** Offering a stream inside params or a result: its place, its lifetime, and how many there may be. The other side is the test. */
import { describe, expect, it } from "vitest";
import { RpcError, type Context } from "../../src/index.js";
import { expectEmpty } from "../support/pair.js";
import { failure, rawPeer, request, result, type RawPeer } from "../support/raw.js";
import { useVirtualClock } from "../support/time.js";
import { rejection, turn } from "../support/turns.js";
import { abort, answersTo, counted, Fed, feed, GIVEN_UP, more, next, NO_SUCH_STREAM, tailing } from "./kit.js";

useVirtualClock();

/** Answers the call 1 of a peer, and asserts that it leaves no state. */
async function answered(raw: RawPeer, call: Promise<unknown>): Promise<void> {
  raw.feed(result(1, null));
  await call;
  expectEmpty(raw.peer);
}

describe("a stream that is offered", () => {
  it("is made of nothing but an iterable", () => {
    const { peer } = rawPeer();
    for (const source of [5, null, {}])
      expect(() => peer.offer(source as never)).toThrow(/^Expected `source` to be .*, got /);
  });

  it("may be nested in a result, and outlives the answer", async () => {
    const source = new Fed().give(1);
    const raw = tailing((_params: unknown, { peer }: Context) => ({ lines: peer.offer(source), count: 1 }));
    expect(await answersTo(raw, request(1, "tail"))).toEqual([result(1, { lines: { token: 1 }, count: 1 })]);
    expect(await answersTo(raw, next(2, 1), abort(1))).toEqual([more(2, [1])]);
    expect(source.returned).toBe(1);
    // Aborting one of several must not end the others.
    expect(raw.contexts[0]!.signal.aborted).toBe(false);
    expectEmpty(raw.peer);
  });
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
    const { peer } = rawPeer({}, { onSend: () => false });
    const source = counted();
    expect(await rejection(peer.request("m", [peer.offer(source)]))).toMatchObject({ outcome: "not-sent" });
    await turn();
    expect([source.asked, source.returned]).toEqual([0, 1]);
    expectEmpty(peer);
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
