/**
 * Follows one log: decides which entries are delivered, and when the log must be read. A state machine without I/O. Its driver
 * (`topic-log.ts`) subscribes to the channel of the topic first, and then reads.
 *
 * The rules, as docs/ARCHITECTURE.md names them:
 * F1: Subscribe, then read the top.
 * F2: Deliver an entry if its offset is the last one + 1 in the same epoch. A smaller offset was seen. A greater one needs a heal.
 * F3: Heal after each subscription that was restored, and when another node names a later position, one heal at a time.
 * F4: Compare the entries that were read with the position at the time of the request, and never move back.
 * F5: Another epoch is a gap, followed by the new log from its beginning.
 */
import type { LogPart, Position } from "../topics/engine.js";

/** Takes what a follower decides. */
export interface FollowerOutput {
  /** Takes the next entry. Each offset of an epoch comes at most once, in order. */
  deliver(position: Position, body: string): void;
  /** Entries between the last one that was delivered and the next one are lost to this node. */
  gap(reason: string): void;
}

/** What is to be read: at most the entries after `after`. */
export interface ReadRequest {
  readonly epoch: string;
  readonly after: number;
  /** If true, the entries themselves are not needed. */
  readonly onlyTop: boolean;
}

/** Messages that came before those that they follow. If there are more, or longer ones, they are read. */
const MAX_AHEAD = 1_000;
const MAX_AHEAD_LENGTH = 2 ** 20;

/** The position of a node in one log. */
export class Follower {
  readonly #output: FollowerOutput;
  #position: Position | undefined;
  /** Messages behind a missing one, by offset, or of another epoch. Without them, a busy log would be read again after each read. */
  readonly #ahead = new Map<number, string>();
  #aheadEpoch = "";
  #aheadLength = 0;
  /** Whether a message was not kept. */
  #hasDropped = false;
  /** Whether the gap before the next entry was reported: another log began, and nothing of it was read. */
  #isGapReported = false;
  /** Whether all messages that are ahead came before the last request. */
  #isOld = false;

  constructor(output: FollowerOutput) {
    this.#output = output;
  }

  /** The last entry that was delivered or skipped; `undefined` until the top was read. Its epoch is empty if there is no log. */
  get position(): Position | undefined {
    return this.#position;
  }

  /** Whether a message has shown that the log must be read. */
  get needsHeal(): boolean {
    return this.#ahead.size > 0 || this.#hasDropped;
  }

  /** Takes a message of the log's channel. */
  received(epoch: string, offset: number, body: string): void {
    const position = this.#position;
    // A message that comes before the top was read may be newer than the top.
    if (position === undefined) this.#keep(epoch, offset, body);
    else if (position.epoch === "" && offset === 1) this.#deliver({ epoch, offset }, body);
    // F5: only the broker knows which of two epochs is the later one. A message of the earlier one may still be on its way.
    else if (position.epoch !== epoch || offset > position.offset + 1) this.#keep(epoch, offset, body);
    else if (offset === position.offset + 1) this.#deliver({ epoch, offset }, body);
    this.#deliverAhead();
  }

  /** Keeps a message that cannot be delivered yet. */
  #keep(epoch: string, offset: number, body: string): void {
    if (epoch !== this.#aheadEpoch) this.#dropAhead();
    this.#aheadEpoch = epoch;
    this.#isOld = false;
    if (this.#ahead.has(offset)) return;
    if (this.#ahead.size >= MAX_AHEAD || this.#aheadLength + body.length > MAX_AHEAD_LENGTH) this.#hasDropped = true;
    else {
      this.#ahead.set(offset, body);
      this.#aheadLength += body.length;
    }
  }

  #dropAhead(): void {
    this.#ahead.clear();
    this.#aheadLength = 0;
  }

  /** Delivers what follows the position, and forgets what was delivered. */
  #deliverAhead(): void {
    if (this.#ahead.size === 0 || this.#position?.epoch !== this.#aheadEpoch) return;
    for (let body; (body = this.#ahead.get(this.#position.offset + 1)) !== undefined;)
      this.#deliver({ epoch: this.#aheadEpoch, offset: this.#position.offset + 1 }, body);
    for (const [offset, body] of this.#ahead) {
      if (offset > this.#position.offset) continue;
      this.#ahead.delete(offset);
      this.#aheadLength -= body.length;
    }
  }

  /** Begins to read the log. Returns what is to be read. */
  request(): ReadRequest {
    this.#hasDropped = false;
    this.#isOld = true;
    const { epoch, offset } = this.#position ?? { epoch: "", offset: 0 };
    return { epoch, after: offset, onlyTop: this.#position === undefined };
  }

  /** Takes what was read for a request. Returns true if more must be read. */
  read(request: ReadRequest, part: LogPart): boolean {
    let isAgain = false;
    if (request.onlyTop) this.#position = { epoch: part.epoch, offset: part.top };
    else if (part.epoch !== request.epoch) isAgain = this.#changeEpoch(request, part.epoch);
    // The first message of a log came while its absence was being read.
    else if (this.#position!.epoch !== part.epoch) isAgain = true;
    else this.#catchUp(part);
    this.#deliverAhead();
    if (isAgain || (part.epoch === this.#position!.epoch && part.top > this.#position!.offset)) return true;
    // The broker has nothing of that: messages of an earlier log, or of another program.
    if (this.#isOld) this.#dropAhead();
    return this.needsHeal;
  }

  /** F4: live messages may have moved the position since the request. The entries up to it were delivered. */
  #catchUp({ epoch, top, entries }: LogPart): void {
    for (const [offset, body] of entries) {
      if (offset > this.#position!.offset + 1) this.#skipTo(offset - 1);
      if (offset > this.#position!.offset) this.#deliver({ epoch, offset }, body);
    }
    if (entries.length === 0 && top > this.#position!.offset) this.#skipTo(top);
    this.#isGapReported = false;
  }

  /** F5. The entries of the part are of no use: they are those after an offset of the earlier epoch. */
  #changeEpoch(request: ReadRequest, epoch: string): boolean {
    const before = this.#position!;
    // The position has another epoch than it had at the request. The next part decides.
    if (before.epoch !== request.epoch) return true;
    this.#position = { epoch, offset: 0 };
    this.#isGapReported = true;
    if (epoch === "") this.#output.gap("the log is gone");
    else this.#output.gap(before.epoch === "" ? "a log began unseen" : "another log began");
    return epoch !== "";
  }

  /** Skips entries that the log no longer has. */
  #skipTo(offset: number): void {
    this.#position = { epoch: this.#position!.epoch, offset };
    if (!this.#isGapReported) this.#output.gap("the log no longer has all entries");
  }

  #deliver(position: Position, body: string): void {
    this.#position = position;
    this.#isGapReported = false;
    this.#output.deliver(position, body);
  }
}
