/**
 * One end of a session of `reciproc.v1`: what it sent and what it received, by number, while sockets come and go beneath it.
 * `docs/PROTOCOL.md` has the rules. Both roles share this; what they do differently is behind `Keeper`.
 */
import { burstBytes, type PeerLimits } from "../core/limits.js";
import type { CloseInfo } from "../core/transport.js";
import type { SessionLimits } from "./frames.js";
import { Log } from "./log.js";

/** What this end keeps and takes. */
export interface OwnLimits extends SessionLimits {
  /** Most that may wait for its number while there is no socket, as `Waiting.length` counts it. */
  readonly waitingLength: number;
  /** The same while there is a socket: a hard limit, since the connection watches how fast its other side reads. */
  readonly burstLength: number;
  /** While so many bytes have not left the socket, nothing more gets a number: a call that is withdrawn in time was not sent. */
  readonly highWaterBytes: number;
}

const LOG_FRAMES = 4096;
const MOST_HIGH_WATER_BYTES = 2 ** 20;

/** What an end of a session keeps and takes, by the limits of its peer. */
export function ownLimits(limits: PeerLimits): OwnLimits {
  const { maxMessageBytes, maxUnsentBytes } = limits;
  return {
    maxMessageBytes,
    logFrames: LOG_FRAMES,
    logLength: maxUnsentBytes,
    waitingLength: Math.ceil(maxUnsentBytes / 2),
    burstLength: burstBytes(limits),
    highWaterBytes: Math.min(Math.ceil(maxUnsentBytes / 4), MOST_HIGH_WATER_BYTES),
  };
}

/** Owing an ack for so much, an end sends it beside its own data: the other side's log stays short. */
const EARLY_FRAMES = 64;
const EARLY_LENGTH = 2 ** 18;

/** The counts of one end. */
export class Session {
  /** What this end sent and the other has not acked. */
  readonly log: Log;
  /** Data frames that have come. */
  received = 0;
  /** The number of the next frame to write to the present socket. Behind the log's end only while it is replayed, or the socket is full. */
  next = 1;
  /** What the other side takes and keeps; once it is known, its data frames count. */
  theirs: SessionLimits | undefined;
  /** Whether an ack is due that a full socket had no room for. */
  isAckLate = false;
  /** The number of the last frame that was given to any socket before the present one. */
  #sentBefore = 0;
  #owedFrames = 0;
  #owedLength = 0;

  constructor(limits: SessionLimits, theirs?: SessionLimits) {
    this.log = new Log(limits);
    this.theirs = theirs;
  }

  /** Longest message the other side takes, where it is known. */
  get maxMessageBytes(): number {
    return this.theirs?.maxMessageBytes ?? Infinity;
  }

  /** Counts a data frame of that length; whether an ack is due for it. */
  takes(length: number): boolean {
    if (this.theirs === undefined) return false;
    this.received++;
    this.#owedFrames++;
    this.#owedLength += length;
    // A quarter of the other side's log: it goes on sending while the ack travels.
    return this.#owes(this.theirs.logFrames / 4, this.theirs.logLength / 4);
  }

  /** Whether an ack is worth sending beside data. */
  get owesEarly(): boolean {
    return this.isAckLate || this.#owes(EARLY_FRAMES, EARLY_LENGTH);
  }

  /** Whether anything has come that was not acked. */
  get owes(): boolean {
    return this.#owedFrames > 0;
  }

  /** The count to ack, or to resume with; nothing is owed after that. */
  ack(): number {
    this.#owedFrames = this.#owedLength = 0;
    this.isAckLate = false;
    return this.received;
  }

  /** Whether the other side may say on a new socket that it has so many: fewer were acked already, more were never sent. */
  covers(received: number): boolean {
    return received >= this.log.acked && (received < this.next || received <= this.#sentBefore);
  }

  /** The other side has so many of the frames; the next is the first it has not. */
  rewind(received: number): void {
    this.#sentBefore = Math.max(this.#sentBefore, this.next - 1);
    this.log.ackTo(received);
    this.next = received + 1;
  }

  #owes(frames: number, length: number): boolean {
    return this.#owedFrames >= Math.floor(frames) || this.#owedLength >= Math.floor(length);
  }
}

/** Who makes, resumes and gives up a link's session: `ClientSession` on a client, `Sessions` on a server. */
export interface Keeper {
  readonly limits: OwnLimits;
  /** The hello that a server begins with; a client's waits for the server's. */
  readonly greeting: string | undefined;
  /** The other side said hello, as the first thing on its socket. */
  hello(hello: unknown): void;
  /** A control frame that the link does not know. What the keeper does not know is ignored. */
  control(frame: object): void;
  /** The other side acked. */
  acked(): void;
  /** The socket is lost in a way that a session outlives; whether there is one. */
  suspend(): boolean;
  /** The link is suspended, and its receiver knows. */
  suspended(): void;
  /** What a suspended session holds has changed by so much. */
  grew(by: number): void;
  /** Whether a broadcast of that length may wait in a suspended session. If so, it counts from now on. */
  takesBroadcast(length: number): boolean;
  /** The session cannot be resumed any more. May be told again. */
  drop(): void;
  /** The connection is over; whether another socket will come, for a fresh one. */
  over(info: CloseInfo): boolean;
}

/**
 * Whether a close ends the session. After these the other side would only read the same again: what it could not read, or
 * would not take. 44xx stand for them where a standard WebSocket closes.
 */
export function isFinal(code: number): boolean {
  return (
    code === 1002 || code === 1003 || (code >= 1007 && code <= 1010) || code === 1013 || (code >= 4400 && code < 4500)
  );
}

/** Why a session without a socket is over. */
export function notInTime(ttlMs: number): string {
  return `the session was not resumed within ${ttlMs} ms`;
}

/** The end of a session as an error. */
export function lossOf({ code, reason, error }: CloseInfo): Error {
  return error ?? new Error(`the session ended with ${code}${reason && ` (${reason})`}`);
}
