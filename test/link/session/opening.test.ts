/** How a session begins: the server's hello offers it, and the client's hello accepts it. */
import { describe, expect, it } from "vitest";
import { EncodedMessage } from "../../../src/core/transport.js";
import type { PackedLink } from "../../../src/session/link.js";
import { useFakeClock } from "../../support/clock.js";
import { clientLink, sendEncoded, TestClient } from "../../support/links.js";
import { controls, KEPT, LIMITS, message, numbers, packs, resume, Rig, Told, ToldLost, WIRE_LIMITS } from "./rig.js";
import { microtasks, Wire } from "./wire.js";

useFakeClock();

/** What a server offers in its hello. */
const OFFER = { token: "t", ttlMs: 1000, limits: WIRE_LIMITS };
/** The client's hello that accepts it. */
const TAKEN = JSON.stringify({ hello: { session: true, limits: WIRE_LIMITS } });

/** Returns a server's hello. */
function hello(session: unknown, more = {}): string {
  return JSON.stringify({ hello: { session, ...more } });
}

/** Makes a client whose server is the test. `first`: the hello, as for `TestClient`. `isAwaited`: as of `Endpoint.attach`. */
function clientAlone(first?: unknown, isAwaited = true): { wire: Wire; client: TestClient; emitted: Told } {
  const wire = new Wire();
  wire.server.start({ frame() {}, closed() {} });
  const client = new TestClient(wire.client, LIMITS, { over: () => false }, first, isAwaited);
  const emitted = new ToldLost();
  client.link.start(emitted);
  return { wire, client, emitted };
}

describe("a session", () => {
  it("is opened by two hellos, and delivers messages both ways", async () => {
    await using rig = await Rig.live();
    rig.client.link.send(message(1));
    rig.server.link.send(message(2));
    await rig.settle();
    expect(numbers(rig.server.emitted)).toEqual([1]);
    expect(numbers(rig.emitted)).toEqual([2]);
    expect(controls(rig.wire.server.sent)).toEqual([
      { hello: { session: { token: "secret-1", ttlMs: KEPT.ttlMs, limits: WIRE_LIMITS } } },
    ]);
    expect(controls(rig.wire.client.sent)).toEqual([{ hello: { session: true, limits: WIRE_LIMITS } }]);
    expect(rig.sessions).toMatchObject({ suspended: 0, live: 1, tokens: { size: 1, resumable: 1 } });
  });

  it("does not count plain messages of the client, but all messages that the server sent after its hello", async () => {
    await using rig = new Rig();
    rig.client.link.send(message("plain"));
    rig.server.link.send(message("packed"));
    await rig.settle();
    expect(rig.client.link.endpoint.state.session).toMatchObject({ received: 1, next: 1 });
    expect(rig.server.link.endpoint.state.session).toMatchObject({ received: 0, next: 2 });
    await rig.cutAndResume();
    expect(numbers(rig.server.emitted)).toEqual(["plain"]);
    expect(numbers(rig.emitted)).toEqual(["packed"]);
  });

  it("is with a reciproc peer: for the server before the client's hello, for the client after the server's hello", async () => {
    await using rig = new Rig();
    const areReciproc = (): unknown[] => [rig.server.link.isReciproc, rig.client.link.isReciproc];
    expect(areReciproc()).toEqual([true, false]);
    rig.wire.client.deliver();
    expect(areReciproc()).toEqual([true, true]);
  });

  it("sends queued messages plainly before the hello, and counted packs after it", async () => {
    await using rig = new Rig();
    rig.client.link.send(message("plain"));
    rig.wire.client.deliver();
    rig.client.link.send(message("packed"));
    await microtasks();
    expect(rig.wire.client.sent).toEqual(['{"n":"plain"}', TAKEN, '[{"n":"packed"}]']);
    await rig.settle();
    expect(rig.server.link.endpoint.state.session!.received).toBe(1);
    await rig.cutAndResume();
    expect(numbers(rig.server.emitted)).toEqual(["plain", "packed"]);
  });

  it("stores only the checked limits of a client, from its hello and from its `resume`", async () => {
    await using rig = new Rig();
    const limits = { ...WIRE_LIMITS, more: "x".repeat(1000) };
    const server = rig.arrival(false);
    server.inject(JSON.stringify({ hello: { session: true, limits } }));
    expect(rig.server.link.endpoint.state.session!.theirs).toEqual(WIRE_LIMITS);
    const unconfirmed = rig.arrival(false);
    const { link } = rig.server;
    const token = rig.tokens.at(-1);
    unconfirmed.cut();
    rig.arrival().inject(resume(token, 0, 1, limits));
    expect(link.endpoint.state.kind).toBe("live");
    expect(link.endpoint.state.session!.theirs).toEqual(WIRE_LIMITS);
  });

  it("is confirmed by the hello of a client that offered to resume and begins a new session, with the token of that socket's hello", async () => {
    await using rig = await Rig.live();
    rig.cut();
    rig.server.link.close();
    await rig.comeBack();
    const [, offered] = rig.tokens;
    expect(rig.tokens).toHaveLength(2);
    expect(rig.sessions).toMatchObject({ live: 1, tokens: { size: 1 } });
    await rig.cutAndResume();
    expect(controls(rig.wire.client.sent)[0]).toMatchObject({ resume: { token: offered, attempt: 1 } });
    expect(rig.emitted.notices.at(-1)).toBe("resumed");
  });

  it.each([
    '{"hello":{}}',
    '{"hello":{"session":1}}',
    '{"hello":{"session":false,"limits":{}}}',
    '{"hello":{"session":"true"}}',
    '{"hello":{"session":{"token":"t"}}}',
    '{"hello":{"session":null}}',
    '{"hello":true}',
    '{"hello":null}',
  ])("is declined by a client that sends %s", async (frame) => {
    await using rig = await Rig.live();
    const server = rig.arrival(false);
    const { link, emitted } = rig.server;
    link.send(message(1));
    server.unsentBytes = LIMITS.highWaterBytes;
    await microtasks();
    link.send(message(2));
    expect(packs(server.sent)).toEqual([]);
    server.inject(frame);
    server.inject('[{"n":1}]');
    expect(numbers(emitted)).toEqual([1]);
    expect(link.endpoint.state).toMatchObject({ kind: "packed" });
    expect(rig.sessions).toMatchObject({ live: 1, tokens: { size: 1 } });
    // No message is lost, although the socket was full.
    server.unsentBytes = 0;
    rig.pass(20);
    await microtasks();
    expect(packs(server.sent)).toEqual(['[{"n":1}]', '[{"n":2}]']);
    server.cut();
    expect(emitted.notices).toEqual([{ closed: { code: 1006, reason: "" } }]);
  });

  it("is not accepted by a client without sessions", async () => {
    const wire = new Wire();
    const link = clientLink(wire.client);
    link.start(new Told());
    wire.client.inject(hello(OFFER));
    link.send(message(1));
    await microtasks();
    expect(wire.client.sent).toEqual(['{"hello":{}}', '[{"n":1}]']);
    expect(link.endpoint.state).toMatchObject({ kind: "packed" });
  });

  it.each([
    '{"hello":{}}',
    // As servers offered it before, which would send the token later.
    '{"hello":{"session":true}}',
    '{"hello":{"session":1}}',
    '{"hello":{"session":"true"}}',
    '{"hello":{"session":null}}',
    '{"hello":true}',
    '{"hello":null}',
  ])("is not accepted if the server sends %s", async (frame) => {
    const { wire, client, emitted } = clientAlone();
    wire.client.inject(frame);
    client.link.send(message(1));
    await microtasks();
    expect(wire.client.sent).toEqual(['{"hello":{}}', '[{"n":1}]']);
    expect(client.isResumable).toBe(false);
    wire.client.cut();
    expect(emitted.notices).toEqual([{ closed: { code: 1006, reason: "" } }]);
  });

  it("is opened once: a second hello changes nothing, nor does the `session` of an old server", async () => {
    const other = { ...OFFER, token: "other" };
    for (const frame of [hello(other), JSON.stringify({ session: other })]) {
      await using rig = await Rig.live();
      rig.wire.client.inject(frame);
      rig.wire.server.inject('{"hello":{}}');
      expect(rig.wire.client.open && rig.wire.server.open).toBe(true);
      await rig.cutAndResume();
      expect(controls(rig.wire.client.sent)[0]).toMatchObject({ resume: { token: "secret-1" } });
      expect(rig.emitted.notices).toEqual(["suspended", "resumed"]);
    }
  });
});

/** Values that are no count of frames, bytes or milliseconds. */
const NO_NUMBERS = [0, -1, 1.5, "16", null, true, [16], 2 ** 53, undefined];
const NO_TOKENS = ["", "x".repeat(257), "a\ud800", "\udc00a", 5, null, ["t"], undefined];
const NO_COUNTS = [-1, 0.5, "0", null, undefined, 2 ** 53];
/** What is no limits, and limits with one invalid member. */
const NO_LIMITS = [
  undefined,
  null,
  5,
  [],
  {},
  "x",
  ...Object.keys(WIRE_LIMITS).flatMap((name) => NO_NUMBERS.map((value) => ({ ...WIRE_LIMITS, [name]: value }))),
];
const GREATEST = { maxMessageBytes: 2 ** 53 - 1, logFrames: 2 ** 53 - 1, logLength: 2 ** 53 - 1 };
const LEAST = { maxMessageBytes: 1, logFrames: 1, logLength: 1 };

/** The members of the frames that begin and resume a session, and values that each must not have. */
const WRONG: Record<string, readonly unknown[]> = {
  limits: NO_LIMITS,
  token: NO_TOKENS,
  ttlMs: NO_NUMBERS,
  attempt: NO_NUMBERS,
  received: NO_COUNTS,
  route: NO_TOKENS.filter((value) => value !== undefined),
};

/** Returns each of these members with each of its wrong values. */
function wrong(...names: string[]): [name: string, value: unknown][] {
  return names.flatMap((name) => WRONG[name]!.map((value): [string, unknown] => [name, value]));
}

describe("a client's hello", () => {
  it.each(wrong("limits"))(
    "closes with 1002, and nothing after it is read, if it has a wrong %s: %j",
    async (_, value) => {
      await using rig = await Rig.live();
      const server = rig.arrival(false);
      server.inject(JSON.stringify({ hello: { session: true, limits: value } }));
      server.inject('[{"n":1}]');
      expect(server.closedWith).toEqual({ code: 1002, reason: "`limits` of a hello break their rules" });
      expect(rig.sessions.tokens.size).toBe(1);
      expect(rig.server.emitted.messages).toEqual([]);
      server.cut();
      expect(rig.server.emitted.notices).toMatchObject([{ closed: { code: 1002 } }]);
    },
  );

  it.each([LEAST, GREATEST])("can have the limits %j", async (limits) => {
    await using rig = await Rig.live();
    const server = rig.arrival(false);
    server.inject(JSON.stringify({ hello: { session: true, limits } }));
    expect(server.open).toBe(true);
    expect(rig.server.link.maxMessageBytes).toBe(limits.maxMessageBytes);
    expect(rig.sessions.tokens.size).toBe(2);
  });

  it("leaves at once where the server waits for it", () => {
    expect(clientAlone({ session: OFFER }).wire.client.sent).toEqual([TAKEN]);
  });

  it.each<[string, (link: PackedLink, wire: Wire) => unknown, string]>([
    ["the first message", (link) => link.send(message(1)), '[{"n":1}]'],
    ["a message that is encoded for many peers", (link) => sendEncoded(link, new EncodedMessage("1")), "[1]"],
    ["a ping", (link) => link.ping(), '{"ping":1}'],
    ["a bye", (link) => link.close(4002, "done"), '{"bye":{"code":4002,"reason":"done"}}'],
    ["an ack, once a message has come", (_link, { client }) => client.inject("[1]"), '{"ack":1}'],
    ["an ack, once a control frame has come", (_link, { client }) => client.inject('{"later":1}'), '{"ack":0}'],
    ["a pong, once a ping has come", (_link, { client }) => client.inject('{"ping":7}'), '{"pong":7}'],
  ])("otherwise leaves in front of %s", async (_what, act, frame) => {
    const { wire, client } = clientAlone({ session: OFFER }, false);
    await microtasks();
    expect(wire.client.sent).toEqual([]);
    act(client.link, wire);
    await microtasks();
    expect(wire.client.sent).toEqual([TAKEN, frame]);
  });

  it("is left out on a socket that is lost before it leaves: `resume` confirms the session", async () => {
    const { wire, client } = clientAlone({ session: OFFER }, false);
    wire.client.cut();
    const next = new Wire();
    client.attach(next.client, { session: { ...OFFER, token: "u" } }, true);
    await microtasks();
    expect([wire.client.sent, next.client.sent]).toEqual([[], [resume("t", 0, 1)]]);
  });
});

describe("a server's hello", () => {
  it.each(wrong("token", "ttlMs", "limits", "route"))(
    "closes with 1002 if it has a wrong %s: %j",
    async (name, value) => {
      const { wire, client, emitted } = clientAlone();
      wire.client.inject(hello({ ...OFFER, [name]: value }));
      expect(wire.client.closedWith).toEqual({ code: 1002, reason: "`session` of a hello breaks its rules" });
      expect(wire.client.sent).toEqual([]);
      expect(client.isResumable).toBe(false);
      wire.client.cut();
      expect(emitted.notices).toMatchObject([{ closed: { code: 1002 } }]);
    },
  );

  it.each([
    { token: "x".repeat(256), ttlMs: 2 ** 53 - 1, limits: GREATEST, route: "x".repeat(256) },
    { token: "x", ttlMs: 1, limits: LEAST },
    { ...OFFER, more: 1, limits: { ...WIRE_LIMITS, more: 2 } },
  ])("can offer the largest and the smallest values, and members of a later version: %#", (offer) => {
    const { wire, client } = clientAlone();
    wire.client.inject(hello(offer, { more: 3 }));
    expect(wire.client.sent).toEqual([TAKEN]);
    expect(client.isResumable).toBe(true);
    expect(client.link.maxMessageBytes).toBe(offer.limits.maxMessageBytes);
    client.link.close();
  });
});

describe("a `resume`", () => {
  it.each(wrong("token", "received", "attempt", "limits"))(
    "closes with 1002, and leaves the session, if it has a wrong %s: %j",
    async (name, value) => {
      await using rig = await Rig.live();
      rig.cut();
      const server = rig.arrival();
      const right = { token: "secret-1", received: 0, attempt: 1, limits: WIRE_LIMITS };
      server.inject(JSON.stringify({ resume: { ...right, [name]: value } }));
      expect(server.closedWith).toMatchObject({ code: 1002 });
      expect(rig.sessions.suspended).toBe(1);
    },
  );
});

describe("a `resumed`", () => {
  it.each([
    ...wrong("token", "received"),
    // Fewer frames than are acked, and more than were sent.
    ["received", 0],
    ["received", 3],
    ["received", 1000],
  ])("closes with 1002, and ends the session, if it has a wrong %s: %j", async (name, value) => {
    await using rig = await Rig.live();
    await rig.send(rig.client.link, 1, 2);
    rig.cut();
    rig.client.link.endpoint.state.session!.ackTo(1);
    const client = rig.resuming();
    client.inject(JSON.stringify({ resumed: { token: "new", received: 1, [name]: value } }));
    expect(client.closedWith).toMatchObject({ code: 1002 });
    await rig.settle();
    expect(rig.emitted.notices.at(-1)).toHaveProperty("lost");
  });
});
