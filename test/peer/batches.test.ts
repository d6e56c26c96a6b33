import { describe, expect, it } from "vitest";
import { TimeoutError, type AnyPeer } from "../../src/index.js";
import { expectEmpty } from "../support/pair.js";
import { failure, notification, rawPeer, request, result, sessionPeer } from "../support/raw.js";
import { Outcomes, pass, rejection, turn, useVirtualClock } from "../support/time.js";

useVirtualClock();

function batchOf(peer: AnyPeer, ...methods: string[]): Promise<unknown>[] {
  const batch = peer.batch();
  const calls = methods.map((method) => batch.request(method));
  batch.send();
  return calls;
}

const NAMELESS = failure(null, -32600, "Invalid Request");

describe("peer.batch()", () => {
  it("sends nothing before send(), then requests and notifications in one array, nothing if it is empty, and waits for no reply to notifications", () => {
    const { peer, sent, messages, feed, errors } = rawPeer();
    const batch = peer.batch();
    void batch.request("a", [1]).catch(() => {});
    expect(batch.notify("b", { x: 1 })).toBe(true);
    void batch.remote.c().catch(() => {});
    expect(sent).toEqual([]);
    batch.send();
    peer.batch().send();
    expect(messages()).toEqual([[request(1, "a", [1]), notification("b", { x: 1 }), request(2, "c")]]);
    feed([result(1, 1), result(2, 2)]);
    const others = peer.batch();
    for (const name of ["a", "b"]) others.notify(name);
    others.send();
    expect(messages()[1]).toEqual([notification("a"), notification("b")]);
    feed(NAMELESS);
    expect(errors).toHaveLength(1);
    expectEmpty(peer);
  });

  it("stays pending and emits the error when two batches are pending and an error has id null", async () => {
    const { peer, feed, errors } = rawPeer();
    const calls = [...batchOf(peer, "m"), ...batchOf(peer, "m")];
    feed(NAMELESS);
    expect(errors).toEqual([expect.objectContaining({ code: -32600, message: "Invalid Request" })]);
    feed([result(1, 1)]);
    feed([result(2, 2)]);
    expect(await Promise.all(calls)).toEqual([1, 2]);
  });

  it("starts each timeout when the call is added, leaves out a call that timed out before send(), and keeps the others", async () => {
    const { peer, feed, messages } = rawPeer();
    const batch = peer.batch();
    const outcomes = new Outcomes().watch("before", batch.request("m", [], { timeoutMs: 10 }));
    outcomes.watch("after", batch.request("a", [], { timeoutMs: 20 })).watch("never", batch.request("b"));
    await pass(10);
    batch.send();
    expect(messages()).toEqual([[request(2, "a", []), request(3, "b")]]);
    await pass(10);
    feed([result(2, "late"), result(3, "fine")]);
    await turn();
    const late = expect.any(TimeoutError);
    expect(outcomes.list).toEqual([
      { name: "before", reason: late },
      { name: "after", reason: late },
      { name: "never", value: "fine" },
    ]);
    expectEmpty(peer);
  });

  it("refuses invalid params at once and keeps the other calls, and throws when it is sent twice or extended after send()", async () => {
    const { peer, messages } = rawPeer();
    const batch = peer.batch();
    expect(await rejection(batch.request("m", 5))).toBeInstanceOf(TypeError);
    expect(() => batch.notify("m", 5)).toThrow(TypeError);
    batch.notify("good");
    batch.send();
    const message = "this batch was sent already";
    expect(() => batch.send()).toThrow(message);
    expect(() => batch.notify("b")).toThrow(message);
    expect(await rejection(batch.request("c"))).toMatchObject({ message });
    expect(messages()).toEqual([[notification("good")]]);
    expectEmpty(peer);
  });
});

describe("an error with id null, while one batch is pending,", () => {
  it("does not reject the batch for errors that came before this side sent one", async () => {
    const raw = rawPeer();
    // A server may refuse notifications so.
    for (let i = 0; i < 3; i++) raw.feed(NAMELESS);
    const [call] = batchOf(raw.peer, "a");
    raw.feed("{");
    raw.feed(NAMELESS);
    expect(raw.errors).toHaveLength(4);
    raw.feed([result(1, "a")]);
    expect(await call).toBe("a");
  });

  it("in an array is counted as well, and rejects no batch, alone or beside the reply to another batch", async () => {
    const raw = rawPeer();
    const calls = batchOf(raw.peer, "a", "b");
    raw.feed([1, 2]);
    raw.feed([NAMELESS, NAMELESS]);
    const [call] = batchOf(raw.peer, "c");
    raw.feed([result(3, "c"), NAMELESS]);
    expect(await call).toBe("c");
    raw.feed([NAMELESS]);
    expect(raw.errors).toEqual(Array.from({ length: 4 }, () => expect.objectContaining({ code: -32600 })));
    raw.feed([result(1, "a"), result(2, "b")]);
    expect(await Promise.all(calls)).toEqual(["a", "b"]);
    expectEmpty(raw.peer);
  });

  it("is counted from zero for each connection", async () => {
    const { peer, transport } = sessionPeer();
    transport.feed("{");
    transport.suspend();
    transport.lose(new Error("gone"));
    transport.resume();
    const [call] = batchOf(peer, "a").map(rejection);
    transport.feed(NAMELESS);
    expect(await call).toMatchObject({ code: -32600 });
  });
});
