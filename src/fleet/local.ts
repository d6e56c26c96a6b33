/** The node of a server without an engine: topics, logs, members and principals of one process. Everything happens at once. */
import { encodeNotification, utf8Bytes } from "../message/codec.js";
import { ConnectionLostError, TooLargeError } from "../message/errors.js";
import { checkOptions } from "../message/options.js";
import { nanoid } from "../base/packages.js";
import type { AnyPeer } from "../peer/peer.js";
import { EngineError, positionOf, textOf, type Position } from "./engine.js";
import { MemoryLogs } from "./entries.js";
import type { Health, NodeHost, Nodes, ServerNode } from "./host.js";
import { OwnPeers } from "./own-peers.js";
import { encodeEntry, placed, readEntries, Replay, type Publication } from "./publication.js";
import { refuseOptions } from "./remote.js";
import { NodeTopic, NodeTopics } from "./topic.js";
import {
  encodeAs,
  JOIN_OPTIONS,
  MAX_MEMBERS,
  MEMBERS_OPTIONS,
  PUBLISH_OPTIONS,
  type Joined,
  type JoinOptions,
  type LogEntries,
  type PublishOptions,
  type ReadOptions,
  type TopicMember,
} from "./topic-options.js";

/** The longest publication, in bytes. It is a bound against mistakes. */
const MAX_BYTES = 16 * 2 ** 20;
/** 72 random bits. */
const ID_LENGTH = 12;
const ALL = { length: Infinity, bytes: Infinity };
/** The health of every server without an engine. */
export const HEALTHY: Health = { ok: true, engine: "none", lagMs: undefined };

/** A topic in use. */
class LocalTopic extends NodeTopic {
  /** The JSON of what each peer joined `as`. */
  readonly members = new Map<AnyPeer, string>();
  /** The log that members know by a position; `undefined` while there is none. */
  epoch: string | undefined = undefined;

  set(peer: AnyPeer, as: string): void {
    if (this.members.get(peer) === as) return;
    if (this.members.size >= MAX_MEMBERS && !this.members.has(peer))
      throw new RangeError(`"${this.name}" has ${MAX_MEMBERS} members already`);
    this.members.set(peer, as);
    this.changed("joined", memberOf([peer, as]));
  }

  delete(peer: AnyPeer): void {
    const as = this.members.get(peer);
    if (this.members.delete(peer)) this.changed("left", memberOf([peer, as!]));
  }
}

function memberOf([{ id }, as]: readonly [AnyPeer, string]): TopicMember {
  return { id, as: JSON.parse(as) };
}

class LocalTopics extends NodeTopics<LocalTopic> {
  readonly #host: NodeHost;
  readonly #logs = new MemoryLogs();
  isClosed = false;

  constructor(host: NodeHost) {
    super();
    this.#host = host;
  }

  protected make(name: string): LocalTopic {
    return new LocalTopic(name, this.#host, (reason) => this.#host.gap(name, reason, []));
  }

  #checkOpen(): void {
    if (this.isClosed) throw new EngineError("the server is closed", "not-sent");
  }

  /** No peer is about to join. */
  added(): void {}

  left(name: string, peer: AnyPeer): void {
    this.topics.get(name)?.delete(peer);
  }

  async join(name: string, peer: AnyPeer, options?: JoinOptions): Promise<Joined> {
    const { since, as } = checkOptions("options", options, JOIN_OPTIONS);
    const asText = as === undefined ? undefined : encodeAs(as);
    this.#checkOpen();
    const topic = this.acquire(name);
    try {
      topic.checkJoin(since, as);
      return this.#join(topic, peer, positionOf(since), asText);
    } finally {
      if (!this.#host.membersOf(name).has(peer)) topic.delete(peer);
      this.release(topic);
    }
  }

  #join(topic: LocalTopic, peer: AnyPeer, since: Position | undefined, as: string | undefined): Joined {
    const { name, logRule, publicationOptions } = topic;
    const host = this.#host;
    if (peer.state === "closed") throw closed();
    const log = logRule && this.#logs.read(name, Infinity, ALL, logRule);
    const at = log && { epoch: log.epoch, offset: log.top };
    if (at !== undefined) this.#follow(topic, at.epoch);
    const missed = at && since && this.#since(name, peer, since, at);
    if (as !== undefined) topic.set(peer, as);
    for (const { method, text } of missed ?? []) host.send([peer], method, text, publicationOptions);
    host.add(name, peer);
    if (!host.membersOf(name).has(peer))
      throw (peer.state as string) === "closed"
        ? closed()
        : new EngineError("the peer left the topic before it had joined", "not-sent");
    return at === undefined ? {} : { at: textOf(at), outcome: missed === undefined ? "gap" : "complete" };
  }

  /** Reports a gap if the log that members know has expired, and another one began. */
  #follow(topic: LocalTopic, epoch: string): void {
    const { name, epoch: known = epoch } = topic;
    topic.epoch = epoch;
    if (known !== epoch) this.#host.gap(name, "another log began", this.#host.membersOf(name));
  }

  /** Returns what a peer has missed since a position; `undefined` for a gap. */
  #since(name: string, peer: AnyPeer, since: Position, at: Position): readonly Publication[] | undefined {
    if (since.epoch === at.epoch && since.offset === at.offset) return [];
    // A member has got live messages. Older ones would come behind them.
    if (this.#host.membersOf(name).has(peer)) return undefined;
    const replay = new Replay(since, at.offset, this.#host.maxReplayLength);
    replay.take(this.#logs.read(name, since.offset, ALL));
    return replay.missed?.every(({ text }) => this.#host.accepts(peer, text)) === true ? replay.missed : undefined;
  }

  async publish(name: string, method: string, params: unknown, options?: PublishOptions): Promise<string> {
    const { key } = checkOptions("options", options, PUBLISH_OPTIONS);
    const body = encodeEntry(method, params);
    this.#checkOpen();
    const topic = this.find(name);
    const rule = topic.needLog();
    const bytes = utf8Bytes(body);
    if (bytes > MAX_BYTES) throw new TooLargeError(method, bytes, MAX_BYTES);
    const { position, isNew } = this.#logs.append(name, body, rule, key);
    this.#follow(topic, position.epoch);
    if (isNew) this.#host.send(this.#host.membersOf(name), method, placed(position, body), topic.publicationOptions);
    return textOf(position);
  }

  async read(name: string, options?: ReadOptions): Promise<LogEntries> {
    this.#checkOpen();
    const rule = this.find(name).needLog();
    return readEntries(options, (after, page) => this.#logs.read(name, after, page, rule));
  }

  async members(name: string, options?: { limit?: number | undefined }): Promise<TopicMember[]> {
    const { limit } = checkOptions("options", options, MEMBERS_OPTIONS);
    this.#checkOpen();
    const topic = this.find(name);
    topic.needMembers();
    return [...topic.members].slice(0, limit).map(memberOf);
  }
}

function closed(): ConnectionLostError {
  return new ConnectionLostError("join", "not-sent", new Error("the peer is closed"));
}

export class LocalNode implements ServerNode {
  readonly topics: LocalTopics;
  readonly notifyElsewhere = undefined;
  readonly id = nanoid(ID_LENGTH);
  readonly own: OwnPeers;
  readonly calls: OwnPeers;

  constructor(host: NodeHost) {
    this.topics = new LocalTopics(host);
    this.own = this.calls = new OwnPeers(host);
  }

  get nodes(): Nodes {
    return {
      id: this.id,
      live: [this.id],
      notify(method: string, params?: object, options?: unknown) {
        refuseOptions(options);
        encodeNotification(method, params);
      },
    };
  }

  start(listen: () => Promise<void>): Promise<void> {
    return listen();
  }

  async close(): Promise<void> {
    this.topics.isClosed = true;
  }

  canHave(): boolean {
    return false;
  }

  tokenOf(random: string): string {
    return random;
  }

  sessionOver(): undefined {}

  stats(): undefined {}

  health(): Health {
    return HEALTHY;
  }
}
