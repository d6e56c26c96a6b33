/** A socket over the `ws` package: Node's, on both sides. */
import type { Socket as NetSocket } from "node:net";
import type { Duplex } from "node:stream";
import type { RawData, WebSocket } from "ws";
import type { SharedFrame, Socket, Traffic } from "../core/transport.js";
import { atEndOfTurn, type TurnEnd } from "../core/turns.js";
import { Heartbeat, type HeartbeatTimes, type Pulse } from "../core/heartbeat.js";
import { decodeFrame, Inbox } from "./inbox.js";

/** How long the other side may take to answer a close before the socket is destroyed. */
export const CLOSE_TIMEOUT_MS = 5_000;

/** A frame this long leaves at once, with what is corked before it: the other side starts on it while this one goes on. */
const LONG_FRAME = 512;
/** A frame shorter than this is copied rather than written in two pieces. */
const COPIED_FRAME = 4096;
/** With more than this unread, a ping is not answered. */
const ROOM_FOR_PONGS = 64 * 1024;
/** So many corked characters leave at once. */
const MOST_CORKED = 16 * 1024;

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

const OWNER = Symbol("socket");

/** A WebSocket that has its socket at hand. */
interface Owned extends WebSocket {
  [OWNER]: WsSocket;
}

/**
 * A `ws` WebSocket whose small frames of one turn leave in two system calls: the first at once, so that a lone call waits
 * for nothing, the others together at the end of the turn. It listens at once: what comes before `start` is kept.
 *
 * For that it corks the connection's own socket, which the public `upgrade` events of Node and of `ws` hand out. Corks nest,
 * so `ws` may cork each frame inside. `ws` never has a fragmented or asynchronous send under way, because none is made here.
 */
export class WsSocket extends Inbox implements Socket, TurnEnd, Pulse {
  /** When a frame of any kind last came. */
  heardAt = performance.now();
  readonly #webSocket: WebSocket;
  /** A server's frames are not masked, so their bytes can be shared. */
  readonly #isServer: boolean;
  #raw: Duplex | undefined;
  #error: NodeJS.ErrnoException | undefined;
  /** Whether something was sent in this turn already. */
  #turnBegun = false;
  #isCorked = false;
  #corkedLength = 0;

  #heartbeat: Heartbeat | undefined;

  /** `raw` is the socket of a server's upgrade request; a client's comes with its answer. */
  constructor(webSocket: WebSocket, maxFrameBytes: number, raw?: Duplex) {
    // `maxPayload` stops a longer message before it is gathered; what comes here fits.
    super(maxFrameBytes);
    this.#webSocket = webSocket;
    this.#isServer = raw !== undefined;
    this.#raw = raw;
    if (raw === undefined) webSocket.once("upgrade", ({ socket }) => (this.#raw = socket));
    (webSocket as Owned)[OWNER] = this;
    // The same functions for all: closures of its own are dear where thousands are idle.
    webSocket.on("message", onMessage);
    webSocket.on("ping", onPing);
    webSocket.on("pong", onPong);
    webSocket.on("error", onError);
    webSocket.on("close", onClose);
  }

  /** A frame came: a message, a pong. */
  heard(): void {
    this.heardAt = performance.now();
  }

  /** A ping came. `ws` itself would answer without end somebody who asks and never reads. */
  pinged(data: Buffer): void {
    this.heard();
    if (this.unsentBytes < ROOM_FOR_PONGS && this.open) this.#webSocket.pong(data);
  }

  /** Always followed by `closed`. */
  failed(cause: Error): void {
    this.#error ??= cause;
  }

  closed(code: number, reason: string): void {
    this.#heartbeat?.stop();
    this.end({ code: failureCode(this.#error) ?? code, reason, error: this.#error });
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

  send(frame: string): boolean {
    if (!this.open) return false;
    if (!this.#turnBegun) this.#beginTurn();
    else if (frame.length < LONG_FRAME) this.#cork();
    if (this.#isServer && frame.length < COPIED_FRAME) this.#raw!.write(shortTextFrame(frame), "latin1");
    else this.#webSocket.send(frame);
    this.#corkedLength += frame.length;
    if (frame.length >= LONG_FRAME || this.#corkedLength >= MOST_CORKED) this.#uncork();
    return true;
  }

  sendShared(frame: SharedFrame): boolean {
    if (!this.#isServer) return this.send(frame.text);
    if (!this.open) return false;
    frame.bytes ??= unmaskedTextFrame(frame.text);
    this.#raw!.write(frame.bytes);
    return true;
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
    this.#uncork();
    this.#webSocket.close(code, reason);
  }

  #beginTurn(): void {
    this.#turnBegun = true;
    atEndOfTurn(this);
  }

  endTurn(): void {
    this.#turnBegun = false;
    this.#uncork();
  }

  #cork(): void {
    if (this.#isCorked) return;
    this.#isCorked = true;
    this.#raw!.cork();
  }

  #uncork(): void {
    this.#corkedLength = 0;
    if (!this.#isCorked) return;
    this.#isCorked = false;
    this.#raw!.uncork();
  }
}

function ownerOf(webSocket: WebSocket): WsSocket {
  return (webSocket as Owned)[OWNER];
}

function onMessage(this: WebSocket, data: RawData, isBinary: boolean): void {
  const owner = ownerOf(this);
  const bytes = data as Buffer;
  owner.heard();
  owner.frame(isBinary ? decodeFrame(bytes) : bytes.toString(), bytes.length);
}

function onPing(this: WebSocket, data: Buffer): void {
  ownerOf(this).pinged(data);
}

function onPong(this: WebSocket): void {
  ownerOf(this).heard();
}

function onError(this: WebSocket, cause: Error): void {
  ownerOf(this).failed(cause);
}

function onClose(this: WebSocket, code: number, reason: Buffer): void {
  ownerOf(this).closed(code, reason.toString());
}

/**
 * A text frame shorter than 64 KiB, whose bytes are the characters of a string where that can be: Node writes it without a
 * buffer, and `ws` takes two writes and three buffers.
 */
function shortTextFrame(text: string): string | Uint8Array {
  const { length } = text;
  if (Buffer.byteLength(text) !== length) return unmaskedTextFrame(text);
  return length < 126
    ? `\x81${String.fromCharCode(length)}${text}`
    : `\x81\x7e${String.fromCharCode(length >> 8, length & 255)}${text}`;
}

/** RFC 6455, section 5.2: FIN and opcode 1, no mask, the length in 1, 3 or 9 bytes, the text. */
function unmaskedTextFrame(text: string): Uint8Array {
  const length = Buffer.byteLength(text);
  const header = length < 126 ? 2 : length < 65536 ? 4 : 10;
  const frame = Buffer.allocUnsafe(header + length);
  frame[0] = 0x81;
  frame[1] = length < 126 ? length : length < 65536 ? 126 : 127;
  if (header === 4) frame.writeUInt16BE(length, 2);
  if (header === 10) frame.writeBigUInt64BE(BigInt(length), 2);
  frame.write(text, header);
  return frame;
}

const FAILURE_CODES: Readonly<Record<string, number>> = {
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
