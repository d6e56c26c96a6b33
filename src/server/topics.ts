/** The topics of a server: named sets of peers, which exist while they have members, and emit an event when a peer joins or leaves. */
import type { Contract } from "../contract/contract.js";
import { anyFunction } from "../message/options.js";
import { EventEmitter } from "../base/packages.js";
import { refuseUnknownEvents, tell } from "../base/tell.js";
import type { NodeTopics } from "../topics/topic.js";
import { connectionOf, type Peer } from "../peer/peer.js";

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

const EVENTS: Record<keyof TopicEvents<unknown>, 0> = { join: 0, leave: 0 };

class TopicEmitter<P> extends EventEmitter<TopicEvents<P>> {
  static {
    refuseUnknownEvents(TopicEmitter.prototype, EVENTS);
  }
}

const EMPTY: ReadonlySet<never> = new Set();

/** All topics of one server. A `Topic` is a view of the sets here, so a `Topic` that the application keeps is never stale. */
export class Topics<L extends Contract<L>, R extends Contract<R>, A> {
  /** The topics of the node, if there is a node. */
  readonly #ofNode: () => NodeTopics | undefined;
  readonly #members = new Map<string, Set<Peer<L, R, A>>>();
  /** The names of each peer's topics. Many peers have only one, and a Set for each would take memory. */
  readonly #joined = new Map<Peer<L, R, A>, string | Set<string>>();
  /** The listeners of each topic that has any. */
  readonly #emitters = new Map<string, TopicEmitter<Peer<L, R, A>>>();

  constructor(ofNode: () => NodeTopics | undefined) {
    this.#ofNode = ofNode;
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
    // Throws for rules that the node refuses, before anything is changed.
    if (members === undefined) this.#ofNode()?.opened(name);
    this.#ofNode()?.added(name, peer);
    if (members === undefined) this.#members.set(name, (members = new Set()));
    members.add(peer);
    const joined = this.#joined.get(peer) ?? name;
    if (typeof joined !== "string") joined.add(name);
    else this.#joined.set(peer, joined === name ? name : new Set([joined, name]));
    this.#emit(name, "join", peer);
  }

  /** Removes a peer from a topic. Returns true if it was a member. */
  delete(name: string, peer: Peer<L, R, A>): boolean {
    this.#ofNode()?.left(name, peer);
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
    for (const name of names) this.#ofNode()?.left(name, peer);
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
      this.#ofNode()?.closed(name);
    }
    return true;
  }

  #emit(name: string, event: keyof TopicEvents<unknown>, peer: Peer<L, R, A>, reason?: LeaveReason): void {
    const emitter = this.#emitters.get(name);
    if (emitter === undefined) return;
    const args = reason === undefined ? [peer] : [peer, reason];
    tell(emitter, event, args, (error) => connectionOf(peer).config.hooks.error?.(error, peer, undefined));
    this.#deleteUnheard(name, emitter);
  }

  /** Deletes an emitter whose last listener was removed. A listener may have replaced the emitter meanwhile. */
  #deleteUnheard(name: string, emitter: TopicEmitter<Peer<L, R, A>>): void {
    if (emitter.eventNames().length === 0 && this.#emitters.get(name) === emitter) this.#emitters.delete(name);
  }
}
