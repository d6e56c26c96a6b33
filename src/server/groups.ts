/** Groups of peers: all peers of a server, and those of a topic. A message to a group is encoded once. */
import { encodeNotification, exceeds, sentForm, shownAs, utf8Bytes, type MessageText } from "../core/codec.js";
import type { AnyAround } from "../core/config.js";
import type { Connection } from "../core/connection.js";
import type { FailedCall } from "../core/hooks.js";
import { expected, failed } from "../core/errors.js";
import { checkLive, isReady, LIVE_OPTIONS, NotificationHandle } from "../features/live.js";
import { checkOptions, must, oneOf, optional } from "../core/options.js";
import { EncodedMessage } from "../core/transport.js";
import type { CallArgs, Contract, LiveOptions, NotifyName, Result } from "../core/contract.js";
import { checkExcept, wrongExcept, type Except, type Excluded } from "../fleet/remote.js";
import type { SendOptions } from "../fleet/topic-options.js";
import type { GroupOptions, Reach } from "../fleet/host.js";
import { connectionOf, Peer, type AnyPeer } from "../peer/peer.js";
import { runAround, type GroupCall } from "./around.js";
import {
  REQUEST_OPTIONS,
  requestAll,
  SharedRequest,
  type GroupRequestOptions,
  type PeerOutcome,
} from "./group-request.js";

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

/** The options of `notify` on a group. */
export interface NotifyOptions<P> extends LiveOptions {
  /**
   * The peers that are not notified: a peer, its id, what `server.peer(id)` returns, or a list or a Set of at most 256 of them. With an
   * engine, peers of any node. A peer that is not in the group has no effect. Default: none.
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

/**
 * Sends a message of a group to one of its peers, and counts it. If it is a broadcast, drops it for a slow reader instead of ending
 * the connection. Returns false if the peer stays open and does not get the message.
 */
export function sendTo(peer: AnyPeer, message: EncodedMessage, handle: NotificationHandle): boolean {
  const connection = connectionOf(peer);
  const mayDrop = handle.isBroadcast || connection.opening !== undefined;
  if (connection.sink.send(message.source, handle, message)) connection.counts.notificationsSent++;
  // A connection that does not take any other message has ended or is about to, unless the message is too long for the other side.
  else if (mayDrop || isTooLong(message, connection)) {
    connection.countDropped(handle.droppable);
    return false;
  }
  return true;
}

/** Returns true if the form in which the message is sent is longer than the other side accepts. */
function isTooLong(message: EncodedMessage, { transport }: Connection): boolean {
  const { maxMessageBytes = Infinity, takesBytes } = transport;
  return exceeds(sentForm(message.source, takesBytes, message), maxMessageBytes);
}

/** Returns false if a peer has said that it does not accept a text of that length. */
export function accepts(peer: AnyPeer, text: MessageText): boolean {
  return !exceeds(text, connectionOf(peer).transport.maxMessageBytes ?? Infinity);
}

const NOTIFY_OPTIONS = {
  ...LIVE_OPTIONS,
  except: checkExcept,
  here: optional(must<boolean>("true or false", (value) => typeof value === "boolean")),
  whenSlow: optional(oneOf("drop", "close"), "drop"),
};

/** Sends a notification of `method` to these peers, `except` some. */
export function sendAll(
  peers: readonly AnyPeer[],
  method: string,
  text: MessageText,
  { except, whenSlow, volatile, latest, onDropped }: SendOptions,
): void {
  const message = new EncodedMessage(text);
  // All peers share it, so that a slow peer has one reference for each key.
  const handle = new NotificationHandle(method, latest, whenSlow === "drop");
  let isDropped = false;
  for (const peer of peers) {
    const connection = connectionOf(peer);
    if (except?.has(peer) === true || connection.ended !== undefined || (volatile === true && !isReady(connection)))
      continue;
    if (!sendTo(peer, message, handle)) isDropped = true;
  }
  if (isDropped) onDropped?.(utf8Bytes(text));
}

/** What the groups of one server have in common. */
export interface GroupHost {
  /** The way to other nodes, if there are any. */
  reach?: Reach | undefined;
  /** The server's `around`. */
  readonly around: AnyAround | undefined;
  /** Returns true if a peer is one of this server, or may be one of a server with the same engine. Also if it is closed. */
  canHave(this: void, peer: AnyPeer): boolean;
  /** Takes an error that has no caller. */
  report(error: unknown, peer?: AnyPeer, call?: FailedCall): void;
}

/** Throws a `TypeError` for a value that is no peer of this process: the members of a group are no ids. Otherwise returns it. */
export function checkPeer<P>(peer: P): P {
  if (!(peer instanceof Peer)) throw expected("peer", "a `Peer`, and no id or handle of one", peer);
  return peer;
}

/** A group of the peers that `members` returns at the moment. */
export class PeerGroup<L extends Contract<L>, R extends Contract<R>, A> implements Group<L, R, A> {
  readonly #members: () => ReadonlySet<Peer<L, R, A>>;
  readonly #host: GroupHost;

  constructor(members: () => ReadonlySet<Peer<L, R, A>>, host: GroupHost) {
    this.#members = members;
    this.#host = host;
  }

  /** The name of the topic, if the group is one. */
  protected get topic(): string | undefined {
    return undefined;
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
    const checked = checkLive(options, NOTIFY_OPTIONS);
    this.#resolve(checked.except);
    // Encoded also if `around` may change it: what cannot be encoded is the mistake of the caller, and thrown at the caller.
    const text = encodeNotification(method, params as object);
    const { around } = this.#host;
    // A copy: a listener of `missed` or `close` may change the group meanwhile.
    if (around === undefined) return this.#send([...this.#members()], method, text, checked);
    const call = this.record(method, params, checked.except, false, checked.volatile);
    if (call.peers.length === 0 && (this.#host.reach === undefined || checked.here === true)) return;
    const send = async (): Promise<void> => {
      // Encoded again: `around` may have changed the params in place.
      this.#send(call.peers, method, encodeNotification(method, call.params as object), checked);
    };
    runAround(around, call, send).catch((error: unknown) =>
      this.#host.report(error, undefined, { method, id: undefined }),
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
    const { except, ...wait } = checkOptions("options", options, REQUEST_OPTIONS);
    this.#resolve(except);
    const message = new SharedRequest(method, params);
    const call = this.record(method, params, except, true);
    if (call.peers.length === 0) return [];
    const { around } = this.#host;
    if (around === undefined) return requestAll(call.peers, message, wait);
    return runAround(around, call, async () => requestAll(call.peers, new SharedRequest(method, call.params), wait));
  }

  /** Returns the name of the topic or `"peers"`, for logs. In a message it throws a `TypeError`. */
  toJSON(key?: string): never {
    return shownAs(this.topic ?? "peers", "group of peers", "write `[...it].map(({ id }) => id)`", key);
  }

  /** Sends a notification to peers of this node, and to those that the group has on others. */
  #send(peers: readonly AnyPeer[], method: string, text: MessageText, options: GroupOptions): void {
    sendAll(peers, method, text, options);
    const { reach } = this.#host;
    if (reach !== undefined) this.notifyElsewhere(reach, method, text, options);
  }

  /** Sends a notification to the peers that the group has on other nodes. */
  protected notifyElsewhere(reach: Reach, _method: string, text: MessageText, options: GroupOptions): void {
    reach.notifyAll(text, options);
  }

  /** Adds to `except` the peers of this node whose ids it has. Throws a `TypeError` for a peer that no node of this server has. */
  #resolve(except: Excluded | undefined): void {
    if (except === undefined) return;
    const { reach, canHave } = this.#host;
    const given = [...except];
    for (const one of given) if (typeof one !== "string" && !canHave(one)) throw wrongExcept(one);
    const ids = given.filter((one) => typeof one === "string");
    if (ids.length === 0) return;
    const named =
      reach === undefined
        ? [...this.#members()].filter(({ id }) => except.has(id))
        : ids.flatMap((id) => reach.peerOf(id) ?? []);
    for (const peer of named) except.add(peer);
  }

  /** Returns the message as `around` sees it. */
  protected record(
    method: string,
    params: unknown,
    except: Excluded | undefined,
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
      topic: this.topic,
      method,
      id: undefined,
      isRequest,
      params,
      context: undefined,
    };
  }
}
