/** Many peers at once: all of a server's, and those of a topic. A notification is encoded once for all of them. */
import { encodeNotification } from "../core/codec.js";
import type { Connection } from "../core/connection.js";
import { any, checkOptions, must, optional } from "../core/options.js";
import { EncodedMessage } from "../core/transport.js";
import type { CallArgs, Contract, NotifyName } from "../core/contract.js";
import { connectionOf, type AnyPeer, type Peer } from "../peer/peer.js";

/** A set of peers, iterable. Closed ones are never in it. */
export interface Group<L extends Contract<L>, R extends Contract<R>, D> extends Iterable<Peer<L, R, D>> {
  /** How many there are. */
  readonly size: number;
  /** Whether a peer is among them. */
  has(peer: Peer<L, R, D>): boolean;
  /**
   * Notifies every peer of the group, `except` one. Encoded once; `around` is not called. A peer whose connection is
   * closing is passed over. For a peer that is suspended the notification waits. It is dropped, and counted in that peer's
   * `stats().dropped`, when a quarter of `limits.maxUnsentBytes` waits there already, or the broadcasts to all suspended
   * peers together have a quarter of `limits.maxSuspendedBytes`. It never ends a session, unless `whenSlow` says so. Throws a `TypeError` for params without a JSON form, and then nobody got it.
   */
  notify<K extends NotifyName<R>>(method: K, ...args: CallArgs<R[K], [options?: NotifyOptions<Peer<L, R, D>>]>): void;
}

/** How a group is notified. */
export interface NotifyOptions<P> {
  /** The peer that gets no message. */
  except?: P | undefined;
  /**
   * What happens to the message for a peer that reads too slowly or is suspended: `"drop"`, the default, counts it in that peer's
   * `stats().dropped` and sends it nothing; `"close"` sends it like any notification to that peer alone, and so closes with
   * 1013 where `limits.maxUnsentBytes` says so.
   */
  whenSlow?: "drop" | "close" | undefined;
}

/** A named set of peers. A peer leaves it by itself when it closes; a topic without peers takes no memory. */
export interface Topic<L extends Contract<L>, R extends Contract<R>, D> extends Group<L, R, D> {
  /** Adds a peer of this server. One that is in it already, or closed, changes nothing. Throws a `TypeError` for another server's, and for one that came by HTTP POST. */
  add(peer: Peer<L, R, D>): this;
  /** Takes a peer out; whether it was in. */
  delete(peer: Peer<L, R, D>): boolean;
}

/**
 * Sends a message that goes to many peers to one of them, and counts it. Returns false if it was not taken. With `"drop"`, a
 * message to a slow reader is dropped, and never ends the connection.
 */
export function sendTo(peer: AnyPeer, message: EncodedMessage, whenSlow: "drop" | "close"): boolean {
  const connection = connectionOf(peer);
  const { counts } = connection;
  if (whenSlow === "close") {
    counts.notificationsSent++;
    return connection.send(message.text);
  }
  const isTaken = broadcast(connection, message);
  counts[isTaken ? "notificationsSent" : "dropped"]++;
  return isTaken;
}

/** Sends a broadcast, unless the other side reads too slowly: half of `maxUnsentBytes` waits already. */
function broadcast(connection: Connection, message: EncodedMessage): boolean {
  const { transport, unsentBytes } = connection;
  connection.forgetSentBroadcasts(unsentBytes);
  if (unsentBytes > connection.config.limits.maxUnsentBytes / 2 || connection.ended !== undefined) return false;
  try {
    const isTaken = transport.send(message.text, undefined, message);
    if (isTaken) connection.broadcastBytes += message.unsentBytes;
    return isTaken;
  } catch (error) {
    // A transport that throws breaks its promise. That must not stop the loop over many peers.
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

/** Makes a group of the peers that `members` returns at each moment. */
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

/** All topics of one server. The sets live here and a `Topic` is a view, so a `Topic` that the application keeps is never stale. */
export class Topics<L extends Contract<L>, R extends Contract<R>, D> {
  readonly #members = new Map<string, Set<Peer<L, R, D>>>();
  /** The names of each peer's topics. Many peers have just one, and a set for each takes memory. */
  readonly #joined = new Map<Peer<L, R, D>, string | Set<string>>();

  /** The topic of that name. `whyNot` says why a peer cannot be in it, if it cannot. */
  topic(name: string, whyNot: (peer: Peer<L, R, D>) => string | undefined): Topic<L, R, D> {
    const group = groupOf<L, R, D>(() => this.#members.get(name) ?? EMPTY);
    const topic: Topic<L, R, D> = Object.assign(group, {
      add: (peer: Peer<L, R, D>) => {
        if (peer.state === "closed") return topic;
        const reason = whyNot(peer);
        if (reason !== undefined) throw new TypeError(reason);
        this.#add(name, peer);
        return topic;
      },
      delete: (peer: Peer<L, R, D>) => this.#delete(name, peer),
    });
    return topic;
  }

  /** How many topics have members. */
  get size(): number {
    return this.#members.size;
  }

  /** Takes a peer out of every topic. */
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
