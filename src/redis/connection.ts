/**
 * The connection of one node to Redis. `connect` finds the primaries, connects to them and subscribes: at the start, after each loss,
 * and when a cluster has moved a slot. node-redis itself never reconnects.
 */
import {
  newEpoch,
  type Channel,
  type EngineConnection,
  type EngineError,
  type EngineFacts,
  type EngineHost,
  type EngineLog,
  type NodeName,
} from "../topics/engine.js";
import { pause, Reconnecting, type Connectable } from "../fleet/reconnecting.js";
import { DemotedError, RedirectError, refusalError } from "./client.js";
import { findLayout, findOpinions, type Layout } from "./layout.js";
import { Link, MAX_BYTES, type Past } from "./link.js";
import { Names, TAG_COUNT } from "./names.js";
import { Numbers } from "./numbers.js";
import { textOf, type Config } from "./options.js";

/** How long a command is repeated that was redirected: until the slot has moved. It did nothing before. */
const REDIRECT_MS = 5_000;
/** The time after a promotion in which the other servers, or the Sentinels, learn of it. */
const KNOWN_MS = { single: 0, cluster: 250, sentinel: 2_500 };
/** By how much the number of a message lengthens it at most. */
const MAX_NUMBER_LENGTH = 128;
/** A cluster whose servers disagree for longer is not reachable. */
const MOST_REDIRECTS = 5;
/** How often a cluster or the Sentinels are asked again which servers are the primaries, also if no command was redirected. */
const LOOK_MS = 5_000;

/** A subscription that the fleet wants. */
interface Subscription {
  readonly channel: Channel;
  readonly tag: number;
}

export class RedisConnection implements EngineConnection, Connectable {
  /** A log is a hash with its epoch and its top, and a stream whose ids begin with the offsets. */
  readonly log: EngineLog = {
    append: async (topic, body, rule, key) => {
      const { tag, keys } = this.#names.log(topic);
      const all = key === undefined ? keys : [...keys, this.#names.publication(topic, tag, key)];
      const limits = [rule.length, rule.bytes, Math.ceil(rule.ttlMs)].map(String);
      const reply = await this.#script(tag, "append", all, [body, newEpoch(), ...limits, key ?? ""]);
      const [epoch, offset] = reply as [string, string];
      return { epoch, offset: Number(offset) };
    },
    read: async (topic, after, { length, bytes }, begin) => {
      const { tag, keys } = this.#names.log(topic);
      const begins = begin === undefined ? ["", "0"] : [newEpoch(), String(Math.ceil(begin.ttlMs))];
      const page = [after, length, bytes].map(String);
      const reply = await this.#script(tag, "read", keys.slice(0, 2), [...page, ...begins]);
      const [epoch, top, entries] = reply as [string, string, [offset: string, body: string][]];
      return { epoch, top: Number(top), entries: entries.map(([offset, body]) => [Number(offset), body]) };
    },
  };
  readonly config: Config;
  /** The name of all clients in `CLIENT LIST`. */
  readonly clientName: string;
  readonly #names: Names;
  readonly #host: EngineHost;
  /** Numbers the messages of a cluster; `undefined` for other places. */
  readonly #numbers: Numbers | undefined;
  /**
   * Whether a message may arrive for which a server has counted no receiver. After a failover, a node may still be subscribed at the
   * demoted server, to which the new primary forwards what is sent. So this is true for a cluster, and for a single server from the
   * moment at which it is found to forward messages. Sentinels end the subscriptions at a server that they demote.
   */
  #undercounts: boolean;
  readonly #loop: Reconnecting;
  /** The servers that are in use, by address. */
  readonly #links = new Map<string, Link>();
  /** The last link to each server of the present layout that was lost, as a later one compares it. */
  readonly #past = new Map<string, Past>();
  /** The primary of each tag. `undefined` while there is none, and while its channels are being subscribed. */
  readonly #linkByTag: (Link | undefined)[] = Array.from({ length: TAG_COUNT });
  /** Tags whose subscriptions a server has ended: they are subscribed again, also if they have the same primary. */
  readonly #ended = new Set<number>();
  /** The server that was the last to end one: it knows first where the slot is now. */
  #reporter: Link | undefined;
  /** Tags that were subscribed again since the last report: their messages may have been missed. */
  readonly #moved = new Set<number>();
  /** What is or will be subscribed, by the name of the channel in Redis. */
  readonly #subscriptions = new Map<string, Subscription>();
  readonly #closing = new AbortController();
  /** Finds the primaries again: soon after the start, and then from time to time. */
  #look: ReturnType<typeof setTimeout> | undefined;
  constructor(config: Config, node: NodeName, host: EngineHost) {
    this.config = config;
    this.clientName = `${config.prefix}-${node}`;
    this.#host = host;
    this.#names = new Names(config.prefix);
    this.#numbers = this.#isCluster ? new Numbers(node) : undefined;
    this.#undercounts = this.#isCluster;
    this.#loop = new Reconnecting("redis", this, host);
    for (const channel of [`n:${node}`, "a:all"] as const) {
      const { name, tag } = this.#names.channel(channel);
      this.#subscriptions.set(name, { channel, tag });
    }
  }

  /** Aborts when the engine closes. */
  get closing(): AbortSignal {
    return this.#closing.signal;
  }

  get #isCluster(): boolean {
    return this.config.place.kind === "cluster";
  }

  async open(): Promise<EngineFacts> {
    await this.#loop.open();
    // The start does not wait until others know of a promotion.
    const { kind } = this.config.place;
    if (kind !== "single") this.#lookLater(KNOWN_MS[kind]);
    const undercounts = (): boolean => this.#undercounts;
    const unmet = (): string[] => [...new Set(this.#allLinks().flatMap(unmetBy))];
    return {
      maxFrameBytes: this.#isCluster ? MAX_BYTES - MAX_NUMBER_LENGTH : MAX_BYTES,
      get undercounts() {
        return undercounts();
      },
      get unmet() {
        return unmet();
      },
    };
  }

  async close(): Promise<void> {
    this.#loop.close();
    this.#closing.abort();
    clearTimeout(this.#look);
    this.drop();
    this.#subscriptions.clear();
  }

  #lookLater(ms: number): void {
    this.#look = setTimeout(() => {
      this.#loop.wake();
      this.#lookLater(LOOK_MS);
    }, ms);
  }

  reconnect(reason: Error): void {
    this.#loop.reconnect(reason);
  }

  async subscribe(channel: Channel): Promise<void> {
    const { name, tag } = this.#names.channel(channel);
    const link = await this.#ownerOf(tag);
    this.#subscriptions.set(name, { channel, tag });
    try {
      await link.subscribe([name]);
      // If the link was lost or the tag has moved, it is not certain where the channel is subscribed.
      if (this.#linkByTag[tag] !== link) throw this.#loop.refusal();
    } catch (error) {
      this.unsubscribe(channel);
      this.#react(link, error as EngineError);
      throw error;
    }
  }

  unsubscribe(channel: Channel): void {
    const { name, tag } = this.#names.channel(channel);
    if (!this.#subscriptions.delete(name)) return;
    this.#linkByTag[tag]?.unsubscribe([name]);
  }

  async send(channel: Channel, frame: string): Promise<number> {
    const { name, tag } = this.#names.channel(channel);
    const link = this.#linkByTag[tag];
    if (link === undefined) throw this.#loop.refusal();
    try {
      const count = await link.publish(name, this.#numbers?.add(frame) ?? frame);
      // Only a count for an inbox says that a node is gone.
      const isUncertain = count === 0 && channel.startsWith("n:") && this.config.place.kind === "single";
      if (isUncertain && !this.#undercounts && (await link.mayForward())) this.#undercounts = true;
      return count;
    } catch (error) {
      // Not repeated, because it would arrive after those that were sent later.
      this.#react(link, error as EngineError);
      throw error;
    }
  }

  #allLinks(): Link[] {
    return [...this.#links.values()];
  }

  #confirmed(): Link[] {
    return this.#allLinks().filter(({ isConfirmed }) => isConfirmed);
  }

  /** Runs a script on the primary of a tag. If a cluster redirects it, which does nothing, repeats it until the tag has moved. */
  async #script(tag: number, ...script: Parameters<Link["script"]>): Promise<unknown> {
    const until = performance.now() + REDIRECT_MS;
    for (;;) {
      const link = await this.#ownerOf(tag);
      try {
        return await link.script(...script);
      } catch (error) {
        this.#react(link, error as EngineError);
        const moving = error instanceof RedirectError && this.#isCluster ? this.#loop.attempt : undefined;
        if (moving === undefined || performance.now() > until) throw error;
        await moving;
      }
    }
  }

  /** Returns the primary of a tag. Waits while a cluster moves the tag. */
  async #ownerOf(tag: number): Promise<Link> {
    if (this.#linkByTag[tag] === undefined && this.#loop.isUp) await this.#loop.attempt;
    const link = this.#linkByTag[tag];
    if (link === undefined) throw this.#loop.refusal();
    return link;
  }

  received(link: Link, name: string, frame: string): void {
    const subscription = this.#subscriptions.get(name);
    // A server that was replaced may send what its successor sends too.
    if (subscription === undefined || this.#linkByTag[subscription.tag] !== link) return;
    const { channel, tag } = subscription;
    const text = this.#numbers === undefined ? frame : this.#numbers.remove(tag, frame);
    if (text !== undefined) this.#host.received(channel, text);
  }

  #react(link: Link, error: EngineError): void {
    if (error instanceof DemotedError) link.lose(error);
    else if (error instanceof RedirectError && this.#isCluster) this.#loop.wake();
  }

  /** A link cannot be used any more. Called once, and not after `close` of the link. */
  lost(link: Link, error: EngineError): void {
    if (this.#links.get(link.address) !== link) return;
    this.#links.delete(link.address);
    this.#past.set(link.address, link.past);
    for (const [tag, one] of this.#linkByTag.entries()) if (one === link) this.#linkByTag[tag] = undefined;
    this.#loop.lost(error);
  }

  /**
   * A server has ended the subscription of a channel, or of unknown channels. A cluster does that when a slot leaves its primary, which may
   * get it back. Subscribes again.
   */
  ended(link: Link, name?: string): void {
    if (name === undefined) for (const [tag, one] of this.#linkByTag.entries()) if (one === link) this.#ended.add(tag);
    const subscription = name === undefined ? undefined : this.#subscriptions.get(name);
    if (subscription !== undefined) this.#ended.add(subscription.tag);
    this.#reporter = link;
    this.#loop.wake();
  }

  get isConnected(): boolean {
    return !this.#linkByTag.includes(undefined);
  }

  /** A server of the cluster that was asked did not know yet where the slot is. */
  isPassing(error: EngineError, failures: number): boolean {
    return error instanceof RedirectError && failures <= MOST_REDIRECTS;
  }

  /** Connects to the primaries, and subscribes the channels of each tag that has another one. Rejects if one cannot be reached. */
  async connect(signal: AbortSignal): Promise<Channel[]> {
    const confirmed = this.#confirmed();
    const reporters = confirmed.filter((link) => link === this.#reporter);
    this.#reporter = undefined;
    const layout = await findLayout(this.config, reporters.length > 0 ? reporters : confirmed, signal);
    const addresses = new Map(layout.addresses.map((address) => [textOf(address), address]));
    // A link may be lost before it is in the map.
    for (const [text, link] of this.#links) if (!link.isUsed) this.#links.delete(text);
    const missing = [...addresses].filter(([text]) => !this.#links.has(text));
    const connecting = missing.map(async ([text, address]) => {
      const link = await Link.connect(this, address, layout.silence);
      if (signal.aborted) link.destroy();
      else this.#links.set(text, link);
    });
    const failures = await failuresOf(connecting);
    await this.#confirm(layout, signal);
    signal.throwIfAborted();

    const tagsOf = new Map<Link, number[]>();
    for (const [tag, address] of layout.addresses.entries()) {
      const link = this.#links.get(textOf(address));
      if (link?.isConfirmed !== true || (this.#linkByTag[tag] === link && !this.#ended.has(tag))) continue;
      // Ended before the new subscription begins: otherwise a message could be received from both.
      this.#linkByTag[tag]?.unsubscribe(this.#namesOf([tag]));
      this.#linkByTag[tag] = undefined;
      this.#ended.delete(tag);
      this.#moved.add(tag);
      tagsOf.set(link, [...(tagsOf.get(link) ?? []), tag]);
    }
    failures.push(...(await failuresOf([...tagsOf].map(([link, tags]) => this.#adopt(link, tags)))));
    signal.throwIfAborted();
    for (const [text, link] of this.#links)
      if (!addresses.has(text)) {
        this.#links.delete(text);
        link.close();
      }
    for (const text of this.#past.keys()) if (!addresses.has(text)) this.#past.delete(text);
    if (failures.length > 0) throw failures[0]!;
    const moved = [...this.#subscriptions.values()].filter(({ tag }) => this.#moved.has(tag));
    if (this.isConnected) this.#moved.clear();
    return moved.map(({ channel }) => channel);
  }

  /**
   * Asks others about each new link. A server that was stopped and replaced reports itself as a primary when it continues. Rejects with a
   * `RedirectError` if one of the others says that it is none.
   */
  async #confirm({ addresses }: Layout, signal: AbortSignal): Promise<void> {
    for (const link of this.#allLinks()) link.isConfirmed ||= link.continues(this.#past.get(link.address));
    const newLinks = this.#allLinks().filter((link) => !link.isConfirmed);
    const isSingle = this.config.place.kind !== "sentinel" && new Set(addresses.map(textOf)).size === 1;
    // The only primary of a cluster cannot be replaced by a vote.
    if (isSingle) for (const link of newLinks) link.isConfirmed = true;
    if (isSingle || newLinks.length === 0) return;
    // After the start, the servers are looked up from time to time.
    if (this.#look !== undefined) await pause(KNOWN_MS[this.config.place.kind], signal);
    for (const link of newLinks) {
      const others = this.#allLinks().filter((one) => one !== link);
      const tags = [...addresses.keys()].filter((tag) => textOf(addresses[tag]!) === link.address);
      for (const opinion of await findOpinions(this.config, others, signal))
        if (tags.some((tag) => textOf(opinion.addresses[tag]!) !== link.address))
          throw new RedirectError(`Redis at ${link.address}: it is being replaced`);
      link.isConfirmed = true;
    }
  }

  /** Makes a link the one of some tags, when it receives their channels. */
  async #adopt(link: Link, tags: readonly number[]): Promise<void> {
    const refusals = (await link.script("probe", [this.#names.probe(tags[0]!)], [])) as string[];
    if (refusals.length > 0) {
      const error = refusalError(link.address, refusals);
      this.#react(link, error);
      throw error;
    }
    const batches = this.#isCluster ? tags.map((tag) => this.#namesOf([tag])) : [this.#namesOf(tags)];
    await Promise.all(batches.map((names) => link.subscribe(names)));
    // Unsubscribed meanwhile.
    const unwanted = batches.flat().filter((name) => !this.#subscriptions.has(name));
    link.unsubscribe(unwanted);
    if (this.#links.get(link.address) === link) for (const tag of tags) this.#linkByTag[tag] = link;
  }

  #namesOf(tags: readonly number[]): string[] {
    return [...this.#subscriptions].flatMap(([name, { tag }]) => (tags.includes(tag) ? [name] : []));
  }

  drop(): void {
    for (const link of this.#links.values()) {
      this.#past.set(link.address, link.past);
      link.destroy();
    }
    this.#links.clear();
    this.#linkByTag.fill(undefined);
  }
}

/** Waits for all. Returns why some have failed. */
async function failuresOf(promises: readonly Promise<unknown>[]): Promise<EngineError[]> {
  const results = await Promise.allSettled(promises);
  return results.flatMap((result) => (result.status === "rejected" ? [result.reason as EngineError] : []));
}

/** Returns the settings of a server that weaken a promise. */
function unmetBy({ address, info, silence }: Link): string[] {
  const unread =
    silence?.unread === undefined
      ? []
      : [`Redis: the user may not read ${silence.unread}, so it is taken to be at least ${silence.ms} ms.`];
  const policy = info.get("maxmemory_policy") ?? "noeviction";
  if (policy === "noeviction" || Number(info.get("maxmemory") ?? 0) === 0) return unread;
  return [
    ...unread,
    `Redis at ${address} may evict logs, because its maxmemory-policy is ${policy} instead of noeviction.`,
  ];
}
