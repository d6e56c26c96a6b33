/** A socket over the `ws` package: Node's, on both sides. */
import { Socket as NetSocket } from "node:net";
import type { Duplex } from "node:stream";
import * as ws from "ws";
import { WebSocket, type RawData } from "ws";
import type { EncodedFrame, Traffic } from "../core/transport.js";
import { frameText, type Socket } from "../link/socket.js";
import { atEndOfTick } from "../link/tick.js";
import { Heartbeat, type HeartbeatTimes, type Pulse } from "../link/heartbeat.js";
import { ROOM_FOR_PONGS } from "../link/socket.js";
import { Rate } from "../core/rate.js";
import { borrow, giveBack, isBorrowed } from "./buffers.js";
import { decodeFrame, Inbox } from "./inbox.js";
import { ReadBudget, type Pausable } from "./read-budget.js";
import { ReadMarks } from "./read-marks.js";
import { maskedFrames, unmaskedFrame, unmaskedFrames } from "./text-frames.js";

export { CLOSE_TIMEOUT_MS } from "./inbox.js";

/**
 * Pings and pongs of WebSocket that one connection may send in a second, and at once after a quiet second. A heartbeat sends one
 * in many seconds. `ws` has a bound of its own, 60 pongs that have not left, which holds only where `ws` sends the pongs.
 */
const CONTROL_FRAMES_PER_SECOND = 1000;

/** How long a socket of which nothing more is read stays open, so that its client can read the close. */
const FLOODED_MS = 1000;

/** How much of the data that was read is parsed between two looks at the budget: as much as holds so many frames like the last, at least. */
const PART_BYTES = 16 * 1024;
const PART_FRAMES = 64;

/**
 * Whether the WebSockets of `ws` write their frames to a socket of Node's, so that other frames can be written there too. Bun
 * replaces `ws` with an implementation of its own, whose `Sender` makes no frames. On a client it hands out no socket. On a
 * server it does not count what is written to the socket, and does not send it once the socket was full.
 */
const writesToSockets = typeof (ws as { Sender?: { frame?: unknown } }).Sender?.frame === "function";

/**
 * In how many pieces a message may come, as options of `ws`, which keeps them until the last and closes with 1008 beyond.
 * Its own bounds do not look at the length: a message of 16 KB could hold 1 GiB, because a fragment keeps the 64 KiB that
 * it was read with. Fragments of 1 KiB and packets of 256 bytes are smaller than anybody's who means to send a long message.
 */
export function pieceLimits(maxFrameBytes: number): { maxFragments: number; maxBufferedChunks: number } {
  return { maxFragments: pieces(maxFrameBytes, 1024), maxBufferedChunks: pieces(maxFrameBytes, 256) };
}

/** A short message may come in smaller ones. */
function pieces(bytes: number, size: number): number {
  return 128 + Math.ceil(bytes / size);
}

/** A WebSocket whose frames a `WsSocket` writes. The close of `ws` overtakes none of them. */
export class GatheringWebSocket extends WebSocket {
  owner: WsSocket | undefined;

  /** Called by `ws` too, when the other side closes or breaks the protocol. */
  override close(code?: number, data?: string | Buffer): void {
    const close = (): void => {
      this.owner?.flushHandler();
      super.close(code, data);
    };
    if (this.owner === undefined) close();
    else this.owner.closeAfterWork(close);
  }
}

/**
 * A `ws` WebSocket that writes several frames in one system call. It listens at once: what comes before `start` is kept.
 *
 * For that it writes text frames itself, to the connection's own socket, which the public `upgrade` events of Node and of
 * `ws` hand out. `ws` never has a fragmented or asynchronous send under way, because none is made here.
 *
 * Where the runtime replaces `ws`, the WebSocket itself sends each frame (`writesToSockets`).
 */
export class WsSocket extends Inbox implements Socket, Pulse, Pausable {
  /** When a frame of any kind last came. */
  heardAt = performance.now();
  override readonly budget = new ReadBudget(this);
  readonly #webSocket: GatheringWebSocket;
  /** A server's frames are not masked, so their bytes can be shared. */
  readonly #isServer: boolean;
  /** Where frames are written; `undefined` where the WebSocket must send them, and before a client is connected. */
  #raw: Duplex | undefined;
  #error: NodeJS.ErrnoException | undefined;
  /** Whether this side has closed it: then what still comes is for no one. */
  #isClosing = false;
  /** Length of the newest frame. */
  #frameBytes = 0;
  /** Made with the first control frame. */
  #controlFrames: Rate | undefined;
  /** Whether too many control frames came: then nothing more is read. */
  #isFlooded = false;
  #heartbeat: Heartbeat | undefined;
  #readMarks: ReadMarks | undefined;

  /** `raw` is the socket that a server was handed with the upgrade; a client's comes with the answer. */
  constructor(webSocket: GatheringWebSocket, maxFrameBytes: number, raw?: Duplex) {
    // `maxPayload` stops a longer message before it is gathered; what comes here fits.
    super(maxFrameBytes);
    this.#webSocket = webSocket;
    this.#raw = writesToSockets ? raw : undefined;
    this.#isServer = this.#raw !== undefined;
    // Bun's event holds no socket.
    if (raw === undefined) webSocket.once("upgrade", ({ socket }) => (this.#raw = socket ?? undefined));
    webSocket.owner = this;
    // The same functions for all: closures of its own are dear where thousands are idle.
    webSocket.on("message", onMessage);
    webSocket.on("ping", onPing);
    webSocket.on("pong", onPong);
    webSocket.on("error", onError);
    webSocket.on("close", onClose);
  }

  /** Calls `then` when the pong to a ping that follows what was sent has come. */
  afterRead(then: () => void): boolean {
    if (!this.open) return false;
    this.#readMarks ??= new ReadMarks((payload) => {
      this.flushHandler();
      if (this.open) this.#webSocket.ping(payload);
    });
    return this.#readMarks.set(then);
  }

  /** A pong came. One that answers a mark was asked for, and counts as no flood. */
  ponged(payload: Buffer): void {
    if (this.#readMarks?.reached(payload.toString()) === true) this.#hear();
    else this.controlled();
  }

  /** Takes a text or binary frame. If the budget of this tick is spent, processes it in a later tick. */
  received(bytes: Buffer, isBinary: boolean): void {
    const isFree = this.#hear();
    this.#frameBytes = bytes.length;
    // Not even decoded: text that is not UTF-8 costs an error.
    if (this.#isClosing) return;
    if (isFree) this.#process(bytes, isBinary);
    else this.budget.add(() => this.#process(bytes, isBinary));
  }

  #process(bytes: Buffer, isBinary: boolean): void {
    this.frame(isBinary ? decodeFrame(bytes) : bytes.toString(), bytes.length);
  }

  /** Answers a ping, while there is room for the answer. Without that bound, a client that never reads would be answered without end. */
  pinged(data: Buffer): void {
    this.controlled();
    if (this.#isClosing) return;
    // A pong says that what came before the ping is processed.
    if (this.budget.hasWork) this.budget.add(() => this.#pong(data));
    else this.#pong(data);
  }

  #pong(data: Buffer): void {
    if (!this.open || this.unsentBytes >= ROOM_FOR_PONGS) return;
    this.#corkTurn();
    this.#webSocket.pong(data);
  }

  /** What `ws` writes in this turn leaves in one system call: 1,000 pongs took 30 ms. */
  #corkTurn(): void {
    const raw = this.#raw;
    if (raw === undefined || raw.writableCorked > 0) return;
    raw.cork();
    atEndOfTick({ endTick: () => raw.uncork() });
  }

  /** Takes note of a ping or a pong; if there are too many, closes the socket and reads nothing more of it. */
  controlled(): void {
    this.#hear();
    if (this.#isFlooded || (this.#controlFrames ??= new Rate(CONTROL_FRAMES_PER_SECOND)).take()) return;
    const reason = `more than ${CONTROL_FRAMES_PER_SECOND} pings and pongs in a second`;
    this.#error ??= Object.assign(new Error(reason), { code: FLOODED });
    this.close(1008, reason);
    this.#isFlooded = true;
    this.pauseReading();
    setTimeout(() => this.#webSocket.terminate(), FLOODED_MS).unref();
  }

  /** Returns whether what came may be processed at once. */
  #hear(): boolean {
    return this.budget.isFree((this.heardAt = performance.now()));
  }

  pauseReading(): void {
    this.#webSocket.pause();
  }

  resumeReading(): void {
    if (!this.#isFlooded) this.#webSocket.resume();
  }

  /** A read of 64 KiB may hold 10,000 frames, which `ws` takes 10 ms to parse: in parts, they are parsed within the budget. */
  readPart(): boolean {
    if (this.#isFlooded || this.#raw === undefined) return false;
    const length = Math.min(this.#raw.readableLength, Math.max(PART_BYTES, PART_FRAMES * this.#frameBytes));
    return length > 0 && this.#raw.read(length) !== null;
  }

  /** Calls `close` when everything that came before the other side's close is processed, and what it led to is sent. */
  closeAfterWork(close: () => void): void {
    if (this.budget.hasWork && !this.#isClosing) this.budget.add(close);
    else close();
  }

  /** Always followed by `closed`. */
  failed(cause: Error): void {
    this.#error ??= cause;
  }

  closed(code: number, reason: string): void {
    this.#heartbeat?.stop();
    const end = (): void => this.end({ code: failureCode(this.#error) ?? code, reason, error: this.#error });
    if (this.budget.hasWork) this.budget.add(end);
    else end();
  }

  /** From now on, until it is closed, the other side is asked for signs of life. */
  watch(times: HeartbeatTimes): void {
    this.#heartbeat = new Heartbeat(this, times);
  }

  get open(): boolean {
    return this.#webSocket.readyState === this.#webSocket.OPEN;
  }

  get unsentBytes(): number {
    return this.#webSocket.bufferedAmount;
  }

  send(frame: string | EncodedFrame): boolean {
    if (!this.open) return false;
    if (typeof frame !== "string" && this.#isServer) this.#raw!.write((frame.bytes ??= unmaskedFrame(frame.text)));
    else this.sendAll([frameText(frame)]);
    return true;
  }

  sendAll(frames: readonly string[]): void {
    const raw = this.#raw;
    if (raw === undefined || !this.open) return this.#sendEach(frames);
    // Another kind of stream may keep what was written for as long as it likes, and a full socket for very long.
    const isTaken = Object.getPrototypeOf(raw) === NetSocket.prototype && raw.writableLength === 0;
    const allocate = isTaken ? borrow : undefined;
    const bytes = this.#isServer ? unmaskedFrames(frames, allocate) : maskedFrames(frames, allocate);
    if (typeof bytes === "string") raw.write(bytes, "latin1");
    else if (!isBorrowed(bytes)) raw.write(bytes);
    else raw.write(bytes, (error) => error || giveBack(bytes));
  }

  /** Sends frames where nothing can be written past the WebSocket, or nothing at all. */
  #sendEach(frames: readonly string[]): void {
    for (const frame of frames) if (this.open) this.#webSocket.send(frame);
  }

  /** Asks for a sign of life (RFC 6455, section 5.5.2). */
  ping(): void {
    if (this.open) this.#webSocket.ping();
  }

  /** Cuts the connection without a close. */
  giveUp(reason: string): void {
    this.#error ??= new Error(reason);
    this.#webSocket.terminate();
  }

  /** Bytes that came in and went out, headers included; `undefined` before the connection is open. */
  get traffic(): Traffic | undefined {
    const { bytesRead: received, bytesWritten = 0, writableLength = 0 } = (this.#raw ?? {}) as Partial<NetSocket>;
    // Node counts as written what waits to be, and takes it back when the connection is cut.
    return received === undefined ? undefined : { received, sent: bytesWritten - writableLength };
  }

  close(code = 1000, reason = ""): void {
    this.#isClosing = true;
    this.#webSocket.close(code, reason);
    if (this.#raw === undefined) this.limitClose();
  }
}

function ownerOf(webSocket: WebSocket): WsSocket {
  return (webSocket as GatheringWebSocket).owner!;
}

function onMessage(this: WebSocket, data: RawData, isBinary: boolean): void {
  ownerOf(this).received(data as Buffer, isBinary);
}

function onPing(this: WebSocket, data: Buffer): void {
  ownerOf(this).pinged(data);
}

function onPong(this: WebSocket, data: Buffer): void {
  ownerOf(this).ponged(data);
}

function onError(this: WebSocket, cause: Error): void {
  ownerOf(this).failed(cause);
}

function onClose(this: WebSocket, code: number, reason: Buffer): void {
  ownerOf(this).closed(code, reason.toString());
}

const FLOODED = "WS_ERR_TOO_MANY_CONTROL_FRAMES";
const FAILURE_CODES: Readonly<Record<string, number>> = {
  [FLOODED]: 1008,
  WS_ERR_UNSUPPORTED_DATA_PAYLOAD_LENGTH: 1009,
  WS_ERR_UNSUPPORTED_MESSAGE_LENGTH: 1009,
  WS_ERR_TOO_MANY_BUFFERED_PARTS: 1008,
  WS_ERR_INVALID_UTF8: 1007,
};

/** `ws` closes with the right code for what it could not read, but tells this side 1006: it reads no answer after that. */
function failureCode(error: NodeJS.ErrnoException | undefined): number | undefined {
  if (!error?.code?.startsWith("WS_ERR_")) return undefined;
  return FAILURE_CODES[error.code] ?? 1002;
}
