/** The behaviour suite that every socket must pass. */
import { describe, expect, it } from "vitest";
import { Peer } from "../../src/index.js";
import type { CloseInfo } from "../../src/core/transport.js";
import type { Socket, SocketHandler } from "../../src/link/socket.js";
import { plain } from "../../src/link/plain.js";
import { turn } from "../support/turns.js";

/** The other end of the connection, which the test controls. */
export interface FarEnd {
  send(text: string): void;
  close(code: number, reason: string): void;
  /** Resolves with all received frames, once there are `count`. */
  received(count: number): Promise<string[]>;
  /** The close that this end received. */
  readonly closed: Promise<{ code: number; reason: string }>;
}

/** The other end of a real WebSocket. */
export interface FarWebSocket extends FarEnd {
  sendBytes(bytes: Uint8Array): void;
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
