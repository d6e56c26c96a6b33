/**
 * The members of topics, on all nodes. Each member has one writer, its node, so nothing is merged. A node keeps in the broker what it
 * wants of its own members, and a replica of the members of each topic that it watches.
 */
import { clearDeadline, setDeadline, type Expiring } from "../core/deadlines.js";
import type { Broker } from "./broker.js";
import type { MemberAs } from "../core/contract.js";
import type { Jsonify } from "../core/jsonify.js";
import { EngineError, type Incarnation, type RosterPart } from "./engine.js";

/** A member of a topic, as `members()` and `watch` show it. */
export interface TopicMember {
  /** The id of the peer, which `server.peer(id)` takes. */
  readonly id: string;
  /** What `join` was given as `as`, by way of JSON. */
  readonly as: Jsonify<Exclude<MemberAs, undefined>>;
}

/** Changes that came too early: more are listed. */
const MAX_AHEAD = 1_000;
/** How long to wait after a failed change, if the connection is up. */
const RETRY_MS = 1_000;

/** One member of this node, in one topic. */
interface OwnMember {
  readonly topic: string;
  readonly localId: string;
  /** What the broker shall have. `undefined`: nothing. */
  wanted: string | undefined;
  /** What the broker has. `null`: not known. */
  actual: string | undefined | null;
  /** What the broker has confirmed last. If a change fails, this is wanted again. */
  confirmed: string | undefined;
  isBusy: boolean;
  /** Called when the broker has what is wanted, or with the reason why not. */
  waiting: ((error?: EngineError) => void)[];
}

/** The members of this node. Each has one command in progress. What is wanted is compared again after it. */
export class OwnMembers implements Expiring {
  deadline = 0;
  readonly #broker: Broker;
  readonly #members = new Map<string, Map<string, OwnMember>>();
  #incarnation: Incarnation;

  constructor(broker: Broker, incarnation: Incarnation) {
    this.#broker = broker;
    this.#incarnation = incarnation;
  }

  /** Resolves when the broker has the member. If it rejects, the member is removed. */
  put(topic: string, localId: string, as: string): Promise<void> {
    const member = this.#memberOf(topic, localId);
    member.wanted = as;
    return new Promise((resolve, reject) => {
      member.waiting.push((error) => (error === undefined ? resolve() : reject(error)));
      this.#reconcile(member);
    });
  }

  /** Removes a member, now or when the connection is restored. Does nothing for a peer that is no member. */
  remove(topic: string, localId: string): void {
    const member = this.#members.get(topic)?.get(localId);
    if (member === undefined) return;
    // If a change in progress fails, it is not undone.
    member.wanted = member.confirmed = undefined;
    this.#reconcile(member);
  }

  /** The broker has nothing of the new incarnation yet. Puts all members again. */
  renew(incarnation: Incarnation): void {
    this.#incarnation = incarnation;
    for (const member of this.#all()) member.actual = undefined;
    this.reconcile();
  }

  /** Tries again what has failed. */
  reconcile(): void {
    for (const member of this.#all()) this.#reconcile(member);
  }

  expire(): void {
    this.reconcile();
  }

  /** Removes all members. Resolves when the broker has none of them, or cannot be reached. */
  async clear(): Promise<void> {
    const members = [...this.#all()];
    await Promise.all(
      members.map(
        (member) =>
          new Promise<void>((resolve) => {
            member.wanted = undefined;
            member.waiting.push(() => resolve());
            this.#reconcile(member);
          }),
      ),
    );
  }

  /** Tries nothing again any more. */
  stop(): void {
    this.#members.clear();
    clearDeadline(this);
  }

  *#all(): Iterable<OwnMember> {
    for (const members of this.#members.values()) yield* members.values();
  }

  #memberOf(topic: string, localId: string): OwnMember {
    let members = this.#members.get(topic);
    if (members === undefined) this.#members.set(topic, (members = new Map()));
    let member = members.get(localId);
    if (member === undefined) {
      member = {
        topic,
        localId,
        wanted: undefined,
        actual: undefined,
        confirmed: undefined,
        isBusy: false,
        waiting: [],
      };
      members.set(localId, member);
    }
    return member;
  }

  #reconcile(member: OwnMember): void {
    const { topic, localId, wanted, actual } = member;
    if (member.isBusy) return;
    if (wanted === actual) {
      member.confirmed = wanted;
      this.#settle(member);
      if (wanted === undefined) this.#forget(member);
      return;
    }
    // A new client can join when the connection is restored. What was promised before is put then too.
    if (!this.#broker.isUp) return this.#fail(member, new EngineError("there is no connection", "not-sent"));
    member.isBusy = true;
    const incarnation = this.#incarnation;
    const { roster } = this.#broker.connection;
    this.#broker
      .now(() => roster!.put(topic, `${incarnation}.${localId}`, wanted))
      .then(
        () => this.#done(member, incarnation, wanted),
        (error: EngineError) => this.#done(member, incarnation, null, error),
      );
  }

  #done(member: OwnMember, incarnation: Incarnation, actual: string | undefined | null, error?: EngineError): void {
    member.isBusy = false;
    if (incarnation === this.#incarnation) member.actual = actual;
    if (error === undefined) return this.#reconcile(member);
    this.#fail(member, error);
    if (this.#broker.isUp) setDeadline(this, RETRY_MS);
  }

  /** Reports a failure to those who wait. Then the change is not wanted any more. */
  #fail(member: OwnMember, error: EngineError): void {
    if (member.waiting.length === 0) return;
    member.wanted = member.confirmed;
    this.#settle(member, error);
    // What was not written needs no removal.
    if (member.wanted === undefined && member.actual === undefined) this.#forget(member);
  }

  #settle(member: OwnMember, error?: EngineError): void {
    for (const settle of member.waiting.splice(0)) settle(error);
  }

  #forget({ topic, localId }: OwnMember): void {
    const members = this.#members.get(topic);
    members?.delete(localId);
    if (members?.size === 0) this.#members.delete(topic);
  }
}

/**
 * Returns the id of the peer of a roster's member: without the incarnation, because the peer does not notice that its node was given
 * up.
 */
export type PeerIdOf = (id: string) => string;

/** Returns at most `limit` members, each once. */
export function membersOf({ members }: RosterPart, limit: number, peerIdOf: PeerIdOf): TopicMember[] {
  const found = new Map<string, unknown>();
  for (const [id, as] of members) {
    const peerId = peerIdOf(id);
    if (found.size < limit || found.has(peerId)) found.set(peerId, parsed(as));
  }
  return [...found].map(([id, as]) => ({ id, as }));
}

/** Any process that can write to the broker may have written it. */
function parsed(json: string): unknown {
  try {
    return JSON.parse(json) as unknown;
  } catch {
    return null;
  }
}

/**
 * A replica of the members of one topic, as a state machine without I/O. Its driver subscribes to the channel first, and then lists
 * the members.
 */
export class Replica {
  readonly #peerIdOf: PeerIdOf;
  readonly #emit: (event: "joined" | "left", member: TopicMember) => void;
  /** The last version that was applied; `undefined` until the members were listed. */
  #version: number | undefined;
  readonly #members = new Map<string, string>();
  /** By the id of its peer: how many incarnations of its node have each member, and the `as` that was emitted last. */
  readonly #peers = new Map<string, { readonly count: number; readonly as: string }>();
  /** Whether a change has shown that the members must be listed. */
  needsList = true;
  /** Changes behind one that is missing, by version. Without them, a busy roster would be listed again after each list. */
  readonly #ahead = new Map<number, readonly [id: string, as: string | undefined]>();
  /** Whether a change was not kept. */
  #hasDropped = false;
  /** Whether the members are being listed. */
  #isListing = false;

  constructor(peerIdOf: PeerIdOf, emit: (event: "joined" | "left", member: TopicMember) => void) {
    this.#peerIdOf = peerIdOf;
    this.#emit = emit;
  }

  /** Whether the members were listed. */
  get isKnown(): boolean {
    return this.#version !== undefined;
  }

  /** The number of members. */
  get size(): number {
    return this.#peers.size;
  }

  /** Returns true if a peer is a member. */
  has(peerId: string): boolean {
    return this.#peers.has(peerId);
  }

  /** Takes a change. `as`: `undefined` if the member left. */
  changed(version: number, id: string, as: string | undefined): void {
    if (this.#version === undefined || version > this.#version + 1) {
      this.needsList = true;
      if (this.#ahead.size < MAX_AHEAD) this.#ahead.set(version, [id, as]);
      else this.#hasDropped = true;
    } else if (version === this.#version + 1) {
      this.#version = version;
      this.#apply(id, as);
      this.#applyAhead();
    } else if (this.#isListing && this.#ahead.size < MAX_AHEAD) {
      // If the broker has lost its last changes, the list is older, and this change follows it.
      this.#ahead.set(version, [id, as]);
    }
  }

  #applyAhead(): void {
    for (let change; (change = this.#ahead.get(this.#version! + 1)) !== undefined;) {
      this.#version!++;
      this.#apply(...change);
    }
    for (const version of this.#ahead.keys()) if (version <= this.#version!) this.#ahead.delete(version);
  }

  /** Begins to list. Returns the version for `listed`. */
  request(): number | undefined {
    this.needsList = this.#hasDropped = false;
    this.#isListing = true;
    return this.#version;
  }

  /** Takes the list for a request. */
  listed(request: number | undefined, { version, members }: RosterPart): void {
    this.#isListing = false;
    if (request !== this.#version) {
      // Changes came while the members were listed. A list that is older than they are says nothing.
      if (version !== 0 && version <= this.#version!) return;
      // A roster without a version is empty, now or before these changes.
      if (version === 0) {
        this.needsList = true;
        return;
      }
    }
    const isFirst = this.#version === undefined;
    // Also if it is smaller: the broker may have lost its last changes.
    this.#version = version;
    const listed = new Map<string, string>(members);
    // Joined before left: a member that returned as another incarnation is there the whole time.
    for (const [id, as] of listed) this.#apply(id, as, isFirst);
    for (const id of this.#members.keys()) if (!listed.has(id)) this.#apply(id, undefined);
    this.#applyAhead();
    // What is left is behind a change that is still missing, or nothing that this list has to do with.
    if (this.#ahead.size === 0) this.needsList = this.#hasDropped;
    else this.#ahead.clear();
  }

  #apply(id: string, as: string | undefined, isSilent = false): void {
    const before = this.#members.get(id);
    if (before === as) return;
    if (as === undefined) this.#members.delete(id);
    else this.#members.set(id, as);
    const peerId = this.#peerIdOf(id);
    const peer = this.#peers.get(peerId) ?? { count: 0, as: undefined };
    const count = peer.count + Number(as !== undefined) - Number(before !== undefined);
    // One incarnation of its node may have left another.
    const last = as ?? peer.as!;
    if (count === 0) this.#peers.delete(peerId);
    else this.#peers.set(peerId, { count, as: last });
    if (!isSilent && (count === 0 || last !== peer.as))
      this.#emit(count === 0 ? "left" : "joined", { id: peerId, as: parsed(last) });
  }
}
