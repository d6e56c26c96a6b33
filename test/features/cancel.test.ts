/** Cancelling, from the caller's side: the rejection, and the messages sent to the other side. */
import { describe, expect, it } from "vitest";
import { acp, lsp, mcp, TimeoutError, type Dialect } from "../../src/index.js";
import { inspect } from "../../src/peer/peer.js";
import { pass, useFakeClock } from "../support/clock.js";
import { expectEmpty } from "../support/pair.js";
import { failure, notification, rawPeer, request, result, type RawPeer } from "../support/raw.js";
import { Outcomes, rejection, turn } from "../support/turns.js";

useFakeClock();

const cancelOf = (id: number): object => notification("$/cancelRequest", { id });

/** Returns a peer whose other side is a reciproc peer, so that cancels are sent. */
const reciprocPeer = (): RawPeer => rawPeer({}, { isReciproc: true });

function raise(message: string): never {
  throw new Error(message);
}

describe("a call that is aborted", () => {
  it("rejects at once with the signal's reason, and sends one cancel", async () => {
    const { peer, messages } = reciprocPeer();
    const controller = new AbortController();
    const reason = { why: "changed my mind" };
    const outcomes = new Outcomes().watch("call", peer.request("m", [1], { signal: controller.signal }));
    controller.abort(reason);
    // Before the other side could answer.
    expect(messages()).toEqual([request(1, "m", [1]), cancelOf(1)]);
    expect(inspect(peer).pending).toBe(0);
    await turn();
    expect(outcomes.list).toEqual([{ name: "call", reason }]);
    expect((outcomes.list[0] as { reason: unknown }).reason).toBe(reason);
  });

  it("is cancelled once, however often its signal fires", async () => {
    const { peer, messages } = reciprocPeer();
    const controller = new AbortController();
    const call = peer.request("m", [], { signal: controller.signal });
    controller.abort("first");
    controller.abort("second");
    controller.signal.dispatchEvent(new Event("abort"));
    expect(await rejection(call)).toBe("first");
    expect(messages()).toHaveLength(2);
  });

  it("ignores a late answer", async () => {
    const { peer, feed, messages } = reciprocPeer();
    const controller = new AbortController();
    const call = peer.request("m", [], { signal: controller.signal });
    controller.abort("enough");
    feed(result(1, "too late"));
    expect(await rejection(call)).toBe("enough");
    expect(inspect(peer).unmatched).toBe(1);
    expect(messages()).toHaveLength(2);
  });

  it("sends nothing at all when its signal is aborted already", async () => {
    const { peer, sent } = reciprocPeer();
    expect(await rejection(peer.request("m", [], { signal: AbortSignal.abort("before") }))).toBe("before");
    expect(sent).toEqual([]);
    expectEmpty(peer);
  });

  it("sends no cancel after a result, an error, or the end of the connection", async () => {
    const { peer, feed, cut, sent } = reciprocPeer();
    const controller = new AbortController();
    const calls = ["a", "b", "c"].map((method) => peer.request(method, [], { signal: controller.signal }));
    feed(result(1, "done"));
    feed(failure(2, 5, "no"));
    cut();
    controller.abort("too late");
    const [first] = await Promise.allSettled(calls);
    expect(first).toMatchObject({ value: "done" });
    expect(sent).toHaveLength(3);
  });

  it("cancels each of the calls that share the signal, under its own id", async () => {
    const { peer, messages } = reciprocPeer();
    const controller = new AbortController();
    const { signal } = controller;
    const outcomes = new Outcomes();
    for (const name of ["a", "b"]) outcomes.watch(name, peer.request(name, [], { signal }));
    peer.request("other").catch(() => {});
    controller.abort("x");
    expect(messages().slice(3)).toEqual([cancelOf(1), cancelOf(2)]);
    await turn();
    expect(outcomes.names).toEqual(["a", "b"]);
  });

  it("sends no cancel when the transport refused it", async () => {
    const { peer, sent } = rawPeer({}, { isReciproc: true, onSend: () => false });
    const controller = new AbortController();
    const call = peer.request("m", [], { signal: controller.signal });
    controller.abort("x");
    expect(await rejection(call)).toMatchObject({ outcome: "not-sent" });
    expect(sent).toHaveLength(1);
  });

  it("rejects even if the cancel is refused or cannot be encoded", async () => {
    const spoiled: Dialect = { ...lsp, cancel: { ...lsp.cancel, params: () => raise("no params") } };
    const silent = rawPeer({ dialect: lsp }, { onSend: (text) => !text.includes("cancel") });
    const failing = rawPeer({ dialect: spoiled });
    for (const { peer } of [silent, failing]) {
      const controller = new AbortController();
      const call = peer.request("m", [], { signal: controller.signal });
      controller.abort("x");
      expect(await rejection(call)).toBe("x");
    }
    expect(failing.errors).toEqual([new Error("no params")]);
    expect(silent.errors).toEqual([]);
  });

  it("is cancelled each time when it was made inside `around`", async () => {
    const raw = rawPeer({ around: (_call, next) => next().catch(() => next()) }, { isReciproc: true });
    const controller = new AbortController();
    const call = raw.peer.request("m", [], { signal: controller.signal });
    await turn();
    controller.abort("x");
    expect(await rejection(call)).toBe("x");
    // The signal of the second attempt was already aborted, so nothing was sent.
    expect(raw.messages()).toEqual([request(1, "m", []), cancelOf(1)]);
  });
});

describe("a call that times out", () => {
  it("is cancelled", async () => {
    const { peer, messages } = reciprocPeer();
    const outcomes = new Outcomes().watch("call", peer.request("m", [], { timeoutMs: 100 }));
    await pass(99);
    expect(messages()).toHaveLength(1);
    await pass(1);
    expect(outcomes.list).toEqual([{ name: "call", reason: expect.any(TimeoutError) }]);
    expect(messages()[1]).toEqual(cancelOf(1));
    await pass(1000);
    expect(messages()).toHaveLength(2);
  });
});

describe("a call in a batch", () => {
  it("that is not sent yet is omitted when it is aborted, and nothing is cancelled", async () => {
    const { peer, messages } = reciprocPeer();
    const controller = new AbortController();
    const batch = peer.batch();
    const dropped = batch.request("dropped", [], { signal: controller.signal });
    batch.request("kept").catch(() => {});
    batch.notify("emitted");
    await turn();
    controller.abort("x");
    batch.send();
    expect(await rejection(dropped)).toBe("x");
    expect(messages()).toEqual([[request(2, "kept"), notification("emitted")]]);
  });

  it("that was sent is cancelled separately, and the rest of the batch still settles", async () => {
    const { peer, messages, feed } = reciprocPeer();
    const controller = new AbortController();
    const batch = peer.batch();
    const outcomes = new Outcomes();
    outcomes.watch("one", batch.request("one", [], { signal: controller.signal }));
    outcomes.watch("two", batch.request("two"));
    batch.send();
    await turn();
    controller.abort("x");
    expect(messages()[1]).toEqual(cancelOf(1));
    await turn();
    feed([result(2, "there")]);
    await turn();
    expect(outcomes.list).toEqual([
      { name: "one", reason: "x" },
      { name: "two", value: "there" },
    ]);
    expectEmpty(peer);
  });
});

async function abortOne(raw: RawPeer, method = "m"): Promise<any[]> {
  const controller = new AbortController();
  const call = raw.peer.request(method, [], { signal: controller.signal });
  controller.abort(new Error("the user left"));
  await rejection(call);
  return raw.messages().slice(1);
}

describe("a peer", () => {
  it("on a plain link without a dialect sends no cancel, even if it reads streams", async () => {
    const raw = rawPeer();
    const reading = raw.peer.stream("tail")[Symbol.asyncIterator]();
    const first = reading.next();
    await turn();
    raw.feed(result(1, { values: [1] }));
    expect(await first).toEqual({ done: false, value: 1 });
    const controller = new AbortController();
    const call = raw.peer.request("m", [], { signal: controller.signal });
    controller.abort("x");
    await rejection(call);
    expect(raw.messages()).toEqual([request(1, "tail"), request(2, "m", [])]);
  });

  it.each<[string, Dialect, object[]]>([
    ["lsp", lsp, [cancelOf(1)]],
    ["acp", acp, [notification("$/cancel_request", { requestId: 1 })]],
    ["mcp", mcp, [notification("notifications/cancelled", { requestId: 1, reason: "the user left" })]],
  ])("that chose %s speaks it, on a plain link too", async (_name, dialect, expected) => {
    expect(await abortOne(rawPeer({ dialect }))).toEqual(expected);
  });

  it.each([
    ["a string", "enough", { requestId: 1, reason: "enough" }],
    ["an empty string", "", { requestId: 1 }],
    ["no text", { deep: 1 }, { requestId: 1 }],
  ])("that speaks mcp sends the reason if it is %s", async (_name, reason, params) => {
    const { peer, messages } = rawPeer({ dialect: mcp });
    const controller = new AbortController();
    const call = peer.request("m", [], { signal: controller.signal });
    controller.abort(reason);
    await rejection(call);
    expect(messages()[1]).toEqual(notification("notifications/cancelled", params));
  });

  it("that speaks mcp never cancels `initialize`", async () => {
    expect(await abortOne(rawPeer({ dialect: mcp }), "initialize")).toEqual([]);
    expect(await abortOne(rawPeer({ dialect: lsp }), "initialize")).toEqual([cancelOf(1)]);
  });
});
