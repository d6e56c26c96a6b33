/** The members of topics, and the leases of nodes, in Redis. */
import type { EngineRoster, Incarnation, LeaseState, RosterId, RosterPart } from "../fleet/engine.js";
import type { Commands } from "./connection.js";

/** How many incarnations without a lease a node remembers. */
const MAX_STRAYS = 1_000;
/** How many topics are reaped or kept at once. */
const TOPICS_AT_ONCE = 32;

/**
 * Redis forgets the members of a topic so long after their last change, in case no node is left that would remove them. While a node has
 * members in the topic, it begins that time anew, ever after a quarter of it.
 */
const KEEP_MS = 86_400_000;
const REFRESH_MS = KEEP_MS / 4;

/** The members that this node has in a topic. */
interface Own {
  readonly ids: Set<RosterId>;
  /** Resolves when the topic is in the list of the incarnation, by which its members are found when it is dead. */
  readonly listed: Promise<unknown>;
}

/** An incarnation that has members and no lease. */
interface Stray {
  /** When it was found. */
  readonly at: number;
  /** Where its members were found. */
  readonly topics: Set<string>;
}

function incarnationOf(id: RosterId): Incarnation {
  return id.slice(0, id.lastIndexOf(".")) as Incarnation;
}

export class RedisRoster implements EngineRoster {
  readonly #commands: Commands;
  /** Incarnations of this node that may have something in Redis, and the topics in which they have members. */
  readonly #incarnations = new Map<Incarnation, Map<string, Own>>();
  /** The lives of the servers that have what the last incarnation has put. */
  #lives = new Set<string>();
  /** Incarnations of this node that were given up. */
  readonly #givenUp = new Set<Incarnation>();
  /** The incarnations that had a lease at the last beat. */
  #live: ReadonlySet<Incarnation> = new Set();
  /** Incarnations whose lease was lost with a server, and whose node died before it noticed that. */
  readonly #strays = new Map<Incarnation, Stray>();
  /** Incarnations that this node has to reap. */
  readonly #dead: Incarnation[] = [];
  #isReaping = false;
  #refreshedAt = performance.now();

  constructor(commands: Commands) {
    this.#commands = commands;
  }

  async put(topic: string, id: RosterId, as: string | undefined): Promise<void> {
    const incarnation = incarnationOf(id);
    const topics = this.#topicsOf(incarnation);
    const own = as === undefined ? topics.get(topic) : this.#list(incarnation, topic);
    if (as !== undefined) own!.ids.add(id);
    // What is put before the topic is listed waits for that in the order of the calls.
    if (own !== undefined) await own.listed;
    await this.#put(topic, id, as);
    if (as !== undefined || own === undefined) return;
    own.ids.delete(id);
    if (own.ids.size > 0 || topics.get(topic) !== own) return;
    topics.delete(topic);
    const { tag, name } = this.#commands.names.topicsOf(incarnation);
    // If it stays in the list, it is only looked at in vain.
    await this.#commands.command(tag, ["SREM", name, topic]).catch(() => {});
  }

  #put(topic: string, id: RosterId, as: string | undefined): Promise<unknown> {
    const { tag, keys } = this.#commands.names.roster(topic);
    return this.#commands.run(tag, "put", keys, () => [id, as ?? ""]);
  }

  #topicsOf(incarnation: Incarnation): Map<string, Own> {
    let topics = this.#incarnations.get(incarnation);
    if (topics === undefined) this.#incarnations.set(incarnation, (topics = new Map()));
    return topics;
  }

  /** Adds a topic to the list of an incarnation, unless it is there. */
  #list(incarnation: Incarnation, topic: string): Own {
    const topics = this.#topicsOf(incarnation);
    const known = topics.get(topic);
    if (known !== undefined) return known;
    const { tag, name } = this.#commands.names.topicsOf(incarnation);
    const own: Own = { ids: new Set(), listed: this.#commands.command(tag, ["SADD", name, topic]) };
    topics.set(topic, own);
    own.listed.catch(() => {
      if (topics.get(topic) === own) topics.delete(topic);
    });
    return own;
  }

  async list(topic: string): Promise<RosterPart> {
    const { tag, keys } = this.#commands.names.roster(topic);
    const fields = (await this.#commands.run(tag, "list", keys.slice(0, 1), () => [])) as string[];
    let version = 0;
    const members: [RosterId, string][] = [];
    for (let i = 0; i < fields.length; i += 2) {
      if (fields[i] === "") version = Number(fields[i + 1]);
      else members.push([fields[i] as RosterId, fields[i + 1]!]);
    }
    for (const [id] of members) this.#find(incarnationOf(id), topic);
    return { version, members };
  }

  /** Remembers an incarnation that has a member and perhaps no lease. */
  #find(incarnation: Incarnation, topic: string): void {
    if (this.#live.has(incarnation) || this.#incarnations.has(incarnation)) return;
    const stray = this.#strays.get(incarnation);
    if (stray !== undefined) stray.topics.add(topic);
    else if (this.#strays.size < MAX_STRAYS)
      this.#strays.set(incarnation, { at: performance.now(), topics: new Set([topic]) });
  }

  /** Reaps the incarnations that have members, and had no lease for as long as one lasts. */
  #reapStrays(leaseMs: number): void {
    for (const [incarnation, { at }] of this.#strays)
      if (this.#live.has(incarnation)) this.#strays.delete(incarnation);
      else if (performance.now() - at > leaseMs) this.#reapLater(incarnation);
  }

  async enter(incarnation: Incarnation, leaseMs: number): Promise<void> {
    this.#topicsOf(incarnation);
    this.#lives = this.#presentLives();
    const { tag, keys } = this.#commands.names.leases();
    await this.#commands.run(tag, "enter", keys.slice(0, 1), () => [incarnation, String(leaseMs)]);
    // What it put after it was given up, the node that reaped it may not have seen.
    for (const one of this.#givenUp) this.#reapLater(one);
    this.#givenUp.clear();
  }

  async beat(incarnation: Incarnation, leaseMs: number): Promise<LeaseState> {
    // A slot may have moved that has no subscription of this node.
    this.#commands.lookAgain();
    await Promise.all(this.#commands.links().map((link) => link.verify()));
    const lives = this.#presentLives();
    const isLost = [...this.#lives].some((life) => !lives.has(life));
    if (!isLost) this.#lives = lives;
    const reply = await this.#beat(incarnation, leaseMs, isLost);
    if (reply === undefined) {
      if (this.#incarnations.has(incarnation)) this.#givenUp.add(incarnation);
      return { isMine: false, live: [] };
    }
    this.#live = new Set(reply.live);
    if (reply.dead !== undefined) this.#reapLater(reply.dead, () => this.#beat(incarnation, leaseMs, false));
    this.#reapStrays(leaseMs);
    if (performance.now() - this.#refreshedAt >= REFRESH_MS) void this.#refresh(incarnation);
    return { isMine: true, live: reply.live };
  }

  /** Returns `undefined` if the lease had expired or is given up. */
  async #beat(
    incarnation: Incarnation,
    leaseMs: number,
    isGivenUp: boolean,
  ): Promise<{ live: Incarnation[]; dead: Incarnation | undefined } | undefined> {
    const { tag, keys } = this.#commands.names.leases();
    const args = [incarnation, String(leaseMs), isGivenUp ? "1" : "0"];
    const reply = (await this.#commands.run(tag, "beat", keys, () => args)) as
      [1, Incarnation[], Incarnation | ""] | [0];
    return reply[0] === 1 ? { live: reply[1], dead: reply[2] || undefined } : undefined;
  }

  /** Keeps the members in the topics of an incarnation. Never rejects: without a connection, the next beat tries again. */
  async #refresh(incarnation: Incarnation): Promise<void> {
    this.#refreshedAt = performance.now();
    const topics = [...this.#topicsOf(incarnation).keys()];
    try {
      for (let i = 0; i < topics.length; i += TOPICS_AT_ONCE)
        await Promise.all(topics.slice(i, i + TOPICS_AT_ONCE).map((topic) => this.#keep(topic)));
    } catch {
      this.#refreshedAt = -Infinity;
    }
  }

  #keep(topic: string): Promise<unknown> {
    const { tag, keys } = this.#commands.names.roster(topic);
    return this.#commands.command(tag, ["PEXPIRE", keys[0], String(KEEP_MS)]);
  }

  #presentLives(): Set<string> {
    return new Set(this.#commands.links().map(({ life }) => life));
  }

  /** Reaps an incarnation, one at a time. Then asks for the next one. */
  #reapLater(incarnation: Incarnation, next?: () => Promise<{ dead: Incarnation | undefined } | undefined>): void {
    if (!this.#dead.includes(incarnation)) this.#dead.push(incarnation);
    if (!this.#isReaping) void this.#reapAll(next);
  }

  async #reapAll(next?: () => Promise<{ dead: Incarnation | undefined } | undefined>): Promise<void> {
    this.#isReaping = true;
    try {
      for (;;) {
        const dead = this.#dead.shift() ?? (await next?.())?.dead;
        if (dead === undefined) break;
        await this.#reap(dead);
      }
    } catch {
      // Without a connection. Another node reaps it, or this one when it beats again.
      this.#dead.length = 0;
    }
    this.#isReaping = false;
  }

  /**
   * Removes the members of an incarnation, then its list, and at last its lease. So it can be repeated from any state. A server that was
   * replaced may have lost the list: the topics that this node knows are looked at too.
   */
  async #reap(incarnation: Incarnation): Promise<void> {
    const list = this.#commands.names.topicsOf(incarnation);
    const own = this.#incarnations.get(incarnation);
    const found = this.#strays.get(incarnation)?.topics ?? [];
    for (let isFirst = true; ; isFirst = false) {
      const listed = [...((await this.#commands.command(list.tag, ["SMEMBERS", list.name])) as Iterable<string>)];
      const topics = isFirst ? [...new Set([...listed, ...(own?.keys() ?? []), ...found])] : listed;
      if (topics.length === 0) break;
      for (let i = 0; i < topics.length; i += TOPICS_AT_ONCE) {
        const part = topics.slice(i, i + TOPICS_AT_ONCE);
        await Promise.all(part.map((topic) => this.#reapTopic(topic, incarnation)));
        await this.#commands.command(list.tag, ["SREM", list.name, ...part]);
      }
    }
    const { tag, keys } = this.#commands.names.leases();
    for (const key of keys) await this.#commands.command(tag, ["ZREM", key, incarnation]);
    if (this.#incarnations.get(incarnation) === own) this.#incarnations.delete(incarnation);
    this.#strays.delete(incarnation);
  }

  async #reapTopic(topic: string, incarnation: Incarnation): Promise<void> {
    const { tag, keys } = this.#commands.names.roster(topic);
    let cursor = "0";
    do cursor = String(await this.#commands.run(tag, "reap", keys, () => [incarnation, cursor]));
    while (cursor !== "0");
  }

  /** Removes what all incarnations of this node have in Redis. Never rejects: what is left is reaped when the lease ends. */
  async leave(): Promise<void> {
    for (const incarnation of this.#incarnations.keys()) await this.#reap(incarnation).catch(() => {});
  }
}
