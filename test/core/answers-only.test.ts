/** A transport that can carry answers only, such as that of an HTTP request. */
import { describe, expect, it } from "vitest";
import { inspect, Peer, type AnyPeer } from "../../src/core/peer.js";
import type { Receiver, Transport } from "../../src/core/transport.js";
import { notification, request, result } from "../support/raw.js";
import { gate, rejection, turn } from "../support/turns.js";

/** A peer on such a transport, what it sent, and how often it was told to be idle with what left to run. */
function mutePeer(methods: Record<string, () => unknown>): {
  peer: AnyPeer;
  sent: unknown[];
  idle: number[];
  feed: (message: unknown) => void;
} {
  let receiver!: Receiver;
  const sent: unknown[] = [];
  const idle: number[] = [];
  const transport: Transport = {
    answersOnly: new Error("nobody listens"),
    start: (given) => (receiver = given),
    send: (text) => (sent.push(JSON.parse(text)), true),
    close: (code = 1000, reason = "") => receiver.closed({ code, reason }),
    idle: () => idle.push(inspect(peer).running),
  };
  const peer: AnyPeer = new Peer(transport, { methods });
  return { peer, sent, idle, feed: (message) => receiver.dispatch(message) };
}

describe("a peer whose transport carries answers only", () => {
  it("refuses its own calls as not sent, says why, and sends nothing", async () => {
    const { peer, sent } = mutePeer({});
    const cause = { message: "nobody listens" };
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

  it("answers, and is told when the last handler has ended and its answer is sent", async () => {
    const first = gate<string>();
    const second = gate();
    const { peer, sent, idle, feed } = mutePeer({
      first: () => first.promise,
      second: () => second.promise,
      sync: () => 1,
    });
    feed(request(1, "sync"));
    feed([request(2, "first"), notification("second")]);
    expect(inspect(peer)).toMatchObject({ running: 2, owed: 1 });
    first.resolve("done");
    await turn();
    expect(sent).toEqual([result(1, 1), [result(2, "done")]]);
    expect(inspect(peer)).toMatchObject({ running: 1, owed: 0 });
    expect(idle).toEqual([]);
    second.resolve();
    await turn();
    expect(idle).toEqual([0]);
    await peer.close();
  });
});
