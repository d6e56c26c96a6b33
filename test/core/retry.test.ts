/** `retry: "not-sent"`: a call that was not sent is made again on the next connection, and no other call is. */
import { describe, expect, it } from "vitest";
import { ConnectionLostError, TimeoutError } from "../../src/index.js";
import { countDeadlines } from "../../src/core/deadlines.js";
import { useNoChance } from "../support/chance.js";
import { pass, useFakeClock } from "../support/clock.js";
import { expectEmpty } from "../support/pair.js";
import { request, result } from "../support/raw.js";
import { openingOf, restless, type Restless } from "../support/restless.js";
import { rejection, turn } from "../support/turns.js";

useFakeClock();
useNoChance();

const GONE = new Error("gone");
const RETRY = { retry: "not-sent" } as const;

/** Makes a peer that has lost its socket, and whose queued messages are lost with the session by `lose`. */
function down(options: object = {}, more: object = {}): Restless {
  const ends = restless({ ...options }, more);
  ends.transport.suspend();
  return ends;
}

/** Loses the session, and connects again. */
function loseAndResume({ transport }: Restless): void {
  transport.lose(GONE);
  transport.resume();
}

describe("a call with `retry` that was not sent when the session was lost", () => {
  it("is made again on the next connection, under its id, before later messages, and once", async () => {
    const ends = down();
    const { peer, transport, take } = ends;
    const calls = [1, 2].map((i) => peer.request("m", [i], RETRY));
    const other = rejection(peer.request("m", [3]));
    transport.lose(GONE);
    expect(await other).toMatchObject({ outcome: "not-sent", cause: GONE });
    const later = peer.request("m", [4]);
    transport.resume();
    expect(take()).toEqual([request(1, "m", [1]), request(2, "m", [2]), request(4, "m", [4])]);
    for (const id of [1, 2, 4]) transport.feed(result(id, id));
    expect(await Promise.all([...calls, later])).toEqual([1, 2, 4]);
    await peer.close();
    expectEmpty(peer);
  });

  it("is made again as often as it is lost, and rejects with outcome `unknown` once it was sent", async () => {
    const ends = down({ retry: "not-sent" });
    const { peer, transport, take } = ends;
    const call = rejection(peer.request("m", [1]));
    transport.lose(GONE);
    transport.lose(GONE);
    transport.resume();
    expect(take()).toEqual([request(1, "m", [1])]);
    transport.suspend();
    loseAndResume(ends);
    expect(await call).toBeInstanceOf(ConnectionLostError);
    expect(await call).toMatchObject({ outcome: "unknown", cause: GONE });
    expect(take()).toEqual([]);
  });

  it("has the peer's `retry` unless its options say otherwise", async () => {
    const ends = down(RETRY);
    const { peer, transport, take } = ends;
    const once = rejection(peer.request("once", [], { retry: false }));
    const again = peer.request("again");
    loseAndResume(ends);
    expect(await once).toMatchObject({ outcome: "not-sent" });
    expect(take()).toEqual([request(2, "again")]);
    transport.feed(result(2, "done"));
    expect(await again).toBe("done");
  });

  it("keeps its timeout, which began with the call", async () => {
    const ends = down();
    const { peer, transport, take } = ends;
    const queued = rejection(peer.request("queued", [], { ...RETRY, timeoutMs: 1000 }));
    await pass(600);
    transport.lose(GONE);
    await pass(399);
    expect(countDeadlines().waiting).toBe(1);
    await pass(1);
    expect(await queued).toBeInstanceOf(TimeoutError);
    expect(await queued).toMatchObject({ outcome: "not-sent", timeoutMs: 1000 });
    const sent = rejection(peer.request("sent", [], { ...RETRY, timeoutMs: 1000, maxTotalTimeoutMs: 900 }));
    await pass(500);
    loseAndResume(ends);
    expect(take()).toEqual([request(2, "sent", [])]);
    await pass(400);
    expect(await sent).toMatchObject({ code: "TIMEOUT", outcome: "unknown", timeoutMs: 900 });
  });

  it("keeps its signal: an abort before it is sent again cancels it, and an abort after that sends a cancel", async () => {
    const ends = down({}, { isReciproc: true });
    const { peer, transport, take } = ends;
    const [first, second] = [new AbortController(), new AbortController()];
    const early = rejection(peer.request("early", [], { ...RETRY, signal: first.signal }));
    const late = rejection(peer.request("late", [], { ...RETRY, signal: second.signal }));
    transport.lose(GONE);
    first.abort("never mind");
    expect(await early).toBe("never mind");
    transport.resume();
    expect(take()).toEqual([request(2, "late", [])]);
    second.abort("enough");
    expect(await late).toBe("enough");
    expect(take()).toMatchObject([{ method: "$/cancelRequest", params: { id: 2 } }]);
  });

  it("asks the next server for progress", async () => {
    const ends = down({}, { isReciproc: true });
    const { peer, transport, take } = ends;
    const reports: unknown[] = [];
    const call = peer.request("m", {}, { ...RETRY, onProgress: (value) => reports.push(value) });
    loseAndResume(ends);
    expect(take()).toEqual([request(1, "m", { workDoneToken: 1 })]);
    transport.feed({ jsonrpc: "2.0", method: "$/progress", params: { token: 1, value: "half" } });
    transport.feed(result(1, "done"));
    expect(await call).toBe("done");
    expect(reports).toEqual(["half"]);
    await peer.close();
    expectEmpty(peer);
  });

  it("passes `around` once", async () => {
    const seen: string[] = [];
    const around = async ({ method }: { method: string }, next: () => Promise<unknown>): Promise<unknown> => {
      seen.push(method);
      return next();
    };
    const ends = down({ around, ...RETRY });
    const { peer, transport, take } = ends;
    const call = peer.request("m");
    loseAndResume(ends);
    expect(take()).toEqual([request(1, "m")]);
    transport.feed(result(1, "done"));
    expect(await call).toBe("done");
    expect(seen).toEqual(["m"]);
  });

  it("rejects as not sent when the peer is closed, also on the next connection", async () => {
    const { peer, transport } = down(RETRY);
    const call = rejection(peer.request("m"));
    transport.lose(GONE);
    const closing = peer.close(3000, "enough");
    expect(await call).toMatchObject({
      outcome: "not-sent",
      cause: { message: "closed on this side with 3000 (enough)" },
    });
    await closing;
    expect(await rejection(peer.request("m"))).toMatchObject({ outcome: "not-sent" });
    expectEmpty(peer);
  });

  it("rejects as not sent when its params close the peer while they are encoded again", async () => {
    const { peer, transport } = down(RETRY);
    let runs = 0;
    const toJSON = (): unknown => {
      if (++runs === 2) void peer.close();
      return [];
    };
    const call = rejection(peer.request("m", { toJSON }));
    transport.lose(GONE);
    expect(await call).toMatchObject({ outcome: "not-sent", cause: GONE });
    expect(runs).toBe(2);
    expectEmpty(peer);
  });

  it("rejects as not sent if its params hold a stream, which has ended", async () => {
    const ends = down(RETRY);
    const { peer, take } = ends;
    const call = rejection(peer.request("m", { values: peer.offer([1, 2]) }));
    loseAndResume(ends);
    expect(await call).toMatchObject({ name: "ConnectionLostError", outcome: "not-sent", cause: GONE });
    expect(take()).toEqual([]);
    expectEmpty(peer);
  });
});

describe("`retry` has no effect", () => {
  it("in a batch, which is one message", async () => {
    const ends = down(RETRY);
    const { peer, take } = ends;
    const batch = peer.batch();
    const calls = [rejection(batch.request("a")), rejection(batch.request("b", [], RETRY))];
    batch.send();
    loseAndResume(ends);
    for (const error of await Promise.all(calls)) expect(error).toMatchObject({ outcome: "not-sent", cause: GONE });
    expect(take()).toEqual([]);
  });

  it("on `stream`, whose reader belongs to one connection", async () => {
    const ends = down(RETRY);
    const { peer, take } = ends;
    const reading = rejection(peer.stream("m", [], RETRY)[Symbol.asyncIterator]().next());
    await turn();
    loseAndResume(ends);
    expect(await reading).toMatchObject({ outcome: "not-sent", method: "m" });
    expect(take()).toEqual([]);
  });

  it("in `onOpen`, which the next connection runs again", async () => {
    const ends = restless(RETRY, { opensFirst: true });
    const { peer, transport, take } = ends;
    transport.suspend();
    const opening = rejection(openingOf(peer).caller.request("login"));
    const queued = peer.request("m");
    loseAndResume(ends);
    expect(await opening).toMatchObject({ outcome: "not-sent" });
    expect(take()).toEqual([]);
    openingOf(peer).release();
    expect(take()).toEqual([request(2, "m")]);
    transport.feed(result(2, 1));
    expect(await queued).toBe(1);
  });

  it("on a call that was answered with an error, or is too long", async () => {
    const { peer, transport, take } = restless(RETRY);
    const refused = rejection(peer.request("m"));
    transport.feed({ jsonrpc: "2.0", id: 1, error: { code: 1, message: "no" } });
    expect(await refused).toMatchObject({ code: 1 });
    transport.maxMessageBytes = 10;
    expect(await rejection(peer.request("m", ["long"]))).toMatchObject({ code: "TOO_LARGE" });
    expect(take()).toEqual([request(1, "m")]);
  });
});

describe("a call with `retry` that a full queue refuses", () => {
  const LIMITS = { limits: { maxUnsentBytes: 20_000, maxMessageBytes: 5000 } };

  it("is sent when the connection is open, up to as much again, and is rejected beyond that", async () => {
    const { peer, transport, take } = restless({ ...LIMITS, ...RETRY }, { opensFirst: true });
    // 1,000 with the overhead of a queued message.
    const padding = "x".repeat(1000 - 64 - JSON.stringify(request(10, "m", [""])).length);
    const calls = Array.from({ length: 21 }, () => peer.request("m", [padding]));
    const errors = await Promise.all(calls.slice(20).map(rejection));
    expect(errors).toMatchObject([{ outcome: "not-sent", cause: { message: "the queue is full" } }]);
    // A notification has no caller that could learn of its loss, so it never waits.
    expect(peer.notify("m", [padding])).toBe(false);
    openingOf(peer).release();
    expect(take().map(({ id }) => id as number)).toEqual(Array.from({ length: 20 }, (_, i) => i + 1));
    for (let id = 1; id <= 20; id++) transport.feed(result(id, id));
    expect(await Promise.all(calls.slice(0, 20))).toHaveLength(20);
    await peer.close();
    expectEmpty(peer);
  });

  it("can be aborted or time out, and is then never sent", async () => {
    const { peer, transport, take } = restless(LIMITS, { opensFirst: true });
    while (peer.notify("fill", ["x".repeat(900)]));
    const controller = new AbortController();
    const aborted = rejection(peer.request("m", ["x".repeat(900)], { ...RETRY, signal: controller.signal }));
    const late = rejection(peer.request("m", ["x".repeat(900)], { ...RETRY, timeoutMs: 100 }));
    const call = peer.request("m", ["x".repeat(900)], RETRY);
    controller.abort("enough");
    expect(await aborted).toBe("enough");
    await pass(100);
    expect(await late).toMatchObject({ code: "TIMEOUT", outcome: "not-sent" });
    openingOf(peer).release();
    expect(take().filter(({ method }) => method === "m")).toMatchObject([{ id: 3 }]);
    transport.feed(result(3, "done"));
    expect(await call).toBe("done");
    await peer.close();
    expectEmpty(peer);
  });

  it("rejects as not sent when the peer is closed", async () => {
    const { peer, take } = restless(LIMITS, { opensFirst: true });
    while (peer.notify("fill", ["x".repeat(900)]));
    const call = rejection(peer.request("m", ["x".repeat(900)], RETRY));
    await peer.close();
    expect(await call).toMatchObject({ outcome: "not-sent" });
    expect(take().filter(({ method }) => method === "m")).toEqual([]);
    expectEmpty(peer);
  });

  it("is made again on the next connection if this one is lost before", async () => {
    const ends = restless(LIMITS, { opensFirst: true });
    const { peer, transport, take } = ends;
    while (peer.notify("fill", ["x".repeat(900)]));
    const call = peer.request("m", ["x".repeat(900)], RETRY);
    transport.suspend();
    loseAndResume(ends);
    openingOf(peer).release();
    expect(take()).toMatchObject([{ id: 1, method: "m" }]);
    transport.feed(result(1, "done"));
    expect(await call).toBe("done");
  });
});

it.each<any>(["always", true, null])('`retry` must be "not-sent" or false: %s', async (retry) => {
  const { peer } = restless();
  const error = await rejection(peer.request("m", [], { retry }));
  expect(error).toBeInstanceOf(TypeError);
  expect(error.message).toMatch(/^Expected `retry` to be "not-sent" or false, got /);
  expect(() => restless({ retry })).toThrow(TypeError);
});
