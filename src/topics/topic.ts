/** The topics of a node with their rules, each while something uses it, and what members and watchers hear of the list of a topic. */
import { encodeNotification } from "../message/codec.js";
import { ConnectionLostError } from "../message/errors.js";
import { checkOptions } from "../message/options.js";
import { nanoid } from "../base/packages.js";
import { synchronous } from "../base/promises.js";
import { runReporting } from "../base/tell.js";
import type { AnyPeer } from "../peer/peer.js";
import { EngineError, positionOf, textOf, type LogPage, type LogPart, type LogRule, type Position } from "./engine.js";
import type { NodeHost } from "./host.js";
import { encodeEntry, parsed, readEntries } from "./publication.js";
import {
  checkRules,
  encodeAs,
  JOIN_OPTIONS,
  MAX_MEMBERS,
  MEMBERS_OPTIONS,
  PUBLISH_OPTIONS,
  type Joined,
  type JoinOptions,
  type LogEntries,
  type MemberListener,
  type PublishOptions,
  type ReadOptions,
  type Rules,
  type SendOptions,
  type TopicMember,
} from "./topic-options.js";

/** 72 random bits. */
const EPOCH_LENGTH = 12;

export function memberOf(id: string, as: string): TopicMember {
  return { id, as: (parsed(as) ?? null) as TopicMember["as"] };
}

/** Throws if a peer that joins is closed, or was removed meanwhile. */
export function checkJoin(peer: AnyPeer, isRemoved: boolean): void {
  if (peer.state === "closed") throw new ConnectionLostError("join", "not-sent", new Error("the peer is closed"));
  if (isRemoved) throw new EngineError("the peer left the topic before it had joined", "not-sent");
}

export class NodeTopic implements Rules {
  readonly name: string;
  readonly logRule: Rules["logRule"];
  readonly memberRule: Rules["memberRule"];
  /** How a publication is sent. It is not dropped for a slow peer: without it, "complete" would be false. */
  readonly publicationOptions: SendOptions;
  /** Reports that a member misses a publication of this length, in bytes. */
  readonly missed: (bytes: number) => void;
  /** Why the topic is kept: its members on this node count as one, and so does each join and each watcher. */
  uses = 0;
  readonly #host: NodeHost;
  readonly #watchers = new Set<MemberListener>();
  #listAt: string | undefined;

  /** `gap`: takes the reason why members miss a publication of which they have a report. Throws a `TypeError` for bad rules. */
  constructor(name: string, host: NodeHost, gap: (reason: string) => void) {
    const { logRule, memberRule } = checkRules(synchronous(host.rulesOf(name), "`topics`"));
    this.name = name;
    this.logRule = logRule;
    this.memberRule = memberRule;
    this.missed = (bytes) => gap(`a publication of ${bytes} bytes is longer than \`maxMessageBytes\` of a member`);
    this.publicationOptions = { whenSlow: "close", onDropped: this.missed };
    this.#host = host;
  }

  /** Throws unless the rules allow these options of `join`. */
  checkJoin(since: unknown, as: unknown): void {
    if (since !== undefined && this.logRule === undefined)
      throw new TypeError("`since` requires the rule `log` of the topic");
    if (as !== undefined && this.memberRule === undefined)
      throw new TypeError("`as` requires the rule `members` of the topic");
  }

  /** Throws if a list of that size has no room for another member. */
  checkRoom(size: number): void {
    if (size >= MAX_MEMBERS) throw new RangeError(`"${this.name}" has ${MAX_MEMBERS} members already`);
  }

  /** Throws unless the topic has a log. */
  needLog(): Rules["logRule"] & object {
    if (this.logRule !== undefined) return this.logRule;
    throw new TypeError(`"${this.name}" has no log: return the rule \`log\` for it in \`topics\``);
  }

  /** Throws unless the topic has a list of members. */
  needMembers(): void {
    if (this.memberRule === undefined)
      throw new TypeError(`"${this.name}" has no list of members: return the rule \`members\` for it in \`topics\``);
  }

  /** The `at` of the changes of the list on this node. Throws unless members are notified of them. */
  get listAt(): string {
    if (typeof this.memberRule === "string") return (this.#listAt ??= `${nanoid(EPOCH_LENGTH)}.0`);
    throw new TypeError(
      `"${this.name}" does not notify its members: name a notification as its rule \`members\` in \`topics\``,
    );
  }

  /** Calls `listener` at each change of the list. Returns what ends that, once: true if it did. */
  watch(listener: MemberListener): () => boolean {
    // The same function may watch twice.
    const watcher: MemberListener = (event, member) => listener(event, member);
    this.#watchers.add(watcher);
    return () => this.#watchers.delete(watcher);
  }

  /** A member joined, changed its `as` or left. */
  changed(event: "joined" | "left", member: TopicMember): void {
    const host = this.#host;
    const method = this.memberRule;
    if (typeof method === "string") {
      const members = [...host.membersOf(this.name)].filter(({ id }) => id !== member.id);
      const change = { event, ...member, at: this.listAt };
      // A peer may be a member of several topics with the same method.
      const latest = `${change.at} ${member.id}`;
      if (members.length > 0)
        host.send(members, method, encodeNotification(method, change), { whenSlow: "drop", latest });
    }
    for (const watcher of Array.from(this.#watchers))
      runReporting(
        () => watcher(event, member),
        (error) => host.report(error),
      );
  }
}

/** What is appended to a log. */
export interface Entry {
  readonly method: string;
  readonly body: string;
  readonly rule: LogRule;
  readonly key: string | undefined;
  readonly timeoutMs: number;
}

/** The topics of a node. The operations of an application are those of `Topic`, whose server has checked the peer. */
export abstract class NodeTopics<T extends NodeTopic = NodeTopic> {
  /** Those that are in use, by name. */
  protected readonly topics = new Map<string, T>();
  protected isClosed = false;

  /** Makes a topic. Throws a `TypeError` for bad rules. */
  protected abstract make(name: string): T;

  /** A topic is in use from now on. */
  protected begin(_topic: T): void {}

  /** A topic is in use no more. */
  protected end(_topic: T): void {}

  /** Returns the topic. One that is not in use is new. */
  protected find(name: string): T {
    return this.topics.get(name) ?? this.make(name);
  }

  /** Returns the topic, and keeps it until `release`. */
  protected acquire(name: string): T {
    const topic = this.find(name);
    if (topic.uses++ === 0) {
      this.topics.set(name, topic);
      this.begin(topic);
    }
    return topic;
  }

  protected release(topic: T): void {
    if (--topic.uses > 0) return;
    this.topics.delete(topic.name);
    this.end(topic);
  }

  /** The topic has its first member on this node. Throws a `TypeError` for bad rules. */
  opened(name: string): void {
    this.acquire(name);
  }

  /** The topic has lost its last member on this node. */
  closed(name: string): void {
    const topic = this.topics.get(name);
    if (topic !== undefined) this.release(topic);
  }

  /** No topic is used any more. */
  close(): void {
    this.isClosed = true;
  }

  #checkOpen(): void {
    if (this.isClosed) throw new EngineError("the server is closed", "not-sent");
  }

  /** The application adds a peer. */
  abstract added(name: string, peer: AnyPeer): void;
  /** Removes a peer from the list of members. */
  abstract hide(name: string, peer: AnyPeer): void;
  /** A peer left, or shall not join. */
  left(name: string, peer: AnyPeer): void {
    this.hide(name, peer);
  }
  /** Makes a peer a member. `as`: JSON. */
  protected abstract enter(topic: T, peer: AnyPeer, since: Position | undefined, as?: string): Promise<Joined>;
  protected abstract append(topic: T, entry: Entry): Promise<Position>;
  protected abstract page(topic: string, after: number, page: LogPage, rule: LogRule): Promise<LogPart>;
  /** Returns the members on all nodes, at most `limit`. */
  protected abstract list(topic: T, limit: number): Promise<TopicMember[]>;

  async join(name: string, peer: AnyPeer, options?: JoinOptions): Promise<Joined> {
    const { since, as } = checkOptions("options", options, JOIN_OPTIONS);
    const asText = as === undefined ? undefined : encodeAs(as);
    this.#checkOpen();
    const topic = this.acquire(name);
    try {
      topic.checkJoin(since, as);
      return await this.enter(topic, peer, positionOf(since), asText);
    } finally {
      this.release(topic);
    }
  }

  async publish(name: string, method: string, params: unknown, options?: PublishOptions): Promise<string> {
    const checked = checkOptions("options", options, PUBLISH_OPTIONS);
    const body = encodeEntry(method, params);
    this.#checkOpen();
    const topic = this.find(name);
    return textOf(await this.append(topic, { method, body, rule: topic.needLog(), ...checked }));
  }

  async read(name: string, options?: ReadOptions): Promise<LogEntries> {
    this.#checkOpen();
    const rule = this.find(name).needLog();
    return readEntries(options, (after, page) => this.page(name, after, page, rule));
  }

  async members(name: string, options?: { limit?: number | undefined }): Promise<TopicMember[]> {
    const { limit } = checkOptions("options", options, MEMBERS_OPTIONS);
    this.#checkOpen();
    this.find(name).needMembers();
    const topic = this.acquire(name);
    try {
      return await this.list(topic, limit);
    } finally {
      this.release(topic);
    }
  }

  /** Returns the `at` of the changes of a list. Throws unless members are notified of them. */
  listAt(name: string): string {
    return this.find(name).listAt;
  }

  watch(name: string, listener: MemberListener): () => void {
    this.find(name).needMembers();
    const topic = this.acquire(name);
    const end = topic.watch(listener);
    return () => {
      if (end()) this.release(topic);
    };
  }
}
