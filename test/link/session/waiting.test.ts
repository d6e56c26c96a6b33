/** Rule 7: when messages get a number, and which messages are kept. */
import { heldBy, sendEncoded } from "../../support/links.js";
import { describe, expect, it } from "vitest";
import { EncodedMessage, type SendHandle } from "../../../src/core/transport.js";
import { useFakeClock } from "../../support/clock.js";
import { controls, LIMITS, message, numbers, packs, Rig } from "./rig.js";
import { microtasks } from "./wire.js";

useFakeClock();

const { highWaterBytes: HIGH_WATER } = LIMITS;
const newTicket = (): SendHandle => ({ sent: true });

describe("a message", () => {
  it("is sent once it has its place in a frame, and not while it is queued", async () => {
    const rig = await Rig.live();
    const [live, waits] = [newTicket(), newTicket()];
    live.sent = false;
    rig.client.link.send(message(1), live);
    expect(live.sent).toBe(true);
    rig.cut();
    rig.client.link.send(message(2), waits);
    expect(waits.sent).toBe(false);
    rig.reconnect();
    await rig.settle();
    expect(waits.sent).toBe(true);
    expect(numbers(rig.server.told)).toEqual([1, 2]);
    await rig.close();
  });

  it("counts as sent when it is in a frame that the socket no longer accepted", async () => {
    const rig = await Rig.live();
    const ticket = newTicket();
    rig.client.link.send(message(1), ticket);
    rig.cut();
    expect(ticket.sent).toBe(true);
    expect(rig.client.link.cancel(ticket)).toBe(false);
    rig.reconnect();
    await rig.settle();
    expect(numbers(rig.server.told)).toEqual([1]);
    await rig.close();
  });

  it("can be cancelled while it is queued, and then never arrives", async () => {
    const rig = await Rig.live();
    rig.cut();
    const tickets = [1, 2, 3, 4].map((n) => {
      const ticket = newTicket();
      rig.client.link.send(message(n), ticket);
      return ticket;
    });
    const held = heldBy(rig.client.link);
    expect(rig.client.link.cancel(tickets[1]!)).toBe(true);
    expect(rig.client.link.cancel(tickets[1]!)).toBe(false);
    expect(heldBy(rig.client.link)).toBe((held * 3) / 4);
    rig.reconnect();
    await rig.settle();
    expect(numbers(rig.server.told)).toEqual([1, 3, 4]);
    expect(rig.client.link.cancel(tickets[0]!)).toBe(false);
    await rig.close();
  });

  it("is not sent if the socket is closed and has not reported it yet", async () => {
    const rig = await Rig.live();
    rig.wire.client.open = rig.wire.server.open = false;
    const ticket = newTicket();
    expect(rig.client.link.send(message(1), ticket)).toBe(true);
    expect(sendEncoded(rig.server.link, new EncodedMessage(message(2)))).toBe(true);
    expect(ticket.sent).toBe(false);
    rig.cut();
    rig.reconnect();
    await rig.settle();
    expect([numbers(rig.server.told), numbers(rig.told)]).toEqual([[1], [2]]);
    await rig.close();
  });

  it("is queued and logged like any other if it is a broadcast", async () => {
    const rig = await Rig.live();
    sendEncoded(rig.server.link, new EncodedMessage(message(1)));
    await microtasks();
    rig.cut();
    sendEncoded(rig.server.link, new EncodedMessage(message(2)));
    rig.reconnect();
    await rig.settle();
    rig.server.link.send(message(3));
    sendEncoded(rig.server.link, new EncodedMessage(message(4)));
    await rig.settle();
    expect(numbers(rig.told)).toEqual([1, 2, 3, 4]);
    expect(sendEncoded(rig.server.link, new EncodedMessage(JSON.stringify("x".repeat(5000))))).toBe(false);
    await rig.close();
  });
});

describe("a socket above its high-water mark", () => {
  it("numbers no more messages, and continues when the socket has drained", async () => {
    const rig = await Rig.live();
    const { server } = rig.wire;
    rig.server.link.send(message(1));
    server.unsentBytes = HIGH_WATER;
    await microtasks();
    const ticket = newTicket();
    rig.server.link.send(message(2), ticket);
    sendEncoded(rig.server.link, new EncodedMessage(message(3)));
    await microtasks();
    expect(ticket.sent).toBe(false);
    expect(rig.server.link.endpoint.state.session!.last).toBe(1);
    rig.pass(100);
    expect(ticket.sent).toBe(false);
    server.unsentBytes = HIGH_WATER - 1;
    rig.pass(20);
    await rig.settle();
    expect(ticket.sent).toBe(true);
    expect(numbers(rig.told)).toEqual([1, 2, 3]);
    await rig.close();
  });

  it("is polled also if it is full at the end of a tick and nothing is sent after that", async () => {
    const rig = await Rig.live();
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
    expect(numbers(rig.server.told)).toEqual([1]);
    await rig.close();
  });

  it("still sends control frames, but no pong to a peer that does not read", async () => {
    const rig = await Rig.live();
    rig.wire.client.unsentBytes = HIGH_WATER;
    rig.wire.client.inject('{"ping":7}');
    await microtasks();
    expect(rig.wire.client.sent).toHaveLength(1);
    rig.client.link.ping();
    expect(rig.wire.client.sent.at(-1)).toBe('{"ping":1}');
    rig.wire.client.unsentBytes = 64 * 1024 - 1;
    rig.wire.client.inject('{"ping":7}');
    await microtasks();
    expect(rig.wire.client.sent.at(-1)).toBe('{"pong":7}');
    await rig.close();
  });

  it("has no timer while nothing is queued, nor once the session has ended", async () => {
    const rig = await Rig.live();
    rig.wire.client.unsentBytes = HIGH_WATER;
    rig.client.link.send(message(1));
    await microtasks();
    rig.cut({ code: 1002, reason: "" });
    await rig.close();
  });
});

describe("the replay log", () => {
  it("takes no more frames than its limit, and queued messages are sent when acks arrive", async () => {
    const rig = await Rig.live();
    for (let i = 1; i <= 40; i++) {
      rig.client.link.send(message(i));
      await microtasks();
    }
    expect(packs(rig.wire.client.sent)).toHaveLength(16);
    expect(rig.client.link.endpoint.state.session!.last).toBe(16);
    await rig.settle();
    expect(numbers(rig.server.told)).toEqual(Array.from({ length: 40 }, (_, i) => i + 1));
    await rig.close();
  });

  it("takes no more bytes than its limit and one frame, the longest included", async () => {
    const rig = await Rig.live({ limits: { logLength: 6000 } });
    for (let i = 1; i <= 6; i++) {
      rig.client.link.send(message(i, 4900));
      await microtasks();
    }
    expect(rig.client.link.endpoint.state.session!.last).toBe(2);
    expect(rig.client.link.endpoint.state.session!.logLength).toBeLessThan(6000 + 5000);
    await rig.settle();
    expect(numbers(rig.server.told)).toEqual([1, 2, 3, 4, 5, 6]);
    await rig.close();
  });

  it("takes the longest message, even if the log itself is shorter", async () => {
    const rig = await Rig.live({ limits: { logLength: 10, logFrames: 1 } });
    for (let i = 1; i <= 3; i++) rig.client.link.send(message(i, 4900));
    await rig.settle();
    expect(numbers(rig.server.told)).toEqual([1, 2, 3]);
    await rig.close();
  });
});

describe("a queue over its limit", () => {
  it("ends a suspended session, soon and not inside send", async () => {
    const rig = await Rig.live();
    rig.cut();
    let taken = 0;
    while (rig.server.link.send(message(taken, 4000))) taken++;
    expect(taken).toBe(9);
    expect(rig.server.told.notices).toEqual(["suspended"]);
    expect(rig.sessions).toMatchObject({ suspended: 0, held: 0, tokens: { size: 0 } });
    await microtasks();
    expect(rig.server.told.notices).toMatchObject(["suspended", { closed: { code: 1013 } }]);
    expect(rig.server.link.heldLength).toBe(0);
    await rig.close();
  });

  it("ends a live session, at both ends", async () => {
    const rig = await Rig.live();
    rig.wire.server.unsentBytes = HIGH_WATER;
    rig.server.link.send(message("first"));
    await microtasks();
    while (rig.server.link.send(message(1, 4000)));
    expect(rig.wire.server.closedWith).toMatchObject({ code: 1013 });
    await rig.settle();
    expect(rig.server.told.notices).toMatchObject([{ closed: { code: 1013 } }]);
    expect(rig.told.notices).toMatchObject(["suspended", { lost: expect.stringContaining("1013") }]);
    await rig.close();
  });

  it("allows a burst: more behind a full socket than without one", async () => {
    const rig = await Rig.live();
    const { server } = rig.wire;
    server.unsentBytes = HIGH_WATER;
    for (let i = 0; i < 18; i++) expect(rig.server.link.send(message(i, 4000))).toBe(true);
    await microtasks();
    expect(rig.server.link.heldLength).toBeGreaterThan(LIMITS.queueLength + 4000);
    expect(rig.server.link.unsentBytes).toBeGreaterThan(HIGH_WATER + LIMITS.queueLength);
    server.unsentBytes = 0;
    rig.pass(20);
    await rig.settle();
    expect(numbers(rig.told)).toEqual(Array.from({ length: 18 }, (_, i) => i));
    expect(rig.told.notices).toEqual([]);
    await rig.close();
  });

  it("allows as much as without a burst if the socket is lost in the middle of one", async () => {
    const rig = await Rig.live();
    rig.wire.server.unsentBytes = HIGH_WATER;
    for (let i = 0; i < 18; i++) expect(rig.server.link.send(message(i, 4000))).toBe(true);
    rig.cut();
    let taken = 18;
    while (taken < 26) expect(rig.server.link.send(message(taken++, 4000))).toBe(true);
    rig.reconnect();
    await rig.settle();
    expect(numbers(rig.told)).toEqual(Array.from({ length: taken }, (_, i) => i));
    expect(rig.told.notices).toEqual(["suspended", "resumed"]);
    rig.cut();
    while (rig.server.link.send(message(taken, 4000))) taken++;
    // Messages that were queued at an earlier loss no longer count.
    expect(taken).toBe(26 + 9);
    await microtasks();
    expect(rig.server.told.notices.at(-1)).toMatchObject({ closed: { code: 1013 } });
    await rig.close();
  });

  it("allows no more after attempts to resume that fail", async () => {
    const rig = await Rig.live();
    rig.cut();
    let taken = 0;
    const { link } = rig.client;
    for (; taken < 9; taken++) expect(link.send(message(taken, 4000))).toBe(true);
    rig.reconnect().client.deliver();
    rig.cut();
    expect(link.send(message(taken, 4000))).toBe(false);
    await microtasks();
    expect(rig.told.notices).toMatchObject(["suspended", { lost: expect.stringContaining("1013") }]);
    await rig.close();
  });

  it("numbers no message behind a pack that fills the log", async () => {
    const rig = await Rig.live({ limits: { logFrames: 1 } });
    const { link } = rig.client;
    const ticket = newTicket();
    link.send(message(1, 4900));
    link.send(message(2, 4900), ticket);
    expect(ticket.sent).toBe(false);
    expect(link.cancel(ticket)).toBe(true);
    await rig.settle();
    expect(numbers(rig.server.told)).toEqual([1]);
    await rig.close();
  });

  it("ends a live session if its reader is too slow for it", async () => {
    const rig = await Rig.live();
    expect(rig.server.link.endSession("too slow")).toBe(true);
    expect(rig.server.link.endSession("too slow again")).toBe(true);
    expect(rig.wire.server.closedWith).toEqual({ code: 1013, reason: "too slow" });
    await rig.settle();
    expect(rig.server.told.notices).toEqual([{ closed: { code: 1013, reason: "too slow" } }]);
    expect(rig.told.notices).toEqual(["suspended", { lost: "the session ended with 1013 (too slow)" }]);
    await rig.close();
  });

  it("drops broadcasts beyond a lower limit, and ends no session", async () => {
    const rig = await Rig.live();
    const { link } = rig.server;
    for (let i = 0; i < LIMITS.logFrames; i++) sendEncoded(link, new EncodedMessage(message(i)));
    const waits = new EncodedMessage(message(16, 1000));
    let taken = 0;
    while (taken < 100 && sendEncoded(link, waits)) taken++;
    expect(taken).toBeGreaterThan(10);
    expect(taken).toBeLessThan(20);
    expect(link.send(message(17, 1000))).toBe(true);
    await rig.settle();
    expect(rig.told.messages).toHaveLength(LIMITS.logFrames + taken + 1);
    expect(rig.told.notices).toEqual([]);
    await rig.close();
  });

  it("drops broadcasts to a session without a socket beyond a quarter of the limit", async () => {
    const rig = await Rig.live();
    rig.cut();
    const { link } = rig.server;
    const broadcast = new EncodedMessage(message("b", 1000));
    let taken = 0;
    for (let i = 0; i < 1000; i++) if (sendEncoded(link, broadcast)) taken++;
    expect(taken).toBeGreaterThan(10);
    expect(taken * 1000).toBeLessThan(LIMITS.queueLength / 2);
    // The first dropped broadcast no longer fits when others are sent.
    expect(sendEncoded(link, broadcast)).toBe(false);
    await microtasks();
    expect(rig.server.told.notices).toEqual(["suspended"]);
    rig.reconnect();
    await rig.settle();
    expect(numbers(rig.told)).toEqual(Array(taken).fill("b"));
    await rig.close();
  });

  it("allows as much beside broadcasts as without them, all in order", async () => {
    const rig = await Rig.live();
    rig.cut();
    const { link } = rig.server;
    const expected: unknown[] = [];
    let n = 0;
    const broadcast = (): boolean => sendEncoded(link, new EncodedMessage(message(`b${n}`, 1000)));
    for (; n < 100; n++) if (broadcast()) expected.push(`b${n}`);
    for (let i = 0; i < 9; i++, n++) {
      expect(link.send(message(n, 4000))).toBe(true);
      expected.push(n);
      expect(broadcast()).toBe(false);
    }
    expect(expected.length).toBeGreaterThan(20);
    rig.reconnect();
    await rig.settle();
    expect(numbers(rig.told)).toEqual(expected);
    expect(rig.told.notices).toEqual(["suspended", "resumed"]);
    // One more would have exceeded the limit, as without broadcasts.
    rig.cut();
    for (let i = 0; i < 100; i++) broadcast();
    for (let i = 0; i < 10; i++) link.send(message(i, 4000));
    await microtasks();
    expect(rig.server.told.notices.at(-1)).toMatchObject({ closed: { code: 1013 } });
    await rig.close();
  });

  it("counts many small messages like few long ones", async () => {
    const rig = await Rig.live();
    rig.cut();
    let taken = 0;
    while (rig.client.link.send("1")) taken++;
    expect(taken).toBeLessThanOrEqual(40_000 / 64);
    await microtasks();
    expect(rig.told.notices).toMatchObject(["suspended", { lost: expect.any(String) }]);
    await rig.close();
  });

  it("does not end the session twice, nor a link that was closed before", async () => {
    const rig = await Rig.live();
    rig.cut();
    while (rig.client.link.send(message(1, 4000)));
    rig.client.link.close();
    await microtasks();
    expect(rig.told.notices).toEqual(["suspended", { closed: { code: 1000, reason: "" } }]);
    await rig.close();
  });
});

describe("an ack", () => {
  it("is sent on receipt of a quarter of the other side's frames", async () => {
    const rig = await Rig.live();
    for (let i = 1; i <= 8; i++) {
      rig.client.link.send(message(i));
      await rig.settle();
      expect(controls(rig.wire.server.sent).slice(1)).toEqual([{ ack: 4 }, { ack: 8 }].slice(0, Math.floor(i / 4)));
    }
    await rig.close();
  });

  it("is sent on receipt of a quarter of the other side's length", async () => {
    const rig = await Rig.live();
    rig.client.link.send(message(1, 4900));
    await rig.settle();
    expect(controls(rig.wire.server.sent).slice(1)).toEqual([]);
    rig.client.link.send(message(2, 80));
    await rig.settle();
    expect(controls(rig.wire.server.sent).slice(1)).toEqual([{ ack: 2 }]);
    await rig.close();
  });

  it("is not queued without limit for a peer that reads none: with more than a log unsent the session ends", async () => {
    const rig = await Rig.live({ limits: { logFrames: 1 } });
    const { server } = rig.wire;
    server.unsentBytes = HIGH_WATER;
    server.inject("[]");
    await microtasks();
    expect(controls(server.sent).slice(1)).toEqual([{ ack: 1 }]);
    server.unsentBytes++;
    server.inject("[]");
    await microtasks();
    expect(controls(server.sent).slice(1)).toEqual([{ ack: 1 }]);
    expect(server.closedWith).toMatchObject({ code: 1013 });
    server.inject(`[${message(1)}]`);
    expect(rig.server.told.messages).toEqual([]);
    await rig.close();
  });

  it("waits for its own side's data if that fills the socket, and ends no session", async () => {
    const rig = await Rig.live({ limits: { logFrames: 1 } });
    const { server } = rig.wire;
    rig.server.link.send(message(1));
    server.unsentBytes = HIGH_WATER + 1;
    await microtasks();
    server.inject("[]");
    server.inject("[]");
    await microtasks();
    expect(server.closedWith).toBeUndefined();
    expect(controls(server.sent).slice(1)).toEqual([]);
    rig.pass(20);
    expect(controls(server.sent).slice(1)).toEqual([]);
    server.unsentBytes = 0;
    rig.pass(20);
    expect(controls(server.sent).slice(1)).toEqual([{ ack: 2 }]);
    rig.pass(20);
    expect(controls(server.sent).slice(1)).toEqual([{ ack: 2 }]);
    rig.cut({ code: 1002, reason: "" });
    await rig.close();
  });

  it("is sent once at the end of a tick if each of its packs made one due", async () => {
    const rig = await Rig.live({ limits: { logFrames: 1 } });
    const { server } = rig.wire;
    const acks = (): unknown[] => controls(server.sent).slice(1);
    for (let i = 0; i < 100; i++) server.inject("[]");
    expect(acks()).toEqual([]);
    await microtasks();
    expect(acks()).toEqual([{ ack: 100 }]);
    await rig.close();
  });

  it("is sent even if the acked message closes the link", async () => {
    const rig = await Rig.live({ limits: { logFrames: 4 } });
    const order: string[] = [];
    rig.wire.server.onSend = (frame) => order.push(frame);
    rig.server.told.dispatch = () => {
      order.push("dispatch");
      rig.server.link.close();
    };
    rig.client.link.send(message(1));
    await rig.settle();
    expect(order).toEqual(["dispatch", '{"ack":1}', '{"bye":{"code":1000,"reason":""}}']);
    await rig.close();
  });

  it("is sent beside data long before it is due, and with pings and pongs", async () => {
    const rig = await Rig.live({ limits: { logFrames: 4096, logLength: 2 ** 22 } });
    for (let i = 1; i <= 64; i++) {
      rig.client.link.send(message(i));
      await rig.settle();
    }
    expect(controls(rig.wire.server.sent)).toHaveLength(1);
    rig.server.link.send(message(1));
    await rig.settle();
    expect(rig.wire.server.sent.slice(-2)).toEqual(['{"ack":64}', '[{"n":1}]']);
    rig.client.link.ping();
    await rig.settle();
    expect(rig.wire.client.sent.slice(-2)).toEqual(['{"ack":1}', '{"ping":1}']);
    rig.client.link.send(message(65));
    await rig.settle();
    rig.client.link.ping();
    await rig.settle();
    expect(rig.wire.server.sent.slice(-2)).toEqual(['{"pong":1}', '{"ack":65}']);
    await rig.close();
  });

  it("needs no timer: with a stopped clock nothing is held back", async () => {
    const rig = await Rig.live();
    for (let i = 1; i <= 500; i++) {
      rig.client.link.send(message(i));
      rig.server.link.send(message(i));
      if (i % 10 === 0) await rig.settle();
    }
    await rig.settle();
    expect(numbers(rig.server.told)).toHaveLength(500);
    expect(numbers(rig.told)).toHaveLength(500);
    expect(rig.client.link.endpoint.state.session!.logLength).toBeLessThan(5000);
    await rig.close();
  });
});

describe("a liveness probe", () => {
  it("is answered by every received frame", async () => {
    const rig = await Rig.live();
    const before = rig.server.link.heard;
    rig.client.link.ping();
    await rig.settle();
    expect(rig.server.link.heard).toBe(before + 1);
    await rig.close();
  });

  it("is not sent to a peer that would not understand it, nor without a socket", async () => {
    const rig = new Rig();
    rig.client.link.ping();
    expect(rig.wire.client.sent).toEqual([]);
    await rig.settle();
    rig.cut();
    rig.client.link.ping();
    await rig.close();
  });
});
