/** How a session begins: the server's hello offers it, and the client's hello accepts it. */
import { describe, expect, it } from "vitest";
import { plain } from "../../../src/link/plain.js";
import { useFakeClock } from "../../support/clock.js";
import { clientLink, serverLink, TestClient } from "../../support/links.js";
import { controls, KEPT, LIMITS, message, numbers, packs, Rig, Told, ToldLost, WIRE_LIMITS } from "./rig.js";
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
function clientAlone(first?: unknown, isAwaited = true): { wire: Wire; client: TestClient; told: Told } {
  const wire = new Wire();
  wire.server.start({ frame() {}, closed() {} });
  const client = new TestClient(wire.client, LIMITS, { over: () => false }, first, isAwaited);
  const told = new ToldLost();
  client.link.start(told);
  return { wire, client, told };
}

/** Makes a client that has not said its hello yet. */
function clientBeforeHello(): ReturnType<typeof clientAlone> {
  const alone = clientAlone({ session: OFFER }, false);
  expect(alone.wire.client.sent).toEqual([]);
  return alone;
}

/** Opens a link of the rig's server whose client is the test. */
function serverAlone(rig: Rig): Wire["server"] {
  const wire = rig.open(false);
  wire.client.start({ frame() {}, closed() {} });
  return wire.server;
}

describe("a session", () => {
  it("is opened by two hellos, and delivers messages both ways", async () => {
    const rig = await Rig.live();
    rig.client.link.send(message(1));
    rig.server.link.send(message(2));
    await rig.settle();
    expect(numbers(rig.server.told)).toEqual([1]);
    expect(numbers(rig.told)).toEqual([2]);
    expect(controls(rig.wire.server.sent)).toEqual([
      { hello: { session: { token: "secret-1", ttlMs: KEPT.ttlMs, limits: WIRE_LIMITS } } },
    ]);
    expect(controls(rig.wire.client.sent)).toEqual([{ hello: { session: true, limits: WIRE_LIMITS } }]);
    await rig.close();
  });

  it("is offered before any other frame, also by a server that sends at once", async () => {
    const rig = new Rig();
    rig.server.link.send(message(1));
    await rig.settle();
    expect(rig.wire.server.sent.map((frame) => frame.slice(0, 9))).toEqual(['{"hello":', '[{"n":1}]']);
    await rig.close();
  });

  it("starts at the client with the server's hello, and at the server when that hello is sent", async () => {
    const rig = new Rig();
    expect(rig.sessions).toMatchObject({ suspended: 0, live: 1, tokens: { size: 1, resumable: 1 } });
    expect(rig.client.isResumable).toBe(false);
    rig.wire.client.deliver();
    expect(rig.client.isResumable).toBe(true);
    await rig.settle();
    expect(rig.sessions).toMatchObject({ suspended: 0, live: 1, tokens: { size: 1, resumable: 1 } });
    await rig.close();
  });

  it("is reported to the owner of the sockets as flowing messages, first plain and then in a session", async () => {
    const rig = new Rig();
    expect(rig.owner).toEqual(["fresh"]);
    await rig.settle();
    expect(rig.owner).toEqual(["fresh", "resumed"]);
    expect(rig.told.notices).toEqual([]);
    await rig.close();
  });

  it("is accepted at once by a client that was made with the server's hello, which is not answered twice", async () => {
    const { wire, client } = clientAlone({ session: OFFER });
    expect(wire.client.sent).toEqual([TAKEN]);
    client.link.send(message(1));
    // The socket has kept the frame.
    wire.server.send(hello(OFFER));
    await wire.settle();
    expect(wire.client.sent).toEqual([TAKEN, '[{"n":1}]']);
    expect(client.isResumable).toBe(true);
    client.link.close();
  });

  it("does not count plain messages of the client, but all messages that the server sent after its hello", async () => {
    const rig = new Rig();
    rig.client.link.send(message("plain"));
    rig.server.link.send(message("packed"));
    await rig.settle();
    expect(numbers(rig.server.told)).toEqual(["plain"]);
    expect(numbers(rig.told)).toEqual(["packed"]);
    expect(rig.client.link.endpoint.state.session).toMatchObject({ received: 1, next: 1 });
    expect(rig.server.link.endpoint.state.session).toMatchObject({ received: 0, next: 2 });
    await rig.cutAndResume();
    expect(numbers(rig.server.told)).toEqual(["plain"]);
    expect(numbers(rig.told)).toEqual(["packed"]);
    await rig.close();
  });

  it("sends queued messages plainly before the hello, and counted packs after it", async () => {
    const rig = new Rig();
    rig.client.link.send(message("plain"));
    rig.wire.client.deliver();
    rig.client.link.send(message("packed"));
    await microtasks();
    expect(rig.wire.client.sent).toEqual(['{"n":"plain"}', TAKEN, '[{"n":"packed"}]']);
    await rig.settle();
    expect(rig.server.link.endpoint.state.session!.received).toBe(1);
    await rig.cutAndResume();
    expect(numbers(rig.server.told)).toEqual(["plain", "packed"]);
    await rig.close();
  });

  it("replays the server's messages to a client whose hello was lost", async () => {
    const rig = new Rig();
    rig.server.link.send(message(1));
    await microtasks();
    rig.server.link.send(message(2));
    await microtasks();
    // The hello and one of two packs arrive.
    rig.wire.client.deliver();
    rig.wire.client.deliver();
    await rig.cutAndResume();
    expect(numbers(rig.told)).toEqual([1, 2]);
    expect(controls(rig.wire.client.sent)[0]).toMatchObject({ resume: { token: "secret-1", received: 1, attempt: 1 } });
    await rig.close();
  });

  it("is confirmed by the hello of a client that offered to resume and begins a new session, with the token of that socket's hello", async () => {
    const rig = await Rig.live();
    rig.cut();
    rig.server.link.close();
    rig.reconnect();
    await rig.settle();
    const [, offered] = rig.tokens;
    expect(rig.tokens).toHaveLength(2);
    expect(rig.sessions).toMatchObject({ live: 1, tokens: { size: 1 } });
    rig.cut();
    rig.reconnect();
    await rig.settle();
    expect(controls(rig.wire.client.sent)[0]).toMatchObject({ resume: { token: offered, attempt: 1 } });
    expect(rig.told.notices.at(-1)).toBe("resumed");
    await rig.close();
  });

  it("is not created for a client that declines it", async () => {
    const rig = await Rig.live();
    const wire = rig.open(false);
    const near = rig.server;
    const far = new Told();
    const client = clientLink(wire.client);
    client.start(far);
    await wire.settle();
    client.send(message(1));
    near.link.send(message(2));
    await wire.settle();
    expect(numbers(near.told)).toEqual([1]);
    expect(numbers(far)).toEqual([2]);
    expect(controls(wire.client.sent)).toEqual([{ hello: {} }]);
    expect(controls(wire.server.sent)).toMatchObject([{ hello: { session: { token: "secret-2" } } }]);
    expect(near.link.endpoint.state.session).toBeUndefined();
    expect(rig.sessions).toMatchObject({ live: 1, tokens: { size: 1 } });
    wire.client.cut();
    wire.server.cut();
    expect(near.told.notices).toEqual([{ closed: { code: 1006, reason: "" } }]);
    await rig.close();
  });

  it("loses no message of the server if it is declined, even if the socket was full", async () => {
    const rig = await Rig.live();
    const server = serverAlone(rig);
    const { link } = rig.server;
    link.send(message(1));
    server.unsentBytes = LIMITS.highWaterBytes;
    await microtasks();
    link.send(message(2));
    expect(packs(server.sent)).toEqual([]);
    server.inject('{"hello":{}}');
    server.unsentBytes = 0;
    rig.pass(20);
    await microtasks();
    expect(packs(server.sent)).toEqual(['[{"n":1}]', '[{"n":2}]']);
    await rig.close();
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
    const rig = await Rig.live();
    const server = serverAlone(rig);
    server.inject(frame);
    server.inject('[{"n":1}]');
    expect(numbers(rig.server.told)).toEqual([1]);
    expect(server.open).toBe(true);
    expect(rig.server.link.endpoint.state).toMatchObject({ kind: "packed" });
    expect(rig.sessions.tokens.size).toBe(1);
    await rig.close();
  });

  it("is not accepted by a client without sessions", async () => {
    const wire = new Wire();
    wire.server.start({ frame() {}, closed() {} });
    const link = clientLink(wire.client);
    link.start(new Told());
    wire.server.send(hello(OFFER));
    await wire.settle();
    link.send(message(1));
    await wire.settle();
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
    const { wire, client, told } = clientAlone();
    wire.server.send(frame);
    await wire.settle();
    client.link.send(message(1));
    await wire.settle();
    expect(wire.client.sent).toEqual(['{"hello":{}}', '[{"n":1}]']);
    expect(client.isResumable).toBe(false);
    wire.client.cut();
    expect(told.notices).toEqual([{ closed: { code: 1006, reason: "" } }]);
  });

  it("is not offered by a server without sessions: a client cannot demand one", async () => {
    const wire = new Wire();
    wire.client.start({ frame() {}, closed() {} });
    const link = serverLink(wire.server);
    const told = new Told();
    link.start(told);
    wire.server.inject(TAKEN);
    wire.server.inject('[{"n":1}]');
    expect(wire.server.sent).toEqual(['{"hello":{}}']);
    expect(numbers(told)).toEqual([1]);
    expect(link.endpoint.state).toMatchObject({ kind: "packed" });
    wire.server.cut();
    expect(told.notices).toEqual([{ closed: { code: 1006, reason: "" } }]);
  });

  it("is not accepted on a link that turns out to be plain", async () => {
    const { wire, client, told } = clientAlone();
    const link = plain(wire.server);
    link.send(message(1));
    await wire.settle();
    client.link.send(message(2));
    await wire.settle();
    expect(wire.client.sent).toEqual([message(2)]);
    expect(numbers(told)).toEqual([1]);
    expect(client.isResumable).toBe(false);
  });

  it("is opened once: a second hello changes nothing, nor does the `session` of an old server", async () => {
    const other = { ...OFFER, token: "other" };
    for (const frame of [hello(other), JSON.stringify({ session: other })]) {
      const rig = await Rig.live();
      rig.wire.client.inject(frame);
      rig.wire.server.inject('{"hello":{}}');
      expect(rig.wire.client.open && rig.wire.server.open).toBe(true);
      await rig.cutAndResume();
      expect(controls(rig.wire.client.sent)[0]).toMatchObject({ resume: { token: "secret-1" } });
      expect(rig.told.notices).toEqual(["suspended", "resumed"]);
      await rig.close();
    }
  });

  it("can be offered with members of a later version, which are ignored", async () => {
    const { wire, client } = clientAlone();
    wire.server.send(hello({ ...OFFER, more: 1, limits: { ...WIRE_LIMITS, more: 2 } }, { more: 3 }));
    await wire.settle();
    expect(wire.client.sent).toEqual([TAKEN]);
    expect(client.isResumable).toBe(true);
    client.link.close();
  });
});

/** Values that are no count of frames, bytes or milliseconds. */
const NO_NUMBERS = [0, -1, 1.5, "16", null, true, [16], 2 ** 53];
const NO_LIMITS = [undefined, null, 5, [], {}, "x"];
const LIMIT_NAMES = Object.keys(WIRE_LIMITS);
/** Limits with one invalid member. */
const WRONG_LIMITS = LIMIT_NAMES.flatMap((name) =>
  [...NO_NUMBERS, undefined].map((value) => ({ ...WIRE_LIMITS, [name]: value })),
);
const GREATEST = { maxMessageBytes: 2 ** 53 - 1, logFrames: 2 ** 53 - 1, logLength: 2 ** 53 - 1 };
const LEAST = { maxMessageBytes: 1, logFrames: 1, logLength: 1 };

describe("the limits in a client's hello", () => {
  it.each([...NO_LIMITS, ...WRONG_LIMITS])("is checked: not %j", async (limits) => {
    const rig = await Rig.live();
    const server = serverAlone(rig);
    server.inject(JSON.stringify({ hello: { session: true, limits } }));
    expect(server.closedWith).toEqual({ code: 1002, reason: "`limits` of a hello break their rules" });
    expect(rig.sessions.tokens.size).toBe(1);
    // Nothing after it is read.
    server.inject('[{"n":1}]');
    expect(rig.server.told.messages).toEqual([]);
    server.cut();
    expect(rig.server.told.notices).toMatchObject([{ closed: { code: 1002 } }]);
    await rig.close();
  });

  it.each([LEAST, GREATEST])("can be %j", async (limits) => {
    const rig = await Rig.live();
    const server = serverAlone(rig);
    server.inject(JSON.stringify({ hello: { session: true, limits } }));
    expect(server.open).toBe(true);
    expect(rig.server.link.maxMessageBytes).toBe(limits.maxMessageBytes);
    expect(rig.server.link.endpoint.state).toMatchObject({ kind: "live" });
    expect(rig.sessions.tokens.size).toBe(2);
    await rig.close();
  });
});

describe("the limits in a `resume`", () => {
  it.each([...NO_LIMITS, ...WRONG_LIMITS])("is checked: not %j", async (limits) => {
    const rig = await Rig.live();
    rig.cut();
    const wire = rig.open(true);
    wire.client.start({ frame() {}, closed() {} });
    wire.server.inject(JSON.stringify({ resume: { token: "secret-1", received: 0, attempt: 1, limits } }));
    expect(wire.server.closedWith).toMatchObject({ code: 1002 });
    expect(rig.sessions.suspended).toBe(1);
    await rig.close();
  });
});

describe("the session in a server's hello", () => {
  it.each<[string, unknown]>([
    ...[undefined, "", "x".repeat(257), 5, null, ["t"]].map((token): [string, unknown] => ["token", token]),
    ...[...NO_NUMBERS, undefined].map((ttlMs): [string, unknown] => ["ttlMs", ttlMs]),
    ...[...NO_LIMITS, ...WRONG_LIMITS].map((limits): [string, unknown] => ["limits", limits]),
  ])("is checked: not a %s of %j", async (name, value) => {
    const { wire, client, told } = clientAlone();
    wire.server.send(hello({ ...OFFER, [name]: value }));
    await wire.settle();
    expect(wire.client.closedWith).toEqual({ code: 1002, reason: "`session` of a hello breaks its rules" });
    expect(wire.client.sent).toEqual([]);
    expect(client.isResumable).toBe(false);
    expect(told.notices).toMatchObject([{ closed: { code: 1002 } }]);
  });

  it("is checked also if the client was made with the hello", async () => {
    const { wire, client, told } = clientAlone({ session: { ...OFFER, token: "" } });
    expect(wire.client.closedWith).toMatchObject({ code: 1002 });
    await wire.settle();
    expect(client.isResumable).toBe(false);
    expect(told.notices).toMatchObject([{ closed: { code: 1002 } }]);
  });

  it.each([
    [{ token: "x".repeat(256), ttlMs: 2 ** 53 - 1, limits: GREATEST }],
    [{ token: "x", ttlMs: 1, limits: LEAST }],
  ])("accepts the largest and the smallest values: %#", async (offer) => {
    const { wire, client } = clientAlone();
    wire.server.send(hello(offer));
    await wire.settle();
    expect(wire.client.sent).toEqual([TAKEN]);
    expect(client.isResumable).toBe(true);
    expect(client.link.maxMessageBytes).toBe(offer.limits.maxMessageBytes);
    client.link.close();
  });
});

describe("the hello of a client", () => {
  it("leaves at once where the server waits for it", () => {
    expect(clientAlone({ session: OFFER }).wire.client.sent).toEqual([TAKEN]);
  });

  it("otherwise leaves in front of the first message", async () => {
    const { wire, client } = clientBeforeHello();
    await microtasks();
    expect(wire.client.sent).toEqual([]);
    client.link.send(message(1));
    await microtasks();
    expect(wire.client.sent).toEqual([TAKEN, "[" + message(1) + "]"]);
  });

  it("leaves in front of a ping", () => {
    const { wire, client } = clientBeforeHello();
    client.link.ping();
    expect(wire.client.sent).toEqual([TAKEN, '{"ping":1}']);
  });

  it("leaves in front of a bye", () => {
    const { wire, client } = clientBeforeHello();
    client.link.close(4002, "done");
    expect(wire.client.sent).toEqual([TAKEN, '{"bye":{"code":4002,"reason":"done"}}']);
  });

  it.each([
    ["an ack, once a message has come", "[" + message(1) + "]", '{"ack":1}'],
    ["a pong, once a ping has come", '{"ping":7}', '{"pong":7}'],
  ])("leaves in front of %s", async (_what, frame, reply) => {
    const { wire } = clientBeforeHello();
    wire.client.inject(frame);
    await microtasks();
    expect(wire.client.sent).toEqual([TAKEN, reply]);
  });

  it("is left out on a socket that is lost before it leaves: `resume` confirms the session", async () => {
    const { wire, client } = clientBeforeHello();
    wire.client.cut();
    const next = new Wire();
    next.server.start({ frame() {}, closed() {} });
    client.attach(next.client, { session: { ...OFFER, token: "u" } }, true);
    expect(next.client.sent).toEqual([
      JSON.stringify({ resume: { token: "t", received: 0, attempt: 1, limits: WIRE_LIMITS } }),
    ]);
    await microtasks();
    expect(wire.client.sent).toEqual([]);
  });
});
