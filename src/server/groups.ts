/** Groups of peers: all peers of a server, and topics. A message to a group is encoded once. */
import { encodeNotification, shownAs } from "../message/codec.js";
import { expected, failed } from "../message/errors.js";
import { checkLive, isReady, LIVE_OPTIONS } from "../features/live.js";
import { anyFunction, checkOptions, must, oneOf, optional } from "../message/options.js";
import type {
  CallArgs,
  Contract,
  LiveOptions,
  MemberAs,
  NotifyName,
  People,
  PresenceParams,
  Result,
} from "../contract/contract.js";
import {
  checkExcept,
  Exclusion,
  MAX_NAMED,
  wrongExcept,
  type Except,
  type Named,
  type NamedGroup,
  type PeerOutcome,
} from "../topics/remote.js";
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
import { connectionOf, Peer, type AnyPeer } from "../peer/peer.js";
import { runAround, type GroupCall } from "./around.js";
import { sendAll } from "./broadcast.js";
import { REQUEST_OPTIONS, requestAll, SharedRequest, type GroupRequestOptions } from "./group-request.js";
import type { ServerPeers } from "./peers.js";
import type { TopicEvents } from "./topics.js";

/** An iterable set of peers. It never contains closed peers. */
export interface Group<L extends Contract<L>, R extends Contract<R>, A> extends Iterable<Peer<L, R, A>> {
  /** Number of peers in the group. */
  readonly size: number;
  /** Returns true if a peer is in the group. Throws a `TypeError` for a value that is no `Peer`, such as an id. */
  has(peer: Peer<L, R, A>): boolean;
  /**
   * Notifies every peer that is in the group at the call, `except` some. With an engine, also the peers that the group has on other
   * nodes, at most once; `size`, `has` and iteration cover the peers of this node only. Encodes the message once. Skips a peer whose
   * connection is closing. Queues the message for a suspended peer. If that queue holds a quarter of `limits.maxUnsentBytes`, or the
   * broadcasts to all suspended peers hold a quarter of `limits.maxSuspendedBytes`, drops the message and counts it in the peer's
   * `stats().dropped`. A peer that loses its socket drops its queued broadcasts for the same reason. For each dropped message, the
   * server emits `missed`, and a reciproc client gets the number of its missed messages as soon as messages flow. Ends a session
   * only if `whenSlow` is `"close"`. Throws a `TypeError` for bad options and for params without a JSON form, before anything is
   * sent.
   *
   * The server's `around` is called once for the message, unless no peer gets it. The message goes to the peers that were in the
   * group when `notify` was called, when `around` calls `next`; if it is volatile, only to those that can be sent to both times.
   * What `around` throws is emitted as `error` of the server.
   */
  notify<K extends NotifyName<R>>(method: K, ...args: CallArgs<R[K], [options?: NotifyOptions<Peer<L, R, A>>]>): void;
  /**
   * Calls a method of every peer of the group, `except` some, at once. Resolves when all calls are settled, with one outcome for
   * each peer that was in the group at the call, in the order of the group. An outcome is the result of the peer, or what
   * `peer.request` would reject with: also for a peer that closes or leaves the group meanwhile, is late, or is suspended. If
   * `signal` aborts, all calls that are pending reject with its reason, and the promise resolves.
   *
   * Encodes the params once. They cannot contain streams. Rejects only with a `TypeError` for a bad option or for params without
   * a JSON form, before anything is sent, and with what `around` throws. The server's `around` is called once for all the calls,
   * unless no peer is called. The promise resolves with what `around` returns.
   */
  request<K extends keyof R & string>(
    method: K,
    ...args: CallArgs<R[K], [options?: GroupRequestOptions<Peer<L, R, A>>]>
  ): Promise<PeerOutcome<Peer<L, R, A>, Result<R[K]>>[]>;
}

/**
 * The peers that are in any of some topics, each once. It covers the peers that are in them at each use. Reading it makes a Set of them,
 * unless it is of one topic.
 */
export interface TopicGroup<L extends Contract<L>, R extends Contract<R>, A> extends Group<L, R, A>, NamedGroup {}

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
   * not follow the topic yet, asks the others, and waits for their answers for at most 200 ms after the broker has taken the question.
   * Rejects with an `EngineError` while the broker is down, and with a `TypeError` for a topic without the rule `members`.
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

/** The options of `notify` on a group. */
export interface NotifyOptions<P> extends LiveOptions {
  /**
   * The peers that are not notified: a peer, its id, what `server.peer(id)` returns, a topic, which stands for its members, or a list or
   * a Set of at most 256 of them. With an engine, peers of any node. A peer that is not in the group has no effect. Default: none.
   */
  except?: Except<P> | undefined;
  /** Notifies the peers of this node only. Without an engine, there are no others. Default false. */
  here?: boolean | undefined;
  /**
   * What happens if a peer reads too slowly or is suspended. `"drop"`, the default, drops its message and counts it in the peer's
   * `stats().dropped`. `"close"` sends the message like any notification, so the peer closes with 1013 if `limits.maxUnsentBytes`
   * is exceeded.
   */
  whenSlow?: "drop" | "close" | undefined;
}

const NOTIFY_OPTIONS = {
  ...LIVE_OPTIONS,
  except: checkExcept,
  here: optional(must<boolean>("true or false", (value) => typeof value === "boolean")),
  whenSlow: optional(oneOf("drop", "close"), "drop"),
};
/** The options of a `notify` without any. */
const NO_OPTIONS = checkLive(undefined, NOTIFY_OPTIONS);

/** Throws a `TypeError` for a value that is no peer of this process: the members of a group are no ids. Otherwise returns it. */
export function checkPeer<P>(peer: P): P {
  if (!(peer instanceof Peer)) throw expected("peer", "a `Peer`, and no id or handle of one", peer);
  return peer;
}

/** A group of the peers that `members` returns at the moment. */
export class PeerGroup<
  L extends Contract<L>,
  R extends Contract<R>,
  A,
  N extends readonly string[] | undefined = undefined,
> implements Group<L, R, A> {
  /** The names of the topics whose peers it has; `undefined` for all peers of the server. */
  readonly topics: N;
  readonly #members: () => ReadonlySet<Peer<L, R, A>>;
  /** The server's, of which the group has some. */
  protected readonly all: ServerPeers;

  constructor(members: () => ReadonlySet<Peer<L, R, A>>, all: ServerPeers, topics: N) {
    this.#members = members;
    this.all = all;
    this.topics = topics;
  }

  get size(): number {
    return this.#members().size;
  }

  has(peer: Peer<L, R, A>): boolean {
    return this.#members().has(checkPeer(peer));
  }

  [Symbol.iterator](): Iterator<Peer<L, R, A>> {
    return this.#members().values();
  }

  notify<K extends NotifyName<R>>(method: K, ...args: CallArgs<R[K], [options?: NotifyOptions<Peer<L, R, A>>]>): void;
  notify(method: string, params?: unknown, options?: NotifyOptions<AnyPeer>): void {
    const given = options === undefined ? NO_OPTIONS : checkLive(options, NOTIFY_OPTIONS);
    const checked = { ...given, except: this.#resolve(given.except) };
    // Encoded also if `around` may change it: what cannot be encoded is the mistake of the caller, and thrown at the caller.
    const text = encodeNotification(method, params as object);
    const { around } = this.all.config;
    // A copy: a listener of `missed` or `close` may change the group meanwhile.
    if (around === undefined) {
      sendAll([...this.#members()], method, text, checked);
      return this.all.node?.notifyElsewhere?.(this.topics, method, text, checked);
    }
    const call = this.record(method, params, checked.except, false, checked.volatile);
    if (call.peers.length === 0 && (this.all.node?.notifyElsewhere === undefined || checked.here === true)) return;
    const send = async (): Promise<void> => {
      // Encoded again: `around` may have changed the params in place.
      const changed = encodeNotification(method, call.params as object);
      sendAll(call.peers, method, changed, checked);
      this.all.node?.notifyElsewhere?.(this.topics, method, changed, checked);
    };
    runAround(around, call, send).catch((error: unknown) =>
      this.all.report(error, undefined, { method, id: undefined }),
    );
  }

  request<K extends keyof R & string>(
    method: K,
    ...args: CallArgs<R[K], [options?: GroupRequestOptions<Peer<L, R, A>>]>
  ): Promise<PeerOutcome<Peer<L, R, A>, Result<R[K]>>[]>;
  request(method: string, params?: unknown, options?: GroupRequestOptions<AnyPeer>): Promise<any> {
    return this.#request(method, params, options).catch((error: unknown) => failed(error, method));
  }

  async #request(method: string, params: unknown, options: GroupRequestOptions<AnyPeer> | undefined): Promise<any> {
    const { except, ...settings } = checkOptions("options", options, REQUEST_OPTIONS);
    const excluded = this.#resolve(except);
    const message = new SharedRequest(method, params);
    const call = this.record(method, params, excluded, true);
    if (call.peers.length === 0) return [];
    const { around } = this.all.config;
    if (around === undefined) return requestAll(call.peers, message, settings);
    return runAround(around, call, async () =>
      requestAll(call.peers, new SharedRequest(method, call.params), settings),
    );
  }

  /** Returns the names of the topics or `"peers"`, for logs. In a message it throws a `TypeError`. */
  toJSON(key?: string): never {
    return shownAs(this.topics?.join(", ") ?? "peers", "group of peers", "write `[...it].map(({ id }) => id)`", key);
  }

  /** Returns what excludes a peer, also by its id. Throws a `TypeError` for a peer that no node of this server has. */
  #resolve(except: Named | undefined): Exclusion | undefined {
    if (except === undefined) return undefined;
    const { node } = this.all;
    const peers = new Set(except.peers);
    const ids: string[] = [];
    for (const one of except.peers)
      if (typeof one === "string") ids.push(one);
      else if (!this.all.canHave(one)) throw wrongExcept(one);
    if (ids.length > 0) {
      const named =
        node?.notifyElsewhere === undefined
          ? [...this.#members()].filter(({ id }) => peers.has(id))
          : ids.flatMap((id) => node.own.get(id) ?? []);
      for (const peer of named) peers.add(peer);
    }
    return new Exclusion({ peers, topics: except.topics }, (topic) => this.all.topics.membersOf(topic));
  }

  /** Returns the message as `around` sees it. */
  protected record(
    method: string,
    params: unknown,
    except: Exclusion | undefined,
    isRequest: boolean,
    isVolatile = false,
  ): GroupCall {
    const isTarget = (peer: AnyPeer): boolean =>
      except?.has(peer) !== true && (!isVolatile || isReady(connectionOf(peer)));
    const peers = [...this.#members()].filter(isTarget);
    return {
      direction: "outgoing",
      peer: undefined,
      peers,
      topics: this.topics,
      method,
      id: undefined,
      isRequest,
      params,
      meta: undefined,
      context: undefined,
    };
  }
}

/** Returns the peers of any of these topics. Throws a `TypeError` for a value that is no name, and for too many names. */
export function unionOf<L extends Contract<L>, R extends Contract<R>, A>(
  all: ServerPeers<L, R, A>,
  names: readonly string[],
): TopicGroup<L, R, A> {
  const topics = Array.from(new Set(names), (name) => topicName(name, "name"));
  if (topics.length > MAX_NAMED) throw expected("names", `at most ${MAX_NAMED} topics`, topics.length);
  const members = (): ReadonlySet<Peer<L, R, A>> => new Set(topics.flatMap((name) => [...all.topics.membersOf(name)]));
  return new PeerGroup<L, R, A, readonly string[]>(members, all, topics);
}

/** The topic of a name. */
export class TopicView<L extends Contract<L>, R extends Contract<R>, A>
  extends PeerGroup<L, R, A, readonly string[]>
  implements Topic<L, R, A>
{
  readonly #name: string;

  /** Throws a `TypeError` for a value that is no name. */
  constructor(all: ServerPeers<L, R, A>, name: string) {
    super(() => all.topics.membersOf(name), all, [topicName(name, "name")]);
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
    if (this.#checkMember(peer)) this.all.topics.add(this.#name, peer);
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
    return this.all.topics.delete(this.#name, checkPeer(peer));
  }

  on(event: keyof TopicEvents<unknown>, listener: (...args: any[]) => void): this {
    this.all.topics.listen(this.#name, "on", event, listener);
    return this;
  }

  once(event: keyof TopicEvents<unknown>, listener: (...args: any[]) => void): this {
    this.all.topics.listen(this.#name, "once", event, listener);
    return this;
  }

  off(event: keyof TopicEvents<unknown>, listener: (...args: any[]) => void): this {
    this.all.topics.unlisten(this.#name, event, listener);
    return this;
  }
}
