import { describe, expect, it } from "vitest";
import { ConnectionLostError, type Context } from "../../src/index.js";
import { expectEmpty, inBatch, type AnyOptions } from "../support/pair.js";
import { failure, notification, request, result, sessionPeer, type SessionPeer } from "../support/raw.js";
import { gate, Outcomes, raising, rejection, timersSet, turn, useVirtualClock, type Gate } from "../support/time.js";

useVirtualClock();

const GONE = new Error("the server has no such session");

function lostPeer(options: AnyOptions = {}, isReciproc = false): SessionPeer {
  const ends = sessionPeer(options, { isReciproc });
  lose(ends);
  ends.events.length = 0;
  return ends;
}

const lose = ({ transport }: SessionPeer): void => (transport.suspend(), transport.lose(GONE));

it("a peer that is suspended sends the cancel of a call that was sent, and no cancel of a queued one, after the queue", async () => {
  const { peer, transport, take } = sessionPeer({}, { isReciproc: true });
  const controller = new AbortController();
  const { signal } = controller;
  const errors = [rejection(peer.request("sent", [], { signal }))];
  take();
  transport.suspend();
  errors.push(rejection(peer.request("aborted", [], { signal })));
  peer.notify("waits");
  controller.abort("enough");
  expect(await Promise.all(errors)).toEqual(["enough", "enough"]);
  transport.resume();
  expect(take()).toEqual([notification("waits"), notification("$/cancelRequest", { id: 1 })]);
});

describe("a loss", () => {
  it("is emitted with its error, after every pending call is settled, and leaves no timeout", async () => {
    const { peer, transport, events } = sessionPeer();
    const outcomes = new Outcomes();
    outcomes.watch("call", peer.request("m", [], { timeoutMs: 1000, maxTotalTimeoutMs: 5000 }));
    transport.suspend();
    const emitted: unknown[] = [];
    peer.on("lost", (error) => emitted.push(error, peer.stats().pending));
    transport.lose(GONE);
    expect([emitted, timersSet()]).toEqual([[GONE, 0], 0]);
    await turn();
    expect(outcomes.list).toMatchObject([{ name: "call", reason: { outcome: "unknown", cause: GONE } }]);
    transport.resume();
    expect(events).toEqual(["suspend (suspended)", "lost (suspended)", "resume (open)"]);
  });

  it("keeps the counts, and the handlers of this peer", async () => {
    const ends = sessionPeer({ methods: { of: () => "all" } });
    const { peer, transport, take } = ends;
    const undo = peer.handle("of", () => "this one");
    peer.notify("said");
    lose(ends);
    transport.resume();
    transport.feed(request(1, "of"));
    undo();
    transport.feed(request(2, "of"));
    expect(take().slice(1)).toEqual([result(1, "this one"), result(2, "all")]);
    expect(peer.stats()).toMatchObject({ requestsReceived: 2, notificationsSent: 1 });
  });

  it("may occur repeatedly, and lets a listener prepare the next connection, even if another one throws", async () => {
    const { peer, transport, take, events, errors } = sessionPeer();
    const bug = new Error("bug in a listener");
    transport.suspend();
    const lost = rejection(peer.request("m"));
    transport.lose(GONE);
    peer.on("lost", raising(bug));
    let call: Promise<unknown> | undefined;
    peer.on("lost", () => (call = peer.request("initialize")));
    transport.lose(new Error("again"));
    expect(await lost).toMatchObject({ outcome: "not-sent", cause: GONE });
    transport.resume();
    expect(take()).toEqual([request(2, "initialize")]);
    transport.feed(result(2, {}));
    expect(await call).toEqual({});
    expect(errors).toEqual([bug]);
    expect(events).toEqual(["suspend (suspended)", "lost (suspended)", "lost (suspended)", "resume (open)"]);
  });
});

function running(isInBatch = false): SessionPeer & { contexts: Context[]; opened: Gate<unknown> } {
  const contexts: Context[] = [];
  const opened = gate<unknown>();
  const wait = (_params: unknown, context: Context): unknown => {
    contexts.push(context);
    void context.signal;
    return opened.promise;
  };
  const ends = sessionPeer({ methods: { wait, now: () => 1 } });
  const call = request(1, "wait", { _meta: { progressToken: 1 } });
  ends.transport.feed(isInBatch ? [request(0, "now"), call] : call);
  return { ...ends, contexts, opened };
}

describe("a handler that runs when its connection is lost", () => {
  it.each<[string, boolean, (opened: Gate<unknown>) => void]>([
    ["answer", false, (opened) => opened.resolve("too late")],
    ["error", false, (opened) => opened.reject(GONE)],
    ["answer to its batch", true, (opened) => opened.resolve("too late")],
  ])("is aborted with the loss, and sends no %s", async (_what, isInBatch, end) => {
    const { peer, transport, take, contexts, opened, errors } = running(isInBatch);
    transport.suspend();
    expect(contexts[0]!.signal.aborted).toBe(false);
    transport.lose(GONE);
    expect(contexts[0]!.signal.reason).toBe(GONE);
    transport.resume();
    end(opened);
    await turn();
    expect([take(), errors, peer.stats().running]).toEqual([[], [], 0]);
  });

  it("can notify on the next connection, and is not confused with a request of the same id there", async () => {
    const ends = running();
    const { peer, transport, take, contexts, opened } = ends;
    contexts[0]!.signal.addEventListener("abort", () => contexts[0]!.peer.notify("aborted"));
    lose(ends);
    transport.resume();
    // Its progress is of the lost connection.
    contexts[0]!.progress(50);
    expect(take()).toEqual([notification("aborted")]);
    transport.feed(request(1, "wait"));
    expect(peer.stats().running).toBe(1);
    transport.feed(notification("$/cancelRequest", { id: 1 }));
    expect(contexts[1]!.signal.reason).toMatchObject({ name: "AbortError" });
    expect(contexts[0]!.signal.reason).toBe(GONE);
    opened.resolve("one answer");
    await turn();
    expect(take()).toEqual([result(1, "one answer")]);
  });
});

it("a batch and a call whose connection is lost ignore late answers, because no id is used again, and the next batch is independent of them", async () => {
  const ends = sessionPeer();
  const { peer, transport, take } = ends;
  const calls = [inBatch(peer, "a"), peer.request("alone")].map(rejection);
  lose(ends);
  for (const error of await Promise.all(calls)) expect(error).toMatchObject({ outcome: "unknown", cause: GONE });
  transport.resume();
  transport.feed([result(1, 1)]);
  transport.feed(result(2, 2));
  expect(peer.stats().unmatched).toBe(2);
  take();
  const call = rejection(inBatch(peer, "c"));
  expect(take()).toEqual([[request(3, "c")]]);
  // It is the only batch that waits.
  transport.feed(failure(null, -32600, "no batches here"));
  expect(await call).toMatchObject({ message: "no batches here" });
});

it("a batch that is not sent yet rejects its calls, later ones included", async () => {
  const ends = sessionPeer();
  const batch = ends.peer.batch();
  const before = rejection(batch.request("a"));
  lose(ends);
  ends.transport.resume();
  const lost = { outcome: "not-sent", cause: GONE };
  expect([await before, await rejection(batch.request("c"))]).toMatchObject([lost, lost]);
  expect(batch.notify("d")).toBe(false);
  batch.send();
  expect(ends.take()).toEqual([]);
});

it("a peer that is closed while its loss aborts a handler stays closed, and emits nothing more", async () => {
  const { peer, transport, events, contexts, opened } = running();
  contexts[0]!.signal.addEventListener("abort", () => void peer.close(4001, "no more"));
  const call = rejection(peer.request("m"));
  transport.suspend();
  transport.lose(GONE);
  expect(events).toEqual(["suspend (suspended)", "close (closed)"]);
  expect(transport.closes).toEqual([{ code: 4001, reason: "no more" }]);
  expect(await call).toBeInstanceOf(ConnectionLostError);
  opened.resolve(undefined);
  await turn();
  expectEmpty(peer);
});

describe("a message that is queued until the next connection", () => {
  it("is sent in the order of the calls, before messages that are queued during the flush, and does not count after that", async () => {
    const { peer, transport, take } = lostPeer({ limits: { maxUnsentBytes: 1200 } });
    const long = ["x".repeat(200)];
    const calls = [peer.request("first")];
    expect(peer.notify("second")).toBe(true);
    const batch = peer.batch();
    calls.push(batch.request("third"));
    batch.notify("third too");
    batch.send();
    calls.push(peer.remote.fourth!());
    expect(peer.notify("fifth", long)).toBe(false);
    await turn();
    expect(take()).toEqual([]);
    transport.onSend = (text) => {
      if (text.includes("second")) expect(peer.notify("fifth", long)).toBe(true);
    };
    transport.resume();
    expect(take()).toEqual([
      request(1, "first"),
      notification("second"),
      [request(2, "third"), notification("third too")],
      request(3, "fourth"),
      notification("fifth", long),
    ]);
    for (const id of [1, 2, 3]) transport.feed(result(id, id));
    expect(await Promise.all(calls)).toEqual([1, 2, 3]);
  });

  it("rejects as not sent, or is dropped if a notification, beyond half of `maxUnsentBytes`", async () => {
    const { peer, transport, take } = lostPeer({ limits: { maxUnsentBytes: 1000 } });
    const outcomes = new Outcomes();
    for (const n of [1, 2, 3, 4, 5]) outcomes.watch(`${n}`, peer.request("m", [n]));
    // Each message counts 64 bytes besides its length. A fifth call exceeds the bound, a shorter message does not.
    expect([1, 2, 3].map(() => peer.notify("n"))).toEqual([true, false, false]);
    await turn();
    const reason = { outcome: "not-sent", cause: { message: "the queue is full" } };
    expect(outcomes.list).toMatchObject([{ name: "5", reason }]);
    transport.resume();
    expect(take().map(({ id }) => id)).toEqual([1, 2, 3, 4, undefined]);
    expect(peer.notify("n")).toBe(true);
  });

  it("rejects as too large, as a call or a batch, when the transport refuses it then", async () => {
    const { peer, transport, errors } = lostPeer();
    const long = ["x".repeat(100)];
    const calls = [peer.request("m", long), inBatch(peer, "m", long)].map(rejection);
    peer.notify("n", long);
    const batch = peer.batch();
    batch.notify("n", long);
    batch.send();
    // The limit is known only then.
    transport.maxMessageBytes = 100;
    transport.resume();
    const why = { code: "TOO_LARGE", maxMessageBytes: 100 };
    for (const error of await Promise.all(calls)) expect(error).toMatchObject({ ...why, method: "m" });
    // Two messages without a caller: a notification, and a batch of one.
    const { length: bytes } = JSON.stringify(notification("n", long));
    expect(errors).toMatchObject([bytes, bytes + 2].map((size) => ({ ...why, method: "n", bytes: size })));
  });
});
