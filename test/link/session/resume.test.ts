/** Rules 1 to 5: a client resumes its session. */
import { describe, expect, it } from "vitest";
import { useFakeClock } from "../../support/clock.js";
import { controls, message, numbers, packs, range, REFUSED, resume, Rig, WIRE_LIMITS } from "./rig.js";
import { microtasks, Wire } from "./wire.js";

useFakeClock();

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

describe("a client that resumes its session", () => {
  it("delivers lost messages once and in order, both ways", async () => {
    await using rig = await suspended();
    rig.client.link.send(message("c3"));
    rig.server.link.send(message("s3"));
    await rig.comeBack();
    expect(numbers(rig.server.emitted)).toEqual(["c1", "c2", "c3"]);
    expect(numbers(rig.emitted)).toEqual(["s1", "s2", "s3"]);
    expect(rig.emitted.notices).toEqual(["suspended", "resumed"]);
    expect(rig.server.emitted.notices).toEqual(["suspended", "resumed"]);
    expect(rig.servers).toHaveLength(1);
    expect(rig.owner).toEqual(["suspended", "resumed"]);
  });

  it("sends `resume` and nothing else until `resumed` (rule 1), and acks that at once, before anything else (rule 4)", async () => {
    await using rig = await suspended();
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
  });

  it.each(["[]", '[{"n":1}]', "1", "null", "nonsense"])("closes if %s arrives before `resumed`", async (frame) => {
    await using rig = await suspended();
    const client = rig.resuming();
    client.inject(frame);
    expect(client.closedWith).toMatchObject({ code: 1002 });
    expect(numbers(rig.emitted)).toEqual(["s1"]);
    await rig.settle();
    expect(rig.emitted.notices.at(-1)).toHaveProperty("lost");
  });

  it("can send hello instead, and begins a new session", async () => {
    await using rig = await suspended();
    const server = rig.arrival();
    server.inject('{"hello":{}}');
    server.inject('[{"n":"fresh"}]');
    expect(rig.servers).toHaveLength(2);
    expect(numbers(rig.server.emitted)).toEqual(["fresh"]);
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
    await using rig = await suspended();
    const server = rig.arrival();
    server.inject(frame);
    expect(server.closedWith).toMatchObject({ code: 1002 });
    server.inject(resume("secret-1"));
    expect(rig.servers).toHaveLength(1);
    expect(rig.sessions.suspended).toBe(1);
  });

  it.each(['[{"n":1}]', "[]", '{"ack":0}', '{"ping":1}', resume("secret-1")])(
    "must send hello next if it is refused, and not %s",
    async (frame) => {
      await using rig = await suspended();
      const server = rig.arrival();
      server.inject(resume("wrong"));
      expect(server.sent.at(-1)).toBe(REFUSED);
      server.inject(frame);
      expect(server.closedWith).toMatchObject({ code: 1002 });
      expect(rig.servers).toHaveLength(1);
      expect(rig.sessions.suspended).toBe(1);
    },
  );

  it("cannot resume on a socket that did not offer to resume", async () => {
    await using rig = await Rig.live();
    const first = rig.server;
    const server = rig.arrival(false);
    server.inject('{"hello":{}}');
    server.inject(resume("secret-1"));
    expect(server.closedWith).toMatchObject({ code: 1002 });
    expect(first.emitted.notices).toEqual([]);
  });

  it("sends a message like any other if it sends `resume` on a socket that is due a hello", async () => {
    await using rig = await suspended();
    const server = rig.arrival(false);
    server.inject(resume("secret-1"));
    expect(rig.server.emitted.messages).toEqual([
      { resume: { token: "secret-1", received: 0, attempt: 1, limits: WIRE_LIMITS } },
    ]);
    expect(server.open).toBe(true);
    expect(rig.sessions.suspended).toBe(1);
  });

  it("is closed after a timeout if it sends nothing, and its session is not changed", async () => {
    await using rig = await suspended();
    const server = rig.arrival();
    rig.pass(9_999);
    expect(server.open).toBe(true);
    rig.pass(1);
    expect(server.closedWith).toMatchObject({ code: 4000 });
    server.inject(resume("secret-1"));
    expect(rig.sessions.suspended).toBe(1);
  });

  it("continues without a session on a plain or packed link", async () => {
    for (const isGreeted of [true, false]) {
      await using rig = await suspended();
      const { client } = new Wire();
      rig.client.link.send(message("lost with the session"));
      rig.client.attach(client, isGreeted ? {} : "plain");
      client.inject(isGreeted ? '[{"n":"answer"}]' : '{"n":"answer"}');
      rig.client.link.send(message("fresh"));
      await microtasks();
      expect(rig.emitted.notices).toMatchObject(["suspended", { lost: expect.any(String) }, "resumed"]);
      expect(client.sent).toEqual(isGreeted ? ['{"hello":{}}', '[{"n":"fresh"}]'] : ['{"n":"fresh"}']);
      expect(rig.owner.slice(-1)).toEqual(["fresh"]);
      expect(numbers(rig.emitted).at(-1)).toBe("answer");
    }
  });
});

describe("the old socket (rule 2)", () => {
  it("is closed, and its later frames are not read by the server", async () => {
    await using rig = await Rig.live();
    const old = rig.wire;
    await rig.send(rig.client.link, 1, 3);
    rig.client.link.giveUp("it is quiet");
    const { server } = rig.reconnect();
    // One of three messages still arrives over the old socket, before `resume` does.
    old.server.deliver();
    await rig.wire.settle();
    expect(old.server.closedWith).toMatchObject({ code: 4000 });
    expect(old.client.closedWith).toMatchObject({ code: 4000 });
    expect(controls(server.sent)).toContainEqual({ resumed: { token: rig.tokens.at(-1), received: 1 } });
    await rig.settle();
    expect(numbers(rig.server.emitted)).toEqual([1, 2, 3]);
    // The server never noticed the loss.
    expect(rig.server.emitted.notices).toEqual([]);
  });

  it("moves the messages of the current tick to the replay log, in order", async () => {
    await using rig = await Rig.live();
    rig.client.link.giveUp("it is quiet");
    const { client, server } = rig.reconnect();
    client.deliver();
    rig.server.link.send(message(1));
    // The open pack has not been sent when the newer socket takes over.
    server.deliver();
    rig.server.link.send(message(2));
    await rig.settle();
    expect(numbers(rig.emitted)).toEqual([1, 2]);
  });
});

describe("an attempt (rule 3)", () => {
  it("grows with each socket", async () => {
    await using rig = await suspended();
    for (const attempt of [1, 2, 3]) {
      expect(rig.resuming().sent).toEqual([resume("secret-1", 1, attempt)]);
      rig.cut();
    }
    expect(rig.emitted.notices).toEqual(["suspended"]);
    expect(rig.owner).toEqual(["suspended", "suspended", "suspended", "suspended"]);
  });

  it.each([1, 2])("closes its socket and not the session if it is stale: %i after 2", async (attempt) => {
    await using rig = await suspended();
    rig.resuming();
    rig.cut();
    rig.resuming();
    const { server } = rig.wire;
    server.deliver();
    const late = rig.arrival();
    late.inject(resume("secret-1", 0, attempt));
    expect(late.closedWith).toMatchObject({ code: 4000 });
    expect(controls(late.sent)).toEqual([{ hello: { session: expect.anything() } }]);
    late.inject(resume("secret-1", 0, 99));
    expect(server.open).toBe(true);
    await rig.settle();
    expect(numbers(rig.server.emitted)).toEqual(["c1", "c2"]);
    expect(rig.emitted.notices).toEqual(["suspended", "resumed"]);
  });

  it("is sent once on a socket: a second `resume` ends socket and session", async () => {
    await using rig = await suspended();
    const { server } = rig.reconnect();
    await rig.settle();
    server.inject(resume(rig.tokens.at(-1), 2, 2));
    expect(server.closedWith).toMatchObject({ code: 1002 });
    expect(rig.sessions.tokens.size).toBe(0);
    await rig.settle();
    expect(rig.server.emitted.notices.at(-1)).toMatchObject({ closed: { code: 1002 } });
  });
});

describe("a token (rule 4)", () => {
  it("changes with each resume, and the previous token is refused after the ack of the new one", async () => {
    await using rig = await Rig.live();
    await rig.cutAndResume();
    await rig.cutAndResume();
    // Each hello offers a token too, for a client that begins a new session.
    const [first, , second, offered, third] = rig.tokens;
    expect(rig.tokens).toHaveLength(5);
    expect(rig.sessions.tokens.size).toBe(1);
    for (const old of [first, second, offered]) {
      const server = rig.arrival();
      server.inject(resume(old, 0, 99));
      expect(server.sent.at(-1)).toBe(REFUSED);
    }
    expect(rig.server.emitted.notices.at(-1)).toBe("resumed");
    await rig.cutAndResume();
    expect(controls(rig.wire.client.sent)[0]).toMatchObject({ resume: { token: third } });
  });

  it("is refused without an ack once a newer token was issued", async () => {
    await using rig = await suspended();
    for (let i = 0; i < 2; i++) {
      rig.resuming();
      rig.wire.server.deliver();
      rig.cut();
    }
    const server = rig.arrival();
    server.inject(resume(rig.tokens[2], 0, 99));
    expect(server.sent.at(-1)).toBe(REFUSED);
    expect(rig.sessions.tokens.size).toBe(2);
  });

  it("is confirmed by an ack alone: until then, the previous token is accepted too", async () => {
    await using rig = await suspended();
    const server = rig.arrival();
    server.inject(resume("secret-1", 1));
    server.inject('[{"n":"c2"}]');
    server.inject('{"ping":1}');
    expect(rig.sessions.tokens.size).toBe(2);
    server.inject('{"ack":2}');
    expect(rig.sessions.tokens.size).toBe(1);
  });

  it("is stored as a hash by the server, which does not accept that hash as a token", async () => {
    await using rig = await Rig.live();
    const frame = { received: 0, attempt: 1, limits: WIRE_LIMITS };
    expect(rig.sessions.tokens.find({ ...frame, token: "#1" }, undefined)).toBe("unknown");
    expect(rig.sessions.tokens.find({ ...frame, token: "secret-1" }, undefined)).toMatchObject({ confirmed: "#1" });
  });
});

describe("replay (rule 5)", () => {
  it("begins after the received frames, with the same frames", async () => {
    await using rig = await Rig.live();
    for (let i = 1; i <= 6; i++) {
      rig.client.link.send(message(`${i}a`));
      rig.client.link.send(message(`${i}b`));
      await microtasks();
    }
    const first = packs(rig.wire.client.sent);
    for (let i = 0; i < 4; i++) rig.wire.server.deliver();
    await rig.cutAndResume();
    expect(packs(rig.wire.client.sent)).toEqual(first.slice(4));
  });

  it("is sent before newer messages, even if the socket accepts it in pieces", async () => {
    await using rig = await Rig.live();
    await rig.send(rig.client.link, 1, 3);
    rig.cut();
    const { client } = rig.reconnect();
    client.onSend = (frame) => {
      if (frame.startsWith("[")) client.unsentBytes = 2 ** 20;
    };
    await rig.settle();
    rig.client.link.send(message(4));
    await rig.settle();
    expect(numbers(rig.server.emitted)).toEqual([1]);
    for (const n of [2, 3, 4]) {
      client.unsentBytes = 0;
      rig.pass(20);
      await rig.settle();
      expect(numbers(rig.server.emitted)).toEqual(range(1, n));
    }
  });

  it("ignores an ack that is lower than an earlier one", async () => {
    await using rig = await Rig.live();
    await rig.exchange(rig.client.link, 1, 8);
    const session = rig.client.link.endpoint.state.session!;
    expect(session.acked).toBe(8);
    rig.wire.client.inject('{"ack":3}');
    expect(session.acked).toBe(8);
    expect(rig.wire.client.open).toBe(true);
  });

  it.each([9, 1000, 2 ** 53, -1, 0.5, "8", null, [8]])("ends the session for an ack of %j of 8", async (ack) => {
    await using rig = await Rig.live();
    await rig.exchange(rig.client.link, 1, 8);
    rig.wire.client.inject(JSON.stringify({ ack }));
    expect(rig.wire.client.closedWith).toMatchObject({ code: 1002 });
    expect(rig.client.isResumable).toBe(false);
    await rig.settle();
    expect(rig.emitted.notices).toMatchObject(["suspended", { lost: expect.stringContaining("1002") }]);
    expect(rig.server.emitted.notices).toMatchObject([{ closed: { code: 1002 } }]);
  });

  it("ends the session for an ack of frames that are logged, but not written to this socket yet", async () => {
    await using rig = await Rig.live();
    await rig.send(rig.client.link, 1, 3);
    rig.cut();
    const { client } = rig.reconnect();
    client.unsentBytes = 2 ** 20;
    await rig.settle();
    client.inject('{"ack":3}');
    expect(client.closedWith).toMatchObject({ code: 1002 });
  });

  it.each([
    [1, false],
    [3, false],
    [4, true],
    [5, true],
    [6, true],
    [7, false],
    [1000, false],
  ])("reads a `received` of %i if 4 to 6 are valid: accepted %j", async (received, isAccepted) => {
    await using rig = await Rig.live();
    await rig.exchange(rig.server.link, 1, 4);
    await rig.send(rig.server.link, 5, 6);
    rig.cut();
    const server = rig.arrival();
    server.inject(resume("secret-1", received));
    expect(packs(server.sent)).toHaveLength(isAccepted ? 6 - received : 0);
    if (isAccepted) return;
    // The session has ended.
    expect(server.sent.at(-1)).toBe(REFUSED);
    expect(rig.sessions.tokens.size).toBe(0);
    await microtasks();
    expect(rig.server.emitted.notices).toMatchObject(["suspended", { closed: { code: 1002 } }]);
    server.inject('{"hello":{}}');
    expect(rig.servers).toHaveLength(2);
  });

  it("refuses a `received` of frames that are logged, but were never written to a socket", async () => {
    await using rig = await Rig.live();
    rig.server.link.send(message(1));
    rig.cut();
    expect(rig.server.link.endpoint.state.session!.last).toBe(1);
    const server = rig.arrival();
    server.inject(resume("secret-1", 1));
    expect(server.sent.at(-1)).toBe(REFUSED);
  });
});
