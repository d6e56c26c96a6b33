/**
 * The connection of one node to Redis. One loop finds the primaries, connects to them and subscribes: at the start, after each loss,
 * and when a cluster has moved a slot. node-redis itself never reconnects.
 */
import { setTimeout as delay } from "node:timers/promises";
import {
  EngineError,
  type Channel,
  type EngineConnection,
  type EngineFacts,
  type EngineHost,
  type NodeName,
} from "../fleet/engine.js";
import { DemotedError, FinalError, RedirectError, refusalError } from "./client.js";
import { findLayout, findOpinions, type Layout } from "./layout.js";
import { Link, MAX_BYTES, type LinkHost, type LinkSettings } from "./link.js";
import { RedisLog } from "./log.js";
import { Names, TAG_COUNT } from "./names.js";
import { Numbers } from "./numbers.js";
import { textOf, type Config } from "./options.js";
import type { ScriptName } from "./scripts.js";

/** The delay of an attempt to connect is random, up to a bound that doubles with each failure. */
const FIRST_DELAY_MS = 100;
const MAX_DELAY_MS = 20_000;
/** How often the servers of a cluster are looked up again because it has redirected commands. */
const LOOKUP_DELAY_MS = 50;
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

/** What logs need of the connection. */
export interface Commands {
  readonly names: Names;
  /** Runs a script on the primary of a tag. Waits while a cluster moves the tag. `args` may depend on the link. */
  run(
    tag: number,
    script: ScriptName,
    keys: readonly string[],
    args: (link: Link) => readonly string[],
  ): Promise<unknown>;
}

export class RedisConnection implements EngineConnection, Commands {
  readonly names: Names;
  readonly log: RedisLog;
  readonly #config: Config;
  readonly #host: EngineHost;
  readonly #linkSettings: LinkSettings;
  /** Numbers the messages of a cluster; `undefined` for other places. */
  readonly #numbers: Numbers | undefined;
  /**
   * Whether a message may arrive for which a server has counted no receiver. After a failover, a node may still be subscribed at the
   * demoted server, to which the new primary forwards what is sent. So this is true for a cluster, and for a single server from the
   * moment at which it is found to forward messages. Sentinels end the subscriptions at a server that they demote.
   */
  #undercounts: boolean;
  #state: "new" | "starting" | "up" | "down" | "closed" = "new";
  /** The servers that are in use, by address. */
  readonly #links = new Map<string, Link>();
  /** The last link to each server that was lost. */
  readonly #past = new Map<string, Link>();
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
  /** Channels that are subscribed in the next microtask, in one command. */
  readonly #batches = new Map<Link, { names: string[]; done: Promise<void> }>();
  readonly #closing = new AbortController();
  /** Whether the loop runs, and whether it has to run once more. */
  #isMaintaining = false;
  #isStale = false;
  /** Finds the primaries again: soon after the start, and then from time to time. */
  #look: ReturnType<typeof setTimeout> | undefined;
  /** Called when the loop has found the primaries again, or could not. */
  readonly #waiting: (() => void)[] = [];
  readonly #linkHost: LinkHost = {
    received: (link, name, frame) => this.#received(link, name, frame),
    lost: (link, error) => this.#lost(link, error),
    ended: (link, name) => this.#onEnded(link, name),
  };

  constructor(config: Config, node: NodeName, host: EngineHost) {
    this.#config = config;
    this.#host = host;
    this.names = new Names(config.prefix);
    const { login, isDurable } = config;
    this.#linkSettings = {
      login,
      isDurable,
      isCluster: this.#isCluster,
      name: `${config.prefix}-${node}`,
    };
    this.#numbers = this.#isCluster ? new Numbers(node) : undefined;
    this.#undercounts = this.#isCluster;
    this.log = new RedisLog(this);
    for (const channel of [`n:${node}`, "a:all"] as const) {
      const { name, tag } = this.names.channel(channel);
      this.#subscriptions.set(name, { channel, tag });
    }
  }

  get #isCluster(): boolean {
    return this.#config.place.kind === "cluster";
  }

  get #isClosed(): boolean {
    return this.#state === "closed";
  }

  async open(): Promise<EngineFacts> {
    if (this.#state !== "new") throw this.#refusal();
    this.#state = "starting";
    const error = await this.#maintain();
    if (error !== undefined) {
      await this.close();
      throw error;
    }
    if (this.#isClosed) throw this.#refusal();
    // The start does not wait until others know of a promotion.
    const { kind } = this.#config.place;
    if (kind !== "single") this.#lookLater(KNOWN_MS[kind]);
    const undercounts = (): boolean => this.#undercounts;
    const unmet = (): string[] => [...new Set(this.#allLinks().flatMap(unmetBy))];
    return {
      maxFrameBytes: this.#isCluster ? MAX_BYTES - MAX_NUMBER_LENGTH : MAX_BYTES,
      counts: true,
      get undercounts() {
        return undercounts();
      },
      order: this.#isCluster ? "topic" : "node",
      get unmet() {
        return unmet();
      },
    };
  }

  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#state = "closed";
    this.#closing.abort();
    clearTimeout(this.#look);
    this.#destroyLinks();
    this.#subscriptions.clear();
  }

  #lookLater(ms: number): void {
    this.#look = setTimeout(() => {
      this.#refresh();
      this.#lookLater(LOOK_MS);
    }, ms);
  }

  reconnect(reason: Error): void {
    if (this.#state !== "up") return;
    const error = new EngineError(`the connections to Redis are opened anew: ${reason.message}`, "unknown", {
      cause: reason,
    });
    this.#destroyLinks();
    this.#fall(error);
    this.#refresh();
  }

  async subscribe(channel: Channel): Promise<void> {
    const { name, tag } = this.names.channel(channel);
    const link = await this.#ownerOf(tag);
    this.#subscriptions.set(name, { channel, tag });
    try {
      await this.#subscribeSoon(link, name);
      // If the link was lost or the tag has moved, it is not certain where the channel is subscribed.
      if (this.#linkByTag[tag] !== link) throw this.#refusal();
    } catch (error) {
      this.unsubscribe(channel);
      this.#react(link, error as EngineError);
      throw error;
    }
  }

  unsubscribe(channel: Channel): void {
    const { name, tag } = this.names.channel(channel);
    if (!this.#subscriptions.delete(name)) return;
    this.#linkByTag[tag]?.unsubscribe([name]);
  }

  async send(channel: Channel, frame: string): Promise<number> {
    const { name, tag } = this.names.channel(channel);
    const link = this.#linkByTag[tag];
    if (link === undefined || this.#state === "closed") throw this.#refusal();
    try {
      const count = await link.publish(name, this.#numbers?.add(tag, frame) ?? frame);
      // Only a count for an inbox says that a node is gone.
      const isUncertain = count === 0 && channel.startsWith("n:") && this.#config.place.kind === "single";
      if (isUncertain && !this.#undercounts && (await link.mayForward())) this.#undercounts = true;
      return count;
    } catch (error) {
      // Not repeated, because it would arrive after those that were sent later.
      this.#react(link, error as EngineError);
      throw error;
    }
  }

  run(
    tag: number,
    script: ScriptName,
    keys: readonly string[],
    args: (link: Link) => readonly string[],
  ): Promise<unknown> {
    return this.#repeat(tag, (link) => link.script(script, keys, args(link)));
  }

  #allLinks(): Link[] {
    return [...this.#links.values()];
  }

  #confirmed(): Link[] {
    return this.#allLinks().filter(({ isConfirmed }) => isConfirmed);
  }

  /** Repeats what a cluster redirects, because that did nothing, until the tag has moved. */
  async #repeat(tag: number, act: (link: Link) => Promise<unknown>): Promise<unknown> {
    const until = performance.now() + REDIRECT_MS;
    for (;;) {
      const link = await this.#ownerOf(tag);
      try {
        return await act(link);
      } catch (error) {
        this.#react(link, error as EngineError);
        const isMoving = error instanceof RedirectError && this.#isCluster && this.#isMaintaining;
        if (!isMoving || performance.now() > until) throw error;
        await this.#settled();
      }
    }
  }

  /** Returns the primary of a tag. Waits while a cluster moves the tag. */
  async #ownerOf(tag: number): Promise<Link> {
    const link = this.#linkByTag[tag];
    if (link !== undefined) return link;
    if (this.#state === "up" && this.#isMaintaining) await this.#settled();
    if (this.#linkByTag[tag] === undefined) throw this.#refusal();
    return this.#linkByTag[tag];
  }

  #refusal(): EngineError {
    return new EngineError(`the engine redis is ${this.#isClosed ? "closed" : "not connected"}`, "not-sent");
  }

  /** Subscribes a channel. Those of one tick are one command. */
  #subscribeSoon(link: Link, name: string): Promise<void> {
    // In a cluster, a command has channels of one slot.
    if (this.#isCluster) return link.subscribe([name]);
    const batch = this.#batches.get(link);
    if (batch !== undefined) {
      batch.names.push(name);
      return batch.done;
    }
    const names = [name];
    const done = Promise.resolve().then(() => {
      this.#batches.delete(link);
      return link.subscribe(names.filter((one) => this.#subscriptions.has(one)));
    });
    this.#batches.set(link, { names, done });
    return done;
  }

  #received(link: Link, name: string, frame: string): void {
    const subscription = this.#subscriptions.get(name);
    // A server that was replaced may send what its successor sends too.
    if (subscription === undefined || this.#state === "closed" || this.#linkByTag[subscription.tag] !== link) return;
    const { channel, tag } = subscription;
    const text = this.#numbers === undefined ? frame : this.#numbers.remove(tag, frame);
    if (text !== undefined) this.#host.received(channel, text);
  }

  /** Does what the error of a command calls for. */
  #react(link: Link, error: EngineError): void {
    if (error instanceof DemotedError) link.lose(error);
    else if (error instanceof RedirectError && this.#isCluster) this.#refresh();
  }

  #lost(link: Link, error: EngineError): void {
    if (this.#links.get(link.address) !== link) return;
    this.#links.delete(link.address);
    this.#past.set(link.address, link);
    for (const [tag, one] of this.#linkByTag.entries()) if (one === link) this.#linkByTag[tag] = undefined;
    this.#fall(error);
    this.#refresh();
  }

  /** Subscribes again what a server has ended. A cluster does that when a slot leaves its primary, which may get it back. */
  #onEnded(link: Link, name: string | undefined): void {
    if (name === undefined) for (const [tag, one] of this.#linkByTag.entries()) if (one === link) this.#ended.add(tag);
    const subscription = name === undefined ? undefined : this.#subscriptions.get(name);
    if (subscription !== undefined) this.#ended.add(subscription.tag);
    this.#reporter = link;
    this.#refresh();
  }

  #fall(error: EngineError): void {
    if (this.#state === "closed") return;
    if (this.#state === "up") this.#state = "down";
    this.#host.down(error);
  }

  /** Finds the primaries again. */
  #refresh(): void {
    if (this.#state === "up" || this.#state === "down") void this.#maintain();
  }

  /** Resolves when the loop has found the primaries again, or could not. */
  #settled(): Promise<void> {
    return new Promise((resolve) => void this.#waiting.push(resolve));
  }

  /**
   * Runs the loop until all primaries are found, connected and subscribed. Returns the error of a start that trying again does not
   * cure. Never rejects.
   */
  async #maintain(): Promise<FinalError | undefined> {
    if (this.#isMaintaining) {
      this.#isStale = true;
      return undefined;
    }
    this.#isMaintaining = true;
    let final: FinalError | undefined;
    for (let failures = 0; final === undefined;) {
      if (this.#state !== "starting" || failures > 0) await this.#sleep(this.#delayMs(failures));
      if (this.#isClosed) break;
      this.#isStale = false;
      try {
        await this.#establish();
        failures = 0;
        if (!this.#isStale) break;
      } catch (error) {
        failures++;
        if (this.#state === "starting" && error instanceof FinalError) final = error;
        // A server of the cluster that was asked did not know yet where the slot is.
        else if (!(error instanceof RedirectError) || failures > MOST_REDIRECTS) this.#failed(error as EngineError);
      }
      this.#settle();
    }
    this.#isMaintaining = false;
    this.#settle();
    return final;
  }

  /** The primaries were not found. As long as the known ones answer, the connection is up. */
  #failed(error: EngineError): void {
    if (this.#state !== "up" || this.#linkByTag.includes(undefined)) this.#fall(error);
  }

  #settle(): void {
    for (const resolve of this.#waiting.splice(0)) resolve();
  }

  #delayMs(failures: number): number {
    if (failures === 0 && this.#state === "up") return LOOKUP_DELAY_MS;
    return Math.random() * Math.min(MAX_DELAY_MS, FIRST_DELAY_MS * 2 ** failures);
  }

  /** Resolves after a time, or when the connection is closed. */
  #sleep(ms: number): Promise<void> {
    return delay(ms, undefined, { signal: this.#closing.signal }).catch(() => {});
  }

  /** Connects to the primaries, and subscribes the channels of each tag that has another one. Rejects if one cannot be reached. */
  async #establish(): Promise<void> {
    const { signal } = this.#closing;
    const confirmed = this.#confirmed();
    const reporters = confirmed.filter((link) => link === this.#reporter);
    this.#reporter = undefined;
    const layout = await findLayout(this.#config, reporters.length > 0 ? reporters : confirmed, signal);
    const addresses = new Map(layout.addresses.map((address) => [textOf(address), address]));
    // A link may be lost before it is in the map.
    for (const [text, link] of this.#links) if (!link.isUsed) this.#links.delete(text);
    const settings = { ...this.#linkSettings, silence: layout.silence };
    const missing = [...addresses].filter(([text]) => !this.#links.has(text));
    const connecting = missing.map(async ([text, address]) => {
      const link = await Link.connect(address, settings, this.#linkHost, signal);
      if (this.#isClosed) link.destroy();
      else this.#links.set(text, link);
    });
    const failures = await failuresOf(connecting);
    if (this.#isClosed) return;
    await this.#confirm(layout);
    if (this.#isClosed) return;

    const moved = new Map<Link, number[]>();
    for (const [tag, address] of layout.addresses.entries()) {
      const link = this.#links.get(textOf(address));
      if (link?.isConfirmed !== true || (this.#linkByTag[tag] === link && !this.#ended.has(tag))) continue;
      // Ended before the new subscription begins: otherwise a message could be received from both.
      this.#linkByTag[tag]?.unsubscribe(this.#namesOf([tag]));
      this.#linkByTag[tag] = undefined;
      this.#ended.delete(tag);
      this.#moved.add(tag);
      moved.set(link, [...(moved.get(link) ?? []), tag]);
    }
    failures.push(...(await failuresOf([...moved].map(([link, tags]) => this.#adopt(link, tags)))));
    if (this.#isClosed) return;
    for (const [text, link] of this.#links)
      if (!addresses.has(text)) {
        this.#links.delete(text);
        link.close();
      }
    if (failures.length > 0) throw failures[0]!;
    if (this.#linkByTag.includes(undefined)) throw new EngineError("a connection to Redis was lost again", "not-sent");
    this.#report();
  }

  /**
   * Asks others about each new link. A server that was stopped and replaced reports itself as a primary when it continues. Rejects with a
   * `RedirectError` if one of the others says that it is none.
   */
  async #confirm({ addresses }: Layout): Promise<void> {
    for (const link of this.#allLinks()) link.isConfirmed ||= link.continues(this.#past.get(link.address));
    const newLinks = this.#allLinks().filter((link) => !link.isConfirmed);
    const isSingle = this.#config.place.kind !== "sentinel" && new Set(addresses.map(textOf)).size === 1;
    // The only primary of a cluster cannot be replaced by a vote.
    if (isSingle) for (const link of newLinks) link.isConfirmed = true;
    if (isSingle || newLinks.length === 0) return;
    if (this.#state !== "starting") await this.#sleep(KNOWN_MS[this.#config.place.kind]);
    for (const link of newLinks) {
      const others = this.#allLinks().filter((one) => one !== link);
      const tags = [...addresses.keys()].filter((tag) => textOf(addresses[tag]!) === link.address);
      for (const opinion of await findOpinions(this.#config, others, this.#closing.signal))
        if (tags.some((tag) => textOf(opinion.addresses[tag]!) !== link.address))
          throw new RedirectError(`Redis at ${link.address}: it is being replaced`);
      link.isConfirmed = true;
    }
  }

  /** Makes a link the one of some tags, when it receives their channels. */
  async #adopt(link: Link, tags: readonly number[]): Promise<void> {
    const refusals = (await link.script("probe", [this.names.probe(tags[0]!)], [])) as string[];
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

  /** Reports that all primaries are connected. */
  #report(): void {
    const before = this.#state;
    const channels = [...this.#subscriptions.values()].flatMap(({ channel, tag }) =>
      this.#moved.has(tag) ? [channel] : [],
    );
    this.#moved.clear();
    this.#state = "up";
    if (before === "down") {
      this.#host.up();
      this.#host.heard("all");
    } else if (before === "up" && channels.length > 0) this.#host.heard(channels);
  }

  #destroyLinks(): void {
    for (const link of this.#links.values()) {
      this.#past.set(link.address, link);
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
