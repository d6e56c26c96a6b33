/** The behaviour suite that every socket must pass. */
import { describe, expect, it } from "vitest";
import { Peer } from "../../src/index.js";
import { EncodedFrame, type CloseInfo } from "../../src/core/transport.js";
import type { Socket, SocketHandler } from "../../src/link/socket.js";
import { plain } from "../../src/link/plain.js";
import { turn } from "../support/turns.js";

/** The other end of the connection, which the test controls. */
export interface FarEnd {
  send(text: string): void;
  sendBytes(bytes: Uint8Array): void;
  close(code: number, reason: string): void;
  /** Resolves with all received frames, once there are `count`. A binary frame is what `hexOf` makes of it. */
  received(count: number): Promise<string[]>;
  /** The close that this end received. */
  readonly closed: Promise<{ code: number; reason: string }>;
}

/** The other end of a real WebSocket. */
export interface FarWebSocket extends FarEnd {
  /** Cuts the connection without a close frame. */
  cut(): void;
  /** Pauses and resumes reading. */
  pause(): void;
  resume(): void;
}

/** A socket that takes messages of up to `maxMessageBytes`, open, and the other end of it. */
export type MakeSocket<F extends FarEnd = FarEnd> = (
  maxMessageBytes: number,
) => Promise<{ socket: Socket; far: F } & AsyncDisposable>;

/** The parts of the suite that differ between sockets. */
export interface Traits {
  /** The close code for a message that is too long. */
  tooLarge: number;
}

/** Records the notifications of a socket. */
export class Recorder implements SocketHandler {
  readonly frames: string[] = [];
  readonly ends: CloseInfo[] = [];
  readonly ended: Promise<CloseInfo>;
  #onEnd!: (info: CloseInfo) => void;
  #wanted: { count: number; resolve: () => void } | undefined;

  constructor() {
    this.ended = new Promise((resolve) => (this.#onEnd = resolve));
  }

  frame(text: string): void {
    // No frame can follow the close.
    this.frames.push(this.ends.length > 0 ? `late: ${text}` : text);
    if (this.frames.length === this.#wanted?.count) this.#wanted.resolve();
  }

  closed(info: CloseInfo): void {
    this.ends.push(info);
    this.#onEnd(info);
  }

  async received(count: number): Promise<string[]> {
    if (this.frames.length < count) await new Promise<void>((resolve) => (this.#wanted = { count, resolve }));
    return this.frames;
  }
}

/** Records binary frames too, in order with the texts. */
export class BinaryRecorder extends Recorder {
  bytes(frame: Uint8Array): boolean {
    this.frame(hexOf(frame));
    return true;
  }
}

/** Returns how a recorder records a binary frame. */
export function hexOf(frame: Uint8Array): string {
  return `bytes ${Buffer.from(frame.buffer, frame.byteOffset, frame.length).toString("hex")}`;
}

const MOST = 1000;

/** Makes a socket, and starts it with a recorder. */
export async function started<F extends FarEnd>(
  make: MakeSocket<F>,
): Promise<Awaited<ReturnType<MakeSocket<F>>> & { recorder: Recorder }> {
  const ends = await make(MOST);
  const recorder = new Recorder();
  ends.socket.start(recorder);
  return { ...ends, recorder };
}

export function describeSocket(name: string, make: MakeSocket, { tooLarge }: Traits): void {
  const open = async (): ReturnType<MakeSocket> => make(MOST);

  describe(`${name}: frames`, () => {
    it("delivers frames in order, both ways", async () => {
      await using ends = await started(make);
      const texts = ["", "1", "zwölf 😀", '{"a":1}', "\u2028", "x".repeat(MOST)];
      for (const text of texts) {
        expect(ends.socket.send(text)).toBe(true);
        ends.far.send(text);
      }
      expect(await ends.far.received(texts.length)).toEqual(texts);
      expect(await ends.recorder.received(texts.length)).toEqual(texts);
    });

    it("keeps frames that arrived before start, and reports them after it and never inside it", async () => {
      await using ends = await open();
      ends.far.send("early");
      ends.far.send("early too");
      await arrived(ends);
      const recorder = new Recorder();
      ends.socket.start(recorder);
      expect(recorder.frames).toEqual([]);
      ends.far.send("later");
      expect(await recorder.received(3)).toEqual(["early", "early too", "later"]);
    });

    it("reports frames and a close that arrived before start after it, in order", async () => {
      await using ends = await open();
      ends.far.send("last words");
      ends.far.close(4000, "done");
      await ends.far.closed;
      await turn();
      const recorder = new Recorder();
      ends.socket.start(recorder);
      expect([recorder.frames, recorder.ends]).toEqual([[], []]);
      await recorder.ended;
      expect(recorder.frames).toEqual(["last words"]);
      expect(recorder.ends).toMatchObject([{ code: 4000, reason: "done" }]);
    });

    it("delivers frames that were sent before close() before the close", async () => {
      await using ends = await started(make);
      for (const text of ["one", "two"]) ends.socket.send(text);
      ends.socket.close();
      await ends.far.closed;
      expect(await ends.far.received(2)).toEqual(["one", "two"]);
    });

    it.each(["x", "é"])(
      "closes for a frame over the limit in bytes of UTF-8, and reports only the close: %s",
      async (unit) => {
        await using ends = await started(make);
        const longest = unit.repeat(MOST / Buffer.byteLength(unit));
        for (const text of [longest, longest + unit, "after"]) ends.far.send(text);
        expect(await ends.far.closed).toMatchObject({ code: tooLarge });
        await ends.recorder.ended;
        expect(ends.recorder.frames).toEqual([longest]);
        expect(ends.socket.send("x")).toBe(false);
      },
    );

    it("measures frames that arrived before start by the limit at start", async () => {
      await using ends = await open();
      const texts = ["fits", "x".repeat(10), "x".repeat(11), "after"];
      for (const text of texts) ends.far.send(text);
      await arrived(ends);
      const recorder = new Recorder();
      ends.socket.maxFrameBytes = 10;
      ends.socket.start(recorder);
      expect(await ends.far.closed).toMatchObject({ code: tooLarge });
      await recorder.ended;
      expect(recorder.frames).toEqual(texts.slice(0, 2));
    });

    it("has no unsent bytes once its frames are sent", async () => {
      await using ends = await started(make);
      ends.socket.send("x".repeat(500));
      await ends.far.received(1);
      expect(ends.socket.unsentBytes).toBe(0);
    });
  });

  describe(`${name}: binary frames`, () => {
    const noText = Uint8Array.of(0, 0xff, 0xfe, 0x80, 10);
    // Each length has another header, or another form in memory.
    const frames = [0, 1, 4, 125, 126, MOST].map((length) => Uint8Array.from({ length }, (_, i) => i * 7));

    it("delivers them unchanged and in order with texts, both ways", async () => {
      await using ends = await open();
      const recorder = new BinaryRecorder();
      ends.socket.start(recorder);
      const expected: string[] = [];
      for (const [i, frame] of [...frames, noText].entries()) {
        expect([ends.socket.send(frame), ends.socket.send(`text ${i}`)]).toEqual([true, true]);
        ends.far.sendBytes(frame);
        ends.far.send(`text ${i}`);
        expected.push(hexOf(frame), `text ${i}`);
      }
      expect(await ends.far.received(expected.length)).toEqual(expected);
      expect(await recorder.received(expected.length)).toEqual(expected);
    });

    it("sends long ones, views of longer buffers, and those that are encoded for many sockets", async () => {
      await using ends = await started(make);
      const long = [65_535, 65_536, 300_000].map((length) => Uint8Array.from({ length }, (_, i) => i * 31));
      const sent = [...long, long[2]!.subarray(3, 1000), Buffer.from([1, 2, 3])];
      for (const frame of sent) ends.socket.send(new EncodedFrame(frame));
      for (const frame of sent) ends.socket.send(frame);
      const expected = sent.map(hexOf);
      expect(await ends.far.received(2 * sent.length)).toEqual([...expected, ...expected]);
    });

    it("are text for a handler that takes none, or refuses one: UTF-8, or else nothing", async () => {
      for (const own of [{}, { bytes: () => false }]) {
        await using ends = await open();
        const recorder = new Recorder();
        ends.socket.start(Object.assign(recorder, own));
        for (const text of ["", "zwölf 😀"]) ends.far.sendBytes(new TextEncoder().encode(text));
        ends.far.sendBytes(noText);
        expect(await recorder.received(3)).toEqual(["", "zwölf 😀", ""]);
      }
    });

    it("are kept if they arrived before start, in order with texts", async () => {
      await using ends = await open();
      ends.far.sendBytes(noText);
      ends.far.send("text");
      ends.far.sendBytes(frames[1]!);
      await arrived(ends);
      const recorder = new BinaryRecorder();
      ends.socket.start(recorder);
      expect(recorder.frames).toEqual([]);
      expect(await recorder.received(3)).toEqual([hexOf(noText), "text", hexOf(frames[1]!)]);
    });

    it("are not changed by a receiver that writes into them", async () => {
      await using ends = await open();
      const recorder = new BinaryRecorder();
      ends.socket.start({
        frame: () => {},
        closed: () => {},
        bytes: (frame) => (recorder.bytes(frame), frame.fill(0), true),
      });
      for (let i = 0; i < 2; i++) ends.far.sendBytes(noText);
      expect(await recorder.received(2)).toEqual([hexOf(noText), hexOf(noText)]);
      expect([...noText]).toEqual([0, 0xff, 0xfe, 0x80, 10]);
    });

    it("close the socket if they are over the limit, which counts their bytes", async () => {
      await using ends = await open();
      const recorder = new BinaryRecorder();
      ends.socket.start(recorder);
      const longest = frames.at(-1)!;
      for (const frame of [longest, new Uint8Array(MOST + 1), noText]) ends.far.sendBytes(frame);
      expect(await ends.far.closed).toMatchObject({ code: tooLarge });
      await recorder.ended;
      expect(recorder.frames).toEqual([hexOf(longest)]);
      expect(ends.socket.send(noText)).toBe(false);
    });

    it("are delivered before the close if they were sent before close()", async () => {
      await using ends = await started(make);
      ends.socket.send(noText);
      ends.socket.close();
      await ends.far.closed;
      expect(await ends.far.received(1)).toEqual([hexOf(noText)]);
      expect(ends.socket.send(noText)).toBe(false);
    });

    it("count as unsent until they are sent", async () => {
      await using ends = await started(make);
      ends.socket.send(new Uint8Array(500));
      await ends.far.received(1);
      expect(ends.socket.unsentBytes).toBe(0);
    });
  });

  describe(`${name}: the end`, () => {
    it.each([
      [1000, ""],
      [3000, "three thousand"],
      [4999, "é".repeat(61)],
    ])("reports a close with %i %j from this side at both ends", async (code, reason) => {
      await using ends = await started(make);
      ends.socket.close(code, reason);
      expect(await ends.far.closed).toEqual({ code, reason });
      expect(await ends.recorder.ended).toMatchObject({ code, reason });
    });

    it.each([
      [1000, ""],
      [1001, "going away"],
      [4001, "application"],
    ])("reports a close with %i %j from the other side", async (code, reason) => {
      await using ends = await started(make);
      ends.far.close(code, reason);
      const info = await ends.recorder.ended;
      expect(info).toMatchObject({ code, reason });
      expect(info.error).toBeUndefined();
    });

    it("closes with 1000 without a reason by default", async () => {
      await using ends = await started(make);
      ends.socket.close();
      expect(await ends.far.closed).toEqual({ code: 1000, reason: "" });
    });

    it("reports the close exactly once, never inside close(), and close() is idempotent", async () => {
      await using ends = await started(make);
      ends.socket.close(4000, "first");
      ends.socket.close(4001, "second");
      expect(ends.recorder.ends).toEqual([]);
      expect(await ends.far.closed).toEqual({ code: 4000, reason: "first" });
      await ends.recorder.ended;
      ends.socket.close(4002, "third");
      await turn();
      expect(ends.recorder.ends).toMatchObject([{ code: 4000, reason: "first" }]);
    });

    it("reports the close exactly once if both sides close at the same time", async () => {
      await using ends = await started(make);
      ends.socket.close(4000, "here");
      ends.far.close(4001, "there");
      await ends.recorder.ended;
      await ends.far.closed;
      await turn();
      expect(ends.recorder.ends).toHaveLength(1);
    });

    it("returns false from send() after close(), and sends nothing", async () => {
      await using ends = await started(make);
      ends.socket.send("before");
      ends.socket.close();
      expect(ends.socket.send("after")).toBe(false);
      await ends.far.closed;
      expect(await ends.far.received(1)).toEqual(["before"]);
      await ends.recorder.ended;
      expect(ends.socket.send("after")).toBe(false);
    });

    it("returns false from send() once the other side has closed", async () => {
      await using ends = await started(make);
      ends.far.close(1000, "");
      await ends.recorder.ended;
      expect(ends.socket.send("after")).toBe(false);
    });
  });

  describe(`${name}: a peer on it`, () => {
    it("answers calls, refuses garbage with -32700, and closes", async () => {
      await using ends = await open();
      const peer = new Peer(plain(ends.socket), { methods: { add: ([a, b]) => a + b } });
      ends.far.send('{"jsonrpc":"2.0","id":1,"method":"add","params":[1,2]}');
      ends.far.send("{");
      expect(await ends.far.received(2)).toEqual([
        '{"jsonrpc":"2.0","id":1,"result":3}',
        '{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}',
      ]);
      await peer.close(4242, "enough");
      expect(await ends.far.closed).toEqual({ code: 4242, reason: "enough" });
    });
  });
}

/** Resolves when all frames that the far end has sent have arrived: the answer to a new frame follows them. */
async function arrived({ socket, far }: { socket: Socket; far: FarEnd }): Promise<void> {
  socket.send("marker");
  await far.received(1);
  for (let i = 0; i < 3; i++) await turn();
}
