import { describe, expect, it } from "vitest";
import { cutReason } from "../../src/close-codes.js";
import { pair } from "../../src/index.js";
import { connectedPair } from "../support/pair.js";
import { rawPeer } from "../support/raw.js";
import { Outcomes, rejection, turn } from "../support/turns.js";

describe("close()", () => {
  it("reports code and reason on both sides", async () => {
    await using joined = connectedPair();
    await joined.a.close(4321, "mine");
    expect(await joined.a.closed).toMatchObject({ code: 4321, reason: "mine" });
    expect(await joined.b.closed).toMatchObject({ code: 4321, reason: "mine" });
  });

  it("is idempotent, and every call resolves when the connection has ended", async () => {
    const raw = rawPeer({}, { endsOnClose: false });
    const outcomes = new Outcomes()
      .watch("first", raw.peer.close(3000, "one"))
      .watch("second", raw.peer.close(3001, "two"));
    await turn();
    expect(outcomes.list).toEqual([]);
    raw.cut({ code: 3000 });
    await turn();
    expect(outcomes.names).toEqual(["first", "second"]);
    await raw.peer.close();
    expect(raw.closes).toEqual([[3000, "one"]]);
  });

  it("does nothing after the other side closed the connection", async () => {
    const raw = rawPeer();
    raw.cut({ code: 1001 });
    await raw.peer.close(4000);
    expect(raw.closes).toEqual([]);
    expect(await raw.peer.closed).toMatchObject({ code: 1001 });
  });

  it("may be called and awaited inside a handler", async () => {
    await using joined = connectedPair({ methods: { bye: (_params, { peer }) => peer.close(4001, "asked to") } });
    expect(await rejection(joined.b.request("bye"))).toMatchObject({ outcome: "unknown" });
    expect(await joined.b.closed).toMatchObject({ code: 4001 });
  });

  it("may be called inside a `close` listener", async () => {
    const raw = rawPeer();
    const outcomes = new Outcomes();
    raw.peer.on("close", () => outcomes.watch("inner", raw.peer.close()));
    await raw.peer.close();
    await turn();
    expect(outcomes.names).toEqual(["inner"]);
  });

  it("sends all earlier messages first, in order", async () => {
    const got: string[] = [];
    await using joined = connectedPair({}, { fallback: (_params, { method }) => void got.push(method) });
    joined.a.notify("one");
    joined.a.notify("two");
    await joined.a.close();
    expect(got).toEqual(["one", "two"]);
  });

  it.each([999, 1001, 1005, 1006, 1015, 2999, 5000, 3000.5, -1, NaN, Infinity, "1000", null])(
    "rejects for the code %s and keeps the connection open",
    async (code) => {
      const raw = rawPeer();
      const error = await rejection(raw.peer.close(code as number));
      expect(error).toBeInstanceOf(TypeError);
      expect(error.message).toMatch(/^Expected `code` to be 1000 or from 3000 to 4999, got /);
      expect(raw.peer.state).toBe("open");
      expect(raw.closes).toEqual([]);
    },
  );

  it("rejects for a reason that is not a string, and keeps the connection open", async () => {
    const raw = rawPeer();
    expect(await rejection(raw.peer.close(1000, null as never))).toBeInstanceOf(TypeError);
    expect(raw.peer.state).toBe("open");
  });

  it.each([1000, 3000, 4999])("accepts the code %i", async (code) => {
    const raw = rawPeer();
    await raw.peer.close(code);
    expect(raw.closes).toEqual([[code, ""]]);
  });
});

describe("the reason", () => {
  const euro = "€";
  const smile = "😀";
  it.each([
    ["short", "short", "short"],
    ["exactly 123 bytes", "x".repeat(123), "x".repeat(123)],
    ["one byte more", "x".repeat(124), "x".repeat(123)],
    ["exactly 41 characters of 3 bytes", euro.repeat(41), euro.repeat(41)],
    ["a character across the end", `xx${euro.repeat(41)}`, `xx${euro.repeat(40)}`],
    ["a surrogate pair across the end", smile.repeat(31), smile.repeat(30)],
    ["two bytes across the end", "é".repeat(62), "é".repeat(61)],
  ])("of %s is truncated to 123 bytes of UTF-8, between characters", async (_name, reason, cut) => {
    const raw = rawPeer();
    await raw.peer.close(1000, reason);
    expect(raw.closes).toEqual([[1000, cut]]);
    expect(Buffer.byteLength(cutReason(reason))).toBeLessThanOrEqual(123);
    expect(cutReason(reason)).not.toContain("\ufffd");
  });
});

describe("closed", () => {
  it("resolves, and never rejects, whether it is read before or after the close", async () => {
    const raw = rawPeer();
    const before = raw.peer.closed;
    raw.cut({ code: 1006, error: new Error("reset") });
    expect(await before).toMatchObject({ code: 1006, error: { message: "reset" } });
    expect(raw.peer.closed).toBe(before);
    const late = rawPeer();
    late.cut({ code: 1001 });
    expect(await late.peer.closed).toMatchObject({ code: 1001 });
  });
});

describe("await using", () => {
  it("closes the peer", async () => {
    const [a, b] = pair({}, {});
    {
      await using peer = a;
      expect(peer.state).toBe("open");
    }
    expect(a.state).toBe("closed");
    expect(await b.closed).toMatchObject({ code: 1000 });
  });
});

describe("a close that this side makes for a reason of its own", () => {
  const limits = { maxMalformedPerMinute: 1 };
  const why = "more than 1 malformed messages in a minute";

  /** A peer that has sent a close with 1008. Its transport has not reported the end. */
  function closing(): ReturnType<typeof rawPeer> {
    const raw = rawPeer({ limits }, { endsOnClose: false });
    raw.feed("[");
    raw.feed("[");
    expect(raw.closes).toEqual([[1008, why]]);
    return raw;
  }

  it.each([
    ["never answers", { code: 1006, reason: "" }],
    ["answers without a code", { code: 1005, reason: "" }],
    ["answers with another code", { code: 1000, reason: "bye" }],
  ])("is reported with its code and reason if the other side %s", async (_what, info) => {
    const raw = closing();
    const closes: unknown[] = [];
    raw.peer.on("close", (one) => closes.push(one));
    raw.cut(info);
    expect(closes).toEqual([{ code: 1008, reason: why }]);
    expect(await raw.peer.closed).toEqual({ code: 1008, reason: why });
  });

  it("keeps the error that destroyed the socket", async () => {
    const raw = closing();
    const error = new Error("reset");
    raw.cut({ error });
    expect(await raw.peer.closed).toEqual({ code: 1008, reason: why, error });
  });

  it("is reported even if the application closes the peer meanwhile", async () => {
    const raw = closing();
    void raw.peer.close(4000, "mine");
    raw.cut();
    expect(await raw.peer.closed).toMatchObject({ code: 1008 });
  });
});

describe("a close by the application that the other side never answers", () => {
  it("is reported with 1006, as a lost connection", async () => {
    const raw = rawPeer({}, { endsOnClose: false });
    void raw.peer.close(4000, "mine");
    raw.cut();
    expect(await raw.peer.closed).toEqual({ code: 1006, reason: "" });
  });
});
