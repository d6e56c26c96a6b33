import { describe, expect, it } from "vitest";
import { z } from "zod";
import { contract, isApplicationError, RpcError, type SchemaContract } from "../../src/index.js";
import type { AnyPeer, Around, Context } from "../../src/index.js";
import { testServer, virtualClock } from "../../src/testing/index.js";
import { connectedPair, inBatch, readAll, type ConnectedPair } from "../support/pair.js";
import { failure, notification, rawPeer, request, result } from "../support/raw.js";
import { raising, rejection, turn } from "../support/turns.js";

const boom = new Error("boom");
const fail = raising(boom);

function listen(emitter: { on(event: "error", listener: (...args: any[]) => void): unknown }): unknown[][] {
  const heard: unknown[][] = [];
  emitter.on("error", (...args: unknown[]) => heard.push(args));
  return heard;
}

it("a handler that throws emits the thrown value itself once, with the method and the id, and the peer serves the next call", async () => {
  for (const thrown of [boom, undefined, Symbol("secret")]) {
    const raw = rawPeer({ methods: { m: () => Promise.reject(thrown), fine: () => 1 } });
    const heard = listen(raw.peer);
    raw.feed(request(1, "m"));
    raw.feed(notification("m"));
    await turn();
    raw.feed(request(2, "fine"));
    expect(heard).toEqual([1, undefined].map((id) => [thrown, { method: "m", id }]));
    expect(raw.messages()).toEqual([failure(1, -32603, "Internal error"), result(2, 1)]);
    expect(raw.peer.stats().running).toBe(0);
  }
});

it("a handler that throws an RpcError sends neither its stack nor its cause, and reports it only for its cause", async () => {
  const thrown = new RpcError(1, "no", { why: 1 }, { cause: boom });
  const methods = { caused: () => Promise.reject(thrown), bare: () => Promise.reject(new RpcError(1, "no")) };
  const raw = rawPeer({ methods });
  raw.feed(request(1, "caused"));
  raw.feed(request(2, "bare"));
  await turn();
  expect(raw.messages()).toEqual([failure(1, 1, "no", { why: 1 }), failure(2, 1, "no")]);
  expect(raw.errors).toEqual([thrown]);
});

it("a listener of `error` gets the method of a notification that is refused, the call whose `onProgress` threw, and no call for a listener that threw", async () => {
  await using pair = connectedPair(
    { methods: { m: (_params, { progress }) => progress(1) } },
    { methods: { wait: () => turn() }, limits: { maxInFlight: 1 } },
  );
  const heard = listen(pair.b);
  await pair.b.request("m", {}, { onProgress: fail });
  pair.b.on("notification", fail);
  for (const method of ["any", "wait", "wait"]) pair.a.notify(method);
  await turn();
  expect(heard).toEqual([
    [boom, { method: "m", id: 1 }],
    [boom, undefined],
    [expect.any(RpcError), { method: "wait", id: undefined }],
  ]);
  pair.takeErrors();
});

it("a listener of `error` of a server gets the error, the peer and the call, and the method of a message to a group", async () => {
  const around: any = ({ direction }: { direction: string }, next: () => Promise<unknown>) =>
    direction === "outgoing" ? fail() : next();
  await using test = testServer({ around, methods: { m: fail } });
  const heard = listen(test.server);
  const peer = await test.connect(test.server.url);
  await rejection(peer.request("m"));
  const [serverPeer] = test.server.peers;
  test.server.peers.notify("n");
  await turn();
  expect(heard).toEqual([
    [boom, serverPeer, { method: "m", id: expect.any(Number) }],
    [boom, undefined, { method: "n", id: undefined }],
  ]);
});

/** Joins peers so that `a` calls `b` inside the handler of `outer`, which decides about the error. */
function nested(outer: (peer: AnyPeer) => unknown, around?: Around): ConnectedPair {
  const methods = { outer: (_params: unknown, { peer }: Context) => outer(peer) };
  return connectedPair(
    { methods, ...(around && { around }) },
    { methods: { denied: () => Promise.reject(new RpcError(403, "no", { why: 1 })) } },
  );
}

const asking: Around = async ({ direction, peer }, next) => {
  if (direction === "incoming") await peer.request("denied");
  return next();
};

describe("a handler whose own call was answered with an error", () => {
  it.each<[string, (peer: AnyPeer) => unknown, Around?]>([
    ["a method that is missing", (peer) => peer.request("missing")],
    ["an RpcError to a member of a batch", (peer) => inBatch(peer, "denied")],
    ["an RpcError, thrown again", (peer) => peer.remote.denied().catch((error: unknown) => Promise.reject(error))],
    ["an RpcError where a stream was expected", (peer) => readAll(peer.stream("denied"))],
    ["an RpcError inside a stream of its own", (peer) => relay(peer.stream("denied"))],
    ["let through by `around`", (peer) => peer.request("denied"), (_call, next) => next()],
    ["thrown by `around`", () => "not reached", asking],
  ])("answers -32603 and reports the error with its cause: %s", async (_name, outer, around) => {
    await using pair = nested(outer, around);
    const internal = { code: -32603, message: "Internal error", data: undefined };
    expect(await rejection(pair.b.request("outer"))).toMatchObject(internal);
    expect(pair.takeErrors()).toEqual([
      expect.objectContaining({ message: expect.stringContaining('"outer"'), cause: expect.any(RpcError) }),
    ]);
  });

  it("answers -32603 where another peer of the same process received it, and reports it for a notification, too", async () => {
    await using upstream = connectedPair({ methods: { m: () => Promise.reject(new RpcError(1, "upstream")) } });
    await using pair = nested(() => upstream.b.request("m"));
    expect(await rejection(pair.b.request("outer"))).toMatchObject({ code: -32603 });
    pair.b.notify("outer");
    await turn();
    const report = { cause: { code: 1, message: "upstream", method: "m" } };
    expect(pair.takeErrors()).toMatchObject([report, report]);
  });

  it("sends an RpcError of its own, whatever `method` or `cause` it has, and its caller reads its own method", async () => {
    await using pair = nested(async (peer) => {
      const cause = await rejection(peer.request("denied"));
      throw Object.assign(new RpcError(1, "mine", undefined, { cause }), { method: "denied" });
    });
    expect(await rejection(pair.b.request("outer"))).toMatchObject({ code: 1, message: "mine", method: "outer" });
    expect(pair.takeErrors()).toMatchObject([{ code: 1, message: "mine", cause: { code: 403 } }]);
  });

  it("is stopped and emits no error when its own connection was lost with the call", async () => {
    const raw = rawPeer({ methods: { outer: (_params, { peer }) => peer.request("inner") } });
    for (const message of [request("o", "outer"), notification("outer")]) raw.feed(message);
    raw.cut();
    await turn();
    expect(raw.errors).toEqual([]);
  });
});

async function* relay(values: AsyncIterable<unknown>): AsyncGenerator<unknown> {
  yield* values;
}

it("an RpcError refuses a code that is no integer, and a message that is no string", () => {
  for (const code of [1.5, NaN, Infinity, "1", null, undefined])
    expect(() => new RpcError(code as number, "m")).toThrow(/^Expected `code` to be an integer, got /);
  for (const message of [5, null, undefined, {}])
    expect(() => new RpcError(1, message as string)).toThrow(/^Expected `message` to be a string, got /);
});

it("`isApplicationError` accepts an RpcError with a code that JSON-RPC does not reserve, and no other error", () => {
  const codes = [-32769, -32768, -32000, -31999, 0, 1];
  expect(codes.filter((code) => isApplicationError(new RpcError(code, "m")))).toEqual([-32769, -31999, 0, 1]);
  expect(isApplicationError({ code: 1 })).toBe(false);
});

it("the stack of an error of a call names the method, and begins with the line of the caller", async () => {
  const methods = {
    refuse: () => Promise.reject(new RpcError(1, "no")),
    sum: () => "three",
    wait: () => new Promise(() => {}),
    values: async function* () {
      yield 1;
      throw new RpcError(2, "no more");
    },
  };
  using clock = virtualClock();
  await using test = testServer<any, any>({ methods });
  test.server.on("error", () => {});
  const peer = await test.connect(test.server.url);
  const checked = await test.connect(test.server.url, {
    around: async (_call, next) => next(),
    remote: contract({ sum: { result: z.number() } }) as SchemaContract,
    check: "both",
  });
  const waiting = (end: () => unknown, options?: object): Promise<unknown> => {
    const call = peer.request("wait", [], options);
    void end();
    return call;
  };
  const calls: [string, () => Promise<unknown>][] = [
    ['RpcError: "refuse": no', () => peer.remote.refuse()],
    ['TimeoutError: "wait" was not answered', () => waiting(() => clock.pass(1), { timeoutMs: 1 })],
    ['TypeError: "add": Expected `params`', () => peer.request("add", 5)],
    ['ProtocolError: The result of "sum"', () => checked.request("sum")],
    ['RpcError: "refuse": no', () => checked.request("refuse")],
    ['RpcError: "refuse": no', () => inBatch(peer, "refuse")],
    ['RpcError: "values": no more', () => readAll(peer.stream("values"))],
    ['RpcError: "missing": Method not found', () => readAll(peer.stream("missing"))],
    ['TypeError: "add": Expected `params`', () => test.server.peers.request("add", 5)],
    [
      'RpcError: "missing": Method not found',
      async () => Promise.reject(((await test.server.peers.request("missing"))[0] as PromiseRejectedResult).reason),
    ],
    ['ConnectionLostError: "wait" may have run', () => waiting(() => peer.close())],
  ];
  for (const [head, call] of calls) {
    // A function of this file that awaits the call.
    const caught = async (): Promise<Error> => {
      try {
        await call();
      } catch (error) {
        return error as Error;
      }
      throw new Error("the call has not failed");
    };
    const [first = "", ...frames] = (await caught()).stack!.split("\n");
    const [frame = ""] = frames.filter((line) => !line.includes("node:internal") && line.includes(":"));
    expect(first).toContain(head);
    expect(frame).toMatch(/(errors\.test|support.pair)\.ts:\d+:\d+\)?$/);
  }
});
