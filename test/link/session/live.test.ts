/** Messages that a newer one makes obsolete, and the report of dropped messages, over a session frame by frame. */
import { describe, expect, it } from "vitest";
import { LatestHandle } from "../../../src/core/send-queue.js";
import { EncodedMessage } from "../../../src/core/transport.js";
import { BroadcastHandle } from "../../../src/server/held-queue.js";
import type { ServerLink } from "../../../src/server/link.js";
import type { PackedLink } from "../../../src/session/link.js";
import { useFakeClock } from "../../support/clock.js";
import { controls, LIMITS, message, numbers, range, Rig, type Told } from "./rig.js";
import { microtasks } from "./wire.js";

useFakeClock();

/** Sends a message of which the newest of its key suffices. */
function sendLatest(link: PackedLink, n: number | string, key: string, padding = 0, method = "moved"): boolean {
  return link.send(message(n, padding), new LatestHandle(method, key));
}

/** Sends such a message to many links, encoded once. Returns how many took it. */
function broadcastLatest(links: readonly ServerLink[], n: number | string, key: string, padding = 0): number {
  const encoded = new EncodedMessage(message(n, padding));
  const handle = new BroadcastHandle("moved", key);
  return links.filter((link) => link.send(encoded.text, handle, encoded)).length;
}

const counted = (told: Told): unknown[] => told.missedCounts;
const reports = (frames: readonly string[]): unknown[] => controls(frames).filter((frame) => "missed" in frame);

describe("a message with a key", () => {
  it("is sent at once while messages flow, each one", async () => {
    await using rig = await Rig.live();
    for (const n of range(1, 3)) sendLatest(rig.client.link, n, "a");
    await rig.settle();
    expect(numbers(rig.server.emitted)).toEqual([1, 2, 3]);
  });

  it("replaces the older one of its method and key in the queue, and has its own place there", async () => {
    await using rig = await Rig.live();
    const { link } = rig.client;
    rig.cut();
    sendLatest(link, "a1", "a");
    link.send(message(1));
    sendLatest(link, "b1", "b");
    sendLatest(link, "a2", "a");
    link.send(message(2));
    sendLatest(link, "other", "a", 0, "typed");
    sendLatest(link, "a3", "a");
    await rig.comeBack();
    expect(numbers(rig.server.emitted)).toEqual([1, "b1", 2, "other", "a3"]);
  });

  it("keeps methods and keys apart that are equal when joined", async () => {
    await using rig = await Rig.live();
    const { link } = rig.client;
    rig.cut();
    sendLatest(link, 1, "ab", 0, "c");
    sendLatest(link, 2, "a", 0, "bc");
    sendLatest(link, 3, "1:a", 0, "b");
    await rig.comeBack();
    expect(numbers(rig.server.emitted)).toEqual([1, 2, 3]);
  });

  it("replaces none that is in the replay log", async () => {
    await using rig = await Rig.live();
    const { link } = rig.client;
    sendLatest(link, 1, "a");
    await microtasks();
    rig.cut();
    sendLatest(link, 2, "a");
    sendLatest(link, 3, "a");
    await rig.comeBack();
    expect(numbers(rig.server.emitted)).toEqual([1, 3]);
  });

  it("is queued in this way behind a full socket, too, and sent when that has drained", async () => {
    await using rig = await Rig.live();
    const { client } = rig.wire;
    rig.client.link.send(message(0));
    client.unsentBytes = LIMITS.highWaterBytes;
    await microtasks();
    for (const n of range(1, 50)) sendLatest(rig.client.link, n, "a");
    client.unsentBytes = 0;
    rig.pass(20);
    await rig.settle();
    expect(numbers(rig.server.emitted)).toEqual([0, 50]);
  });

  it("takes the room of the one that it replaces: a full queue takes it, and the session goes on", async () => {
    await using rig = await Rig.live({ limits: { queueLength: 2500 } });
    rig.cut();
    for (const n of range(1, 20)) expect(sendLatest(rig.client.link, n, "a", 2000)).toBe(true);
    await rig.comeBack();
    expect(numbers(rig.server.emitted)).toEqual([20]);
    expect(rig.owner).not.toContain("over");
  });

  it("is dropped if it is the oldest of more than 1,024 keys, and this side reports it", async () => {
    await using rig = await Rig.live({ limits: { queueLength: 2 ** 20, logLength: 2 ** 20, logFrames: 4096 } });
    rig.cut();
    for (const n of range(1, 1024)) sendLatest(rig.client.link, n, `key ${n}`);
    // The first is the newest now.
    sendLatest(rig.client.link, "again", "key 1");
    expect(rig.emitted.drops).toEqual([]);
    for (const n of range(1025, 1027)) sendLatest(rig.client.link, n, `key ${n}`);
    expect(rig.emitted.drops).toEqual(["moved", "moved", "moved"]);
    await rig.comeBack();
    expect(numbers(rig.server.emitted)).toEqual([...range(5, 1024), "again", ...range(1025, 1027)]);
  });

  it("is one queued message among broadcasts and others: the newest stays, whichever it is", async () => {
    await using rig = await Rig.live();
    const { link } = rig.server;
    rig.cut();
    sendLatest(link, 1, "a");
    expect(broadcastLatest([link], 2, "a")).toBe(1);
    expect(link.heldBroadcastLength).toBeGreaterThan(0);
    sendLatest(link, 3, "a");
    expect(link.heldBroadcastLength).toBe(0);
    broadcastLatest([link], 4, "b");
    sendLatest(link, 5, "c");
    broadcastLatest([link], 6, "c");
    await rig.comeBack();
    expect(numbers(rig.emitted)).toEqual([3, 4, 6]);
  });

  it("as a broadcast is dropped where the queue is full of others, and with it the older one", async () => {
    await using rig = await Rig.live({ limits: { queueLength: 4000 } });
    const { link } = rig.server;
    rig.cut();
    expect(broadcastLatest([link], 1, "a")).toBe(1);
    link.send(message(2, 1900));
    expect(broadcastLatest([link], 3, "a", 100)).toBe(0);
    await rig.comeBack();
    expect(numbers(rig.emitted)).toEqual([2]);
  });
});

/** Two suspended sessions of one server, and their links. */
async function suspendedPair(maxHeldLength: number): Promise<{ rig: Rig; links: ServerLink[] }> {
  const rig = await Rig.live({
    sessions: { maxHeldLength },
    limits: { maxMessageBytes: 50_000, queueLength: 2 ** 20 },
  });
  rig.arrival(false);
  await rig.settle();
  rig.cut();
  for (const { server } of rig.wires) server.cut();
  return { rig, links: rig.servers.map(({ link }) => link) };
}

describe("the text of a broadcast with a key", () => {
  it("counts once towards the bound of all sessions, and each reference counts", async () => {
    const { rig, links } = await suspendedPair(2 ** 20);
    expect(rig.sessions.suspended).toBe(2);
    broadcastLatest(links, 1, "a", 10_000);
    const text = message(1, 10_000).length;
    expect(rig.sessions.held).toBe(text + 2 * 64);
    broadcastLatest(links, 2, "a", 20_000);
    expect(rig.sessions.held).toBe(message(2, 20_000).length + 2 * 64);
    // One session replaces it: the other one still has the text.
    broadcastLatest([links[0]!], 3, "a", 1000);
    expect(rig.sessions.held).toBe(message(2, 20_000).length + message(3, 1000).length + 2 * 64);
    broadcastLatest(links, 4, "a", 10);
    expect(rig.sessions.held).toBe(message(4, 10).length + 2 * 64);
    for (const link of links) link.endpoint.end(1013, "enough");
    await rig.settle();
    expect(rig.sessions.held).toBe(0);
    await rig[Symbol.asyncDispose]();
  });

  it("is dropped beyond a quarter of that bound, unless another session has it already", async () => {
    const { rig, links } = await suspendedPair(40_000);
    expect(broadcastLatest(links, 1, "a", 9000)).toBe(2);
    expect(broadcastLatest(links, 2, "b", 9000)).toBe(0);
    expect(broadcastLatest(links, 3, "c", 200)).toBe(2);
    for (const link of links) link.endpoint.end(1013, "enough");
    await rig.settle();
    expect(rig.sessions.held).toBe(0);
    await rig[Symbol.asyncDispose]();
  });

  it("that was queued behind a full socket counts from the suspension to the resumption", async () => {
    await using rig = await Rig.live();
    const { link } = rig.server;
    link.send(message(0));
    rig.wire.server.unsentBytes = LIMITS.highWaterBytes;
    await microtasks();
    broadcastLatest([link], 1, "a", 1000);
    expect(rig.sessions.held).toBe(0);
    rig.cut();
    const { held } = rig.sessions;
    expect(held).toBeGreaterThan(message(1, 1000).length);
    broadcastLatest([link], 2, "a", 2000);
    expect(rig.sessions.held).toBe(held + 1000);
    await rig.comeBack();
    expect(rig.sessions.held).toBe(0);
    expect(numbers(rig.emitted)).toEqual([0, 2]);
  });
});

describe("the report of dropped messages", () => {
  it("is a data frame at its place among the messages: it is counted, logged and acknowledged", async () => {
    await using rig = await Rig.live();
    const { link } = rig.server;
    link.send(message(1));
    link.reportMissed(2);
    link.send(message(3));
    await rig.settle();
    const data = rig.wire.server.sent.filter((frame) => frame.startsWith("[") || frame.startsWith('{"missed"'));
    expect(data).toEqual([`[${message(1)}]`, '{"missed":2}', `[${message(3)}]`]);
    expect(link.endpoint.state.session!.last).toBe(3);
    expect(rig.client.link.endpoint.state.session!.received).toBe(3);
    expect(rig.emitted.log).toEqual([1, { missed: 2 }, 3]);
  });

  it("is sent when messages flow again, before the messages that were queued meanwhile, and once", async () => {
    await using rig = await Rig.live();
    const { link } = rig.server;
    rig.cut();
    link.reportMissed(1);
    link.send(message(1));
    link.reportMissed(4);
    await rig.comeBack();
    expect(rig.emitted.log).toEqual([{ missed: 5 }, 1]);
    await rig.cutAndResume();
    link.send(message(2));
    await rig.settle();
    expect(rig.emitted.log).toEqual([{ missed: 5 }, 1, 2]);
  });

  it("is replayed if its socket is lost before it has arrived, with the same count, and never twice", async () => {
    await using rig = await Rig.live();
    const { link } = rig.server;
    link.reportMissed(3);
    await microtasks();
    expect(reports(rig.wire.server.sent)).toEqual([{ missed: 3 }]);
    // Lost in flight.
    rig.cut();
    link.reportMissed(2);
    await rig.comeBack();
    expect(counted(rig.emitted)).toEqual([3, 2]);
    // It has arrived, and the ack of it is lost.
    link.reportMissed(1);
    await microtasks();
    while (rig.wire.client.deliver());
    await rig.cutAndResume();
    expect(counted(rig.emitted)).toEqual([3, 2, 1]);
  });

  it("waits while the log or the socket is full, and counts further messages meanwhile", async () => {
    await using rig = await Rig.live();
    const { link } = rig.server;
    link.send(message(0));
    rig.wire.server.unsentBytes = LIMITS.highWaterBytes;
    await microtasks();
    for (let i = 0; i < 10; i++) link.reportMissed(1);
    expect(reports(rig.wire.server.sent)).toEqual([]);
    rig.wire.server.unsentBytes = 0;
    rig.pass(20);
    await rig.settle();
    expect(rig.emitted.log).toEqual([0, { missed: 10 }]);
  });

  it("waits while the log is full", async () => {
    await using rig = await Rig.live();
    const { link } = rig.server;
    for (let n = 1; n <= LIMITS.logFrames; n++) {
      link.send(message(n));
      await microtasks();
    }
    link.reportMissed(7);
    await microtasks();
    expect(link.endpoint.state.session!.last).toBe(LIMITS.logFrames);
    link.send(message("queued"));
    await rig.settle();
    expect(rig.emitted.log).toEqual([...range(1, LIMITS.logFrames), { missed: 7 }, "queued"]);
  });

  it("ends with its session", async () => {
    await using rig = await Rig.live();
    const { link } = rig.server;
    rig.cut();
    link.reportMissed(3);
    link.endpoint.end(1013, "enough");
    await rig.comeBack();
    rig.server.link.send(message(1));
    await rig.settle();
    expect(counted(rig.emitted)).toEqual([]);
    expect(numbers(rig.emitted)).toEqual([1]);
  });

  it("is the same from a client to its server", async () => {
    await using rig = await Rig.live();
    rig.client.link.reportMissed(2);
    await rig.settle();
    expect(counted(rig.server.emitted)).toEqual([2]);
  });

  it.each(["0", "-1", "0.5", '"1"', "null", "true", "[]", "9007199254740992"])(
    "ends the session with 1002 if its count is %s",
    async (count) => {
      await using rig = await Rig.live();
      rig.wire.client.inject(`{"missed":${count}}`);
      await rig.settle();
      expect(rig.ends).toMatchObject([{ code: 1002 }]);
      expect(counted(rig.emitted)).toEqual([]);
    },
  );
});
