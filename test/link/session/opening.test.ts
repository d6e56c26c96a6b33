import { describe, expect, it } from "vitest";
import { TestClient } from "../../support/links.js";
import { PackedLink } from "../../../src/session/link.js";
import { plain } from "../../../src/link/plain.js";
import { useFakeClock } from "../../support/clock.js";
import { controls, LIMITS, message, numbers, packs, Rig, Told, ToldLost, WIRE_LIMITS } from "./rig.js";
import { Wire } from "./wire.js";

useFakeClock();

const owner = { suspended: () => {}, flows: () => {}, over: () => false };

/** A client whose server is the test. */
function clientAlone(first?: { hello: unknown } | "plain"): { wire: Wire; client: TestClient; told: Told } {
  const wire = new Wire();
  wire.server.start({ frame() {}, closed() {} });
  const client = new TestClient(wire.client, LIMITS, owner);
  if (first === "plain") client.flowPlainly();
  else if (first !== undefined) client.hello(first.hello);
  const told = new ToldLost();
  client.link.start(told);
  return { wire, client, told };
}

describe("a session", () => {
  it("is opened by hello, session and ack, and carries messages both ways", async () => {
    const rig = await Rig.live();
    rig.client.link.send(message(1));
    rig.server.link.send(message(2));
    await rig.settle();
    expect(numbers(rig.server.told)).toEqual([1]);
    expect(numbers(rig.told)).toEqual([2]);
    expect(controls(rig.wire.server.sent)).toEqual([
      { hello: { session: true } },
      { session: { token: "secret-1", ttlMs: 60_000, limits: WIRE_LIMITS } },
    ]);
    expect(controls(rig.wire.client.sent)).toEqual([{ hello: { session: true, limits: WIRE_LIMITS } }, { ack: 0 }]);
    await rig.close();
  });

  it("is told to the owner of the sockets once messages flow", async () => {
    const rig = new Rig();
    expect(rig.owner).toEqual([]);
    await rig.settle();
    expect(rig.owner).toEqual(["fresh"]);
    await rig.close();
  });

  it("is asked for at once by a client that was made with the server's hello, which is not answered twice", async () => {
    const { wire, client } = clientAlone({ hello: { session: true } });
    expect(controls(wire.client.sent)).toHaveLength(1);
    client.link.send(message(1));
    wire.server.send('{"hello":{"session":true}}');
    await wire.settle();
    expect(controls(wire.client.sent)).toHaveLength(1);
    expect(packs(wire.client.sent)).toEqual(['[{"n":1}]']);
  });

  it("does not count what was sent before it", async () => {
    const rig = new Rig();
    // Plainly, because the server's hello has not come; and in a pack, because the client's has not.
    rig.client.link.send(message("plain"));
    rig.server.link.send(message("packed"));
    await rig.settle();
    expect(numbers(rig.server.told)).toEqual(["plain"]);
    expect(numbers(rig.told)).toEqual(["packed"]);
    expect(rig.client.link.endpoint.state.session).toMatchObject({ received: 0, next: 1 });
    expect(rig.server.link.endpoint.state.session).toMatchObject({ received: 0, next: 1 });
    await rig.close();
  });

  it("sends what is in the open pack before it begins to count", async () => {
    const rig = new Rig();
    rig.wire.client.deliver();
    rig.server.link.send(message(1));
    rig.wire.server.deliver();
    expect(rig.wire.server.sent.map((frame) => frame.slice(0, 10))).toEqual(['{"hello":{', '[{"n":1}]', '{"session"']);
    await rig.settle();
    expect(rig.client.link.endpoint.state.session!.received).toBe(0);
    await rig.close();
  });

  it("counts what the client sends before the answer to its wish has come", async () => {
    const rig = new Rig();
    rig.wire.client.deliver();
    rig.client.link.send(message(1));
    await rig.settle();
    expect(rig.server.link.endpoint.state.session!.received).toBe(1);
    await rig.cutAndResume();
    expect(numbers(rig.server.told)).toEqual([1]);
    await rig.close();
  });

  it("is not made for a client that does not ask", async () => {
    const wire = new Wire();
    const rig = await Rig.live();
    const link = rig.sessions.link(wire.server, undefined);
    const [near, far] = [new Told(), new Told()];
    link.start(near);
    const client = clientLink(wire.client);
    client.start(far);
    await wire.settle();
    client.send(message(1));
    link.send(message(2));
    await wire.settle();
    expect(numbers(near)).toEqual([1]);
    expect(numbers(far)).toEqual([2]);
    expect(controls(wire.client.sent)).toEqual([{ hello: {} }]);
    expect(controls(wire.server.sent)).toEqual([{ hello: { session: true } }]);
    expect(link.endpoint.state.session).toBeUndefined();
    wire.client.cut();
    wire.server.cut();
    expect(near.notices).toEqual([{ closed: { code: 1006, reason: "" } }]);
    await rig.close();
  });

  it.each([
    '{"hello":{}}',
    '{"hello":{"session":1}}',
    '{"hello":{"session":"true"}}',
    '{"hello":true}',
    '{"hello":null}',
  ])("is not asked for where the server says %s", async (hello) => {
    const { wire, client, told } = clientAlone();
    wire.server.send(hello);
    await wire.settle();
    client.link.send(message(1));
    await wire.settle();
    expect(wire.client.sent).toEqual(['{"hello":{}}', '[{"n":1}]']);
    wire.client.cut();
    expect(told.notices).toEqual([{ closed: { code: 1006, reason: "" } }]);
  });

  it("is not asked for on a link that is plain after all", async () => {
    const { wire, client, told } = clientAlone();
    const link = plain(wire.server);
    link.send(message(1));
    await wire.settle();
    client.link.send(message(2));
    expect(wire.client.sent).toEqual([message(2)]);
    expect(numbers(told)).toEqual([1]);
  });

  it("ignores an answer that it did not ask for, and a second one", async () => {
    const { wire, client } = clientAlone();
    const answer = JSON.stringify({ session: { token: "a", ttlMs: 5, limits: WIRE_LIMITS } });
    wire.server.send('{"hello":{}}');
    wire.server.send(answer);
    await wire.settle();
    expect(client.isResumable).toBe(false);
    const rig = await Rig.live();
    rig.wire.client.inject(answer);
    expect(rig.wire.client.open).toBe(true);
    await rig.cutAndResume();
    expect(controls(rig.wire.client.sent)[0]).toMatchObject({ resume: { token: "secret-1" } });
    await rig.close();
  });
});

/** Numbers that are none of frames, of bytes or of milliseconds. */
const NO_NUMBERS = [0, -1, 1.5, "16", null, true, [16], 2 ** 53];

describe("the limits in a hello", () => {
  it.each([undefined, null, 5, [], {}, "x"])("must be there, and not %j", async (limits) => {
    const wire = new Wire();
    const rig = await Rig.live();
    const told = new Told();
    rig.sessions.link(wire.server, undefined).start(told);
    wire.server.inject(JSON.stringify({ hello: { session: true, limits } }));
    expect(wire.server.closedWith).toMatchObject({ code: 1002 });
    expect(rig.sessions.tokens.size).toBe(1);
    await rig.close();
  });

  it.each(Object.keys(WIRE_LIMITS).flatMap((name) => NO_NUMBERS.map((value) => [name, value])))(
    "must be positive and whole: not %s of %j",
    async (name, value) => {
      const wire = new Wire();
      const rig = await Rig.live();
      rig.sessions.link(wire.server, undefined).start(new Told());
      wire.server.inject(
        JSON.stringify({ hello: { session: true, limits: { ...WIRE_LIMITS, [name as string]: value } } }),
      );
      expect(wire.server.closedWith).toMatchObject({ code: 1002 });
      await rig.close();
    },
  );

  it("may be as small as 1 and as large as a whole number can be", async () => {
    const wire = new Wire();
    const rig = await Rig.live();
    rig.sessions.link(wire.server, undefined).start(new Told());
    const limits = { maxMessageBytes: 2 ** 53 - 1, logFrames: 1, logLength: 1 };
    wire.server.inject(JSON.stringify({ hello: { session: true, limits } }));
    expect(wire.server.open).toBe(true);
    expect(rig.sessions.tokens.size).toBe(2);
    wire.server.cut();
    await rig.close();
  });
});

describe("what a server's `session` says", () => {
  const good = { token: "t", ttlMs: 1000, limits: WIRE_LIMITS };
  it.each<[string, unknown]>([
    ...[undefined, "", "x".repeat(257), 5, null, ["t"]].map((token): [string, unknown] => ["token", token]),
    ...NO_NUMBERS.map((ttlMs): [string, unknown] => ["ttlMs", ttlMs]),
    ...[undefined, null, {}, { ...WIRE_LIMITS, logFrames: 0 }].map((limits): [string, unknown] => ["limits", limits]),
  ])("is checked: not a %s of %j", async (name, value) => {
    const { wire, client, told } = clientAlone();
    wire.server.send('{"hello":{"session":true}}');
    await wire.settle();
    wire.client.inject(JSON.stringify({ session: { ...good, [name]: value } }));
    expect(wire.client.closedWith).toMatchObject({ code: 1002 });
    await wire.settle();
    expect(client.isResumable).toBe(false);
    expect(told.notices).toMatchObject([{ closed: { code: 1002 } }]);
  });

  it("may be as long and as much as it gets", async () => {
    const { wire, client } = clientAlone();
    wire.server.send('{"hello":{"session":true}}');
    await wire.settle();
    wire.client.inject(JSON.stringify({ session: { ...good, token: "x".repeat(256), ttlMs: 2 ** 53 - 1 } }));
    expect(client.isResumable).toBe(true);
    wire.client.cut();
    client.link.close();
  });
});
