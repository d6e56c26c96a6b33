/** Received messages that are refused or counted: malformed ones, too many, and those of another protocol. */
import { describe, expect, it } from "vitest";
import type { AnyOptions } from "../support/pair.js";
import { failure, notification, rawPeer, request, result, type RawPeer } from "../support/raw.js";
import { pass, useVirtualClock } from "../support/time.js";
import { turn } from "../support/turns.js";

useVirtualClock();

const REFUSED = failure(null, -32600, "Invalid Request");

describe("malformed messages", () => {
  it("are counted from zero after a minute", async () => {
    await pass(60_001);
    const raw = rawPeer({ limits: { maxMalformedPerMinute: 2 } });
    for (let i = 0; i < 2; i++) raw.feed("{");
    await pass(60_001);
    for (let i = 0; i < 2; i++) raw.feed("{");
    expect(raw.peer.state).toBe("open");
    await pass(59_000);
    raw.feed("{");
    expect(raw.closes).toEqual([[1008, "more than 2 malformed messages in a minute"]]);
  });

  it("count one by one in a batch", () => {
    const raw = rawPeer({ limits: { maxMalformedPerMinute: 3 } });
    raw.feed([1, {}]);
    raw.feed([]);
    expect([raw.peer.stats().malformed, raw.sent.length]).toEqual([3, 2]);
    raw.feed([[]]);
    expect(raw.closes.map(([code]) => code)).toEqual([1008]);
    expect(raw.sent).toHaveLength(2);
  });
});

describe("limits.maxMessagesPerSecond", () => {
  const limits = { maxMessagesPerSecond: 5 };

  it("refuses the requests beyond it with -32009, and runs none of them, alone or in a batch", () => {
    let ran = 0;
    const raw = rawPeer({ limits, methods: { m: () => ++ran } });
    raw.feed([1, 2, 3, 4, 5, 6].map((id) => request(id, "m")));
    raw.feed(request(7, "m"));
    expect(ran).toBe(5);
    const refused = [6, 7].map((id) => failure(id, -32009, "Too many messages", { maxMessagesPerSecond: 5 }));
    expect(raw.messages().flat().slice(5)).toEqual(refused);
    expect(raw.peer.stats()).toMatchObject({ requestsReceived: 7, refusedRate: 2 });
  });

  it("drops the notifications beyond it and counts them, and accepts more as time passes, never more than in one second", async () => {
    let ran = 0;
    const raw = rawPeer({ limits, methods: { m: () => void ran++ } });
    const flood = (): void => {
      for (let i = 0; i < 20; i++) raw.feed(notification("m"));
    };
    flood();
    expect(ran).toBe(5);
    await pass(400);
    flood();
    expect(ran).toBe(7);
    await pass(60_000);
    flood();
    expect([ran, raw.sent]).toEqual([12, []]);
    expect(raw.peer.stats()).toMatchObject({ notificationsReceived: 60, refusedRate: 48 });
  });

  it("does not count answers, because they settle this side's own calls", async () => {
    const raw = rawPeer({ limits });
    const calls = Array.from({ length: 20 }, () => raw.peer.request("m"));
    for (let id = 1; id <= 20; id++) raw.feed(result(id, id));
    expect(await Promise.all(calls)).toHaveLength(20);
  });
});

/** Makes a peer that takes messages of another protocol. */
function listening(options: AnyOptions = {}): RawPeer & { foreign: unknown[] } {
  const foreign: unknown[] = [];
  const raw = rawPeer({
    methods: { m: () => 1 },
    onForeignMessage: (message, peer) => void (expect(peer).toBe(raw.peer), foreign.push(message)),
    ...options,
  });
  return { ...raw, foreign };
}

const FOREIGN = [
  { event: "playing", track: 7 },
  {},
  { event: "stopped", id: 7 },
  { id: null },
  { params: { a: 1 } },
  { event: "failed", error: "no such track" },
  { result: 1 },
  { __proto__: null, JSONRPC: "2.0" },
];

/** Messages that are JSON-RPC or resemble it, and the answers to them. */
const OWN: [string, unknown, ...object[]][] = [
  ["a message that names a version", { jsonrpc: "2.0" }, REFUSED],
  ["no version and a method", { method: "m", id: 1 }, failure(1, -32600, "Invalid Request")],
  ["no version, a method and no id", { method: "m" }, REFUSED],
  ["a response without a version", { id: 9, result: 1 }],
  ["an error response without a version", { id: 9, error: { code: 1, message: "no" } }],
  ["a number", 5, REFUSED],
  ["an empty array", [], REFUSED],
  ["the members of a batch, which are refused one by one", [{}, request(1, "m")], [REFUSED, result(1, 1)]],
  ["what is not JSON", "event: playing", failure(null, -32700, "Parse error")],
];

describe("onForeignMessage", () => {
  it.each(FOREIGN.map((message) => [JSON.stringify(message), message]))("receives %s", (text, message) => {
    const raw = listening();
    raw.feed(text);
    expect(raw.foreign).toEqual([message]);
    expect([raw.sent, raw.errors]).toEqual([[], []]);
    expect(raw.peer.stats()).toMatchObject({ malformed: 0, unmatched: 0, notificationsReceived: 0 });
  });

  it.each(OWN)("does not receive %s", (_what, message, ...answers) => {
    const raw = listening();
    raw.feed(message);
    expect(raw.foreign).toEqual([]);
    expect(raw.messages()).toEqual(answers);
  });

  it("receives a message with the id of a pending call, and does not settle the call", async () => {
    const raw = listening();
    const call = raw.peer.request("ask");
    raw.feed({ event: "playing", id: 1 });
    raw.feed(result(1, "answer"));
    expect(await call).toBe("answer");
    expect(raw.foreign).toEqual([{ event: "playing", id: 1 }]);
  });

  it('receives messages of no version with compat "1.0", and none of its calls and responses', async () => {
    const raw = listening({ compat: "1.0" });
    const call = raw.peer.request("ask");
    raw.feed({ event: "playing" });
    raw.feed({ id: 2, method: "m", params: [] });
    raw.feed({ id: null, method: "m", params: [] });
    raw.feed({ id: 1, result: 3, error: null });
    expect(await call).toBe(3);
    expect(raw.foreign).toEqual([{ event: "playing" }]);
    expect(raw.messages().slice(1)).toEqual([{ id: 2, result: 1, error: null }]);
  });

  it("is limited by maxMessagesPerSecond", () => {
    const raw = listening({ limits: { maxMessagesPerSecond: 3 } });
    raw.feed(notification("m"));
    for (let i = 0; i < 5; i++) raw.feed({ event: i });
    expect([raw.foreign, raw.sent]).toEqual([[{ event: 0 }, { event: 1 }], []]);
    expect(raw.peer.stats()).toMatchObject({ refusedRate: 3, malformed: 0 });
  });

  it("that throws or rejects is reported to `error`, and the connection stays open", async () => {
    const raw = listening({ onForeignMessage: ({ text }: any) => (text ? text.bug() : Promise.reject(new Error())) });
    for (const text of ["", "thrown"]) raw.feed({ text });
    await turn();
    expect([raw.errors, raw.peer.state]).toEqual([[expect.any(TypeError), new Error()], "open"]);
  });

  it("is not called when the connection has ended, nor after it has closed the peer", () => {
    const seen: unknown[] = [];
    const raw = listening({ onForeignMessage: (message, peer) => (seen.push(message), void peer.close()) });
    raw.feed({ event: 1 });
    raw.feed({ event: 2 });
    expect(seen).toEqual([{ event: 1 }]);
  });

  it("when omitted, leaves such a message refused and counted as malformed", () => {
    const raw = rawPeer();
    raw.feed({ event: "playing" });
    expect([raw.messages(), raw.peer.stats().malformed]).toEqual([[REFUSED], 1]);
  });
});
