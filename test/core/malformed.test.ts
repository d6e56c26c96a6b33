import { describe, expect, it } from "vitest";
import { inspect } from "../../src/peer/peer.js";
import { pass, useFakeClock } from "../support/clock.js";
import { failure, rawPeer, request, result } from "../support/raw.js";
import { rejection } from "../support/turns.js";

useFakeClock();

describe("malformed messages", () => {
  it("are counted from zero after a minute", async () => {
    await pass(60_001);
    const raw = rawPeer({ limits: { maxMalformedPerMinute: 2 } });
    raw.feed("{");
    raw.feed("{");
    await pass(60_001);
    raw.feed("{");
    raw.feed("{");
    expect(raw.peer.state).toBe("open");
    await pass(59_000);
    raw.feed("{");
    expect(raw.peer.state).toBe("closed");
  });

  it("count one by one in a batch", () => {
    const raw = rawPeer({ limits: { maxMalformedPerMinute: 3 } });
    raw.feed([1, {}]);
    raw.feed([]);
    expect(inspect(raw.peer).malformed).toBe(3);
    expect(raw.sent).toHaveLength(2);
    raw.feed([[]]);
    expect(raw.closes.map(([code]) => code)).toEqual([1008]);
    expect(raw.sent).toHaveLength(2);
  });
});

describe("a message with an id and without method, result and error", () => {
  const REFUSED = failure(null, -32600, "Invalid Request");

  it("rejects the pending call of a batch, and the calls that the same array leaves out", async () => {
    const raw = rawPeer();
    const batch = raw.peer.batch();
    const calls = [rejection(batch.request("a")), rejection(batch.request("b"))];
    batch.send();
    raw.feed([{ jsonrpc: "2.0", id: 1 }]);
    for (const error of await Promise.all(calls)) expect(error).toMatchObject({ code: "PROTOCOL" });
    expect(raw.sent).toHaveLength(1);
  });

  it("is refused in its place in a batch, and counts as an entry", () => {
    const raw = rawPeer({ methods: { m: () => 1 }, limits: { maxBatchEntries: 2 } });
    raw.feed([{ jsonrpc: "2.0", id: 7 }, request(1, "m")]);
    expect(raw.messages()).toEqual([[REFUSED, result(1, 1)]]);
    raw.feed([{ jsonrpc: "2.0", id: 7 }, { jsonrpc: "2.0", id: 8 }, request(1, "m")]);
    expect(raw.messages()[1]).toMatchObject({ id: null, error: { code: -32010 } });
  });

  it("closes the connection with 1008 when too many come", () => {
    const raw = rawPeer({ limits: { maxMalformedPerMinute: 3 } });
    for (let id = 1; id < 5; id++) raw.feed({ jsonrpc: "2.0", id });
    expect(raw.closes).toEqual([[1008, "more than 3 malformed messages in a minute"]]);
    expect(raw.sent).toHaveLength(3);
  });
});
