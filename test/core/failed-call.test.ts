/** What an `error` listener gets: the error, and the call or notification that it came from. */
import { describe, expect, it } from "vitest";
import { RpcError, type AnyPeer } from "../../src/index.js";
import { testServer } from "../../src/testing/index.js";
import { connectedPair } from "../support/pair.js";
import { failure, notification, rawPeer, request } from "../support/raw.js";
import { rejection, turn } from "../support/turns.js";

type Heard = unknown[];

function listen(peer: AnyPeer): Heard[] {
  const heard: Heard[] = [];
  peer.on("error", (...args: unknown[]) => heard.push(args));
  return heard;
}

const boom = new Error("boom");

describe("a listener of a peer's `error`", () => {
  it("gets the method and the id of the call whose handler failed", async () => {
    const raw = rawPeer({ methods: { m: () => Promise.reject(boom) } });
    const heard = listen(raw.peer);
    raw.feed(request(7, "m"));
    raw.feed(notification("m"));
    await turn();
    expect(heard).toEqual([
      [boom, { method: "m", id: 7 }],
      [boom, { method: "m", id: undefined }],
    ]);
    raw.errors.splice(0);
  });

  it("gets the method of a notification that is refused", async () => {
    const raw = rawPeer({ methods: { m: () => new Promise(() => {}) }, limits: { maxInFlight: 1 } });
    const heard = listen(raw.peer);
    for (let i = 0; i < 2; i++) raw.feed(notification("m"));
    expect(heard).toEqual([[expect.any(RpcError), { method: "m", id: undefined }]]);
    raw.errors.splice(0);
  });

  it("gets the method and the id of the call whose `onProgress` threw", async () => {
    await using pair = connectedPair({
      methods: { m: (_params: unknown, { progress }: { progress(value: unknown): void }) => progress(1) },
    });
    const heard = listen(pair.b);
    const onProgress = (): void => {
      throw boom;
    };
    await pair.b.request("m", {}, { onProgress });
    expect(heard).toEqual([[boom, { method: "m", id: 1 }]]);
    pair.takeErrors();
  });

  it("gets nothing more for an error that came from no call", async () => {
    await using pair = connectedPair();
    const heard = listen(pair.a);
    pair.a.on("notification", () => {
      throw boom;
    });
    pair.b.notify("any");
    await turn();
    expect(heard).toEqual([[boom, undefined]]);
    pair.takeErrors();
  });
});

describe("a listener of a server's `error`", () => {
  it("gets the error, the peer, and the method and id of the call", async () => {
    await using test = testServer({ methods: { m: () => Promise.reject(boom) } });
    const heard: Heard[] = [];
    test.server.on("error", (...args: unknown[]) => heard.push(args));
    const peer = await test.connect(test.server.url);
    await rejection(peer.request("m"));
    const [serverPeer] = test.server.peers;
    expect(heard).toEqual([[boom, serverPeer, { method: "m", id: expect.any(Number) }]]);
  });

  it("gets the method of a message to a group whose `around` threw", async () => {
    await using test = testServer({
      around: (call: { direction: string }, next: () => Promise<unknown>) => {
        if (call.direction === "outgoing") throw boom;
        return next();
      },
    } as object);
    const heard: Heard[] = [];
    test.server.on("error", (...args: unknown[]) => heard.push(args));
    await test.connect(test.server.url);
    test.server.peers.notify("n");
    await turn();
    expect(heard).toEqual([[boom, undefined, { method: "n", id: undefined }]]);
  });
});

describe("an RpcError with a cause", () => {
  it("is the answer without its cause, and is reported with it", async () => {
    const thrown = new RpcError(1, "no", { why: 1 }, { cause: boom });
    const raw = rawPeer({ methods: { m: () => Promise.reject(thrown) } });
    const heard = listen(raw.peer);
    raw.feed(request(1, "m"));
    await turn();
    expect(raw.messages()).toEqual([failure(1, 1, "no", { why: 1 })]);
    expect(heard).toEqual([[thrown, { method: "m", id: 1 }]]);
    raw.errors.splice(0);
  });

  it("is not reported without a cause", async () => {
    const raw = rawPeer({ methods: { m: () => Promise.reject(new RpcError(1, "no")) } });
    raw.feed(request(1, "m"));
    await turn();
    expect(raw.errors).toEqual([]);
  });
});

describe("an Error as a value", () => {
  const REFUSED = "JSON cannot carry the";

  it.each<[string, () => unknown]>([
    ["as a result", () => boom],
    ["in a promise", () => Promise.resolve(boom)],
    ["as a member", () => ({ reason: boom })],
    ["as an entry", () => [boom]],
    ["of a class of its own", () => new RpcError(1, "no")],
  ])("is refused %s, and the caller gets -32603", async (_where, handler) => {
    const raw = rawPeer({ methods: { m: handler } });
    raw.feed(request(1, "m"));
    await turn();
    expect(raw.messages()).toEqual([failure(1, -32603, "Internal error")]);
    expect((raw.errors.splice(0) as Error[])[0]!.message).toMatch(/The result of "m": JSON cannot carry the \w*Error/);
  });

  it("is refused in params, of a call and of a notification", async () => {
    const raw = rawPeer();
    const error = await rejection(raw.peer.request("m", { boom }));
    expect(error.message).toBe("JSON cannot carry the Error `boom`: throw it, or write `it.message`");
    expect(() => raw.peer.notify("m", [boom])).toThrow(REFUSED);
    expect(raw.sent).toEqual([]);
  });

  it("is sent if its class has a JSON form", async () => {
    class Sent extends Error {
      toJSON(): object {
        return { why: this.message };
      }
    }
    const raw = rawPeer({ methods: { m: () => new Sent("x") } });
    raw.feed(request(1, "m"));
    expect(raw.messages()).toMatchObject([{ result: { why: "x" } }]);
  });
});
