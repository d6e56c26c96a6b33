/** Rule 7 on a client's end, as a machine without I/O: when messages get a number, what is queued, acks, reports and bytes. */
import { describe, expect, it } from "vitest";
import { bytes } from "../../src/index.js";
import * as codec from "../../src/message/codec.js";
import { binaryFrame } from "../support/binary.js";
import { ClientEnd, hello, LIMITS, message, OFFER, pack, range, resumed } from "./kit.js";

const { highWaterBytes: HIGH_WATER } = LIMITS;
const newHandle = (): { sent: boolean } => ({ sent: true });

function numbers(frames: unknown[]): unknown[] {
  const packs = frames.filter((frame) => typeof frame === "string" && frame.startsWith("[")) as string[];
  return packs.flatMap((frame) => (JSON.parse(frame) as { n: unknown }[]).map(({ n }) => n));
}

it("a message is queued if the socket is closed and has not reported it yet", () => {
  const end = ClientEnd.live();
  end.wire.open = false;
  const handle = newHandle();
  expect(end.flow.send(message(1), handle)).toBe(true);
  expect([handle.sent, end.frames()]).toEqual([false, []]);
  end.lose();
  expect(numbers(end.resume(0))).toEqual([1]);
  // Without a session, it is refused.
  const without = new ClientEnd({}, false);
  without.attach();
  without.wire.open = false;
  const other = newHandle();
  expect([without.flow.send(message(1), other), other.sent]).toEqual([false, false]);
  without.sendsAtOnce = true;
  expect([without.flow.send(message(1), other), other.sent]).toEqual([false, false]);
});

it("a socket above its high-water mark still sends control frames, but no pong to a peer that does not read", () => {
  const end = ClientEnd.live();
  end.wire.unsentBytes = 64 * 1024;
  end.receive('{"ping":7}');
  expect(end.frames()).toEqual([]);
  expect(end.endpoint.sendControl('{"ping":1}')).toBe(true);
  expect(end.frames()).toEqual(['{"ping":1}']);
  end.wire.unsentBytes--;
  end.receive('{"ping":7}');
  // Not collected, because frames count as unsent only when they are written.
  expect(end.wire.take()).toEqual(['{"pong":7}']);
});

it("a socket above its high-water mark collects at most 1 KiB of pongs, which do not count as unsent bytes", () => {
  const end = ClientEnd.live();
  const pings = Array.from({ length: 100 }, () => `{"ping":"${"x".repeat(100)}"}`);
  end.receive(...pings);
  const written = end.wire.take().length;
  expect(written).toBeGreaterThan(90);
  expect(end.frames()).toHaveLength(100 - written);
});

/** Returns the acks that follow each of so many messages, each in a tick of its own. */
const acks = (end: ClientEnd, count: number, padding = 0): unknown[][] =>
  range(1, count).map((n) => (end.receive(pack(message(n, padding))), end.frames()));

describe("an ack", () => {
  it("is sent with the other frames of its tick before a socket is left, whose close sends them", () => {
    const end = ClientEnd.live();
    const { wire } = end;
    wire.discard = () => end.endpoint.flush();
    end.receive(...range(1, 4).map((n) => pack(message(n))), '{"ping":7}');
    end.endpoint.dropSocket("nothing was received");
    expect(wire.take()).toEqual(['{"pong":7}', '{"ack":4}']);
  });

  it("is not queued without limit for a peer that reads none: with more than a log unsent the session ends", () => {
    const end = ClientEnd.live({ logFrames: 1 });
    end.wire.unsentBytes = HIGH_WATER;
    end.receive("[]");
    expect(end.frames()).toEqual(['{"ack":1}']);
    end.wire.unsentBytes++;
    end.receive("[]");
    expect(end.frames()).toEqual([]);
    expect(end.events.at(-1)).toMatchObject({ ended: 1013 });
    end.receive(pack(message(1)));
    expect(end.got).toEqual([]);
  });

  it("waits for its own side's data if that fills the socket, and ends no session", () => {
    const end = ClientEnd.live({ logFrames: 1 });
    end.flow.send(message(1));
    end.wire.unsentBytes = HIGH_WATER + 1;
    end.frames();
    end.receive("[]", "[]");
    expect([end.frames(), end.kind]).toEqual([[], "live"]);
    end.wire.unsentBytes = 0;
    end.endpoint.drain();
    expect(end.frames()).toEqual(['{"ack":2}', pack(message(1))]);
    end.endpoint.drain();
    expect(end.frames()).toEqual([]);
  });

  it("is sent once at the end of a tick if each of its packs made one due", () => {
    const end = ClientEnd.live({ logFrames: 1 });
    end.receive(...Array.from({ length: 100 }, () => "[]"));
    expect(end.wire.take()).toEqual([]);
    expect(end.frames()).toEqual(['{"ack":100}']);
  });

  it.each([false, true])("is sent beside data, pings and pongs long before it is due (at once: %s)", (sendsAtOnce) => {
    const end = ClientEnd.live({ logFrames: 4096, logLength: 2 ** 22 });
    expect(acks(end, 64).flat()).toEqual([]);
    end.sendsAtOnce = sendsAtOnce;
    end.send(1);
    expect(end.frames()).toEqual(['{"ack":64}', pack(message(1))]);
    end.receive(pack(message(65)));
    end.endpoint.sendControl('{"ping":1}');
    expect(end.frames()).toEqual(['{"ack":65}', '{"ping":1}']);
    end.receive(pack(message(66)), '{"ping":1}');
    expect(end.frames()).toEqual(['{"pong":1}', '{"ack":66}']);
  });
});

describe("the report of dropped messages", () => {
  it("is a data frame at its place among the messages: it is counted, logged and acknowledged", () => {
    const end = ClientEnd.live();
    end.flow.send(message(1));
    end.endpoint.reportMissed(2);
    end.flow.send(message(3));
    expect(end.frames()).toEqual([pack(message(1)), '{"missed":2}', pack(message(3))]);
    end.receive('{"ack":3}', pack(message(1)), '{"missed":2}', pack(message(3)), "[]");
    expect(end.got).toEqual([1, { missed: 2 }, 3]);
    expect(end.frames()).toEqual(['{"ack":4}']);
  });

  it("waits while the log or the socket is full, and counts further messages meanwhile", () => {
    const end = ClientEnd.live();
    end.send(0);
    end.flow.send(message(1));
    end.wire.unsentBytes = HIGH_WATER;
    end.frames();
    for (let i = 0; i < 9; i++) end.endpoint.reportMissed(1);
    end.wire.unsentBytes = 0;
    end.endpoint.reportMissed(1);
    expect([end.frames(), end.isSocketFull]).toEqual([[], true]);
    end.endpoint.drain();
    expect(end.frames()).toEqual([pack(message(1)), '{"missed":10}']);
    end.send(3, 15);
    end.frames();
    end.endpoint.reportMissed(7);
    end.send(16);
    expect(end.frames()).toEqual([]);
    end.receive('{"ack":16}');
    expect(end.frames()).toEqual(['{"missed":7}', pack(message(16))]);
  });

  it("ends with its session, and is not sent to a side that is not reciproc", () => {
    const end = new ClientEnd();
    end.attach();
    end.receive(message(1));
    end.endpoint.reportMissed(3);
    end.send(2);
    expect(end.frames()).toEqual([message(2)]);
  });

  it.each(["0", "-1", "0.5", '"1"', "null", "true", "[]", "9007199254740992"])(
    "ends the session with 1002 if its count is %s",
    (count) => {
      const end = ClientEnd.live();
      end.receive(`{"missed":${count}}`);
      expect(end.events.at(-1)).toMatchObject({ ended: 1002 });
      expect(end.got).toEqual([]);
    },
  );
});

const BINARY = { bytes: true, readBytes: bytes.read } as const;

/** Returns a session whose both sides take bytes. */
function binary(limits = {}): ClientEnd {
  return ClientEnd.live({ ...BINARY, ...limits }, {}, { bytes: true });
}

function withBytes(n: number, length = 10): Exclude<ReturnType<typeof codec.encodeNotification>, string> {
  return codec.encodeNotification("b", [n, bytes(new Uint8Array(length).fill(n))]) as never;
}

/** Returns what such a notification is when it has arrived: as bytes, or as text. */
function arrived(n: number, content: unknown = new Uint8Array(10).fill(n)): unknown {
  return { jsonrpc: "2.0", method: "b", params: [n, content] };
}

const frameOf = (n: number, length?: number): Uint8Array => withBytes(n, length).frame;
/** Returns the frames, each binary one as its message. */
const readAll = (frames: unknown[]): unknown[] =>
  frames.map((frame) => (frame instanceof Uint8Array ? bytes.read(frame) : frame));
const base64 = (n: number): string => Buffer.from(new Uint8Array(10).fill(n)).toString("base64");

describe("a message with bytes", () => {
  it("is a binary frame in order with the others, numbered, logged and acknowledged as a pack is", () => {
    const end = binary();
    end.flow.send(message(1));
    end.flow.send(withBytes(2));
    end.flow.send(message(3));
    expect(readAll(end.frames())).toEqual([pack(message(1)), arrived(2), pack(message(3))]);
    end.receive('{"ack":3}', pack(message(1)), frameOf(2));
    expect(end.got).toEqual([1, arrived(2)]);
    end.endpoint.sendControl('{"ping":1}');
    expect(end.frames()).toEqual(['{"ack":2}', '{"ping":1}']);
  });

  it("is replayed after the loss of a socket, unchanged and once", () => {
    const end = binary();
    const view = new Uint8Array(10).fill(1);
    end.flow.send(codec.encodeNotification("b", [1, bytes(view)]));
    end.frames();
    view.fill(99);
    end.lose();
    // Without a socket it is queued as a copy.
    const queued = new Uint8Array(10).fill(2);
    end.flow.send(codec.encodeNotification("b", [2, bytes(queued)]));
    queued.fill(99);
    end.attach({ session: OFFER, bytes: true });
    expect(end.frames()[0]).toContain('"bytes":true');
    end.receive(resumed("next", 0));
    expect(readAll(end.frames())).toEqual(['{"ack":0}', arrived(1), arrived(2)]);
  });

  it("is sent before a bye, if it is queued when its side closes", () => {
    const end = binary({ logFrames: 1 });
    for (const text of [withBytes(1), withBytes(2), message(3)]) end.flow.send(text);
    end.endpoint.sayBye({ code: 1000, reason: "" }, end.flow.stop());
    expect(readAll(end.wire.take()).slice(0, -1)).toEqual([arrived(1), arrived(2), pack(message(3))]);
  });

  it("follows the hello that is owed", () => {
    const end = new ClientEnd(BINARY);
    end.attach({ session: OFFER, bytes: true }, true, false);
    end.flow.send(withBytes(1));
    expect(readAll(end.frames())).toEqual([expect.stringContaining('"session":true'), arrived(1)]);
  });

  it.each<[string, () => ClientEnd]>([
    ["client", () => ClientEnd.live(BINARY)],
    ["server", () => ClientEnd.live({}, {}, { bytes: true })],
  ])("is base64 text if only the %s takes bytes", (_side, make) => {
    const end = make();
    end.flow.send(withBytes(1));
    end.lose();
    end.flow.send(withBytes(2));
    const sent = end.resume(0).map((frame) => JSON.parse(frame as string) as unknown);
    expect(sent).toEqual([[arrived(1, base64(1))], [arrived(2, base64(2))]]);
  });

  it("is base64 text if it has more attachments than a binary frame may have", () => {
    const end = binary({ maxMessageBytes: 2 ** 23, logLength: 2 ** 24 });
    const empty = bytes(new Uint8Array(0));
    end.flow.send(codec.encodeNotification("b", Array(65_537).fill(empty)));
    expect(end.frames()).toEqual([expect.stringMatching(/^\[\{"jsonrpc":"2.0","method":"b","params":\["",/)]);
  });
});

describe("the length of bytes", () => {
  it("counts against the longest message of the other side, which gets none that is longer", () => {
    const end = binary({ maxMessageBytes: 1000 });
    const overhead = frameOf(1, 100).length - 100;
    const sent = [1000, 1001].map((length) => end.flow.send(withBytes(1, length - overhead)));
    expect(sent).toEqual([true, false]);
  });

  it("closes with 1009 if it is beyond that", () => {
    const read: number[] = [];
    const readBytes = (frame: Uint8Array): unknown => (read.push(frame.length), bytes.read(frame));
    const end = binary({ maxMessageBytes: 1000, readBytes });
    end.receive(frameOf(1, 100), binaryFrame('[["a",1000],["a"]]', new Uint8Array(1000)));
    expect(end.events.at(-1)).toMatchObject({ ended: 1009 });
    // Checked before the frame is read, which parses and copies it.
    expect(read).toEqual([frameOf(1, 100).length]);
  });

  it("counts in the log, so that no message gets a number while the log is full", () => {
    const end = binary({ logLength: 3000 });
    for (const n of range(1, 4)) end.flow.send(withBytes(n, 1500));
    expect(end.frames()).toHaveLength(2);
    expect(end.flow.unsentBytes).toBeGreaterThan(3000);
    end.receive('{"ack":2}');
    expect(end.frames()).toHaveLength(2);
  });

  it("counts for the ack that lets the other side go on, and in the queue of a session without a socket", () => {
    const end = binary({ logLength: 4000, maxUnsentBytes: 10_000 });
    end.receive(frameOf(1, 1500));
    expect(end.frames()).toEqual(['{"ack":1}']);
    end.lose();
    expect([end.flow.send(withBytes(1, 4000)), end.flow.send(withBytes(2, 2000))]).toEqual([true, false]);
    expect(end.events.at(-1)).toMatchObject({ ended: 1013 });
  });
});

describe("a binary frame that breaks the rules", () => {
  it.each([
    ["is a pack", Buffer.from('[{"n":1}]')],
    ["has too many bytes", binaryFrame('[["a",1],["a"]]', [1, 2])],
  ])("closes with 1002 if it %s", (_why, frame) => {
    const end = binary();
    end.receive(Uint8Array.from(frame));
    expect(end.events.at(-1)).toMatchObject({ ended: 1002 });
  });

  it("is text for a side that did not say that it takes bytes, or before the hello", () => {
    const end = ClientEnd.live();
    end.receive(Uint8Array.from(Buffer.from('[{"n":1}]')));
    const opening = new ClientEnd(BINARY);
    opening.attach();
    opening.receive(Uint8Array.from(Buffer.from('{"n":2}')));
    expect([end.got, opening.got]).toEqual([[1], [2]]);
  });

  it("is not data before `resumed`", () => {
    const end = binary();
    end.lose();
    end.attach({ session: OFFER, bytes: true });
    end.receive(frameOf(1));
    expect(end.events.at(-1)).toMatchObject({ ended: 1002 });
  });
});

it("says that it takes bytes in its hello, with and without a session, and in `resume`", () => {
  for (const session of [OFFER, undefined]) {
    const end = new ClientEnd(BINARY);
    end.attach();
    end.receive(hello(session, { bytes: true }));
    expect(end.frames()).toEqual([expect.stringContaining('"bytes":true')]);
  }
});
