/** What both ends of a session count, and the log: the data frames that one end has numbered and the other has not acked. */
import type { SessionLimits } from "./frames.js";

/** An end that owes an ack for so much sends the ack beside its own data, which keeps the other side's log short. */
const EARLY_FRAMES = 64;
const EARLY_LENGTH = 2 ** 18;

const NO_FRAMES: string[] = [];

/** The counts and the log of one end. Fields that the constructor sets are only declared: a bundle then holds each name once less. */
export class Session {
  /** How many data frames have come. */
  declare received: number;
  /** How many frames the other side has acked. The log holds those behind them. */
  declare acked: number;
  /** The number of the next frame to write to the present wire. Below the log's end only while the log is replayed, or the wire is full. */
  declare next: number;
  /** The length of all frames in the log. */
  declare logLength: number;
  /** What the other side accepts and keeps. A server knows it from the client's hello on. */
  declare theirs: SessionLimits | undefined;
  /** Whether an ack is due for which a full wire had no room. */
  declare isAckLate: boolean;
  /** Client: what resumes the session. It leaves this end in `resume` alone (rule 10). */
  declare token: string;
  /** How long the session lasts without a socket, in milliseconds. */
  declare ttlMs: number;
  /** Client: how often it was tried to resume the session. */
  declare attempt: number;
  readonly #limits: SessionLimits;
  #log = NO_FRAMES;
  /** The number of the last frame that was given to any wire before the present one. */
  #sentBefore = 0;
  #owedFrames = 0;
  #owedLength = 0;

  constructor(limits: SessionLimits, ttlMs: number, token = "", theirs?: SessionLimits) {
    this.#limits = limits;
    this.ttlMs = ttlMs;
    this.token = token;
    this.theirs = theirs;
    this.received = this.acked = this.logLength = this.attempt = 0;
    this.next = 1;
    this.isAckLate = false;
  }

  /** Longest message that the other side accepts, as far as it is known. */
  get maxMessageBytes(): number {
    return this.theirs?.maxMessageBytes ?? Infinity;
  }

  /** The number of the newest frame in the log. */
  get last(): number {
    return this.acked + this.#log.length;
  }

  /** Whether no further frame may be numbered. The length of that frame does not count, so the longest always fits into an empty log. */
  get isFull(): boolean {
    return this.#log.length >= this.#limits.logFrames || this.logLength >= this.#limits.logLength;
  }

  /** Gives `frame` the next number. */
  push(frame: string): void {
    // Most connections are idle, and an empty array that is pushed to makes room for seventeen and keeps it.
    if (this.#log.length === 0) this.#log = [frame];
    else this.#log.push(frame);
    this.logLength += frame.length;
  }

  /** Returns the next frame for the present wire, and counts it. */
  take(): string {
    return this.#log[this.next++ - this.acked - 1]!;
  }

  /** Forgets the first `count` frames. Does nothing for a smaller count than before, because two acks may cross. */
  ackTo(count: number): void {
    if (count <= this.acked) return;
    for (const frame of this.#log.splice(0, count - this.acked)) this.logLength -= frame.length;
    this.acked = count;
    if (this.#log.length === 0) this.#log = NO_FRAMES;
  }

  /** Counts a data frame of that length. Returns true if an ack is due (rule 7): for a quarter of the other side's log, so that it sends on meanwhile. */
  receive(length: number): boolean {
    const { theirs } = this;
    this.received++;
    this.#owedFrames++;
    this.#owedLength += length;
    return theirs !== undefined && this.#owes(theirs.logFrames / 4, theirs.logLength / 4);
  }

  /** Whether an ack is worth sending beside data. */
  get owesEarly(): boolean {
    return this.isAckLate || this.#owes(EARLY_FRAMES, EARLY_LENGTH);
  }

  /** Whether anything has come that is not acked. */
  get owes(): boolean {
    return this.#owedFrames > 0;
  }

  #owes(frames: number, length: number): boolean {
    return this.#owedFrames >= Math.floor(frames) || this.#owedLength >= Math.floor(length);
  }

  /** Returns the count for an ack or a `resume`. Nothing is owed after that. */
  ack(): number {
    this.#owedFrames = this.#owedLength = 0;
    this.isAckLate = false;
    return this.received;
  }

  /** Returns true if the other side can have received so many frames: fewer were acked before, more were never sent (rule 5). */
  covers(received: number): boolean {
    return received >= this.acked && (received < this.next || received <= this.#sentBefore);
  }

  /** Rule 5: the other side has so many of the frames. The next one is the first that it does not have. */
  rewind(received: number): void {
    this.#sentBefore = Math.max(this.#sentBefore, this.next - 1);
    this.ackTo(received);
    this.next = received + 1;
  }
}
