/** The events of a peer, and its end. */
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { cutReason } from "../../src/close-codes.js";
import { pair, RpcError } from "../../src/index.js";
import { connectedPair, type AnyOptions } from "../support/pair.js";
import { failure, notification, rawPeer, request, result, type RawPeer } from "../support/raw.js";
import { Outcomes, rejection, turn } from "../support/turns.js";
import { uncaughtIn } from "../support/uncaught.js";

function thrower(error: Error): () => never {
  return () => {
    throw error;
  };
}

describe("the `notification` event", () => {
  it("reports a notification without a handler, with its params, and no other message", () => {
    const raw = rawPeer({ methods: { known: () => {} } });
    const got: unknown[] = [];
    raw.peer.on("notification", (method, params) => got.push([method, params]));
    raw.feed(notification("unknown", { a: 0 }));
    raw.feed(notification("known"));
    raw.feed([notification("bare"), notification("rpc.reserved", [1])]);
    raw.feed(request(1, "unknown"));
    expect(got).toEqual([
      ["unknown", { a: 0 }],
      ["bare", undefined],
      ["rpc.reserved", [1]],
    ]);
    expect(raw.messages()).toEqual([failure(1, -32601, "Method not found")]);
  });
});

describe("the end of a peer", () => {
  it("is emitted once, and resolves `closed`, after every pending call has rejected", async () => {
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
    const lost = rawPeer();
    lost.cut({ code: 1006, error });
    expect(await lost.peer.closed).toEqual({ code: 1006, reason: "", error });
    expect(lost.peer.closed).toBe(lost.peer.closed);
  });
});

function listeners({ peer }: RawPeer): number {
  return (["notification", "resume", "close"] as const).reduce((sum, name) => sum + peer.listenerCount(name), 0);
}

describe("waitFor", () => {
  const end = { code: 4000, reason: "enough" };

  it("resolves with the arguments of the next event, or with the past end, and leaves no listener", async () => {
    const raw = rawPeer();
    const waits = [raw.peer.waitFor("notification"), raw.peer.waitFor("close")];
    raw.feed(notification("news", [1]));
    raw.feed(notification("news", [2]));
    raw.cut(end);
    expect(await Promise.all([...waits, raw.peer.waitFor("close")])).toEqual([["news", [1]], [end], [end]]);
    expect(listeners(raw)).toBe(0);
  });

  it("rejects for another event if the peer closes, is closed, or its signal aborts, and leaves no listener", async () => {
    const raw = rawPeer();
    const control = new AbortController();
    const { signal } = control;
    const waits = [raw.peer.waitFor("resume"), raw.peer.waitFor("resume", { signal })].map(rejection);
    control.abort("changed my mind");
    waits.push(rejection(raw.peer.waitFor("close", { signal })));
    raw.cut(end);
    waits.push(rejection(raw.peer.waitFor("resume")));
    const ended = new Error("closed with 4000 (enough)");
    expect(await Promise.all(waits)).toEqual([ended, "changed my mind", "changed my mind", ended]);
    expect(listeners(raw)).toBe(0);
  });

  it.each<[unknown[], string]>([
    [["resumed"], "Unknown event `resumed`"],
    [["resume", { timeoutMs: 1 }], "Unknown name `timeoutMs` in `options`"],
    [["resume", { signal: 1 }], "Expected `signal` to be an AbortSignal"],
  ])("rejects with a TypeError for %j", async (args, message) => {
    const { peer } = rawPeer();
    const error = await rejection((peer.waitFor as (...args: unknown[]) => Promise<unknown>)(...args));
    expect(error).toBeInstanceOf(TypeError);
    expect((error as Error).message).toContain(message);
  });
});

describe("a listener that throws", () => {
  it.each<[string, (raw: RawPeer) => void]>([
    ["notification", (raw) => raw.feed(notification("m"))],
    ["close", (raw) => raw.cut()],
  ])("for `%s` is reported to `error` and affects nothing else", async (event, cause) => {
    const bug = new Error("bug in a listener");
    const raw = rawPeer();
    raw.peer.on(event as "close", thrower(bug));
    cause(raw);
    expect(raw.errors).toEqual([bug]);
    raw.cut();
    expect(await raw.peer.closed).toMatchObject({ code: 1006 });
  });

  it("for `error` causes an uncaught exception after the message has been handled", async () => {
    const bug = new Error("bug in the error listener");
    const raw = rawPeer({ methods: { bad: thrower(new Error("handler")), good: () => 1 } });
    raw.peer.on("error", thrower(bug));
    const caught = await uncaughtIn(() => {
      raw.feed(request(1, "bad"));
      raw.feed(request(2, "good"));
    });
    expect(caught).toEqual([bug]);
    expect(raw.messages()).toMatchObject([{ id: 1, error: { code: -32603 } }, result(2, 1)]);
  });
});

describe("an event that a peer does not have", () => {
  const peer: any = rawPeer().peer;

  it.each(["on", "once", "addListener", "emit"])("is refused by `%s`, which names `methods` and `notify`", (name) => {
    for (const event of ["changed", Symbol("changed"), "toString", "constructor", "__proto__", "", undefined])
      expect(() => peer[name](event, () => {})).toThrow(TypeError);
    expect(() => peer[name]("changed", () => {})).toThrow(/^Unknown event `changed`; .*`methods`.*`notify`/);
    expect(() => peer[name]("changed", () => {})).toThrow(/known are close, .*, error/);
    expect(peer.listenerCount("changed")).toBe(0);
  });

  it("has no listeners, which may be removed", () => {
    expect(peer.off("changed", () => {})).toBe(peer);
    expect(peer.removeAllListeners("changed")).toBe(peer);
    expect(peer.listeners("changed")).toEqual([]);
  });

  it("does not affect the other events", () => {
    const got: unknown[] = [];
    const add = (...args: unknown[]): unknown => got.push(args);
    expect(peer.on("error", add).once("error", add).addListener("error", add)).toBe(peer);
    expect(peer.emit("error", 1)).toBe(true);
    expect(peer.emit("error", 2)).toBe(true);
    expect(peer.emit("lost", 2)).toBe(false);
    expect(got).toEqual([[1], [1], [1], [2], [2]]);
  });
});

/** Makes a peer without a listener for `error`. */
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
  afterEach(() => vi.restoreAllMocks());

  /** Calls methods of a peer with these options, reads what they stream, and returns the messages of the warnings. */
  async function warned(options: AnyOptions, ...methods: string[]): Promise<string[]> {
    const [a, b] = pair(options, {});
    for (const method of methods) {
      const reader = b.stream(method)[Symbol.asyncIterator]();
      await reader.next().catch(() => {});
    }
    await turn();
    await a.close();
    return warnings.map(({ message }) => message);
  }

  const bug = new Error("bug");
  const ofBad = [expect.stringContaining('"bad"')];

  it.each<[string, AnyOptions]>([
    ["throws", { methods: { bad: thrower(bug) } }],
    ["rejects", { methods: { bad: () => Promise.reject(bug) } }],
    ["gives RpcError a string for its code", { methods: { bad: () => thrower(new RpcError("401" as never, "no")) } }],
    ["returns what has no JSON form", { methods: { bad: () => 1n } }],
    ["lets a received error through", { methods: { bad: (_params, { peer }) => peer.request("missing") } }],
    ["returns a stream that fails", { methods: { bad: () => failing() } }],
    ["returns a stream that fails after its first value", { methods: { bad: () => failing(1) } }],
    ["is wrapped in an `around` that fails", { methods: { bad: () => 1 }, around: thrower(bug) }],
  ])("warns once for each method whose handler %s", async (_how, options) => {
    expect(await warned(options, "bad", "bad")).toEqual(ofBad);
  });

  it("warns of a notification's handler, until a listener is added", () => {
    const raw = unheard({ methods: { bad: thrower(bug), worse: thrower(bug) } });
    for (let i = 0; i < 2; i++) raw.feed(notification("bad"));
    const errors: unknown[] = [];
    raw.peer.on("error", (error) => errors.push(error));
    raw.feed(notification("worse"));
    expect(warnings.map(({ message }) => message)).toEqual(ofBad);
    expect(errors).toEqual([bug]);
  });

  it("shows the error with its stack and its cause", async () => {
    const why = new Error("the cause of it");
    const caused = new Error("the failure", { cause: why });
    await warned({ methods: { bad: thrower(caused) } }, "bad");
    expect(warnings).toMatchObject([{ name: "reciproc", cause: caused }]);
    expect(warnings[0]!.detail).toContain(caused.stack);
    expect(warnings[0]!.detail).toContain(why.stack);
  });

  it.each([null, undefined, "text", Symbol("s"), new Proxy({}, { get: thrower(bug), getPrototypeOf: thrower(bug) })])(
    "warns of anything that is thrown",
    async (thrown) => {
      expect(await warned({ methods: { bad: () => Promise.reject(thrown) } }, "bad")).toEqual(ofBad);
      expect(typeof warnings[0]!.detail).toBe("string");
    },
  );

  it("warns once for all unknown methods, because the other side chooses their names", async () => {
    const names = Array.from({ length: 50 }, (_, i) => `invented-${i}`);
    const messages = await warned({ fallback: thrower(bug) }, ...names);
    expect(messages).toHaveLength(1);
    expect(messages[0]).not.toContain("invented");
  });

  it("does not warn of an RpcError that crosses the wire, of a handler that was stopped, nor of what the other side alone causes", async () => {
    const raw = unheard({
      limits: { maxInFlight: 2 },
      methods: {
        refuse: thrower(new RpcError(403, "no")),
        wait: (_params, { signal }) => rejected(signal),
        ask: (_params, { peer }) => peer.request("never"),
      },
    });
    ["refuse", "wait", "ask"].forEach((method, i) => raw.feed(request(i + 1, method)));
    raw.feed([...Array<object>(3).fill(notification("wait")), notification("unknown")]);
    raw.feed({ jsonrpc: "2.0", id: null, error: { code: -32700, message: "Parse error" } });
    raw.feed(notification("$/cancelRequest", { id: 2 }));
    raw.cut();
    await turn();
    expect(raw.messages()[0]).toEqual(failure(1, 403, "no"));
    expect(warnings).toEqual([]);
  });

  it("remembers a bounded number of methods", () => {
    const raw = unheard({});
    for (let i = 0; i < 1100; i++) {
      const undo = raw.peer.handle(`m${i}`, thrower(bug));
      raw.feed(request(i, `m${i}`));
      undo();
    }
    expect(warnings).toHaveLength(1000);
  });

  it("reports with `reportError` where the runtime has no `process.emitWarning`", async () => {
    const reported: Error[] = [];
    vi.stubGlobal("reportError", (error: Error) => reported.push(error));
    vi.stubGlobal("process", undefined);
    const raw = unheard({ methods: { bad: thrower(bug), worse: thrower(bug) } });
    raw.feed(request(1, "bad"));
    vi.stubGlobal("reportError", undefined);
    raw.feed(request(2, "worse"));
    vi.unstubAllGlobals();
    expect(reported).toEqual([expect.objectContaining({ message: expect.stringContaining('"bad"'), cause: bug })]);
    expect(raw.messages()).toEqual([failure(1, -32603, "Internal error"), failure(2, -32603, "Internal error")]);
  });
});

/** Yields these values, and fails. */
async function* failing(...values: unknown[]): AsyncGenerator<unknown> {
  yield* values;
  throw new Error("bug");
}

function rejected(signal: AbortSignal): Promise<never> {
  return new Promise((_resolve, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
}

describe("peer.id, peer.auth and peer.data", () => {
  it("has an id and an object for each peer, which stay the same, and no `auth`", async () => {
    await using joined = connectedPair();
    const { a, b } = joined;
    expect(a.id).toBe(a.id);
    expect(a.id).not.toBe(b.id);
    expect(a.id.length).toBeGreaterThanOrEqual(21);
    a.data["user"] = "u";
    expect([a.data, b.data]).toEqual([{ user: "u" }, {}]);
    expect(a.data).toBe(a.data);
    expect([a.auth, b.auth]).toEqual([undefined, undefined]);
    expect(() => Object.assign(a, { data: {} })).toThrow(TypeError);
    expect(() => Object.assign(a, { auth: {} })).toThrow(TypeError);
  });
});

describe("close()", () => {
  it("reports code and reason on both sides, also from within a handler, after all earlier messages in order", async () => {
    const got: string[] = [];
    await using joined = connectedPair(
      { methods: { bye: (_params, { peer }) => peer.close(4321, "mine") } },
      { fallback: (_params, { method }) => void got.push(method) },
    );
    joined.a.notify("one");
    joined.a.notify("two");
    expect(await rejection(joined.b.request("bye"))).toMatchObject({ outcome: "unknown" });
    for (const peer of [joined.a, joined.b]) expect(await peer.closed).toMatchObject({ code: 4321, reason: "mine" });
    expect(got).toEqual(["one", "two"]);
  });

  it("is idempotent, and every call resolves when the connection has ended, also one in a `close` listener", async () => {
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
    expect(raw.closes).toEqual([[3000, "one"]]);
  });

  it("does nothing after the other side closed the connection", async () => {
    const raw = rawPeer();
    raw.cut({ code: 1001 });
    await raw.peer.close(4000);
    expect(raw.closes).toEqual([]);
    expect(await raw.peer.closed).toMatchObject({ code: 1001 });
  });

  it("rejects for any other code, and for a reason that is no string, and keeps the connection open", async () => {
    const raw = rawPeer();
    for (const code of [999, 1001, 1005, 1006, 1015, 2999, 5000, 3000.5, -1, NaN, Infinity, "1000", null]) {
      const error = await rejection(raw.peer.close(code as number));
      expect(error).toBeInstanceOf(TypeError);
      expect(error.message).toMatch(/^Expected `code` to be 1000 or from 3000 to 4999, got /);
    }
    expect(await rejection(raw.peer.close(1000, null as never))).toBeInstanceOf(TypeError);
    expect([raw.peer.state, raw.closes]).toEqual(["open", []]);
  });

  it("accepts the codes 1000 and from 3000 to 4999", async () => {
    for (const code of [1000, 3000, 4999]) {
      const raw = rawPeer();
      await raw.peer.close(code);
      expect(raw.closes).toEqual([[code, ""]]);
    }
  });
});

describe("the reason", () => {
  const euro = "€";
  const smile = "😀";
  it.each([
    ["short", "short", "short"],
    ["exactly 123 bytes", "x".repeat(123), "x".repeat(123)],
    ["one byte more", "x".repeat(124), "x".repeat(123)],
    ["exactly 41 characters of 3 bytes", euro.repeat(41), euro.repeat(41)],
    ["a character across the end", `xx${euro.repeat(41)}`, `xx${euro.repeat(40)}`],
    ["a surrogate pair across the end", smile.repeat(31), smile.repeat(30)],
    ["two bytes across the end", "é".repeat(62), "é".repeat(61)],
  ])("of %s is truncated to 123 bytes of UTF-8, between characters", async (_name, reason, cut) => {
    const raw = rawPeer();
    await raw.peer.close(1000, reason);
    expect(raw.closes).toEqual([[1000, cut]]);
    expect(Buffer.byteLength(cutReason(reason))).toBeLessThanOrEqual(123);
    expect(cutReason(reason)).not.toContain("\ufffd");
  });
});

describe("await using", () => {
  it("closes the peer", async () => {
    const [a, b] = pair({}, {});
    {
      await using peer = a;
      expect(peer.state).toBe("open");
    }
    expect(a.state).toBe("closed");
    expect(await b.closed).toMatchObject({ code: 1000 });
  });
});

describe("a close that this side makes", () => {
  const limits = { maxMalformedPerMinute: 1 };
  const why = "more than 1 malformed messages in a minute";

  /** A peer that has sent a close with 1008. Its transport has not reported the end. */
  function closing(): RawPeer {
    const raw = rawPeer({ limits }, { endsOnClose: false });
    raw.feed("[");
    raw.feed("[");
    expect(raw.closes).toEqual([[1008, why]]);
    return raw;
  }

  it.each([
    ["never answers", { code: 1006, reason: "" }],
    ["answers without a code", { code: 1005, reason: "" }],
    ["answers with another code", { code: 1000, reason: "bye" }],
  ])("is reported with its code and reason if the other side %s", async (_what, info) => {
    const raw = closing();
    const closes: unknown[] = [];
    raw.peer.on("close", (one) => closes.push(one));
    raw.cut(info);
    expect(closes).toEqual([{ code: 1008, reason: why }]);
    expect(await raw.peer.closed).toEqual({ code: 1008, reason: why });
  });

  it("is reported with the error that destroyed the socket, even if the application closes the peer meanwhile", async () => {
    const raw = closing();
    void raw.peer.close(4000, "mine");
    const error = new Error("reset");
    raw.cut({ error });
    expect(await raw.peer.closed).toEqual({ code: 1008, reason: why, error });
  });

  it("is reported with 1006, as a lost connection, if it was the application's and the other side never answers", async () => {
    const raw = rawPeer({}, { endsOnClose: false });
    void raw.peer.close(4000, "mine");
    raw.cut();
    expect(await raw.peer.closed).toEqual({ code: 1006, reason: "" });
  });
});
