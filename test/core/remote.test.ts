/* oxlint-disable unicorn/no-thenable -- what has a `then` is what some of these tests are about */
import { inspect as print } from "node:util";
import { describe, expect, it } from "vitest";
import { connectedPair } from "../support/pair.js";
import { rawPeer } from "../support/raw.js";
import { rejection } from "../support/turns.js";

describe("peer.remote", () => {
  it("calls a method as a function, with params and options", async () => {
    await using pair = connectedPair({
      methods: { add: ([a, b]) => a + b, "room/join": () => "in", toJSONs: () => 1 },
    });
    const { remote } = pair.b;
    expect(await remote.add([1, 2])).toBe(3);
    expect(await remote["room/join"]()).toBe("in");
    expect(await rejection(remote.add([1, 2], { signal: AbortSignal.abort("no") }))).toBe("no");
  });

  it("is the same object each time", () => {
    const { peer } = rawPeer();
    expect(peer.remote).toBe(peer.remote);
  });

  it.each(["then", "toString", "valueOf", Symbol.iterator, Symbol.toPrimitive, Symbol.toStringTag])(
    "has no %s",
    (member) => {
      const { peer, sent } = rawPeer();
      expect((peer.remote as Record<PropertyKey, unknown>)[member]).toBeUndefined();
      expect(sent).toEqual([]);
    },
  );

  it("can be awaited, encoded and printed without calling anything", async () => {
    const { peer, sent } = rawPeer();
    expect(await peer.remote).toBe(peer.remote);
    expect(JSON.stringify({ remote: peer.remote })).toBe('{"remote":"remote"}');
    expect(print(peer.remote)).toBe("{}");
    expect({ ...peer.remote }).toEqual({});
    expect(() => `${peer.remote}`).toThrow(TypeError);
    expect(sent).toEqual([]);
  });

  it("reaches methods named like members of Object", async () => {
    await using pair = connectedPair({ methods: { constructor: () => "mine", hasOwnProperty: () => "too" } });
    const { remote } = pair.b;
    expect([await remote.constructor(), await remote.hasOwnProperty()]).toEqual(["mine", "too"]);
  });

  it("cannot be assigned to", () => {
    const { peer } = rawPeer();
    const remote = peer.remote as Record<string, unknown>;
    expect(() => (remote["add"] = 1)).toThrow(TypeError);
    expect(() => delete remote["add"]).not.toThrow();
    expect(typeof remote["add"]).toBe("function");
  });
});
