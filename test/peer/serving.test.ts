import { describe, expect, it } from "vitest";
import { RpcError, type Around, type Call, type Context } from "../../src/index.js";
import { connectedPair, expectEmpty, type AnyOptions } from "../support/pair.js";
import { failure, notification, rawPeer, request, result } from "../support/raw.js";
import { gate, raising, rejection, turn } from "../support/turns.js";

const NOT_FOUND = { code: -32601, message: "Method not found", data: undefined };

it("`methods` are called without `this`, read once, also from an object without prototype, and overridden by `handle` until that is undone, which removes no newer handler", async () => {
  const methods = Object.assign(Object.create(null) as object, {
    m(this: unknown) {
      return this === undefined;
    },
    b: undefined as never,
  });
  await using one = connectedPair({ methods });
  await using two = connectedPair({ methods });
  Object.assign(methods, { m: () => 2, b: () => 3 });
  expect(await rejection(one.b.request("b"))).toMatchObject(NOT_FOUND);
  const undo = one.a.handle("m", () => "mine");
  expect([await one.b.request("m"), await two.b.request("m")]).toEqual(["mine", true]);
  expect(() => one.a.handle("m", () => 2)).toThrow("`m` has a handler already");
  undo();
  expect(await one.b.request("m")).toBe(true);
  one.a.handle("m", () => 3);
  undo();
  expect(await one.b.request("m")).toBe(3);
  for (const bad of [undefined, {}]) {
    expect(() => one.a.handle("n", bad as never)).toThrow(/^Expected `handler` to be a function, got /);
    expect(() => one.a.handle(bad as never, () => 1)).toThrow(/^Expected `method` to be a string, got /);
  }
});

it("fallback serves all without a handler but the reserved rpc.*, with their context, and no `notification` is emitted", async () => {
  const seen: unknown[] = [];
  const fallback = (params: unknown, { peer, method, id, signal, progress }: Context): string => {
    seen.push(peer, params, method, id, signal.aborted, progress(1));
    return method;
  };
  await using pair = connectedPair({ methods: { known: () => "known" }, fallback });
  pair.a.on("notification", (method) => seen.push(`emitted ${method}`));
  for (const method of ["rpc", "RPC.x", "constructor"]) expect(await pair.b.request(method)).toBe(method);
  expect(await pair.b.request("known")).toBe("known");
  for (const method of ["rpc.", "rpc.discover"])
    expect(await rejection(pair.b.request(method))).toMatchObject(NOT_FOUND);
  seen.length = 0;
  await pair.b.request("asked", [1]);
  pair.b.notify("said");
  await turn();
  expect(seen.slice(0, 6)).toEqual([pair.a, [1], "asked", 7, false, undefined]);
  expect(seen.slice(6)).toEqual([pair.a, undefined, "said", undefined, false, undefined]);
});

it.each<[string, (raw: ReturnType<typeof rawPeer>) => unknown, string]>([
  ["is closed here", (raw) => raw.peer.close(3001, "enough"), "closed on this side with 3001 (enough)"],
  ["is cut", (raw) => raw.cut({ code: 1006 }), "closed with 1006"],
])("context.signal aborts in every handler, which sends no answer, when the peer %s", async (_name, end, reason) => {
  const open = gate();
  const contexts: Context[] = [];
  const unread = (_params: unknown, context: Context): Promise<void> => (contexts.push(context), open.promise);
  const read = (params: unknown, context: Context): unknown => (void context.signal, unread(params, context));
  let closing: Context | undefined;
  const closes = (_params: unknown, context: Context): void => ((closing = context), void end(raw));
  const raw = rawPeer({ methods: { read, unread, closes } });
  raw.feed(request(1, "read"));
  raw.feed([request(2, "unread"), notification("unread")]);
  raw.feed(request(3, "closes"));
  expect(contexts).toHaveLength(3);
  for (const { signal } of [...contexts, closing!])
    expect([signal.aborted, signal.reason.message]).toEqual([true, reason]);
  open.resolve();
  await turn();
  expect(raw.sent).toEqual([]);
  expectEmpty(raw.peer);
});

describe("handlers", () => {
  it("start in the order in which their messages arrived, requests and notifications alike", async () => {
    const started: number[] = [];
    const m = async ([n]: [number]): Promise<void> => (started.push(n), turn());
    await using pair = connectedPair({ methods: { m } });
    const calls = [pair.b.request("m", [1])];
    pair.b.notify("m", [2]);
    const batch = pair.b.batch();
    calls.push(batch.request("m", [3]));
    batch.notify("m", [4]);
    batch.send();
    pair.b.notify("m", [5]);
    await Promise.all(calls);
    expect(started).toEqual([1, 2, 3, 4, 5]);
  });

  it.each<[string, AnyOptions]>([
    [
      "an asynchronous schema",
      { schemas: { slow: { "~standard": { validate: async (value: unknown) => (await turn(), { value }) } } } },
    ],
    ["an `around` that waits", { around: async ({ method }, next) => (method === "slow" && (await turn()), next()) }],
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

async function* values(): AsyncGenerator<number> {
  yield 1;
}

it.each([
  ["twice and then throws", 1, 1],
  ["with a stream and then with a value", values, { values: [1] }],
])("a hostile promise that calls back %s causes one answer and counts as one call", async (_what, first, value) => {
  const then = (succeed: (value: unknown) => void): void => {
    succeed(typeof first === "function" ? first() : first);
    succeed(2);
    if (first === 1) throw new Error("three");
  };
  const promise = Object.defineProperty(new Promise(() => {}), "then", { value: then });
  const { peer, feed, messages } = rawPeer({ limits: { maxInFlight: 1 }, methods: { odd: () => promise } });
  for (const id of [1, 2]) {
    feed(request(id, "odd"));
    await turn();
  }
  expect(messages()).toEqual([result(1, value), result(2, value)]);
  expectEmpty(peer);
});

const bug = new Error("bug in around");
const throwBug = raising(bug);

const mark: Around = async (call, next) => {
  call.params = [...call.params, call.direction];
  return { [call.direction]: await next() };
};

describe("around", () => {
  it("wraps requests, notifications and members of batches in both directions, and gets the peer and the context", async () => {
    const log: unknown[] = [];
    const calls: Call[] = [];
    const around: Around = async (call, next) => {
      calls.push(call);
      log.push(`${call.direction} ${call.method} ${call.id}`);
      const value = await next();
      log.push(`${call.direction} done`);
      return value;
    };
    const contexts: Context[] = [];
    const m = (_params: unknown, context: Context): void => void (log.push("handler"), contexts.push(context));
    await using pair = connectedPair({ methods: { m }, around }, { around });
    await pair.b.request("m", { x: 1 });
    expect(log.splice(0)).toEqual(["outgoing m 1", "incoming m 1", "handler", "incoming done", "outgoing done"]);
    const [outgoing, incoming] = calls;
    expect(outgoing).toMatchObject({ direction: "outgoing", params: { x: 1 }, context: undefined });
    expect([outgoing!.peer, incoming!.peer, incoming!.context]).toEqual([pair.b, pair.a, contexts[0]]);
    expect(pair.b.notify("m")).toBe(true);
    const batch = pair.b.batch();
    const call = batch.request("m");
    batch.notify("m");
    batch.send();
    await call;
    const ids = [undefined, 2, undefined];
    const passed = ["outgoing", "incoming"].flatMap((direction) => ids.map((id) => `${direction} m ${id}`));
    expect(log.filter((line) => passed.includes(line as string))).toEqual(passed);
  });

  it("may change the params, also in place, and the result, on either side, and may drop a notification", async () => {
    await using pair = connectedPair({ methods: { echo: (params) => params }, around: mark }, { around: mark });
    expect(await pair.b.request("echo", [0])).toEqual({ outgoing: { incoming: [0, "outgoing", "incoming"] } });
    const { peer, messages } = rawPeer({
      around: (call, next) => ((call.params.token = "t"), call.method === "dropped" ? undefined : next()),
    });
    for (const method of ["dropped", "said"]) peer.notify(method, { a: 1 });
    expect(messages()).toEqual([notification("said", { a: 1, token: "t" })]);
  });

  const forbidden = new RpcError(403, "forbidden");

  it.each<[string, Around, settled: unknown, object, Error[]]>([
    ["returns a result", () => "cached", "cached", result(1, "cached"), []],
    ["rejects with an RpcError", () => Promise.reject(forbidden), forbidden, failure(1, 403, "forbidden"), []],
    ["fails, which is reported to `error`", throwBug, bug, failure(1, -32603, "Internal error"), [bug]],
  ])("that %s ends a call on either side, and no handler runs", async (_how, around, settled, answer, errors) => {
    const served = rawPeer({ methods: { m: () => expect.fail("ran") }, around });
    served.feed(request(1, "m"));
    await turn();
    expect([served.messages(), served.errors]).toEqual([[answer], errors]);
    const calling = rawPeer({ around });
    expect(await calling.peer.request("m").catch((error: unknown) => error)).toBe(settled);
    expect(calling.sent).toEqual([]);
    expectEmpty(calling.peer);
  });

  it("may be a list: each wraps those after it, may throw at once, and adds to the context that the handler gets", async () => {
    const log: unknown[] = [];
    const noting =
      (name: string): Around =>
      async (call, next) => {
        log.push(name);
        if (call.direction === "incoming") Object.assign(call.context, { [name]: call.params });
        call.params = [...call.params, name];
        return [name, await next().catch(String)];
      };
    const methods = { m: (params: unknown, { a, b, signal }: any) => [params, a, b, signal.aborted] };
    const around = [noting("a"), noting("b")];
    await using pair = connectedPair({ methods, around }, { around });
    const served = ["a", ["b", [["a", "b", "a", "b"], ["a", "b"], ["a", "b", "a"], false]]];
    expect(await pair.b.request("m", [])).toEqual(["a", ["b", served]]);
    expect(log).toEqual(["a", "b", "a", "b"]);
    const raw = rawPeer({ methods, around: [noting("a"), throwBug, noting("c")] });
    raw.feed(request(1, "m", []));
    await turn();
    expect([raw.messages(), log.slice(4)]).toEqual([[result(1, ["a", String(bug)])], ["a"]]);
    const none = rawPeer({ methods: { m: () => 1 }, around: [] });
    none.feed(request(1, "m"));
    expect(none.messages()).toEqual([result(1, 1)]);
  });

  it("may ignore the promise of next without an unhandled rejection, for each kind of message", async () => {
    const raw = rawPeer({
      methods: { m: () => Promise.reject(new Error("dropped")) },
      around: (call, next) => {
        if (call.direction === "outgoing") call.params = 5;
        void next();
        return "went on";
      },
    });
    raw.feed(request(1, "m"));
    await turn();
    expect(raw.messages()).toEqual([result(1, "went on")]);
    expect(await raw.peer.request("m")).toBe("went on");
    raw.peer.notify("said");
    await turn();
    expect(raw.sent).toHaveLength(1);
  });

  it("may await before it calls next, which rejects the call if the connection has ended by then", async () => {
    const open = gate();
    const around: Around = async (_call, next) => (await open.promise, next());
    const raw = rawPeer({ methods: { m: () => "ran" }, around });
    const ended = rawPeer({ around });
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
    const { peer, messages, feed } = rawPeer({ around: async (_call, next) => Promise.all([next(), next()]) });
    const calls = peer.request("m");
    for (const id of [1, 2]) feed(result(id, id));
    expect([await calls, messages()]).toEqual([
      [1, 2],
      [request(1, "m"), request(2, "m")],
    ]);
    expectEmpty(peer);
  });

  it("has what it throws for a notification, in either direction, and its invalid params, emitted as `error`", async () => {
    const raw = rawPeer({ methods: { m: () => {} }, around: throwBug });
    raw.feed(notification("m"));
    raw.peer.notify("said");
    const spoilt = rawPeer({ around: (call, next) => ((call.params = 5), next()) });
    spoilt.peer.notify("said");
    await turn();
    expect([raw.errors, raw.sent, spoilt.errors]).toEqual([[bug, bug], [], [expect.any(TypeError)]]);
  });

  it("sends a member of a batch alone when it calls next after the batch was sent", async () => {
    const open = gate();
    const around: Around = async ({ method }, next) => (method === "slow" && (await open.promise), next());
    const { peer, messages, feed } = rawPeer({ around });
    const batch = peer.batch();
    const calls = [batch.request("quick"), batch.request("slow")];
    batch.send();
    open.resolve();
    await turn();
    expect(messages()).toEqual([[request(1, "quick")], request(2, "slow")]);
    feed([result(1, "Q")]);
    feed(result(2, "S"));
    expect(await Promise.all(calls)).toEqual(["Q", "S"]);
    expectEmpty(peer);
  });
});
