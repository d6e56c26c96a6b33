/** Cancelling, from the handler's side: the calls that a cancel reaches, and the answers. */
import { describe, expect, it } from "vitest";
import { acp, lsp, mcp, RpcError } from "../../src/index.js";
import { inspect } from "../../src/peer/peer.js";
import { useFakeClock } from "../support/clock.js";
import { failure, notification, rawPeer, request, result, type RawPeer } from "../support/raw.js";
import { gate, turn, type Gate } from "../support/turns.js";
import { cancel, CANCELLED, waiting } from "./waiting.js";

useFakeClock();

describe("a handler whose caller cancels", () => {
  it("sees its signal abort with an AbortError, and its call is answered with -32800", async () => {
    const raw = waiting();
    raw.feed(request(1, "wait"));
    raw.feed(cancel(1));
    expect(raw.contexts[0]!.signal.aborted).toBe(true);
    expect(raw.contexts[0]!.signal.reason).toBeInstanceOf(Error);
    expect(raw.contexts[0]!.signal.reason).toMatchObject({ name: "AbortError", message: "the caller cancelled" });
    await turn();
    expect(raw.messages()).toEqual([failure(1, ...CANCELLED)]);
    // The caller requested the stop, so it is not reported as a failure.
    expect(raw.errors).toEqual([]);
    expect(inspect(raw.peer).running).toBe(0);
  });

  it.each<[string, unknown, unknown[]]>([
    ["the signal's reason", "reason", []],
    ["an AbortError of its own", new DOMException("stopped", "AbortError"), []],
    ["an Error that is called so", Object.assign(new Error("fetch"), { name: "AbortError" }), []],
    ["another error", new Error("secret"), [new Error("secret")]],
    ["an RpcError", new RpcError(5, "no"), [new RpcError(5, "no")]],
    ["undefined", undefined, [undefined]],
    ["a string", "AbortError", ["AbortError"]],
  ])(
    "is answered for with -32800 when it fails with %s, which is reported unless it is the abort",
    async (...given) => {
      const [, thrown, reported] = given;
      const raw = waiting();
      raw.feed(request(1, "stay"));
      raw.feed(cancel(1));
      raw.open.reject(thrown === "reason" ? raw.contexts[0]!.signal.reason : thrown);
      await turn();
      expect(raw.messages()).toEqual([failure(1, ...CANCELLED)]);
      expect(raw.errors).toEqual(reported);
    },
  );

  it("sends one answer even if it throws an exotic object", async () => {
    const { proxy, revoke } = Proxy.revocable({}, {});
    revoke();
    const raw = waiting();
    raw.feed(request(1, "stay"));
    raw.feed(cancel(1));
    raw.open.reject(proxy);
    await turn();
    expect(raw.messages()).toEqual([failure(1, ...CANCELLED)]);
    expect(raw.errors).toHaveLength(1);
  });

  it("has its call answered with -32800 when its result has no JSON form", async () => {
    const raw = waiting();
    raw.feed(request(1, "stay"));
    raw.feed(cancel(1));
    raw.open.resolve(5n);
    await turn();
    expect(raw.messages()).toEqual([failure(1, ...CANCELLED)]);
    expect(raw.errors).toEqual([expect.any(TypeError)]);
  });

  it("is aborted once by any number of cancels", async () => {
    let aborts = 0;
    const raw = waiting();
    raw.feed(request(1, "stay"));
    raw.contexts[0]!.signal.addEventListener("abort", () => aborts++);
    const first = (raw.feed(cancel(1)), raw.contexts[0]!.signal.reason);
    raw.feed(cancel(1));
    expect(aborts).toBe(1);
    expect(raw.contexts[0]!.signal.reason).toBe(first);
    raw.open.resolve(1);
    await turn();
    raw.feed(cancel(1));
    expect(raw.messages()).toHaveLength(1);
  });

  it("aborts a call made with its signal, and the reason is not reported as a failure", async () => {
    const raw = waiting({
      dialect: lsp,
      methods: { relay: (_params, { peer, signal }) => peer.request("further", [], { signal }) },
    });
    raw.feed(request("r", "relay"));
    raw.feed(cancel("r"));
    await turn();
    expect(raw.messages()).toEqual([request(1, "further", []), cancel(1), failure("r", ...CANCELLED)]);
    expect(raw.errors).toEqual([]);
  });

  it("may close its peer from its abort listener", async () => {
    const raw = waiting();
    raw.feed(request(1, "stay"));
    raw.feed(request(2, "stay"));
    raw.contexts[0]!.signal.addEventListener("abort", () => void raw.peer.close());
    raw.feed(cancel(1));
    expect(raw.contexts[1]!.signal.reason).toMatchObject({ message: expect.stringContaining("closed on this side") });
    raw.open.resolve(1);
    await turn();
    expect(raw.sent).toEqual([]);
  });
});

describe("a cancel", () => {
  it("reaches a call of the other side, and never one of this side under the same id", async () => {
    const raw = waiting();
    const own = raw.peer.request("ask");
    raw.feed(request(1, "wait"));
    raw.feed(cancel(1));
    await turn();
    expect(raw.messages()).toEqual([request(1, "ask"), failure(1, ...CANCELLED)]);
    expect(inspect(raw.peer).pending).toBe(1);
    raw.feed(result(1, "answered"));
    expect(await own).toBe("answered");
  });

  it("reaches no notification", async () => {
    const raw = waiting();
    raw.feed(notification("stay"));
    for (const id of [null, 0, "", undefined]) raw.feed(cancel(id));
    expect(raw.contexts[0]!.signal.aborted).toBe(false);
    raw.open.resolve(0);
    await turn();
  });

  it("also reaches the handler that an application registered for it, and no `notification` event", async () => {
    const seen: unknown[] = [];
    const raw = waiting({ methods: { "$/cancelRequest": (params) => void seen.push(params) } });
    const bare = waiting({ fallback: () => void seen.push("fallback") });
    bare.peer.on("notification", () => seen.push("event"));
    for (const { feed } of [raw, bare]) {
      feed(request(1, "wait"));
      feed(cancel(1));
    }
    await turn();
    expect(seen).toEqual([{ id: 1 }]);
    for (const { messages } of [raw, bare]) expect(messages()).toEqual([failure(1, ...CANCELLED)]);
  });

  it("is understood in the chosen dialect only", async () => {
    const raw = waiting({ dialect: acp });
    const seen: string[] = [];
    raw.peer.on("notification", (method) => seen.push(method));
    raw.feed(request(1, "wait"));
    raw.feed(cancel(1));
    raw.feed(notification("notifications/cancelled", { requestId: 1 }));
    expect(raw.contexts[0]!.signal.aborted).toBe(false);
    expect(seen).toEqual(["$/cancelRequest", "notifications/cancelled"]);
    raw.feed(notification("$/cancel_request", { requestId: 1 }));
    await turn();
    expect(raw.messages()).toEqual([failure(1, ...CANCELLED)]);
  });

  it("is applied while a schema checks the params, and the handler starts with an aborted signal", async () => {
    const checked = gate();
    const schema = { "~standard": { validate: async (value: unknown) => (await checked.promise, { value }) } };
    const raw = waiting({ schemas: { wait: schema, stay: schema } });
    raw.feed(request(1, "stay"));
    raw.feed(cancel(1));
    checked.resolve();
    await turn();
    expect(raw.contexts[0]!.signal.aborted).toBe(true);
    raw.open.resolve("ran");
    await turn();
    expect(raw.messages()).toEqual([result(1, "ran")]);
  });

  it("is applied while `around` awaits, which then decides the answer", async () => {
    const passed = gate();
    const raw = waiting({
      around: async (call, next) => {
        await passed.promise;
        call.context!.signal.throwIfAborted();
        return next();
      },
    });
    raw.feed(request(1, "now"));
    raw.feed(cancel(1));
    passed.resolve();
    await turn();
    expect(raw.messages()).toEqual([failure(1, ...CANCELLED)]);
    expect(raw.errors).toEqual([]);
  });

  it("reaches a handler that has not returned yet, when a transport delivers inside `send`", async () => {
    const seen: boolean[] = [];
    const raw: RawPeer = rawPeer(
      {
        methods: {
          ask: (_params, { peer, signal }) => {
            peer.notify("go on");
            seen.push(signal.aborted);
            throw signal.reason;
          },
        },
      },
      { onSend: (text) => void (text.includes("go on") && raw.feed(cancel(9))) },
    );
    raw.feed(request(9, "ask"));
    expect(seen).toEqual([true]);
    expect(raw.messages()[1]).toEqual(failure(9, ...CANCELLED));
  });
});

const cancelled = (requestId: unknown): object => notification("notifications/cancelled", { requestId });

describe("under mcp", () => {
  it.each<[string, string, (open: Gate<unknown>) => void, number]>([
    ["ends by its signal", "wait", () => {}, 0],
    ["has a result", "stay", (open) => open.resolve("unwanted"), 0],
    ["has a result that cannot be sent", "stay", (open) => open.resolve(5n), 1],
    ["fails", "stay", (open) => open.reject(new Error("secret")), 1],
    ["refuses", "stay", (open) => open.reject(new RpcError(1, "no")), 1],
  ])("nothing is sent for a cancelled call whose handler %s", async (_name, method, end, errors) => {
    const raw = waiting({ dialect: mcp });
    raw.feed(request(1, method));
    raw.feed(cancelled(1));
    end(raw.open);
    await turn();
    expect(raw.contexts[0]!.signal.aborted).toBe(true);
    expect(raw.sent).toEqual([]);
    expect(raw.errors).toHaveLength(errors);
    expect(inspect(raw.peer).running).toBe(0);
  });

  it("a cancel with the id null or positional params is ignored, and any reason is accepted", async () => {
    const raw = waiting({ dialect: mcp });
    raw.feed(request(null, "stay"));
    raw.feed(cancelled(null));
    raw.feed(notification("notifications/cancelled", [null]));
    expect(raw.contexts[0]!.signal.aborted).toBe(false);
    raw.feed(request("a", "stay"));
    raw.feed(notification("notifications/cancelled", { requestId: "a", reason: { any: 1 } }));
    expect(raw.contexts[1]!.signal.aborted).toBe(true);
    raw.open.resolve("ran");
    await turn();
    expect(raw.messages()).toEqual([result(null, "ran")]);
  });
});
