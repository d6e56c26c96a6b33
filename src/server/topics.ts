/** Topics: named sets of peers, which exist while they have members. */
import type { Contract } from "../core/contract.js";
import type { Peer } from "../peer/peer.js";
import { PeerGroup, type Group, type GroupOwner } from "./groups.js";

/**
 * A named set of peers. A peer that closes is removed. A topic without peers takes no memory.
 *
 * `server.topic(name)` returns a new object each time, and all objects of one name have the same members.
 */
export interface Topic<L extends Contract<L>, R extends Contract<R>, D> extends Group<L, R, D> {
  /**
   * Adds a peer of this server. Does nothing if the peer is a member or closed. Throws a `TypeError` for a peer of another server,
   * and for one that came by HTTP POST.
   */
  add(peer: Peer<L, R, D>): this;
  /** Removes a peer. Returns true if the peer was a member. Calls that were made to the peer go on. */
  delete(peer: Peer<L, R, D>): boolean;
}

const EMPTY: ReadonlySet<never> = new Set();

/** The topics of one server, and what they need of it. */
export interface TopicsOwner<P> extends GroupOwner {
  /** Returns why a peer cannot be a member; `undefined` if it can. */
  refusalOf(peer: P): string | undefined;
}

/** All topics of one server. A `Topic` is a view of the sets here, so a `Topic` that the application keeps is never stale. */
export class Topics<L extends Contract<L>, R extends Contract<R>, D> {
  readonly owner: TopicsOwner<Peer<L, R, D>>;
  readonly #members = new Map<string, Set<Peer<L, R, D>>>();
  /** The names of each peer's topics. Many peers have only one, and a Set for each would take memory. */
  readonly #joined = new Map<Peer<L, R, D>, string | Set<string>>();

  constructor(owner: TopicsOwner<Peer<L, R, D>>) {
    this.owner = owner;
  }

  /** Returns the topic of that name. */
  topic(name: string): Topic<L, R, D> {
    return new TopicView(this, name);
  }

  /** Number of topics that have members. */
  get size(): number {
    return this.#members.size;
  }

  /** Returns the members of a topic. */
  membersOf(name: string): ReadonlySet<Peer<L, R, D>> {
    return this.#members.get(name) ?? EMPTY;
  }

  /** Adds a peer to a topic, unless it is a member. */
  add(name: string, peer: Peer<L, R, D>): void {
    let members = this.#members.get(name);
    if (members?.has(peer)) return;
    if (members === undefined) this.#members.set(name, (members = new Set()));
    members.add(peer);
    const joined = this.#joined.get(peer) ?? name;
    if (typeof joined !== "string") joined.add(name);
    else this.#joined.set(peer, joined === name ? name : new Set([joined, name]));
  }

  /** Removes a peer from a topic. Returns true if it was a member. */
  delete(name: string, peer: Peer<L, R, D>): boolean {
    if (!this.#removeMember(name, peer)) return false;
    const joined = this.#joined.get(peer)!;
    if (typeof joined !== "string") joined.delete(name);
    if (typeof joined === "string" || joined.size === 0) this.#joined.delete(peer);
    return true;
  }

  /** Removes a peer that closes from every topic. */
  leaveAll(peer: Peer<L, R, D>): void {
    const joined = this.#joined.get(peer);
    if (joined === undefined) return;
    this.#joined.delete(peer);
    const names = typeof joined === "string" ? [joined] : [...joined];
    for (const name of names) this.#removeMember(name, peer);
  }

  #removeMember(name: string, peer: Peer<L, R, D>): boolean {
    const members = this.#members.get(name);
    if (members === undefined || !members.delete(peer)) return false;
    if (members.size === 0) this.#members.delete(name);
    return true;
  }
}

class TopicView<L extends Contract<L>, R extends Contract<R>, D> extends PeerGroup<L, R, D> implements Topic<L, R, D> {
  readonly #topics: Topics<L, R, D>;
  readonly #name: string;

  constructor(topics: Topics<L, R, D>, name: string) {
    super(() => topics.membersOf(name), topics.owner, name);
    this.#topics = topics;
    this.#name = name;
  }

  add(peer: Peer<L, R, D>): this {
    if (peer.state === "closed") return this;
    const reason = this.#topics.owner.refusalOf(peer);
    if (reason !== undefined) throw new TypeError(reason);
    this.#topics.add(this.#name, peer);
    return this;
  }

  delete(peer: Peer<L, R, D>): boolean {
    return this.#topics.delete(this.#name, peer);
  }
}
