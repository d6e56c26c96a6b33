/** Peers of any node, as an application holds them. */
import type { CallArgs, CallOptions, Contract, NotifyName, Remote, Result } from "../contract/contract.js";
import { checkClose } from "../message/close-codes.js";
import { encodeNotification, shownAs } from "../message/codec.js";
import { expected, failed } from "../message/errors.js";
import { member } from "../message/message.js";
import { isWellFormed, must } from "../message/options.js";
import { remoteOf } from "../peer/caller.js";
import { Peer, type AnyPeer } from "../peer/peer.js";
import { topicName } from "./topic-options.js";

/**
 * A peer of any node, named by its id. Making one needs no round trip, and checks nothing. If its node is this one, everything goes
 * directly to the peer.
 */
export interface RemotePeer<R extends Contract<R> = any> {
  readonly id: string;
  /** The peer's methods as functions: `remote.add([1, 2])` is `request("add", [1, 2])`. */
  readonly remote: Remote<R>;
  /**
   * Calls a method of the peer. `around` runs on the node that holds the peer. Streams do not cross nodes.
   *
   * Rejects as `peer.request` does, with a true `outcome`. `ConnectionLostError` with `"not-sent"`: there was no connection to the
   * broker, its node does not live, or has no such peer. With `"unknown"`: the peer was lost, or its node was given up, before
   * it answered. `TimeoutError`: no answer came in time. The node of the peer gets 95 % of `timeoutMs`, so that its own verdict can
   * arrive. When `signal` aborts, the call is cancelled there. `retry` has no effect. On a server with an engine, rejects with a
   * `TypeError` if `timeoutMs` is `Infinity`: the broker may lose the answer.
   */
  request<K extends keyof R & string>(method: K, ...args: CallArgs<R[K]>): Promise<Result<R[K]>>;
  /** Notifies the peer, at most once. Throws a `TypeError` for params without a JSON form, and for options: it takes none. */
  notify<K extends NotifyName<R>>(method: K, ...args: CallArgs<R[K], []>): void;
  /**
   * Closes the peer, and resolves when it is closed. Rejects as `request` does, and as `peer.close` does for a code that is not an
   * application's to send.
   */
  close(code?: number, reason?: string): Promise<void>;
}

/** How the call to one of several peers was settled: a `PromiseSettledResult` with the peer. */
export type PeerOutcome<P, T> =
  | { readonly peer: P; readonly status: "fulfilled"; readonly value: T; readonly reason?: undefined }
  | {
      readonly peer: P;
      readonly status: "rejected";
      /** What `peer.request` rejects with. */
      readonly reason: any;
      readonly value?: undefined;
    };

/**
 * All peers of one principal, on all nodes. `isComplete` is true if each node that is subscribed for the principal has answered: false if
 * one has not within 5 s, if the broker has not taken the question, or if a node is silent for longer than 1.5 beats, because it may be
 * cut off. A broker that does not count its receivers exactly (NATS, a Redis Cluster, a Redis with replicas) is given 200 ms: a node that
 * it does not count, and that takes longer, is not noticed.
 *
 * A node subscribes when its first peer of the principal opens. It is neither reached nor noticed until the broker has confirmed that: for
 * one round trip, or as long as the broker refuses it, which that node emits as `error`.
 */
export interface Principal<R extends Contract<R> = any> {
  /** Notifies the peers, at most once. Throws as `notify` of a `RemotePeer`. For a principal that is notified often, use a topic. */
  notify<K extends NotifyName<R>>(method: K, ...args: CallArgs<R[K], []>): void;
  /** Calls a method of each peer, as `RemotePeer.request` does. Rejects only with a `TypeError` for params without a JSON form. */
  request<K extends keyof R & string>(
    method: K,
    ...args: CallArgs<R[K]>
  ): Promise<{ outcomes: PeerOutcome<RemotePeer<R>, Result<R[K]>>[]; isComplete: boolean }>;
  /** Returns the peers. Never rejects. */
  peers(): Promise<{ peers: RemotePeer<R>[]; isComplete: boolean }>;
  /**
   * Closes the peers, and refuses the clients of the principal whose `authenticate` was called before and that are no peers yet. They
   * get 503 and may try again. Returns how many peers were closed. To ban a principal, refuse it in `authenticate` first.
   *
   * Repeats the close for 30 s while this server is open, after 0.1 s and at last every 3 s. So it reaches a node on which the principal
   * had no peer and a client was being authenticated, and one that had no connection to the broker or was not subscribed. At most 10,000
   * closes and 4 Mi of their text are repeated at once; more are sent once, and counted as `dropped`. Peers that were authenticated later
   * stay, except those that were while the close was on its way. `reason` is cut at 123 bytes. Rejects with a `TypeError` for a code that is
   * not an application's to send.
   */
  disconnect(code?: number, reason?: string): Promise<{ closed: number; isComplete: boolean }>;
}

/** The longest name of a principal, in UTF-16 code units. Each takes at most 5 characters in the head of a frame. */
const MAX_PRINCIPAL_LENGTH = 8_192;
const isPrincipal = (value: unknown): boolean =>
  typeof value === "string" && value.length <= MAX_PRINCIPAL_LENGTH && isWellFormed(value);

/** Returns the name of a principal. Throws a `TypeError` for any other value. */
export const principalName = must<string>(
  `a well-formed string of at most ${MAX_PRINCIPAL_LENGTH} characters`,
  isPrincipal,
);

/** A peer of any node: the peer, a handle of it, or its id. */
export type PeerReference<P> = P | RemotePeer | string;

/** A set of peers that topics name: those that are in any of them. */
export interface NamedGroup {
  /** The names of the topics. */
  readonly topics: readonly string[];
}

type Excepted<P> = PeerReference<P> | NamedGroup;

/** The peers that get no message of a group. */
export type Except<P> = Excepted<P> | readonly Excepted<P>[] | ReadonlySet<Excepted<P>>;

/** What `except` names, checked. */
export type Named = Pick<Exclusion, "peers" | "topics">;

/** The peers that get no message of a group: some that are named, and those that are members of some topics on this node. */
export class Exclusion {
  /** Peers of this process, and ids of peers of any node. */
  readonly peers: ReadonlySet<AnyPeer | string>;
  readonly topics: readonly string[];
  readonly #membersOf: (topic: string) => ReadonlySet<AnyPeer>;

  constructor({ peers, topics }: Named, membersOf: (topic: string) => ReadonlySet<AnyPeer>) {
    this.peers = peers;
    this.topics = topics;
    this.#membersOf = membersOf;
  }

  has(peer: AnyPeer): boolean {
    return this.peers.has(peer) || this.topics.some((topic) => this.#membersOf(topic).has(peer));
  }
}

/** Maximum number of peers and topics that `except` names: their ids fit into the head of a frame, with room. And of topics in a union. */
export const MAX_NAMED = 256;
/** No id of a peer is longer. */
const MAX_ID_LENGTH = 128;

/** Returns the error for an `except` that names no peer. A list or a set is taken, and no other iterable. */
export function wrongExcept(value: unknown): TypeError {
  const rule = `a peer of this server or of one with its engine, the id of one, a topic, or a list or a Set of at most ${MAX_NAMED}`;
  return expected("except", rule, value);
}

/** Checks `except`. */
export function checkExcept(value: unknown): Named | undefined {
  if (value === undefined) return undefined;
  const entries: readonly unknown[] = value instanceof Set ? [...value] : Array.isArray(value) ? value : [value];
  const peers = new Set<AnyPeer | string>();
  const topics = new Set<string>();
  for (const entry of entries) {
    const named = entry instanceof AddressedPeer ? entry.id : entry;
    const names = member(named, "topics");
    if (named instanceof Peer) peers.add(named);
    else if (typeof named === "string" && named !== "" && named.length <= MAX_ID_LENGTH) peers.add(named);
    else if (!Array.isArray(names)) throw wrongExcept(named);
    else for (const name of names) topics.add(topicName(name, "except"));
  }
  if (peers.size + topics.size > MAX_NAMED) throw wrongExcept(`${peers.size + topics.size} peers and topics`);
  return { peers, topics: [...topics] };
}

/** Throws a `TypeError` for options that are given to a `notify` that takes none: they must not be silently without effect. */
export function refuseOptions(options: unknown): void {
  if (options !== undefined) throw expected("options", "absent, because this `notify` takes none", options);
}

/** A peer of any node. Its members survive destructuring. */
export class AddressedPeer<R extends Contract<R>> implements RemotePeer<R> {
  readonly id: string;
  readonly remote: Remote<R>;
  readonly request: RemotePeer<R>["request"];
  readonly notify: RemotePeer<R>["notify"];
  readonly close: RemotePeer<R>["close"];

  /** Throws a `TypeError` for what is no id. */
  constructor(calls: PeerCalls, id: string) {
    if (typeof id !== "string") throw expected("id", "a string", id);
    const request = (method: string, params?: unknown, options?: CallOptions): Promise<any> =>
      calls.request(id, method, params, options).catch((error: unknown) => failed(error, method));
    this.id = id;
    this.remote = remoteOf(request);
    this.request = request as RemotePeer<R>["request"];
    this.notify = (method: string, params?: unknown, options?: unknown) => {
      refuseOptions(options);
      calls.notify(id, method, params);
    };
    this.close = async (code = 1000, reason = "") => {
      await calls.close(id, code, checkClose(code, reason));
    };
  }

  /** Returns `id`, and throws in a message. */
  toJSON(key?: string): never {
    return shownAs(this.id, "peer", "write `peer.id`", key);
  }
}

/** Reaches peers by their ids. */
export interface PeerCalls {
  /** Calls a method of a peer. Never throws. */
  request(id: string, method: string, params: unknown, options?: CallOptions): Promise<unknown>;
  /** Notifies a peer, at most once. Throws a `TypeError` for params without a JSON form. */
  notify(id: string, method: string, params: unknown): void;
  /** Closes a peer. Resolves when it is closed. */
  close(id: string, code: number, reason: string): Promise<void>;
}

/** Reaches the peers of principals. `isComplete`: as of `Principal`. Nothing rejects. */
export interface PrincipalCalls {
  notifyAll(principal: string, method: string, params: unknown): void;
  /** Returns the ids of the peers. */
  find(principal: string): Promise<{ ids: Iterable<string>; isComplete: boolean }>;
  /** Closes the peers. Returns how many. */
  disconnect(principal: string, code: number, reason: string): Promise<{ closed: number; isComplete: boolean }>;
}

/** Returns the peers of a principal. Throws a `TypeError` for a name that no principal has. */
export function principalOf<R extends Contract<R>>(
  calls: PeerCalls,
  principals: PrincipalCalls,
  name: string,
): Principal<R> {
  principalName(name, "name");
  const named: Principal<R> & { toJSON(key: string): never } = {
    toJSON(key) {
      return shownAs(name, "principal", "write its name", key);
    },
    notify(method: string, params?: unknown, options?: unknown) {
      refuseOptions(options);
      // Also if there is no peer, params without a JSON form are refused.
      encodeNotification(method, params as object);
      principals.notifyAll(name, method, params);
    },
    async request(method: string, params?: any, options?: any): Promise<any> {
      encodeNotification(method, params);
      const { peers, isComplete }: { peers: RemotePeer[]; isComplete: boolean } = await named.peers();
      const settled = await Promise.allSettled(peers.map((peer) => peer.request(method, params, options)));
      return { outcomes: settled.map((outcome, i) => ({ peer: peers[i]!, ...outcome })), isComplete };
    },
    async peers() {
      const { ids, isComplete } = await principals.find(name);
      return { peers: Array.from(ids, (id) => new AddressedPeer<R>(calls, id)), isComplete };
    },
    async disconnect(code = 1000, reason = "") {
      return principals.disconnect(name, code, checkClose(code, reason));
    },
  };
  return named;
}
