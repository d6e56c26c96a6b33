/** Messages of another protocol on the same connection: `onForeignMessage`. */
import { describe, expect, it } from "vitest";
import type { AnyPeer } from "../../src/index.js";
import { inspect } from "../../src/peer/peer.js";
import { useFakeClock } from "../support/clock.js";
import type { AnyOptions } from "../support/pair.js";
import { failure, notification, rawPeer, request, result, type RawPeer } from "../support/raw.js";
import { turn } from "../support/turns.js";

function listening(options: AnyOptions = {}): RawPeer & { foreign: unknown[]; peers: AnyPeer[] } {
  const foreign: unknown[] = [];
  const peers: AnyPeer[] = [];
  const raw = rawPeer({
    methods: { m: () => 1 },
    onForeignMessage: (message, peer) => {
      foreign.push(message);
      peers.push(peer);
    },
    ...options,
  });
  return { ...raw, foreign, peers };
}

const FOREIGN = [
  { event: "playing", track: 7 },
  {},
  { notification: "tick", params: [1] },
  { event: "stopped", id: 7 },
  { id: null },
  { params: { a: 1 } },
  { event: "failed", error: "no such track" },
  { result: 1 },
  { __proto__: null, JSONRPC: "2.0" },
];

/** Messages that are JSON-RPC or resemble it, and the answers to them. */
const OWN: [string, unknown, object | undefined][] = [
  ["a message that names a version", { jsonrpc: "2.0" }, failure(null, -32600, "Invalid Request")],
  ["another version", { jsonrpc: "3.0", event: "x" }, failure(null, -32600, "Invalid Request")],
  ["no version and a method", { method: "m", id: 1 }, failure(1, -32600, "Invalid Request")],
  ["no version, a method and no id", { method: "m" }, failure(null, -32600, "Invalid Request")],
  ["a response without a version", { id: 9, result: 1 }, undefined],
  ["an error response without a version", { id: 9, error: { code: 1, message: "no" } }, undefined],
  ["an id alone", { jsonrpc: "2.0", id: 9 }, failure(null, -32600, "Invalid Request")],
  ["a number", 5, failure(null, -32600, "Invalid Request")],
  ["a string", '"event"', failure(null, -32600, "Invalid Request")],
  ["null", "null", failure(null, -32600, "Invalid Request")],
  ["an empty array", [], failure(null, -32600, "Invalid Request")],
  ["what is not JSON", "event: playing", failure(null, -32700, "Parse error")],
];

function raise(): never {
  throw new Error("bug");
}

useFakeClock();

describe("onForeignMessage", () => {
  it.each(FOREIGN.map((message) => [JSON.stringify(message), message]))("receives %s", (text, message) => {
    const raw = listening();
    raw.feed(text);
    expect(raw.foreign).toEqual([message]);
    expect(raw.peers).toEqual([raw.peer]);
    expect(raw.sent).toEqual([]);
    expect(raw.errors).toEqual([]);
    expect(raw.peer.stats()).toMatchObject({ malformed: 0, unmatched: 0, notificationsReceived: 0 });
  });

  it.each(OWN)("does not receive %s", (_what, message, answer) => {
    const raw = listening();
    raw.feed(message);
    expect(raw.foreign).toEqual([]);
    expect(raw.messages()).toEqual(answer === undefined ? [] : [answer]);
  });

  it("does not receive the members of a batch, which are refused one by one", () => {
    const raw = listening();
    raw.feed([{ event: "playing" }, request(1, "m")]);
    expect(raw.foreign).toEqual([]);
    expect(raw.messages()).toEqual([[failure(null, -32600, "Invalid Request"), result(1, 1)]]);
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
    expect(raw.foreign).toEqual([{ event: 0 }, { event: 1 }]);
    expect(raw.peer.stats()).toMatchObject({ refusedRate: 3, malformed: 0 });
    expect(raw.sent).toEqual([]);
  });

  it.each<[string, () => unknown]>([
    ["throws", () => raise()],
    ["rejects", async () => raise()],
  ])("that %s is reported to `error`, and the connection stays open", async (_how, fail) => {
    const raw = listening({ onForeignMessage: fail });
    raw.feed({ event: 1 });
    await turn();
    expect(raw.errors).toEqual([new Error("bug")]);
    raw.feed(request(1, "m"));
    expect(raw.messages()).toEqual([result(1, 1)]);
  });

  it("is not called when the connection has ended, nor after it has closed the peer", () => {
    const raw = listening({ onForeignMessage: (message, peer) => (seen.push(message), void peer.close()) });
    const seen: unknown[] = [];
    raw.feed({ event: 1 });
    raw.feed({ event: 2 });
    expect(seen).toEqual([{ event: 1 }]);
  });

  it("when omitted, leaves such a message refused and counted as malformed", () => {
    const raw = rawPeer();
    raw.feed({ event: "playing" });
    expect(raw.messages()).toEqual([failure(null, -32600, "Invalid Request")]);
    expect(inspect(raw.peer).malformed).toBe(1);
  });
});
