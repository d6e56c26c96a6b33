/** Peers of any node, as an application holds them. */
import type { CallArgs, CallOptions, Contract, NotifyName, Remote, Result } from "../contract/contract.js";
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
   * arrive. When `signal` aborts, the call is cancelled there. `retry` has no effect.
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

/** All peers of one principal, on all nodes. */
export interface Principal<R extends Contract<R> = any> {
  /** Notifies the peers, at most once. Throws as `notify` of a `RemotePeer`. For a principal that is notified often, use a topic. */
  notify<K extends NotifyName<R>>(method: K, ...args: CallArgs<R[K], []>): void;
  /**
   * Returns the peers. `unheard`: the names of the nodes that did not answer within 5 s, and `"?"` if there may be others, because the
   * broker counts more nodes, or has not taken or not delivered the question. Never rejects.
   */
  peers(): Promise<{ peers: RemotePeer<R>[]; unheard: string[] }>;
  /**
   * Closes the peers, and refuses the clients of the principal whose `authenticate` was called before and that are no peers yet. They
   * get 503 and may try again. Returns how many peers, and the nodes that did not answer, as `peers` does. To ban a principal, refuse
   * it in `authenticate` first, and call this again while `unheard` is not empty and this server is open. A node without a connection to the
   * broker is not asked and may be in no list: check its own peers when it emits `engine` with `"up"`. Rejects with a `TypeError` for a
   * code that is not an application's to send.
   */
  disconnect(code?: number, reason?: string): Promise<{ closed: number; unheard: string[] }>;
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

/** Throws a `TypeError` for a close that an application may not send. */
function checkClose(code: unknown, reason: unknown): void {
  if (code !== 1000 && !(Number.isInteger(code) && (code as number) >= 3000 && (code as number) <= 4999))
    throw expected("code", "1000 or from 3000 to 4999", code);
  if (typeof reason !== "string") throw expected("reason", "a string", reason);
}

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
      checkClose(code, reason);
      await calls.close(id, code, reason);
    };
  }

  /** Returns `id`, and throws in a message. */
  toJSON(key?: string): never {
    return shownAs(this.id, "peer", "write `peer.id`", key);
  }
}

/** Reaches peers by their ids, and all those of a principal. */
export interface PeerCalls {
  /** Calls a method of a peer. Never throws. */
  request(id: string, method: string, params: unknown, options?: CallOptions): Promise<unknown>;
  /** Notifies a peer, at most once. Throws a `TypeError` for params without a JSON form. */
  notify(id: string, method: string, params: unknown): void;
  /** Closes a peer. Resolves when it is closed. */
  close(id: string, code: number, reason: string): Promise<void>;
  /** Notifies the peers of a principal, at most once. */
  notifyAll(principal: string, method: string, params: unknown): void;
  /** Returns the ids of the peers of a principal, and the names of the nodes that did not answer. Never rejects. */
  find(principal: string): Promise<{ ids: Iterable<string>; unheard: string[] }>;
  /** Closes the peers of a principal. Returns how many, and the names of the nodes that did not answer. Never rejects. */
  disconnect(principal: string, code: number, reason: string): Promise<{ closed: number; unheard: string[] }>;
}

/** Returns the peers of a principal. Throws a `TypeError` for a name that no principal has. */
export function principalOf<R extends Contract<R>>(calls: PeerCalls, name: string): Principal<R> {
  principalName(name, "name");
  const named: Principal<R> & { toJSON(key: string): never } = {
    toJSON(key) {
      return shownAs(name, "principal", "write its name", key);
    },
    notify(method: string, params?: unknown, options?: unknown) {
      refuseOptions(options);
      // Also if there is no peer, params without a JSON form are refused.
      encodeNotification(method, params as object);
      calls.notifyAll(name, method, params);
    },
    async peers() {
      const { ids, unheard } = await calls.find(name);
      return { peers: Array.from(ids, (id) => new AddressedPeer<R>(calls, id)), unheard };
    },
    async disconnect(code = 1000, reason = "") {
      checkClose(code, reason);
      return calls.disconnect(name, code, reason);
    },
  };
  return named;
}
