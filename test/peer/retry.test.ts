import { describe, expect, it } from "vitest";
import type { AnyPeer } from "../../src/index.js";
import { testServer } from "../../src/testing/index.js";
import { expectEmpty, type AnyOptions } from "../support/pair.js";
import { failure, notification, request, result, sessionPeer, type SessionPeer } from "../support/raw.js";
import { pass, rejection, useVirtualClock } from "../support/time.js";

useVirtualClock();

const GONE = new Error("gone");
const RETRY = { retry: "not-sent" } as const;

function down(options: AnyOptions = {}, isReciproc = false): SessionPeer {
  const ends = sessionPeer(options, { isReciproc });
  ends.transport.suspend();
  return ends;
}

const loseAndResume = ({ transport }: SessionPeer): void => (transport.lose(GONE), transport.resume());

/** Answers the call of this id, and asserts that its promise has the result. */
async function answered({ peer, transport }: SessionPeer, id: number, call: Promise<unknown>): Promise<void> {
  transport.feed(result(id, "done"));
  expect(await call).toBe("done");
  await peer.close();
  expectEmpty(peer);
}

describe("a call with `retry` that was not sent when the session was lost", () => {
  it("is made again on the next connection, under its id, before later messages, and once", async () => {
    const { peer, transport, take } = down();
    const calls = [1, 2].map((i) => peer.request("m", [i], RETRY));
    const other = rejection(peer.request("m", [3]));
    transport.lose(GONE);
    expect(await other).toMatchObject({ outcome: "not-sent", cause: GONE });
    calls.push(peer.request("m", [4]));
    transport.resume();
    expect(take()).toEqual([request(1, "m", [1]), request(2, "m", [2]), request(4, "m", [4])]);
    for (const id of [1, 2, 4]) transport.feed(result(id, id));
    expect(await Promise.all(calls)).toEqual([1, 2, 4]);
  });

  it("is made again as often as it is lost, and rejects with outcome `unknown` once it was sent", async () => {
    const ends = down(RETRY);
    const { peer, transport, take } = ends;
    const call = rejection(peer.request("m", [1]));
    const once = rejection(peer.request("once", [], { retry: false }));
    transport.lose(GONE);
    loseAndResume(ends);
    expect(await once).toMatchObject({ outcome: "not-sent" });
    expect(take()).toEqual([request(1, "m", [1])]);
    transport.suspend();
    loseAndResume(ends);
    expect(await call).toMatchObject({ name: "ConnectionLostError", outcome: "unknown", cause: GONE });
    expect(take()).toEqual([]);
  });

  it("is made again also if it was sent, with `always`, and its outcome is `unknown` from then on", async () => {
    const ends = sessionPeer({ retry: "always" });
    const { peer, transport, take } = ends;
    const calls = ["a", "b", "c"].map((method) =>
      peer.request(method, [], { timeoutMs: method === "c" ? 2000 : 1000 }),
    );
    const once = rejection(peer.request("once", [], { retry: "not-sent" }));
    const failed = calls.slice(1).map(rejection);
    transport.suspend();
    transport.lose(GONE);
    expect(await once).toMatchObject({ outcome: "unknown" });
    transport.resume();
    expect(take().slice(4)).toEqual(["a", "b", "c"].map((method, i) => request(i + 1, method, [])));
    transport.feed(result(1, "done"));
    expect(await calls[0]).toBe("done");
    transport.suspend();
    transport.lose(GONE);
    await pass(1000);
    expect(await failed[0]).toMatchObject({ name: "TimeoutError", outcome: "unknown" });
    await peer.close();
    expect(await failed[1]).toMatchObject({ name: "ConnectionLostError", outcome: "unknown" });
  });

  it("keeps its timeout, which began with the call", async () => {
    const ends = down(RETRY);
    const { peer, transport, take } = ends;
    const queued = rejection(peer.request("queued", [], { timeoutMs: 1000 }));
    await pass(600);
    transport.lose(GONE);
    await pass(399);
    expect(peer.stats().pending).toBe(1);
    await pass(1);
    expect(await queued).toMatchObject({ name: "TimeoutError", outcome: "not-sent", timeoutMs: 1000 });
    const sent = rejection(peer.request("sent", [], { timeoutMs: 1000, maxTotalTimeoutMs: 900 }));
    await pass(500);
    loseAndResume(ends);
    expect(take()).toEqual([request(2, "sent", [])]);
    await pass(400);
    expect(await sent).toMatchObject({ code: "TIMEOUT", outcome: "unknown", timeoutMs: 900 });
  });

  it("keeps its signal: an abort before it is sent again cancels it, and an abort after that sends a cancel", async () => {
    const { peer, transport, take } = down(RETRY, true);
    const [first, second] = [new AbortController(), new AbortController()];
    const early = rejection(peer.request("early", [], { signal: first.signal }));
    const late = rejection(peer.request("late", [], { signal: second.signal }));
    transport.lose(GONE);
    first.abort("never mind");
    expect(await early).toBe("never mind");
    transport.resume();
    expect(take()).toEqual([request(2, "late", [])]);
    second.abort("enough");
    expect(await late).toBe("enough");
    expect(take()).toMatchObject([{ method: "$/cancelRequest", params: { id: 2 } }]);
  });

  it("asks the next server for progress, and passes `around` once", async () => {
    const seen: string[] = [];
    const ends = down({ around: (call, next) => (seen.push(call.method), next()) }, true);
    const { peer, transport, take } = ends;
    const reports: unknown[] = [];
    const call = peer.request("m", {}, { ...RETRY, onProgress: (value) => reports.push(value) });
    loseAndResume(ends);
    const [{ id, params }] = take();
    expect([id, params]).toEqual([1, { workDoneToken: expect.any(Number) }]);
    transport.feed(notification("$/progress", { token: params.workDoneToken, value: "half" }));
    await answered(ends, 1, call);
    expect([reports, seen]).toEqual([["half"], ["m"]]);
  });

  it.each<[string, (peer: AnyPeer) => unknown]>([
    ["its params close the peer while they are encoded again", closingAgain],
    ["its params hold a stream, which has ended", (peer) => ({ values: peer.offer([1, 2]) })],
  ])("rejects as not sent if %s", async (_why, paramsOf) => {
    const ends = down(RETRY);
    const call = rejection(ends.peer.request("m", paramsOf(ends.peer)));
    ends.transport.lose(GONE);
    expect(await call).toMatchObject({ name: "ConnectionLostError", outcome: "not-sent", cause: GONE });
    if (ends.peer.state !== "closed") ends.transport.resume();
    expect(ends.take()).toEqual([]);
    expectEmpty(ends.peer);
  });
});

/** Returns params that close the peer when they are encoded for the second time. */
function closingAgain(peer: AnyPeer): object {
  let runs = 0;
  return { toJSON: () => (++runs === 2 && void peer.close(), []) };
}

it("`retry` has no effect in `onOpen`, which the next connection runs again", async () => {
  await using test = testServer({ methods: { login: () => 1, m: () => 2 } });
  const logins: unknown[] = [];
  let runs = 0;
  const onOpen = async (caller: any): Promise<void> => {
    // On the second connection, the call is queued, because its socket is lost.
    if (++runs === 2) test.network.lose();
    logins.push(await caller.request("login").catch((error: { outcome: string }) => error.outcome));
  };
  const peer = await test.connect(test.server.url, { ...RETRY, onOpen });
  test.network.lose();
  const queued = peer.request("m");
  await pass(20_000);
  expect(logins).toEqual([1, "not-sent", 1]);
  expect(await queued).toBe(2);
});

it("`retry` has no effect on a call that was answered with an error, or is too long", async () => {
  const { peer, transport, take } = sessionPeer(RETRY);
  const refused = rejection(peer.request("m"));
  transport.feed(failure(1, 1, "no"));
  expect(await refused).toMatchObject({ code: 1 });
  transport.maxMessageBytes = 10;
  expect(await rejection(peer.request("m", ["long"]))).toMatchObject({ code: "TOO_LARGE" });
  expect(take()).toEqual([request(1, "m")]);
});

describe("a call with `retry` that a full queue refuses", () => {
  const LIMITS = { limits: { maxUnsentBytes: 20_000, maxMessageBytes: 5000 } };
  const LONG = ["x".repeat(900)];

  function full(): SessionPeer {
    const ends = down(LIMITS);
    ends.transport.lose(GONE);
    while (ends.peer.notify("fill", LONG));
    return ends;
  }

  it("is sent when the connection is open, up to as much again, and is rejected beyond that", async () => {
    const { peer, transport, take } = down({ ...LIMITS, ...RETRY });
    transport.lose(GONE);
    // 1,000 with the overhead of a queued message.
    const padding = "x".repeat(1000 - 64 - JSON.stringify(request(10, "m", [""])).length);
    const calls = Array.from({ length: 21 }, () => peer.request("m", [padding]));
    const errors = await Promise.all(calls.slice(20).map(rejection));
    expect(errors).toMatchObject([{ outcome: "not-sent", cause: { message: "the queue is full" } }]);
    // A notification has no caller that could learn of its loss, so it never waits.
    expect(peer.notify("m", [padding])).toBe(false);
    transport.resume();
    expect(take().map(({ id }) => id as number)).toEqual(Array.from({ length: 20 }, (_, i) => i + 1));
    for (let id = 1; id <= 20; id++) transport.feed(result(id, id));
    expect(await Promise.all(calls.slice(0, 20))).toHaveLength(20);
  });

  it("is rejected without the option, also while its peer connects for the first time", async () => {
    for (const { peer } of [full(), sessionPeer(LIMITS, { isConnecting: true })]) {
      while (peer.notify("fill", LONG));
      const cause = { message: "the queue is full" };
      expect(await rejection(peer.request("m", LONG))).toMatchObject({ outcome: "not-sent", cause });
    }
  });

  it("can be aborted or time out, and is then never sent", async () => {
    const ends = full();
    const { peer, transport, take } = ends;
    const controller = new AbortController();
    const aborted = rejection(peer.request("m", LONG, { ...RETRY, signal: controller.signal }));
    const late = rejection(peer.request("m", LONG, { ...RETRY, timeoutMs: 100 }));
    const call = peer.request("m", LONG, RETRY);
    controller.abort("enough");
    expect(await aborted).toBe("enough");
    await pass(100);
    expect(await late).toMatchObject({ code: "TIMEOUT", outcome: "not-sent" });
    transport.resume();
    expect(take().filter(({ method }) => method === "m")).toMatchObject([{ id: 3 }]);
    await answered(ends, 3, call);
  });
});
