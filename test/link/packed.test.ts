import { describe, expect, it } from "vitest";
import type { Socket } from "../../src/link/socket.js";
import { PACK_LENGTH } from "../../src/session/sizes.js";
import type { PackedLink } from "../../src/session/link.js";
import { plain } from "../../src/link/plain.js";
import { memorySockets } from "../../src/sockets/memory.js";
import { clientLink, PEER_LIMITS, serverLink } from "../support/links.js";
import { carried, describeLink, Heard } from "./behaviour.js";

const HELLO = '{"hello":{}}';

describeLink("packed", () => {
  const [a, b] = memorySockets(2 ** 20, 2 ** 20);
  return [serverLink(a), clientLink(b)];
});

describeLink("packed, to a server that only agreed to the subprotocol", () => {
  const [a, b] = memorySockets(2 ** 20, 2 ** 20);
  const [server, client] = [plain(a), clientLink(b)];
  server.send('{"first":"frame"}');
  const { start } = client;
  // The first frame only selects the kind of link. The suite tests the frames after it.
  client.start = (receiver) =>
    start.call(client, {
      receive: (text) => text !== '{"first":"frame"}' && receiver.receive(text),
      dispatch: (value) => receiver.dispatch(value),
      closed: (info) => receiver.closed(info),
    });
  return [server, client];
});

/** Makes a packed link whose other end is the test, which reads and writes frames. */
function framed(role: "client" | "server"): {
  link: PackedLink;
  heard: Heard;
  far: Socket;
  frames: string[];
  ends: number[];
} {
  const [near, far] = memorySockets(10_000, 2 ** 20);
  const frames: string[] = [];
  const ends: number[] = [];
  far.start({ frame: (text) => frames.push(text), closed: ({ code }) => ends.push(code) });
  const limits = { ...PEER_LIMITS, maxMessageBytes: 10_000 };
  const link = role === "server" ? serverLink(near, limits) : clientLink(near, limits);
  const heard = new Heard();
  link.start(heard);
  return { link, heard, far, frames, ends };
}

/** Makes a packed link after both hellos, which are removed. */
async function settled(): Promise<ReturnType<typeof framed>> {
  const ends = framed("client");
  ends.far.send(HELLO);
  await carried();
  expect(ends.frames.splice(0)).toEqual([HELLO]);
  return ends;
}

describe("the first frames", () => {
  it("sends a server's hello, then a client's hello, and then packs", async () => {
    const { link, far, frames } = framed("client");
    link.send('{"before":1}');
    await carried();
    expect(frames).toEqual(['{"before":1}']);
    far.send(HELLO);
    await carried();
    link.send('{"after":1}');
    await carried();
    expect(frames.slice(1)).toEqual([HELLO, '[{"after":1}]']);
  });

  it("sends packs right after a server's hello, while its client still sends plainly", async () => {
    const { link, heard, far, frames } = framed("server");
    link.send('{"n":1}');
    far.send('{"plain":1}');
    far.send('[{"plain":"batch"}]');
    far.send(HELLO);
    far.send('[{"packed":1},{"packed":2}]');
    await carried();
    expect(frames).toEqual([HELLO, '[{"n":1}]']);
    expect(heard.messages).toEqual([{ plain: 1 }, [{ plain: "batch" }], { packed: 1 }, { packed: 2 }]);
  });

  it("makes a link plain for good if a server's first frame is not hello", async () => {
    const { link, heard, far, frames } = framed("client");
    far.send('{"jsonrpc":"2.0","method":"welcome"}');
    far.send(HELLO);
    await carried();
    expect(heard.messages).toEqual([{ jsonrpc: "2.0", method: "welcome" }, { hello: {} }]);
    link.send("{}");
    await carried();
    expect(frames).toEqual(["{}"]);
  });

  it.each(["client", "server"] as const)(
    "takes no frame for hello that only begins like one: a %s reads it as a malformed message",
    async (role) => {
      const { link, heard, far, frames } = framed(role);
      const texts: string[] = [];
      heard.receive = (text) => void texts.push(text);
      const broken = ['{"hello":garbage', '{"hello":', '{"hello":{}', '{"hello":{}}}'];
      for (const frame of broken) far.send(frame);
      far.send('[{"a":"batch"}]');
      await carried();
      // In a pack, each member is one message.
      expect(texts).toEqual([...broken, '[{"a":"batch"}]']);
      expect(heard.messages).toEqual([]);
      expect(frames).toEqual(role === "server" ? [HELLO] : []);
      if (role === "client") return;
      far.send(HELLO);
      far.send('[{"packed":1}]');
      await carried();
      expect(heard.messages).toEqual([{ packed: 1 }]);
      link.close();
    },
  );

  it("accepts a hello with members of a later version", async () => {
    const { link, far, frames } = framed("client");
    far.send('{"hello":{"session":true},"more":1}');
    await carried();
    link.send("{}");
    await carried();
    expect(frames).toEqual([HELLO, "[{}]"]);
  });
});

describe("a pack", () => {
  it("is sent at once at the sixteenth message of a tick, and whenever the number has doubled", async () => {
    const { link, frames } = await settled();
    for (let i = 0; i < 150; i++) link.send(`{"i":${i}}`);
    await carried();
    const packs = (): number[][] => frames.map((frame) => (JSON.parse(frame) as { i: number }[]).map(({ i }) => i));
    expect(packs().map(({ length }) => length)).toEqual([16, 16, 32, 64, 22]);
    expect(packs().flat()).toEqual(Array.from({ length: 150 }, (_, i) => i));
  });

  it("is sent at once at its length limit, and is never much longer", async () => {
    const { link, frames } = await settled();
    const message = JSON.stringify({ text: "x".repeat(40) });
    for (let i = 0; i < 10_000; i++) link.send(message);
    await carried();
    expect(Math.max(...frames.map((frame) => frame.length))).toBeLessThanOrEqual(PACK_LENGTH + message.length);
    const packs = (10_000 * (message.length + 1)) / PACK_LENGTH;
    expect(frames.length).toBeLessThan(packs * 1.2 + 8);
    expect(frames.flatMap((frame) => JSON.parse(frame) as unknown[])).toHaveLength(10_000);
  });

  it("does not delay a long message, nor the messages before it", async () => {
    const { link, frames } = await settled();
    link.send('{"i":0}');
    link.send('{"i":1}');
    link.send(JSON.stringify({ text: "x".repeat(2 * PACK_LENGTH) }));
    // No tick has ended: the memory socket already has these frames.
    await Promise.resolve();
    expect(frames.map((frame) => (JSON.parse(frame) as unknown[]).length)).toEqual([2, 1]);
  });

  it.each<[string, string, unknown[]]>([
    ["contains a batch as a nested array", '[[{"a":1},{"b":2}],[],{"c":3}]', [[{ a: 1 }, { b: 2 }], [], { c: 3 }]],
    ["can be empty", "[]", []],
    ["passes elements that are no messages to the peer, which refuses them", '[1,null,"x"]', [1, null, "x"]],
  ])("%s", async (_what, frame, messages) => {
    const { heard, far, ends } = await settled();
    far.send(frame);
    far.send('[{"n":1}]');
    await carried();
    expect(heard.messages).toEqual([...messages, { n: 1 }]);
    expect(ends).toEqual([]);
  });

  it.each(["server", "client"] as const)(
    "can be as long as several messages, but a plain message of a %s's other side can not",
    async (role) => {
      const { heard, far, ends } = framed(role);
      far.send(JSON.stringify(["x".repeat(10_000 - 4)]));
      await carried();
      expect(heard.messages).toHaveLength(1);
      far.send(JSON.stringify(["x".repeat(10_000 - 3)]));
      await carried();
      expect(ends).toEqual([1009]);
      expect(heard.messages).toHaveLength(1);
    },
  );

  it("can contain other messages beside the longest", async () => {
    const { heard, far, ends } = await settled();
    const longest = JSON.stringify({ a: ["]}", '\\"', "x".repeat(10_000 - 22)] });
    expect(longest).toHaveLength(10_000);
    far.send(` [1,${longest},[],{"b":[{}]}]`);
    await carried();
    expect(heard.messages).toHaveLength(4);
    expect(ends).toEqual([]);
    far.send(`[1,${longest} ,[]]`);
    await carried();
    expect(ends).toEqual([1009]);
    expect(heard.messages).toHaveLength(4);
  });

  it.each(["[1,", '"text"', "1", "null", "", "[1][2]", "nonsense"])(
    "closes with 1002 if it is %j, and nothing after it is read",
    async (frame) => {
      const { heard, far, ends } = await settled();
      far.send(frame);
      far.send('[{"late":1}]');
      await carried();
      expect(ends).toEqual([1002]);
      expect(heard.messages).toEqual([]);
      expect(heard.ends.map(({ code }) => code)).toEqual([1002]);
    },
  );
});

describe("a control frame", () => {
  it.each(["1", '"now"', "null", '{"at":1}'])("is answered at once with its pong if it is ping %s", async (value) => {
    const { far, frames } = await settled();
    far.send(`{"ping":${value}}`);
    await carried();
    expect(frames).toEqual([`{"pong":${value}}`]);
  });

  it("is ignored if it belongs to a later version, is a pong or is a second hello", async () => {
    const { heard, far, frames, ends } = await settled();
    for (const frame of ['{"pong":1}', HELLO, '{"ack":7}', "{}"]) far.send(frame);
    far.send('[{"n":1}]');
    await carried();
    expect(heard.messages).toEqual([{ n: 1 }]);
    expect(frames).toEqual([]);
    expect(ends).toEqual([]);
  });
});
