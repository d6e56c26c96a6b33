/** Groups of peers: all peers of a server, and those of topics. A message to a group is encoded once. */
import { encodeNotification, shownAs } from "../message/codec.js";
import { expected, failed } from "../message/errors.js";
import { checkLive, isReady, LIVE_OPTIONS } from "../features/live.js";
import { checkOptions, must, oneOf, optional } from "../message/options.js";
import type { CallArgs, Contract, LiveOptions, NotifyName, Result } from "../contract/contract.js";
import {
  checkExcept,
  Exclusion,
  wrongExcept,
  type Except,
  type Named,
  type NamedGroup,
  type PeerOutcome,
} from "../topics/remote.js";
import { connectionOf, Peer, type AnyPeer } from "../peer/peer.js";
import { runAround, type GroupCall } from "./around.js";
import { sendAll } from "./broadcast.js";
import { REQUEST_OPTIONS, requestAll, SharedRequest, type GroupRequestOptions } from "./group-request.js";
import type { ServerPeers } from "./peers.js";

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
