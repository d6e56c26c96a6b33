import { describe, expect, it } from "vitest";
import { RpcError, type AnyPeer, type Around } from "../../src/index.js";
import { inspect } from "../../src/peer/peer.js";
import { connectedPair, type ConnectedPair } from "../support/pair.js";
import { failure, notification, rawPeer, request, result } from "../support/raw.js";
import { rejection, turn } from "../support/turns.js";

describe("a handler", () => {
  it.each([new Error("secret"), undefined, Symbol("secret")])(
    "that throws emits the thrown value itself once, and the peer serves the next call",
    async (thrown) => {
      const raw = rawPeer({ methods: { m: () => Promise.reject(thrown), fine: () => 1 } });
      raw.feed(request(1, "m"));
      raw.feed(notification("m"));
      await turn();
      raw.feed(request(2, "fine"));
      expect(raw.errors).toEqual([thrown, thrown]);
      expect(raw.messages()).toEqual([failure(1, -32603, "Internal error"), result(2, 1)]);
      expect(inspect(raw.peer).running).toBe(0);
    },
  );

  it("that throws an RpcError sends neither its stack nor its cause", async () => {
    const thrown = new RpcError(1, "no", undefined, { cause: new Error("secret") });
    const raw = rawPeer({ methods: { m: () => Promise.reject(thrown) } });
    raw.feed(request(1, "m"));
    await turn();
    expect(raw.sent).toEqual(['{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"no"}}']);
  });
});

/** Joins peers so that `a` calls `b` inside the handler of `outer`, which decides about the error. */
function nested(outer: (peer: AnyPeer) => unknown, around?: Around): ConnectedPair {
  return connectedPair(
    { methods: { outer: (_params, { peer }) => outer(peer) }, ...(around && { around }) },
    {
      methods: { denied: () => Promise.reject(new RpcError(403, "no", { why: 1 })) },
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

  it("sends an RpcError of its own, whatever `method` or `cause` it has", async () => {
    await using pair = nested((peer) =>
      peer
        .request("denied")
        .catch((cause) =>
          Promise.reject(Object.assign(new RpcError(1, "mine", undefined, { cause }), { method: "denied" })),
        ),
    );
    expect(await rejection(pair.b.request("outer"))).toMatchObject({ code: 1, message: "mine" });
    expect(pair.takeErrors()).toMatchObject([{ code: 1, message: "mine", cause: { code: 403 } }]);
  });

  it("that serves a notification reports the error with its cause", async () => {
    await using pair = nested((peer) => peer.request("denied"));
    pair.b.notify("outer");
    await turn();
    expect(pair.takeErrors()).toMatchObject([{ message: expect.stringContaining('"outer"'), cause: { code: 403 } }]);
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
