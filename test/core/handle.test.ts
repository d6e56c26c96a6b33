import { describe, expect, it } from "vitest";
import { connectedPair } from "../support/pair.js";
import { notification, rawPeer } from "../support/raw.js";
import { rejection } from "../support/turns.js";

const NOT_FOUND = { code: -32601, message: "Method not found", data: undefined };

describe("methods", () => {
  it("are called without `this`", async () => {
    await using pair = connectedPair({
      methods: {
        self(this: unknown) {
          return this === undefined;
        },
      },
    });
    expect(await pair.b.request("self")).toBe(true);
  });

  it("may come from an object without prototype, and an undefined one is left out", async () => {
    const methods = Object.assign(Object.create(null), { a: () => 1, b: undefined });
    await using pair = connectedPair({ methods });
    expect(await pair.b.request("a")).toBe(1);
    expect(await rejection(pair.b.request("b"))).toMatchObject(NOT_FOUND);
  });

  it("are read once, so that later changes of the object have no effect", async () => {
    const methods: Record<string, () => unknown> = { a: () => 1 };
    await using pair = connectedPair({ methods });
    methods["a"] = () => 2;
    methods["b"] = () => 3;
    expect(await pair.b.request("a")).toBe(1);
    expect(await rejection(pair.b.request("b"))).toMatchObject(NOT_FOUND);
  });
});

describe("peer.handle", () => {
  it("overrides `methods` until it is removed", async () => {
    await using pair = connectedPair({ methods: { m: () => "first" } });
    const undo = pair.a.handle("m", () => "over");
    expect(await pair.b.request("m")).toBe("over");
    undo();
    expect(await pair.b.request("m")).toBe("first");
  });

  it("serves this peer alone", async () => {
    const options = { methods: { m: () => "shared" } };
    await using one = connectedPair(options);
    await using two = connectedPair(options);
    one.a.handle("m", () => "mine");
    expect(await one.b.request("m")).toBe("mine");
    expect(await two.b.request("m")).toBe("shared");
  });

  it("throws for a second handler of the same name, and never removes a newer handler", async () => {
    await using pair = connectedPair();
    const undo = pair.a.handle("m", () => 1);
    expect(() => pair.a.handle("m", () => 2)).toThrow("`m` has a handler already");
    undo();
    pair.a.handle("m", () => 3);
    undo();
    expect(await pair.b.request("m")).toBe(3);
  });

  it("may register a reserved name, and the name of an Object member", async () => {
    await using pair = connectedPair();
    pair.a.handle("rpc.discover", () => "mine");
    pair.a.handle("__proto__", () => "too");
    expect(await pair.b.request("rpc.discover")).toBe("mine");
    expect(await pair.b.request("__proto__")).toBe("too");
  });

  it.each([undefined, null, 1, "f", {}])("refuses %s as a handler", (handler) => {
    const { peer } = rawPeer();
    expect(() => peer.handle("m", handler as never)).toThrow(/^Expected `handler` to be a function, got /);
  });

  it.each([undefined, null, 1, {}])("refuses %s as a name", (method) => {
    const { peer } = rawPeer();
    expect(() => peer.handle(method as never, () => 1)).toThrow(/^Expected `method` to be a string, got /);
  });
});

describe("fallback", () => {
  it("serves every method without a handler, and receives its name", async () => {
    await using pair = connectedPair({
      methods: { known: () => "known" },
      fallback: (params, { method, id }) => ({ params, method, id }),
    });
    expect(await pair.b.request("other", [1])).toEqual({ params: [1], method: "other", id: 1 });
    expect(await pair.b.request("constructor")).toEqual({ method: "constructor", id: 2 });
    expect(await pair.b.request("known")).toBe("known");
  });

  it("receives notifications too, which then are not emitted", async () => {
    const got: unknown[] = [];
    const raw = rawPeer({ fallback: (params, { method, id }) => void got.push(method, params, id) });
    raw.peer.on("notification", (method) => got.push(`emitted ${method}`));
    raw.feed(notification("said", [1]));
    expect(got).toEqual(["said", [1], undefined]);
    expect(raw.sent).toEqual([]);
  });

  it("never serves the reserved rpc.*", async () => {
    await using pair = connectedPair({ fallback: () => "caught" });
    for (const method of ["rpc.", "rpc.discover"]) {
      expect(await rejection(pair.b.request(method))).toMatchObject(NOT_FOUND);
    }
    expect(await pair.b.request("rpc")).toBe("caught");
    expect(await pair.b.request("RPC.x")).toBe("caught");
  });
});
