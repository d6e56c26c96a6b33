import { describe, expect, it } from "vitest";
import { Peer, RpcError, type AnyPeer, type Receiver } from "../../src/index.js";
import { inspect } from "../../src/peer/peer.js";
import { connectedPair } from "../support/pair.js";
import { rawPeer, request, result } from "../support/raw.js";
import { rejection, turn } from "../support/turns.js";

async function* values(): AsyncGenerator<number> {
  yield 1;
}

describe("a hostile promise", () => {
  it("that calls back twice and then throws causes one answer and counts as one call", async () => {
    const promise = new Promise(() => {});
    void Object.defineProperty(promise, "then", {
      value: (succeed: (value: unknown) => void) => {
        succeed(1);
        succeed(2);
        throw new Error("three");
      },
    });
    const { peer, feed, sent } = rawPeer({ limits: { maxInFlight: 1 }, methods: { odd: () => promise } });
    for (const id of [1, 2]) feed(`{"jsonrpc":"2.0","id":${id},"method":"odd"}`);
    await turn();
    expect(sent).toEqual([1, 2].map((id) => `{"jsonrpc":"2.0","id":${id},"result":1}`));
    expect(inspect(peer).running).toBe(0);
  });

  it("that calls back with a stream and then with a value causes one answer", async () => {
    const promise = new Promise(() => {});
    void Object.defineProperty(promise, "then", {
      value: (succeed: (value: unknown) => void) => {
        succeed(values());
        succeed(2);
      },
    });
    const { peer, feed, messages } = rawPeer({ methods: { odd: () => promise } });
    feed(request(1, "odd"));
    await turn();
    expect(messages()).toEqual([result(1, { values: [1] })]);
    expect(inspect(peer)).toMatchObject({ running: 0, streams: 0 });
  });
});

describe("a schema", () => {
  it("that returns a custom thenable is awaited", async () => {
    const issues = [{ message: "no" }];
    const validate = (): PromiseLike<never> => ({
      then: (succeed: any) => Promise.resolve(succeed({ issues })) as never,
    });
    await using ends = connectedPair(
      { methods: { add: () => "ran" }, schemas: { add: { "~standard": { validate } } } },
      {},
    );
    expect(await rejection(ends.b.request("add", [1]))).toMatchObject({ code: -32602, data: { issues } });
  });
});

describe("an error that was received", () => {
  it("has the name of the called method, and does not forward that name", async () => {
    const named = Object.assign(new RpcError(1, "no"), { method: "another" });
    await using ends = connectedPair({ methods: { ask: () => Promise.reject(named) } }, {});
    const error = await rejection(ends.b.request("ask"));
    expect(error).toBeInstanceOf(RpcError);
    expect(error).toMatchObject({ code: 1, method: "ask" });
  });
});

describe("the options of a call", () => {
  it("are refused if unknown, because a misspelt one would have no effect", async () => {
    const { peer, sent } = rawPeer();
    const error = await rejection(peer.request("m", {}, { timeout: 5 } as never));
    expect(error).toBeInstanceOf(TypeError);
    expect(error.message).toBe(
      "Unknown name `timeout` in `options`; known are timeoutMs, maxTotalTimeoutMs, signal, onProgress, resetTimeoutOnProgress, retry",
    );
    expect(sent).toEqual([]);
  });
});

describe("a transport", () => {
  it("may return nothing from `send` for what it has sent", async () => {
    const sent: unknown[] = [];
    const start = (receiver: Receiver): void => {
      received = (text) => receiver.receive(text);
    };
    let received!: (text: string) => void;
    const transport = { start, send: (text: string) => void sent.push(JSON.parse(text)), close() {} };
    const peer = new Peer(transport, {}) as AnyPeer;
    const call = peer.request("m");
    expect(peer.notify("n")).toBe(true);
    expect(sent).toHaveLength(2);
    received('{"jsonrpc":"2.0","id":1,"result":7}');
    expect(await call).toBe(7);
  });

  it.each([undefined, null, 5, {}, { send() {} }, { start() {}, send() {} }, { start() {}, close() {} }])(
    "that is invalid (%j) is refused with an error that names `transport`",
    (transport) => {
      expect(() => new Peer(transport as never, {})).toThrow("Expected `transport` to be a Transport");
    },
  );
});
