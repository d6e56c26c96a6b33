/** The frames of a server: raw clients of a test server, which open, resume and end sessions by hand. */
import { describe, expect, it } from "vitest";
import { bytes } from "../../src/index.js";
import { pass, stall, useVirtualClock } from "../support/time.js";
import {
  begun,
  GREATEST,
  hello,
  HELLO,
  LEAST,
  note,
  pack,
  range,
  RESUME_REFUSED,
  resume,
  resumed,
  Serving,
  TAKEN,
  WIRE_LIMITS,
  wrong,
  type RawClient,
} from "./kit.js";

useVirtualClock();

/** Returns a server with one session, whose client has lost its socket. Two messages of the server are on their way. */
async function suspended(options: object = {}): Promise<{ serving: Serving; raw: RawClient }> {
  const { serving, raw } = await begun(options);
  await serving.notify(1, 2);
  raw.cut();
  return { serving, raw };
}

describe("a session", () => {
  it("is opened by two hellos, and delivers messages both ways", async () => {
    const serving = new Serving();
    const raw = await serving.open();
    const [frame] = raw.take();
    const limits = { maxMessageBytes: 2 ** 20, logFrames: 4096, logLength: 2 ** 22 };
    expect(frame).toBe(hello({ token: raw.token, ttlMs: 60_000, limits }, { bytes: true }));
    raw.send(TAKEN, pack(note(1)));
    await serving.notify(2);
    expect([serving.served.got, raw.take()]).toEqual([[1], [pack(note(2))]]);
  });

  it("sends packs right after a server's hello, while its client still sends plainly", async () => {
    const serving = new Serving({ methods: { echo: (params: unknown) => params } });
    const raw = await serving.open();
    serving.served.peer.notify("n", [0]);
    await raw.deliver(note(1), pack(note(2), note(3)), HELLO, pack(note(4), note(5)));
    expect(serving.served.got).toEqual(range(1, 5));
    expect(raw.numbers()).toEqual([0]);
  });

  it("does not count plain messages of the client, but all messages that the server sent after its hello", async () => {
    const serving = new Serving();
    const first = await serving.open();
    first.send(note("plain"));
    await serving.notify("packed");
    await first.deliver(TAKEN);
    first.cut();
    const raw = await serving.resume(first.token, 1);
    expect(raw.take()).toEqual([resumed(raw.token, 0)]);
    expect(serving.served.got).toEqual(["plain"]);
  });

  it("is confirmed by the hello of a client that offered to resume and begins a new session, with the token of that socket's hello", async () => {
    const { serving, raw } = await suspended();
    const fresh = await serving.open(true);
    await fresh.deliver(TAKEN, pack(note("fresh")));
    expect([serving.peers.length, serving.served.got]).toEqual([2, ["fresh"]]);
    expect(fresh.token).not.toBe(raw.token);
    fresh.cut();
    expect((await serving.resume(fresh.token)).take()[0]).toContain('"received":1');
  });

  it("gets bytes as base64 text while the server does not have the client's hello, which says that it takes them", async () => {
    const serving = new Serving();
    const raw = await serving.open();
    raw.take();
    for (const frame of ['{"hello":{"bytes":true}}', undefined]) {
      serving.served.peer.notify("n", [bytes(Uint8Array.of(1, 2, 3))]);
      if (frame !== undefined) raw.send(frame);
      await serving.settle();
    }
    expect(raw.take()).toEqual([pack(note("AQID")), expect.any(Blob)]);
  });

  it.each([
    HELLO,
    ...["1", '"true"', '{"token":"t"}', "null"].map((session) => `{"hello":{"session":${session}}}`),
    '{"hello":{"session":false,"limits":{}}}',
    '{"hello":true}',
    '{"hello":null}',
  ])("is declined by a client that sends %s", async (frame) => {
    const serving = new Serving({ limits: { maxUnsentBytes: 4000 } });
    const raw = await serving.open();
    raw.take();
    // No message is lost, although the socket is full.
    raw.line.stop();
    for (const n of [1, 2, 3]) await serving.notify([n, "x".repeat(1000)]);
    raw.line.start();
    await raw.deliver(frame, pack(note(1)));
    expect([raw.numbers(), serving.served.got]).toEqual([[1, 2, 3], [1]]);
    raw.cut();
    expect(serving.served.events).toEqual([1006]);
    expect((await serving.resume(raw.token)).take()).toEqual([RESUME_REFUSED]);
  });

  it("that the client has not confirmed (rule 9) continues although the client's hello is lost: `resume` confirms it, and has the limits", async () => {
    const serving = new Serving();
    const first = await serving.open();
    await serving.notify("s");
    first.cut();
    expect(serving.served.events).toEqual(["suspend"]);
    const raw = await serving.resume(first.token);
    expect(raw.take()).toEqual([resumed(raw.token, 0), pack(note("s"))]);
    expect(serving.served.events).toEqual(["suspend", "resume"]);
    expect(serving.served.peer.notify("n", ["x".repeat(WIRE_LIMITS.maxMessageBytes)])).toBe(false);
  });
});

describe("a client's hello", () => {
  it.each(wrong("limits"))("closes with 1002, and nothing more is read, if it has a wrong %s: %j", async (_, value) => {
    const serving = new Serving();
    const raw = await serving.open();
    await raw.deliver(JSON.stringify({ hello: { session: true, limits: value } }), pack(note(1)));
    expect(raw.closedWith).toMatchObject({ code: 1002 });
    expect([serving.served.got, serving.served.events]).toEqual([[], [1002]]);
    expect((await serving.resume(raw.token)).take()).toEqual([RESUME_REFUSED]);
  });

  it.each([LEAST, GREATEST])("can have the limits %j", async (limits) => {
    const serving = new Serving();
    const raw = await serving.begin(undefined, { ...limits, more: "x".repeat(1000) });
    expect(serving.served.peer.notify("n", [1])).toBe(limits !== LEAST);
    expect(raw.closedWith).toBeUndefined();
  });
});

describe("a client that resumes its session", () => {
  it("must not begin with a wrong `resume`: it closes with 1002, and leaves the session, for each wrong member", async () => {
    const { serving, raw } = await suspended();
    for (const [name, value] of [...wrong("token", "received", "attempt", "limits"), ["bytes", ["long"]] as const]) {
      const late = await serving.open(true);
      const right = { token: raw.token, received: 0, attempt: 1, limits: WIRE_LIMITS };
      await late.deliver(JSON.stringify({ resume: { ...right, [name]: value } }));
      expect(late.closedWith, `${name}: ${JSON.stringify(value)}`).toMatchObject({ code: 1002 });
    }
    expect(serving.served.events).toEqual(["suspend"]);
  });

  it("must not begin with any other frame: no peer is made, and nothing after it is read", async () => {
    const { serving, raw } = await suspended();
    const controls = ["{}", '{"ack":0}', '{"hello":garbage', '{"bye":{"code":1000,"reason":""}}'];
    for (const frame of [...controls, pack(note(1)), "[]", note(1), "nonsense", "", "null"]) {
      const late = await serving.open(true);
      await late.deliver(frame, resume(raw.token));
      expect(late.closedWith, `after ${frame}`).toMatchObject({ code: 1002 });
    }
    expect([serving.peers.length, serving.served.events]).toEqual([1, ["suspend"]]);
  });

  it("must send hello next if it is refused, or bye, because it closed before it read that: its close follows", async () => {
    const { serving, raw } = await suspended();
    for (const frame of [pack(note(1)), "[]", '{"ack":0}', '{"ping":1}', resume(raw.token)]) {
      const late = await serving.resume("wrong");
      expect(late.take()).toEqual([RESUME_REFUSED]);
      await late.deliver(frame);
      expect(late.closedWith, `after ${frame}`).toMatchObject({ code: 1002 });
    }
    const late = await serving.resume("wrong");
    await late.deliver('{"bye":{"code":4002,"reason":"done"}}');
    expect(late.closedWith).toBeUndefined();
    late.close(4002, "done");
    await serving.settle();
    expect(late.closedWith).toEqual({ code: 4002, reason: "done" });
    expect([serving.peers.length, serving.served.events]).toEqual([1, ["suspend"]]);
  });

  it("cannot resume on a socket that did not offer to resume: before its hello, `resume` is a message like any other", async () => {
    const { serving, raw } = await suspended();
    const other = await serving.open();
    await other.deliver(resume(raw.token));
    expect([serving.served.peer.stats().malformed, other.closedWith]).toEqual([1, undefined]);
    await other.deliver(HELLO, resume(raw.token));
    expect(other.closedWith).toMatchObject({ code: 1002 });
    expect(serving.peers[0]!.events).toEqual(["suspend"]);
  });

  it("is closed after a timeout if it sends nothing, and its session is not changed", async () => {
    const { serving, raw } = await suspended();
    const late = await serving.open(true);
    await pass(9_999);
    expect(late.closedWith).toBeUndefined();
    await pass(1);
    expect(late.closedWith).toMatchObject({ code: 4000 });
    const back = await serving.resume(raw.token);
    expect(back.take()[0]).toBe(resumed(back.token, 0));
  });
});

it("the old socket (rule 2) is closed, and its later frames are not read by the server", async () => {
  const serving = new Serving();
  const old = await serving.begin();
  await old.deliver(pack(note(1)));
  const raw = await serving.open(true);
  // Both frames are on their way when the newer socket takes over.
  old.line.stop();
  old.send(pack(note(2)));
  raw.take();
  await raw.deliver(resume(old.token));
  expect(raw.take()).toEqual([resumed(raw.token, 1)]);
  old.line.start();
  await serving.settle();
  expect(old.closedWith).toMatchObject({ code: 4000 });
  await raw.deliver('{"ack":0}', pack(note(2)), pack(note(3)));
  expect([serving.served.got, serving.served.events]).toEqual([[1, 2, 3], []]);
});

it("the old socket (rule 2) moves the messages of the current tick to the replay log, in order", async () => {
  const serving = new Serving();
  const old = await serving.begin();
  const raw = await serving.open(true);
  raw.take();
  raw.send(resume(old.token));
  // The newer socket takes over before the end of this tick.
  await serving.notify(1, 2);
  expect(raw.numbers()).toEqual([1, 2]);
});

it.each([1, 2])("a stale attempt (rule 3) closes its socket and not the session: %i after 2", async (attempt) => {
  const { serving, raw } = await suspended();
  const second = await serving.resume(raw.token, 1, 2);
  expect(second.take()).toEqual([resumed(second.token, 0), pack(note(2))]);
  const late = await serving.resume(raw.token, 0, attempt);
  expect([late.take(), late.closedWith?.code]).toEqual([[], 4000]);
  expect(second.closedWith).toBeUndefined();
  expect(serving.served.events).toEqual(["suspend", "resume"]);
});

it("a token (rule 4) is confirmed by an ack alone: until then, the previous token is accepted too", async () => {
  const { serving, raw } = await suspended();
  const second = await serving.resume(raw.token);
  await second.deliver(pack(note("c")), '{"ping":1}');
  const third = await serving.resume(raw.token, 0, 2);
  expect(third.take()[0]).toBe(resumed(third.token, 1));
  // The count stays valid for the old token, which is refused all the same.
  await third.deliver('{"ack":0}');
  expect((await serving.resume(raw.token, 0, 99)).take()).toEqual([RESUME_REFUSED]);
  expect(new Set([raw, second, third].map(({ token }) => token)).size).toBe(3);
});

it("a `received` (rule 5) is refused for frames that are logged, but were never written to a socket", async () => {
  const serving = new Serving();
  const first = await serving.begin();
  serving.served.peer.notify("n", [1]);
  first.cut();
  const raw = await serving.resume(first.token, 1);
  expect([raw.take(), serving.served.events]).toEqual([[RESUME_REFUSED], ["suspend", 1002]]);
  await raw.deliver(HELLO);
  expect(serving.peers).toHaveLength(2);
});

describe("the end of a session", () => {
  it.each([
    ["cannot be read", "[1,", 1002],
    ["is longer than this side's limit", pack(note(1, 5000)), 1009],
  ])("follows a frame that %s, and nothing after it is read, even without an answer", async (_what, frame, code) => {
    const { serving, raw } = await begun({ limits: { maxMessageBytes: 5000 } });
    raw.send(frame, pack(note(1)), '{"ping":1}');
    await Promise.resolve();
    // The server has read the frames, and its close does not arrive.
    raw.line.stop();
    await pass(5000);
    expect([serving.served.got, raw.take(), serving.served.events]).toEqual([[], [], [code]]);
    expect((await serving.resume(raw.token)).take()).toEqual([RESUME_REFUSED]);
  });

  it.each([true, false])("is a bye, the last frame that is read, whose close is reported: %j", async (isTaken) => {
    const serving = new Serving();
    const raw = await serving.open();
    await raw.deliver(isTaken ? TAKEN : HELLO, '{"bye":{"code":4001,"reason":"enough"}}', pack(note(1)), "[1,");
    expect([raw.closedWith, serving.served.got]).toEqual([undefined, []]);
    raw.cut();
    expect(await serving.served.peer.closed).toMatchObject({ code: 4001, reason: "enough" });
  });

  it.each([
    ["has resumed it", true],
    ["has not read `resume` yet", false],
  ])("is the close() of a client that waits for `resumed` (rule 1), if the server %s", async (_what, isResumed) => {
    const { serving, raw } = await suspended();
    const second = await serving.open(true);
    second.send(resume(raw.token));
    if (isResumed) await serving.settle();
    second.send('{"bye":{"code":4002,"reason":"done"}}');
    second.close(4002, "done");
    await serving.settle();
    expect([serving.served.events, serving.served.got]).toEqual([["suspend", "resume", 4002], []]);
    expect(serving.stats).toMatchObject({ suspended: 0, suspendedBytes: 0 });
  });

  it.each([true, false])("is a close() of the server when suspended (rule 8): in a listener %j", async (inListener) => {
    const { serving, raw } = await begun();
    const { peer, events } = serving.served;
    await serving.notify(1, 2);
    if (inListener) peer.on("suspend", () => void peer.close(4001));
    raw.cut();
    if (!inListener) void peer.close(4001);
    expect(serving.stats).toMatchObject({ suspended: 0, suspendedBytes: 0 });
    await serving.settle();
    expect(events).toEqual(["suspend", 4001]);
    expect((await serving.resume(raw.token)).take()).toEqual([RESUME_REFUSED]);
  });
});

describe("a session without a socket (rule 8)", () => {
  it("expires at the server when the timeout has passed, however late its timer fires", async () => {
    const { serving, raw } = await suspended();
    stall(60_000);
    expect((await serving.resume(raw.token)).take()).toEqual([RESUME_REFUSED]);
    expect(serving.served.events).toEqual(["suspend", 1006]);
  });
});

it("a server that closes closes sockets that have sent neither hello nor `resume`, or were refused, and reads nothing more from them", async () => {
  const { serving, raw } = await suspended();
  const [silent, refused, fresh] = [await serving.open(true), await serving.resume("wrong"), await serving.open(true)];
  await fresh.deliver(HELLO);
  const closing = serving.test.server.close();
  silent.send(resume(raw.token));
  refused.send(HELLO);
  await Promise.all([closing, pass(10_000)]);
  for (const one of [silent, refused]) expect(one.closedWith).toMatchObject({ code: 1001 });
  expect(fresh.closedWith).toMatchObject({ code: 1001 });
  expect(serving.peers.map(({ events }) => events)).toEqual([["suspend", 1001], [1001]]);
});
