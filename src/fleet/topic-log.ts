/** The log of one topic on one node: follows it, delivers its publications, and reads what a client has missed. */
import { clearDeadline, setDeadline, type Expiring } from "../base/deadlines.js";
import { EngineError, type LogPart, type LogRule, type Position } from "../topics/engine.js";
import type { RecentEntries } from "../topics/entries.js";
import { Follower } from "./follower.js";
import type { FleetNode } from "./node.js";
import { PAGE, publicationOf, Replay, type Publication } from "../topics/publication.js";

/** How long to wait after a read that failed, if the connection is up. */
const RETRY_MS = 1_000;
/** By how much a page is longer than the one before, if that was answered. */
const GROWTH = 16;
/** How much of a log a node keeps for clients that return, and of all its logs together. */
const TAIL: LogRule = { length: 64, bytes: 64 * 1024, ttlMs: Infinity };
export const TAILS_BYTES = 32 * 2 ** 20;

/** The log of one topic. */
export class TopicLog implements Expiring {
  deadline = 0;
  readonly #topic: string;
  readonly #rule: LogRule;
  readonly #node: FleetNode;
  readonly #tails: RecentEntries;
  readonly #follower: Follower;
  /** How often publications were lost to this node. */
  gaps = 0;
  /** The heal in progress. */
  #healing: Promise<void> | undefined;
  #isAskedAgain = false;
  /** Whether the entries that are delivered were read, and did not come as messages. */
  #isReading = false;
  #isStopped = false;
  /** The length of the next page: with 1, it has one entry. Without bytes, only the top is read, and what is before it is a gap. */
  #pageBytes = PAGE.bytes;
  /** The clients for which the log is read next, and that read. */
  #replays: Replay[] | undefined;
  #replaying: Promise<void> = Promise.resolve();

  /** `deliver`: takes the next publication. */
  constructor(
    topic: string,
    rule: LogRule,
    node: FleetNode,
    tails: RecentEntries,
    deliver: (publication: Publication) => void,
  ) {
    this.#topic = topic;
    this.#rule = rule;
    this.#node = node;
    this.#tails = tails;
    this.#follower = new Follower({
      deliver: (position, body) => {
        const publication = publicationOf(position, body);
        if (publication === undefined) node.counts.foreign++;
        tails.append(topic, position.offset, body, TAIL);
        if (this.#isReading) node.counts.healed++;
        if (publication !== undefined) deliver(publication);
      },
      gap: (reason) => {
        tails.drop(topic);
        this.gaps++;
        node.gap(topic, reason);
      },
    });
  }

  /** The last entry that this node has delivered; `undefined` until the top was read. */
  get position(): Position | undefined {
    return this.#follower.position;
  }

  /** Returns true if this node has the log up to a position, or further. */
  #covers({ epoch, offset }: Position): boolean {
    return this.position?.epoch === epoch && offset <= this.position.offset;
  }

  /** Takes a message of the topic's channel. */
  received(epoch: string, offset: number, body: string): void {
    this.#follower.received(epoch, offset, body);
    if (this.#follower.needsHeal && this.position !== undefined) void this.heal();
  }

  /** Another node says that the log reaches a position. Reads it if this node does not have that (F3). */
  reaches(position: Position): void {
    if (!this.#covers(position)) void this.heal();
  }

  /**
   * Resolves when the node follows the log, and has it up to `since` if the broker has. The channel must be subscribed. Rejects with an
   * `EngineError` if the log cannot be read.
   */
  async follow(since?: Position): Promise<void> {
    const isBehind = this.position === undefined || (since !== undefined && !this.#covers(since));
    if (isBehind) await this.#heal();
    if (this.position === undefined) throw new EngineError("the log is not followed any more", "not-sent");
  }

  /** Reads the log until this node has all of it (F3). Never rejects: without a connection, the log is read when it is restored. */
  async heal(): Promise<void> {
    // Until a client joins, nothing is followed.
    if (this.position === undefined) return;
    await this.#heal().catch(() => {});
  }

  expire(): void {
    void this.heal();
  }

  stop(): void {
    this.#isStopped = true;
    clearDeadline(this);
    this.#tails.drop(this.#topic);
  }

  async #heal(): Promise<void> {
    if (this.#isStopped) return;
    // What was asked while the log is being read may have happened after that.
    if (this.#healing !== undefined) this.#isAskedAgain = true;
    else this.#healing = this.#readAll().finally(() => (this.#healing = undefined));
    try {
      await this.#healing;
    } catch (error) {
      // A log that is not followed yet is read again by its topic.
      if (this.#node.broker.isUp && !this.#isStopped && this.position !== undefined) setDeadline(this, RETRY_MS);
      throw error;
    }
  }

  async #readAll(): Promise<void> {
    let isMore: boolean;
    do {
      this.#isAskedAgain = false;
      const request = this.#follower.request();
      const part = await this.#read(request.after, request.onlyTop ? 0 : PAGE.bytes);
      if (this.#isStopped) return;
      this.#isReading = true;
      isMore = this.#follower.read(request, part);
      this.#isReading = false;
    } while (isMore || this.#isAskedAgain);
  }

  /** Reads a page of at most so many bytes. */
  async #read(after: number, mostBytes: number): Promise<LogPart> {
    const bytes = Math.min(this.#pageBytes, mostBytes);
    try {
      const part = await this.#node.read(this.#topic, after, { ...PAGE, bytes }, this.#rule);
      this.#pageBytes = Math.min(PAGE.bytes, Math.max(1, this.#pageBytes) * GROWTH);
      return part;
    } catch (error) {
      const isLate = (error as EngineError).outcome === "unknown" && this.#node.broker.isUp;
      if (isLate) this.#pageBytes = this.#pageBytes > 1 ? 1 : 0;
      throw error;
    }
  }

  /**
   * Returns the publications after `since`, up to the present position. `undefined` if not all of them are there, or if they are too
   * long together. Rejects with an `EngineError` if the log cannot be read. Call it only when the log is followed.
   */
  since(since: Position): Promise<Publication[] | undefined> | Publication[] | undefined {
    const { offset: to } = this.position!;
    if (!this.#covers(since)) return undefined;
    if (since.offset === to) return [];
    const begin = (): Replay => new Replay(since, to, this.#node.host.maxReplayLength);
    const recent = begin();
    recent.take({ epoch: since.epoch, entries: this.#tails.read(this.#topic, since.offset, TAIL) });
    return recent.missed ?? this.#replay(begin());
  }

  /** Reads the log for a client, and for all others that come before that begins. */
  async #replay(replay: Replay): Promise<Publication[] | undefined> {
    if (this.#replays === undefined) {
      const replays = (this.#replays = [] as Replay[]);
      const read = (): Promise<void> => {
        this.#replays = undefined;
        return this.#readFor(replays);
      };
      this.#replaying = this.#replaying.then(read, read);
    }
    this.#replays.push(replay);
    await this.#replaying;
    return replay.missed;
  }

  /** Reads page by page, from the first entry that one of the clients needs. What a client cannot get is not read for it. */
  async #readFor(replays: readonly Replay[]): Promise<void> {
    for (let left = replays; left.length > 0; left = left.filter(({ outcome }) => outcome === undefined)) {
      const after = Math.min(...left.map(({ next }) => next)) - 1;
      const part = await this.#read(after, this.#node.host.maxReplayLength);
      for (const replay of left) replay.take(part);
    }
  }
}
