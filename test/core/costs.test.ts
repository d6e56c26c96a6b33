/** Objects that a plain call and an idle peer must not allocate. */
import { afterEach, describe, expect, it, vi } from "vitest";
import type * as standard from "../../src/node.js";
import type { Receiver } from "../../src/index.js";
import { countMade } from "../support/counting.js";
import { notification, request } from "../support/raw.js";
import { turn } from "../support/turns.js";

/** Loads all modules anew, so that they use the globals that a test has replaced. */
async function load(): Promise<typeof standard> {
  vi.resetModules();
  return import("../../src/node.js");
}

afterEach(() => void vi.unstubAllGlobals());

const METHODS = {
  plain: () => 1,
  slow: async () => turn(),
  never: () => new Promise<never>(() => {}),
  signalled: (_params: unknown, context: { signal: unknown }) => context.signal === context.signal,
};

describe("a plain call", () => {
  it("makes no AbortController, unless its handler reads `signal`, and then one", async () => {
    const controllers = countMade("AbortController");
    const { pair } = await load();
    const [a, b] = pair<any, any>({ methods: METHODS }, {});
    await b.request("plain");
    await b.request("slow");
    b.notify("plain");
    await b.request("plain", {}, { timeoutMs: 1000 });
    expect(controllers.count).toBe(0);
    expect(await b.request("signalled")).toBe(true);
    expect(controllers.count).toBe(1);
    await a.close();
  });

  it("adds nothing to a Map or a Set, whose tables would be reallocated all the time", async () => {
    let added = 0;
    vi.stubGlobal(
      "Map",
      class<K, V> extends Map<K, V> {
        override set(key: K, value: V): this {
          added++;
          return super.set(key, value);
        }
      },
    );
    vi.stubGlobal(
      "Set",
      class<T> extends Set<T> {
        override add(value: T): this {
          added++;
          return super.add(value);
        }
      },
    );
    const { pair } = await load();
    const [a, b] = pair<any, any>({ methods: METHODS }, {});
    await b.request("plain");
    added = 0;
    a.notify("plain");
    b.notify("slow");
    await Promise.all([b.request("plain"), b.request("slow")]);
    expect(added).toBe(0);
    // The first call with its own timeout opens a queue, so this count would see a Map.
    await b.request("plain", undefined, { timeoutMs: 12_345 });
    expect(added).toBeGreaterThan(0);
    await a.close();
  });
});

describe("a message that the other side can repeat without end", () => {
  it.each<[string, object, number, number]>([
    ["an error with id null", { jsonrpc: "2.0", id: null, error: { code: 1, message: "no" } }, 0, 1],
    ["a request of an unknown method", request(1, "unknown"), 1, 0],
    ["a request of an unknown stream", request(1, "$/enumerator/next", { token: 1 }), 1, 0],
    ["a request beyond `maxInFlight`", request(1, "never"), 1, 0],
    ["a notification beyond `maxInFlight`", notification("never"), 0, 1],
  ])(
    "creates no error, whose stack takes microseconds, without a listener: %s",
    async (_what, message, replies, reports) => {
      const made = countMade("Error");
      const { Peer } = await load();
      let receiver!: Receiver;
      const sent: string[] = [];
      const peer = new Peer(
        { start: (given) => (receiver = given), send: (text) => sent.push(text) > 0, close() {} },
        { methods: METHODS, limits: { maxInFlight: 1 } },
      );
      receiver.dispatch(request(0, "never"));
      receiver.dispatch(notification("never"));
      made.count = 0;
      receiver.dispatch(message);
      expect([made.count, sent.length]).toEqual([0, replies]);
      const errors: unknown[] = [];
      peer.on("error", (error) => errors.push(error));
      receiver.dispatch(message);
      expect([made.count, errors.length]).toEqual([reports, reports]);
    },
  );

  it("is reported when the peer has a listener", async () => {
    const { pair } = await load();
    const [a, b] = pair<any, any>({ methods: METHODS, limits: { maxInFlight: 1 } }, {});
    const errors: unknown[] = [];
    a.on("error", (error) => errors.push(error));
    for (let i = 0; i < 2; i++) b.notify("never");
    await turn();
    expect(errors).toMatchObject([{ code: -32009, message: "Server is busy" }]);
    await a.close();
  });
});
