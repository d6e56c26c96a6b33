/** Objects that a plain call and an idle peer must not allocate. */
import { afterEach, describe, expect, it, vi } from "vitest";
import { Connection } from "../../src/core/connection.js";
import { shareTimer } from "../../src/core/shared-timer.js";
import { RpcError } from "../../src/index.js";
import { countMade } from "../support/counting.js";
import { connectedPair } from "../support/pair.js";
import { notification, rawPeer, request } from "../support/raw.js";
import { turn } from "../support/turns.js";

shareTimer();

afterEach(() => {
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
});

describe("a plain call", () => {
  it("makes no AbortController, unless its handler reads `signal`, and then one", async () => {
    const controllers = countMade("AbortController");
    await using both = connectedPair({
      methods: {
        plain: () => 1,
        slow: async () => turn(),
        signalled: (_params, context) => context.signal === context.signal,
      },
    });
    await both.b.request("plain");
    await both.b.request("slow");
    both.b.notify("plain");
    await both.b.request("plain", {}, { timeoutMs: 1000 });
    expect(controllers.count).toBe(0);
    expect(await both.b.request("signalled")).toBe(true);
    expect(controllers.count).toBe(1);
  });

  it("uses no Map and no Set, whose tables would be reallocated all the time", async () => {
    await using both = connectedPair({ methods: { plain: () => 1, slow: async () => turn() } });
    await both.b.request("plain");
    const spies = [vi.spyOn(Map.prototype, "set"), vi.spyOn(Set.prototype, "add")];
    both.a.notify("plain");
    both.b.notify("slow");
    await Promise.all([both.b.request("plain"), both.b.request("slow")]);
    for (const spy of spies) expect(spy).not.toHaveBeenCalled();
    await both.b.request("plain", undefined, { timeoutMs: 12_345 });
    // The first call with its own timeout opens a queue, so this check would see a Map.
    expect(spies[0]).toHaveBeenCalled();
  });

  it("makes no extensions", async () => {
    const made = vi.spyOn(Connection.prototype, "extensions", "get");
    await using both = connectedPair({ methods: { plain: () => 1, slow: async () => turn() } });
    await both.b.request("plain");
    await both.b.request("slow", undefined, { timeoutMs: 12_345 });
    expect(made).not.toHaveBeenCalled();
    await both.b.request("plain", {}, { onProgress: () => {} });
    expect(made).toHaveBeenCalled();
  });
});

/** Counts the errors of `RpcError` that `act` makes: each records its stack, which takes several microseconds. */
function errorsOf(act: () => void): number {
  let made = 0;
  const Base = class extends Error {
    constructor(message?: string, options?: ErrorOptions) {
      super(message, options);
      made++;
    }
  };
  Object.setPrototypeOf(RpcError, Base);
  try {
    act();
  } finally {
    Object.setPrototypeOf(RpcError, Error);
  }
  return made;
}

describe("a message that the other side can repeat without end", () => {
  const methods = { never: () => new Promise<never>(() => {}) };

  it.each<[string, object, number]>([
    ["an error with id null", { jsonrpc: "2.0", id: null, error: { code: 1, message: "" } }, 0],
    ["a request of an unknown method", request(1, "unknown"), 1],
    ["a request of an unknown stream", request(1, "$/enumerator/next", { token: 1 }), 1],
    ["a request beyond `maxInFlight`", request(1, "never"), 1],
    ["a notification beyond `maxInFlight`", notification("never"), 0],
  ])("creates no error without a listener: %s", (_what, message, replies) => {
    const { peer, feed, sent } = rawPeer({ methods, limits: { maxInFlight: 1 } });
    peer.removeAllListeners("error");
    feed(request(0, "never"));
    feed(notification("never"));
    expect(errorsOf(() => feed(message))).toBe(0);
    expect(sent).toHaveLength(replies);
  });

  it("is reported when the peer has a listener", () => {
    const { errors, feed } = rawPeer({ methods, limits: { maxInFlight: 1 } });
    feed({ jsonrpc: "2.0", id: null, error: { code: 1, message: "no" } });
    feed(notification("never"));
    feed(notification("never"));
    expect(errors).toEqual([new RpcError(1, "no"), new RpcError(-32009, "Server is busy")]);
  });
});
