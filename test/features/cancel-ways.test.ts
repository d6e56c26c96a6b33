/** Cancelling between two peers, in both directions, on every kind of link. */
import { describe, expect, it } from "vitest";
import { acp, mcp, type Context, type Dialect } from "../../src/index.js";
import { inspect } from "../../src/peer/peer.js";
import type { AnyOptions } from "../support/pair.js";
import { rejection } from "../support/turns.js";
import {
  asPlainPeers,
  everyWay,
  expectIdle,
  expectNoDeadlines,
  overPacks,
  until,
  type Join,
  type Joined,
} from "./joined.js";

expectNoDeadlines();

/** Serves `wait`, which ends when it is aborted, and records each reason. */
class Waiting {
  readonly started: Context[] = [];
  readonly options: AnyOptions;

  constructor(more: AnyOptions = {}) {
    const wait = (_params: unknown, context: Context): Promise<never> => {
      this.started.push(context);
      return new Promise((_resolve, reject) =>
        context.signal.addEventListener("abort", () => reject(context.signal.reason)),
      );
    };
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

  it("reaches a thousand handlers, and leaves no state", async () => {
    const waiting = new Waiting();
    await using both = await join(waiting.options);
    const controllers = Array.from({ length: 1000 }, () => new AbortController());
    const calls = controllers.map(({ signal }) =>
      both.b.request("wait", [], { signal }).catch((error: unknown) => error),
    );
    await until(() => waiting.started.length === 1000);
    for (const controller of controllers) controller.abort("all of them");
    expect(new Set(await Promise.all(calls))).toEqual(new Set(["all of them"]));
    await until(() => waiting.aborted === 1000);
    await both.settled();
    expectIdle(both);
    expect(await both.b.request("echo", [1])).toEqual([1]);
  });

  it("goes through a peer in the middle that passes its signal on", async () => {
    const waiting = new Waiting();
    await using end = await join(waiting.options);
    const relay: AnyOptions = { methods: { relay: (params, { signal }) => end.b.request("wait", params, { signal }) } };
    await using start = await join(relay);
    const controller = new AbortController();
    const call = start.b.request("relay", [], { signal: controller.signal });
    await until(() => waiting.started.length === 1);
    controller.abort("x");
    expect(await rejection(call)).toBe("x");
    await until(() => waiting.aborted === 1);
    for (const both of [start, end]) {
      await both.settled();
      expectIdle(both);
    }
  });

  it("settles a batch of which some were cancelled", async () => {
    const waiting = new Waiting();
    await using both = await join(waiting.options);
    const controller = new AbortController();
    const batch = both.b.batch();
    const calls = [
      batch.request("wait", [], { signal: controller.signal }),
      batch.request("echo", [1]),
      batch.request("wait", [], { signal: controller.signal }),
    ];
    batch.send();
    await until(() => waiting.started.length === 2);
    controller.abort("x");
    expect(await Promise.allSettled(calls)).toEqual([
      { status: "rejected", reason: "x" },
      { status: "fulfilled", value: [1] },
      { status: "rejected", reason: "x" },
    ]);
    await both.settled();
    expectIdle(both);
  });
});

describe("between plain JSON-RPC peers without a dialect", () => {
  it("an aborted call is rejected locally and keeps running remotely", async () => {
    const waiting = new Waiting();
    await using both = await asPlainPeers(waiting.options);
    const controller = new AbortController();
    const call = both.b.request("wait", [], { signal: controller.signal });
    controller.abort("x");
    expect(await rejection(call)).toBe("x");
    await both.settled();
    expect(both.sent.map(({ message }) => message.method)).toEqual(["wait"]);
    expect(inspect(both.a).running).toBe(1);
    expect(waiting.aborted).toBe(0);
  });
});

async function packed(): Promise<{ both: Joined; waiting: Waiting }> {
  const waiting = new Waiting();
  return { both: await overPacks(waiting.options), waiting };
}

describe("in one pack", () => {
  it("a call and its cancel arrive in order", async () => {
    const { both, waiting } = await packed();
    await using _ = both;
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
