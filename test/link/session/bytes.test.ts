import { describe, expect, it } from "vitest";
import { bytes } from "../../../src/index.js";
import * as codec from "../../../src/core/codec.js";
import type { TextWithBytes } from "../../../src/core/bytes.js";
import { EncodedMessage } from "../../../src/core/transport.js";
import { binaryFrame } from "../../support/binary.js";
import { useFakeClock } from "../../support/clock.js";
import { LIMITS, message, Rig, REFUSED, type RigOptions } from "./rig.js";
import { microtasks } from "./wire.js";

useFakeClock();

const BINARY = { bytes: true, readBytes: bytes.read } as const;
const bothTake = (limits?: RigOptions["limits"]): RigOptions => ({ limits: { ...BINARY, ...limits } });

/** A notification with bytes. */
function withBytes(n: number, length = 10): TextWithBytes {
  return codec.encodeNotification("b", [n, bytes(new Uint8Array(length).fill(n))]) as TextWithBytes;
}

/** Such a notification as the receiver gets it. */
function got(n: number, length = 10): unknown {
  return { jsonrpc: "2.0", method: "b", params: [n, new Uint8Array(length).fill(n)] };
}

function gotText(n: number, length = 10): unknown {
  const text = Buffer.from(new Uint8Array(length).fill(n)).toString("base64");
  return { jsonrpc: "2.0", method: "b", params: [n, text] };
}

describe("a message with bytes in a session", () => {
  it("is a binary frame in order with the others, numbered, logged and acknowledged as a pack is", async () => {
    await using rig = await Rig.live(bothTake());
    const { link } = rig.client;
    link.send(message(1));
    link.send(withBytes(2));
    link.send(message(3));
    await rig.settle();
    rig.server.link.send(withBytes(4));
    await rig.settle();
    expect(rig.server.emitted.messages).toEqual([JSON.parse(message(1)), got(2), JSON.parse(message(3))]);
    expect(rig.emitted.messages).toEqual([got(4)]);
    expect(rig.wire.client.sentBytes).toHaveLength(1);
    expect(link.endpoint.state.session!.last).toBe(3);
    rig.server.link.ping();
    await rig.settle();
    expect(rig.server.link.endpoint.state.session!.acked).toBe(1);
  });

  it("is replayed after the loss of a socket, unchanged and once", async () => {
    await using rig = await Rig.live(bothTake());
    const { link } = rig.client;
    const view = new Uint8Array(10).fill(1);
    link.send(codec.encodeNotification("b", [1, bytes(view)]));
    link.send(message(2));
    await microtasks();
    // The log has a copy.
    view.fill(99);
    rig.cut();
    rig.reconnect();
    await rig.settle();
    expect(rig.server.emitted.messages).toEqual([got(1), JSON.parse(message(2))]);
    expect(rig.owner).toEqual(["suspended", "resumed"]);
  });

  it("is queued without a socket as a copy, in order, and sent as a binary frame", async () => {
    await using rig = await Rig.live(bothTake());
    rig.cut();
    const view = new Uint8Array(10).fill(1);
    rig.client.link.send(codec.encodeNotification("b", [1, bytes(view)]));
    rig.client.link.send(message(2));
    rig.server.link.send(withBytes(3));
    view.fill(99);
    rig.reconnect();
    await rig.settle();
    expect(rig.server.emitted.messages).toEqual([got(1), JSON.parse(message(2))]);
    expect(rig.emitted.messages).toEqual([got(3)]);
    expect(rig.wire.client.sentBytes).toHaveLength(1);
    expect(rig.wire.server.sentBytes).toHaveLength(1);
  });

  it("is sent before a bye, if it is queued when its side closes", async () => {
    await using rig = await Rig.live(bothTake({ logFrames: 1 }));
    const { link } = rig.client;
    link.send(withBytes(1));
    link.send(withBytes(2));
    link.send(message(3));
    link.close();
    await rig.settle();
    expect(rig.server.emitted.messages).toEqual([got(1), got(2), JSON.parse(message(3))]);
  });

  it("is base64 text while the server does not have the client's hello", async () => {
    await using rig = new Rig(bothTake());
    rig.servers[0]!.link.send(withBytes(1));
    await rig.settle();
    rig.servers[0]!.link.send(withBytes(2));
    await rig.settle();
    expect(rig.emitted.messages).toEqual([gotText(1), got(2)]);
  });

  it("is base64 text if no side takes bytes", async () => {
    await using rig = await Rig.live();
    rig.client.link.send(withBytes(1));
    rig.server.link.send(withBytes(2));
    await rig.settle();
    expect(rig.server.emitted.messages).toEqual([gotText(1)]);
    expect(rig.emitted.messages).toEqual([gotText(2)]);
    expect(rig.wire.client.sentBytes.length + rig.wire.server.sentBytes.length).toBe(0);
  });

  it.each(["client", "server"] as const)("is base64 text if only the %s takes bytes", async (side) => {
    const limits = { ...LIMITS, bytes: undefined, readBytes: undefined };
    await using rig = await Rig.live(
      side === "server" ? { sessions: { limits: { ...limits, ...BINARY } } } : { ...bothTake(), sessions: { limits } },
    );
    rig.client.link.send(withBytes(1));
    rig.server.link.send(withBytes(2));
    await rig.settle();
    expect(rig.server.emitted.messages).toEqual([gotText(1)]);
    expect(rig.emitted.messages).toEqual([gotText(2)]);
  });

  it("is base64 text if it has more attachments than a binary frame may have", async () => {
    await using rig = await Rig.live(bothTake({ maxMessageBytes: 2 ** 23, logLength: 2 ** 24 }));
    const empty = bytes(new Uint8Array(0));
    rig.client.link.send(codec.encodeNotification("b", Array(65_537).fill(empty)));
    await rig.settle();
    expect(rig.wire.client.sentBytes).toEqual([]);
    expect(rig.server.emitted.messages).toEqual([{ jsonrpc: "2.0", method: "b", params: Array(65_537).fill("") }]);
  });

  it("is broadcast as a binary frame, encoded once, to clients that take it, and as text to others", async () => {
    await using rig = await Rig.live(bothTake());
    const broadcast = new EncodedMessage(withBytes(1));
    expect(broadcast.sendBy(rig.server.link, undefined)).toBe(true);
    expect(broadcast.sendBy(rig.server.link, undefined)).toBe(true);
    await rig.settle();
    const [first, second] = rig.wire.server.sentBytes;
    expect(first).toBe(second);
    expect(rig.emitted.messages).toEqual([got(1), got(1)]);
    await using texts = await Rig.live();
    expect(broadcast.sendBy(texts.server.link, undefined)).toBe(true);
    await texts.settle();
    expect(texts.emitted.messages).toEqual([gotText(1)]);
  });
});

describe("the length of bytes", () => {
  it("counts against the longest message of the other side, which gets none that is longer", async () => {
    await using rig = await Rig.live(bothTake({ maxMessageBytes: 1000 }));
    const overhead = withBytes(1, 100).frame.length - 100;
    expect(rig.client.link.send(withBytes(1, 1000 - overhead))).toBe(true);
    expect(rig.client.link.send(withBytes(1, 1001 - overhead))).toBe(false);
    await rig.settle();
    expect(rig.server.emitted.messages).toEqual([got(1, 1000 - overhead)]);
  });

  it("closes with 1009 if it is beyond that", async () => {
    await using rig = await Rig.live(bothTake({ maxMessageBytes: 1000 }));
    rig.wire.server.inject(binaryFrame('[["a",1000],["a"]]', new Uint8Array(1000)));
    await rig.settle();
    expect(rig.server.emitted.notices).toEqual([{ closed: { code: 1009, reason: "message is too large" } }]);
  });

  it("is checked before the frame is read, which parses and copies it", async () => {
    const read: number[] = [];
    const readBytes = (frame: Uint8Array): unknown => {
      read.push(frame.length);
      return bytes.read(frame);
    };
    await using rig = await Rig.live({ limits: { bytes: true, readBytes, maxMessageBytes: 1000 } });
    rig.wire.server.inject(withBytes(1, 100).frame);
    rig.wire.server.inject(withBytes(2, 1000).frame);
    await rig.settle();
    expect(read).toEqual([withBytes(1, 100).frame.length]);
    expect(rig.server.emitted.notices).toEqual([{ closed: { code: 1009, reason: "message is too large" } }]);
  });

  it("counts in the log, so that no message gets a number while the log is full", async () => {
    await using rig = await Rig.live(bothTake({ logLength: 3000 }));
    for (let n = 1; n <= 4; n++) rig.client.link.send(withBytes(n, 1500));
    const { endpoint } = rig.client.link;
    expect(endpoint.state.session!.last).toBe(2);
    expect(endpoint.state.session!.logLength).toBeGreaterThan(3000);
    expect(endpoint.queuedLength).toBeGreaterThan(3000);
    await rig.settle();
    expect(rig.server.emitted.messages).toEqual([1, 2, 3, 4].map((n) => got(n, 1500)));
  });

  it("counts for the ack that lets the other side go on", async () => {
    await using rig = await Rig.live(bothTake({ logLength: 4000 }));
    rig.client.link.send(withBytes(1, 1500));
    await rig.settle();
    expect(rig.client.link.endpoint.state.session!.acked).toBe(1);
  });

  it("counts in the queue of a session without a socket, which ends the session", async () => {
    await using rig = await Rig.live(bothTake({ queueLength: 5000 }));
    rig.cut();
    expect(rig.client.link.send(withBytes(1, 4000))).toBe(true);
    expect(rig.client.link.send(withBytes(2, 2000))).toBe(false);
    await rig.settle();
    expect(rig.owner).toContain("over");
  });

  it("counts in the memory of a suspended session of a server", async () => {
    await using rig = await Rig.live(bothTake());
    rig.server.link.send(withBytes(1, 3000));
    rig.cut();
    rig.server.link.send(withBytes(2, 2000));
    expect(rig.server.link.heldLength).toBeGreaterThan(5000);
    rig.reconnect();
    await rig.settle();
    expect(rig.emitted.messages).toEqual([got(1, 3000), got(2, 2000)]);
  });
});

describe("a binary frame that breaks the rules", () => {
  it.each([
    ["is a pack", Buffer.from('[{"n":1}]')],
    ["has too many bytes", binaryFrame('[["a",1],["a"]]', [1, 2])],
  ])("closes with 1002 if it %s", async (_why, frame) => {
    await using rig = await Rig.live(bothTake());
    rig.wire.server.inject(Uint8Array.from(frame));
    await rig.settle();
    expect(rig.server.emitted.notices).toEqual([
      { closed: { code: 1002, reason: "a binary frame breaks its rules", error: undefined } },
    ]);
  });

  it("is text for a side that did not say that it takes bytes, or before the hello", async () => {
    await using rig = await Rig.live();
    rig.wire.server.inject(Uint8Array.from(Buffer.from('[{"n":1}]')));
    await using opening = new Rig(bothTake());
    opening.wire.server.inject(Uint8Array.from(Buffer.from('{"n":2}')));
    expect(rig.server.emitted.messages).toEqual([{ n: 1 }]);
    expect(opening.server.emitted.messages).toEqual([{ n: 2 }]);
    await opening.settle();
  });

  it("is not data before `resumed`", async () => {
    await using rig = await Rig.live(bothTake());
    rig.cut();
    const { client } = rig.reconnect();
    client.deliver();
    client.inject(withBytes(1).frame);
    expect(client.closedWith).toMatchObject({ code: 1002, reason: "data before `resumed`" });
  });
});

describe("the frames that say that an end takes bytes", () => {
  it("are the hello of each side and `resume`", async () => {
    await using rig = await Rig.live(bothTake());
    rig.client.link.send(message(1));
    await rig.settle();
    expect(JSON.parse(rig.wire.server.sent[0]!)).toMatchObject({ hello: { session: {}, bytes: true } });
    expect(JSON.parse(rig.wire.client.sent[0]!)).toMatchObject({ hello: { session: true, bytes: true } });
    rig.cut();
    rig.reconnect();
    await rig.settle();
    expect(JSON.parse(rig.wire.client.sent[0]!)).toMatchObject({ resume: { bytes: true } });
  });

  it("do not resume with a `bytes` that is not true", async () => {
    await using rig = await Rig.live(bothTake());
    rig.cut();
    const socket = rig.arrival();
    const token = rig.tokens[0]!;
    const limits = { maxMessageBytes: 1, logFrames: 1, logLength: 1 };
    socket.inject(JSON.stringify({ resume: { token, received: 0, attempt: 1, limits, bytes: ["long"] } }));
    expect(socket.closedWith).toMatchObject({ code: 1002 });
    expect(socket.sent).not.toContain(REFUSED);
  });
});
