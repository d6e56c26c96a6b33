/** Rule 7: what gets a number when, and what is kept. */
import { sendEncoded } from "../../support/links.js";
import { describe, expect, it } from "vitest";
import { EncodedMessage, type SendHandle } from "../../../src/core/transport.js";
import { useFakeClock } from "../../support/clock.js";
import { controls, LIMITS, message, numbers, packs, Rig } from "./rig.js";
import { microtasks } from "./wire.js";

useFakeClock();

const { highWaterBytes: HIGH_WATER } = LIMITS;
const newTicket = (): SendHandle => ({ sent: true });

describe("a message", () => {
  it("is sent once it has its place in a frame, and not while it waits", async () => {
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

  it("is sent, as far as its sender knows, when it stands in a frame that the socket did not take any more", async () => {
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

  it("that waits can be taken back, and then never arrives", async () => {
    const rig = await Rig.live();
    rig.cut();
    const tickets = [1, 2, 3, 4].map((n) => {
      const ticket = newTicket();
      rig.client.link.send(message(n), ticket);
      return ticket;
    });
    const held = rig.client.link.heldLength;
    expect(rig.client.link.cancel(tickets[1]!)).toBe(true);
    expect(rig.client.link.cancel(tickets[1]!)).toBe(false);
    expect(rig.client.link.heldLength).toBe((held * 3) / 4);
    rig.reconnect();
    await rig.settle();
    expect(numbers(rig.server.told)).toEqual([1, 3, 4]);
    expect(rig.client.link.cancel(tickets[0]!)).toBe(false);
    await rig.close();
  });

  it("is not sent where the socket no longer takes it, which was not told yet", async () => {
    const rig = await Rig.live();
    rig.wire.client.open = false;
    const ticket = newTicket();
    expect(rig.client.link.send(message(1), ticket)).toBe(true);
    expect(sendEncoded(rig.client.link, new EncodedMessage(message(2)))).toBe(true);
    expect(ticket.sent).toBe(false);
    rig.cut();
    rig.reconnect();
    await rig.settle();
    expect(numbers(rig.server.told)).toEqual([1, 2]);
    await rig.close();
  });

  it("to many waits and is logged like any other", async () => {
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

describe("above high water", () => {
  it("nothing more gets a number, and all goes on when the socket has room", async () => {
    const rig = await Rig.live();
    const { client } = rig.wire;
    rig.client.link.send(message(1));
    client.unsentBytes = HIGH_WATER;
    await microtasks();
    const ticket = newTicket();
    rig.client.link.send(message(2), ticket);
    sendEncoded(rig.client.link, new EncodedMessage(message(3)));
    await microtasks();
    expect(ticket.sent).toBe(false);
    expect(rig.client.link.endpoint.state.session!.log.last).toBe(1);
    rig.pass(100);
    expect(ticket.sent).toBe(false);
    client.unsentBytes = HIGH_WATER - 1;
    rig.pass(20);
    await rig.settle();
    expect(ticket.sent).toBe(true);
    expect(numbers(rig.server.told)).toEqual([1, 2, 3]);
    await rig.close();
  });

  it("the socket is watched also if it is full at the end of a tick, and nothing is sent after that", async () => {
    const rig = await Rig.live();
    const { client } = rig.wire;
    rig.client.link.send(message(1));
    client.unsentBytes = HIGH_WATER;
    await microtasks();
    // It has its number, and was not written.
    expect(rig.client.link.endpoint.state.session!.log.last).toBe(1);
    expect(packs(client.sent)).toEqual([]);
    client.unsentBytes = 0;
    rig.pass(20);
    await rig.settle();
    expect(numbers(rig.server.told)).toEqual([1]);
    await rig.close();
  });

  it("control frames still leave, but no pong for who does not read", async () => {
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

  it("no timer runs while nothing waits, nor once the session is over", async () => {
    const rig = await Rig.live();
    rig.wire.client.unsentBytes = HIGH_WATER;
    rig.client.link.send(message(1));
    await microtasks();
    rig.cut({ code: 1002, reason: "" });
    await rig.close();
  });
});

describe("the log", () => {
  it("takes no more frames than it may, and what waits leaves when acks come", async () => {
    const rig = await Rig.live();
    for (let i = 1; i <= 40; i++) {
      rig.client.link.send(message(i));
      await microtasks();
    }
    expect(packs(rig.wire.client.sent)).toHaveLength(16);
    expect(rig.client.link.endpoint.state.session!.log.last).toBe(16);
    await rig.settle();
    expect(numbers(rig.server.told)).toEqual(Array.from({ length: 40 }, (_, i) => i + 1));
    await rig.close();
  });

  it("takes no more length than it may and one frame, the longest included", async () => {
    const rig = await Rig.live({ limits: { logLength: 6000 } });
    for (let i = 1; i <= 6; i++) {
      rig.client.link.send(message(i, 4900));
      await microtasks();
    }
    expect(rig.client.link.endpoint.state.session!.log.last).toBe(2);
    expect(rig.client.link.endpoint.state.session!.log.length).toBeLessThan(6000 + 5000);
    await rig.settle();
    expect(numbers(rig.server.told)).toEqual([1, 2, 3, 4, 5, 6]);
    await rig.close();
  });

  it("takes the longest message, though it is itself shorter", async () => {
    const rig = await Rig.live({ limits: { logLength: 10, logFrames: 1 } });
    for (let i = 1; i <= 3; i++) rig.client.link.send(message(i, 4900));
    await rig.settle();
    expect(numbers(rig.server.told)).toEqual([1, 2, 3]);
    await rig.close();
  });
});

describe("too much that waits", () => {
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

  it("may be more behind a full socket than without one: a burst", async () => {
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

  it("may be as much as without a burst if the socket is lost in the middle of one", async () => {
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
    // What waited at an earlier loss counts no more.
    expect(taken).toBe(26 + 9);
    await microtasks();
    expect(rig.server.told.notices.at(-1)).toMatchObject({ closed: { code: 1013 } });
    await rig.close();
  });

  it("is no more after attempts to resume that fail", async () => {
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

  it("gets no number behind a pack that fills the log", async () => {
    const rig = await Rig.live({ limits: { logFrames: 1 } });
    const { link } = rig.client;
    const ticket = newTicket();
    // Too long for one pack.
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

  it("is less for what goes to many: that is not taken, and ends nothing", async () => {
    const rig = await Rig.live();
    const { link } = rig.server;
    // Read, but not acked.
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

  it("is no broadcast: those to a session without a socket are dropped beyond a quarter of the limit", async () => {
    const rig = await Rig.live();
    rig.cut();
    const { link } = rig.server;
    const broadcast = new EncodedMessage(message("b", 1000));
    let taken = 0;
    for (let i = 0; i < 1000; i++) if (sendEncoded(link, broadcast)) taken++;
    expect(taken).toBeGreaterThan(10);
    expect(taken * 1000).toBeLessThan(LIMITS.queueLength / 2);
    // The first that was dropped fits no more when others are sent.
    expect(sendEncoded(link, broadcast)).toBe(false);
    await microtasks();
    expect(rig.server.told.notices).toEqual(["suspended"]);
    rig.reconnect();
    await rig.settle();
    expect(numbers(rig.told)).toEqual(Array(taken).fill("b"));
    await rig.close();
  });

  it("is as much beside broadcasts as without them, all in order", async () => {
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
    // One more would have been too much, as it is without broadcasts.
    rig.cut();
    for (let i = 0; i < 100; i++) broadcast();
    for (let i = 0; i < 10; i++) link.send(message(i, 4000));
    await microtasks();
    expect(rig.server.told.notices.at(-1)).toMatchObject({ closed: { code: 1013 } });
    await rig.close();
  });

  it("is many small messages as well as few long ones", async () => {
    const rig = await Rig.live();
    rig.cut();
    let taken = 0;
    while (rig.client.link.send("1")) taken++;
    expect(taken).toBeLessThanOrEqual(40_000 / 64);
    await microtasks();
    expect(rig.told.notices).toMatchObject(["suspended", { lost: expect.any(String) }]);
    await rig.close();
  });

  it("does not end it twice, nor a link that was closed meanwhile", async () => {
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

  it("is not owed without end to who reads none: with more than a log unsent the session ends", async () => {
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

  it("waits for the data of its own side if that fills the socket, and ends no session", async () => {
    const rig = await Rig.live({ limits: { logFrames: 1 } });
    const { server } = rig.wire;
    rig.server.link.send(message(1));
    // One message can be longer than a log.
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

  it("that each pack of a tick makes due is sent once, at its end", async () => {
    const rig = await Rig.live({ limits: { logFrames: 1 } });
    const { server } = rig.wire;
    const acks = (): unknown[] => controls(server.sent).slice(1);
    for (let i = 0; i < 100; i++) server.inject("[]");
    expect(acks()).toEqual([]);
    await microtasks();
    expect(acks()).toEqual([{ ack: 100 }]);
    await rig.close();
  });

  it("is sent although what it is for closes the link", async () => {
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

  it("goes beside data long before it is due, and with pings and pongs", async () => {
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

  it("needs no timer: with a clock that stands still nothing is held back", async () => {
    const rig = await Rig.live();
    for (let i = 1; i <= 500; i++) {
      rig.client.link.send(message(i));
      rig.server.link.send(message(i));
      if (i % 10 === 0) await rig.settle();
    }
    await rig.settle();
    expect(numbers(rig.server.told)).toHaveLength(500);
    expect(numbers(rig.told)).toHaveLength(500);
    expect(rig.client.link.endpoint.state.session!.log.length).toBeLessThan(5000);
    await rig.close();
  });
});

describe("a sign of life", () => {
  it("is every frame that comes", async () => {
    const rig = await Rig.live();
    const before = rig.server.link.heard;
    rig.client.link.ping();
    await rig.settle();
    expect(rig.server.link.heard).toBe(before + 1);
    await rig.close();
  });

  it("is not asked for where nobody would understand, or on nothing", async () => {
    const rig = new Rig();
    rig.client.link.ping();
    expect(rig.wire.client.sent).toEqual([]);
    await rig.settle();
    rig.cut();
    rig.client.link.ping();
    await rig.close();
  });
});
