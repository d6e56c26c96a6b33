/** Rule 7: when messages get a number, and which messages are kept. */
import { describe, expect, it } from "vitest";
import { Peer } from "../../../src/index.js";
import { EncodedMessage, type SendHandle } from "../../../src/core/transport.js";
import { useFakeClock } from "../../support/clock.js";
import { heldBy, sendEncoded } from "../../support/links.js";
import { controls, LIMITS, message, numbers, packs, range, Rig } from "./rig.js";
import { microtasks } from "./wire.js";

useFakeClock();

const { highWaterBytes: HIGH_WATER } = LIMITS;
const newHandle = (): SendHandle => ({ sent: true });
/** The control frames that the server has sent behind its hello. */
const acks = (rig: Rig): unknown[] => controls(rig.wire.server.sent).slice(1);

describe("a message", () => {
  it("is sent once it has its place in a frame, and not while it is queued", async () => {
    await using rig = await Rig.live();
    const { link } = rig.client;
    const [live, waits] = [newHandle(), newHandle()];
    live.sent = false;
    link.send(message(1), live);
    expect(live.sent).toBe(true);
    rig.cut();
    // The frame was not written, and is logged.
    expect([live.sent, link.cancel(live)]).toEqual([true, false]);
    link.send(message(2), waits);
    expect(waits.sent).toBe(false);
    await rig.comeBack();
    expect(waits.sent).toBe(true);
    expect(numbers(rig.server.emitted)).toEqual([1, 2]);
  });

  it("can be cancelled while it is queued, and then never arrives", async () => {
    await using rig = await Rig.live();
    const { link } = rig.client;
    rig.cut();
    const handles = range(1, 4).map((n) => {
      const handle = newHandle();
      link.send(message(n), handle);
      return handle;
    });
    const held = heldBy(link);
    expect(link.cancel(handles[1]!)).toBe(true);
    expect(link.cancel(handles[1]!)).toBe(false);
    expect(heldBy(link)).toBe((held * 3) / 4);
    await rig.comeBack();
    expect(numbers(rig.server.emitted)).toEqual([1, 3, 4]);
    expect(link.cancel(handles[0]!)).toBe(false);
  });

  it("is not sent if the socket is closed and has not reported it yet", async () => {
    await using rig = await Rig.live();
    rig.wire.client.open = false;
    const handle = newHandle();
    expect(rig.client.link.send(message(1), handle)).toBe(true);
    expect(sendEncoded(rig.client.link, new EncodedMessage(message(2)))).toBe(true);
    expect(handle.sent).toBe(false);
    await rig.cutAndResume();
    expect(numbers(rig.server.emitted)).toEqual([1, 2]);
  });

  it("is queued and logged like any other if it is a broadcast", async () => {
    await using rig = await Rig.live();
    const { link } = rig.server;
    sendEncoded(link, new EncodedMessage(message(1)));
    await microtasks();
    rig.cut();
    sendEncoded(link, new EncodedMessage(message(2)));
    await rig.comeBack();
    link.send(message(3));
    sendEncoded(link, new EncodedMessage(message(4)));
    await rig.settle();
    expect(numbers(rig.emitted)).toEqual([1, 2, 3, 4]);
    expect(sendEncoded(link, new EncodedMessage(JSON.stringify("x".repeat(5000))))).toBe(false);
  });
});

describe("a socket above its high-water mark", () => {
  it("numbers no more messages, and continues when the socket has drained", async () => {
    await using rig = await Rig.live();
    const { client } = rig.wire;
    const { link } = rig.client;
    link.send(message(1));
    client.unsentBytes = HIGH_WATER;
    await microtasks();
    const handle = newHandle();
    link.send(message(2), handle);
    sendEncoded(link, new EncodedMessage(message(3)));
    await microtasks();
    expect(link.endpoint.state.session!.last).toBe(1);
    rig.pass(100);
    expect(handle.sent).toBe(false);
    client.unsentBytes = HIGH_WATER - 1;
    rig.pass(20);
    await rig.settle();
    expect(handle.sent).toBe(true);
    expect(numbers(rig.server.emitted)).toEqual([1, 2, 3]);
  });

  it("is polled also if it is full at the end of a tick and nothing is sent after that", async () => {
    await using rig = await Rig.live();
    const { client } = rig.wire;
    rig.client.link.send(message(1));
    client.unsentBytes = HIGH_WATER;
    await microtasks();
    // The message has its number, and was not written.
    expect(rig.client.link.endpoint.state.session!.last).toBe(1);
    expect(packs(client.sent)).toEqual([]);
    client.unsentBytes = 0;
    rig.pass(20);
    await rig.settle();
    expect(numbers(rig.server.emitted)).toEqual([1]);
  });

  it("still sends control frames, but no pong to a peer that does not read", async () => {
    await using rig = await Rig.live();
    const { client } = rig.wire;
    client.unsentBytes = HIGH_WATER;
    client.inject('{"ping":7}');
    await microtasks();
    expect(client.sent).toHaveLength(1);
    rig.client.link.ping();
    expect(client.sent.at(-1)).toBe('{"ping":1}');
    client.unsentBytes = 64 * 1024 - 1;
    client.inject('{"ping":7}');
    await microtasks();
    expect(client.sent.at(-1)).toBe('{"pong":7}');
  });

  it("collects at most 1 KiB of pongs, which do not count as unsent bytes", async () => {
    await using rig = await Rig.live();
    const { client } = rig.wire;
    client.sent.length = 0;
    for (let i = 0; i < 100; i++) client.inject(`{"ping":"${"x".repeat(100)}"}`);
    const collected = 100 - client.sent.length;
    expect(collected).toBeLessThan(10);
    await microtasks();
    expect(client.sent).toHaveLength(100);
  });
});

describe("the replay log", () => {
  it("takes no more frames than its limit, and queued messages are sent when acks arrive", async () => {
    await using rig = await Rig.live();
    await rig.send(rig.client.link, 1, 40);
    expect(packs(rig.wire.client.sent)).toHaveLength(16);
    expect(rig.client.link.endpoint.state.session!.last).toBe(16);
    await rig.settle();
    expect(numbers(rig.server.emitted)).toEqual(range(1, 40));
  });

  it.each([
    [6000, 2],
    [10, 1],
  ])("takes no more bytes than its limit and one frame, the longest included: %i", async (logLength, logged) => {
    await using rig = await Rig.live({ limits: { logLength } });
    await rig.send(rig.client.link, 1, 6, 4900);
    expect(rig.client.link.endpoint.state.session!.last).toBe(logged);
    await rig.settle();
    expect(numbers(rig.server.emitted)).toEqual(range(1, 6));
  });

  it("numbers no message behind a pack that fills it", async () => {
    await using rig = await Rig.live({ limits: { logFrames: 1 } });
    const { link } = rig.client;
    const handle = newHandle();
    link.send(message(1, 4900));
    link.send(message(2, 4900), handle);
    expect(handle.sent).toBe(false);
    expect(link.cancel(handle)).toBe(true);
    await rig.settle();
    expect(numbers(rig.server.emitted)).toEqual([1]);
  });
});

/** Loses the socket of a session with queued broadcasts. Returns the length of those that stay, and how many were dropped. */
async function loseBroadcasts(maxHeldLength: number): Promise<[length: number, dropped: number]> {
  await using rig = await Rig.live({ sessions: { maxHeldLength } });
  const { link } = rig.server;
  const peer = new Peer(link, {});
  rig.wire.server.unsentBytes = HIGH_WATER;
  for (let i = 0; i < 6; i++) sendEncoded(link, new EncodedMessage(message(i, 1000)));
  await microtasks();
  rig.cut();
  expect(rig.sessions.held).toBe(link.heldLength + link.heldBroadcastLength);
  const result: [number, number] = [link.heldBroadcastLength, peer.stats().dropped];
  await peer.close();
  return result;
}

describe("a queue over its limit", () => {
  it("ends a suspended session, soon and not inside send", async () => {
    await using rig = await Rig.live();
    const { link, emitted } = rig.server;
    rig.cut();
    let taken = 0;
    while (link.send(message(taken, 4000))) taken++;
    expect(taken).toBe(9);
    expect(emitted.notices).toEqual(["suspended"]);
    expect(rig.sessions).toMatchObject({ suspended: 0, held: 0, tokens: { size: 0 } });
    await microtasks();
    expect(emitted.notices).toMatchObject(["suspended", { closed: { code: 1013 } }]);
    expect(link.heldLength).toBe(0);
  });

  it("does not end the session twice, nor a link that was closed before", async () => {
    await using rig = await Rig.live();
    rig.cut();
    while (rig.client.link.send(message(1, 4000)));
    rig.client.link.close();
    await microtasks();
    expect(rig.emitted.notices).toEqual(["suspended", { closed: { code: 1000, reason: "" } }]);
  });

  it("ends a live session, at both ends", async () => {
    await using rig = await Rig.live();
    rig.wire.server.unsentBytes = HIGH_WATER;
    rig.server.link.send(message("first"));
    await microtasks();
    while (rig.server.link.send(message(1, 4000)));
    expect(rig.wire.server.closedWith).toMatchObject({ code: 1013 });
    await rig.settle();
    expect(rig.server.emitted.notices).toMatchObject([{ closed: { code: 1013 } }]);
    expect(rig.emitted.notices).toMatchObject(["suspended", { lost: expect.stringContaining("1013") }]);
  });

  it("allows a burst: more behind a full socket than without one", async () => {
    await using rig = await Rig.live();
    const { server } = rig.wire;
    const { link } = rig.server;
    server.unsentBytes = HIGH_WATER;
    for (let i = 0; i < 18; i++) expect(link.send(message(i, 4000))).toBe(true);
    await microtasks();
    expect(link.heldLength).toBeGreaterThan(LIMITS.queueLength + 4000);
    expect(link.unsentBytes).toBeGreaterThan(HIGH_WATER + LIMITS.queueLength);
    server.unsentBytes = 0;
    rig.pass(20);
    await rig.settle();
    expect(numbers(rig.emitted)).toEqual(range(0, 17));
    expect(rig.emitted.notices).toEqual([]);
  });

  it("allows as much as without a burst if the socket is lost in the middle of one", async () => {
    await using rig = await Rig.live();
    const { link } = rig.server;
    rig.wire.server.unsentBytes = HIGH_WATER;
    for (let i = 0; i < 18; i++) expect(link.send(message(i, 4000))).toBe(true);
    rig.cut();
    let taken = 18;
    while (taken < 26) expect(link.send(message(taken++, 4000))).toBe(true);
    await rig.comeBack();
    expect(numbers(rig.emitted)).toEqual(range(0, 25));
    expect(rig.emitted.notices).toEqual(["suspended", "resumed"]);
    rig.cut();
    while (link.send(message(taken, 4000))) taken++;
    // Messages that were queued at an earlier loss no longer count.
    expect(taken).toBe(26 + 9);
    await microtasks();
    expect(rig.server.emitted.notices.at(-1)).toMatchObject({ closed: { code: 1013 } });
  });

  it("does not count a burst that was queued before the client's hello", async () => {
    await using rig = new Rig();
    const { link } = rig.server;
    rig.wire.server.unsentBytes = HIGH_WATER;
    for (let i = 0; i < 18; i++) expect(link.send(message(i, 4000))).toBe(true);
    rig.wire.server.cut();
    for (let i = 18; i < 26; i++) expect(link.send(message(i, 4000))).toBe(true);
    expect(rig.server.emitted.notices).toEqual(["suspended"]);
  });

  it("allows no more after attempts to resume that fail", async () => {
    await using rig = await Rig.live();
    rig.cut();
    const { link } = rig.client;
    for (let i = 0; i < 9; i++) expect(link.send(message(i, 4000))).toBe(true);
    rig.resuming();
    rig.cut();
    expect(link.send(message(9, 4000))).toBe(false);
    await microtasks();
    expect(rig.emitted.notices).toMatchObject(["suspended", { lost: expect.stringContaining("1013") }]);
  });

  it("counts many small messages like few long ones", async () => {
    await using rig = await Rig.live();
    rig.cut();
    let taken = 0;
    while (rig.client.link.send("1")) taken++;
    expect(taken).toBeLessThanOrEqual(40_000 / 64);
    await microtasks();
    expect(rig.emitted.notices).toMatchObject(["suspended", { lost: expect.any(String) }]);
  });

  it("ends a live session if its reader is too slow for it", async () => {
    await using rig = await Rig.live();
    expect(rig.server.link.endSession("too slow")).toBe(true);
    expect(rig.server.link.endSession("too slow again")).toBe(true);
    expect(rig.wire.server.closedWith).toEqual({ code: 1013, reason: "too slow" });
    await rig.settle();
    expect(rig.server.emitted.notices).toEqual([{ closed: { code: 1013, reason: "too slow" } }]);
    expect(rig.emitted.notices).toEqual(["suspended", { lost: "the session ended with 1013 (too slow)" }]);
  });

  it("drops broadcasts beyond a lower limit, and ends no session", async () => {
    await using rig = await Rig.live();
    const { link } = rig.server;
    for (let i = 0; i < LIMITS.logFrames; i++) sendEncoded(link, new EncodedMessage(message(i)));
    const waits = new EncodedMessage(message(16, 1000));
    let taken = 0;
    while (taken < 100 && sendEncoded(link, waits)) taken++;
    expect(taken).toBeGreaterThan(10);
    expect(taken).toBeLessThan(20);
    expect(link.send(message(17, 1000))).toBe(true);
    await rig.settle();
    expect(rig.emitted.messages).toHaveLength(LIMITS.logFrames + taken + 1);
    expect(rig.emitted.notices).toEqual([]);
  });

  it("drops broadcasts at the loss of the socket if all suspended sessions would hold too many", async () => {
    const [length, none] = await loseBroadcasts(2 ** 20);
    expect(length).toBeGreaterThan(4000);
    expect(none).toBe(0);
    expect(await loseBroadcasts(4 * length)).toEqual([length, 0]);
    expect(await loseBroadcasts(4 * length - 1)).toEqual([0, Math.floor(length / 1000)]);
  });

  it("allows as much beside broadcasts to a suspended session as without them, all in order", async () => {
    await using rig = await Rig.live();
    rig.cut();
    const { link } = rig.server;
    const expected: unknown[] = [];
    let n = 0;
    const broadcast = (): boolean => sendEncoded(link, new EncodedMessage(message(`b${n}`, 1000)));
    for (; n < 100; n++) if (broadcast()) expected.push(`b${n}`);
    // Broadcasts get a quarter of the limit.
    expect(expected.length).toBeGreaterThan(10);
    expect(expected.length * 1000).toBeLessThan(LIMITS.queueLength / 2);
    for (let i = 0; i < 9; i++, n++) {
      expect(link.send(message(n, 4000))).toBe(true);
      expected.push(n);
      expect(broadcast()).toBe(false);
    }
    await rig.comeBack();
    expect(numbers(rig.emitted)).toEqual(expected);
    expect(rig.emitted.notices).toEqual(["suspended", "resumed"]);
    // One more would have exceeded the limit, as without broadcasts.
    rig.cut();
    for (let i = 0; i < 100; i++) broadcast();
    for (let i = 0; i < 10; i++) link.send(message(i, 4000));
    await microtasks();
    expect(rig.server.emitted.notices.at(-1)).toMatchObject({ closed: { code: 1013 } });
  });
});

describe("an ack", () => {
  it("is sent on receipt of a quarter of the other side's frames", async () => {
    await using rig = await Rig.live();
    for (let i = 1; i <= 8; i++) {
      await rig.exchange(rig.client.link, i, i);
      expect(acks(rig)).toEqual([{ ack: 4 }, { ack: 8 }].slice(0, Math.floor(i / 4)));
    }
  });

  it("is sent on receipt of a quarter of the other side's length", async () => {
    await using rig = await Rig.live();
    rig.client.link.send(message(1, 4900));
    await rig.settle();
    expect(acks(rig)).toEqual([]);
    rig.client.link.send(message(2, 80));
    await rig.settle();
    expect(acks(rig)).toEqual([{ ack: 2 }]);
  });

  it("is not queued without limit for a peer that reads none: with more than a log unsent the session ends", async () => {
    await using rig = await Rig.live({ limits: { logFrames: 1 } });
    const { server } = rig.wire;
    server.unsentBytes = HIGH_WATER;
    server.inject("[]");
    await microtasks();
    expect(acks(rig)).toEqual([{ ack: 1 }]);
    server.unsentBytes++;
    server.inject("[]");
    await microtasks();
    expect(acks(rig)).toEqual([{ ack: 1 }]);
    expect(server.closedWith).toMatchObject({ code: 1013 });
    server.inject(`[${message(1)}]`);
    expect(rig.server.emitted.messages).toEqual([]);
  });

  it("waits for its own side's data if that fills the socket, and ends no session", async () => {
    await using rig = await Rig.live({ limits: { logFrames: 1 } });
    const { server } = rig.wire;
    rig.server.link.send(message(1));
    server.unsentBytes = HIGH_WATER + 1;
    await microtasks();
    server.inject("[]");
    server.inject("[]");
    await microtasks();
    expect(server.closedWith).toBeUndefined();
    rig.pass(20);
    expect(acks(rig)).toEqual([]);
    server.unsentBytes = 0;
    for (let i = 0; i < 2; i++) {
      rig.pass(20);
      expect(acks(rig)).toEqual([{ ack: 2 }]);
    }
    rig.cut({ code: 1002, reason: "" });
  });

  it("is sent once at the end of a tick if each of its packs made one due", async () => {
    await using rig = await Rig.live({ limits: { logFrames: 1 } });
    for (let i = 0; i < 100; i++) rig.wire.server.inject("[]");
    expect(acks(rig)).toEqual([]);
    await microtasks();
    expect(acks(rig)).toEqual([{ ack: 100 }]);
  });

  it("is sent beside data long before it is due, and with pings and pongs", async () => {
    await using rig = await Rig.live({ limits: { logFrames: 4096, logLength: 2 ** 22 } });
    const { client, server } = rig.wire;
    await rig.exchange(rig.client.link, 1, 64);
    expect(acks(rig)).toEqual([]);
    await rig.exchange(rig.server.link, 1, 1);
    expect(server.sent.slice(-2)).toEqual(['{"ack":64}', '[{"n":1}]']);
    rig.client.link.ping();
    await rig.settle();
    expect(client.sent.slice(-2)).toEqual(['{"ack":1}', '{"ping":1}']);
    await rig.exchange(rig.client.link, 65, 65);
    rig.client.link.ping();
    await rig.settle();
    expect(server.sent.slice(-2)).toEqual(['{"pong":1}', '{"ack":65}']);
  });

  it("needs no timer: with a stopped clock nothing is held back", async () => {
    await using rig = await Rig.live();
    for (let i = 1; i <= 500; i++) {
      rig.client.link.send(message(i));
      rig.server.link.send(message(i));
      if (i % 10 === 0) await rig.settle();
    }
    expect(numbers(rig.server.emitted)).toHaveLength(500);
    expect(numbers(rig.emitted)).toHaveLength(500);
    expect(rig.client.link.endpoint.state.session!.logLength).toBeLessThan(5000);
  });
});
