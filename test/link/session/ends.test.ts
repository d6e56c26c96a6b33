/** Rules 6, 8 and 9: which events end a session, and which only suspend it. */
import { describe, expect, it, vi } from "vitest";
import type { Transport } from "../../../src/core/transport.js";
import { useFakeClock } from "../../support/clock.js";
import { heldBy } from "../../support/links.js";
import { controls, message, numbers, packs, resume, Rig, WIRE_LIMITS } from "./rig.js";
import { microtasks } from "./wire.js";

useFakeClock();

const REFUSED = '{"resumed":{"refused":"unknown-session"}}';
const FINAL = [1002, 1003, 1007, 1008, 1009, 1010, 1013, 4400, 4401, 4413, 4499];
const PASSING = [1000, 1001, 1004, 1005, 1006, 1011, 1012, 1014, 1015, 3000, 4000, 4399, 4500, 4999];

describe("a close (rule 6)", () => {
  it.each(FINAL)("ends the session at the receiving end with code %i", async (code) => {
    const rig = await Rig.live();
    rig.client.link.send(message(1));
    rig.cut({ code, reason: "why" });
    expect(rig.client.isResumable).toBe(false);
    const lost = ["suspended", { lost: `the session ended with ${code} (why)` }];
    expect(rig.told.notices).toEqual(lost);
    expect(rig.owner).toEqual(["over"]);
    expect(rig.server.told.notices).toEqual([{ closed: { code, reason: "why" } }]);
    expect(rig.sessions).toMatchObject({ suspended: 0, tokens: { size: 0 } });
    rig.reconnect();
    await rig.settle();
    expect(rig.told.notices).toEqual([...lost, "resumed"]);
    expect(rig.owner).toEqual(["over", "fresh"]);
    expect(rig.servers).toHaveLength(2);
    await rig.close();
  });

  it.each(PASSING)("suspends the session with code %i", async (code) => {
    const rig = await Rig.live();
    rig.cut({ code, reason: "" });
    expect(rig.told.notices).toEqual(["suspended"]);
    expect(rig.server.told.notices).toEqual(["suspended"]);
    expect(rig.sessions.suspended).toBe(1);
    rig.reconnect();
    await rig.settle();
    expect(rig.told.notices).toEqual(["suspended", "resumed"]);
    await rig.close();
  });

  it("is ignored if the socket failed with an error", async () => {
    const rig = await Rig.live();
    const error = new RangeError("Max payload size exceeded");
    const lost = vi.spyOn(rig.told as never, "lost");
    rig.cut({ code: 1009, reason: "", error });
    expect(lost).toHaveBeenCalledExactlyOnceWith(error, rig.client.link);
    await rig.close();
  });
});

describe("an unreadable frame", () => {
  it.each(["[1,", '"text"', "1", "null", ""])("ends the session of both ends: %j", async (frame) => {
    const rig = await Rig.live();
    rig.wire.server.inject(frame);
    expect(rig.wire.server.closedWith).toMatchObject({ code: 1002 });
    expect(rig.sessions.tokens.size).toBe(0);
    // Nothing after it is read.
    rig.wire.server.inject('[{"n":1}]');
    rig.wire.server.inject('{"ping":1}');
    await rig.settle();
    expect(rig.server.told.messages).toEqual([]);
    expect(rig.server.told.notices).toMatchObject([{ closed: { code: 1002 } }]);
    expect(rig.told.notices).toMatchObject(["suspended", { lost: expect.stringContaining("1002") }]);
    await rig.close();
  });

  it("ends the session also if the close is never answered", async () => {
    const rig = await Rig.live();
    rig.wire.server.inject("[1,");
    rig.wire.server.cut({ code: 1006, reason: "" });
    expect(rig.server.told.notices).toMatchObject([{ closed: { code: 1002 } }]);
    await rig.close();
  });
});

describe("a message over this side's limit (rule 6)", () => {
  it("ends the session with 1009, also if the close is never answered", async () => {
    const rig = await Rig.live();
    rig.wire.server.inject(`[${message(1, 5000)}]`);
    expect(rig.wire.server.closedWith).toMatchObject({ code: 1009 });
    rig.wire.server.cut({ code: 1006, reason: "" });
    expect(rig.server.told.messages).toEqual([]);
    expect(rig.server.told.notices).toEqual([{ closed: { code: 1009, reason: "message is too large" } }]);
    expect(rig.sessions).toMatchObject({ suspended: 0, tokens: { size: 0 } });
    await rig.close();
  });

  it("ends the session at once: a client that has not read the close cannot resume", async () => {
    const rig = await Rig.live();
    rig.wire.server.inject(`[${message(1, 5000)}]`);
    expect(rig.sessions.tokens.size).toBe(0);
    rig.wire.client.cut();
    // The client reconnects before the server notices that the old socket is gone.
    await rig.reconnect().settle();
    const lost = "the server has no such session any more";
    expect(rig.told.notices).toEqual(["suspended", { lost }, "resumed"]);
    rig.wires[0]!.server.cut();
    expect(rig.servers[0]!.told.notices).toEqual([{ closed: { code: 1009, reason: "message is too large" } }]);
    rig.cut();
    expect(rig.servers[1]!.told.notices).toEqual(["suspended"]);
    await rig.close();
  });
});

describe("bye (rule 6)", () => {
  it("is sent before the close, behind all sent messages", async () => {
    const rig = await Rig.live();
    rig.client.link.send(message(1));
    rig.client.link.close(4001, "enough");
    expect(rig.wire.client.sent.slice(-2)).toEqual(['[{"n":1}]', '{"bye":{"code":4001,"reason":"enough"}}']);
    await rig.settle();
    expect(numbers(rig.server.told)).toEqual([1]);
    expect(rig.server.told.notices).toEqual([{ closed: { code: 4001, reason: "enough" } }]);
    expect(rig.told.notices).toEqual([{ closed: { code: 4001, reason: "enough" } }]);
    expect(rig.sessions.tokens.size).toBe(0);
  });

  it("is sent behind all messages that were queued for the socket and for acks", async () => {
    const rig = await Rig.live();
    const { client } = rig.wire;
    client.unsentBytes = 2 ** 20;
    for (let i = 1; i <= 30; i++) {
      rig.client.link.send(message(i, 800));
      await microtasks();
    }
    rig.client.link.close();
    await rig.settle();
    expect(numbers(rig.server.told)).toEqual(Array.from({ length: 30 }, (_, i) => i + 1));
    expect(rig.server.told.notices).toEqual([{ closed: { code: 1000, reason: "" } }]);
  });

  it("ends the session even if the close behind it is lost", async () => {
    const rig = await Rig.live();
    rig.server.link.close(1001, "going away");
    rig.wire.client.deliver();
    expect(rig.client.isResumable).toBe(false);
    rig.wire.client.cut();
    expect(rig.told.notices).toEqual(["suspended", { lost: "the session ended with 1001 (going away)" }]);
    await rig.close();
  });

  it("is the last frame that is read", async () => {
    const rig = await Rig.live();
    rig.wire.server.inject('{"bye":{"code":1000,"reason":""}}');
    rig.wire.server.inject('[{"n":1}]');
    rig.wire.server.inject("[1,");
    expect(rig.server.told.messages).toEqual([]);
    expect(rig.wire.server.open).toBe(true);
    await rig.close();
  });

  it.each([
    [{ code: 999, reason: "" }],
    [{ code: 5000, reason: "" }],
    [{ code: 1000.5, reason: "" }],
    [{ code: "1000", reason: "" }],
    [{ code: 1000 }],
    [null],
    [5],
  ])("is read as 1000 without a reason if it is %j", async (bye) => {
    const rig = await Rig.live();
    rig.wire.server.inject(JSON.stringify({ bye }));
    rig.wire.server.cut();
    expect(rig.server.told.notices).toEqual([{ closed: { code: 1000, reason: "" } }]);
    await rig.close();
  });

  it("is accepted in place of `resumed`", async () => {
    const rig = await Rig.live();
    rig.cut();
    const { client } = rig.reconnect();
    client.deliver();
    client.inject('{"bye":{"code":1001,"reason":""}}');
    client.cut();
    expect(rig.told.notices).toEqual(["suspended", { lost: "the session ended with 1001" }]);
    await rig.close();
  });

  it("is the last frame also without a session, and gives the reported close", async () => {
    const rig = new Rig();
    rig.wire.client.deliver();
    rig.wire.server.inject('{"hello":{}}');
    rig.wire.server.inject('{"bye":{"code":4001,"reason":"enough"}}');
    rig.wire.server.inject('[{"n":1}]');
    expect(rig.server.told.messages).toEqual([]);
    rig.wire.server.cut();
    expect(rig.server.told.notices).toEqual([{ closed: { code: 4001, reason: "enough" } }]);
    await rig.close();
  });
});

describe("a message over the other side's limit (rule 6)", () => {
  it("is refused and not logged, live and suspended, and the session continues", async () => {
    const rig = await Rig.live();
    const { link } = rig.client;
    expect(link.maxMessageBytes).toBe(5000);
    const longest = JSON.stringify("x".repeat(4998));
    const tooLong = JSON.stringify("x".repeat(4999));
    const multibyte = JSON.stringify("é".repeat(2500));
    for (const text of [tooLong, multibyte]) expect(link.send(text)).toBe(false);
    expect(heldBy(link)).toBe(0);
    expect(link.send(longest)).toBe(true);
    rig.cut();
    for (const text of [tooLong, multibyte]) expect(link.send(text)).toBe(false);
    expect(link.send(longest)).toBe(true);
    rig.reconnect();
    await rig.settle();
    expect(rig.server.told.messages).toHaveLength(2);
    await rig.close();
  });

  it("is not refused before a session announces the limit", async () => {
    const rig = new Rig();
    expect(rig.client.link.maxMessageBytes).toBeUndefined();
    await rig.settle();
    await rig.close();
  });
});

describe("close() while suspended (rule 8)", () => {
  it("ends a client's session at once, and drops its token", async () => {
    const rig = await Rig.live();
    rig.cut();
    rig.client.link.close(4002, "done");
    expect(rig.told.notices).toEqual(["suspended", { closed: { code: 4002, reason: "done" } }]);
    expect(rig.client.isResumable).toBe(false);
    expect(rig.client.link.send(message(1))).toBe(false);
    expect(heldBy(rig.client.link)).toBe(0);
    rig.client.link.close();
    expect(rig.told.notices).toHaveLength(2);
    await rig.close();
  });

  it("ends a server's session at once: a later `resume` gets unknown-session", async () => {
    const rig = await Rig.live();
    rig.cut();
    rig.server.link.close(1001, "the server is closing");
    expect(rig.server.told.notices).toEqual(["suspended", { closed: { code: 1001, reason: "the server is closing" } }]);
    expect(rig.sessions).toMatchObject({ suspended: 0, held: 0, tokens: { size: 0 } });
    rig.reconnect();
    await rig.settle();
    expect(rig.wire.server.sent).toContain(REFUSED);
    await rig.close();
  });

  it("ends a client that waits for `resumed` at once, and closes that socket", async () => {
    const rig = await Rig.live();
    rig.cut();
    const { client } = rig.reconnect();
    client.deliver();
    rig.client.link.close(4002, "done");
    expect(rig.told.notices.at(-1)).toEqual({ closed: { code: 4002, reason: "done" } });
    expect(client.closedWith).toMatchObject({ code: 4000 });
    await rig.settle();
    expect(rig.told.notices).toHaveLength(2);
    await rig.close();
  });

  it("closes a socket that connects after it", async () => {
    const rig = await Rig.live();
    rig.cut();
    rig.client.link.close();
    const wire = rig.openBare();
    rig.client.attach(wire.client, { session: { token: "t", ttlMs: 1000, limits: WIRE_LIMITS } });
    expect(wire.client.closedWith).toMatchObject({ code: 4000 });
    expect(wire.client.sent).toEqual([]);
    expect(rig.client.link.socket).toBeUndefined();
    await rig.close();
  });

  it.each(["suspended", "resumed", "lost"])("can be called by a client in its %s hook", async (notice) => {
    const rig = await Rig.live();
    const { link } = rig.client;
    Object.assign(rig.told, {
      [notice]: (_error?: Error, next?: Transport) => {
        next?.start(rig.told);
        (next ?? link).close(4003, "no more");
      },
    });
    rig.cut(notice === "lost" ? { code: 1002, reason: "" } : undefined);
    if (notice === "resumed") {
      rig.reconnect();
      await rig.settle();
    }
    expect(rig.told.notices.at(-1)).toEqual({ closed: { code: 4003, reason: "no more" } });
    await rig.close();
  });

  it("can be called by a server in its suspended hook", async () => {
    const rig = await Rig.live();
    vi.spyOn(rig.server.told, "suspended").mockImplementation(() => rig.server.link.close(4003, "no more"));
    rig.cut();
    expect(rig.server.told.notices).toEqual([{ closed: { code: 4003, reason: "no more" } }]);
    expect(rig.sessions).toMatchObject({ suspended: 0, tokens: { size: 0 } });
    await rig.close();
  });
});

describe("close() of a session that has ended, and whose socket has not", () => {
  it("reports how the socket closes", async () => {
    const rig = await Rig.live();
    rig.wire.server.inject("[1,");
    rig.server.link.close(1001, "going away");
    expect(rig.wire.server.closedWith).toMatchObject({ code: 1002 });
    expect(rig.server.told.notices).toEqual([]);
    rig.wire.server.cut({ code: 1002, reason: "read" });
    expect(rig.server.told.notices).toEqual([{ closed: { code: 1002, reason: "read" } }]);
    await rig.close();
  });

  it("closes the socket behind a bye whose close does not come", async () => {
    const rig = await Rig.live();
    rig.wire.client.inject('{"bye":{"code":1001,"reason":""}}');
    expect(rig.wire.client.open).toBe(true);
    rig.client.link.close(4002, "done");
    expect(rig.wire.client.closedWith).toEqual({ code: 4002, reason: "done" });
    rig.wire.client.cut({ code: 4002, reason: "done" });
    expect(rig.told.notices).toEqual([{ closed: { code: 4002, reason: "done" } }]);
    expect(rig.owner).toEqual([]);
    await rig.close();
  });
});

describe("a session without a socket (rule 8)", () => {
  it("lasts for its timeout at both ends, and not a moment longer", async () => {
    const rig = await Rig.live();
    rig.cut();
    rig.client.link.send(message(1));
    rig.server.link.send(message(1));
    rig.pass(59_999);
    await microtasks();
    expect([rig.told.notices.length, rig.server.told.notices.length]).toEqual([1, 1]);
    rig.pass(1);
    await microtasks();
    const why = "the session was not resumed within 60000 ms";
    expect(rig.told.notices.at(-1)).toEqual({ lost: `the session ended with 1006 (${why})` });
    expect(rig.server.told.notices.at(-1)).toEqual({ closed: { code: 1006, reason: why } });
    expect(rig.sessions).toMatchObject({ suspended: 0, held: 0, tokens: { size: 0 } });
    expect([heldBy(rig.client.link), rig.server.link.heldLength]).toEqual([0, 0]);
    expect(rig.server.link.send(message(2))).toBe(false);
    await rig.close();
  });

  it("restarts its timeout with each loss", async () => {
    const rig = await Rig.live();
    for (let i = 0; i < 3; i++) {
      rig.cut();
      rig.pass(59_000);
      rig.reconnect();
      await rig.settle();
    }
    expect(rig.told.notices.at(-1)).toBe("resumed");
    rig.pass(120_000);
    await microtasks();
    expect(rig.told.notices.at(-1)).toBe("resumed");
    await rig.close();
  });

  it("expires at the server when the timeout has passed, however late its timer fires", async () => {
    const rig = await Rig.live();
    rig.cut();
    const { now } = performance;
    const late = vi.spyOn(performance, "now").mockImplementation(() => now.call(performance) + 60_000);
    rig.reconnect();
    await rig.settle();
    late.mockRestore();
    expect(rig.wire.server.sent).toContain(REFUSED);
    expect(rig.server).not.toBe(rig.servers[0]);
    expect(rig.servers[0]!.told.notices.at(-1)).toHaveProperty("closed");
    await rig.close();
  });

  it("does not expire at the client while a connection attempt runs, whose result decides", async () => {
    const rig = await Rig.live();
    rig.client.link.giveUp("it is quiet");
    rig.pass(59_000);
    const { client } = rig.reconnect();
    client.deliver();
    rig.pass(5_000);
    await microtasks();
    expect(rig.told.notices).toEqual(["suspended"]);
    await rig.settle();
    // The server has never lost the socket.
    expect(rig.told.notices).toEqual(["suspended", "resumed"]);
    await rig.close();
  });

  it("expires at the client if that attempt fails", async () => {
    const rig = await Rig.live();
    rig.cut();
    rig.pass(59_000);
    const { client } = rig.reconnect();
    client.deliver();
    rig.pass(5_000);
    client.cut();
    await microtasks();
    expect(rig.told.notices).toMatchObject(["suspended", { lost: expect.any(String) }]);
    expect(rig.owner).toEqual(["suspended", "over"]);
    await rig.close();
  });
});

describe("a client that gets unknown-session (rule 8)", () => {
  it("reports the loss, and starts a new session on the same socket", async () => {
    const rig = await Rig.live();
    rig.client.link.send(message("lost"));
    await microtasks();
    rig.cut();
    rig.client.link.send(message("lost too"));
    rig.server.link.close();
    rig.reconnect();
    await rig.settle();
    expect(rig.told.notices).toEqual(["suspended", { lost: "the server has no such session any more" }, "resumed"]);
    expect(rig.owner).toEqual(["suspended", "fresh"]);
    rig.client.link.send(message("fresh"));
    rig.server.link.send(message("answer"));
    await rig.settle();
    expect(rig.servers).toHaveLength(2);
    expect(numbers(rig.server.told)).toEqual(["fresh"]);
    expect(numbers(rig.told)).toEqual(["answer"]);
    expect(controls(rig.wire.client.sent).map((frame) => Object.keys(frame as object)[0])).toEqual(["resume", "hello"]);
    await rig.cutAndResume();
    expect(rig.told.notices.at(-1)).toBe("resumed");
    await rig.close();
  });

  it.each(['[{"n":1}]', "[]", '{"ack":0}', '{"ping":1}'])("must send hello next, and not %s", async (frame) => {
    const rig = await Rig.live();
    const wire = rig.open(true);
    wire.server.inject(resume("x"));
    expect(wire.server.sent.at(-1)).toBe(REFUSED);
    wire.server.inject(frame);
    expect(wire.server.closedWith).toMatchObject({ code: 1002 });
    expect(rig.servers).toHaveLength(1);
    await rig.close();
  });
});

describe("a new connection of the same receiver", () => {
  it("sends the messages that were queued without a connection, in order", async () => {
    const rig = await Rig.live();
    rig.cut({ code: 1008, reason: "" });
    expect(rig.told.notices).toHaveLength(2);
    for (let i = 1; i <= 3; i++) expect(rig.client.link.send(message(i))).toBe(true);
    rig.reconnect();
    await rig.settle();
    expect(numbers(rig.server.told)).toEqual([1, 2, 3]);
    expect(packs(rig.wire.client.sent)).toHaveLength(1);
    await rig.close();
  });

  it("refuses messages beyond the queue limit, with no other effect", async () => {
    const rig = await Rig.live();
    rig.cut({ code: 1008, reason: "" });
    let taken = 0;
    while (rig.client.link.send(message(taken, 4000))) taken++;
    expect(taken).toBe(9);
    expect(rig.told.notices).toHaveLength(2);
    rig.reconnect();
    await rig.settle();
    expect(numbers(rig.server.told)).toHaveLength(9);
    await rig.close();
  });

  it("keeps waiting with its queue if its socket is lost before the server's hello", async () => {
    const rig = await Rig.live();
    rig.cut({ code: 1008, reason: "" });
    rig.client.link.send(message(1));
    rig.reconnect().client.cut();
    rig.reconnect();
    await rig.settle();
    expect(rig.told.notices).toMatchObject(["suspended", { lost: expect.stringContaining("1008") }, "resumed"]);
    expect(numbers(rig.server.told)).toEqual([1]);
    await rig.close();
  });

  it("is a session that continues if its socket is lost after the server's hello", async () => {
    const rig = await Rig.live();
    rig.cut({ code: 1008, reason: "" });
    rig.client.link.send(message(1));
    const { client } = rig.reconnect();
    client.deliver();
    expect(rig.told.notices.at(-1)).toBe("resumed");
    // The client's hello is lost.
    rig.cut();
    rig.reconnect();
    await rig.settle();
    expect(rig.told.notices.slice(2)).toEqual(["resumed", "suspended", "resumed"]);
    expect(numbers(rig.server.told)).toEqual([1]);
    expect(rig.servers).toHaveLength(2);
    await rig.close();
  });
});

describe("a session that the client has not confirmed (rule 9)", () => {
  it("is suspended at the server like any other, and expires", async () => {
    const rig = new Rig();
    expect(rig.sessions).toMatchObject({ suspended: 0, live: 1, tokens: { size: 1 } });
    rig.wire.server.cut();
    expect(rig.server.told.notices).toEqual(["suspended"]);
    expect(rig.sessions).toMatchObject({ suspended: 1, live: 0, tokens: { size: 1 } });
    rig.pass(60_000);
    await microtasks();
    const reason = "the session was not resumed within 60000 ms";
    expect(rig.server.told.notices.at(-1)).toEqual({ closed: { code: 1006, reason } });
    expect(rig.sessions).toMatchObject({ suspended: 0, live: 0, tokens: { size: 0 } });
    await rig.close();
  });

  it("ends with its socket for a client that has not received the hello", async () => {
    const rig = new Rig();
    rig.client.link.send(message(1));
    rig.wire.client.cut();
    expect(rig.told.notices).toMatchObject(["suspended", { lost: expect.any(String) }]);
    await rig.close();
  });

  it("continues although the client's hello is lost: `resume` confirms it, and has the limits", async () => {
    const rig = new Rig({ limits: { maxMessageBytes: 2000 } });
    rig.server.link.send(message("s"));
    rig.wire.client.deliver();
    rig.client.link.send(message("c"));
    await microtasks();
    rig.cut();
    expect(rig.server.link.maxMessageBytes).toBeUndefined();
    rig.reconnect();
    await rig.settle();
    expect(rig.told.notices).toEqual(["suspended", "resumed"]);
    expect(numbers(rig.server.told)).toEqual(["c"]);
    expect(numbers(rig.told)).toEqual(["s"]);
    expect(rig.server.link.maxMessageBytes).toBe(2000);
    expect(rig.sessions).toMatchObject({ suspended: 0, live: 1, tokens: { size: 1 } });
    await rig.close();
  });

  it("continues if the token arrives before the server notices the lost socket", async () => {
    const rig = new Rig();
    rig.wire.client.deliver();
    rig.client.link.giveUp("it is quiet");
    await rig.reconnect().settle();
    expect(rig.told.notices).toEqual(["suspended", "resumed"]);
    expect(rig.server.told.notices).toEqual([]);
    expect(rig.servers).toHaveLength(1);
    await rig.close();
  });

  it("ends if the client declines it: its token resumes nothing", async () => {
    const rig = new Rig();
    const wire = rig.open(false);
    wire.server.inject('{"hello":{}}');
    expect(rig.sessions).toMatchObject({ live: 1, tokens: { size: 1 } });
    const late = rig.open(true);
    late.client.start({ frame() {}, closed() {} });
    late.server.inject(resume(rig.tokens[1]));
    expect(late.server.sent.at(-1)).toBe(REFUSED);
    wire.server.cut();
    expect(rig.server.told.notices).toEqual([{ closed: { code: 1006, reason: "" } }]);
    expect(rig.sessions).toMatchObject({ suspended: 0, live: 1 });
    await rig.settle();
    await rig.close();
  });
});
