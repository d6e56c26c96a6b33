import { once } from "node:events";
import { beforeEach, describe, expect, it, vi } from "vitest";
import { cutReason } from "../../src/message/close-codes.js";
import { pair, RpcError } from "../../src/index.js";
import { connectedPair, use, type AnyOptions } from "../support/pair.js";
import { failure, notification, rawPeer, request, result, type RawPeer } from "../support/raw.js";
import { Outcomes, raising, rejection, turn } from "../support/turns.js";
import { uncaughtIn } from "../support/uncaught.js";

const bug = new Error("bug");

const throwBug = raising(bug);

it("`notification` reports a notification without a handler, with its params, and no other message", () => {
  const raw = rawPeer({ methods: { known: () => {} } });
  const got: unknown[] = [];
  raw.peer.on("notification", (method, params) => got.push(method, params));
  raw.feed([notification("unknown", { a: 0 }), notification("known"), notification("rpc.reserved")]);
  raw.feed(request(1, "unknown"));
  expect(got).toEqual(["unknown", { a: 0 }, "rpc.reserved", undefined]);
});

it("`close` is emitted once, and resolves `closed`, after every pending call has rejected", async () => {
  const raw = rawPeer();
  const order: unknown[] = [];
  const error = new Error("reset");
  raw.peer.on("close", (info) => order.push(info, raw.peer.state));
  const call = raw.peer.request("m").catch(() => order.push("rejected"));
  const { closed } = raw.peer;
  const ends = [closed.then(() => order.push("closed")), raw.peer.close().then(() => order.push("close()"))];
  raw.cut({ code: 1006, error });
  await Promise.all([call, ...ends]);
  expect(order).toEqual([{ code: 1000, reason: "" }, "closed", "rejected", "closed", "close()"]);
});

const end = { code: 4000, reason: "enough" };

it("waitFor resolves with the arguments of the next event, or with the past end, or rejects if the peer is closed or its signal aborts, and leaves no listener", async () => {
  const { peer, feed, cut } = rawPeer();
  const control = new AbortController();
  const { signal } = control;
  const waits = [peer.waitFor("notification"), peer.waitFor("close")];
  const failures = [peer.waitFor("resume"), peer.waitFor("resume", { signal })].map(rejection);
  for (const n of [1, 2]) feed(notification("news", [n]));
  control.abort("changed my mind");
  failures.push(rejection(peer.waitFor("close", { signal })));
  cut(end);
  failures.push(rejection(peer.waitFor("resume")));
  expect(await Promise.all([...waits, peer.waitFor("close")])).toEqual([["news", [1]], [end], [end]]);
  const ended = new Error("closed with 4000 (enough)");
  expect(await Promise.all(failures)).toEqual([ended, "changed my mind", "changed my mind", ended]);
  for (const event of ["notification", "resume", "close"] as const) expect(peer.listenerCount(event)).toBe(0);
  for (const args of [["resumed"], ["resume", { timeoutMs: 1 }], ["resume", { signal: 1 }]])
    expect(await rejection((rawPeer().peer.waitFor as any)(...args))).toBeInstanceOf(TypeError);
});

it("a listener that throws is reported to `error` and affects nothing else", async () => {
  const raw = rawPeer();
  for (const event of ["notification", "close"] as const) raw.peer.on(event, throwBug);
  raw.feed(notification("m"));
  raw.cut();
  expect(raw.errors).toEqual([bug, bug]);
  expect(await raw.peer.closed).toMatchObject({ code: 1006 });
});

it("a listener that throws for `error` causes an uncaught exception after the message has been handled", async () => {
  const raw = rawPeer({ methods: { bad: () => Promise.reject(new Error("handler")), good: () => 1 } });
  raw.peer.on("error", throwBug);
  const caught = await uncaughtIn(() => {
    raw.feed(request(1, "bad"));
    raw.feed(request(2, "good"));
  });
  expect(caught).toEqual([bug]);
  expect(raw.messages()).toEqual([result(2, 1), failure(1, -32603, "Internal error")]);
});

it("an event that a peer does not have is refused by what adds or emits it, and has no listeners, which may be removed", () => {
  const peer: any = rawPeer().peer;
  for (const name of ["on", "once", "addListener", "emit"]) {
    for (const event of ["changed", Symbol("changed"), "toString", "__proto__", "", undefined])
      expect(() => peer[name](event, () => {})).toThrow(TypeError);
    expect(() => peer[name]("changed", () => {})).toThrow(/^Unknown event `changed`; .*`methods`.*`notify`/);
  }
  expect([peer.off("changed", () => {}), peer.removeAllListeners("changed")]).toEqual([peer, peer]);
  expect([peer.listenerCount("changed"), peer.listeners("changed")]).toEqual([0, []]);
  const got: unknown[] = [];
  const add = (...args: unknown[]): unknown => got.push(args);
  expect(peer.on("error", add).once("error", add).addListener("error", add)).toBe(peer);
  expect([peer.emit("error", 1), peer.emit("error", 2), peer.emit("lost", 2)]).toEqual([true, true, false]);
  expect(got).toEqual([[1], [1], [1], [2], [2]]);
});

function unheard(options: AnyOptions): RawPeer {
  const raw = rawPeer(options);
  raw.peer.removeAllListeners("error");
  return raw;
}

describe("a peer without a listener for `error`", () => {
  let warnings: (Error & { detail: string })[];

  beforeEach(() => {
    warnings = [];
    vi.spyOn(process, "emitWarning").mockImplementation((warning) => void warnings.push(warning as never));
  });

  /** Calls methods of a peer with these options, reads what they stream, and returns the messages of the warnings. */
  async function warned(options: AnyOptions, ...methods: string[]): Promise<string[]> {
    const [a, b] = pair({ use, ...options }, { use });
    for (const method of methods) {
      const reader = b.stream(method)[Symbol.asyncIterator]();
      await reader.next().catch(() => {});
    }
    await turn();
    await a.close();
    return warnings.map(({ message }) => message);
  }

  const ofBad = [expect.stringContaining('"bad"')];

  it.each<[string, (...args: any[]) => unknown]>([
    ["throws", throwBug],
    ["gives RpcError a string for its code", () => new RpcError("401" as never, "no")],
    ["returns what has no JSON form", () => 1n],
    ["lets a received error through", (_params, { peer }) => peer.request("missing")],
    ["returns a stream that fails", () => failing()],
    ["returns a stream that fails after its first value", () => failing(1)],
    ...[null, undefined, "text", Symbol("s"), new Proxy({}, { get: throwBug, getPrototypeOf: throwBug })].map(
      (thrown): [string, () => unknown] => ["throws anything", () => Promise.reject(thrown)],
    ),
  ])("warns once for each method whose handler %s", async (_how, bad) => {
    expect(await warned({ methods: { bad } }, "bad", "bad")).toEqual(ofBad);
    expect(typeof warnings[0]!.detail).toBe("string");
  });

  it("warns of a notification's handler, and of an `around`, until a listener is added", () => {
    const raw = unheard({ methods: { bad: throwBug, worse: throwBug } });
    for (let i = 0; i < 2; i++) raw.feed(notification("bad"));
    unheard({ methods: { bad: () => 1 }, around: throwBug }).feed(request(1, "bad"));
    const errors: unknown[] = [];
    raw.peer.on("error", (error) => errors.push(error));
    raw.feed(notification("worse"));
    expect(warnings.map(({ message }) => message)).toEqual([...ofBad, ...ofBad]);
    expect(errors).toEqual([bug]);
  });

  it("shows the error with its stack and its cause", async () => {
    const caused = new Error("the failure", { cause: bug });
    await warned({ methods: { bad: () => Promise.reject(caused) } }, "bad");
    expect(warnings).toMatchObject([{ name: "reciproc", cause: caused }]);
    for (const { stack } of [caused, bug]) expect(warnings[0]!.detail).toContain(stack);
  });

  it("warns once for all unknown methods, because the other side chooses their names", async () => {
    const messages = await warned({ fallback: throwBug }, "invented 1", "invented 2");
    expect(messages).toEqual([expect.not.stringContaining("invented")]);
  });

  it("does not warn of an RpcError that crosses the wire, of a handler that was stopped, nor of what the other side alone causes", async () => {
    const raw = unheard({
      limits: { maxInFlight: 2 },
      methods: {
        refuse: () => Promise.reject(new RpcError(403, "no")),
        wait: async (_params, { signal }) => (await once(signal, "abort"), signal.throwIfAborted()),
        ask: (_params, { peer }) => peer.request("never"),
      },
    });
    raw.feed(request(1, "refuse"));
    await turn();
    ["wait", "ask"].forEach((method, i) => raw.feed(request(i + 2, method)));
    raw.feed([...Array<object>(3).fill(notification("wait")), notification("unknown")]);
    raw.feed(failure(null, -32700, "Parse error"));
    raw.feed(notification("$/cancelRequest", { id: 2 }));
    raw.cut();
    await turn();
    expect(raw.messages()[0]).toEqual(failure(1, 403, "no"));
    expect(warnings).toEqual([]);
  });

  it("remembers a bounded number of methods", () => {
    const raw = unheard({});
    for (let i = 0; i < 1100; i++) {
      const undo = raw.peer.handle(`m${i}`, throwBug);
      raw.feed(request(i, `m${i}`));
      undo();
    }
    expect(warnings).toHaveLength(1000);
  });

  it("reports with `reportError` where the runtime has no `process.emitWarning`", async () => {
    const reported: Error[] = [];
    vi.stubGlobal("reportError", (error: Error) => reported.push(error));
    vi.stubGlobal("process", undefined);
    const raw = unheard({ methods: { bad: throwBug, worse: throwBug } });
    raw.feed(request(1, "bad"));
    vi.stubGlobal("reportError", undefined);
    raw.feed(request(2, "worse"));
    vi.unstubAllGlobals();
    expect(reported).toEqual([expect.objectContaining({ message: expect.stringContaining('"bad"'), cause: bug })]);
    expect(raw.sent).toHaveLength(2);
  });
});

async function* failing(...values: unknown[]): AsyncGenerator<unknown> {
  yield* values;
  throw bug;
}

it("a peer has an id and an object for data, which stay the same, and no `auth`", async () => {
  await using joined = connectedPair();
  const { a, b } = joined;
  expect(a.id).not.toBe(b.id);
  expect(a.id.length).toBeGreaterThanOrEqual(21);
  a.data["user"] = "u";
  expect([a.id, a.data, b.data, a.auth]).toEqual([a.id, { user: "u" }, {}, undefined]);
  for (const member of ["data", "auth"]) expect(() => Object.assign(a, { [member]: {} })).toThrow(TypeError);
});

it("`await using` closes the peer", async () => {
  const [a, b] = pair({}, {});
  {
    await using peer = a;
    expect(peer.state).toBe("open");
  }
  expect([a.state, await b.closed]).toMatchObject(["closed", { code: 1000 }]);
});

it("close() is idempotent, and every call resolves when the connection has ended, also one in a `close` listener", async () => {
  const raw = rawPeer({}, { endsOnClose: false });
  const outcomes = new Outcomes()
    .watch("first", raw.peer.close(3000, "one"))
    .watch("second", raw.peer.close(3001, "two"));
  raw.peer.on("close", () => outcomes.watch("inner", raw.peer.close()));
  await turn();
  expect(outcomes.list).toEqual([]);
  raw.cut({ code: 3000 });
  await turn();
  expect(new Set(outcomes.names)).toEqual(new Set(["first", "second", "inner"]));
  await raw.peer.close();
  expect(raw.closes).toEqual([{ code: 3000, reason: "one" }]);
});

it("close() accepts the codes 1000 and from 3000 to 4999, and keeps the connection open for others", async () => {
  for (const code of [1000, 3000, 4999]) {
    const raw = rawPeer();
    await raw.peer.close(code);
    expect(raw.closes).toEqual([{ code, reason: "" }]);
  }
  const raw = rawPeer();
  for (const code of [999, 1001, 1005, 1006, 1015, 2999, 5000, 3000.5, -1, NaN, Infinity, "1000", null])
    expect((await rejection(raw.peer.close(code as number))).message).toMatch(/^Expected `code` to be 1000 or from/);
  expect(await rejection(raw.peer.close(1000, null as never))).toBeInstanceOf(TypeError);
  expect([raw.peer.state, raw.closes]).toEqual(["open", []]);
});

it.each([
  ["exactly 123 bytes", "x".repeat(123), "x".repeat(123)],
  ["one byte more", "x".repeat(124), "x".repeat(123)],
  ["exactly 41 characters of 3 bytes", "€".repeat(41), "€".repeat(41)],
  ["a character across the end", `xx${"€".repeat(41)}`, `xx${"€".repeat(40)}`],
  ["a surrogate pair across the end", "😀".repeat(31), "😀".repeat(30)],
])("the reason of %s is truncated to 123 bytes of UTF-8, between characters", async (_name, reason, cut) => {
  const raw = rawPeer();
  await raw.peer.close(1000, reason);
  expect([raw.closes, cutReason(reason)]).toEqual([[{ code: 1000, reason: cut }], cut]);
});

describe("a close that this side makes", () => {
  const why = "more than 1 malformed messages in a minute";

  /** A peer that has sent a close with 1008. Its transport has not reported the end. */
  function closing(): RawPeer {
    const raw = rawPeer({ limits: { maxMalformedPerMinute: 1 } }, { endsOnClose: false });
    for (let i = 0; i < 2; i++) raw.feed("[");
    expect(raw.closes).toEqual([{ code: 1008, reason: why }]);
    return raw;
  }

  it.each<[string, Parameters<RawPeer["cut"]>[0]]>([
    ["never answers", { code: 1006, reason: "" }],
    ["answers without a code", { code: 1005, reason: "" }],
    ["answers with another code", { code: 1000, reason: "bye" }],
    ["destroys the socket, whose error is reported with it", { error: new Error("reset") }],
  ])("is reported with its code and reason if the other side %s", async (_what, info) => {
    const raw = closing();
    const closes: unknown[] = [];
    raw.peer.on("close", (one) => closes.push(one));
    // Also if the application closes the peer meanwhile.
    void raw.peer.close(4000, "mine");
    raw.cut(info);
    const reported = { code: 1008, reason: why, ...(info?.error && { error: info.error }) };
    expect([closes, await raw.peer.closed]).toEqual([[reported], reported]);
  });

  it("is reported with 1006, as a lost connection, if it was the application's and the other side never answers", async () => {
    const raw = rawPeer({}, { endsOnClose: false });
    void raw.peer.close(4000, "mine");
    raw.cut();
    expect(await raw.peer.closed).toEqual({ code: 1006, reason: "" });
  });
});
