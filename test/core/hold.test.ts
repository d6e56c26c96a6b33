/** If the application opens a connection with calls of its own, all other messages are queued until they settle. */
import { describe, expect, it } from "vitest";
import { TimeoutError, type AnyPeer } from "../../src/index.js";
import { inspect } from "../../src/peer/peer.js";
import { pass, useFakeClock } from "../support/clock.js";
import { expectEmpty, type AnyOptions } from "../support/pair.js";
import { notification, request, result } from "../support/raw.js";
import { openingOf, restless, type Opening, type Restless, type RestlessOptions } from "../support/restless.js";
import { rejection, turn } from "../support/turns.js";

useFakeClock();

const GONE = new Error("gone");

/** Returns a peer whose messages are queued until its connection is opened. */
function held(options: AnyOptions = {}, more: RestlessOptions = {}): Restless & { opening: Opening } {
  const ends = restless(options, { opensFirst: true, ...more });
  return { ...ends, opening: openingOf(ends.peer) };
}

/** Answers every pending call of this peer. */
async function answered(peer: AnyPeer, ends: Restless, calls: Promise<unknown>[], ids: number[]): Promise<void> {
  for (const id of ids) ends.transport.feed(result(id, id));
  expect(await Promise.all(calls)).toEqual(ids);
  await peer.close();
  expectEmpty(peer);
}

describe("a message queued until the connection is opened", () => {
  it("is sent after the opening, in the order of the calls, and not before", async () => {
    const ends = held();
    const { peer, take, opening } = ends;
    const calls = [peer.request("first")];
    expect(peer.notify("second")).toBe(true);
    const batch = peer.batch();
    calls.push(batch.request("third"));
    batch.notify("third too");
    batch.send();
    calls.push(peer.remote.fourth!());
    await turn();
    expect(take()).toEqual([]);
    opening.release();
    expect(take()).toEqual([
      request(1, "first"),
      notification("second"),
      [request(2, "third"), notification("third too")],
      request(3, "fourth"),
    ]);
    peer.notify("at once");
    expect(take()).toEqual([notification("at once")]);
    await answered(peer, ends, calls, [1, 2, 3]);
  });

  it("is overtaken by the opening calls, whose ids are of the same sequence", async () => {
    const ends = held();
    const { peer, take, opening } = ends;
    const waits = peer.request("waits");
    const opens = opening.caller.request("initialize", { version: 1 });
    opening.caller.notify("initialized");
    expect(take()).toEqual([request(2, "initialize", { version: 1 }), notification("initialized")]);
    opening.release();
    expect(take()).toEqual([request(1, "waits")]);
    await answered(peer, ends, [waits, opens], [1, 2]);
  });

  it("is sent before messages that are queued during the flush", async () => {
    const { peer, transport, take, opening } = held();
    for (const name of ["first", "second", "third"]) peer.notify(name);
    transport.onSend = (text) => {
      if (text.includes("first")) peer.notify("in between");
    };
    opening.release();
    expect(take().map(({ method }) => method)).toEqual(["first", "second", "third", "in between"]);
  });

  it("does not count against the bound after it was sent", async () => {
    const { peer, transport, take, opening } = held({ limits: { maxUnsentBytes: 600 } });
    for (const name of ["first", "second"]) expect(peer.notify(name)).toBe(true);
    const long = ["x".repeat(70)];
    expect(peer.notify("third", long)).toBe(false);
    transport.onSend = (text) => {
      if (text.includes("second")) peer.notify("third", long);
    };
    opening.release();
    expect(take().map(({ method }) => method)).toEqual(["first", "second", "third"]);
  });

  it("is never an answer, a cancel or a stream of the other side", async () => {
    const { transport, take, opening } = held(
      { methods: { add: ([a, b]: number[]) => a! + b!, tail: async function* () {} } },
      { isReciproc: true },
    );
    transport.feed(request(1, "add", [1, 2]));
    const controller = new AbortController();
    const opens = rejection(opening.caller.request("slow", [], { signal: controller.signal }));
    controller.abort("enough");
    expect(await opens).toBe("enough");
    expect(take()).toEqual([result(1, 3), request(1, "slow", []), notification("$/cancelRequest", { id: 1 })]);
  });

  it("rejects as not sent, or is dropped if a notification, beyond half of `maxUnsentBytes`", async () => {
    const { peer, take, opening } = held({ limits: { maxUnsentBytes: 1000 } });
    const calls = [1, 2, 3, 4, 5].map((n) => peer.request("m", [n]));
    const error = rejection(calls[4]!);
    // Each message counts 64 bytes besides its length. A fifth call exceeds the bound, a shorter message does not.
    expect([1, 2, 3].map(() => peer.notify("n"))).toEqual([true, false, false]);
    expect(await error).toMatchObject({
      outcome: "not-sent",
      cause: { message: "the queue is full" },
    });
    expect(inspect(peer).pending).toBe(4);
    expect(peer.state).toBe("open");
    opening.release();
    expect(take().map(({ id }) => id)).toEqual([1, 2, 3, 4, undefined]);
    expect(peer.notify("n")).toBe(true);
    for (const call of calls) call.catch(() => {});
  });

  it("is cancelled as not sent when it times out", async () => {
    const { peer, take, opening } = held({}, { isReciproc: true });
    const error = rejection(peer.request("late", [], { timeoutMs: 100 }));
    const total = rejection(peer.request("later", [], { timeoutMs: 1000, maxTotalTimeoutMs: 200 }));
    await pass(100);
    expect(await error).toBeInstanceOf(TimeoutError);
    expect(await error).toMatchObject({ outcome: "not-sent", timeoutMs: 100 });
    await pass(100);
    expect(await total).toMatchObject({ outcome: "not-sent", timeoutMs: 200 });
    opening.release();
    expect(take()).toEqual([]);
  });

  it("frees its part of the bound when it is cancelled", async () => {
    const { peer, opening } = held({ limits: { maxUnsentBytes: 600 } });
    const controller = new AbortController();
    const long = rejection(peer.request("long", ["x".repeat(200)], { signal: controller.signal }));
    expect(peer.notify("n", ["y".repeat(100)])).toBe(false);
    controller.abort("enough");
    expect(await long).toBe("enough");
    expect(peer.notify("n", ["y".repeat(100)])).toBe(true);
    opening.release();
  });

  it("is cancelled when it is aborted, also during the flush of earlier messages", async () => {
    const { peer, transport, take, opening } = held({}, { isReciproc: true });
    const [first, second] = [new AbortController(), new AbortController()];
    const calls = [first, second].map(({ signal }) => rejection(peer.request("aborted", [], { signal })));
    peer.notify("before");
    const third = new AbortController();
    calls.push(rejection(peer.request("aborted", [], { signal: third.signal })));
    first.abort(1);
    second.abort(2);
    transport.onSend = () => third.abort(3);
    opening.release();
    expect(await Promise.all(calls)).toEqual([1, 2, 3]);
    expect(take()).toEqual([notification("before")]);
  });

  it.each<[string, boolean, object[], object]>([
    ["followed by the cancel if the peer understands cancels", true, [notification("$/cancelRequest", { id: 1 })], {}],
    ["which may then run", false, [], { outcome: "unknown" }],
  ])("is sent whole if it is a batch with an aborted call, %s", async (_how, isReciproc, cancels, error) => {
    const { peer, transport, take, opening } = held({}, { isReciproc });
    const batch = peer.batch();
    const gone = rejection(batch.request("gone", [], { timeoutMs: 100 }));
    const stays = batch.request("stays");
    batch.send();
    await pass(100);
    expect(await gone).toBeInstanceOf(TimeoutError);
    expect(await gone).toMatchObject(error);
    expect(take()).toEqual([]);
    opening.release();
    expect(take()).toEqual([[request(1, "gone", []), request(2, "stays")], ...cancels]);
    transport.feed([result(1, 1), result(2, "here")]);
    expect(await stays).toBe("here");
    expectEmpty(peer);
  });

  it("rejects as not sent when the peer closes, and is not sent by a later opening", async () => {
    const { peer, take, opening } = held();
    const call = rejection(peer.request("m"));
    const batch = peer.batch();
    const member = rejection(batch.request("m"));
    batch.send();
    void peer.close();
    for (const error of [await call, await member]) expect(error).toMatchObject({ outcome: "not-sent" });
    expect(peer.notify("n")).toBe(false);
    opening.release();
    expect(take()).toEqual([]);
    expectEmpty(peer);
  });

  it("rejects as too large, as a call or a batch, when the transport refuses it after the opening", async () => {
    const { peer, transport, opening, errors } = held();
    const call = rejection(peer.request("call", ["x".repeat(100)]));
    const batch = peer.batch();
    const member = rejection(batch.request("member", ["x".repeat(100)]));
    batch.send();
    peer.notify("n", ["x".repeat(100)]);
    const others = peer.batch();
    others.notify("n", ["x".repeat(100)]);
    others.send();
    const short = peer.request("short");
    // The limit is known only after the opening.
    transport.maxMessageBytes = 100;
    opening.release();
    const why = { code: "TOO_LARGE", maxMessageBytes: 100 };
    expect(await call).toMatchObject({ ...why, method: "call" });
    expect(await member).toMatchObject({ ...why, method: "member" });
    // Two messages without a caller: a notification, and a batch of one.
    const bytes = JSON.stringify(notification("n", ["x".repeat(100)])).length;
    expect(errors).toMatchObject([
      { ...why, method: "n", bytes },
      { ...why, method: "n", bytes: bytes + 2 },
    ]);
    expect(inspect(peer)).toMatchObject({ pending: 1, openBatches: 0 });
    transport.feed(result(3, "ok"));
    expect(await short).toBe("ok");
  });
});

describe("a connection that is opened again", () => {
  it("queues again, and rejects the messages queued on the lost connection as not sent", async () => {
    const { peer, transport, take, opening, events } = held();
    const before = rejection(peer.request("before"));
    transport.suspend();
    transport.lose(GONE);
    expect(await before).toMatchObject({ outcome: "not-sent", cause: GONE });
    transport.resume();
    const after = peer.request("after");
    // The opening of the old connection, completed late by its application.
    opening.release();
    expect(await rejection(opening.caller.request("old"))).toMatchObject({ outcome: "not-sent", cause: GONE });
    expect(opening.caller.notify("old")).toBe(false);
    expect(take()).toEqual([]);
    expect(events).toEqual(["suspend (suspended)", "lost (suspended)"]);
    const next = openingOf(peer);
    void next.caller.notify("initialize");
    next.release();
    expect(take()).toEqual([notification("initialize"), request(2, "after")]);
    expect(events.slice(2)).toEqual(["resume (open)"]);
    transport.feed(result(2, 2));
    expect(await after).toBe(2);
  });

  it("is resumed when both it and its transport are opened, in either order", async () => {
    const { peer, transport, take, events } = held();
    openingOf(peer).release();
    transport.suspend();
    transport.lose(GONE);
    // Its opening needs no answer, and its messages are queued.
    const opening = openingOf(peer);
    opening.caller.notify("initialize");
    opening.release();
    peer.notify("n");
    expect(peer.state).toBe("suspended");
    expect(events).toEqual(["suspend (suspended)", "lost (suspended)"]);
    transport.resume();
    expect(take()).toEqual([notification("initialize"), notification("n")]);
    expect(events.slice(2)).toEqual(["resume (open)"]);
  });

  it("is suspended once, even if its transport is suspended again during the opening", async () => {
    const { peer, transport, take, events } = held();
    openingOf(peer).release();
    transport.suspend();
    transport.lose(GONE);
    transport.resume();
    const opening = openingOf(peer);
    opening.caller.notify("one");
    transport.suspend();
    opening.caller.notify("two");
    opening.release();
    peer.notify("three");
    expect(peer.state).toBe("suspended");
    transport.resume();
    expect(take().map(({ method }) => method)).toEqual(["one", "two", "three"]);
    expect(events).toEqual(["suspend (suspended)", "lost (suspended)", "resume (open)"]);
  });

  it("is suspended also when the socket is lost during its first opening", async () => {
    const { transport, opening, events } = held();
    transport.suspend();
    transport.resume();
    expect(events).toEqual(["suspend (suspended)"]);
    opening.release();
    expect(events.slice(1)).toEqual(["resume (open)"]);
  });
});
