import { describe, expect, it } from "vitest";
import { inspect } from "../../src/peer/peer.js";
import { pass, useFakeClock } from "../support/clock.js";
import { expectEmpty } from "../support/pair.js";
import { rawPeer, result } from "../support/raw.js";
import { Outcomes, rejection, turn } from "../support/turns.js";

useFakeClock();

/** Returns a signal that counts its listeners. */
function countedSignal(): { controller: AbortController; listeners: () => number } {
  const controller = new AbortController();
  const { signal } = controller;
  let count = 0;
  const add = signal.addEventListener.bind(signal);
  const remove = signal.removeEventListener.bind(signal);
  signal.addEventListener = (...args: Parameters<typeof add>) => {
    count++;
    add(...args);
  };
  signal.removeEventListener = (...args: Parameters<typeof remove>) => {
    count--;
    remove(...args);
  };
  return { controller, listeners: () => count };
}

describe("aborting a call", () => {
  it("rejects it at once with the signal's reason, and sends nothing on a plain link", async () => {
    const { peer, sent } = rawPeer();
    const controller = new AbortController();
    const reason = { why: "changed my mind" };
    const outcomes = new Outcomes().watch("call", peer.request("m", [], { signal: controller.signal }));
    controller.abort(reason);
    await turn();
    expect(outcomes.list).toEqual([{ name: "call", reason }]);
    expect((outcomes.list[0] as { reason: unknown }).reason).toBe(reason);
    expect(sent).toHaveLength(1);
    expect(inspect(peer).pending).toBe(0);
  });

  it("rejects with an AbortError when no reason was given", async () => {
    const { peer } = rawPeer();
    const controller = new AbortController();
    const call = peer.request("m", [], { signal: controller.signal });
    controller.abort();
    expect(await rejection(call)).toMatchObject({ name: "AbortError" });
  });

  it.each([undefined, null, 0, ""])("rejects with the reason unchanged, `%s` included", async (reason) => {
    const { peer } = rawPeer();
    const controller = new AbortController();
    const call = peer.request("m", [], { signal: controller.signal });
    controller.abort(reason);
    expect(await rejection(call)).toBe(controller.signal.reason);
  });

  it("sends nothing when the signal is aborted already", async () => {
    const { peer, sent } = rawPeer();
    expect(await rejection(peer.request("m", [], { signal: AbortSignal.abort("before") }))).toBe("before");
    expect(sent).toEqual([]);
    expectEmpty(peer);
  });

  it("does nothing after the answer", async () => {
    const { peer, feed } = rawPeer();
    const controller = new AbortController();
    const call = peer.request("m", [], { signal: controller.signal });
    feed(result(1, "done"));
    controller.abort("too late");
    expect(await call).toBe("done");
  });

  it("ignores a late answer", async () => {
    const { peer, feed, sent } = rawPeer();
    const controller = new AbortController();
    const call = peer.request("m", [], { signal: controller.signal });
    controller.abort("enough");
    feed(result(1, "done"));
    expect(await rejection(call)).toBe("enough");
    expect(inspect(peer).unmatched).toBe(1);
    expect(sent).toHaveLength(1);
  });

  it("rejects every call that shares the signal, and no other", async () => {
    const { peer, feed } = rawPeer();
    const controller = new AbortController();
    const { signal } = controller;
    const outcomes = new Outcomes();
    outcomes.watch("one", peer.request("m", [], { signal }));
    outcomes.watch("other", peer.request("m"));
    outcomes.watch("two", peer.request("m", [], { signal }));
    controller.abort("x");
    feed(result(2, "y"));
    await turn();
    expect(outcomes.list).toEqual([
      { name: "one", reason: "x" },
      { name: "two", reason: "x" },
      { name: "other", value: "y" },
    ]);
  });

  it.each([
    ["a string", "`soon` (string)"],
    ["null", "`null` (null)"],
    ["an object", "an object"],
  ])("refuses %s as a signal", async (kind, shown) => {
    const { peer, sent } = rawPeer();
    const signal = { "a string": "soon", null: null, "an object": {} }[kind] as unknown as AbortSignal;
    const error = await rejection(peer.request("m", [], { signal }));
    expect(error).toBeInstanceOf(TypeError);
    expect(error.message).toBe(`Expected \`signal\` to be an AbortSignal, got ${shown}`);
    expect(sent).toEqual([]);
  });
});

describe("a call's listener on its signal", () => {
  it.each<[string, (raw: ReturnType<typeof rawPeer>) => void | Promise<void>]>([
    ["an answer", (raw) => raw.feed(result(1, 1))],
    ["a timeout", () => pass(60_000)],
    ["the end of the connection", (raw) => raw.cut()],
    ["close()", (raw) => raw.peer.close()],
  ])("is removed after %s", async (_name, end) => {
    const raw = rawPeer();
    const { controller, listeners } = countedSignal();
    const outcomes = new Outcomes().watch("call", raw.peer.request("m", [], { signal: controller.signal }));
    expect(listeners()).toBe(1);
    await end(raw);
    await turn();
    expect(listeners()).toBe(0);
    expect(outcomes.names).toEqual(["call"]);
  });

  it("is removed after the abort itself", async () => {
    const { peer } = rawPeer();
    const { controller, listeners } = countedSignal();
    const call = peer.request("m", [], { signal: controller.signal });
    controller.abort("x");
    expect(await rejection(call)).toBe("x");
    expect(listeners()).toBe(0);
  });

  it("is removed when the transport accepts no message", async () => {
    const { peer } = rawPeer({}, { onSend: () => false });
    const { controller, listeners } = countedSignal();
    await rejection(peer.request("m", [], { signal: controller.signal }));
    expect(listeners()).toBe(0);
  });
});
