/** The counts of one end of a session, and its replay log: the data frames that it has numbered and the other end has not acknowledged. */
import { pickLimits, type ResumeFrame, type SessionFrame, type SessionLimits } from "./frames.js";

/** An end that owes an ack for this much sends it beside its own data, which keeps the log of the other side short. */
const EARLY_FRAMES = 64;
const EARLY_LENGTH = 2 ** 18;

const NO_FRAMES: (string | Uint8Array)[] = [];

/** The limits of a client whose hello has not come. */
export const UNKNOWN_LIMITS: SessionLimits = { maxMessageBytes: Infinity, logFrames: Infinity, logLength: Infinity };

/** When an ack is sent: at the end of the tick, or once the socket has room for it; or only before data of its own side. */
export type AckDue = "now" | "with-data";

/** What a session needs of the server's hello. */
type Offered = Pick<SessionFrame, "ttlMs" | "limits"> & Partial<SessionFrame>;

/** The counts and the log of one end. The constructor sets the declared fields, which saves 75 bytes in the bundle of a page. */
export class Session {
  /** The number of received data frames. */
  declare received: number;
  /** The number of the newest frame. */
  declare last: number;
  /** The number of the next frame for the present socket: `last` + 1, or less while frames wait for a replay or for a full socket. */
  declare next: number;
  /** The length of all frames in the log. */
  declare logLength: number;
  /** The limits of the other side. A server learns them from the client's hello. Until then, they are `UNKNOWN_LIMITS`. */
  declare theirs: SessionLimits;
  /** Client: the token that resumes the session. Only the frame `resume` contains it (rule 10). */
  declare token: string;
  /** How long the session lasts without a socket, in milliseconds. */
  declare ttlMs: number;
  /** Client: by which a load balancer finds the server of the session. */
  declare route: string | undefined;
  /** Client: the number of attempts to resume the session. */
  declare resumeAttempts: number;
  readonly #limits: SessionLimits;
  #log = NO_FRAMES;
  /** The number of the last frame that was written to any earlier wire. */
  #sentBefore = 0;
  #owedFrames = 0;
  #owedLength = 0;

  /** A client gives all of `offered`. */
  constructor(limits: SessionLimits, offered: Offered) {
    this.#limits = limits;
    this.ttlMs = offered.ttlMs;
    this.token = offered.token!;
    this.theirs = offered.limits;
    this.route = offered.route;
    this.received = this.last = this.logLength = this.resumeAttempts = 0;
    this.next = 1;
  }

  /** The number of frames that the other side has acknowledged. The log contains the later ones. */
  get acked(): number {
    return this.last - this.#log.length;
  }

  /**
   * True if a further frame may be numbered: the log has room, and the socket has all of its frames. Independent of that frame's length,
   * so that the longest frame fits into an empty log.
   */
  get hasRoom(): boolean {
    const { logFrames, logLength } = this.#limits;
    return this.next > this.last && this.#log.length < logFrames && this.logLength < logLength;
  }

  /** True if a frame of the log waits for the present socket. */
  get hasUnsent(): boolean {
    return this.next <= this.last;
  }

  /** Gives `frame` the next number. */
  push(frame: string | Uint8Array): void {
    // A push to an empty array reserves memory for 17 elements, and most connections are idle.
    if (this.#log.length === 0) this.#log = [frame];
    else this.#log.push(frame);
    this.last++;
    this.logLength += frame.length;
  }

  /** Returns the next frame for the present socket, of those that wait, and counts it. */
  takeUnsent(): string | Uint8Array {
    return this.#log[this.next++ - this.acked - 1]!;
  }

  /** Drops the first `count` frames. Does nothing for a smaller count than before, because two acks may cross. */
  ackTo(count: number): void {
    if (count <= this.acked) return;
    for (const frame of this.#log.splice(0, count - this.acked)) this.logLength -= frame.length;
    if (this.#log.length === 0) this.#log = NO_FRAMES;
  }

  /** Counts a received data frame. Returns when its ack is due (rule 7): after a quarter of the other side's log, so that it can go on sending. */
  receive(length: number): AckDue | undefined {
    const { logFrames, logLength } = this.theirs;
    this.received++;
    this.#owedFrames++;
    this.#owedLength += length;
    if (this.#owedFrames >= Math.floor(logFrames / 4) || this.#owedLength >= Math.floor(logLength / 4)) return "now";
    return this.#owedFrames >= EARLY_FRAMES || this.#owedLength >= EARLY_LENGTH ? "with-data" : undefined;
  }

  /** Whether a received frame is not acknowledged yet. */
  get owes(): boolean {
    return this.#owedFrames > 0;
  }

  /** Returns the count for an ack or a `resume`, after which no ack is owed. */
  ack(): number {
    this.#owedFrames = this.#owedLength = 0;
    return this.received;
  }

  /** Client: returns the next `resume`, which acknowledges what was received. */
  resume(limits: SessionLimits & Pick<ResumeFrame, "bytes">): ResumeFrame {
    // Rule 3: attempts grow.
    const attempt = ++this.resumeAttempts;
    return { token: this.token, received: this.ack(), attempt, limits: pickLimits(limits), bytes: limits.bytes };
  }

  /** Returns true if the other side can have received that many frames: not fewer than it acknowledged, and not more than were sent (rule 5). */
  canHaveReceived(received: number): boolean {
    return received >= this.acked && (received < this.next || received <= this.#sentBefore);
  }

  /** Rule 5: moves `next` to the first frame that the other side has not received. */
  rewind(received: number): void {
    this.#sentBefore = Math.max(this.#sentBefore, this.next - 1);
    this.ackTo(received);
    this.next = received + 1;
  }
}
