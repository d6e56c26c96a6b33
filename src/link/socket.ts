/** Below a link: a `Socket` carries frames, and a link makes a transport of it. */
import type { CloseInfo, EncodedFrame, TickBudget, Traffic } from "../core/transport.js";
import type { HeartbeatTimes } from "./heartbeat.js";

/** While so many bytes are unsent, pings are not answered: a client that never reads would be answered without end. */
export const ROOM_FOR_PONGS = 64 * 1024;

/** The budget of a socket, which may be one of several that a connection has in turn. */
export interface SocketBudget extends TickBudget {
  /** Takes over what was deferred to the budget of the socket before. */
  adopt(before: this): void;
}

/** Takes what a socket reports. */
export interface SocketHandler {
  /** Takes one text frame, or the UTF-8 text of a binary one. */
  frame(text: string): void;
  /** The socket is about to close for what the other side did. What was coalesced leaves before that. */
  flush?(): void;
  /** The socket has ended. Called once, and nothing is called after it. */
  closed(info: CloseInfo): void;
}

/** Carries text frames: a WebSocket, or a queue in memory. Its promises are those of `Transport`, for frames. */
export interface Socket {
  /** As `Transport.start`. A later call gives what comes from then on to another handler. */
  start(handler: SocketHandler): void;
  /** Sends one frame, which may be encoded for many sockets. Returns false if the socket takes none any more. */
  send(frame: string | EncodedFrame): boolean;
  /** Sends several frames in one write. A socket without it gains nothing from frames that are sent together. */
  sendAll?(frames: readonly string[]): void;
  close(code?: number, reason?: string): void;
  /** Closes the socket, and reports nothing more of it, not even its end. */
  discard(code: number, reason: string): void;
  /** Longest incoming frame, in bytes of UTF-8. A longer one closes the socket with 1009. A link adds what it adds to a message. */
  maxFrameBytes: number;
  /** Whether frames are taken. */
  readonly open: boolean;
  /** Bytes that were sent and could not leave yet. */
  readonly unsentBytes: number;
  /** Bounds how long what comes in is processed in one tick. Without it, each frame is processed at once. */
  readonly budget?: SocketBudget | undefined;
  /** Sends a ping that the other side answers, if the carrier has one. */
  ping?(): void;
  /** As `Transport.afterRead`. */
  afterRead?(then: () => void): boolean;
  /** Sends pings from now on, and cuts the connection if none is answered. */
  watch?(times: HeartbeatTimes): void;
  /** When anything last came, by `performance.now()`, if the carrier notes it. */
  readonly heardAt?: number;
  /** Bytes received and sent so far, if the carrier counts them. */
  readonly traffic?: Traffic | undefined;
}

/** Returns the text of a frame. */
export function frameText(frame: string | EncodedFrame): string {
  return typeof frame === "string" ? frame : frame.text;
}
