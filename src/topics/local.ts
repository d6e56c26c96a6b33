/**
 * The node of a server, as the server sees it, and that of a server without an engine: topics, logs, members and principals of one
 * process. Everything happens at once.
 */
import { encodeNotification, utf8Bytes, type MessageText } from "../message/codec.js";
import { TooLargeError } from "../message/errors.js";
import { nanoid } from "../base/packages.js";
import type { AnyPeer } from "../peer/peer.js";
import { textOf, type LogPage, type LogPart, type LogRule, type Position } from "./engine.js";
import { MemoryLogs } from "./entries.js";
import type { EngineStats, GroupOptions, Health, NodeHost, Nodes } from "./host.js";
import { OwnPeers } from "./own-peers.js";
import { placed, Replay, type Publication } from "./publication.js";
import { refuseOptions, type PeerCalls, type PrincipalCalls } from "./remote.js";
import { checkJoin, memberOf, NodeTopic, NodeTopics, type Entry } from "./topic.js";
import type { Joined, TopicMember } from "./topic-options.js";

/** The node of a server: a `LocalNode`, or the `Fleet` of an engine. What only concerns other nodes is `undefined` without an engine. */
export interface ServerNode {
  /** Random, and new with each start. */
  readonly id: string;
  readonly topics: NodeTopics;
  readonly nodes: Nodes;
  /** The open peers of this node, of which the server reports each that opens and closes. */
  readonly own: OwnPeers;
  /** Reaches the peers of all nodes. */
  readonly calls: PeerCalls;
  readonly principals: PrincipalCalls;
  /**
   * Takes a notification that this node has sent to its members of these topics, or to all its peers: for those of other nodes, and those
   * that are about to join.
   */
  notifyElsewhere?(
    topics: readonly string[] | undefined,
    method: string,
    text: MessageText,
    options: GroupOptions,
  ): void;
  /** Connects, and then listens. Rejects with an `EngineError` if the broker cannot be reached in time, and as `listen` does. */
  start?(listen: () => Promise<void>): Promise<void>;
  /** Leaves the others. Never rejects. A second call waits for the first. */
  close(): Promise<void>;
  /** Returns false for a peer of this process that no node of the fleet has. */
  canHave?(peer: AnyPeer): boolean;
  /** Returns a token of a session, which names this node. */
  tokenOf?(random: string): string;
  /**
   * Returns what reports that a client has discarded its session, because this node refused it. The node that the token names ends the
   * session, so that its calls settle and its user is not a member twice until the session expires. Ending a session twice does nothing.
   * Returns nothing if the token names no other node.
   */
  sessionOver?(token: string, hash: string, principal: string | undefined): (() => void) | undefined;
  /** Returns the counts of the engine. */
  stats?(): EngineStats;
  health?(): Health;
}

/** The longest publication, in bytes. It is a bound against mistakes. */
const MAX_BYTES = 16 * 2 ** 20;
/** 72 random bits. */
const ID_LENGTH = 12;
const ALL = { length: Infinity, bytes: Infinity };

/** A topic in use. */
class LocalTopic extends NodeTopic {
  /** The JSON of what each peer joined `as`. */
  readonly members = new Map<AnyPeer, string>();
  /** The log that members know by a position; `undefined` while there is none. */
  epoch: string | undefined = undefined;

  set(peer: AnyPeer, as: string): void {
    if (this.members.get(peer) === as) return;
    if (!this.members.has(peer)) this.checkRoom(this.members.size);
    this.members.set(peer, as);
    this.changed("joined", memberOf(peer.id, as));
  }

  delete(peer: AnyPeer): void {
    const as = this.members.get(peer);
    if (this.members.delete(peer)) this.changed("left", memberOf(peer.id, as!));
  }
}

class LocalTopics extends NodeTopics<LocalTopic> {
  readonly #host: NodeHost;
  readonly #logs = new MemoryLogs();

  constructor(host: NodeHost) {
    super();
    this.#host = host;
  }

  protected make(name: string): LocalTopic {
    return new LocalTopic(name, this.#host, (reason) => this.#host.gap(name, reason, []));
  }

  /** No peer is about to join. */
  added(): void {}

  hide(name: string, peer: AnyPeer): void {
    this.topics.get(name)?.delete(peer);
  }

  protected async enter(topic: LocalTopic, peer: AnyPeer, since?: Position, as?: string): Promise<Joined> {
    try {
      return this.#join(topic, peer, since, as);
    } finally {
      if (!this.#host.membersOf(topic.name).has(peer)) topic.delete(peer);
    }
  }

  #join(topic: LocalTopic, peer: AnyPeer, since: Position | undefined, as: string | undefined): Joined {
    const { name, logRule, publicationOptions } = topic;
    const host = this.#host;
    checkJoin(peer, false);
    const log = logRule && this.#logs.read(name, Infinity, ALL, logRule);
    const at = log && { epoch: log.epoch, offset: log.top };
    if (at !== undefined) this.#follow(topic, at.epoch);
    const missed = at && since && this.#since(name, peer, since, at);
    if (as !== undefined) topic.set(peer, as);
    for (const { method, text } of missed ?? []) host.send([peer], method, text, publicationOptions);
    host.add(name, peer);
    checkJoin(peer, !host.membersOf(name).has(peer));
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
    // A member has got live messages. Older ones would come after them.
    if (this.#host.membersOf(name).has(peer)) return undefined;
    const replay = new Replay(since, at.offset, this.#host.maxReplayLength);
    replay.take(this.#logs.read(name, since.offset, ALL));
    return replay.missed?.every(({ text }) => this.#host.accepts(peer, text)) === true ? replay.missed : undefined;
  }

  protected async append(topic: LocalTopic, { method, body, rule, key }: Entry): Promise<Position> {
    const { name } = topic;
    const bytes = utf8Bytes(body);
    if (bytes > MAX_BYTES) throw new TooLargeError(method, bytes, MAX_BYTES);
    const { position, isNew } = this.#logs.append(name, body, rule, key);
    this.#follow(topic, position.epoch);
    if (isNew) this.#host.send(this.#host.membersOf(name), method, placed(position, body), topic.publicationOptions);
    return position;
  }

  protected async page(topic: string, after: number, page: LogPage, rule: LogRule): Promise<LogPart> {
    return this.#logs.read(topic, after, page, rule);
  }

  protected async list({ members }: LocalTopic, limit: number): Promise<TopicMember[]> {
    return [...members].slice(0, limit).map(([{ id }, as]) => memberOf(id, as));
  }
}

export class LocalNode implements ServerNode {
  readonly topics: LocalTopics;
  readonly id = nanoid(ID_LENGTH);
  readonly own: OwnPeers;
  readonly calls: OwnPeers;
  readonly principals: OwnPeers;

  constructor(host: NodeHost) {
    this.topics = new LocalTopics(host);
    this.own = this.calls = this.principals = new OwnPeers(host);
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

  async close(): Promise<void> {
    this.topics.close();
  }
}
