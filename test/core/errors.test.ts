/* oxlint-disable unicorn/no-thenable -- what has a `then` is what some of these tests are about */
import { describe, expect, it } from "vitest";
import { RpcError, type AnyPeer, type Around } from "../../src/index.js";
import { inspect } from "../../src/peer/peer.js";
import { connectedPair, type ConnectedPair } from "../support/pair.js";
import { failure, notification, rawPeer, request, result } from "../support/raw.js";
import { rejection, turn } from "../support/turns.js";

const revoked = (): object => {
  const { proxy, revoke } = Proxy.revocable({}, {});
  revoke();
  return proxy;
};

/** Things a handler might throw. */
const THROWN: [string, () => unknown][] = [
  ["an Error", () => new Error("secret")],
  ["null", () => null],
  ["undefined", () => undefined],
  ["zero", () => 0],
  ["a string", () => "secret"],
  ["a symbol", () => Symbol("secret")],
  ["a revoked Proxy", revoked],
  [
    "a Proxy that throws for everything",
    () => new Proxy({}, { get: boom, getPrototypeOf: boom, has: boom, ownKeys: boom }),
  ],
  ["an object whose getters throw", () => Object.defineProperties({}, { code: { get: boom }, message: { get: boom } })],
  ["an RpcError whose data is cyclic", () => new RpcError(1, "secret", cyclic())],
  ["an RpcError whose data holds a BigInt", () => new RpcError(1, "secret", { n: 1n })],
  ["an RpcError whose data has a toJSON that throws", () => new RpcError(1, "secret", { toJSON: boom })],
  [
    "an RpcError whose code was made to throw",
    () => Object.defineProperty(new RpcError(1, "secret"), "code", { get: boom }),
  ],
  ["a look-alike of an RpcError", () => ({ code: 1, message: "secret", data: "secret" })],
];

function boom(): never {
  throw new Error("secret");
}

function cyclic(): object {
  const value: Record<string, unknown> = {};
  value["self"] = value;
  return value;
}

describe("a handler", () => {
  describe.each<[string, (thrown: () => unknown) => () => unknown]>([
    [
      "throws",
      (thrown) => () => {
        throw thrown();
      },
    ],
    [
      "rejects with",
      (thrown) => async () => {
        throw thrown();
      },
    ],
  ])("that %s", (_verb, failing) => {
    it.each(THROWN)(
      "%s sends one Internal error without details, and emits one `error` event",
      async (_name, thrown) => {
        const raw = rawPeer({ methods: { m: failing(thrown), fine: () => 1 } });
        raw.feed(request(1, "m"));
        await turn();
        expect(raw.messages()).toEqual([failure(1, -32603, "Internal error")]);
        expect(raw.errors).toHaveLength(1);
        raw.feed(request(2, "fine"));
        expect(raw.messages()[1]).toEqual(result(2, 1));
        expect(inspect(raw.peer).running).toBe(0);
      },
    );

    it.each(THROWN)("%s emits one `error` event for a notification, and sends nothing", async (_name, thrown) => {
      const raw = rawPeer({ methods: { m: failing(thrown) } });
      raw.feed(notification("m"));
      await turn();
      expect(raw.sent).toEqual([]);
      expect(raw.errors).toHaveLength(1);
      expect(inspect(raw.peer).running).toBe(0);
    });
  });

  it("that throws passes the thrown value itself to the `error` event", () => {
    const thrown = new Error("secret");
    const raw = rawPeer({
      methods: {
        m: () => {
          throw thrown;
        },
      },
    });
    raw.feed(request(1, "m"));
    expect(raw.errors[0]).toBe(thrown);
  });

  it("that throws an RpcError sends its code, message and data, and emits nothing", async () => {
    class Declined extends RpcError {}
    await using pair = connectedPair({
      methods: {
        data: () => {
          throw new RpcError(-5, "no", { why: [1] });
        },
        bare: async () => {
          throw new Declined(403, "declined");
        },
        falsy: () => {
          throw new RpcError(0, "", false);
        },
      },
    });
    expect(await rejection(pair.b.request("data"))).toMatchObject({ code: -5, message: "no", data: { why: [1] } });
    expect(await rejection(pair.b.request("bare"))).toMatchObject({ code: 403, message: "declined", data: undefined });
    expect(await rejection(pair.b.request("falsy"))).toMatchObject({ code: 0, message: "", data: false });
  });

  it("that throws an RpcError sends neither its stack nor its cause", () => {
    const raw = rawPeer({
      methods: {
        m: () => {
          throw new RpcError(1, "no", undefined, { cause: new Error("secret") });
        },
      },
    });
    raw.feed(request(1, "m"));
    expect(raw.sent).toEqual(['{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"no"}}']);
  });

  it.each<[string, () => unknown]>([
    ["something cyclic", cyclic],
    ["a BigInt", () => 1n],
    ["a toJSON that throws", () => ({ toJSON: boom })],
    ["a getter that throws", () => Object.defineProperty({}, "x", { get: boom, enumerable: true })],
    ["more nesting than can be encoded", () => JSON.parse("[".repeat(100_000) + "]".repeat(100_000))],
    ["an object whose `then` throws", () => Object.defineProperty({}, "then", { get: boom })],
    ["a thenable that throws", () => ({ then: boom })],
  ])("that returns %s causes one Internal error and one `error` event", async (_name, make) => {
    const raw = rawPeer({ methods: { m: make } });
    raw.feed(request(1, "m"));
    await turn();
    expect(raw.messages()).toEqual([failure(1, -32603, "Internal error")]);
    expect(raw.errors).toHaveLength(1);
  });

  it("may return any thenable", async () => {
    const raw = rawPeer({ methods: { m: () => ({ then: (resolve: (value: string) => void) => resolve("then") }) } });
    raw.feed(request(1, "m"));
    await turn();
    expect(raw.messages()).toEqual([result(1, "then")]);
  });
});

/** Joins peers so that `a` calls `b` inside the handler of `outer`, which decides about the error. */
function nested(outer: (peer: AnyPeer) => unknown, around?: Around): ConnectedPair {
  return connectedPair(
    { methods: { outer: (_params, { peer }) => outer(peer) }, ...(around && { around }) },
    {
      methods: {
        denied: () => {
          throw new RpcError(403, "no", { why: 1 });
        },
      },
    },
  );
}

describe("a handler whose own call was answered with an error", () => {
  const INTERNAL = { code: -32603, message: "Internal error", data: undefined };

  it.each<[string, (peer: AnyPeer) => unknown]>([
    ["a method that is missing", (peer) => peer.request("missing")],
    ["an RpcError of the other side's", (peer) => peer.request("denied")],
    ["an RpcError to a member of a batch", (peer) => inBatch(peer, "denied")],
    ["an RpcError, caught and thrown again", (peer) => peer.remote.denied().catch(rethrow)],
    ["an RpcError where a stream was expected", (peer) => firstOf(peer.stream("denied"))],
    ["an RpcError inside a stream of its own", (peer) => relay(peer.stream("denied"))],
  ])("answers -32603 and reports the error with its cause: %s", async (_name, outer) => {
    await using pair = nested(outer);
    expect(await rejection(pair.b.request("outer"))).toMatchObject(INTERNAL);
    expect(pair.takeErrors()).toEqual([
      expect.objectContaining({ message: expect.stringContaining('"outer"'), cause: expect.any(RpcError) }),
    ]);
  });

  it("answers -32603 where `around` lets the error through, or throws it itself", async () => {
    for (const [around, outer] of [
      [lettingThrough, (peer: AnyPeer) => peer.request("denied")],
      [asking, () => "not reached"],
    ] as const) {
      await using pair = nested(outer, around);
      expect(await rejection(pair.b.request("outer"))).toMatchObject(INTERNAL);
      expect(pair.takeErrors()).toHaveLength(1);
    }
  });

  it("answers -32603 where another peer of the same process received it", async () => {
    await using upstream = connectedPair({ methods: { m: () => Promise.reject(new RpcError(1, "upstream")) } });
    await using pair = nested(() => upstream.b.request("m"));
    expect(await rejection(pair.b.request("outer"))).toMatchObject(INTERNAL);
    expect(pair.takeErrors()).toMatchObject([{ cause: { code: 1, message: "upstream", method: "m" } }]);
  });

  it("forwards the error with a new RpcError of its code, message and data", async () => {
    await using pair = nested((peer) =>
      peer.request("denied").catch(({ code, message, data }) => Promise.reject(new RpcError(code, message, data))),
    );
    expect(await rejection(pair.b.request("outer"))).toMatchObject({ code: 403, message: "no", data: { why: 1 } });
  });

  it("sends an RpcError of its own, whatever `method` or `cause` it has", async () => {
    await using pair = nested((peer) =>
      peer
        .request("denied")
        .catch((cause) =>
          Promise.reject(Object.assign(new RpcError(1, "mine", undefined, { cause }), { method: "denied" })),
        ),
    );
    expect(await rejection(pair.b.request("outer"))).toMatchObject({ code: 1, message: "mine" });
  });

  it("that serves a notification reports the error with its cause", async () => {
    await using pair = nested((peer) => peer.request("denied"));
    pair.b.notify("outer");
    await turn();
    expect(pair.takeErrors()).toMatchObject([{ message: expect.stringContaining('"outer"'), cause: { code: 403 } }]);
  });

  it("is cancelled and emits no error when its own signal aborted the call", async () => {
    const raw = rawPeer({ methods: { outer: (_params, { peer, signal }) => peer.request("inner", [], { signal }) } });
    raw.feed(request("o", "outer"));
    raw.feed(notification("$/cancelRequest", { id: "o" }));
    await turn();
    expect(raw.messages()).toContainEqual(failure("o", -32800, "Request cancelled"));
    expect(raw.errors).toEqual([]);
  });

  it("is stopped and emits no error when its own connection was lost with the call", async () => {
    const raw = rawPeer({ methods: { outer: (_params, { peer }) => peer.request("inner") } });
    raw.feed(request("o", "outer"));
    raw.feed(notification("outer"));
    raw.cut();
    await turn();
    expect(raw.errors).toEqual([]);
  });
});

const lettingThrough: Around = (_call, next) => next();

/** Calls the other side itself, before the handler. */
const asking: Around = async ({ direction, peer }, next) => {
  if (direction === "incoming") await peer.request("denied");
  return next();
};

function rethrow(error: unknown): never {
  throw error;
}

function inBatch(peer: AnyPeer, method: string): Promise<unknown> {
  const batch = peer.batch();
  const call = batch.request(method);
  batch.send();
  return call;
}

async function firstOf(values: AsyncIterable<unknown>): Promise<unknown> {
  for await (const value of values) return value;
  return undefined;
}

async function* relay(values: AsyncIterable<unknown>): AsyncGenerator<unknown> {
  yield* values;
}

describe("RpcError", () => {
  it.each([1.5, NaN, Infinity, "1", null, undefined])("refuses %s as a code", (code) => {
    expect(() => new RpcError(code as number, "m")).toThrow(/^Expected `code` to be an integer, got /);
  });

  it.each([5, null, undefined, {}])("refuses %s as a message", (message) => {
    expect(() => new RpcError(1, message as string)).toThrow(/^Expected `message` to be a string, got /);
  });

  it("keeps its cause", () => {
    const cause = new Error("why");
    expect(new RpcError(1, "m", undefined, { cause })).toMatchObject({ name: "RpcError", cause });
  });
});
