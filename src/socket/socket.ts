/** The interface below a link: a `Socket` carries frames, and a link makes a transport of it. */
import type { ReadBudget } from "../base/read-budget.js";
import type { CloseInfo, EncodedFrame, Traffic } from "../message/transport.js";
import type { HeartbeatTimes } from "./heartbeat.js";

/** Above this number of unsent bytes, pings get no pong. Otherwise, pongs to a client that never reads would grow without limit. */
export const ROOM_FOR_PONGS = 64 * 1024;

/** How long the other side may take to complete a close, or to close after its bye, in milliseconds. */
export const CLOSE_TIMEOUT_MS = 5_000;

/** Takes the frames and the end of a socket. */
export interface SocketHandler {
  /** Takes one text frame, or the UTF-8 text of a binary one. */
  receiveFrame(text: string): void;
  /** Takes one binary frame. Returns false, as if this function were missing, if the frame is text: then `receiveFrame` takes it. */
  receiveBinary?(frame: Uint8Array): boolean;
  /** The socket is about to close. The handler sends its coalesced frames first. */
  flush?(): void;
  /** The socket has ended. Called once, and nothing is called after it. */
  closed(info: CloseInfo): void;
}

/** Carries text and binary frames: a WebSocket, or a queue in memory. The promises of `Transport` apply, for frames. */
export interface Socket {
  /** As `Link.start`. A later call replaces the handler. */
  start(handler: SocketHandler): void;
  /**
   * Sends one or several frames in one write. A binary frame is the last, and that of a server the only one. Returns false if the socket
   * takes none any more. Does not copy the content of a binary frame, which must not change.
   */
  send(...frames: readonly (string | Uint8Array)[]): boolean;
  /** Whether a write is so expensive that the texts of a tick should share one. */
  readonly coalesces?: boolean;
  /** As `send`, for a frame whose bytes are the same on many sockets. A socket without this function sends the content. */
  sendEncoded?(frame: EncodedFrame): boolean;
  close(code?: number, reason?: string): void;
  /** Closes the socket, and reports nothing more, not even its end. */
  discard(code: number, reason: string): void;
  /** Longest incoming frame, in bytes of UTF-8. A longer frame closes the socket with 1009. */
  maxFrameBytes: number;
  /** Whether the socket takes frames. */
  readonly open: boolean;
  /** Bytes that were written and not sent yet. */
  readonly unsentBytes: number;
  /** Bounds the work on incoming frames in one tick. Without it, each frame is processed at once. */
  readonly budget?: ReadBudget | undefined;
  /** Sends a ping that the other side answers, if the carrier has one. */
  ping?(): void;
  /** As `Link.afterRead`. */
  afterRead?(then: () => void): boolean;
  /** Sends pings from now on, and cuts the connection if none is answered. */
  watch?(times: HeartbeatTimes): void;
  /** When data last came, by `performance.now()`, if the carrier records it. */
  readonly receivedAt?: number;
  /** Bytes received and sent so far, if the carrier counts them. */
  readonly traffic?: Traffic | undefined;
}
