/** Topics: named sets of peers, which exist while they have members, and emit an event when a peer joins or leaves. */
import { encodeNotification } from "../message/codec.js";
import type { Contract, MemberAs, NotifyName, People, PresenceParams } from "../contract/contract.js";
import { expected } from "../message/errors.js";
import { anyFunction } from "../message/options.js";
import { EventEmitter } from "../base/packages.js";
import { refuseUnknownEvents, tell } from "../base/tell.js";
import {
  topicName,
  type Joined,
  type JoinOptions,
  type LogEntries,
  type PublishArgs,
  type PublishOptions,
  type ReadOptions,
  type TopicMember,
} from "../topics/topic-options.js";
import type { Peer } from "../peer/peer.js";
import { runAround } from "./around.js";
import { MAX_NAMED } from "../topics/remote.js";
import { checkPeer, PeerGroup, type TopicGroup } from "./groups.js";
import type { ServerPeers } from "./peers.js";

/** Why a peer left a topic: `delete` removed it, or it closed. `await peer.closed` has the code of the close. */
export type LeaveReason = "deleted" | "closed";

/** The events of a topic. What a listener throws or rejects with is emitted as `error` of the server, with the peer. */
export type TopicEvents<P> = {
  /** A peer was added. Emitted inside `add`, when the peer is a member. */
  join(peer: P): void;
  /**
   * A peer left: it was deleted, or it closed. A suspended peer is still a member. Emitted when the peer is a member no more: of
   * a peer that closed, of no topic.
   */
  leave(peer: P, reason: LeaveReason): void;
};

/**
 * A named set of peers. A peer that closes is removed. A topic need not be created: without peers it takes no
 * memory, except for its listeners.
 *
 * `server.topic(name)` returns a new object each time, and all objects of one name have the same members and listeners.
 */
export interface Topic<L extends Contract<L>, R extends Contract<R>, A> extends TopicGroup<L, R, A> {
  /**
   * Adds a peer of this server. Does nothing if the peer is a member or closed. Throws a `TypeError` for a value that is
   * no `Peer`, for a peer of another server, and for one that came by HTTP POST.
   */
  add(peer: Peer<L, R, A>): this;
  /**
   * Removes a peer. Returns true if the peer was a member. Calls that were made to the peer go on. Throws a `TypeError` for a value
   * that is no `Peer`.
   */
  delete(peer: Peer<L, R, A>): boolean;
  /**
   * Adds a peer of this server, and resolves when it misses no message that any node sends to the topic from now on. With `since`,
   * first sends the logged publications that the peer has missed, then the live ones, and then resolves: so the response of the
   * handler follows all of them. The outcome is `"complete"` if the peer then has every publication after `since`, and `"gap"`
   * otherwise: nothing is sent again, and the application loads its state. A first visit, without `since`, is a gap too, and so is a
   * missed publication that is longer than the peer accepts.
   *
   * With `load`, which is called if the outcome is not `"complete"`, the result has the state of the topic as `value`. So a handler that
   * returns the result serves `follow` of a client. If `load` throws or rejects, so does `join`, and the peer is a member.
   *
   * With `as`, the peer is in the list of members. Rejects with an `EngineError` while the broker is down, and if it does not answer for
   * 5 s, with `ConnectionLostError` if the peer closes meanwhile, with a `TypeError` for bad options and for what the rules of the topic
   * do not allow, and with a `RangeError` if the list has 10,000 members. Then the peer is not added.
   */
  join<T = never>(peer: Peer<L, R, A>, options?: JoinOptions<T>): Promise<Joined<T>>;
  /**
   * Serves `presence` of a client: the handler that it calls checks whether the peer may, and returns what this resolves with. `params` are
   * those of the handler. `as` is what others see of the peer, made by the handler of `params.state` and of what the server knows of the
   * peer. With `as` undefined, the peer sees the list and is not in it, also if it was before.
   *
   * Adds the peer, or changes its `as`, and resolves with the list. If `params.presence` is `"set"`, does so for a peer of the topic only,
   * and resolves with `{}`. If it is `"leave"`, does what `delete` does. Rejects as `join` and `members` do, and with a `TypeError` if the rule
   * `members` of the topic names no notification.
   */
  present<T extends MemberAs>(
    peer: Peer<L, R, A>,
    params: PresenceParams | undefined,
    as: T,
  ): Promise<Joined<People<Exclude<T, undefined>>>>;
  /**
   * Logs a notification and sends it to all members on all nodes, with this node's, in one order for all. Its params are by name, and
   * each member gets them with `at`, the position in the log. Resolves with that position. A slow member is closed with 1013, and not
   * skipped: it recovers by `join`. A member that does not accept a message of that length misses it: its server emits `gap` and `missed`.
   *
   * Rejects with an `EngineError`: `"not-sent"` if no member gets it, and `"unknown"` if it may have been logged. With the same
   * `key`, it is safe to publish again within 2 minutes. Rejects with a `TypeError` for a topic without the rule `log`, for bad
   * options, and for params that are not by name or have an `at`. Rejects with `TooLargeError` if the broker takes no such length.
   */
  publish<K extends NotifyName<R>>(method: K, ...args: PublishArgs<R[K]>): Promise<string>;
  /**
   * Reads the log: for callers over HTTP POST, and to page back. Rejects as `publish` does, at once while the broker is down.
   */
  read(options?: ReadOptions): Promise<LogEntries>;
  /**
   * Returns the members on all nodes that joined with `as`, at most `limit` (10,000), as `watch` has reported them. If this node does
   * not follow the topic yet, waits for the answers of the others, at most 200 ms. Rejects with an `EngineError` while the broker is down,
   * and with a `TypeError` for a topic without the rule `members`.
   */
  members(options?: { limit?: number | undefined }): Promise<TopicMember[]>;
  /**
   * Calls `listener` on this node when a member joins or leaves on any node, in the order of each node. A member that joins
   * again with another `as` has `"joined"` again, and `"left"` has the last `as`. Returns a function that stops this. Throws a `TypeError` for a topic without the rule `members`. What the listener throws or rejects with is
   * emitted as `error`.
   */
  watch(listener: (event: "joined" | "left", member: TopicMember) => void): () => void;
  /** Calls `listener` at each event. The server keeps the listener until `off`. Throws a `TypeError` for an unknown event. */
  on<E extends keyof TopicEvents<Peer<L, R, A>>>(event: E, listener: TopicEvents<Peer<L, R, A>>[E]): this;
  /** Calls `listener` at the next event only. Throws a `TypeError` for an unknown event. */
  once<E extends keyof TopicEvents<Peer<L, R, A>>>(event: E, listener: TopicEvents<Peer<L, R, A>>[E]): this;
  /** Removes a listener that `on` or `once` of any object of this topic added. Does nothing if there is none. */
  off<E extends keyof TopicEvents<Peer<L, R, A>>>(event: E, listener: TopicEvents<Peer<L, R, A>>[E]): this;
}

const EVENTS: Record<keyof TopicEvents<unknown>, 0> = { join: 0, leave: 0 };

class TopicEmitter<P> extends EventEmitter<TopicEvents<P>> {
  static {
    refuseUnknownEvents(TopicEmitter.prototype, EVENTS);
  }
}

const EMPTY: ReadonlySet<never> = new Set();

/** All topics of one server. A `Topic` is a view of the sets here, so a `Topic` that the application keeps is never stale. */
export class Topics<L extends Contract<L>, R extends Contract<R>, A> {
  /** The peers that can be members. */
  readonly peers: ServerPeers;
  readonly #members = new Map<string, Set<Peer<L, R, A>>>();
  /** The names of each peer's topics. Many peers have only one, and a Set for each would take memory. */
  readonly #joined = new Map<Peer<L, R, A>, string | Set<string>>();
  /** The listeners of each topic that has any. */
  readonly #emitters = new Map<string, TopicEmitter<Peer<L, R, A>>>();

  constructor(peers: ServerPeers) {
    this.peers = peers;
  }

  /** Returns the topic of that name. Throws a `TypeError` for a value that is no name. */
  topic(name: string): Topic<L, R, A> {
    return new TopicView(this, topicName(name, "name"));
  }

  /** Returns the peers of any of these topics. Throws a `TypeError` for a value that is no name, and for too many names. */
  union(names: readonly string[]): TopicGroup<L, R, A> {
    const topics = Array.from(new Set(names), (name) => topicName(name, "name"));
    if (topics.length > MAX_NAMED) throw expected("names", `at most ${MAX_NAMED} topics`, topics.length);
    const membersOf = (): ReadonlySet<Peer<L, R, A>> => new Set(topics.flatMap((name) => [...this.membersOf(name)]));
    return new PeerGroup<L, R, A, readonly string[]>(membersOf, this.peers, topics);
  }

  /** Number of topics that have members. */
  get size(): number {
    return this.#members.size;
  }

  /** The names of the topics that have members. */
  get names(): Iterable<string> {
    return this.#members.keys();
  }

  /** Returns the members of a topic. */
  membersOf(name: string): ReadonlySet<Peer<L, R, A>> {
    return this.#members.get(name) ?? EMPTY;
  }

  /** Adds a peer to a topic, unless it is a member. */
  add(name: string, peer: Peer<L, R, A>): void {
    let members = this.#members.get(name);
    if (members?.has(peer)) return;
    const { node } = this.peers;
    if (node !== undefined) {
      // Throws for rules that the node refuses, before anything is changed.
      if (members === undefined) node.topics.opened(name);
      node.topics.added(name, peer);
    }
    if (members === undefined) this.#members.set(name, (members = new Set()));
    members.add(peer);
    const joined = this.#joined.get(peer) ?? name;
    if (typeof joined !== "string") joined.add(name);
    else this.#joined.set(peer, joined === name ? name : new Set([joined, name]));
    this.#emit(name, "join", peer);
  }

  /** Removes a peer from a topic. Returns true if it was a member. */
  delete(name: string, peer: Peer<L, R, A>): boolean {
    this.peers.node?.topics.left(name, peer);
    if (!this.#removeMember(name, peer)) return false;
    const joined = this.#joined.get(peer)!;
    if (typeof joined !== "string") joined.delete(name);
    if (typeof joined === "string" || joined.size === 0) this.#joined.delete(peer);
    this.#emit(name, "leave", peer, "deleted");
    return true;
  }

  /** Removes a peer that closes from every topic. */
  leaveAll(peer: Peer<L, R, A>): void {
    const joined = this.#joined.get(peer);
    if (joined === undefined) return;
    this.#joined.delete(peer);
    const names = typeof joined === "string" ? [joined] : [...joined];
    for (const name of names) this.peers.node?.topics.left(name, peer);
    // Removed from all before any listener is called: no group contains a closed peer.
    for (const name of names) this.#removeMember(name, peer);
    for (const name of names) this.#emit(name, "leave", peer, "closed");
  }

  /** Adds a listener. Throws a `TypeError` for an unknown event, and for a listener that is no function. */
  listen(
    name: string,
    how: "on" | "once",
    event: keyof TopicEvents<unknown>,
    listener: (...args: any[]) => void,
  ): void {
    const emitter = this.#emitters.get(name) ?? new TopicEmitter();
    emitter[how](event, listener);
    this.#emitters.set(name, emitter);
  }

  /** Removes a listener. */
  unlisten(name: string, event: keyof TopicEvents<unknown>, listener: (...args: any[]) => void): void {
    const emitter = this.#emitters.get(name);
    if (emitter === undefined) return;
    emitter.off(event, anyFunction(listener, "listener"));
    this.#deleteUnheard(name, emitter);
  }

  #removeMember(name: string, peer: Peer<L, R, A>): boolean {
    const members = this.#members.get(name);
    if (members === undefined || !members.delete(peer)) return false;
    if (members.size === 0) {
      this.#members.delete(name);
      this.peers.node?.topics.closed(name);
    }
    return true;
  }

  #emit(name: string, event: keyof TopicEvents<unknown>, peer: Peer<L, R, A>, reason?: LeaveReason): void {
    const emitter = this.#emitters.get(name);
    if (emitter === undefined) return;
    tell(emitter, event, reason === undefined ? [peer] : [peer, reason], (error) => this.peers.report(error, peer));
    this.#deleteUnheard(name, emitter);
  }

  /** Deletes an emitter whose last listener was removed. A listener may have replaced the emitter meanwhile. */
  #deleteUnheard(name: string, emitter: TopicEmitter<Peer<L, R, A>>): void {
    if (emitter.eventNames().length === 0 && this.#emitters.get(name) === emitter) this.#emitters.delete(name);
  }
}

class TopicView<L extends Contract<L>, R extends Contract<R>, A>
  extends PeerGroup<L, R, A, readonly string[]>
  implements Topic<L, R, A>
{
  readonly #topics: Topics<L, R, A>;
  readonly #name: string;

  constructor(topics: Topics<L, R, A>, name: string) {
    super(() => topics.membersOf(name), topics.peers, [name]);
    this.#topics = topics;
    this.#name = name;
  }

  /** Throws if the value is no peer, or a peer that cannot be a member. Returns false if it is closed. */
  #checkMember(peer: Peer<L, R, A>): boolean {
    if (checkPeer(peer).state === "closed") return false;
    const reason = this.all.whyNoMember(peer);
    if (reason !== undefined) throw new TypeError(reason);
    return true;
  }

  add(peer: Peer<L, R, A>): this {
    if (this.#checkMember(peer)) this.#topics.add(this.#name, peer);
    return this;
  }

  async join<T>(peer: Peer<L, R, A>, options?: JoinOptions<T>): Promise<Joined<T>> {
    this.#checkMember(peer);
    const joined = (await this.all.anyNode.topics.join(this.#name, peer, options)) as Joined<never>;
    if (options?.load === undefined || joined.outcome === "complete") return joined;
    return { ...joined, value: await options.load() };
  }

  async present(
    peer: Peer<L, R, A>,
    { presence }: Partial<PresenceParams> = {},
    as: MemberAs,
  ): Promise<Joined<People>> {
    if (presence === "leave") this.delete(peer);
    else if (presence !== "set" || this.has(peer)) {
      if (as === undefined && this.#checkMember(peer)) this.all.anyNode.topics.hide(this.#name, peer);
      await this.join(peer, { as });
    }
    if (presence === "leave" || presence === "set") return {};
    // From now on, the peer is notified of each change. The list may have some of them.
    const at = this.all.anyNode.topics.listAt(this.#name);
    return { at, outcome: "gap", value: { id: peer.id, members: await this.members() } };
  }

  publish<K extends NotifyName<R>>(method: K, ...args: PublishArgs<R[K]>): Promise<string>;
  async publish(method: string, params?: any, options?: PublishOptions): Promise<any> {
    const { around } = this.all.config;
    const { topics } = this.all.anyNode;
    if (around === undefined) return topics.publish(this.#name, method, params, options);
    // What cannot be encoded is the mistake of the caller.
    encodeNotification(method, params);
    const call = this.record(method, params, undefined, false);
    return runAround(around, call, () => topics.publish(this.#name, method, call.params, options));
  }

  async read(options?: ReadOptions): Promise<LogEntries> {
    return this.all.anyNode.topics.read(this.#name, options);
  }

  async members(options?: { limit?: number | undefined }): Promise<TopicMember[]> {
    return this.all.anyNode.topics.members(this.#name, options);
  }

  watch(listener: (event: "joined" | "left", member: TopicMember) => void): () => void {
    return this.all.anyNode.topics.watch(this.#name, anyFunction(listener, "listener"));
  }

  delete(peer: Peer<L, R, A>): boolean {
    return this.#topics.delete(this.#name, checkPeer(peer));
  }

  on(event: keyof TopicEvents<unknown>, listener: (...args: any[]) => void): this {
    this.#topics.listen(this.#name, "on", event, listener);
    return this;
  }

  once(event: keyof TopicEvents<unknown>, listener: (...args: any[]) => void): this {
    this.#topics.listen(this.#name, "once", event, listener);
    return this;
  }

  off(event: keyof TopicEvents<unknown>, listener: (...args: any[]) => void): this {
    this.#topics.unlisten(this.#name, event, listener);
    return this;
  }
}
