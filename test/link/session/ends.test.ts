/** Rules 6, 8 and 9: which events end a session, and which only suspend it. */
import { describe, expect, it, vi } from "vitest";
import { useFakeClock } from "../../support/clock.js";
import { heldBy } from "../../support/links.js";
import { controls, message, numbers, range, REFUSED, Rig, WIRE_LIMITS } from "./rig.js";
import { microtasks, Wire } from "./wire.js";

useFakeClock();

const FINAL = [1002, 1003, 1007, 1008, 1009, 1010, 1013, 4400, 4401, 4413, 4499];
const PASSING = [1000, 1001, 1004, 1005, 1006, 1011, 1012, 1014, 1015, 3000, 4000, 4399, 4500, 4999];

describe("a close (rule 6)", () => {
  it.each(FINAL)("ends the session at the receiving end with code %i", async (code) => {
    await using rig = await Rig.live();
    rig.client.link.send(message(1));
    rig.cut({ code, reason: "why" });
    expect(rig.client.isResumable).toBe(false);
    const lost = ["suspended", { lost: `the session ended with ${code} (why)` }];
    expect(rig.emitted.notices).toEqual(lost);
    expect(rig.server.emitted.notices).toEqual([{ closed: { code, reason: "why" } }]);
    expect(rig.sessions).toMatchObject({ suspended: 0, tokens: { size: 0 } });
    await rig.comeBack();
    expect(rig.emitted.notices).toEqual([...lost, "resumed"]);
    expect(rig.owner).toEqual(["over", "fresh"]);
    expect(rig.servers).toHaveLength(2);
  });

  it.each(PASSING)("suspends the session with code %i", async (code) => {
    await using rig = await Rig.live();
    rig.cut({ code, reason: "" });
    expect(rig.server.emitted.notices).toEqual(["suspended"]);
    expect(rig.sessions.suspended).toBe(1);
    await rig.comeBack();
    expect(rig.emitted.notices).toEqual(["suspended", "resumed"]);
  });

  it("is ignored if the socket failed with an error", async () => {
    await using rig = await Rig.live();
    const error = new RangeError("Max payload size exceeded");
    const lost = vi.spyOn(rig.emitted as never, "lost");
    rig.cut({ code: 1009, reason: "", error });
    expect(lost).toHaveBeenCalledExactlyOnceWith(error, rig.client.link);
  });
});

describe("an unreadable frame", () => {
  it.each(["[1,", '"text"', "1", "null", ""])("ends the session of both ends: %j", async (frame) => {
    await using rig = await Rig.live();
    rig.wire.server.inject(frame);
    expect(rig.wire.server.closedWith).toMatchObject({ code: 1002 });
    expect(rig.sessions.tokens.size).toBe(0);
    // Nothing after it is read.
    rig.wire.server.inject('[{"n":1}]');
    rig.wire.server.inject('{"ping":1}');
    await rig.settle();
    expect(rig.server.emitted.messages).toEqual([]);
    expect(rig.server.emitted.notices).toMatchObject([{ closed: { code: 1002 } }]);
    expect(rig.emitted.notices).toMatchObject(["suspended", { lost: expect.stringContaining("1002") }]);
  });
});

describe("a message over this side's limit (rule 6)", () => {
  it("ends the session with 1009, also if the close is never answered", async () => {
    await using rig = await Rig.live();
    rig.wire.server.inject(`[${message(1, 5000)}]`);
    expect(rig.wire.server.closedWith).toMatchObject({ code: 1009 });
    rig.wire.server.cut({ code: 1006, reason: "" });
    expect(rig.server.emitted.messages).toEqual([]);
    expect(rig.server.emitted.notices).toEqual([{ closed: { code: 1009, reason: "message is too large" } }]);
    expect(rig.sessions).toMatchObject({ suspended: 0, tokens: { size: 0 } });
  });
});

describe("bye (rule 6)", () => {
  it("is sent before the close, behind all messages that were queued for the socket and for acks", async () => {
    await using rig = await Rig.live();
    const { client } = rig.wire;
    client.unsentBytes = 2 ** 20;
    await rig.send(rig.client.link, 1, 30, 800);
    rig.client.link.close(4001, "enough");
    expect(client.sent.at(-1)).toBe('{"bye":{"code":4001,"reason":"enough"}}');
    await rig.settle();
    expect(numbers(rig.server.emitted)).toEqual(range(1, 30));
    const closed = { code: 4001, reason: "enough" };
    expect([rig.server.emitted.notices, rig.emitted.notices]).toEqual([[{ closed }], [{ closed }]]);
    expect(rig.sessions.tokens.size).toBe(0);
  });

  it("ends the session even if the close behind it is lost", async () => {
    await using rig = await Rig.live();
    rig.server.link.close(1001, "going away");
    rig.wire.client.deliver();
    expect(rig.client.isResumable).toBe(false);
    rig.wire.client.cut();
    expect(rig.emitted.notices).toEqual(["suspended", { lost: "the session ended with 1001 (going away)" }]);
  });

  it.each([true, false])(
    "is the last frame that is read, and gives the reported close: session %j",
    async (isTaken) => {
      await using rig = new Rig();
      rig.wire.client.deliver();
      rig.wire.server.inject(JSON.stringify({ hello: isTaken ? { session: true, limits: WIRE_LIMITS } : {} }));
      rig.wire.server.inject('{"bye":{"code":4001,"reason":"enough"}}');
      rig.wire.server.inject('[{"n":1}]');
      rig.wire.server.inject("[1,");
      expect(rig.server.emitted.messages).toEqual([]);
      expect(rig.wire.server.open).toBe(true);
      rig.wire.server.cut();
      expect(rig.server.emitted.notices).toEqual([{ closed: { code: 4001, reason: "enough" } }]);
    },
  );

  it.each([
    ...[999, 5000, 1000.5, "1000"].map((code) => ({ code, reason: "" })),
    { code: 1000 },
    null,
    5,
    ...[-1, 0.5, "5000", null, true, 2 ** 53].map((retryMs) => ({ code: 1001, reason: "going away", retryMs })),
  ])("is read as 1000 without a reason if it is %j", async (bye) => {
    await using rig = await Rig.live();
    rig.wire.server.inject(JSON.stringify({ bye }));
    rig.wire.server.cut();
    expect(rig.server.emitted.notices).toEqual([{ closed: { code: 1000, reason: "" } }]);
  });

  it("is reported without other members, and with a reason of at most 123 bytes", async () => {
    await using rig = await Rig.live();
    const bye = { code: 1001, reason: "ä".repeat(100), error: "no error", more: 1 };
    rig.wire.server.inject(JSON.stringify({ bye }));
    rig.wire.server.cut();
    expect(rig.server.emitted.notices).toEqual([{ closed: { code: 1001, reason: "ä".repeat(61) } }]);
  });

  it("ends the connection after 5 s with its own code if no close follows", async () => {
    await using rig = await Rig.live();
    const { client } = rig.wire;
    client.inject('{"bye":{"code":1001,"reason":"going away","retryMs":5000}}');
    rig.pass(4999);
    expect([client.open, rig.ends]).toEqual([true, []]);
    rig.pass(1);
    expect(client.open).toBe(false);
    expect(rig.ends).toEqual([{ code: 1001, reason: "going away", retryMs: 5000 }]);
    expect(rig.emitted.notices).toEqual(["suspended", { lost: "the session ended with 1001 (going away)" }]);
  });

  it("is accepted in place of `resumed`", async () => {
    await using rig = await Rig.live();
    rig.cut();
    const client = rig.resuming();
    client.inject('{"bye":{"code":1001,"reason":"","retryMs":5000}}');
    client.cut();
    expect(rig.ends).toEqual([{ code: 1001, reason: "", retryMs: 5000 }]);
    expect(rig.emitted.notices).toEqual(["suspended", { lost: "the session ended with 1001" }]);
  });
});

describe("a message over the other side's limit (rule 6)", () => {
  it("is refused and not logged, live and suspended, and the session continues", async () => {
    await using rig = await Rig.live();
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
    await rig.comeBack();
    expect(rig.server.emitted.messages).toHaveLength(2);
  });
});

describe("close() while suspended (rule 8)", () => {
  it("ends a client's session at once, and drops its token", async () => {
    await using rig = await Rig.live();
    const { link } = rig.client;
    rig.cut();
    link.send(message(1));
    link.close(4002, "done");
    expect(rig.emitted.notices).toEqual(["suspended", { closed: { code: 4002, reason: "done" } }]);
    expect(rig.client.isResumable).toBe(false);
    expect(link.send(message(1))).toBe(false);
    expect(heldBy(link)).toBe(0);
    link.close();
    expect(rig.emitted.notices).toHaveLength(2);
    // A socket that connects after it is closed.
    const { client } = new Wire();
    rig.client.attach(client, { session: { token: "t", ttlMs: 1000, limits: WIRE_LIMITS } });
    expect(client.closedWith).toMatchObject({ code: 4000 });
    expect(client.sent).toEqual([]);
    expect(link.socket).toBeUndefined();
  });

  it("ends a server's session at once: a later `resume` gets unknown-session", async () => {
    await using rig = await Rig.live();
    rig.cut();
    rig.server.link.close(1001, "the server is closing");
    expect(rig.server.emitted.notices).toEqual([
      "suspended",
      { closed: { code: 1001, reason: "the server is closing" } },
    ]);
    expect(rig.sessions).toMatchObject({ suspended: 0, held: 0, tokens: { size: 0 } });
    await rig.comeBack();
    expect(rig.wire.server.sent).toContain(REFUSED);
  });

  it("can be called by a server in its suspended hook", async () => {
    await using rig = await Rig.live();
    vi.spyOn(rig.server.emitted, "suspended").mockImplementation(() => rig.server.link.close(4003, "no more"));
    rig.cut();
    expect(rig.server.emitted.notices).toEqual([{ closed: { code: 4003, reason: "no more" } }]);
    expect(rig.sessions).toMatchObject({ suspended: 0, tokens: { size: 0 } });
  });
});

describe("close() of a client that waits for `resumed` (rule 1)", () => {
  const bye = '{"bye":{"code":4002,"reason":"done"}}';
  const closed = { code: 4002, reason: "done" };

  it.each([
    ["has resumed it", true],
    ["has not read `resume` yet", false],
  ])("ends the session at the server, which %s", async (_what, isResumed) => {
    await using rig = await Rig.live();
    const { link } = rig.client;
    rig.cut();
    link.send(message(1));
    const socket = rig.resuming();
    if (isResumed) rig.wire.server.deliver();
    link.close(4002, "done");
    expect(controls(socket.sent)).toMatchObject([{ resume: {} }, JSON.parse(bye)]);
    expect(socket.closedWith).toEqual(closed);
    await rig.settle();
    expect(rig.server.emitted.messages).toEqual([]);
    expect(rig.server.emitted.notices).toEqual(["suspended", "resumed", { closed }]);
    expect(rig.emitted.notices).toEqual(["suspended", { closed }]);
    expect(rig.sessions).toMatchObject({ suspended: 0, held: 0, tokens: { size: 0 } });
  });

  it("is reported as this side's own if the server does not have the session", async () => {
    await using rig = await Rig.live();
    rig.cut();
    rig.server.link.close();
    rig.resuming();
    rig.client.link.close(4002, "done");
    await rig.settle();
    expect(rig.wire.server.sent).toContain(REFUSED);
    expect(rig.servers).toHaveLength(1);
    expect(rig.wire.server.open).toBe(false);
    expect(rig.emitted.notices).toEqual(["suspended", { closed }]);
  });
});

describe("close() of a session that has ended, and whose socket has not", () => {
  it("reports how the socket closes", async () => {
    await using rig = await Rig.live();
    rig.wire.server.inject("[1,");
    rig.server.link.close(1001, "going away");
    expect(rig.wire.server.closedWith).toMatchObject({ code: 1002 });
    expect(rig.server.emitted.notices).toEqual([]);
    rig.wire.server.cut({ code: 1002, reason: "read" });
    expect(rig.server.emitted.notices).toEqual([{ closed: { code: 1002, reason: "read" } }]);
  });

  it("closes the socket behind a bye whose close does not come", async () => {
    await using rig = await Rig.live();
    rig.wire.client.inject('{"bye":{"code":1001,"reason":""}}');
    expect(rig.wire.client.open).toBe(true);
    rig.client.link.close(4002, "done");
    expect(rig.wire.client.closedWith).toEqual({ code: 4002, reason: "done" });
    rig.wire.client.cut({ code: 4002, reason: "done" });
    expect(rig.emitted.notices).toEqual([{ closed: { code: 4002, reason: "done" } }]);
    expect(rig.owner).toEqual([]);
  });
});

describe("a session without a socket (rule 8)", () => {
  it("lasts for its timeout from each loss at both ends, and not a moment longer", async () => {
    await using rig = await Rig.live();
    rig.cut();
    rig.pass(59_000);
    await rig.comeBack();
    rig.pass(120_000);
    rig.cut();
    rig.client.link.send(message(1));
    rig.server.link.send(message(1));
    rig.pass(59_999);
    await microtasks();
    expect(rig.emitted.notices).toEqual(["suspended", "resumed", "suspended"]);
    expect(rig.server.emitted.notices).toEqual(rig.emitted.notices);
    rig.pass(1);
    await microtasks();
    const why = "the session was not resumed within 60000 ms";
    expect(rig.emitted.notices.at(-1)).toEqual({ lost: `the session ended with 1006 (${why})` });
    expect(rig.server.emitted.notices.at(-1)).toEqual({ closed: { code: 1006, reason: why } });
    expect(rig.sessions).toMatchObject({ suspended: 0, held: 0, tokens: { size: 0 } });
    expect([heldBy(rig.client.link), rig.server.link.heldLength]).toEqual([0, 0]);
    expect(rig.server.link.send(message(2))).toBe(false);
  });

  it.each([false, true])(
    "expires if its timer fires a fraction early, during an attempt to resume: %j",
    async (tries) => {
      await using rig = await Rig.live();
      rig.cut();
      const client = tries ? rig.resuming() : undefined;
      const { now } = performance;
      const early = vi.spyOn(performance, "now").mockImplementation(() => now.call(performance) - 0.5);
      rig.pass(60_000);
      client?.cut();
      await microtasks();
      early.mockRestore();
      expect(rig.emitted.notices).toMatchObject(["suspended", { lost: expect.stringContaining("1006") }]);
      expect(rig.server.emitted.notices).toMatchObject(["suspended", { closed: { code: 1006 } }]);
    },
  );

  it("is not counted if a listener of `suspend` ends it", async () => {
    await using rig = await Rig.live({ sessions: { maxHeldLength: 1 } });
    const { link, emitted } = rig.server;
    emitted.suspended = () => {
      while (link.send(message(1, 4000)));
      link.keeps(100);
    };
    rig.cut();
    expect(rig.sessions).toMatchObject({ suspended: 0, held: 0, tokens: { size: 0 } });
    await microtasks();
    expect(emitted.notices).toMatchObject([{ closed: { code: 1013 } }]);
  });

  it("expires at the server when the timeout has passed, however late its timer fires", async () => {
    await using rig = await Rig.live();
    rig.cut();
    const { now } = performance;
    const late = vi.spyOn(performance, "now").mockImplementation(() => now.call(performance) + 60_000);
    await rig.comeBack();
    late.mockRestore();
    expect(rig.wire.server.sent).toContain(REFUSED);
    expect(rig.server).not.toBe(rig.servers[0]);
    expect(rig.servers[0]!.emitted.notices.at(-1)).toHaveProperty("closed");
  });

  it("does not expire at the client while a connection attempt runs, whose result decides", async () => {
    await using rig = await Rig.live();
    rig.client.link.giveUp("it is quiet");
    rig.pass(59_000);
    rig.resuming();
    rig.pass(5_000);
    await microtasks();
    expect(rig.emitted.notices).toEqual(["suspended"]);
    await rig.settle();
    // The server has never lost the socket.
    expect(rig.emitted.notices).toEqual(["suspended", "resumed"]);
  });

  it("expires at the client when its time from the first loss has passed, also if attempts fail meanwhile", async () => {
    await using rig = await Rig.live();
    rig.cut();
    rig.pass(30_000);
    rig.resuming().cut();
    rig.pass(30_000);
    await microtasks();
    expect(rig.emitted.notices).toMatchObject(["suspended", { lost: expect.any(String) }]);
  });

  it("expires at the client if that attempt fails", async () => {
    await using rig = await Rig.live();
    rig.cut();
    rig.pass(59_000);
    const client = rig.resuming();
    rig.pass(5_000);
    client.cut();
    await microtasks();
    expect(rig.emitted.notices).toMatchObject(["suspended", { lost: expect.any(String) }]);
    expect(rig.owner).toEqual(["suspended", "over"]);
  });
});

describe("a client that gets unknown-session (rule 8)", () => {
  it("reports the loss, and starts a new session on the same socket", async () => {
    await using rig = await Rig.live();
    rig.client.link.send(message("lost"));
    await microtasks();
    rig.cut();
    rig.client.link.send(message("lost too"));
    rig.server.link.close();
    await rig.comeBack();
    expect(rig.emitted.notices).toEqual(["suspended", { lost: "the server has no such session" }, "resumed"]);
    expect(rig.owner).toEqual(["suspended", "fresh"]);
    rig.client.link.send(message("fresh"));
    rig.server.link.send(message("answer"));
    await rig.settle();
    expect(rig.servers).toHaveLength(2);
    expect(numbers(rig.server.emitted)).toEqual(["fresh"]);
    expect(numbers(rig.emitted)).toEqual(["answer"]);
    expect(controls(rig.wire.client.sent).map((frame) => Object.keys(frame as object)[0])).toEqual(["resume", "hello"]);
    await rig.cutAndResume();
    expect(rig.emitted.notices.at(-1)).toBe("resumed");
  });
});

describe("a session that the client has not confirmed (rule 9)", () => {
  it("continues although the client's hello is lost: `resume` confirms it, and has the limits", async () => {
    await using rig = new Rig({ limits: { maxMessageBytes: 2000 } });
    rig.server.link.send(message("s"));
    rig.wire.client.deliver();
    rig.client.link.send(message("c"));
    await microtasks();
    rig.cut();
    expect(rig.server.emitted.notices).toEqual(["suspended"]);
    expect(rig.sessions).toMatchObject({ suspended: 1, live: 0, tokens: { size: 1 } });
    expect(rig.server.link.maxMessageBytes).toBeUndefined();
    await rig.comeBack();
    expect(rig.emitted.notices).toEqual(["suspended", "resumed"]);
    expect(numbers(rig.server.emitted)).toEqual(["c"]);
    expect(numbers(rig.emitted)).toEqual(["s"]);
    expect(rig.server.link.maxMessageBytes).toBe(2000);
    expect(rig.sessions).toMatchObject({ suspended: 0, live: 1, tokens: { size: 1 } });
  });
});
