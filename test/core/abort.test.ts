import { describe, expect, it } from "vitest";
import { pass, useFakeClock } from "../support/clock.js";
import { countedSignal } from "../support/counting.js";
import { expectEmpty } from "../support/pair.js";
import { rawPeer, result, type RawPeer } from "../support/raw.js";
import { Outcomes, rejection, turn } from "../support/turns.js";

useFakeClock();

describe("aborting a call", () => {
  it.each([undefined, null, 0, ""])("rejects with the reason unchanged, `%s` included", async (reason) => {
    const { peer } = rawPeer();
    const controller = new AbortController();
    const call = peer.request("m", [], { signal: controller.signal });
    controller.abort(reason);
    expect(await rejection(call)).toBe(controller.signal.reason);
  });

  it.each([
    ["a string", "soon", "`soon` (string)"],
    ["null", null, "`null` (null)"],
    ["an object without addEventListener", { aborted: false }, "an object"],
    ["an object without removeEventListener", { aborted: false, addEventListener: () => {} }, "an object"],
  ])("refuses %s as a signal", async (_kind, signal, shown) => {
    const { peer, sent } = rawPeer();
    const error = await rejection(peer.request("m", [], { signal: signal as AbortSignal }));
    expect(error).toBeInstanceOf(TypeError);
    expect(error.message).toBe(`Expected \`signal\` to be an AbortSignal, got ${shown}`);
    expect(sent).toEqual([]);
    expectEmpty(peer);
  });
});

describe("a call's listener on its signal", () => {
  it.each<[string, (raw: RawPeer, controller: AbortController) => void | Promise<void>]>([
    ["an answer", (raw) => raw.feed(result(1, 1))],
    ["a timeout", () => pass(60_000)],
    ["the end of the connection", (raw) => raw.cut()],
    ["close()", (raw) => raw.peer.close()],
    ["the abort itself", (_raw, controller) => controller.abort("x")],
  ])("is removed after %s", async (_name, end) => {
    const raw = rawPeer();
    const { controller, listeners } = countedSignal();
    const outcomes = new Outcomes().watch("call", raw.peer.request("m", [], { signal: controller.signal }));
    expect(listeners()).toBe(1);
    await end(raw, controller);
    await turn();
    expect(listeners()).toBe(0);
    expect(outcomes.names).toEqual(["call"]);
  });

  it("is removed when the transport accepts no message", async () => {
    const { peer } = rawPeer({}, { onSend: () => false });
    const { controller, listeners } = countedSignal();
    await rejection(peer.request("m", [], { signal: controller.signal }));
    expect(listeners()).toBe(0);
  });
});
