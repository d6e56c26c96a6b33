/** Handlers: how they are found, what they get, in which order they run, and when they are stopped. */
import { describe, expect, it } from "vitest";
import type { Context } from "../../src/index.js";
import { RpcError } from "../../src/index.js";
import { connectedPair, expectEmpty, type AnyOptions } from "../support/pair.js";
import { failure, notification, rawPeer, request, result } from "../support/raw.js";
import { gate, Outcomes, rejection, turn } from "../support/turns.js";

const NOT_FOUND = { code: -32601, message: "Method not found", data: undefined };

describe("methods", () => {
  it("are called without `this`", async () => {
    await using pair = connectedPair({
      methods: {
        self(this: unknown) {
          return this === undefined;
        },
      },
    });
    expect(await pair.b.request("self")).toBe(true);
  });

  it("are read once, from an object with or without prototype, and an undefined one is left out", async () => {
    const methods = Object.assign(Object.create(null) as object, { a: () => 1, b: undefined as never });
    await using pair = connectedPair({ methods });
    Object.assign(methods, { a: () => 2, b: () => 3 });
    expect(await pair.b.request("a")).toBe(1);
    expect(await rejection(pair.b.request("b"))).toMatchObject(NOT_FOUND);
  });
});

describe("peer.handle", () => {
  it("overrides `methods` until it is removed, for this peer alone", async () => {
    const options = { methods: { m: () => "shared" } };
    await using one = connectedPair(options);
    await using two = connectedPair(options);
    const undo = one.a.handle("m", () => "mine");
    expect(await one.b.request("m")).toBe("mine");
    expect(await two.b.request("m")).toBe("shared");
    undo();
    expect(await one.b.request("m")).toBe("shared");
  });

  it("throws for a second handler of the same name, and never removes a newer handler", async () => {
    await using pair = connectedPair();
    const undo = pair.a.handle("m", () => 1);
    expect(() => pair.a.handle("m", () => 2)).toThrow("`m` has a handler already");
    undo();
    pair.a.handle("m", () => 3);
    undo();
    expect(await pair.b.request("m")).toBe(3);
  });

  it("may register a reserved name, and the name of an Object member", async () => {
    await using pair = connectedPair();
    for (const name of ["rpc.discover", "__proto__"]) {
      pair.a.handle(name, () => "mine");
      expect(await pair.b.request(name)).toBe("mine");
    }
  });

  it("refuses what is no function as a handler, and what is no string as a name", () => {
    const { peer } = rawPeer();
    for (const bad of [undefined, null, 1, {}]) {
      expect(() => peer.handle("m", bad as never)).toThrow(/^Expected `handler` to be a function, got /);
      expect(() => peer.handle(bad as never, () => 1)).toThrow(/^Expected `method` to be a string, got /);
    }
  });
});

describe("fallback", () => {
  it("serves every method without a handler, and receives its name", async () => {
    await using pair = connectedPair({
      methods: { known: () => "known" },
      fallback: (params, { method, id }) => ({ params, method, id }),
    });
    expect(await pair.b.request("other", [1])).toEqual({ params: [1], method: "other", id: 1 });
    expect(await pair.b.request("constructor")).toEqual({ method: "constructor", id: 2 });
    expect(await pair.b.request("known")).toBe("known");
  });

  it("receives notifications too, which then are not emitted", () => {
    const got: unknown[] = [];
    const raw = rawPeer({ fallback: (params, { method, id }) => void got.push(method, params, id) });
    raw.peer.on("notification", (method) => got.push(`emitted ${method}`));
    raw.feed(notification("said", [1]));
    expect([got, raw.sent]).toEqual([["said", [1], undefined], []]);
  });

  it("never serves the reserved rpc.*", async () => {
    await using pair = connectedPair({ fallback: () => "caught" });
    for (const method of ["rpc.", "rpc.discover"]) {
      expect(await rejection(pair.b.request(method))).toMatchObject(NOT_FOUND);
    }
    expect(await pair.b.request("rpc")).toBe("caught");
    expect(await pair.b.request("RPC.x")).toBe("caught");
  });
});

describe("context", () => {
  it("has peer, method and id, and can be destructured", async () => {
    const seen: unknown[] = [];
    const m = (_params: unknown, { peer, method, id, signal, progress }: Context): void => {
      seen.push(peer, method, id, signal.aborted, progress(1));
    };
    await using pair = connectedPair({ methods: { m } });
    await pair.b.request("m");
    pair.b.notify("m");
    await turn();
    expect(seen).toEqual([pair.a, "m", 1, false, undefined, pair.a, "m", undefined, false, undefined]);
  });
});

describe("context.signal", () => {
  it.each<[string, (raw: ReturnType<typeof rawPeer>) => unknown, string]>([
    ["is closed here", (raw) => raw.peer.close(3001, "enough"), "closed on this side with 3001 (enough)"],
    ["is cut", (raw) => raw.cut({ code: 1006 }), "closed with 1006"],
  ])("aborts, with the reason, in every handler that runs when the peer %s", async (_name, end, reason) => {
    const open = gate();
    const contexts: Context[] = [];
    const unread = (_params: unknown, context: Context): Promise<void> => (contexts.push(context), open.promise);
    const read = (params: unknown, context: Context): unknown => (void context.signal, unread(params, context));
    const raw = rawPeer({ methods: { read, unread } });
    raw.feed(request(1, "read"));
    raw.feed(request(2, "unread"));
    raw.feed(notification("unread"));
    void end(raw);
    expect(contexts.map(({ signal }) => [signal.aborted, signal.reason.message])).toEqual(
      contexts.map(() => [true, reason]),
    );
    expect(contexts).toHaveLength(3);
    open.resolve();
    await turn();
    expect(raw.sent).toEqual([]);
    expectEmpty(raw.peer);
  });

  it("aborts in a handler that closed the peer before it first read the signal", async () => {
    let seen: AbortSignal | undefined;
    const m = async (_params: unknown, { peer, signal }: Context): Promise<void> => {
      seen = signal;
      void peer.close();
      await turn();
    };
    const raw = rawPeer({ methods: { m } });
    raw.feed(request(1, "m"));
    expect(seen!.aborted).toBe(true);
    await turn();
    await turn();
    expectEmpty(raw.peer);
  });

  it("does not change after the handler has ended", async () => {
    let context: Context | undefined;
    const raw = rawPeer({ methods: { m: async (_params, given) => void (context = given) } });
    raw.feed(request(1, "m"));
    await turn();
    await raw.peer.close();
    expect(context!.signal.aborted).toBe(false);
  });
});

describe("handlers", () => {
  it("start in the order in which their messages arrived, requests and notifications alike", async () => {
    const started: number[] = [];
    const m = async ([n]: [number]): Promise<void> => {
      started.push(n);
      await turn();
    };
    await using pair = connectedPair({ methods: { m } });
    const calls = [pair.b.request("m", [1])];
    pair.b.notify("m", [2]);
    calls.push(pair.b.request("m", [3]));
    const batch = pair.b.batch();
    calls.push(batch.request("m", [4]));
    batch.notify("m", [5]);
    batch.send();
    pair.b.notify("m", [6]);
    await Promise.all(calls);
    expect(started).toEqual([1, 2, 3, 4, 5, 6]);
  });

  it.each<[string, AnyOptions]>([
    [
      "an asynchronous schema",
      { schemas: { slow: { "~standard": { validate: async (value: unknown) => (await turn(), { value }) } } } },
    ],
    [
      "an `around` that waits",
      {
        around: async ({ method }: { method: string }, next: () => unknown) => (
          method === "slow" && (await turn()),
          next()
        ),
      },
    ],
  ])("start after handlers of later messages if they have %s, which delays no other", async (_what, options) => {
    const started: string[] = [];
    const methods = { slow: () => void started.push("slow"), quick: () => void started.push("quick") };
    await using pair = connectedPair({ methods, ...options });
    await Promise.all(["slow", "quick", "quick"].map((name) => pair.b.request(name, [])));
    expect(started).toEqual(["quick", "quick", "slow"]);
  });

  it("send no answer after the peer closed", async () => {
    const open = gate();
    const raw = rawPeer({ methods: { wait: () => open.promise } });
    raw.feed(request(1, "wait"));
    raw.feed([request(2, "wait")]);
    await raw.peer.close();
    open.resolve();
    await turn();
    expect([raw.sent, raw.peer.stats().running]).toEqual([[], 0]);
  });

  it("do not start after the peer closed, the rest of a batch included", () => {
    const ran: unknown[] = [];
    const methods = {
      close: (_params: unknown, { peer }: Context) => void peer.close(),
      m: ([n]: [number]) => void ran.push(n),
    };
    const raw = rawPeer({ methods });
    raw.feed([request(1, "m", [1]), request(2, "close"), request(3, "m", [2])]);
    raw.feed(request(4, "m", [3]));
    expect([ran, raw.sent]).toEqual([[1], []]);
  });
});

it("maxInFlight cannot deadlock two peers that call each other during a call", async () => {
  const options: AnyOptions = {
    limits: { maxInFlight: 2 },
    methods: {
      ping: async ([depth], { peer }) => (depth === 0 ? 0 : 1 + ((await peer.request("ping", [depth - 1])) as number)),
    },
  };
  await using pair = connectedPair(options, options);
  // Four nested calls reach the limit of both sides. The fifth is refused and fails them all, one by one.
  expect(await pair.b.request("ping", [3])).toBe(3);
  expect(await rejection(pair.b.request("ping", [4]))).toMatchObject({ code: -32603 });
  const codes = pair.takeErrors().map(({ cause }: any) => cause.code as unknown);
  expect(codes).toEqual([-32009, -32603, -32603, -32603]);
  const outcomes = new Outcomes();
  for (let i = 0; i < 4; i++) {
    for (const peer of [pair.a, pair.b]) outcomes.watch("call", peer.request("ping", [1]));
  }
  await turn();
  expect(outcomes.list).toHaveLength(8);
  for (const one of pair.takeErrors()) expect(one).toMatchObject({ cause: { code: -32009 } });
});

it("maxReplyBytes applies to an error's data too", async () => {
  const raw = rawPeer({
    limits: { maxReplyBytes: 200 },
    methods: { m: () => Promise.reject(new RpcError(1, "no", "x".repeat(300))) },
  });
  raw.feed(request(2, "m"));
  await turn();
  expect(raw.messages()).toEqual([failure(2, -32008, "Response is too large", { maxReplyBytes: 200 })]);
});

async function* values(): AsyncGenerator<number> {
  yield 1;
}

describe("a hostile promise", () => {
  it.each<[string, (succeed: (value: unknown) => void) => void, unknown]>([
    [
      "twice and then throws",
      (succeed) => {
        succeed(1);
        succeed(2);
        throw new Error("three");
      },
      1,
    ],
    [
      "with a stream and then with a value",
      (succeed) => {
        succeed(values());
        succeed(2);
      },
      { values: [1] },
    ],
  ])("that calls back %s causes one answer and counts as one call", async (_what, then, value) => {
    const promise = Object.defineProperty(new Promise(() => {}), "then", { value: then });
    const { peer, feed, messages } = rawPeer({ limits: { maxInFlight: 1 }, methods: { odd: () => promise } });
    for (const id of [1, 2]) {
      feed(request(id, "odd"));
      await turn();
    }
    expect(messages()).toEqual([result(1, value), result(2, value)]);
    expectEmpty(peer);
  });
});
