/** A peer that answers messages but cannot be called, such as the peer of an HTTP request. */
import { describe, expect, it } from "vitest";
import { connectionOf, inspect, Peer, type AnyPeer } from "../../src/peer/peer.js";
import type { Transport } from "../../src/core/transport.js";
import { failure, notification, request, result } from "../support/raw.js";
import { gate, rejection, turn } from "../support/turns.js";

/** Such a peer, what it replied, and how many handlers ran each time it was idle. */
function mutePeer(methods: Record<string, (params: any, context: any) => unknown>): {
  peer: AnyPeer;
  sent: string[];
  replies: unknown[];
  idle: number[];
  feed: (message: unknown) => void;
} {
  const sent: string[] = [];
  const replies: unknown[] = [];
  const idle: number[] = [];
  const transport: Transport = {
    start: () => {},
    send: (text) => (sent.push(text), false),
    close: (code = 1000, reason = "") => connection.closed({ code, reason }),
  };
  const peer: AnyPeer = new Peer(transport, { methods, limits: { maxBatchEntries: 3 } });
  const connection = connectionOf(peer);
  connection.outgoing.whyNoCalls = new Error("a POST has one reply");
  connection.incoming.onIdle = () => idle.push(inspect(peer).running);
  const slot = {
    reserveBytes: () => true,
    put: (text: string, onSent?: (isWhole: boolean) => void) => (replies.push(JSON.parse(text)), onSent?.(true), true),
    leaveOut: () => void replies.push(undefined),
  };
  const feed = (message: unknown): void =>
    typeof message === "string" ? connection.receive(message, slot) : connection.dispatch(message, slot);
  return { peer, sent, replies, idle, feed };
}

describe("a peer that cannot be called", () => {
  it("refuses its own calls as not sent, with the cause, and sends nothing", async () => {
    const { peer, sent } = mutePeer({});
    const cause = { message: "a POST has one reply" };
    expect(await rejection(peer.request("m"))).toMatchObject({ outcome: "not-sent", cause });
    const batch = peer.batch();
    const batched = rejection(batch.request("m"));
    expect([peer.notify("m"), batch.notify("m")]).toEqual([false, false]);
    batch.send();
    expect(await batched).toMatchObject({ outcome: "not-sent", cause });
    expect([sent, peer.state]).toEqual([[], "open"]);
    expect(inspect(peer)).toMatchObject({ pending: 0, openBatches: 0 });
    await peer.close();
    expect(await rejection(peer.request("m"))).toMatchObject({ cause });
  });

  it("still throws for params that cannot be sent", async () => {
    const { peer } = mutePeer({});
    expect(() => peer.notify("m", 1)).toThrow(TypeError);
    expect(await rejection(peer.request("m", 1))).toBeInstanceOf(TypeError);
  });

  it.each<[string, unknown, unknown]>([
    ["a request", request(1, "sync"), result(1, 1)],
    ["a request that is answered later", request(1, "later"), result(1, "late")],
    ["a notification", notification("sync"), undefined],
    ["a response", result(1, 1), undefined],
    ["no message", 1, failure(null, -32600, "Invalid Request")],
    ["no JSON", "{", failure(null, -32700, "Parse error")],
    ["an empty batch", [], failure(null, -32600, "Invalid Request")],
    [
      "a batch",
      [request(1, "later"), notification("sync"), 1],
      [result(1, "late"), failure(null, -32600, "Invalid Request")],
    ],
    ["a batch of notifications and responses", [notification("later"), result(1, 1)], undefined],
    ["a batch that is too large", [1, 2, 3, 4], failure(null, -32010, "Batch is too large", { maxBatchEntries: 3 })],
    ["a stream's `next`", request(1, "$/enumerator/next", { token: 1 }), failure(1, -32001, "No such stream")],
  ])("replies to %s once, also with an empty reply, and sends nothing else", async (_what, message, reply) => {
    const { peer, sent, replies, feed } = mutePeer({ sync: () => 1, later: async () => (await turn(), "late") });
    feed(message);
    await turn();
    await turn();
    expect([replies, sent]).toEqual([[reply], []]);
    await peer.close();
    expect(replies).toHaveLength(1);
  });

  it("reports no progress, and cancels nothing that it never sent", async () => {
    const { peer, replies, feed } = mutePeer({ work: (_params, { progress }) => (progress({ done: 1 }), "done") });
    feed(request(1, "work", { workDoneToken: "t" }));
    expect(replies).toEqual([result(1, "done")]);
    const reason = new Error("given up");
    expect(await rejection(peer.request("m", [], { signal: AbortSignal.abort(reason) }))).toBe(reason);
    expect(await rejection(peer.request("m", {}, { onProgress: () => {} }))).toMatchObject({ outcome: "not-sent" });
  });

  it("reports idle after the last handler ended and its response was returned", async () => {
    const first = gate<string>();
    const second = gate();
    const { peer, replies, idle, feed } = mutePeer({
      first: () => first.promise,
      second: () => second.promise,
      sync: () => 1,
    });
    feed(request(1, "sync"));
    feed([request(2, "first"), notification("second")]);
    expect(inspect(peer).running).toBe(2);
    first.resolve("done");
    await turn();
    expect(replies).toEqual([result(1, 1), [result(2, "done")]]);
    expect([inspect(peer).running, idle]).toEqual([1, []]);
    second.resolve();
    await turn();
    expect(idle).toEqual([0]);
    await peer.close();
  });
});
