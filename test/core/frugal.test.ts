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

  it("goes into no Map and no Set, whose tables would be made anew all the time", async () => {
    await using both = connectedPair({ methods: { plain: () => 1, slow: async () => turn() } });
    await both.b.request("plain");
    const spies = [vi.spyOn(Map.prototype, "set"), vi.spyOn(Set.prototype, "add")];
    both.a.notify("plain");
    both.b.notify("slow");
    await Promise.all([both.b.request("plain"), both.b.request("slow")]);
    for (const spy of spies) expect(spy).not.toHaveBeenCalled();
    await both.b.request("plain", undefined, { timeoutMs: 12_345 });
    // The first call with a time of its own opens a queue: so this would see it.
    expect(spies[0]).toHaveBeenCalled();
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
