import { describe, expect, it } from "vitest";
import { Peer, type AnyPeer, type Receiver, type Transport } from "../../src/index.js";
import { EncodedMessage } from "../../src/core/transport.js";
import { sendTo } from "../../src/server/groups.js";
import { BroadcastHandle } from "../../src/server/held-queue.js";
import { pass, useFakeClock } from "../support/clock.js";
import { closeAtEnd } from "../support/pair.js";
import { notification, request } from "../support/raw.js";
import { rejection } from "../support/turns.js";

useFakeClock();

const LIMIT = 1_000;
/** Eight times the limit: the maximum that may be queued at any moment. */
const BURST = 8 * LIMIT;
const LONG = "x".repeat(100);

/** Returns a peer and its transport, which queues every message. */
interface Reader {
  readonly peer: AnyPeer;
  readonly closes: string[];
  readonly transport: { unsentBytes: number };
  /** Delivers a message to the peer. */
  feed(message: unknown): void;
  /** Reports that the session lost its socket, or has a new one. */
  suspend(): void;
  resume(): void;
}

/** `endSession`: how the transport itself treats a slow reader. */
function reader(endSession?: (reason: string) => boolean): Reader {
  let receiver!: Receiver;
  const closes: string[] = [];
  const transport: Transport & { unsentBytes: number } = {
    unsentBytes: 0,
    start: (given) => void (receiver = given),
    send: (text) => {
      transport.unsentBytes += Buffer.byteLength(text);
      return true;
    },
    close: (code = 1000, reason = "") => {
      closes.push(`${code} ${reason}`);
      receiver.closed({ code, reason });
    },
    ...(endSession !== undefined && { endSession }),
  };
  const limits = { maxUnsentBytes: LIMIT, maxReplyBytes: LIMIT };
  const peer = new Peer(transport, { limits, methods: { long: () => LONG } });
  closeAtEnd(peer, () => void peer.close());
  return {
    peer,
    transport,
    closes,
    feed: (message) => receiver.dispatch(message),
    suspend: () => receiver.suspended!(),
    resume: () => receiver.resumed!(),
  };
}

/** Sends a reader a broadcast. Returns false if the broadcast is dropped. */
function broadcastTo(one: Reader, text = LONG): boolean {
  const { dropped } = one.peer.stats();
  sendTo(one.peer, new EncodedMessage(JSON.stringify(notification("n", [text]))), new BroadcastHandle("", undefined));
  return one.peer.stats().dropped === dropped;
}

/** A reader with more queued bytes than the maximum. */
function stuffed(): AnyPeer {
  const one = reader();
  one.transport.unsentBytes = BURST + 1;
  return one.peer;
}

it("rejects a call that exceeded the maximum and closed the connection as not sent", async () => {
  expect(await rejection(stuffed().request("m"))).toMatchObject({ outcome: "not-sent" });
});

it("rejects the calls of such a batch as not sent", async () => {
  const batch = stuffed().batch();
  const call = rejection(batch.request("m"));
  batch.send();
  expect(await call).toMatchObject({ outcome: "not-sent" });
});

describe("a burst of replies beyond `maxUnsentBytes`", () => {
  it("keeps the connection open if the reader receives it within 10 s", async () => {
    const one = reader();
    for (let id = 0; id < 40; id++) one.feed(request(id, "long"));
    expect(one.transport.unsentBytes).toBeGreaterThan(4 * LIMIT);
    await pass(9_999);
    one.feed(request(40, "long"));
    one.transport.unsentBytes = LIMIT;
    await pass(60_000);
    expect(one.peer.state).toBe("open");
  });

  it("may be followed by another one", async () => {
    const one = reader();
    for (let burst = 0; burst < 20; burst++) {
      for (let id = 0; id < 40; id++) one.feed(request(id, "long"));
      await pass(5_000);
      one.transport.unsentBytes = 0;
      await pass(5_000);
    }
    expect(one.peer.state).toBe("open");
  });

  it("closes with 1013 a connection with more than the limit queued for 10 s without a break", async () => {
    const one = reader();
    for (let id = 0; id < 40; id++) one.feed(request(id, "long"));
    one.transport.unsentBytes = LIMIT + 1;
    await pass(9_999);
    expect(one.closes).toEqual([]);
    await pass(1);
    expect(one.closes).toEqual([`1013 more than ${LIMIT} bytes unread for 10 s`]);
    expect(await one.peer.closed).toMatchObject({ code: 1013 });
  });

  it("closes a connection at once with eight times the limit queued, and sends nothing more", () => {
    const one = reader();
    for (let id = 0; id < 1_000; id++) one.feed(request(id, "long"));
    expect(one.closes).toEqual([`1013 more than ${BURST} bytes wait to be read`]);
    expect(one.transport.unsentBytes).toBeGreaterThan(BURST);
    expect(one.transport.unsentBytes).toBeLessThan(BURST + 2 * LONG.length);
  });

  it("is checked again after the session has a new socket, even if nothing more is sent", async () => {
    const one = reader();
    one.suspend();
    one.transport.unsentBytes = LIMIT + 1;
    await pass(60_000);
    expect(one.closes).toEqual([]);
    one.resume();
    await pass(10_000);
    expect(one.closes).toHaveLength(1);
  });

  it("ends only the session in a transport that continues after a loss", async () => {
    const reasons: string[] = [];
    const one = reader((reason) => reasons.push(reason) > 0);
    one.transport.unsentBytes = BURST + 1;
    one.peer.notify("n");
    expect(reasons).toEqual([`more than ${BURST} bytes wait to be read`]);
    expect(one.peer.state).toBe("open");
  });

  it("leaves no timer when the connection ends meanwhile", async () => {
    const one = reader();
    for (let id = 0; id < 40; id++) one.feed(request(id, "long"));
    await one.peer.close();
    one.peer.notify("n");
  });
});

describe("a broadcast", () => {
  it.each(["x", "é", "€"])("of %j that is queued does not count against ordinary messages", async (character) => {
    const one = reader();
    while (broadcastTo(one, character.repeat(100)));
    const broadcasts = one.transport.unsentBytes;
    expect(broadcasts).toBeGreaterThan(LIMIT / 2);
    const ordinary = JSON.stringify(notification("n", [""])).length;
    one.peer.notify("n", ["x".repeat(LIMIT - ordinary)]);
    expect(one.transport.unsentBytes).toBe(broadcasts + LIMIT);
    one.peer.notify("n");
    one.transport.unsentBytes -= JSON.stringify(notification("n")).length;
    await pass(60_000);
    expect(one.closes).toEqual([]);
    one.peer.notify("n", ["x".repeat(LIMIT)]);
    await pass(9_999);
    expect(one.closes).toEqual([]);
    await pass(1);
    expect(one.closes).toHaveLength(1);
  });

  it("that was sent does not raise the limit of ordinary messages", async () => {
    const one = reader();
    for (let i = 0; i < 1_000; i++) {
      broadcastTo(one);
      one.transport.unsentBytes = 50;
    }
    broadcastTo(one);
    one.transport.unsentBytes = LIMIT + 500;
    one.peer.notify("n");
    await pass(10_000);
    expect(one.closes).toHaveLength(1);
  });

  it("queued without a socket does not count against ordinary messages on the next socket", async () => {
    const one = reader();
    one.suspend();
    for (let i = 0; i < 3; i++) {
      broadcastTo(one);
      one.transport.unsentBytes = 0;
    }
    one.transport.unsentBytes = LIMIT + 300;
    one.resume();
    one.peer.notify("n");
    await pass(60_000);
    expect(one.closes).toEqual([]);
  });

  it("queued without a socket does not raise the limit after it was sent, even after several losses", async () => {
    const one = reader();
    for (let i = 0; i < 100; i++) {
      one.suspend();
      broadcastTo(one);
      one.transport.unsentBytes = 0;
      one.resume();
    }
    one.transport.unsentBytes = LIMIT + 500;
    one.peer.notify("n");
    await pass(10_000);
    expect(one.closes).toHaveLength(1);
  });

  it("is dropped and counted from half of the limit on, and does not close the connection", async () => {
    const one = reader();
    for (let i = 0; i < 100; i++) broadcastTo(one);
    const { dropped, notificationsSent } = one.peer.stats();
    expect(dropped + notificationsSent).toBe(100);
    expect(one.transport.unsentBytes).toBeGreaterThan(LIMIT / 2);
    expect(one.transport.unsentBytes).toBeLessThan(LIMIT / 2 + 2 * LONG.length);
    await pass(60_000);
    expect(one.peer.state).toBe("open");
  });
});
