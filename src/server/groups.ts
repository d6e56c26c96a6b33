/** Groups of peers: all peers of a server, and those of a topic. A notification to a group is encoded once. */
import { encodeNotification } from "../core/codec.js";
import type { Connection } from "../core/connection.js";
import { any, checkOptions, must, optional } from "../core/options.js";
import { EncodedMessage } from "../core/transport.js";
import type { CallArgs, Contract, NotifyName } from "../core/contract.js";
import { connectionOf, type AnyPeer, type Peer } from "../peer/peer.js";

/** An iterable set of peers. It never contains closed peers. */
export interface Group<L extends Contract<L>, R extends Contract<R>, D> extends Iterable<Peer<L, R, D>> {
  /** Number of peers in the group. */
  readonly size: number;
  /** Returns true if a peer is in the group. */
  has(peer: Peer<L, R, D>): boolean;
  /**
   * Notifies every peer of the group, `except` one. Encodes the message once, and does not call `around`. Skips a peer whose
   * connection is closing. Queues the message for a suspended peer. If that queue holds a quarter of `limits.maxUnsentBytes`, or
   * the broadcasts to all suspended peers hold a quarter of `limits.maxSuspendedBytes`, drops the message and counts it in the
   * peer's `stats().dropped`. A peer that loses its socket drops its queued broadcasts for the same reason. Ends a session only if `whenSlow` is `"close"`. Throws a `TypeError` for params without a JSON form,
   * before anything is sent.
   */
  notify<K extends NotifyName<R>>(method: K, ...args: CallArgs<R[K], [options?: NotifyOptions<Peer<L, R, D>>]>): void;
}

/** The options of `notify` on a group. */
export interface NotifyOptions<P> {
  /** The peer that is not notified. Default: none. */
  except?: P | undefined;
  /**
   * What happens if a peer reads too slowly or is suspended. `"drop"`, the default, drops its message and counts it in the peer's
   * `stats().dropped`. `"close"` sends the message like any notification, so the peer closes with 1013 if `limits.maxUnsentBytes`
   * is exceeded.
   */
  whenSlow?: "drop" | "close" | undefined;
}

/** A named set of peers. A peer that closes is removed. A topic without peers takes no memory. */
export interface Topic<L extends Contract<L>, R extends Contract<R>, D> extends Group<L, R, D> {
  /**
   * Adds a peer of this server. Does nothing if the peer is a member or closed. Throws a `TypeError` for a peer of another server,
   * and for one that came by HTTP POST.
   */
  add(peer: Peer<L, R, D>): this;
  /** Removes a peer. Returns true if the peer was a member. */
  delete(peer: Peer<L, R, D>): boolean;
}

/**
 * Sends a message of a group to one of its peers, and counts it. With `"drop"`, drops the message to a slow reader instead of
 * ending the connection.
 */
export function sendTo(peer: AnyPeer, message: EncodedMessage, whenSlow: "drop" | "close"): void {
  const connection = connectionOf(peer);
  const { counts } = connection;
  if (whenSlow === "close") {
    counts.notificationsSent++;
    connection.send(message.source);
  } else counts[broadcast(connection, message) ? "notificationsSent" : "dropped"]++;
}

/** Sends a broadcast, unless more than half of `maxUnsentBytes` is already unsent. Returns true if the transport took it. */
function broadcast(connection: Connection, message: EncodedMessage): boolean {
  const { transport, unsentBytes } = connection;
  connection.forgetSentBroadcasts(unsentBytes);
  if (unsentBytes > connection.config.limits.maxUnsentBytes / 2 || connection.ended !== undefined) return false;
  try {
    const isTaken = message.sendBy(transport);
    if (isTaken) connection.broadcastBytes += message.unsentBytes;
    return isTaken;
  } catch (error) {
    // `send` must not throw. If it does, the other peers must still be notified.
    connection.report(error);
    return false;
  }
}

const EMPTY: ReadonlySet<never> = new Set();

const isWhenSlow = (value: unknown): boolean => value === "drop" || value === "close";
const NOTIFY_OPTIONS = {
  except: any,
  whenSlow: optional(must<"drop" | "close">('"drop" or "close"', isWhenSlow), "drop" as const),
};

/** Returns a group of the peers that `members` returns at the moment. */
export function groupOf<L extends Contract<L>, R extends Contract<R>, D>(
  members: () => ReadonlySet<Peer<L, R, D>>,
): Group<L, R, D> {
  const notify = (method: string, params?: object, options?: NotifyOptions<unknown>): void => {
    const { except, whenSlow } = checkOptions("options", options, NOTIFY_OPTIONS);
    const message = new EncodedMessage(encodeNotification(method, params));
    for (const peer of members()) if (peer !== except) sendTo(peer, message, whenSlow);
  };
  return {
    get size() {
      return members().size;
    },
    has: (peer) => members().has(peer),
    [Symbol.iterator]: () => members().values(),
    notify: notify as Group<L, R, D>["notify"],
  };
}

/** All topics of one server. A `Topic` is a view of the sets here, so a `Topic` that the application keeps is never stale. */
export class Topics<L extends Contract<L>, R extends Contract<R>, D> {
  readonly #members = new Map<string, Set<Peer<L, R, D>>>();
  /** The names of each peer's topics. Many peers have only one, and a Set for each would take memory. */
  readonly #joined = new Map<Peer<L, R, D>, string | Set<string>>();

  /** Returns the topic of that name. `refusalOf` returns why a peer cannot be a member, or `undefined`. */
  topic(name: string, refusalOf: (peer: Peer<L, R, D>) => string | undefined): Topic<L, R, D> {
    const group = groupOf<L, R, D>(() => this.#members.get(name) ?? EMPTY);
    const topic: Topic<L, R, D> = Object.assign(group, {
      add: (peer: Peer<L, R, D>) => {
        if (peer.state === "closed") return topic;
        const reason = refusalOf(peer);
        if (reason !== undefined) throw new TypeError(reason);
        this.#add(name, peer);
        return topic;
      },
      delete: (peer: Peer<L, R, D>) => this.#delete(name, peer),
    });
    return topic;
  }

  /** Number of topics that have members. */
  get size(): number {
    return this.#members.size;
  }

  /** Removes a peer from every topic. */
  leaveAll(peer: Peer<L, R, D>): void {
    const joined = this.#joined.get(peer);
    for (const name of typeof joined === "string" ? [joined] : (joined ?? [])) this.#delete(name, peer);
  }

  #add(name: string, peer: Peer<L, R, D>): void {
    let members = this.#members.get(name);
    if (members === undefined) this.#members.set(name, (members = new Set()));
    members.add(peer);
    const joined = this.#joined.get(peer) ?? name;
    if (typeof joined !== "string") joined.add(name);
    else this.#joined.set(peer, joined === name ? name : new Set([joined, name]));
  }

  #delete(name: string, peer: Peer<L, R, D>): boolean {
    const members = this.#members.get(name);
    if (members === undefined || !members.delete(peer)) return false;
    if (members.size === 0) this.#members.delete(name);
    const joined = this.#joined.get(peer)!;
    if (typeof joined !== "string") joined.delete(name);
    if (typeof joined === "string" || joined.size === 0) this.#joined.delete(peer);
    return true;
  }
}
