/** The interface below a peer: a `Transport` carries messages, and a `Receiver` takes those that come in. */
import type { ReadBudget } from "../base/read-budget.js";
import { Abnormal, NoStatus, toStandard } from "./close-codes.js";
import type { TextWithBytes } from "./bytes.js";
import { plainText, utf8Bytes, type MessageText } from "./codec.js";

/** How a connection ended: a close code and a reason (RFC 6455, section 7.4), and the error behind it if one is known. */
export interface CloseInfo {
  code: number;
  reason: string;
  error?: Error | undefined;
  /** The other side goes away, and asks its client to reconnect after a random time up to this, in milliseconds. */
  retryMs?: number | undefined;
}

/**
 * Returns what is reported of a socket that ended with `info` after this side closed it with `own`. That is the code and the reason
 * of `own` if the other side sent no code back, or the one that a standard WebSocket sends for `own`.
 */
export function endOf(info: CloseInfo, own: CloseInfo): CloseInfo {
  const isOwn = [NoStatus, Abnormal, toStandard(own.code)].includes(info.code);
  return isOwn ? { ...info, ...own } : info;
}

/** Returns the error behind an end, or one that names its code and its reason. `what`: what has ended, and how. */
export function errorOfEnd(what: string, { code, reason, error }: CloseInfo): Error {
  // An application may abort with null.
  return error === undefined ? new Error(`${what} with ${code}${reason && ` (${reason})`}`) : error;
}

/** Takes what a transport receives. A `Connection` is one. None of its functions throws. */
export interface Receiver {
  /** Takes one text: a message, a batch, or anything else, which is answered with -32700. */
  receive(text: string): void;
  /** Takes one message or batch that is parsed already. `undefined`: a text that is not JSON. */
  dispatch(value: unknown): void;
  /** The connection has ended. Called once, and nothing is called after it. */
  closed(info: CloseInfo): void;
}

/** Takes what a link receives and reports. */
export interface LinkReceiver extends Receiver {
  /** Why the receiver has ended, by itself or because of what the link has reported; `undefined` while it has not. */
  readonly ended: object | undefined;
  /** The session has lost its socket. Messages are queued until `resumed`. */
  suspended(): void;
  /** The link takes messages again, after `send` has returned `"full"`. Does nothing while messages are queued until `resumed`. */
  drained(): void;
  /** The other side reports that it dropped so many messages to this side. */
  missed(count: number): void;
  /**
   * Messages flow again, or for the first time on a link that was connecting. Nothing was lost and nothing came twice since
   * `suspended` or `lost`.
   */
  resumed(): void;
  /**
   * The connection is lost, with its pending calls and the responses that it owes. A new connection follows on the same link, and is
   * suspended: its receiver starts it inside this call.
   */
  lost(error: Error): void;
}

/** What a small value takes in memory besides its text, in UTF-16 code units. Without it, many of them would count for nothing. */
export const VALUE_COST = 32;

/** A received frame, of which parts may stay in use after it is processed. */
export class Frame {
  readonly #length: number;
  readonly #counter: Pick<Required<Link>, "keeps">;
  #users = 0;

  /** `counter`: counts `length`, in UTF-16 code units, while the frame has users. */
  constructor(length: number, counter: Pick<Required<Link>, "keeps">) {
    this.#length = length;
    this.#counter = counter;
  }

  /** Adds one user. */
  keep(): void {
    if (this.#users++ === 0) this.#counter.keeps(this.#length);
  }

  /** Removes one user. */
  drop(): void {
    if (--this.#users === 0) this.#counter.keeps(-this.#length);
  }
}

/** Identifies a message to its sender, who can cancel it while it is queued. */
export interface SendHandle {
  /** Whether the message was given to the transport, and may have been sent. False while the message is queued. */
  sent: boolean;
  /** Whether the message is a call with the option `retry`, which may use twice the queue. */
  readonly hasRetry?: boolean;
  /** The method of a notification that may be dropped or replaced, if it is one. */
  readonly droppable?: string;
}

/** Bytes, headers included. */
export interface Traffic {
  readonly received: number;
  readonly sent: number;
}

/** Returns the traffic of two carriers, of which both, one or none count theirs. */
export function addTraffic(a: Traffic | undefined, b: Traffic | undefined): Traffic | undefined {
  if (a === undefined || b === undefined) return a ?? b;
  return { received: a.received + b.received, sent: a.sent + b.sent };
}

/**
 * Carries messages between two peers, in order, each whole or not at all. Any object may be one: `new Peer(transport, options)`.
 * `start`, `send` and `close` are required.
 *
 * A peer relies on this: nothing is received inside `start`, `closed` is called exactly once, also after the peer's own `close`,
 * and messages arrive in the order in which they were sent.
 *
 * A transport relies on this: `start` is called once, and nothing is sent after `close`. `send` and `close` may be called before
 * `start`.
 */
export interface Transport {
  /** Takes the receiver. What came in earlier is kept, and received after this call. */
  start(receiver: Receiver): void;
  /** Sends one message. Returns false if nothing of it will be sent. Any other value, or none, means that it will be. Never throws. */
  send(text: string): unknown;
  /** Ends the connection, after what was sent before if the carrier can do that. `code`: 1000 by default. A second call does nothing. */
  close(code?: number, reason?: string): void;
  /** Bytes that were given to `send` and that the system has not taken. Without it, a slow reader is not noticed. */
  readonly unsentBytes?: number;
  /** Longest message that the other side accepts, in bytes of UTF-8, if it said so. `send` does not take a longer one. Default: none. */
  readonly maxMessageBytes?: number | undefined;
}

/** What gives a link its sockets. Only that of a client has these functions. */
export interface SocketSource {
  /** As `Peer.reconnect`. */
  reconnect?(): boolean;
  /** Returns a fresh `auth` as JSON; `undefined` if the present server has not asked for it. Missing if the client has no `auth`. */
  readonly freshAuth?: (() => Promise<string | undefined>) | undefined;
}

/** A transport of this package. A connection asks for more of it, if it is there. */
export interface Link extends Transport {
  /** As `Transport.start`. Called again, with the receiver that follows, if the link calls `lost`. */
  start(receiver: LinkReceiver): void;
  /**
   * As `Transport.send`. Returns `"full"` if the message cannot be sent now: the peer queues it, and the link calls `drained`,
   * `suspended`, `lost` or `closed` later. `text` has bytes only if the link `takesBytes`.
   */
  send(text: MessageText): unknown;
  /** As `send`, for a message that goes to many peers: a link may write its frames, which are encoded once for all. */
  sendEncoded?(message: EncodedMessage): unknown;
  /**
   * Right before `close`: sends why the receiver closes the link, if there is a way, after the `queued` messages, which were not taken
   * because the link was full.
   */
  sayBye?(bye: CloseInfo, queued: Iterable<[SendHandle, MessageText]>): void;
  /**
   * Too much is unsent or queued. A transport that continues after a loss ends its session with 1013, and returns true. If it
   * returns false or does not have this function, the connection closes with 1013.
   */
  endSession?(reason: string): boolean;
  /** Sends a control frame of `reciproc.v1`. Returns false if it was not sent, because no messages flow. */
  sendControl?(frame: string): boolean;
  /**
   * Calls `then` once the other side has read everything that was sent before: later than this call, and never if the
   * connection is lost first. Returns false, and never calls it, if the transport cannot find out.
   */
  afterRead?(then: () => void): boolean;
  /**
   * The receiver keeps `by` more for the other side than before, or less if `by` is negative: queued messages, values of streams,
   * incomplete replies, parts of frames that are in use. In UTF-16 code units.
   */
  keeps?(by: number, isBroadcast?: boolean): void;
  /** Returns false if broadcasts of that length must not be queued without a socket. Default: they may. */
  acceptsBroadcast?(length: number): boolean;
  /** The frame whose messages are received at present, if `keeps` counts. */
  readonly currentFrame?: Frame | undefined;
  /**
   * True if the transport is not open yet when it is given to a peer. The peer queues its messages until the transport calls
   * `resumed`. Default false.
   */
  readonly isConnecting?: boolean;
  /** What gives the link its sockets, if the link has several one after the other. */
  readonly delegate?: SocketSource | undefined;
  /** Bounds how long a batch is processed in one tick. Without it, each message or batch is processed at once. */
  readonly budget?: ReadBudget | undefined;
  /** Reports to the other side that so many messages to it were dropped, if there is a way, in order with the messages. */
  reportMissed?(count: number): void;
  /** Bytes received and sent so far, if the carrier counts them. */
  readonly traffic?: Traffic | undefined;
  /** Whether messages with bytes are sent as binary frames. A response is encoded accordingly. Default false. */
  readonly takesBytes?: boolean;
  /** Whether the other side is a reciproc peer: cancels and requests for progress may be sent to it unasked. Default false. */
  readonly isReciproc?: boolean;
}

/** A frame for many sockets. The first socket that needs its bytes encodes them. */
export class EncodedFrame {
  /** The text of a text frame, or the bytes of a binary frame. */
  readonly content: string | Uint8Array;
  /** The bytes of a text frame on the wire, header included. */
  bytes: Uint8Array | undefined = undefined;

  constructor(content: string | Uint8Array) {
    this.content = content;
  }
}

/** More than a frame, or a queue, adds to a message. */
const OVERHEAD_BYTES = 64;

/** At most so much of `Transport.unsentBytes` is a message. Base64 is a third longer than bytes. */
export function unsentBytesOf(source: MessageText): number {
  return utf8Bytes(source) * (typeof source === "string" ? 1 : 4 / 3) + OVERHEAD_BYTES;
}

/** A message for many peers, or several that share a pack, encoded once, with its frame for each kind of link. */
export class EncodedMessage {
  readonly source: MessageText;
  /** The message of the last `followedBy`, and what that returned. */
  #next: EncodedMessage | undefined;
  #joined: EncodedMessage | undefined;
  #text: string | undefined;
  #unsentBytes: number | undefined;
  #plain: EncodedFrame | undefined;
  #pack: EncodedFrame | undefined;
  #binary: EncodedFrame | undefined;

  constructor(source: MessageText) {
    this.source = source;
  }

  /** The text, in which bytes are base64. */
  get text(): string {
    return (this.#text ??= plainText(this.source));
  }

  /** As `text`: the messages of a pack are joined. */
  toString(): string {
    return this.text;
  }

  /** Returns this message and `next` for one pack. All peers that get the same messages in a tick share the result. */
  followedBy(next: EncodedMessage): EncodedMessage {
    if (this.#next !== next) {
      this.#next = next;
      this.#joined = new EncodedMessage(`${this.text},${next.text}`);
    }
    return this.#joined!;
  }

  get unsentBytes(): number {
    return (this.#unsentBytes ??= unsentBytesOf(this.source));
  }

  /** The frame of a plain link. */
  get plain(): EncodedFrame {
    return (this.#plain ??= new EncodedFrame(this.text));
  }

  /** A pack of nothing else. */
  get pack(): EncodedFrame {
    return (this.#pack ??= new EncodedFrame(`[${this.text}]`));
  }

  /** The binary frame of a message with bytes. */
  get binary(): EncodedFrame {
    return (this.#binary ??= new EncodedFrame((this.source as TextWithBytes).frame));
  }
}
