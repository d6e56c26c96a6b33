/** Handlers: how they are found, what they get, in which order they run, what wraps them, and when they are stopped. */
import { describe, expect, it } from "vitest";
import { RpcError, type Around, type Call, type Context } from "../../src/index.js";
import { connectedPair, expectEmpty, type AnyOptions } from "../support/pair.js";
import { failure, notification, rawPeer, request, result } from "../support/raw.js";
import { gate, Outcomes, rejection, turn } from "../support/turns.js";

const NOT_FOUND = { code: -32601, message: "Method not found", data: undefined };

function thrower(error: Error): () => never {
  return () => {
    throw error;
  };
}

it("`methods` are called without `this`, and read once, from an object with or without prototype", async () => {
  const methods = Object.assign(Object.create(null) as object, {
    a(this: unknown) {
      return this === undefined;
    },
    b: undefined as never,
  });
  await using pair = connectedPair({ methods });
  Object.assign(methods, { a: () => 2, b: () => 3 });
  expect(await pair.b.request("a")).toBe(true);
  expect(await rejection(pair.b.request("b"))).toMatchObject(NOT_FOUND);
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

it("the context has peer, method and id, and can be destructured", async () => {
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

describe("context.signal", () => {
  it.each<[string, (raw: ReturnType<typeof rawPeer>) => unknown, string]>([
    ["is closed here", (raw) => raw.peer.close(3001, "enough"), "closed on this side with 3001 (enough)"],
    ["is cut", (raw) => raw.cut({ code: 1006 }), "closed with 1006"],
  ])(
    "aborts, with the reason, in every handler that runs when the peer %s, and sends no answer",
    async (_name, end, reason) => {
      const open = gate();
      const contexts: Context[] = [];
      const unread = (_params: unknown, context: Context): Promise<void> => (contexts.push(context), open.promise);
      const read = (params: unknown, context: Context): unknown => (void context.signal, unread(params, context));
      const raw = rawPeer({ methods: { read, unread } });
      raw.feed(request(1, "read"));
      raw.feed([request(2, "unread"), notification("unread")]);
      void end(raw);
      expect(contexts.map(({ signal }) => [signal.aborted, signal.reason.message])).toEqual(
        contexts.map(() => [true, reason]),
      );
      expect(contexts).toHaveLength(3);
      open.resolve();
      await turn();
      expect(raw.sent).toEqual([]);
      expectEmpty(raw.peer);
    },
  );

  it("aborts in a handler that closed the peer before it first read the signal, and not after a handler has ended", async () => {
    const contexts: Context[] = [];
    const aborted: boolean[] = [];
    const raw = rawPeer({
      methods: {
        ends: async (_params, context) => void contexts.push(context),
        closes: async (_params, context) => {
          void context.peer.close();
          aborted.push(context.signal.aborted);
        },
      },
    });
    raw.feed(request(1, "ends"));
    await turn();
    raw.feed(request(2, "closes"));
    await turn();
    expect([...aborted, contexts[0]!.signal.aborted]).toEqual([true, false]);
    expectEmpty(raw.peer);
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

  it("do not start after the peer closed, the rest of a batch included", () => {
    const ran: unknown[] = [];
    const raw = rawPeer({
      methods: { close: (_params, { peer }) => void peer.close(), m: ([n]) => void ran.push(n) },
    });
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

const markBoth: Around = async (call, next) => {
  call.params = [...call.params, call.direction];
  return { [call.direction]: await next() };
};

const spoilParams =
  (drop: boolean): Around =>
  (call, next) => {
    call.params = 5;
    return drop ? void next() : next();
  };

const markParams: Around = (call, next) => {
  if (call.method === "marked") call.params.token = "t";
  else call.params = { by: "around" };
  return call.method === "dropped" ? undefined : next();
};

describe("around, for requests", () => {
  it("wraps calls in both directions, and receives the peer and the handler's context", async () => {
    const log: string[] = [];
    const calls: Call[] = [];
    const around: Around = async (call, next) => {
      calls.push(call);
      log.push(`${call.direction} ${call.method} ${call.id}`);
      const value = await next();
      log.push(`${call.direction} done`);
      return value;
    };
    let context: unknown;
    const m = (_params: unknown, given: Context): void => void (log.push("handler"), (context = given));
    await using pair = connectedPair({ methods: { m }, around }, { around });
    await pair.b.request("m", { x: 1 });
    expect(log).toEqual(["outgoing m 1", "incoming m 1", "handler", "incoming done", "outgoing done"]);
    const [outgoing, incoming] = calls;
    expect(outgoing).toMatchObject({ direction: "outgoing", params: { x: 1 }, context: undefined });
    expect([outgoing!.peer, incoming!.peer]).toEqual([pair.b, pair.a]);
    expect(incoming!.context).toBe(context);
  });

  it("may change the params and the result on either side", async () => {
    await using pair = connectedPair({ methods: { echo: (params) => params }, around: markBoth }, { around: markBoth });
    expect(await pair.b.request("echo", [0])).toEqual({ outgoing: { incoming: [0, "outgoing", "incoming"] } });
  });

  it("may return a result without calling next, so that no handler runs and nothing is sent", async () => {
    let ran = 0;
    const served = rawPeer({ methods: { m: () => ran++ }, around: () => "cached" });
    served.feed(request(1, "m"));
    expect(served.messages()).toEqual([result(1, "cached")]);
    expect(ran).toBe(0);
    const calling = rawPeer({ around: () => "cached" });
    expect(await calling.peer.request("m")).toBe("cached");
    expect(calling.sent).toEqual([]);
    expectEmpty(calling.peer);
  });

  const forbidden = new RpcError(403, "forbidden");
  const bug = new Error("secret");

  it.each<[string, Around, object, Error[]]>([
    ["throws an RpcError", thrower(forbidden), failure(1, 403, "forbidden"), []],
    ["rejects with one", () => Promise.reject(forbidden), failure(1, 403, "forbidden"), []],
    ["fails, which is reported to `error`", () => Promise.reject(bug), failure(1, -32603, "Internal error"), [bug]],
  ])("may refuse a call on either side: it %s", async (_how, around, answer, errors) => {
    const served = rawPeer({ methods: { m: () => 1 }, around });
    served.feed(request(1, "m"));
    await turn();
    expect([served.messages(), served.errors]).toEqual([[answer], errors]);
    const calling = rawPeer({ around });
    expect([forbidden, bug]).toContain(await rejection(calling.peer.request("m")));
    expect(calling.sent).toEqual([]);
  });

  it("may ignore the promise of next without an unhandled rejection", async () => {
    const raw = rawPeer({
      methods: { m: () => Promise.reject(new Error("dropped")) },
      around: (_call, next) => {
        void next();
        return "went on";
      },
    });
    raw.feed(request(1, "m"));
    await turn();
    expect(raw.messages()).toEqual([result(1, "went on")]);
    expect(await rejection(raw.peer.request("m", 5).then((value) => Promise.reject(value as Error)))).toBe("went on");
  });

  it("may await before it calls next, which rejects the call if the connection has ended by then", async () => {
    const open = gate();
    const raw = rawPeer({ methods: { m: () => "ran" }, around: async (_call, next) => (await open.promise, next()) });
    const ended = rawPeer({ around: async (_call, next) => (await open.promise, next()) });
    raw.feed(request(1, "m"));
    const calls = [raw.peer.request("n"), rejection(ended.peer.request("n"))];
    void ended.peer.close();
    await turn();
    expect([raw.sent, ended.sent]).toEqual([[], []]);
    open.resolve();
    await turn();
    expect(raw.messages()).toEqual(expect.arrayContaining([result(1, "ran"), request(1, "n")]));
    raw.feed(result(1, "answered"));
    expect(await Promise.all(calls)).toMatchObject(["answered", { outcome: "not-sent" }]);
    expect(ended.sent).toEqual([]);
  });

  it("makes a call under a new id each time that it calls next", async () => {
    const twice = rawPeer({ around: async (_call, next) => Promise.all([next(), next()]) });
    const calls = twice.peer.request("m");
    for (const id of [1, 2]) twice.feed(result(id, id));
    expect(await calls).toEqual([1, 2]);
    expectEmpty(twice.peer);
    const again = rawPeer({ around: (_call, next) => next().catch(() => next()) });
    const call = again.peer.request("m");
    again.feed(failure(1, -32009, "Server is busy"));
    await turn();
    again.feed(result(2, "at last"));
    expect(await call).toBe("at last");
    for (const { messages } of [twice, again]) expect(messages()).toEqual([request(1, "m"), request(2, "m")]);
  });
});

describe("around, for notifications", () => {
  it("wraps them in both directions, with no id", async () => {
    const seen: unknown[] = [];
    const around: Around = ({ direction, method, id }, next) => (seen.push(direction, method, id), next());
    const raw = rawPeer({ methods: { heard: () => void seen.push("handler") }, around });
    raw.feed(notification("heard"));
    expect(raw.peer.notify("said")).toBe(true);
    expect(seen).toEqual(["incoming", "heard", undefined, "handler", "outgoing", "said", undefined]);
    expect(raw.messages()).toEqual([notification("said")]);
  });

  it("may change their params, also in place, and may drop them", async () => {
    const { peer, messages } = rawPeer({ around: markParams });
    peer.notify("dropped");
    peer.notify("said", { by: "caller" });
    peer.notify("marked", { a: 1 });
    expect(messages()).toEqual([notification("said", { by: "around" }), notification("marked", { a: 1, token: "t" })]);
  });

  it("emits what it throws, in either direction, and sends no answer", async () => {
    const bug = new Error("bug in around");
    const raw = rawPeer({ methods: { m: () => {} }, around: thrower(bug) });
    raw.feed(notification("m"));
    raw.peer.notify("said");
    await turn();
    expect([raw.errors, raw.sent]).toEqual([[bug, bug], []]);
  });

  it("emits the error and leaves no rejection unobserved when it sets invalid params", async () => {
    const passed = rawPeer({ around: spoilParams(false) });
    passed.peer.notify("said");
    await turn();
    expect(passed.errors).toEqual([expect.any(TypeError)]);
    // An unobserved rejection would fail the run.
    const dropped = rawPeer({ around: spoilParams(true) });
    dropped.peer.notify("said");
    await turn();
    expect(dropped.sent).toEqual([]);
  });
});

describe("around, in batches", () => {
  it("wraps each incoming and outgoing member", async () => {
    const seen: string[] = [];
    const around: Around = ({ direction, method }, next) => (seen.push(`${direction} ${method}`), next());
    await using pair = connectedPair({ methods: { a: () => 1, b: () => 2 }, around }, { around });
    const batch = pair.b.batch();
    const calls = [batch.request("a"), batch.request("b")];
    batch.notify("a");
    batch.send();
    expect(await Promise.all(calls)).toEqual([1, 2]);
    const members = ["a", "b", "a"];
    expect(seen).toEqual([...members.map((m) => `outgoing ${m}`), ...members.map((m) => `incoming ${m}`)]);
  });

  it("sends a call alone when its `around` calls next after the batch was sent", async () => {
    const open = gate();
    const around: Around = async (call, next) => {
      if (call.method === "slow") await open.promise;
      return next();
    };
    const { peer, messages, feed } = rawPeer({ around });
    const batch = peer.batch();
    const calls = [batch.request("quick"), batch.request("slow")];
    batch.send();
    expect(messages()).toEqual([[request(1, "quick")]]);
    open.resolve();
    await turn();
    expect(messages()[1]).toEqual(request(2, "slow"));
    feed([result(1, "Q")]);
    feed(result(2, "S"));
    expect(await Promise.all(calls)).toEqual(["Q", "S"]);
    expect(peer.stats().pending).toBe(0);
  });
});
