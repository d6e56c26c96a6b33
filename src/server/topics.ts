/** Topics: named sets of peers, which exist while they have members. */
import type { Contract } from "../core/contract.js";
import type { Peer } from "../peer/peer.js";
import { groupOf, type Group } from "./groups.js";

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

const EMPTY: ReadonlySet<never> = new Set();

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
