/**
 * The members of topics in JetStream. The subject of a topic has the last change of each member, and the last change of all, which has the
 * version. What a change supersedes is deleted after it. Joins are deleted before leaves: a join without its leave would be a member. For each
 * topic and incarnation, one more subject has a message which says that the incarnation has members there, so that they are found if it
 * dies. One subject for each incarnation has a message which says that the incarnation lives, and how long its lease is. If that message is
 * gone, the stream was purged.
 */
import {
  EngineError,
  type EngineRoster,
  type Incarnation,
  type LeaseState,
  type RosterId,
  type RosterPart,
} from "../fleet/engine.js";
import { Chains, type Head, type Kept, type Placed } from "./chains.js";
import { COMMAND_MS } from "./client.js";
import type { NatsConnection } from "./connection.js";
import { isLeaseMs, type NatsLeases } from "./leases.js";
import { Names } from "./names.js";

/** How many topics of a dead incarnation are reaped at once. */
const REAPED_AT_ONCE = 32;

/** The members that this node has put into one topic as one incarnation. */
interface Own {
  readonly topic: string;
  readonly incarnation: Incarnation;
  /** The sequence of the message which says that there are members; `Infinity` if it is not known. */
  seq: number;
  /** The sequence of the message that has the member; `undefined` if it is not known. */
  readonly members: Map<RosterId, number | undefined>;
  /** Whether the stream, in the life that this node knows, says that there are members. */
  isListed: boolean;
}

/** What changes of a topic have superseded. */
interface Superseded {
  readonly topic: string;
  /** The sequences of joins. */
  readonly joins: number[];
  /** The sequences of leaves, which are deleted when no join is left. */
  readonly leaves: number[];
  /** The sequence of the last of these changes if it is a leave, otherwise 0. If nothing else is left of the topic, it is deleted too. */
  left: number;
}

/** Adds what a change supersedes: these joins, and the change before it if that is a leave, whose joins may not be deleted yet. */
function supersede(superseded: Superseded, joins: readonly number[], before: Placed | undefined): void {
  superseded.joins.push(...joins);
  if (before?.kind !== "l") return;
  superseded.joins.push(...(before.superseded ?? []));
  superseded.leaves.push(before.seq);
}

function incarnationOf(id: RosterId): Incarnation {
  return id.slice(0, id.lastIndexOf(".")) as Incarnation;
}

export class NatsRoster implements EngineRoster {
  readonly #connection: NatsConnection;
  readonly #leases: NatsLeases;
  readonly #chains: Chains;
  /** By the subject that says where they are. */
  readonly #own = new Map<string, Own>();
  /** By incarnation of this node, the sequence of the message which says that it lives; `Infinity` if it is not known. */
  readonly #entered = new Map<Incarnation, number>();
  /** Incarnations of this node that are entering, or whose message is put again. */
  readonly #entering = new Map<Incarnation, Promise<void>>();
  /** What could not be deleted. The next beat tries again. */
  readonly #undeleted = new Set<Superseded>();
  /** Incarnations that are being reaped. */
  readonly #reaping = new Set<Incarnation>();
  #hasLeft = false;
  #isSearched = false;

  constructor(connection: NatsConnection, leases: NatsLeases) {
    this.#connection = connection;
    this.#leases = leases;
    this.#chains = new Chains(connection, "w");
  }

  /** Forgets where messages are, because the stream has another life. A change that was in progress may be in it. */
  forget(): void {
    this.#chains.forget();
    this.#undeleted.clear();
    for (const incarnation of this.#entered.keys()) this.#entered.set(incarnation, Infinity);
    for (const own of this.#own.values()) {
      own.isListed = false;
      own.seq = Infinity;
      for (const id of own.members.keys()) own.members.set(id, undefined);
    }
  }

  /** The connection is new. At the next beat, looks for members of incarnations without a lease. */
  searchAgain(): void {
    this.#isSearched = false;
  }

  /** Returns the sequence of the first message that this node needs; `Infinity` if there is none. */
  readonly firstOwn = (): number => {
    let first = Infinity;
    for (const [incarnation, seq] of this.#entered) if (seq < first && this.#leases.holds(incarnation)) first = seq;
    for (const { incarnation, seq } of this.#own.values())
      if (seq < first && this.#leases.holds(incarnation)) first = seq;
    return first;
  };

  note(topic: string, placed: Placed): void {
    this.#chains.note(topic, placed);
  }

  async put(topic: string, id: RosterId, as: string | undefined): Promise<void> {
    return this.#chains.inOrder(topic, async () => {
      if (as === undefined) await this.#take(topic, id);
      else await this.#add(topic, id, as);
    });
  }

  async #add(topic: string, id: RosterId, as: string): Promise<void> {
    const own = this.#ownOf(topic, incarnationOf(id));
    const isNew = !own.members.has(id);
    const known = own.members.get(id);
    // If `append` rejects, the message may be there nevertheless.
    own.members.set(id, undefined);
    const makeHead = async (last: Placed | undefined, mayBeNewLife: boolean): Promise<Head> => {
      // In another life of the stream, the member would not be found if this node dies before its next beat.
      if (mayBeNewLife) await this.#connection.checkStreams();
      if (!own.isListed) await this.#list(own);
      return this.#headBehind(last, "j", id);
    };
    const { seq, before } = placeOf(await this.#chains.append(topic, as, makeHead));
    own.members.set(id, seq);
    // Without a message before it, NATS also accepts it in a life of the stream that has begun meanwhile.
    if (before === undefined) await this.#connection.checkStreams();
    if (!own.isListed) await this.#list(own);
    const joins = known !== undefined ? [known] : isNew ? [] : await this.#earlierOf(topic, id, seq);
    const superseded: Superseded = { topic, joins: [], leaves: [], left: 0 };
    supersede(superseded, joins, before);
    // If an earlier join is left, all of them have to be found when the member leaves.
    if (!(await this.#delete(superseded))) own.members.set(id, undefined);
  }

  /** Returns the members of this node in a topic. */
  #ownOf(topic: string, incarnation: Incarnation): Own {
    const subject = this.#connection.names.owned(incarnation, topic);
    const found = this.#own.get(subject);
    if (found !== undefined) return found;
    const own: Own = { topic, incarnation, seq: Infinity, members: new Map(), isListed: false };
    this.#own.set(subject, own);
    return own;
  }

  /** Puts a message under a subject. Returns its sequence. */
  async #say(subject: string, body = ""): Promise<number> {
    const { publisher } = this.#connection.present().jetstream!;
    return (await this.#connection.untilLost(publisher.publish(subject, body, { timeout: COMMAND_MS }))).seq;
  }

  /** Says in the stream that there are members. */
  async #list(own: Own): Promise<void> {
    // Set before the message is put: `forget` resets it if the stream gets another life meanwhile.
    own.isListed = true;
    try {
      const seq = await this.#say(this.#connection.names.owned(own.incarnation, own.topic));
      // In another life, the message would have to be put again.
      if (own.isListed) own.seq = seq;
    } catch (error) {
      own.isListed = false;
      throw error;
    }
  }

  async #take(topic: string, id: RosterId): Promise<void> {
    const subject = this.#connection.names.owned(incarnationOf(id), topic);
    const own = this.#own.get(subject);
    const seq = own?.members.get(id);
    if (seq === undefined) await this.#takeAll(topic, (one) => one === id);
    else {
      const makeHead = (last: Placed | undefined): Promise<Head> => this.#headBehind(last, "l", id, [seq]);
      const left = placeOf(await this.#chains.append(topic, "", makeHead));
      const superseded: Superseded = { topic, joins: [], leaves: [], left: left.seq };
      supersede(superseded, [seq], left.before);
      await this.#delete(superseded);
    }
    own?.members.delete(id);
    if (own?.members.size !== 0) return;
    this.#own.delete(subject);
    await this.#purge(subject);
  }

  /** Removes the members for which `isTaken` is true, as far as they are there. Others may remove them at the same time. */
  async #takeAll(topic: string, isTaken: (id: RosterId) => boolean): Promise<void> {
    let found = await this.#find(topic, isTaken);
    const superseded: Superseded = { topic, joins: [], leaves: [], left: 0 };
    try {
      for (const id of found.sequences.keys()) {
        const left = await this.#chains.append(topic, "", async (last) => {
          // Another node has changed the topic meanwhile. NATS accepts the message only behind what was read.
          if (last?.seq !== found.at) found = await this.#find(topic, isTaken);
          const joins = found.sequences.get(id);
          return joins === undefined ? undefined : this.#headBehind(last, "l", id, joins);
        });
        if (left === undefined) continue;
        const { seq, before } = placeOf(left);
        supersede(superseded, found.sequences.get(id)!, before);
        found.sequences.delete(id);
        found.at = superseded.left = seq;
      }
    } finally {
      await this.#delete(superseded);
    }
  }

  /** Returns the sequences of members, and that of the last change. */
  async #find(
    topic: string,
    isWanted: (id: RosterId) => boolean,
  ): Promise<{ at: number; sequences: Map<RosterId, number[]> }> {
    const kept = await this.#read(topic);
    const sequences = new Map<RosterId, number[]>();
    for (const { id, kind, seq } of kept as (Kept & { id: RosterId })[])
      if (kind === "l") sequences.delete(id);
      else if (isWanted(id)) sequences.set(id, [...(sequences.get(id) ?? []), seq]);
    return { at: kept.at(-1)?.seq ?? 0, sequences };
  }

  async #headBehind(
    last: Placed | undefined,
    kind: "j" | "l",
    id: RosterId,
    superseded?: readonly number[],
  ): Promise<Head> {
    // Perhaps the stream was emptied, and its next life has not begun. For a join, `#add` has checked that.
    if (last === undefined && kind === "l") await this.#connection.checkStreams();
    const number = last === undefined ? await this.#firstVersion() : last.number + 1;
    return { kind, epoch: "", number, id, ...(superseded === undefined ? {} : { superseded }) };
  }

  /** Returns a version that is greater than all before: each change has taken a sequence, and each later stream was created later. */
  async #firstVersion(): Promise<number> {
    const { created, state } = await this.#chains.ask(({ streams }) => streams.info(this.#chains.name));
    return Date.parse(created) * 1_000 + state.last_seq + 1;
  }

  async #earlierOf(topic: string, id: RosterId, seq: number): Promise<number[]> {
    const kept = await this.#read(topic);
    return kept.filter((one) => one.id === id && one.seq < seq).map((one) => one.seq);
  }

  /** Deletes what is superseded. Returns false if something may be left, which the next beat deletes. Never rejects. */
  async #delete(superseded: Superseded): Promise<boolean> {
    const { topic, joins, leaves, left } = superseded;
    try {
      await Promise.all([...new Set(joins)].map((seq) => this.#deleteOne(seq)));
      await Promise.all(leaves.map((seq) => this.#deleteOne(seq)));
      if (left > 0) await this.#deleteIfEmpty(topic, left);
      return true;
    } catch {
      this.#undeleted.add(superseded);
      return false;
    }
  }

  async #deleteOne(seq: number): Promise<void> {
    try {
      await this.#chains.ask(({ streams }) => streams.deleteMessage(this.#chains.name, seq, false));
    } catch (error) {
      // NATS also refuses to delete what is gone already.
      if ((await this.#chains.at(seq)) !== undefined) throw error;
    }
  }

  /** Deletes what could not be deleted before. Never rejects. */
  async #deleteAgain(): Promise<void> {
    const undeleted = [...this.#undeleted];
    this.#undeleted.clear();
    await Promise.all(undeleted.map((superseded) => this.#delete(superseded)));
  }

  /** Deletes the last change of a topic that has no members. `seq`: the sequence of a leave. */
  async #deleteIfEmpty(topic: string, seq: number): Promise<void> {
    const filter = this.#chains.subject(topic);
    const { state } = await this.#chains.ask(({ streams }) =>
      streams.info(this.#chains.name, { subjects_filter: filter }),
    );
    if (state.subjects?.[filter] !== 1) return;
    await this.#purge(filter, seq + 1);
    // What is left is a later change. If it is a leave, its node may have found messages that only this one deletes.
    const last = await this.#chains.last(topic);
    if (last?.kind === "l") await this.#deleteIfEmpty(topic, last.seq);
  }

  async #purge(filter: string, seq?: number): Promise<void> {
    const options = seq === undefined ? { filter } : { filter, seq };
    await this.#chains.ask(({ streams }) => streams.purge(this.#chains.name, options));
  }

  async #read(topic: string): Promise<Kept[]> {
    const last = await this.#chains.last(topic);
    const found: Kept[] = [];
    if (last !== undefined) await this.#chains.read(topic, last.seq, (kept) => found.push(kept) > 0);
    return found;
  }

  async list(topic: string): Promise<RosterPart> {
    const members = new Map<RosterId, string>();
    let version = 0;
    for (const { id, kind, number, body } of await this.#read(topic)) {
      version = number;
      if (kind === "j") members.set(id as RosterId, body);
      else members.delete(id as RosterId);
    }
    return members.size === 0 ? { version: 0, members: [] } : { version, members: [...members] };
  }

  async enter(incarnation: Incarnation, leaseMs: number): Promise<void> {
    await this.#untilEntered(incarnation, async () => {
      await this.#leases.enter(incarnation, leaseMs);
      // Otherwise what is put now stays in the stream.
      if (this.#hasLeft) throw new EngineError("the engine nats is closed", "not-sent");
      this.#entered.set(incarnation, Infinity);
      await this.#sayEntered(incarnation);
    });
  }

  /** Runs a step of entering, for which `leave` waits. */
  async #untilEntered(incarnation: Incarnation, step: () => Promise<void>): Promise<void> {
    const entering = step();
    this.#entering.set(incarnation, entering);
    try {
      await entering;
    } finally {
      this.#entering.delete(incarnation);
    }
  }

  /** Says in the stream that an incarnation lives. Never rejects: if the stream has no room, the next beat tries again. */
  async #sayEntered(incarnation: Incarnation): Promise<void> {
    try {
      const leaseMs = String(this.#leases.leaseMsOf(incarnation) ?? "");
      const seq = await this.#say(this.#connection.names.entered(incarnation), leaseMs);
      // If the stream got another life meanwhile, the lease is lost, and the message is not in that life.
      if (this.#leases.holds(incarnation)) this.#entered.set(incarnation, seq);
    } catch {
      // The lease holds nevertheless. Without the message, this node does not notice if the stream is purged.
    }
  }

  /** Says again what the stream had no room for. */
  #sayAgain(): void {
    if (this.#hasLeft) return;
    for (const [incarnation, seq] of this.#entered)
      if (seq === Infinity && this.#leases.holds(incarnation) && !this.#entering.has(incarnation))
        void this.#untilEntered(incarnation, () => this.#sayEntered(incarnation));
  }

  async beat(incarnation: Incarnation, leaseMs: number): Promise<LeaseState> {
    const state = await this.#leases.beat(incarnation, leaseMs, () => this.#connection.checkStreams());
    if (!state.isMine) return state;
    this.#sayAgain();
    void this.#connection.log!.shorten();
    void this.#retire();
    void this.#deleteAgain();
    if (!this.#isSearched) {
      this.#isSearched = true;
      void this.#search(leaseMs).catch(() => (this.#isSearched = false));
    }
    for (const dead of this.#leases.expired(state.live)) void this.#reap(dead);
    return state;
  }

  /** Finds members of incarnations without a lease, such as those of a fleet that was killed. */
  async #search(leaseMs: number): Promise<void> {
    const owned = await this.#ownedBy();
    const found = [...new Set(owned.map(([incarnation]) => incarnation))];
    await Promise.all(
      found
        .filter((incarnation) => this.#leases.leaseMsOf(incarnation) === undefined)
        .map(async (incarnation) => this.#leases.found(incarnation, (await this.#leaseMsOf(incarnation)) ?? leaseMs)),
    );
  }

  /** Returns how long the lease of an incarnation is, if the stream says that. It had no room if not. */
  async #leaseMsOf(incarnation: Incarnation): Promise<number | undefined> {
    const query = { last_by_subj: this.#connection.names.entered(incarnation) };
    const stored = await this.#chains.ask(({ streams }) => streams.getMessage(this.#chains.name, query));
    const leaseMs = Number(stored?.string());
    return isLeaseMs(leaseMs) ? leaseMs : undefined;
  }

  /**
   * Returns what the stream says of an incarnation; without one, of all. With a topic: the incarnation has members there. Without: it lives.
   */
  async #ownedBy(incarnation?: Incarnation): Promise<(readonly [Incarnation, string | undefined])[]> {
    const filter = this.#connection.names.ownedBy(incarnation);
    const { state } = await this.#chains.ask(({ streams }) =>
      streams.info(this.#chains.name, { subjects_filter: filter }),
    );
    return Object.keys(state.subjects ?? {}).flatMap((subject) => {
      const owned = Names.readOwned(subject);
      return owned === undefined ? [] : [owned];
    });
  }

  /** Removes what this node has put as an incarnation that was given up. Never rejects: the next beat tries again what is left. */
  async #retire(): Promise<void> {
    const retired = [...this.#own].filter(([, { incarnation }]) => !this.#leases.holds(incarnation));
    const ended = [...this.#entered.keys()].filter((incarnation) => !this.#leases.holds(incarnation));
    await Promise.allSettled([
      ...retired.map(async ([subject, { topic, incarnation }]) => {
        await this.#takeFrom(topic, incarnation);
        this.#own.delete(subject);
      }),
      ...ended.map((incarnation) => this.#end(incarnation)),
    ]);
  }

  /** Removes the message which says that an incarnation lives. */
  async #end(incarnation: Incarnation): Promise<void> {
    await this.#purge(this.#connection.names.entered(incarnation));
    this.#entered.delete(incarnation);
  }

  /** Removes the members of an incarnation from one topic; without a topic, the message which says that it lives. */
  async #takeFrom(topic: string | undefined, incarnation: Incarnation): Promise<void> {
    if (topic === undefined) return this.#end(incarnation);
    await this.#chains.inOrder(topic, async () => {
      await this.#takeAll(topic, (id) => id.startsWith(`${incarnation}.`));
      await this.#purge(this.#connection.names.owned(incarnation, topic));
    });
  }

  /** Removes the members of an incarnation. Never rejects: what is left is reaped at a later beat. */
  async #reap(incarnation: Incarnation): Promise<void> {
    if (this.#reaping.has(incarnation)) return;
    this.#reaping.add(incarnation);
    try {
      this.#leases.take(incarnation);
      const owned = await this.#ownedBy(incarnation);
      for (let i = 0; i < owned.length; i += REAPED_AT_ONCE)
        await Promise.all(owned.slice(i, i + REAPED_AT_ONCE).map(([, topic]) => this.#takeFrom(topic, incarnation)));
      this.#leases.giveUp(incarnation);
    } catch {
      this.#leases.takeAgain(incarnation);
    } finally {
      this.#reaping.delete(incarnation);
    }
  }

  /** Removes what this node has put. */
  async leave(): Promise<void> {
    this.#hasLeft = true;
    await Promise.allSettled([...this.#entering.values(), this.#deleteAgain()]);
    const left = [...this.#own].map(async ([subject, { topic, incarnation, members }]) => {
      const ids = [...members];
      if (ids.every(([, seq]) => seq !== undefined)) {
        await Promise.all(ids.map(([id]) => this.put(topic, id, undefined)));
      } else {
        await this.#takeFrom(topic, incarnation);
        this.#own.delete(subject);
      }
    });
    await Promise.all(left);
    await Promise.all([...this.#entered.keys()].map((incarnation) => this.#end(incarnation)));
  }
}

/** Members have no keys, so nothing was appended before. */
function placeOf(appended: Awaited<ReturnType<Chains["append"]>>): { seq: number; before: Placed | undefined } {
  if (appended === undefined || "earlier" in appended) throw new TypeError("a change of a roster has no place");
  return appended;
}
