/**
 * The members of topics in JetStream. The subject of a topic has the last change of each member, and the last change of all, which has the
 * version. What a change supersedes is deleted after it.
 */
import type { EngineRoster, Incarnation, LeaseState, RosterId, RosterPart } from "../fleet/engine.js";
import type { NatsConnection } from "./connection.js";
import type { NatsLeases } from "./leases.js";
import { nameOf } from "./names.js";
import { Chains, type Kept } from "./streams.js";

/** How many topics of a dead incarnation are reaped at once. */
const REAPED_AT_ONCE = 32;

export class NatsRoster implements EngineRoster {
  readonly #connection: NatsConnection;
  readonly #leases: NatsLeases;
  readonly #chains: Chains;
  /** The members that this node has put, by topic, and the sequence of the message. */
  readonly #own = new Map<string, Map<RosterId, number | undefined>>();
  /** Incarnations that are being reaped. */
  readonly #reaping = new Set<Incarnation>();
  #isSearched = false;

  constructor(connection: NatsConnection, leases: NatsLeases) {
    this.#connection = connection;
    this.#leases = leases;
    this.#chains = new Chains(connection, "w");
  }

  /** Forgets where messages are, because the stream may be another one. */
  forget(): void {
    this.#chains.forget();
    this.#isSearched = false;
    for (const members of this.#own.values()) for (const id of members.keys()) members.set(id, undefined);
  }

  async put(topic: string, id: RosterId, as: string | undefined): Promise<void> {
    return this.#chains.inOrder(topic, async () => {
      const members = this.#own.get(topic);
      const known = members?.get(id);
      // A member that was never put has no message, unless it is removed for another node.
      const isNew = as !== undefined && members?.has(id) !== true;
      const superseded = known !== undefined ? [known] : isNew ? [] : await this.#messagesOf(topic, id);
      if (as === undefined && superseded.length === 0) return this.#forgetOwn(topic, id);
      if (as !== undefined) this.#own.set(topic, (members ?? new Map()).set(id, undefined));
      const { seq, before } = await this.#chains.append(topic, as ?? "", async (last) => ({
        kind: as === undefined ? "l" : "j",
        epoch: "",
        number: last === undefined ? await this.#firstVersion() : last.number + 1,
        id,
      }));
      if (as === undefined) this.#forgetOwn(topic, id);
      else this.#own.get(topic)?.set(id, seq);
      // What was only the last change is superseded too.
      if (before?.kind === "l") superseded.push(before.seq);
      await this.#remove(superseded);
      if (as === undefined) await this.#removeIfEmpty(topic, seq);
    });
  }

  #forgetOwn(topic: string, id: RosterId): void {
    const members = this.#own.get(topic);
    members?.delete(id);
    if (members?.size === 0) this.#own.delete(topic);
  }

  /** Returns a version that is greater than all before: each change has taken a sequence, and each later stream was created later. */
  async #firstVersion(): Promise<number> {
    const { created, state } = await this.#chains.ask(({ streams }) => streams.info(this.#chains.name));
    return Date.parse(created) * 1_000 + state.last_seq + 1;
  }

  async #messagesOf(topic: string, id: RosterId): Promise<number[]> {
    return (await this.#read(topic)).flatMap((kept) => (kept.id === id && kept.kind === "j" ? [kept.seq] : []));
  }

  async #remove(sequences: readonly number[]): Promise<void> {
    // One that is gone already is no error. One that stays is superseded nevertheless.
    await Promise.all(
      sequences.map((seq) =>
        this.#chains.ask(({ streams }) => streams.deleteMessage(this.#chains.name, seq, false)).catch(() => {}),
      ),
    );
  }

  /** Removes the last change of a topic that has no members, unless another one has come. */
  async #removeIfEmpty(topic: string, seq: number): Promise<void> {
    const filter = this.#chains.subject(topic);
    const { state } = await this.#chains.ask(({ streams }) =>
      streams.info(this.#chains.name, { subjects_filter: filter }),
    );
    if (state.subjects?.[filter] === 1)
      await this.#chains.ask(({ streams }) => streams.purge(this.#chains.name, { filter, seq: seq + 1 }));
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
    await this.#leases.enter(incarnation, leaseMs);
  }

  async beat(incarnation: Incarnation, leaseMs: number): Promise<LeaseState> {
    const state = await this.#leases.beat(incarnation, leaseMs);
    if (!state.isMine) return state;
    if (!this.#isSearched) {
      this.#isSearched = true;
      void this.#search(leaseMs).catch(() => (this.#isSearched = false));
    }
    for (const dead of this.#leases.expired(state.live)) void this.#reap(dead);
    return state;
  }

  /** Finds members of incarnations that nobody hears, such as those of a fleet that was killed. */
  async #search(leaseMs: number): Promise<void> {
    await this.#forTopics(async (topic) => {
      for (const { id } of await this.#read(topic))
        this.#leases.found(id.slice(0, id.lastIndexOf(".")) as Incarnation, leaseMs);
    });
  }

  async #forTopics(visit: (topic: string) => Promise<void>): Promise<void> {
    const { state } = await this.#chains.ask(({ streams }) =>
      streams.info(this.#chains.name, { subjects_filter: this.#connection.names.all("w") }),
    );
    const topics = Object.keys(state.subjects ?? {}).map((subject) => nameOf(subject.split(".").at(-1)!));
    for (let i = 0; i < topics.length; i += REAPED_AT_ONCE)
      await Promise.all(topics.slice(i, i + REAPED_AT_ONCE).map(visit));
  }

  /** Removes the members of an incarnation. Never rejects: what is left is reaped at a later beat. */
  async #reap(incarnation: Incarnation): Promise<void> {
    if (this.#reaping.has(incarnation)) return;
    this.#reaping.add(incarnation);
    try {
      await this.#forTopics(async (topic) => {
        const ids = new Set((await this.#read(topic)).map(({ id }) => id as RosterId));
        for (const id of ids) if (id.startsWith(`${incarnation}.`)) await this.put(topic, id, undefined);
      });
      this.#leases.giveUp(incarnation);
    } catch {
      // Without a connection. It is still heard of as expired.
    } finally {
      this.#reaping.delete(incarnation);
    }
  }

  /** Removes what this node has put. */
  async leave(): Promise<void> {
    const all = [...this.#own].flatMap(([topic, members]) => [...members.keys()].map((id) => [topic, id] as const));
    await Promise.all(all.map(([topic, id]) => this.put(topic, id, undefined)));
  }
}
