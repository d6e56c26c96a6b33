/** A socket over the `ws` package, for servers and clients on Node. */
import type { Socket as NetSocket } from "node:net";
import type { Duplex } from "node:stream";
import * as ws from "ws";
import { WebSocket } from "ws";
import { shareTimer } from "../base/shared-timer.js";
import type { EncodedFrame, Traffic } from "../message/transport.js";
import { ROOM_FOR_PONGS, type Socket } from "./socket.js";
import { atEndOfTick, currentTick, MOST_COALESCED } from "./coalescer.js";
import { Heartbeat, type HeartbeatTimes, type Pulse } from "./heartbeat.js";
import { rateLimit } from "../base/rate.js";
import { giveBack, MIN_POOLED } from "./buffers.js";
import { Inbox, type QueuedItem } from "./inbox.js";
import { ReadBudget, type Pausable } from "../base/read-budget.js";
import { ReadMarks } from "./read-marks.js";
import { binaryHeader, maskedFrames, unmaskedFrame, unmaskedFrames } from "./frames.js";

export { CLOSE_TIMEOUT_MS } from "./socket.js";

// A server has many thousand deadlines, and a timer for each would be expensive.
shareTimer();

/**
 * Number of WebSocket pings and pongs that one connection may send in a second, or at once after a quiet second. A heartbeat sends
 * one in many seconds. The bound of `ws`, 60 unsent pongs, applies only if `ws` sends the pongs.
 */
const CONTROL_FRAMES_PER_SECOND = 1000;

/** How long a flooded socket stays open, so that its client can read the close. */
const FLOODED_MS = 1000;

/** Between two checks of the budget, so many buffered bytes are parsed, or so many frames like the last if they are longer. */
const PART_BYTES = 16 * 1024;
const PART_FRAMES = 64;

/**
 * True if `ws` writes its frames to a Node socket, so that other frames can be written there too. Bun replaces `ws` with its own
 * implementation, whose `Sender` makes no frames. On a client, Bun exposes no socket. On a server, Bun does not count bytes that
 * are written to the socket, and does not send them once the socket was full.
 */
const writesToSockets = typeof (ws as { Sender?: { frame?: unknown } }).Sender?.frame === "function";

/**
 * Returns options of `ws` that limit in how many pieces a message may come. `ws` keeps all pieces until the last, and closes with
 * 1008 beyond the limit. Its default bounds ignore the length: a message of 16 KB could hold 1 GiB, because a fragment keeps the
 * 64 KiB that it was read with. No serious sender of a long message uses fragments under 1 KiB or packets under 256 bytes.
 */
export function pieceLimits(maxFrameBytes: number): { maxFragments: number; maxBufferedChunks: number } {
  return { maxFragments: pieces(maxFrameBytes, 1024), maxBufferedChunks: pieces(maxFrameBytes, 256) };
}

/** Returns the number of pieces of at least `size` bytes, and 128 more so that a short message may come in smaller ones. */
function pieces(bytes: number, size: number): number {
  return 128 + Math.ceil(bytes / size);
}

/** The events of a WebSocket that a `WsSocket` takes. */
const EVENTS = ["message", "ping", "pong", "error", "close"] as const;

/** A WebSocket whose frames a `WsSocket` writes. Its close overtakes none of them. */
export class GatheringWebSocket extends WebSocket {
  wsSocket: WsSocket | undefined = undefined;

  /** Gives a message to the `WsSocket`, and other events to listeners too. If the `WsSocket` listened, its listeners would take 150 bytes. */
  override emit(event: string | symbol, first?: any, second?: any): boolean {
    const socket = writesToSockets ? this.wsSocket : undefined;
    if (socket !== undefined && event === "message") return socket.received(first as Buffer, second as boolean);
    const isTaken = socket?.take(event, first, second) === true;
    return (isTaken && this.listenerCount(event) === 0) || super.emit(event, first, second);
  }

  /** Closes after all earlier frames. `ws` also calls this when the other side closes or breaks the protocol. */
  override close(code?: number, data?: string | Buffer): void {
    const close = (): void => {
      this.wsSocket?.flushHandler();
      super.close(code, data);
    };
    if (this.wsSocket === undefined) close();
    else this.wsSocket.closeAfterWork(close);
  }
}

/**
 * A `ws` WebSocket that writes several frames in one system call. It takes events at once, and keeps frames that come before `start`.
 *
 * This class writes frames itself, to the connection's socket, which the public `upgrade` events of Node and of `ws` expose.
 * No fragmented or asynchronous send of `ws` can interleave, because this class makes none.
 *
 * If the runtime replaces `ws`, the WebSocket itself sends each frame (`writesToSockets`).
 */
export class WsSocket extends Inbox implements Socket, Pulse, Pausable {
  /** When a frame of any kind last came. `budget` sets it. */
  receivedAt = performance.now();
  readonly budget = new ReadBudget(this);
  readonly coalesces = true;
  readonly #webSocket: GatheringWebSocket;
  /** The frames of a server are not masked, so their bytes can be shared. */
  readonly #isServer: boolean;
  /** The socket to which frames are written. `undefined` if the WebSocket must send them, and before a client is connected. */
  #raw: Duplex | undefined;
  #error: NodeJS.ErrnoException | undefined;
  /** True if this side has closed the socket. Further frames are ignored. */
  #isClosing = false;
  /** Length of the newest frame. */
  #frameBytes = 0;
  /** Created with the first control frame. */
  #takeControlFrame: (() => boolean) | undefined;
  /** True if too many control frames came. Nothing more is read. */
  #isFlooded = false;
  #heartbeat: Heartbeat | undefined;
  #readMarks: ReadMarks | undefined;
  /** The unsent bytes when the socket was corked; `undefined` while it is not corked. */
  #unsentAtCork: number | undefined;
  /** The tick of the last broadcast. */
  #broadcastTick = -1;

  /** `raw` is the socket of a server's upgrade. A client gets its socket with the response. */
  constructor(webSocket: GatheringWebSocket, maxFrameBytes: number, raw?: Duplex) {
    // `maxPayload` refuses a longer message before it is buffered, so every frame here fits.
    super(maxFrameBytes);
    this.#webSocket = webSocket;
    this.#raw = writesToSockets ? raw : undefined;
    this.#isServer = this.#raw !== undefined;
    // Bun's event has no socket.
    if (raw === undefined) webSocket.once("upgrade", ({ socket }) => (this.#raw = socket ?? undefined));
    webSocket.wsSocket = this;
    // Bun makes the WebSockets of a server itself, and emits only events that have a listener.
    if (!writesToSockets)
      for (const event of EVENTS) webSocket.on(event, (...args: unknown[]) => this.take(event, args[0], args[1]));
  }

  /** Takes an event of the WebSocket, with its arguments. Returns false if it is none of `EVENTS`. */
  take(event: string | symbol, first: any, second: any): boolean {
    if (event === "message") this.received(first as Buffer, second as boolean);
    else if (event === "ping") this.#pinged(first as Buffer);
    else if (event === "pong") this.#ponged(first as Buffer);
    else if (event === "close") this.#closed(first as number, second as Buffer);
    // An error is recorded. "close" always follows.
    else if (event === "error") this.#error ??= first as Error;
    else return false;
    return true;
  }

  /** Calls `then` when the other side has answered a ping that follows all sent frames. Returns false if it cannot. */
  afterRead(then: () => void): boolean {
    if (!this.open) return false;
    this.#readMarks ??= new ReadMarks((payload) => {
      this.flushHandler();
      if (this.open) this.#webSocket.ping(payload);
    });
    return this.#readMarks.set(then);
  }

  /** Takes a text or binary frame. If the budget of this tick is spent, processes it in a later tick. Returns true. */
  received(bytes: Buffer, isBinary: boolean): boolean {
    const isFree = this.budget.received();
    this.#frameBytes = bytes.length;
    // Ignored frames are not decoded, because decoding text that is not UTF-8 creates an error.
    if (this.#isClosing) return true;
    if (isFree) this.receiveFrame(isBinary ? bytes : bytes.toString());
    else this.budget.add(() => this.receiveFrame(isBinary ? bytes : bytes.toString()));
    return true;
  }

  /** Takes a pong. A pong that answers a read mark was requested, so it does not count towards a flood. */
  #ponged(payload: Buffer): void {
    if (this.#readMarks?.reached(payload.toString()) === true) this.budget.received();
    else this.#controlled();
  }

  /** Answers a ping, unless `ROOM_FOR_PONGS` is used up. Without this bound, unsent pongs to a client would grow without limit. */
  #pinged(data: Buffer): void {
    this.#controlled();
    if (this.#isClosing) return;
    // A pong confirms that all frames before the ping are processed.
    if (this.budget.hasWork) this.budget.add(() => this.#pong(data));
    else this.#pong(data);
  }

  #closed(code: number, reason: Buffer): void {
    this.#heartbeat?.stop();
    this.budget.forgetSocket();
    const end = (): void =>
      this.end({ code: failureCode(this.#error) ?? code, reason: reason.toString(), error: this.#error });
    if (this.budget.hasWork) this.budget.add(end);
    else end();
  }

  #pong(data: Buffer): void {
    if (!this.open || this.unsentBytes >= ROOM_FOR_PONGS) return;
    this.#corkTick();
    this.#webSocket.pong(data);
  }

  /**
   * Corks the socket until the end of the tick, so that all its frames leave in one system call. 1,000 separate pongs took 30 ms.
   * Frames of this tick do not count as unsent, up to 8 KiB.
   */
  #corkTick(): void {
    const raw = this.#raw;
    if (raw === undefined) return;
    if (this.#unsentAtCork !== undefined && raw.writableLength >= MOST_COALESCED) this.#uncork();
    if (this.#unsentAtCork !== undefined) return;
    this.#unsentAtCork = this.unsentBytes;
    raw.cork();
    atEndOfTick(() => this.#uncork());
  }

  #uncork(): void {
    if (this.#unsentAtCork === undefined) return;
    this.#unsentAtCork = undefined;
    this.#raw!.uncork();
  }

  /** Counts a ping or a pong. If there are too many, closes the socket and stops reading. */
  #controlled(): void {
    this.budget.received();
    if (this.#isFlooded || (this.#takeControlFrame ??= rateLimit(CONTROL_FRAMES_PER_SECOND))()) return;
    const reason = `more than ${CONTROL_FRAMES_PER_SECOND} pings and pongs in a second`;
    this.#error ??= Object.assign(new Error(reason), { code: FLOODED });
    this.close(1008, reason);
    this.#isFlooded = true;
    this.pauseReading();
    setTimeout(() => this.#webSocket.terminate(), FLOODED_MS).unref();
  }

  /** Delivers the queued items in as many ticks as the budget needs, which defers what comes meanwhile. */
  protected override deliver(items: readonly QueuedItem[]): void {
    for (let i = 0; i < items.length; i++) {
      if (i > 0 && this.budget.isSpent()) return this.budget.defer(() => this.deliver(items.slice(i)));
      super.deliver([items[i]!]);
    }
  }

  pauseReading(): void {
    this.#webSocket.pause();
  }

  resumeReading(): void {
    if (!this.#isFlooded) this.#webSocket.resume();
  }

  /** Parses a part of the buffered data. `ws` takes 10 ms for a read of 64 KiB with 10,000 frames, so parts keep to the budget. */
  readPart(): boolean {
    if (this.#isFlooded || this.#raw === undefined) return false;
    const length = Math.min(this.#raw.readableLength, Math.max(PART_BYTES, PART_FRAMES * this.#frameBytes));
    return length > 0 && this.#raw.read(length) !== null;
  }

  /** Calls `close` when all frames that came before the other side's close are processed, and their replies are sent. */
  closeAfterWork(close: () => void): void {
    if (this.budget.hasWork && !this.#isClosing) this.budget.add(close);
    else close();
  }

  /** Starts a heartbeat, which runs until the socket is closed. */
  watch(times: HeartbeatTimes): void {
    this.#heartbeat = new Heartbeat(this, times);
  }

  get open(): boolean {
    return this.#webSocket.readyState === this.#webSocket.OPEN;
  }

  get unsentBytes(): number {
    return this.#unsentAtCork ?? this.#webSocket.bufferedAmount;
  }

  send(...frames: readonly (string | Uint8Array)[]): boolean {
    if (!this.open) return false;
    const raw = this.#raw;
    if (raw === undefined) {
      for (const frame of frames) this.#webSocket.send(frame);
      return true;
    }
    const first = frames[0];
    if (first instanceof Uint8Array) {
      // Small binary frames of a tick leave in one system call. Its texts come together.
      this.#corkTick();
      if (this.#isServer) {
        raw.write(binaryHeader(first.length));
        raw.write(first);
        return true;
      }
    }
    const bytes = this.#isServer ? unmaskedFrames(frames as readonly string[], raw) : maskedFrames(frames, raw);
    if (typeof bytes === "string") raw.write(bytes, "latin1");
    else raw.write(bytes, bytes.length < MIN_POOLED ? undefined : (error) => void (error || giveBack(bytes)));
    return true;
  }

  /** Writes the first broadcast of a tick at once. Further ones leave in one system call: 20 for each of 300 sockets were 3 times as fast. */
  sendEncoded(frame: EncodedFrame): boolean {
    const { content } = frame;
    if (!this.#isServer || typeof content !== "string") return this.send(content);
    if (!this.open) return false;
    const tick = currentTick();
    if (this.#broadcastTick === tick) this.#corkTick();
    this.#broadcastTick = tick;
    this.#raw!.write((frame.bytes ??= unmaskedFrame(content)));
    return true;
  }

  /** Sends a ping (RFC 6455, section 5.5.2). */
  ping(): void {
    if (this.open) this.#webSocket.ping();
  }

  /** Cuts the connection without a close frame. */
  dropSocket(reason: string): void {
    this.#error ??= new Error(reason);
    this.#webSocket.terminate();
  }

  /** Bytes received and sent, headers included. `undefined` before the connection is open. */
  get traffic(): Traffic | undefined {
    const { bytesRead: received, bytesWritten = 0, writableLength = 0 } = (this.#raw ?? {}) as Partial<NetSocket>;
    // Node's `bytesWritten` includes unsent bytes, and drops them when the connection is cut.
    return received === undefined ? undefined : { received, sent: bytesWritten - writableLength };
  }

  close(code = 1000, reason = ""): void {
    this.#isClosing = true;
    this.#webSocket.close(code, reason);
    if (this.#raw === undefined) this.limitClose();
  }
}

const FLOODED = "WS_ERR_TOO_MANY_CONTROL_FRAMES";
const FAILURE_CODES: Readonly<Record<string, number>> = {
  [FLOODED]: 1008,
  WS_ERR_UNSUPPORTED_DATA_PAYLOAD_LENGTH: 1009,
  WS_ERR_UNSUPPORTED_MESSAGE_LENGTH: 1009,
  WS_ERR_TOO_MANY_BUFFERED_PARTS: 1008,
  WS_ERR_INVALID_UTF8: 1007,
};

/** Returns the close code for an error of `ws`, which sends that code but reports 1006, because it reads no answer. */
function failureCode(error: NodeJS.ErrnoException | undefined): number | undefined {
  if (!error?.code?.startsWith("WS_ERR_")) return undefined;
  return FAILURE_CODES[error.code] ?? 1002;
}
