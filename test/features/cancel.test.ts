import { describe, expect, it, vi } from "vitest";
import { acp, lsp, mcp, type Dialect } from "../../src/index.js";
import { expectEmpty } from "../support/pair.js";
import { failure, notification, rawPeer, request, result, type RawPeer } from "../support/raw.js";
import { countedSignal, gate, raising, rejection, turn, useVirtualClock, type Gate } from "../support/time.js";
import { answersTo, cancel, CANCELLED, waiting } from "./kit.js";

useVirtualClock();

const reciprocPeer = (): RawPeer => rawPeer({}, { isReciproc: true });

const refuse = raising(new Error("no params"));

const byMcp = (params: object): object => notification("notifications/cancelled", { requestId: 1, ...params });

/** Makes a call, aborts it, and returns the messages that the peer sends after the call. */
async function abortOne(raw: RawPeer, method = "m", reason: unknown = new Error("the user left")): Promise<any[]> {
  const controller = new AbortController();
  const call = raw.peer.request(method, [], { signal: controller.signal });
  controller.abort(reason);
  expect(await rejection(call)).toBe(reason);
  return raw.messages().slice(1);
}

describe("a call that is aborted", () => {
  it("rejects at once with the signal's reason, and sends one cancel for each call of the signal", async () => {
    const { peer, messages, feed } = reciprocPeer();
    const { controller, signal } = countedSignal();
    const calls = ["a", "b"].map((method) => peer.request(method, [1], { signal }));
    controller.abort("first");
    // Before the other side could answer.
    expect(messages()).toEqual([request(1, "a", [1]), request(2, "b", [1]), cancel(1), cancel(2)]);
    expectEmpty(peer);
    controller.abort("second");
    signal.dispatchEvent(new Event("abort"));
    feed(result(1, "too late"));
    for (const call of calls) expect(await rejection(call)).toBe("first");
    expect([messages().length, peer.stats().unmatched]).toEqual([4, 1]);
  });

  it("sends nothing if its signal is aborted already, and no cancel if it has settled or was not sent", async () => {
    const { peer, feed, cut, sent } = reciprocPeer();
    expect(await rejection(peer.request("m", [], { signal: AbortSignal.abort("before") }))).toBe("before");
    expect(sent).toEqual([]);
    const { controller, signal } = countedSignal();
    const calls = ["a", "b", "c"].map((method) => peer.request(method, [], { signal }));
    feed(result(2, "done"));
    feed(failure(3, 5, "no"));
    cut();
    const refusing = rawPeer({}, { isReciproc: true, onSend: () => false });
    const unsent = rejection(refusing.peer.request("m", [], { signal }));
    controller.abort("too late");
    expect((await Promise.allSettled(calls))[0]).toMatchObject({ value: "done" });
    expect(await unsent).toMatchObject({ outcome: "not-sent" });
    expect([sent.length, refusing.sent.length]).toEqual([3, 1]);
  });

  it("rejects even if the cancel is refused or cannot be encoded", async () => {
    const silent = rawPeer({ dialect: lsp }, { onSend: (text) => !text.includes("cancel") });
    const failing = rawPeer({ dialect: { ...lsp, cancel: { ...lsp.cancel, params: refuse } } });
    for (const raw of [silent, failing]) await abortOne(raw);
    expect([silent.errors, failing.errors]).toEqual([[], [new Error("no params")]]);
  });
});

describe("a peer", () => {
  it("on a plain link without a dialect sends no cancel, even if it reads streams", async () => {
    const raw = rawPeer();
    const first = raw.peer.stream("tail")[Symbol.asyncIterator]().next();
    await turn();
    raw.feed(result(1, { values: [1] }));
    expect(await first).toEqual({ done: false, value: 1 });
    expect(await abortOne(raw)).toEqual([request(2, "m", [])]);
  });

  const left = new Error("the user left");

  it.each<[string, Dialect, string, unknown, object[]]>([
    ["lsp", lsp, "initialize", left, [cancel(1)]],
    ["acp", acp, "m", left, [notification("$/cancel_request", { requestId: 1 })]],
    ["mcp, with the reason", mcp, "m", left, [byMcp({ reason: "the user left" })]],
    ["mcp, with a reason that is a string", mcp, "m", "enough", [byMcp({ reason: "enough" })]],
    ["mcp, without an empty reason", mcp, "m", "", [byMcp({})]],
    ["mcp, without a reason that is no text", mcp, "m", { deep: 1 }, [byMcp({})]],
    ["mcp, in which nothing cancels `initialize`", mcp, "initialize", left, []],
  ])("that chose a dialect speaks it on a plain link too: %s", async (_name, dialect, method, reason, expected) => {
    expect(await abortOne(rawPeer({ dialect }), method, reason)).toEqual(expected);
  });
});

const { proxy: revoked, revoke } = Proxy.revocable({}, {});
revoke();

it.each<[string, (open: Gate<unknown>, reason: unknown) => void, unknown[]]>([
  ["the signal's reason", (open, reason) => open.reject(reason), []],
  ["an AbortError of its own", (open) => open.reject(new DOMException("stopped", "AbortError")), []],
  ["another error", (open) => open.reject(new Error("secret")), [new Error("secret")]],
  ["undefined", (open) => open.reject(undefined), [undefined]],
  ["an exotic object", (open) => open.reject(revoked), [expect.anything()]],
  ["a result without a JSON form", (open) => open.resolve(5n), [expect.any(TypeError)]],
])("a cancelled call is answered with -32800 when it ends with %s, reported if not the abort", async (...given) => {
  const [, end, reported] = given;
  const raw = waiting();
  raw.feed(request(1, "stay"));
  raw.feed(cancel(1));
  const { signal } = raw.contexts[0]!;
  expect(signal.reason).toBeInstanceOf(Error);
  expect(signal).toMatchObject({ aborted: true, reason: { name: "AbortError" } });
  end(raw.open, signal.reason);
  await turn();
  expect(raw.messages()).toEqual([failure(1, ...CANCELLED)]);
  expectEmpty(raw.peer);
  expect(raw.errors).toHaveLength(reported.length);
  if (reported[0] !== undefined && given[0] !== "an exotic object") expect(raw.errors).toEqual(reported);
});

describe("a cancel", () => {
  it("reaches a call when another call of its id has ended", async () => {
    const raw = waiting({ methods: { soon: () => turn() } });
    for (const message of [request(1, "stay"), cancel(9), request(2, "soon"), request(2, "stay")]) raw.feed(message);
    while (raw.sent.length === 0) await turn();
    raw.feed(cancel(2));
    expect(raw.contexts.map(({ signal }) => signal.aborted)).toEqual([false, true]);
    raw.open.resolve("done");
    await turn();
  });

  it("also reaches the handler that an application registered for it, and no `notification` event", async () => {
    const seen: unknown[] = [];
    const raw = waiting({ methods: { "$/cancelRequest": (params) => void seen.push(params) } });
    const bare = waiting({ fallback: () => void seen.push("fallback") });
    bare.peer.on("notification", () => seen.push("event"));
    for (const one of [raw, bare])
      expect(await answersTo(one, request(1, "wait"), cancel(1))).toEqual([failure(1, ...CANCELLED)]);
    expect(seen).toEqual([{ id: 1 }]);
  });

  it("is applied while a schema checks the params, and the handler starts with an aborted signal", async () => {
    const checked = gate();
    const schema = { "~standard": { validate: async (value: unknown) => (await checked.promise, { value }) } };
    const raw = waiting({ schemas: { wait: schema, stay: schema } });
    raw.feed(request(1, "stay"));
    for (let i = 0; i < 2; i++) raw.feed(cancel(1));
    checked.resolve();
    await turn();
    expect(raw.contexts[0]!.signal.aborted).toBe(true);
    raw.open.resolve("ran");
    await turn();
    expect(raw.messages()).toEqual([result(1, "ran")]);
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

  it("allocates an error only when a handler first reads `signal`, one for all calls of that id", () => {
    const errors = vi.spyOn(globalThis, "DOMException").mock.calls;
    const raw = waiting();
    for (let i = 0; i < 100; i++) raw.feed(request(i, "stay"));
    for (let i = 0; i < 1000; i++) raw.feed(cancel(-1 - i));
    expect(raw.contexts.some(({ signal }) => signal.aborted)).toBe(false);
    const same = waiting();
    for (let i = 0; i < 3; i++) same.feed(request("same", "stay"));
    same.feed(cancel("same"));
    expect(errors.length).toBe(0);
    const reasons = same.contexts.map(({ signal }) => signal.reason as unknown);
    expect([errors.length, new Set(reasons).size]).toEqual([1, 1]);
    for (const { open } of [raw, same]) open.resolve(null);
  });
});
