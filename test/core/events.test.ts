import { describe, expect, it, vi } from "vitest";
import { notification, rawPeer, request, result } from "../support/raw.js";
import { connectedPair } from "../support/pair.js";
import { uncaughtIn } from "../support/uncaught.js";
import { pair } from "../../src/index.js";

function thrower(error: Error): () => never {
  return () => {
    throw error;
  };
}

describe("the `notification` event", () => {
  it("tells what nobody handles, with its params, and nothing that somebody does", () => {
    const raw = rawPeer({ methods: { known: () => {} } });
    const got: unknown[] = [];
    raw.peer.on("notification", (method, params) => got.push([method, params]));
    raw.feed(notification("unknown", { a: 0 }));
    raw.feed(notification("known"));
    raw.feed([notification("bare"), notification("rpc.reserved", [1])]);
    expect(got).toEqual([
      ["unknown", { a: 0 }],
      ["bare", undefined],
      ["rpc.reserved", [1]],
    ]);
    expect(raw.sent).toEqual([]);
  });

  it("is not for requests", () => {
    const raw = rawPeer();
    const got: unknown[] = [];
    raw.peer.on("notification", (method) => got.push(method));
    raw.feed(request(1, "unknown"));
    expect(got).toEqual([]);
  });
});

describe("the `close` event", () => {
  it("is emitted once, after every call is settled, with how it ended", async () => {
    const raw = rawPeer();
    const told: unknown[] = [];
    raw.peer.on("close", (info) => told.push(info, raw.peer.state));
    const error = new Error("reset");
    raw.cut({ code: 1006, reason: "", error });
    raw.cut();
    await raw.peer.close();
    expect(told).toEqual([{ code: 1006, reason: "", error }, "closed"]);
  });
});

describe("a listener that throws", () => {
  it.each<[string, (raw: ReturnType<typeof rawPeer>) => void]>([
    ["notification", (raw) => raw.feed(notification("m"))],
    ["close", (raw) => raw.cut()],
  ])("for `%s` is reported to `error` and breaks nothing", (event, cause) => {
    const bug = new Error("bug in a listener");
    const raw = rawPeer();
    raw.peer.on(event as "close", thrower(bug));
    cause(raw);
    expect(raw.errors).toEqual([bug]);
  });

  it("for `close` keeps `closed` from nothing", async () => {
    const raw = rawPeer();
    raw.peer.on("close", thrower(new Error("bug in a listener")));
    raw.cut();
    expect(await raw.peer.closed).toMatchObject({ code: 1006 });
  });

  it("for `error` surfaces as an uncaught exception, after the message it was about is dealt with", async () => {
    const bug = new Error("bug in the error listener");
    const raw = rawPeer({ methods: { bad: thrower(new Error("handler")), good: () => 1 } });
    raw.peer.on("error", thrower(bug));
    const caught = await uncaughtIn(() => {
      raw.feed(request(1, "bad"));
      raw.feed(request(2, "good"));
    });
    expect(caught).toEqual([bug]);
    expect(raw.messages()).toMatchObject([{ id: 1, error: { code: -32603 } }, result(2, 1)]);
  });
});

describe("a peer without listeners", () => {
  it("neither throws nor logs, whatever happens", async () => {
    const written = [vi.spyOn(process.stdout, "write"), vi.spyOn(process.stderr, "write")];
    const caught = await uncaughtIn(async () => {
      const [a, b] = pair({ methods: { bad: thrower(new Error("handler")) } }, {});
      a.notify("nobody");
      b.notify("bad");
      await b.request("bad").catch(() => {});
      await a.close();
      await b.closed;
    });
    const output = written.map(({ mock }) => mock.calls.length);
    vi.restoreAllMocks();
    expect(caught).toEqual([]);
    expect(output).toEqual([0, 0]);
  });
});

describe("an error with id null", () => {
  it("that refuses nothing known goes to `error`", () => {
    const raw = rawPeer();
    raw.feed({ jsonrpc: "2.0", id: null, error: { code: -32700, message: "Parse error", data: 0 } });
    expect(raw.errors).toEqual([expect.objectContaining({ name: "RpcError", code: -32700, data: 0 })]);
    expect(raw.sent).toEqual([]);
  });
});

describe("peer.id and peer.data", () => {
  it("are each peer's own, and the id stays", async () => {
    await using joined = connectedPair();
    const { a, b } = joined;
    expect(a.id).toBe(a.id);
    expect(a.id).not.toBe(b.id);
    expect(a.id.length).toBeGreaterThanOrEqual(21);
    a.data = { user: "u" };
    expect(b.data).toBeUndefined();
  });
});
