/** What a plain call and an idle peer must not cost. */
import { afterEach, describe, expect, it, vi } from "vitest";
import { Connection } from "../../src/core/connection.js";
import { connectedPair } from "../support/pair.js";
import { turn } from "../support/turns.js";

afterEach(() => {
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
});

/** Counts how often a class of this runtime is made. */
function countMade(name: "AbortController"): { count: number } {
  const made = { count: 0 };
  const Original = globalThis[name];
  vi.stubGlobal(
    name,
    class extends Original {
      constructor() {
        super();
        made.count++;
      }
    },
  );
  return made;
}

describe("a plain call", () => {
  it("makes no AbortController, unless its handler reads `signal`", async () => {
    const controllers = countMade("AbortController");
    await using both = connectedPair({
      methods: { plain: () => 1, slow: async () => turn(), signalled: (_params, { signal }) => signal.aborted },
    });
    await both.b.request("plain");
    await both.b.request("slow");
    both.b.notify("plain");
    await both.b.request("plain", {}, { timeoutMs: 1000 });
    expect(controllers.count).toBe(0);
    await both.b.request("signalled");
    expect(controllers.count).toBe(1);
  });

  it("makes no features", async () => {
    const made = vi.spyOn(Connection.prototype, "conventions", "get");
    await using both = connectedPair({ methods: { plain: () => 1, slow: async () => turn() } });
    await both.b.request("plain");
    await both.b.request("slow", undefined, { timeoutMs: 5 });
    expect(made).not.toHaveBeenCalled();
    await both.b.request("plain", {}, { onProgress: () => {} });
    expect(made).toHaveBeenCalled();
  });
});
