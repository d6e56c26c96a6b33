/** A socket over the `ws` package: Node's, on both sides. */
import type { Socket as NetSocket } from "node:net";
import type { Duplex } from "node:stream";
import type { WebSocket } from "ws";
import type { SharedFrame, Socket, SocketHandler, Traffic } from "../core/transport.js";
import { atEndOfTurn, type TurnEnd } from "../core/turns.js";
import type { Pulse } from "../core/heartbeat.js";
import { decodeFrame, Inbox } from "./inbox.js";

/** How long the other side may take to answer a close before the socket is destroyed. */
export const CLOSE_TIMEOUT_MS = 5_000;

/** A frame this long leaves at once, with what is corked before it: the other side starts on it while this one goes on. */
const LONG_FRAME = 512;
/** With more than this unread, a ping is not answered. */
const ROOM_FOR_PONGS = 64 * 1024;
/** So many corked characters leave at once. */
const MOST_CORKED = 16 * 1024;

/**
 * A `ws` WebSocket whose small frames of one turn leave in two system calls: the first at once, so that a lone call waits
 * for nothing, the others together at the end of the turn. It listens at once: what comes before `start` is kept.
 *
 * For that it corks the connection's own socket, which the public `upgrade` events of Node and of `ws` hand out. Corks nest,
 * so `ws` may cork each frame inside. `ws` never has a fragmented or asynchronous send under way, because none is made here.
 */
export class WsSocket implements Socket, TurnEnd, Pulse {
  /** When a frame of any kind last came. */
  heardAt = performance.now();
  readonly #webSocket: WebSocket;
  readonly #inbox: Inbox;
  /** A server's frames are not masked, so their bytes can be shared. */
  readonly #isServer: boolean;
  #raw: Duplex | undefined;
  #error: NodeJS.ErrnoException | undefined;
  /** Whether something was sent in this turn already. */
  #turnBegun = false;
  #isCorked = false;
  #corkedLength = 0;

  /** `raw` is the socket of a server's upgrade request; a client's comes with its answer. */
  constructor(webSocket: WebSocket, maxFrameBytes: number, raw?: Duplex) {
    this.#webSocket = webSocket;
    this.#isServer = raw !== undefined;
    this.#raw = raw;
    // `maxPayload` stops a longer message before it is gathered; what comes here fits.
    this.#inbox = new Inbox(maxFrameBytes, () => this.close(1009));
    if (raw === undefined) webSocket.once("upgrade", ({ socket }) => (this.#raw = socket));
    webSocket.on("message", (data: Buffer, isBinary: boolean) => {
      this.heardAt = performance.now();
      this.#inbox.frame(isBinary ? decodeFrame(data) : data.toString());
    });
    webSocket.on("ping", (data: Buffer) => {
      this.heardAt = performance.now();
      // `ws` itself would answer without end somebody who asks and never reads.
      if (this.unsentBytes < ROOM_FOR_PONGS && this.open) webSocket.pong(data);
    });
    webSocket.on("pong", () => (this.heardAt = performance.now()));
    // Always followed by "close".
    webSocket.on("error", (cause: Error) => (this.#error ??= cause));
    webSocket.on("close", (code: number, reason: Buffer) =>
      this.#inbox.end({ code: failureCode(this.#error) ?? code, reason: reason.toString(), error: this.#error }),
    );
  }

  get open(): boolean {
    return this.#webSocket.readyState === this.#webSocket.OPEN;
  }

  get unsentBytes(): number {
    return this.#webSocket.bufferedAmount;
  }

  get maxFrameBytes(): number {
    return this.#inbox.maxFrameBytes;
  }

  set maxFrameBytes(bytes: number) {
    this.#inbox.maxFrameBytes = bytes;
  }

  start(handler: SocketHandler): void {
    this.#inbox.start(handler);
  }

  send(frame: string): boolean {
    if (!this.open) return false;
    if (this.#turnBegun) this.#cork();
    else this.#beginTurn();
    this.#webSocket.send(frame);
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
  WS_ERR_UNSUPPORTED_MESSAGE_LENGTH: 1009,
  WS_ERR_TOO_MANY_BUFFERED_PARTS: 1008,
  WS_ERR_INVALID_UTF8: 1007,
};

/** `ws` closes with the right code for what it could not read, but tells this side 1006: it reads no answer after that. */
function failureCode(error: NodeJS.ErrnoException | undefined): number | undefined {
  if (!error?.code?.startsWith("WS_ERR_")) return undefined;
  return FAILURE_CODES[error.code] ?? 1002;
}
