import { describe, expect, it } from "vitest";
import { Peer, type AnyPeer, type Receiver, type Transport } from "../../src/index.js";
import { EncodedMessage } from "../../src/core/transport.js";
import { sendTo } from "../../src/server/groups.js";
import { pass, useFakeClock } from "../support/clock.js";
import { notification, request } from "../support/raw.js";
import { rejection } from "../support/turns.js";

useFakeClock();

const LIMIT = 1_000;
/** Eight times as much: what may wait at any moment. */
const BURST = 8 * LIMIT;
const LONG = "x".repeat(100);

/** A peer, and its transport, in which everything waits that was sent. */
interface Reader {
  readonly peer: AnyPeer;
  readonly closes: string[];
  unsentBytes: number;
  /** Hands the peer a message. */
  feed(message: unknown): void;
  /** The session lost its socket, or has another. */
  suspend(): void;
  resume(): void;
}

/** `endSession`: what the transport does of its own about a slow reader. */
function reader(endSession?: (reason: string) => boolean): Reader {
  let receiver!: Receiver;
  const closes: string[] = [];
  let unsentBytes = 0;
  const transport: Transport = {
    get unsentBytes() {
      return unsentBytes;
    },
    start: (given) => void (receiver = given),
    send: (text) => {
      unsentBytes += Buffer.byteLength(text);
      return true;
    },
    close: (code = 1000, reason = "") => {
      closes.push(`${code} ${reason}`);
      receiver.closed({ code, reason });
    },
    ...(endSession !== undefined && { endSession }),
  };
  const peer = new Peer(transport, {
    limits: { maxUnsentBytes: LIMIT, maxReplyBytes: LIMIT },
    methods: { long: () => LONG },
  });
  return {
    peer,
    closes,
    get unsentBytes() {
      return unsentBytes;
    },
    set unsentBytes(bytes) {
      unsentBytes = bytes;
    },
    feed: (message) => receiver.dispatch(message),
    suspend: () => receiver.suspended!(),
    resume: () => receiver.resumed!(),
  };
}

/** Sends a reader a broadcast. */
function broadcastTo(one: Reader, text = LONG): boolean {
  return sendTo(one.peer, new EncodedMessage(JSON.stringify(notification("n", [text]))), "drop");
}

/** A reader for which more waits than may at any moment. */
function stuffed(): AnyPeer {
  const one = reader();
  one.unsentBytes = BURST + 1;
  return one.peer;
}

it("says of a call that found no room, and closed the connection, that it was not sent", async () => {
  expect(await rejection(stuffed().request("m"))).toMatchObject({ outcome: "not-sent" });
});

it("says so of the calls of a batch", async () => {
  const batch = stuffed().batch();
  const call = rejection(batch.request("m"));
  batch.send();
  expect(await call).toMatchObject({ outcome: "not-sent" });
});

describe("a burst of replies beyond `maxUnsentBytes`", () => {
  it("leaves a connection open whose reader takes it within 10 s", async () => {
    const one = reader();
    for (let id = 0; id < 40; id++) one.feed(request(id, "long"));
    expect(one.unsentBytes).toBeGreaterThan(4 * LIMIT);
    await pass(9_999);
    one.feed(request(40, "long"));
    one.unsentBytes = LIMIT;
    await pass(60_000);
    expect(one.peer.state).toBe("open");
    await one.peer.close();
  });

  it("may be followed by another one", async () => {
    const one = reader();
    for (let burst = 0; burst < 20; burst++) {
      for (let id = 0; id < 40; id++) one.feed(request(id, "long"));
      await pass(5_000);
      one.unsentBytes = 0;
      await pass(5_000);
    }
    expect(one.peer.state).toBe("open");
    await one.peer.close();
  });

  it("closes with 1013 a connection for which more than the limit has waited for 10 s on end", async () => {
    const one = reader();
    for (let id = 0; id < 40; id++) one.feed(request(id, "long"));
    one.unsentBytes = LIMIT + 1;
    await pass(9_999);
    expect(one.closes).toEqual([]);
    await pass(1);
    expect(one.closes).toEqual([`1013 more than ${LIMIT} bytes have waited for 10 s to be read`]);
    expect(await one.peer.closed).toMatchObject({ code: 1013 });
  });

  it("closes a connection at once when eight times the limit waits, and sends nothing more", () => {
    const one = reader();
    for (let id = 0; id < 1_000; id++) one.feed(request(id, "long"));
    expect(one.closes).toEqual([`1013 more than ${BURST} bytes wait to be read`]);
    expect(one.unsentBytes).toBeGreaterThan(BURST);
    expect(one.unsentBytes).toBeLessThan(BURST + 2 * LONG.length);
  });

  it("is watched again after a session has another socket, though nothing more is sent", async () => {
    const one = reader();
    one.suspend();
    one.unsentBytes = LIMIT + 1;
    await pass(60_000);
    expect(one.closes).toEqual([]);
    one.resume();
    await pass(10_000);
    expect(one.closes).toHaveLength(1);
  });

  it("ends only what is in a transport that goes on after a loss", async () => {
    const reasons: string[] = [];
    const one = reader((reason) => reasons.push(reason) > 0);
    one.unsentBytes = BURST + 1;
    one.peer.notify("n");
    expect(reasons).toEqual([`more than ${BURST} bytes wait to be read`]);
    expect(one.peer.state).toBe("open");
    await one.peer.close();
  });

  it("leaves no timer when the connection ends meanwhile", async () => {
    const one = reader();
    for (let id = 0; id < 40; id++) one.feed(request(id, "long"));
    await one.peer.close();
    one.peer.notify("n");
  });
});

describe("a broadcast", () => {
  it.each(["x", "é", "€"])(
    "of %j that waits does not count against ordinary messages, which may wait as without it",
    async (character) => {
      const one = reader();
      while (broadcastTo(one, character.repeat(100)));
      const broadcasts = one.unsentBytes;
      expect(broadcasts).toBeGreaterThan(LIMIT / 2);
      const ordinary = JSON.stringify(notification("n", [""])).length;
      one.peer.notify("n", ["x".repeat(LIMIT - ordinary)]);
      expect(one.unsentBytes).toBe(broadcasts + LIMIT);
      one.peer.notify("n");
      one.unsentBytes -= JSON.stringify(notification("n")).length;
      await pass(60_000);
      expect(one.closes).toEqual([]);
      one.peer.notify("n", ["x".repeat(LIMIT)]);
      await pass(9_999);
      expect(one.closes).toEqual([]);
      await pass(1);
      expect(one.closes).toHaveLength(1);
    },
  );

  it("that has left gives no room to ordinary messages", async () => {
    const one = reader();
    for (let i = 0; i < 1_000; i++) {
      broadcastTo(one);
      one.unsentBytes = 50;
    }
    broadcastTo(one);
    one.unsentBytes = LIMIT + 500;
    one.peer.notify("n");
    await pass(10_000);
    expect(one.closes).toHaveLength(1);
  });

  it("that waits for a socket does not count against ordinary messages when there is one", async () => {
    const one = reader();
    one.suspend();
    for (let i = 0; i < 3; i++) {
      broadcastTo(one);
      one.unsentBytes = 0;
    }
    one.unsentBytes = LIMIT + 300;
    one.resume();
    one.peer.notify("n");
    await pass(60_000);
    expect(one.closes).toEqual([]);
    await one.peer.close();
  });

  it("that waited for a socket gives no room once it has left, however often the socket is lost", async () => {
    const one = reader();
    for (let i = 0; i < 100; i++) {
      one.suspend();
      broadcastTo(one);
      one.unsentBytes = 0;
      one.resume();
    }
    one.unsentBytes = LIMIT + 500;
    one.peer.notify("n");
    await pass(10_000);
    expect(one.closes).toHaveLength(1);
  });

  it("is dropped from half of the limit on, counted, and closes nothing", async () => {
    const one = reader();
    const message = new EncodedMessage(JSON.stringify(notification("n", [LONG])));
    for (let i = 0; i < 100; i++) sendTo(one.peer, message, "drop");
    const { dropped, notificationsSent } = one.peer.stats();
    expect(dropped + notificationsSent).toBe(100);
    expect(one.unsentBytes).toBeGreaterThan(LIMIT / 2);
    expect(one.unsentBytes).toBeLessThan(LIMIT / 2 + 2 * LONG.length);
    await pass(60_000);
    expect(one.peer.state).toBe("open");
    await one.peer.close();
  });
});
