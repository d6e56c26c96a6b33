/** The frames of a client's end, as a machine without I/O: how it begins, resumes and ends. */
import { describe, expect, it } from "vitest";
import {
  ClientEnd,
  GREATEST,
  hello,
  HELLO,
  LEAST,
  LIMITS,
  message,
  OFFER,
  pack,
  resume,
  resumed,
  TAKEN,
  WIRE_LIMITS,
  wrong,
} from "./kit.js";

/** Returns an end without a session after both hellos. */
function packed(limits = {}): ClientEnd {
  const end = new ClientEnd(limits, false);
  end.attach();
  end.receive(HELLO);
  end.frames();
  return end;
}

function opening(): ClientEnd {
  const end = new ClientEnd();
  end.attach();
  return end;
}

/** Returns an end whose session has lost its socket, after a frame in each direction has arrived. Another one is on its way. */
function suspended(): ClientEnd {
  const end = ClientEnd.live();
  end.receive(pack(message("s1")));
  end.send(1);
  end.receive('{"ack":1}');
  end.send(2);
  end.lose();
  return end;
}

describe("the first frames", () => {
  it.each([HELLO, '{"hello":{"session":true},"more":1}'])(
    "sends a server's hello, then a client's hello, and then packs, also with members of a later version: %s",
    (frame) => {
      const end = new ClientEnd({}, false);
      end.attach();
      end.send(1);
      expect([end.frames(), end.endpoint.isReciproc]).toEqual([[message(1)], false]);
      end.receive(frame);
      expect(end.endpoint.isReciproc).toBe(true);
      end.send(2);
      expect(end.frames()).toEqual([HELLO, pack(message(2))]);
    },
  );

  it("makes a link plain for good if a server's first frame is not hello", () => {
    const end = opening();
    end.receive(message("welcome"), HELLO);
    end.send(1);
    expect(end.got).toEqual(["welcome", { hello: {} }]);
    expect(end.frames()).toEqual([message(1)]);
  });

  it("takes no frame for hello that only begins like one", () => {
    const end = opening();
    const broken = ['{"hello":garbage', '{"hello":', '{"hello":{}', '{"hello":{}}}'];
    end.receive(...broken, '[{"a":"batch"}]');
    expect(end.got).toEqual([...broken.map(() => undefined), [{ a: "batch" }]]);
    expect([end.kind, end.frames()]).toEqual(["plain", []]);
  });

  it("sends queued messages plainly before the hello, and counted packs after it", () => {
    const end = new ClientEnd();
    const handle = { sent: true };
    end.flow.send(message("queued"), handle);
    expect(handle.sent).toBe(false);
    end.attach();
    expect([handle.sent, end.frames()]).toEqual([true, [message("queued")]]);
    end.flow.send(message("plain"));
    end.receive(hello(OFFER));
    end.send(1);
    expect(end.frames()).toEqual([message("plain"), TAKEN, pack(message(1))]);
    end.lose();
    expect(end.resume(0)).toEqual([pack(message(1))]);
  });
});

describe("a pack", () => {
  it.each<[string, string, unknown[]]>([
    ["contains a batch as a nested array", '[[{"a":1},{"b":2}],[],{"c":3}]', [[{ a: 1 }, { b: 2 }], [], { c: 3 }]],
    ["can be empty", "[]", []],
    ["passes elements that are no messages to the peer, which refuses them", '[1,null,"x"]', [1, null, "x"]],
  ])("%s", (_what, frame, messages) => {
    const end = packed();
    end.receive(frame, pack(message(1)));
    expect(end.got).toEqual([...messages, 1]);
    expect(end.kind).toBe("sessionless");
  });

  it("can be as long as several messages, but a plain message can not", () => {
    const end = opening();
    end.receive(JSON.stringify(["x".repeat(LIMITS.maxMessageBytes - 4)]));
    expect(end.got).toHaveLength(1);
    end.receive(JSON.stringify(["x".repeat(LIMITS.maxMessageBytes - 3)]));
    expect(end.got).toHaveLength(1);
    expect(end.events.at(-1)).toMatchObject({ ended: 1009 });
  });

  it("can contain other messages beside the longest", () => {
    const end = packed({ maxMessageBytes: 10_000 });
    const longest = JSON.stringify({ a: ["]}", '\\"', "x".repeat(10_000 - 22)] });
    expect(longest).toHaveLength(10_000);
    end.receive(` [1,${longest},[],{"b":[{}]}]`);
    expect(end.got).toHaveLength(4);
    end.receive(`[1,${longest} ,[]]`);
    expect(end.got).toHaveLength(4);
    expect(end.events.at(-1)).toMatchObject({ ended: 1009 });
  });

  it.each(["[1,", '"text"', "1", "null", "", "[1][2]", "nonsense"])(
    "closes with 1002 if it is %j, and nothing after it is read",
    (frame) => {
      for (const end of [packed(), ClientEnd.live()]) {
        end.receive(frame, pack(message(1)), '{"ping":1}');
        expect(end.events.at(-1)).toMatchObject({ ended: 1002, isRemote: false });
        expect([end.got, end.frames()]).toEqual([[], []]);
      }
    },
  );
});

describe("a control frame", () => {
  it.each(["1", '"now"', "null", '{"at":1}'])("is answered at once with its pong if it is ping %s", (value) => {
    const end = packed();
    end.receive(`{"ping":${value}}`);
    expect(end.frames()).toEqual([`{"pong":${value}}`]);
  });

  it("ends the connection if it is a ping that cannot be encoded again", () => {
    const end = packed({ maxMessageBytes: 2 ** 20 });
    end.receive(`{"ping":${"[".repeat(100_000)}${"]".repeat(100_000)}}`);
    expect(end.events.at(-1)).toMatchObject({ ended: 1002 });
  });

  it("is ignored if it belongs to a later version, is a pong or is a second hello", () => {
    const end = packed();
    end.receive('{"pong":1}', HELLO, '{"ack":7}', "{}", pack(message(1)));
    expect([end.got, end.frames(), end.kind]).toEqual([[1], [], "sessionless"]);
  });
});

describe("a session", () => {
  it("is not accepted by a client without sessions", () => {
    const end = new ClientEnd({}, false);
    end.attach();
    end.receive(hello(OFFER));
    expect([end.frames(), end.kind]).toEqual([[HELLO], "sessionless"]);
  });

  it.each([
    HELLO,
    // As servers offered it before, which would send the token later.
    ...["true", "1", '"true"', "null"].map((session) => `{"hello":{"session":${session}}}`),
    '{"hello":true}',
    '{"hello":null}',
  ])("is not accepted if the server sends %s", (frame) => {
    const end = opening();
    end.receive(frame);
    end.send(1);
    expect(end.frames()).toEqual([HELLO, pack(message(1))]);
    end.lose();
    expect(end.endpoint.state).toMatchObject({ kind: "ended", end: { code: 1006 } });
  });

  it("is opened once: a second hello changes nothing, nor does the `session` of an old server", () => {
    const other = { ...OFFER, token: "other" };
    for (const frame of [hello(other), JSON.stringify({ session: other }), HELLO]) {
      const end = ClientEnd.live();
      end.receive(frame);
      expect([end.kind, end.frames()]).toEqual(["live", []]);
      end.lose();
      expect(end.returns()).toEqual([resume("t")]);
    }
  });
});

describe("a client's hello", () => {
  it("leaves at once where the server waits for it", () => {
    const end = new ClientEnd();
    end.attach({ session: OFFER });
    expect(end.frames()).toEqual([TAKEN]);
  });

  it.each<[string, (end: ClientEnd) => unknown, string]>([
    ["the first message", (end) => end.flow.send(message(1)), pack(message(1))],
    ["a ping", (end) => end.endpoint.sendControl('{"ping":1}'), '{"ping":1}'],
    ["a bye", (end) => end.endpoint.sayBye({ code: 4002, reason: "done" }), '{"bye":{"code":4002,"reason":"done"}}'],
    ["an ack, once a message has come", (end) => end.receive("[1]"), '{"ack":1}'],
    ["an ack, once a control frame has come", (end) => end.receive('{"later":1}'), '{"ack":0}'],
    ["a pong, once a ping has come", (end) => end.receive('{"ping":7}'), '{"pong":7}'],
  ])("otherwise leaves in front of %s", (_what, act, frame) => {
    const end = new ClientEnd();
    end.attach({ session: OFFER }, true, false);
    expect(end.frames()).toEqual([]);
    act(end);
    expect(end.frames()).toEqual([TAKEN, frame]);
  });

  it("is left out on a socket that is lost before it leaves: `resume` confirms the session", () => {
    const end = new ClientEnd();
    end.attach({ session: OFFER }, true, false);
    end.lose();
    expect(end.wire.take()).toEqual([]);
    expect(end.returns()).toEqual([resume("t")]);
  });
});

describe("a server's hello", () => {
  it.each(wrong("token", "ttlMs", "limits", "route"))("closes with 1002 if it has a wrong %s: %j", (name, value) => {
    const end = opening();
    end.receive(hello({ ...OFFER, [name]: value }));
    expect(end.events).toMatchObject(["ready", { ended: 1002 }]);
    expect(end.wire.take()).toEqual([]);
  });

  it.each([
    { token: "x".repeat(256), ttlMs: 2 ** 53 - 1, limits: GREATEST, route: "x".repeat(256) },
    { token: "x", ttlMs: 1, limits: LEAST },
    { ...OFFER, more: 1, limits: { ...WIRE_LIMITS, more: 2 } },
  ])("can offer the largest and the smallest values, and members of a later version: %#", (offer) => {
    const end = opening();
    end.receive(hello(offer, { more: 3 }));
    expect(end.frames()).toEqual([TAKEN]);
    const { maxMessageBytes, logFrames, logLength } = offer.limits;
    // Only the checked members are kept.
    expect(end.session.theirs).toEqual({ maxMessageBytes, logFrames, logLength });
  });
});

it.each([
  ...wrong("token", "received"),
  // Fewer frames than are acked, and more than were sent.
  ["received", 0],
  ["received", 3],
  ["received", 1000],
])("a `resumed` closes with 1002, and ends the session, if it has a wrong %s: %j", (name, value) => {
  const end = suspended();
  end.returns();
  end.receive(JSON.stringify({ resumed: { token: "next", received: 1, [name]: value } }));
  expect(end.events.at(-1)).toMatchObject({ ended: 1002 });
  expect(end.frames()).toEqual([]);
});

it("replay (rule 5) begins after frames that only an earlier socket has sent, but an ack of them ends the session", () => {
  for (const isLost of [true, false]) {
    const end = ClientEnd.live();
    end.send(1, 3);
    end.lose();
    end.returns();
    end.wire.unsentBytes = LIMITS.highWaterBytes;
    end.receive(resumed("next", 0));
    if (isLost) {
      end.lose();
      expect(end.resume(2)).toEqual([pack(message(3))]);
    } else {
      end.receive('{"ack":3}');
      expect(end.events.at(-1)).toMatchObject({ ended: 1002 });
    }
  }
});

it("a message over a limit (rule 6) is refused and not logged, live and suspended, and the session continues", () => {
  const end = ClientEnd.live();
  const longest = JSON.stringify("x".repeat(4998));
  const tooLong = [JSON.stringify("x".repeat(4999)), JSON.stringify("é".repeat(2500))];
  for (const lose of [() => {}, () => end.lose()]) {
    lose();
    for (const text of tooLong) expect(end.flow.send(text)).toBe(false);
    expect(end.flow.send(longest)).toBe(true);
  }
  expect(end.resume(0)).toEqual([pack(longest), pack(longest)]);
});

describe("bye (rule 6)", () => {
  const BYE = '{"bye":{"code":4001,"reason":"enough"}}';

  it("is sent before the close, behind all messages that were queued for the socket and for acks", () => {
    const end = ClientEnd.live();
    end.wire.unsentBytes = LIMITS.highWaterBytes;
    end.send(1, 30, 800);
    expect(end.wire.take()).toEqual([]);
    end.endpoint.sayBye({ code: 4001, reason: "enough" }, end.flow.stop());
    const frames = end.wire.take() as string[];
    expect(frames.slice(0, -1).map((frame) => (JSON.parse(frame) as { n: number }[])[0]!.n)).toHaveLength(30);
    expect(frames.at(-1)).toBe(BYE);
    expect(end.flow.send(message(31))).toBe(false);
  });

  it("ends the session of the side that receives it, once, with its code, reason and `retryMs`", () => {
    const end = ClientEnd.live();
    end.receive('{"bye":{"code":1001,"reason":"going away","retryMs":5000}}', pack(message(1)), "[1,");
    const ended = { ended: 1001, reason: "going away", retryMs: 5000, isRemote: true };
    expect(end.events.slice(2)).toEqual([ended]);
    end.lose();
    expect([end.got, end.kind, end.events.length]).toEqual([[], "ended", 3]);
    // It is accepted in place of `resumed`.
    const resuming = suspended();
    resuming.returns();
    resuming.receive('{"bye":{"code":1001,"reason":"","retryMs":0}}');
    expect(resuming.events.at(-1)).toEqual({ ended: 1001, reason: "", retryMs: 0, isRemote: true });
  });

  it.each([
    ...[999, 5000, 1000.5, "1000"].map((code) => ({ code, reason: "" })),
    { code: 1000 },
    null,
    5,
    ...[-1, 0.5, "5000", null, true, 2 ** 53].map((retryMs) => ({ code: 1001, reason: "going away", retryMs })),
  ])("is read as 1000 without a reason if it is %j", (bye) => {
    const end = ClientEnd.live();
    end.receive(JSON.stringify({ bye }));
    expect(end.events.at(-1)).toEqual({ ended: 1000, reason: "", isRemote: true });
  });

  it("is reported without other members, and with a reason of at most 123 bytes", () => {
    const end = ClientEnd.live();
    end.receive(JSON.stringify({ bye: { code: 1001, reason: "ä".repeat(100), error: "no error", more: 1 } }));
    expect(end.events.at(-1)).toEqual({ ended: 1001, reason: "ä".repeat(61), isRemote: true });
  });

  it("ends a link without sessions by its close, because that link ignores bye", () => {
    const end = packed();
    end.receive(BYE, pack(message(1)));
    expect([end.got, end.kind]).toEqual([[1], "sessionless"]);
  });

  it("is sent by a client that waits for `resumed`, and not by one without a socket or a session, unless it has `retryMs`", () => {
    const [resuming, plain] = [suspended(), opening()];
    resuming.send(3);
    resuming.returns();
    plain.receive(message(1));
    const enough = { code: 4001, reason: "enough" };
    const retry = { ...enough, retryMs: 5000 };
    for (const [end, bye, frames] of [
      [resuming, enough, [BYE]],
      [suspended(), enough, []],
      [packed(), enough, []],
      // It asks a client to reconnect.
      [packed(), retry, [JSON.stringify({ bye: retry })]],
      [plain, retry, []],
    ] as const) {
      end.frames();
      end.endpoint.sayBye(bye);
      expect([end.wire.take(), end.kind]).toEqual([frames, "ended"]);
    }
  });

  it("with another code precedes a restart of the session, whose close would only suspend it", () => {
    const end = ClientEnd.live();
    end.endpoint.restart("anew", new Error("anew"));
    expect(end.wire.take()).toEqual(['{"bye":{"code":4000,"reason":"anew"}}']);
    expect(end.events.at(-1)).toMatchObject({ ended: 4000, isRemote: false });
  });
});
