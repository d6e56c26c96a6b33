/** Rules 1 to 5: a client resumes its session. */
import { describe, expect, it } from "vitest";
import { useFakeClock } from "../../support/clock.js";
import { controls, message, numbers, packs, resume, Rig, WIRE_LIMITS } from "./rig.js";
import { microtasks } from "./wire.js";

useFakeClock();

const REFUSED = '{"resumed":{"refused":"unknown-session"}}';

/** Makes a rig whose session has lost its socket, with messages in flight in both directions. */
async function suspended(): Promise<Rig> {
  const rig = await Rig.live();
  rig.client.link.send(message("c1"));
  rig.server.link.send(message("s1"));
  await rig.settle();
  rig.client.link.send(message("c2"));
  rig.server.link.send(message("s2"));
  await microtasks();
  rig.cut();
  return rig;
}

/** Makes the server's end of a new connection that offers to resume. */
function arrival(rig: Rig): Rig["wire"]["server"] {
  const wire = rig.open(true);
  wire.client.start({ frame() {}, closed() {} });
  return wire.server;
}

describe("a client that resumes its session", () => {
  it("delivers lost messages once and in order, both ways", async () => {
    const rig = await suspended();
    rig.client.link.send(message("c3"));
    rig.server.link.send(message("s3"));
    rig.reconnect();
    await rig.settle();
    expect(numbers(rig.server.told)).toEqual(["c1", "c2", "c3"]);
    expect(numbers(rig.told)).toEqual(["s1", "s2", "s3"]);
    expect(rig.told.notices).toEqual(["suspended", "resumed"]);
    expect(rig.server.told.notices).toEqual(["suspended", "resumed"]);
    expect(rig.servers).toHaveLength(1);
    expect(rig.owner).toEqual(["suspended", "resumed"]);
    await rig.close();
  });

  it("can resume any number of times", async () => {
    const rig = await Rig.live();
    for (let i = 0; i < 20; i++) {
      rig.client.link.send(message(i));
      await microtasks();
      if (i % 3 === 0) rig.wire.server.deliver();
      await rig.cutAndResume();
    }
    expect(numbers(rig.server.told)).toEqual(Array.from({ length: 20 }, (_, i) => i));
    expect(rig.sessions.tokens.size).toBe(1);
    await rig.close();
  });

  it("sends `resume` and nothing else until `resumed` (rule 1)", async () => {
    const rig = await suspended();
    const { client } = rig.reconnect();
    rig.client.link.send(message("c3"));
    rig.client.link.ping();
    await microtasks();
    expect(client.sent).toEqual([]);
    client.deliver();
    rig.client.link.send(message("c4"));
    client.inject('{"ping":1}');
    await microtasks();
    expect(client.sent).toEqual([resume("secret-1", 1, 1)]);
    await rig.settle();
    expect(client.sent.slice(1)).toEqual(['{"ack":1}', '[{"n":"c2"}]', '[{"n":"c3"},{"n":"c4"}]']);
    await rig.close();
  });

  it.each(["[]", '[{"n":1}]', "1", "null", "nonsense"])("closes if %s arrives before `resumed`", async (frame) => {
    const rig = await suspended();
    const { client } = rig.reconnect();
    client.deliver();
    client.inject(frame);
    expect(client.closedWith).toMatchObject({ code: 1002 });
    expect(numbers(rig.told)).toEqual(["s1"]);
    await rig.settle();
    expect(rig.told.notices.at(-1)).toHaveProperty("lost");
    await rig.close();
  });

  it("can send hello instead, and begins a new session", async () => {
    const rig = await suspended();
    const server = arrival(rig);
    server.inject('{"hello":{}}');
    server.inject('[{"n":"fresh"}]');
    expect(rig.servers).toHaveLength(2);
    expect(numbers(rig.server.told)).toEqual(["fresh"]);
    await rig.close();
  });

  it.each([
    '[{"n":1}]',
    "[]",
    "{}",
    '{"ack":0}',
    '{"jsonrpc":"2.0","method":"x"}',
    "nonsense",
    "",
    "null",
    '{"hello":garbage',
  ])("must not begin with %j: no peer is made, and nothing after it is read", async (frame) => {
    const rig = await suspended();
    const server = arrival(rig);
    server.inject(frame);
    expect(server.closedWith).toMatchObject({ code: 1002 });
    server.inject(resume("secret-1"));
    expect(rig.servers).toHaveLength(1);
    expect(rig.sessions.suspended).toBe(1);
    await rig.close();
  });

  it("cannot resume on a socket that did not offer to resume", async () => {
    const rig = await Rig.live();
    const first = rig.server;
    const wire = rig.open(false);
    wire.server.inject('{"hello":{}}');
    wire.server.inject(resume("secret-1"));
    expect(wire.server.closedWith).toMatchObject({ code: 1002 });
    expect(first.told.notices).toEqual([]);
    await rig.close();
  });

  it("sends a message like any other if it sends `resume` on a socket that is due a hello", async () => {
    const rig = await suspended();
    const wire = rig.open(false);
    wire.server.inject(resume("secret-1"));
    expect(rig.server.told.messages).toEqual([
      { resume: { token: "secret-1", received: 0, attempt: 1, limits: WIRE_LIMITS } },
    ]);
    expect(wire.server.open).toBe(true);
    expect(rig.sessions.suspended).toBe(1);
    await rig.close();
  });

  it("is closed after a timeout if it sends nothing, and its session is not changed", async () => {
    const rig = await suspended();
    const server = arrival(rig);
    rig.pass(9_999);
    expect(server.open).toBe(true);
    rig.pass(1);
    expect(server.closedWith).toMatchObject({ code: 4000 });
    server.inject(resume("secret-1"));
    expect(rig.sessions.suspended).toBe(1);
    await rig.close();
  });

  it("continues without a session on a plain or packed link", async () => {
    for (const isGreeted of [true, false]) {
      const rig = await suspended();
      const wire = rig.openBare();
      rig.client.link.send(message("lost with the session"));
      if (isGreeted) rig.client.dial(wire.client);
      else rig.client.attach(wire.client, "plain");
      if (isGreeted) wire.server.send('{"hello":{}}');
      await wire.settle();
      expect(rig.told.notices).toMatchObject(["suspended", { lost: expect.any(String) }, "resumed"]);
      rig.client.link.send(message("fresh"));
      await wire.settle();
      const fresh = message("fresh");
      expect(wire.client.sent).toEqual(isGreeted ? ['{"hello":{}}', `[${fresh}]`] : [fresh]);
      expect(rig.owner.slice(-1)).toEqual(["fresh"]);
      wire.server.send(isGreeted ? '[{"n":"answer"}]' : '{"n":"answer"}');
      await wire.settle();
      expect(numbers(rig.told).at(-1)).toBe("answer");
      await rig.close();
    }
  });
});

describe("the old socket (rule 2)", () => {
  it("is closed, and its later frames are not read by the server", async () => {
    const rig = await Rig.live();
    const old = rig.wire;
    rig.client.link.send(message(1));
    await microtasks();
    rig.client.link.giveUp("it is quiet");
    rig.reconnect();
    await rig.wire.settle();
    expect(old.server.closedWith).toMatchObject({ code: 4000 });
    expect(old.client.closedWith).toMatchObject({ code: 4000 });
    await rig.settle();
    expect(numbers(rig.server.told)).toEqual([1]);
    // The server never noticed the loss.
    expect(rig.server.told.notices).toEqual([]);
    await rig.close();
  });

  it("is not read any more by the client after the client abandoned it", async () => {
    const rig = await Rig.live();
    const old = rig.wire;
    rig.server.link.send(message(1));
    await microtasks();
    rig.client.link.giveUp("it is quiet");
    await old.settle();
    expect(numbers(rig.told)).toEqual([]);
    rig.reconnect();
    await rig.settle();
    expect(numbers(rig.told)).toEqual([1]);
    expect(rig.told.notices).toEqual(["suspended", "resumed"]);
    await rig.close();
  });

  it("counts the messages that arrived before it was abandoned, and no more", async () => {
    const rig = await Rig.live();
    const old = rig.wire;
    for (let i = 1; i <= 3; i++) {
      rig.client.link.send(message(i));
      await microtasks();
    }
    rig.client.link.giveUp("it is quiet");
    const { client, server } = rig.reconnect();
    client.deliver();
    // Two of three messages still arrive over the old socket, before `resume` does.
    old.server.deliver();
    old.server.deliver();
    server.deliver();
    expect(controls(server.sent).at(-1)).toEqual({ resumed: { token: rig.tokens.at(-1), received: 2 } });
    await rig.settle();
    expect(numbers(rig.server.told)).toEqual([1, 2, 3]);
    expect(packs(client.sent)).toEqual(['[{"n":3}]']);
    await rig.close();
  });

  it("does not end the session if its close is reported late", async () => {
    const rig = await Rig.live();
    const old = rig.wire;
    rig.client.link.giveUp("it is quiet");
    rig.reconnect();
    await rig.wire.settle();
    old.server.cut({ code: 1002, reason: "" });
    old.client.cut({ code: 1002, reason: "" });
    rig.client.link.send(message(1));
    await rig.settle();
    expect(numbers(rig.server.told)).toEqual([1]);
    await rig.close();
  });

  it("moves the messages of the current tick to the replay log, in order", async () => {
    const rig = await Rig.live();
    rig.client.link.giveUp("it is quiet");
    const { client, server } = rig.reconnect();
    client.deliver();
    rig.server.link.send(message(1));
    // The open pack has not been sent when the newer socket takes over.
    server.deliver();
    rig.server.link.send(message(2));
    await rig.settle();
    expect(numbers(rig.told)).toEqual([1, 2]);
    await rig.close();
  });
});

describe("an attempt (rule 3)", () => {
  it("grows with each socket", async () => {
    const rig = await suspended();
    for (const attempt of [1, 2, 3]) {
      const { client } = rig.reconnect();
      client.deliver();
      expect(controls(client.sent)).toEqual([
        { resume: { token: "secret-1", received: 1, attempt, limits: WIRE_LIMITS } },
      ]);
      rig.cut();
    }
    expect(rig.told.notices).toEqual(["suspended"]);
    expect(rig.owner).toEqual(["suspended", "suspended", "suspended", "suspended"]);
    await rig.close();
  });

  it("restarts at 1 in a new session", async () => {
    const rig = await Rig.live();
    await rig.cutAndResume();
    rig.cut({ code: 1008, reason: "" });
    rig.reconnect();
    await rig.settle();
    await rig.cutAndResume();
    expect(controls(rig.wire.client.sent)[0]).toEqual({
      // After this token, one arrived with the hello of this socket, and one with `resumed`.
      resume: { token: rig.tokens.at(-3), received: 0, attempt: 1, limits: WIRE_LIMITS },
    });
    await rig.close();
  });

  it.each([1, 2])("closes its socket and not the session if it is stale: %i after 2", async (attempt) => {
    const rig = await suspended();
    rig.reconnect().client.deliver();
    rig.cut();
    const { client, server } = rig.reconnect();
    client.deliver();
    server.deliver();
    const late = arrival(rig);
    late.inject(resume("secret-1", 0, attempt));
    expect(late.closedWith).toMatchObject({ code: 4000 });
    expect(controls(late.sent)).toEqual([{ hello: { session: expect.anything() } }]);
    late.inject(resume("secret-1", 0, 99));
    expect(server.open).toBe(true);
    await rig.settle();
    expect(numbers(rig.server.told)).toEqual(["c1", "c2"]);
    expect(rig.told.notices).toEqual(["suspended", "resumed"]);
    await rig.close();
  });

  it("is sent once on a socket: a second `resume` ends socket and session", async () => {
    const rig = await suspended();
    const { server } = rig.reconnect();
    await rig.settle();
    server.inject(resume(rig.tokens.at(-1), 2, 2));
    expect(server.closedWith).toMatchObject({ code: 1002 });
    expect(rig.sessions.tokens.size).toBe(0);
    await rig.settle();
    expect(rig.server.told.notices.at(-1)).toMatchObject({ closed: { code: 1002 } });
    await rig.close();
  });

  it("is sent once on a socket also if the first was refused", async () => {
    const rig = await suspended();
    const server = arrival(rig);
    server.inject(resume("wrong"));
    expect(server.sent.at(-1)).toBe(REFUSED);
    server.inject(resume("secret-1"));
    expect(server.closedWith).toMatchObject({ code: 1002 });
    expect(rig.sessions.suspended).toBe(1);
    await rig.close();
  });

  it.each([0, -1, 1.5, "2", null, undefined, 2 ** 53])("is a positive whole number, and not %j", async (attempt) => {
    const rig = await suspended();
    const server = arrival(rig);
    server.inject(JSON.stringify({ resume: { token: "secret-1", received: 0, attempt, limits: WIRE_LIMITS } }));
    expect(server.closedWith).toMatchObject({ code: 1002 });
    expect(rig.sessions.suspended).toBe(1);
    await rig.close();
  });
});

describe("a token (rule 4)", () => {
  it("changes with each resume, and the previous token is refused after the ack of the new one", async () => {
    const rig = await Rig.live();
    await rig.cutAndResume();
    await rig.cutAndResume();
    // Each hello offers a token too, for a client that begins a new session.
    const [first, , second, offered, third] = rig.tokens;
    expect(rig.tokens).toHaveLength(5);
    expect(rig.sessions.tokens.size).toBe(1);
    for (const old of [first, second, offered]) {
      const server = arrival(rig);
      server.inject(resume(old, 0, 99));
      expect(server.sent.at(-1)).toBe(REFUSED);
    }
    expect(rig.server.told.notices.at(-1)).toBe("resumed");
    await rig.cutAndResume();
    expect(controls(rig.wire.client.sent)[0]).toMatchObject({ resume: { token: third } });
    await rig.close();
  });

  it("does not end the session if the client never received it", async () => {
    const rig = await suspended();
    const { client, server } = rig.reconnect();
    client.deliver();
    server.deliver();
    rig.cut();
    await rig.cutAndResume();
    expect(controls(rig.wire.client.sent)[0]).toMatchObject({ resume: { token: "secret-1", attempt: 2 } });
    expect(numbers(rig.server.told)).toEqual(["c1", "c2"]);
    await rig.close();
  });

  it("does not end the session if the server never received its ack", async () => {
    const rig = await suspended();
    const { client, server } = rig.reconnect();
    client.deliver();
    server.deliver();
    client.deliver();
    rig.cut();
    rig.reconnect();
    await rig.settle();
    expect(controls(rig.wire.client.sent)[0]).toMatchObject({ resume: { token: rig.tokens[2], attempt: 2 } });
    expect(numbers(rig.server.told)).toEqual(["c1", "c2"]);
    expect(rig.told.notices.filter((notice) => notice === "resumed")).toHaveLength(2);
    await rig.close();
  });

  it("is refused without an ack once a newer token was issued", async () => {
    const rig = await suspended();
    for (let i = 0; i < 2; i++) {
      const { client, server } = rig.reconnect();
      client.deliver();
      server.deliver();
      rig.cut();
    }
    const server = arrival(rig);
    server.inject(resume(rig.tokens[2], 0, 99));
    expect(server.sent.at(-1)).toBe(REFUSED);
    expect(rig.sessions.tokens.size).toBe(2);
    await rig.close();
  });

  it("is confirmed by an ack alone: until then, the previous token is accepted too", async () => {
    const rig = await suspended();
    const server = arrival(rig);
    server.inject(resume("secret-1", 1));
    server.inject('[{"n":"c2"}]');
    server.inject('{"ping":1}');
    expect(rig.sessions.tokens.size).toBe(2);
    server.inject('{"ack":2}');
    expect(rig.sessions.tokens.size).toBe(1);
    await rig.close();
  });

  it("is acked by the client at once, before anything else", async () => {
    const rig = await suspended();
    rig.client.link.send(message("c3"));
    const { client } = rig.reconnect();
    await rig.settle();
    expect(client.sent[1]).toBe('{"ack":1}');
    await rig.close();
  });

  it.each([undefined, "", "x".repeat(257), 5, null, {}])(
    "is a string of 1 to 256 characters, and not %j",
    async (token) => {
      const rig = await suspended();
      const server = arrival(rig);
      server.inject(JSON.stringify({ resume: { token, received: 0, attempt: 1, limits: WIRE_LIMITS } }));
      expect(server.closedWith).toMatchObject({ code: 1002 });
      await rig.close();
    },
  );

  it.each([undefined, "", "x".repeat(257), 5])("is checked when the client receives it: not %j", async (token) => {
    const rig = await suspended();
    const { client } = rig.reconnect();
    client.deliver();
    client.inject(JSON.stringify({ resumed: { token, received: 1 } }));
    expect(client.closedWith).toMatchObject({ code: 1002 });
    await rig.settle();
    expect(rig.told.notices.at(-1)).toHaveProperty("lost");
    await rig.close();
  });

  it("appears only in the frames that must hold it", async () => {
    const rig = await suspended();
    rig.reconnect();
    await rig.settle();
    rig.wire.server.inject(resume(rig.tokens.at(-1), 2, 2));
    await rig.settle();
    const told = JSON.stringify([rig.told.notices, rig.server.told.notices, rig.owner]);
    const closes = JSON.stringify(rig.wires.map(({ client, server }) => [client.closedWith, server.closedWith]));
    expect(told + closes).not.toContain("secret");
    await rig.close();
  });

  it("is stored as a hash by the server, which does not accept that hash as a token", async () => {
    const rig = await Rig.live();
    const frame = { received: 0, attempt: 1, limits: WIRE_LIMITS };
    expect(rig.sessions.tokens.find({ ...frame, token: "#1" }, undefined)).toBe("unknown");
    expect(rig.sessions.tokens.find({ ...frame, token: "secret-1" }, undefined)).toMatchObject({ confirmed: "#1" });
    await rig.close();
  });
});

describe("replay (rule 5)", () => {
  it("begins after the received frames, with the same frames", async () => {
    const rig = await Rig.live();
    for (let i = 1; i <= 6; i++) {
      rig.client.link.send(message(`${i}a`));
      rig.client.link.send(message(`${i}b`));
      await microtasks();
    }
    const first = packs(rig.wire.client.sent);
    for (let i = 0; i < 4; i++) rig.wire.server.deliver();
    await rig.cutAndResume();
    expect(packs(rig.wire.client.sent)).toEqual(first.slice(4));
    await rig.close();
  });

  it("is sent before newer messages, even if the socket accepts it in pieces", async () => {
    const rig = await Rig.live();
    for (let i = 1; i <= 3; i++) {
      rig.client.link.send(message(i));
      await microtasks();
    }
    rig.cut();
    const { client } = rig.reconnect();
    client.onSend = (frame) => {
      if (frame.startsWith("[")) client.unsentBytes = 2 ** 20;
    };
    await rig.settle();
    rig.client.link.send(message(4));
    await rig.settle();
    expect(numbers(rig.server.told)).toEqual([1]);
    for (const n of [2, 3, 4]) {
      client.unsentBytes = 0;
      rig.pass(20);
      await rig.settle();
      expect(numbers(rig.server.told).at(-1)).toBe(n);
    }
    expect(numbers(rig.server.told)).toEqual([1, 2, 3, 4]);
    await rig.close();
  });

  it("ignores an ack that is lower than an earlier one", async () => {
    const rig = await Rig.live();
    for (let i = 1; i <= 8; i++) {
      rig.client.link.send(message(i));
      await rig.settle();
    }
    const session = rig.client.link.endpoint.state.session!;
    expect(session.acked).toBe(8);
    rig.wire.client.inject('{"ack":3}');
    expect(session.acked).toBe(8);
    expect(rig.wire.client.open).toBe(true);
    await rig.close();
  });

  it.each([9, 1000, 2 ** 53, -1, 0.5, "8", null, [8]])("ends the session for an ack of %j of 8", async (ack) => {
    const rig = await Rig.live();
    for (let i = 1; i <= 8; i++) {
      rig.client.link.send(message(i));
      await rig.settle();
    }
    rig.wire.client.inject(JSON.stringify({ ack }));
    expect(rig.wire.client.closedWith).toMatchObject({ code: 1002 });
    expect(rig.client.isResumable).toBe(false);
    await rig.settle();
    expect(rig.told.notices).toMatchObject(["suspended", { lost: expect.stringContaining("1002") }]);
    expect(rig.server.told.notices).toMatchObject([{ closed: { code: 1002 } }]);
    await rig.close();
  });

  it("ends the session for an ack of frames that are logged, but not written to this socket yet", async () => {
    const rig = await Rig.live();
    for (let i = 1; i <= 3; i++) {
      rig.client.link.send(message(i));
      await microtasks();
    }
    rig.cut();
    const { client } = rig.reconnect();
    client.unsentBytes = 2 ** 20;
    await rig.settle();
    client.inject('{"ack":3}');
    expect(client.closedWith).toMatchObject({ code: 1002 });
    await rig.close();
  });

  it.each([1, 2, 3, 7, 1000])("ends the session for a `received` of %i if 4 to 6 are valid", async (received) => {
    const rig = await Rig.live();
    for (let i = 1; i <= 4; i++) {
      rig.server.link.send(message(i));
      await rig.settle();
    }
    for (let i = 5; i <= 6; i++) {
      rig.server.link.send(message(i));
      await microtasks();
    }
    rig.cut();
    const server = arrival(rig);
    server.inject(resume("secret-1", received));
    expect(server.sent.at(-1)).toBe(REFUSED);
    expect(rig.sessions.tokens.size).toBe(0);
    await microtasks();
    expect(rig.server.told.notices).toMatchObject(["suspended", { closed: { code: 1002 } }]);
    server.inject('{"hello":{}}');
    expect(rig.servers).toHaveLength(2);
    await rig.close();
  });

  it.each([4, 5, 6])("accepts a `received` of %i if 4 to 6 are valid", async (received) => {
    const rig = await Rig.live();
    for (let i = 1; i <= 4; i++) {
      rig.server.link.send(message(i));
      await rig.settle();
    }
    for (let i = 5; i <= 6; i++) {
      rig.server.link.send(message(i));
      await microtasks();
    }
    rig.cut();
    const server = arrival(rig);
    server.inject(resume("secret-1", received));
    expect(packs(server.sent)).toHaveLength(6 - received);
    await rig.close();
  });

  it("refuses a `received` of frames that are logged, but were never written to a socket", async () => {
    const rig = await Rig.live();
    rig.server.link.send(message(1));
    rig.cut();
    expect(rig.server.link.endpoint.state.session!.last).toBe(1);
    const server = arrival(rig);
    server.inject(resume("secret-1", 1));
    expect(server.sent.at(-1)).toBe(REFUSED);
    await rig.close();
  });

  it.each([-1, 0.5, "0", null, undefined, 2 ** 53])("refuses a `received` that is no count: %j", async (received) => {
    const rig = await suspended();
    const server = arrival(rig);
    server.inject(JSON.stringify({ resume: { token: "secret-1", received, attempt: 1, limits: WIRE_LIMITS } }));
    expect(server.closedWith).toMatchObject({ code: 1002 });
    expect(rig.sessions.suspended).toBe(1);
    await rig.close();
  });

  it.each([3, 1000, -1, 0.5, "1", null])("closes for a `resumed` with %j if 1 or 2 is valid", async (received) => {
    const rig = await suspended();
    rig.client.link.endpoint.state.session!.ackTo(1);
    const { client } = rig.reconnect();
    client.deliver();
    client.inject(JSON.stringify({ resumed: { token: "new", received } }));
    expect(client.closedWith).toMatchObject({ code: 1002 });
    await rig.settle();
    expect(rig.told.notices.at(-1)).toHaveProperty("lost");
    await rig.close();
  });
});
