/** Cancelling between two peers, in both directions, on every kind of link. */
import { describe, expect, it } from "vitest";
import { acp, mcp, type Context, type Dialect } from "../../src/index.js";
import type { AnyOptions } from "../support/pair.js";
import { rejection } from "../support/turns.js";
import { asPlainPeers, everyWay, expectIdle, expectNoDeadlines, overPacks, until, type Join } from "./joined.js";
import { untilAborted } from "./waiting.js";

expectNoDeadlines();

/** Serves `wait`, which ends when it is aborted, and records each reason. */
class Waiting {
  readonly started: Context[] = [];
  readonly options: AnyOptions;

  constructor(more: AnyOptions = {}) {
    const wait = (_params: unknown, context: Context): Promise<never> => (
      this.started.push(context),
      untilAborted(context)
    );
    this.options = { ...more, methods: { wait, echo: (params) => params, ...more.methods } };
  }

  get aborted(): number {
    return this.started.filter(({ signal }) => signal.aborted).length;
  }
}

const plainPeersSpeaking =
  (dialect: Dialect): Join =>
  (a, b) =>
    asPlainPeers({ dialect, ...a }, { dialect, ...b });

describe.each([
  ...everyWay,
  ["between plain peers that chose acp", plainPeersSpeaking(acp)],
  ["between plain peers that chose mcp", plainPeersSpeaking(mcp)],
] as [string, Join][])("cancelling %s", (_name, join) => {
  it.each(["a", "b"] as const)("reaches the handler, for calls that %s makes", async (side) => {
    const waiting = new Waiting();
    await using both = await join(waiting.options, waiting.options);
    const controller = new AbortController();
    const call = both[side].request("wait", [], { signal: controller.signal });
    await until(() => waiting.started.length === 1);
    controller.abort("x");
    expect(await rejection(call)).toBe("x");
    await until(() => waiting.aborted === 1);
    expect(waiting.started[0]!.signal.reason).toMatchObject({ name: "AbortError" });
    await both.settled();
    expectIdle(both);
  });

  it("reaches one of two calls under the same id, one from each side", async () => {
    const [atA, atB] = [new Waiting(), new Waiting()];
    await using both = await join(atA.options, atB.options);
    const controller = new AbortController();
    const fromA = both.a.request("wait", [], { signal: controller.signal });
    const fromB = rejection(both.b.request("wait"));
    await until(() => atA.started.length + atB.started.length === 2);
    expect(atA.started[0]!.id).toBe(atB.started[0]!.id);
    controller.abort("x");
    await rejection(fromA);
    await until(() => atB.aborted === 1);
    await both.settled();
    expect(atA.aborted).toBe(0);
    await both.b.close();
    await fromB;
  });
});

describe("in one pack", () => {
  it("a call and its cancel arrive in order", async () => {
    const waiting = new Waiting();
    await using both = await overPacks(waiting.options);
    const controller = new AbortController();
    const call = both.b.request("wait", [], { signal: controller.signal });
    controller.abort("x");
    await rejection(call);
    await both.settled();
    expect(waiting.aborted).toBe(1);
    expect(both.from("a", 1)).toMatchObject([{ error: { code: -32800 } }]);
    expectIdle(both);
  });
});
