/**
 * The two interfaces below a peer. A `Transport` carries messages and is what a peer is built on; a `Socket` carries
 * frames and is what a link turns into a transport.
 */

import { utf8Bytes } from "./codec.js";
import type { HeartbeatTimes } from "./heartbeat.js";

/** How a connection ended: a WebSocket close code and reason (RFC 6455, section 7.4), and the error behind it where one is known. */
export interface CloseInfo {
  code: number;
  reason: string;
  error?: Error | undefined;
  /** The other side is going away, and asks to be connected to again after a random time up to this, in milliseconds. */
  retryMs?: number | undefined;
}

/** How a socket ended that this side has closed with `own`, if it has: by that, if the other side sent no code back. */
export function endOf(info: CloseInfo, own: CloseInfo | undefined): CloseInfo {
  return info.code === 1005 || info.code === 1006 ? { ...info, ...own } : info;
}

/** Where a transport hands over what comes in. A peer is one. None of its functions throws. */
export interface Receiver {
  /** One text: a message, a batch, or garbage, which is answered with -32700. */
  receive(text: string): void;
  /** One message or batch that is parsed already, for a link that takes several out of one frame. */
  dispatch(value: unknown): void;
  /** The end, told once; the transport tells nothing after it. */
  closed(info: CloseInfo): void;
  /** The session lost its socket and waits for another. What is sent meanwhile waits with it. */
  suspended?(): void;
  /** Messages flow again, with nothing lost and nothing repeated since `suspended` or `lost`. */
  resumed?(): void;
  /**
   * The connection is lost, with the calls that wait and the answers that are owed, and another one follows on `next`, by
   * default on the same transport, which is suspended: the receiver that goes on starts it inside this call. A transport without a successor reports `closed`.
   */
  lost?(error: Error, next?: Transport): void;
}

/** What a small value costs in memory besides its text, in UTF-16 code units: many of them must not count for nothing. */
export const VALUE_COST = 32;

/** A frame that has come, as far as something of it may stay in use when it is processed. */
export class Frame {
  /** In UTF-16 code units. */
  readonly length: number;
  /** How many users it has. While there is one, the receiver keeps `length`. */
  users = 0;

  constructor(length: number) {
    this.length = length;
  }
}

/** Bounds how long one connection is processed in one tick of the event loop, so that the others get their turn. */
export interface TickBudget {
  /** Whether work waits for a later tick. */
  readonly hasWork: boolean;
  /** Runs `work` in a later tick, behind everything that waits. */
  add(work: () => void): void;
  /** Returns true if the budget of this tick is spent. Then the caller gives what it has left to `defer`. */
  isSpent(): boolean;
  /**
   * Runs `rest` in a later tick, before anything that came later. A caller whose callee has deferred a rest defers its own
   * behind that one.
   */
  defer(rest: () => void): void;
}

/** The budget of a socket, which may be one of several that a connection has in turn. */
export interface SocketBudget extends TickBudget {
  /** Takes over what was deferred to the budget of the socket before. */
  adopt(before: this): void;
}

/** What a sender keeps to learn whether its message can have been processed, and to take it back while it cannot. */
export interface Ticket {
  /** Whether the message has left, or will without fail. Set by the transport; false while the message waits. */
  sent: boolean;
}

/** Bytes, headers included. */
export interface Traffic {
  readonly received: number;
  readonly sent: number;
}

/** Of two carriers, where both or one of them counts. */
export function addTraffic(a: Traffic | undefined, b: Traffic | undefined): Traffic | undefined {
  if (a === undefined || b === undefined) return a ?? b;
  return { received: a.received + b.received, sent: a.sent + b.sent };
}

/**
 * Carries messages between two peers, in order, each whole or not at all. Anything may be one: `new Peer(transport, options)`.
 *
 * A peer may assume that nothing is received inside `start`, that `closed` is told exactly once, also after the peer's own
 * `close`, and that messages arrive in the order they were sent. A transport may assume that `start` is called
 * first, and once unless it reports `lost` without a successor, and that nothing is sent after `close`.
 */
export interface Transport {
  /** Hands over the receiver. What came in earlier is kept and told afterwards, never inside this call. */
  start(receiver: Receiver): void;
  /** Takes one message for sending; false when the connection no longer takes any and none of it will be sent. It does not throw. */
  send(text: string, ticket?: Ticket): boolean;
  /** Takes back the message that was sent with `ticket`; false when it is too late for that, or was never there. */
  withdraw?(ticket: Ticket): boolean;
  /** Longest message that the other side takes, in bytes of UTF-8, where it said so; `send` does not take a longer one. */
  readonly maxMessageBytes?: number | undefined;
  /** Takes one message that goes to many peers; whoever can, writes bytes that are made once for all. Where it is missing, `send` takes the text. */
  sendShared?(message: SharedMessage): boolean;
  /**
   * Ends the connection, what was sent before it included where the carrier can. `code` 1000 by default. Idempotent.
   * `retryMs`: the other side is told, where there is a way, to come back after a random time up to this, in milliseconds.
   */
  close(code?: number, reason?: string, retryMs?: number): void;
  /**
   * Calls `then` once the other side has read everything that was sent before; later than this call, and never if the
   * connection is lost first. Returns false, and never calls it, where the transport cannot find out.
   */
  afterRead?(then: () => void): boolean;
  /**
   * The receiver keeps `by` more for the other side than before, or less: values of streams, replies that are not complete,
   * parts of frames that are in use. Counted in UTF-16 code units.
   */
  keeps?(by: number): void;
  /** The frame whose messages are handed over at present, where `keeps` counts. */
  readonly currentFrame?: Frame | undefined;
  /**
   * How long a long batch is processed in one tick. While a part of one waits, the transport hands over nothing more. Where it
   * is missing, each message or batch is processed at once.
   */
  readonly budget?: TickBudget | undefined;
  /** Bytes taken by `send` that have not left yet. Where it is missing, a slow reader is not noticed. */
  readonly unsentBytes?: number;
  /**
   * The other side reads too slowly. A transport that goes on after a loss ends what is in it with 1013, and returns true.
   * Where this is missing, or returns false, the connection closes with 1013.
   */
  tooSlow?(reason: string): boolean;
  /** Bytes that came and went so far, where the carrier counts them. */
  readonly traffic?: Traffic | undefined;
  /** Whether the other side is known to be this package, so that cancels and requests for progress may be sent to it unasked. Default false. */
  readonly isOurs?: boolean;
}

/** A frame for many sockets. The first that needs its bytes makes them, the others write the same. */
export class SharedFrame {
  readonly text: string;
  /** The frame as it stands on the wire, header included. */
  bytes: Uint8Array | undefined;

  constructor(text: string) {
    this.text = text;
  }
}

/** More than a frame, or a queue, adds to a message. */
const OVERHEAD_BYTES = 64;

/** A message for many peers, encoded once, and its frame on each kind of link. */
export class SharedMessage {
  readonly text: string;
  #unsentBytes: number | undefined;
  #plain: SharedFrame | undefined;
  #pack: SharedFrame | undefined;

  constructor(text: string) {
    this.text = text;
  }

  /** At most so much of `Transport.unsentBytes` is this message. */
  get unsentBytes(): number {
    return (this.#unsentBytes ??= utf8Bytes(this.text) + OVERHEAD_BYTES);
  }

  /** The frame of a plain link. */
  get plain(): SharedFrame {
    return (this.#plain ??= new SharedFrame(this.text));
  }

  /** A pack of this message alone. */
  get pack(): SharedFrame {
    return (this.#pack ??= new SharedFrame(`[${this.text}]`));
  }
}

/** What a socket tells its link. */
export interface SocketHandler {
  /** The socket is about to close for what the other side did: what was coalesced leaves before that. */
  flush?(): void;
  /** One text frame, or the UTF-8 text of a binary one. */
  frame(text: string): void;
  /** The end, told once; nothing after it. */
  closed(info: CloseInfo): void;
}

/** Carries text frames: a WebSocket, or a queue in memory. Its promises are those of `Transport`, for frames. */
export interface Socket {
  /** As `Transport.start`. A later call hands what comes from then on to another handler. */
  start(handler: SocketHandler): void;
  /** Sends one frame. Returns false if the socket takes none any more. */
  send(frame: string): boolean;
  /** Sends several frames in one write. Where it is missing, nothing is gained by sending frames together. */
  sendAll?(frames: readonly string[]): void;
  /** Takes one frame that goes to many sockets; writes its shared bytes where it can. */
  sendShared(frame: SharedFrame): boolean;
  close(code?: number, reason?: string): void;
  /** Closes the socket, and reports nothing more of it, not even its end. */
  discard(code: number, reason: string): void;
  /** Longest incoming frame, in bytes of UTF-8; a longer one closes the socket with 1009. A link raises it by what it adds to a message. */
  maxFrameBytes: number;
  /** Whether frames are taken. */
  readonly open: boolean;
  /** Bytes that were sent and could not leave yet. */
  readonly unsentBytes: number;
  /** How long what comes in is processed in one tick. Where it is missing, each frame is processed at once. */
  readonly budget?: SocketBudget | undefined;
  /** Asks for a sign of life, where the carrier has a way. */
  ping?(): void;
  /** As `Transport.afterRead`. */
  afterRead?(then: () => void): boolean;
  /** Asks for such signs from now on, and cuts the connection when none comes. */
  watch?(times: HeartbeatTimes): void;
  /** When anything last came, such a sign included, by `performance.now()`; where the carrier notes it. */
  readonly heardAt?: number;
  /** Bytes that came and went so far, where the carrier counts them. */
  readonly traffic?: Traffic | undefined;
}

/** A close reason holds at most 123 bytes of UTF-8 (RFC 6455, section 5.5). Cuts between characters. */
export function cutReason(reason: string): string {
  const bytes = new TextEncoder().encode(reason);
  if (bytes.length <= 123) return reason;
  // Of a character that is cut in two nothing is given out: the decoder waits for the rest.
  return new TextDecoder().decode(bytes.subarray(0, 123), { stream: true });
}
