/** What both ends of a session count: the data frames that they have sent and received. */
import type { SessionLimits } from "./frames.js";
import { Log } from "./log.js";

/** An end that owes an ack for so much sends it beside its own data, which keeps the other side's log short. */
const EARLY_FRAMES = 64;
const EARLY_LENGTH = 2 ** 18;

/** The counts of one end. */
export class Session {
  /** What this end has sent and the other has not acked. */
  readonly log: Log;
  /** Data frames that have come. */
  received = 0;
  /** The number of the next frame to write to the present wire. Below the log's end only while the log is replayed, or the wire is full. */
  next = 1;
  /** What the other side accepts and keeps. A server knows it from the client's hello on. */
  theirs: SessionLimits | undefined;
  /** Whether an ack is due for which a full wire had no room. */
  isAckLate = false;
  /** Client: what resumes the session. It leaves this end in `resume` alone (rule 10). */
  token = "";
  /** How long the session lasts without a socket, in milliseconds. */
  ttlMs = 0;
  /** Client: how often it was tried to resume the session. */
  attempt = 0;
  /** The number of the last frame that was given to any wire before the present one. */
  #sentBefore = 0;
  #owedFrames = 0;
  #owedLength = 0;

  constructor(limits: SessionLimits, theirs?: SessionLimits) {
    this.log = new Log(limits);
    this.theirs = theirs;
  }

  /** Longest message that the other side accepts, as far as it is known. */
  get maxMessageBytes(): number {
    return this.theirs?.maxMessageBytes ?? Infinity;
  }

  /** Counts a data frame of that length. Returns true if an ack is due (rule 7): for a quarter of the other side's log, so that it sends on meanwhile. */
  receive(length: number): boolean {
    this.received++;
    this.#owedFrames++;
    this.#owedLength += length;
    return this.theirs !== undefined && this.#owes(this.theirs.logFrames / 4, this.theirs.logLength / 4);
  }

  /** Whether an ack is worth sending beside data. */
  get owesEarly(): boolean {
    return this.isAckLate || this.#owes(EARLY_FRAMES, EARLY_LENGTH);
  }

  /** Whether anything has come that is not acked. */
  get owes(): boolean {
    return this.#owedFrames > 0;
  }

  /** Returns the count for an ack or a `resume`. Nothing is owed after that. */
  ack(): number {
    this.#owedFrames = this.#owedLength = 0;
    this.isAckLate = false;
    return this.received;
  }

  /** Returns true if the other side can have received so many frames: fewer were acked before, more were never sent (rule 5). */
  covers(received: number): boolean {
    return received >= this.log.acked && (received < this.next || received <= this.#sentBefore);
  }

  /** Rule 5: the other side has so many of the frames. The next one is the first that it does not have. */
  rewind(received: number): void {
    this.#sentBefore = Math.max(this.#sentBefore, this.next - 1);
    this.log.ackTo(received);
    this.next = received + 1;
  }

  #owes(frames: number, length: number): boolean {
    return this.#owedFrames >= Math.floor(frames) || this.#owedLength >= Math.floor(length);
  }
}
