/** A real client and a real server over a proxy that injects faults, checked by the oracle. */
import { sleep, stall, turn } from "../support/time.js";
import { Stores, STORE_TOPICS, type StoreFigures } from "../support/stores.js";
import { connect, EngineError, serve, type AnyPeer, type ConnectionLostError, type Server } from "../../src/node.js";
import { Credentials } from "./credentials.js";
import { ENDINGS, WAITING, type EndingKind } from "./endings.js";
import { FAULTS, FAULT_WEIGHTS, type FaultKind } from "./faults.js";
import { Oracle, SHOWN, TOLD, type End, type Tally } from "./oracle.js";
import { Proxy } from "./proxy.js";
import { Random } from "./random.js";
import { CLIENT_NAME, MAX_MESSAGE_BYTES, Traffic, type Speaker } from "./traffic.js";
import type { Variant } from "./variants.js";
import { Wiretap } from "./wiretap.js";

export interface Plan {
  readonly seed: number;
  readonly messages: number;
  readonly cuts: number;
  /** The timeout of each required event, in milliseconds of the virtual clock. */
  readonly patienceMs: number;
  /** The broken rule, if one is broken. */
  readonly variant?: Variant;
}

export interface Figures extends Tally, StoreFigures {
  messages: number;
  cuts: number;
  dropped: number;
  faults: Partial<Record<FaultKind, number>>;
}

const TTL_MS = 60_000;
const SHORT_TTL_MS = 700;
const HEARTBEAT = { intervalMs: 60, deadAfterMs: 120 };
/** A suspended client's queue can have half of it, and broadcasts a quarter. */
const MAX_UNSENT_BYTES = 2 ** 20;
/** The number of broadcasts that exceeds the limit: 770 KB. Every `FLOOD_EVERY`th has a notification beside it: 346 KB. */
const FLOOD = 700;
const FLOOD_LENGTH = 1_000;
const FLOOD_EVERY = 25;
const FLOOD_NOTE_LENGTH = 12_000;

/** Plays one world to its end. Rejects with a `Breach` if a rule was broken. */
export async function play(plan: Plan): Promise<Figures> {
  const world = new World(plan);
  try {
    await world.play();
  } finally {
    await world.dispose();
  }
  if (world.oracle.breach !== undefined) throw world.oracle.breach;
  return world.figures();
}

export class World {
  readonly plan: Plan;
  readonly random: Random;
  readonly oracle: Oracle;
  readonly tap: Wiretap;
  readonly traffic: Traffic;
  readonly stores: Stores;
  readonly ttlMs: number;
  readonly hasHeartbeat: boolean;
  /** Whether the client is authenticated by its `auth`. Otherwise by a header. */
  readonly hasAuth: boolean;
  readonly credentials: Credentials;
  proxy!: Proxy;
  client!: AnyPeer;
  server!: Server;
  /** The port of the server, which a restarted server reuses. */
  port = 0;
  /** The client's end of its current session. */
  current!: End;
  readonly #ending: EndingKind;
  readonly #serverEnds = new Map<AnyPeer, End>();
  readonly #done: Partial<Record<FaultKind, number>> = {};
  #recent: FaultKind[] = [];
  #cuts = 0;

  constructor(plan: Plan) {
    this.plan = plan;
    this.random = new Random(plan.seed);
    this.#ending = this.random.pick(Object.keys(ENDINGS) as EndingKind[]);
    this.ttlMs = WAITING.has(this.#ending) ? SHORT_TTL_MS : TTL_MS;
    this.hasHeartbeat = this.random.chance(0.3);
    this.oracle = new Oracle(this.ttlMs);
    this.tap = new Wiretap(this.oracle.fail);
    this.hasAuth = this.random.chance(0.7) || this.#ending === "authRefused";
    this.credentials = new Credentials(this.oracle, this.random);
    this.traffic = new Traffic(this.oracle, this.random, this.hasAuth ? this.credentials : undefined);
    const breach = (rule: string, text: string): void => this.oracle.fail(`${rule}: ${text}`);
    this.stores = new Stores({ random: this.random, breach, misuse: plan.variant?.misuse });
  }

  figures(): Figures {
    let dropped = 0;
    for (const peer of this.#serverEnds.keys()) dropped += peer.stats().dropped;
    const counts = { ...this.oracle.tally, ...this.stores.figures, messages: this.traffic.sent, cuts: this.#cuts };
    return { ...counts, dropped, faults: this.#done };
  }

  async play(): Promise<void> {
    await this.#begin();
    while (this.#cuts < this.plan.cuts) await this.#step();
    while (this.traffic.sent < this.plan.messages) await this.#burst();
    await this.quiet();
    const isOpen = (id: string): boolean => [...this.server.peers].some((peer) => peer.id === id);
    await this.stores.rest(() => this.server, this.plan.patienceMs, isOpen);
    // The session may have been suspended meanwhile.
    await this.quiet();
    await ENDINGS[this.#ending](this);
    await this.server.close();
    await this.until("everything is over", () => this.#isOver);
    // Calls that the end of a connection rejects do so by the end of its tick, and an aborted handler ends when it notices that.
    await turn();
    const hanging = this.traffic.hanging();
    if (hanging > 0) this.oracle.fail(`${hanging} handlers were not aborted when their callers gave up`);
    await this.until("closed peers are empty", () => this.#isEmpty);
    this.oracle.finish();
    this.credentials.finish();
  }

  async dispose(): Promise<void> {
    for (const end of this.oracle.ends) end.reason ??= "the world ends";
    await this.proxy?.close();
    await Promise.allSettled([this.client?.close(), this.server?.close()]);
  }

  async serve(): Promise<void> {
    const { server = same, authenticate = same } = this.plan.variant ?? {};
    const real: Server = await serve({
      port: this.port,
      methods: { ...this.traffic.methods(({ peer }) => this.#arrivesAt(peer)), ...this.stores.methods() },
      topics: (name: string) => STORE_TOPICS[name],
      authenticate: authenticate(this.credentials.authenticate),
      principal: ({ name }: { name: string }) => name,
      expiresInMs: this.credentials.expiresInMs,
      limits: { maxMessageBytes: MAX_MESSAGE_BYTES, maxUnsentBytes: MAX_UNSENT_BYTES },
      session: { ttlMs: this.ttlMs },
      heartbeat: this.hasHeartbeat ? { intervalMs: 300, deadAfterMs: 2_000 } : false,
    } as never);
    this.server = server(real);
    this.port = Number(new URL(this.server.url).port);
    this.server.on("peer", (peer) => this.#welcome(peer));
    this.server.on("refresh", (peer, old) => this.credentials.refreshed(this.#serverEnds.get(peer)!, old));
    this.server.on("missed", (peer, method) => this.oracle.drops(this.#serverEnds.get(peer)!, method));
    this.server.on("error", (error) => {
      // A page joins or makes a change, and its session or its server ends meanwhile.
      const isOfStore = error instanceof EngineError || (error as ConnectionLostError).method === "join";
      if (!isOfStore) this.oracle.fail(`the server reports ${String(error)}`);
    });
  }

  #arrivesAt(peer: AnyPeer): End {
    const end = this.#serverEnds.get(peer)!;
    this.credentials.check(end);
    return end;
  }

  /** Returns the server's peer of the client's current session, or `undefined` if it is not known. */
  get serverPeer(): AnyPeer | undefined {
    for (const [peer, end] of this.#serverEnds) if (end === this.current.other) return peer;
    return undefined;
  }

  /** Waits until `holds` returns true. Throws a breach that is found before. */
  async until(what: string, holds: () => boolean): Promise<void> {
    const until = performance.now() + this.plan.patienceMs;
    while (!holds()) {
      if (performance.now() > until) this.oracle.fail(`it did not come to be that ${what}${this.#situation()}`);
      this.#check();
      await sleep(1);
    }
    this.#check();
  }

  /** Expects that the client's current session ends soon. */
  async demandLoss(why: string, cause: () => unknown): Promise<void> {
    const { current } = this;
    current.reason ??= why;
    await cause();
    await this.until(`the client loses its session: ${why}`, () => current.isOver);
  }

  get isFlowing(): boolean {
    const { newest } = this.proxy;
    return this.client.state === "open" && newest !== undefined && newest.wire.isSettled;
  }

  /** Sends more broadcasts than fit in a suspended client's queue, and other messages between them, which must all arrive. */
  flood(): void {
    const peer = this.serverPeer;
    if (peer === undefined || peer.state === "closed") return;
    const speaker = { end: this.#serverEnds.get(peer)!, peer };
    for (let i = 0; i < FLOOD; i++) {
      this.#tell("broadcast", FLOOD_LENGTH);
      if (i % FLOOD_EVERY < 3) this.#tell("latest");
      if (i % FLOOD_EVERY > 0) continue;
      this.traffic.note(speaker, FLOOD_NOTE_LENGTH);
      void this.traffic.echo(speaker);
    }
  }

  /** Waits until all messages have arrived and all calls are settled. */
  async quiet(): Promise<void> {
    await this.until("messages flow", () => this.isFlowing && this.current.other !== undefined);
    await this.until("all calls are settled and all messages have arrived", () => this.#isQuiet());
  }

  async #begin(): Promise<void> {
    await this.serve();
    const { client = same, bend } = this.plan.variant ?? {};
    this.tap.bend = bend;
    this.proxy = await Proxy.listen(() => this.port, this.tap);
    const real: AnyPeer = await connect(`ws://127.0.0.1:${this.proxy.port}`, {
      methods: this.traffic.methods(() => this.current) as never,
      ...(this.hasAuth ? { auth: this.credentials.show } : { headers: { authorization: CLIENT_NAME } }),
      limits: { maxMessageBytes: MAX_MESSAGE_BYTES },
      // A client that is cut fifty times would mostly wait for its next attempt.
      reconnect: { minDelayMs: 50, maxDelayMs: 500 },
      // A call that is never answered is found by what waits for it.
      timeoutMs: Infinity,
      heartbeat: this.hasHeartbeat ? HEARTBEAT : false,
    } as never);
    this.client = client(real);
    this.current = this.oracle.begin("client");
    this.client.on("suspend", () => {
      this.#cuts++;
      this.oracle.suspended(this.current);
    });
    this.client.on("resume", () => this.oracle.resumed(this.current));
    this.client.on("missed", ({ count }) => this.oracle.misses(this.current, count));
    this.client.on("lost", (error) => this.#lost(error));
    this.client.on("close", (close) => this.oracle.closed(this.current, close));
    this.client.on("error", (error) => this.oracle.fail(`the client reports ${String(error)}`));
    this.stores.open(real);
    await this.#prove(this.current);
  }

  #lost(error: Error): void {
    const { suspendedAt } = this.current;
    this.oracle.over(this.current, error.message);
    this.current = this.oracle.begin("client");
    this.current.suspendedAt = suspendedAt;
    // Before messages flow again.
    void this.traffic.steps({ end: this.current, peer: this.client });
    void this.#prove(this.current);
  }

  #welcome(peer: AnyPeer): void {
    const end = this.oracle.begin("server");
    this.#serverEnds.set(peer, end);
    this.credentials.begins(end, peer);
    peer.on("suspend", () => {
      this.oracle.suspended(end);
      this.credentials.suspended(end);
    });
    peer.on("resume", () => {
      this.oracle.resumed(end);
      this.credentials.resumed(end);
    });
    peer.on("close", (close) => this.oracle.closed(end, close));
    // First, so that the client knows which end of the server sends.
    this.traffic.note({ end, peer });
    this.server.topic("all").add(peer);
  }

  /** The result of a second call shows that the server has the client's hello. */
  async #prove(end: End): Promise<void> {
    for (let i = 0; i < 2 && !end.isOver; i++) await this.traffic.echo({ end, peer: this.client });
    if (!end.isOver) end.isProven = true;
  }

  async #step(): Promise<void> {
    const kind = this.#draw();
    this.#recent = [...this.#recent.slice(-4), kind];
    this.#done[kind] = (this.#done[kind] ?? 0) + 1;
    await this.#during(`${kind} happens`, FAULTS[kind](this));
    for (let bursts = this.random.below(4); bursts > 0 && this.#mayTalk; bursts--) await this.#burst();
    // Alternately, the next fault hits a session that flows, and one that is about to flow.
    if (this.random.chance(0.7))
      await this.#during(
        "messages flow again",
        this.until("messages flow again", () => this.isFlowing),
      );
  }

  #draw(): FaultKind {
    // Only a heartbeat detects silence.
    return this.random.weighted({ ...FAULT_WEIGHTS, silence: this.hasHeartbeat ? FAULT_WEIGHTS.silence : 0 });
  }

  async #during(what: string, event: Promise<unknown>): Promise<void> {
    const state = { isOver: false };
    const done = event.finally(() => (state.isOver = true));
    done.catch(() => {});
    const until = performance.now() + 2 * this.plan.patienceMs;
    while (!state.isOver) {
      if (this.#mayTalk) await this.#burst();
      else await sleep(1);
      if (performance.now() > until) this.oracle.fail(`it did not come to be that ${what}${this.#situation()}`);
      this.#check();
    }
    await done;
  }

  /** Whether fewer messages were sent than are due for the cuts so far. */
  get #mayTalk(): boolean {
    const { messages, cuts } = this.plan;
    return this.traffic.sent < (messages * (this.#cuts + 1)) / cuts;
  }

  async #burst(): Promise<void> {
    const speaker = this.#speaker();
    for (let left = 1 + this.random.below(6); left > 0; left--) {
      if (speaker.end.side === "server" && this.random.chance(0.15)) {
        this.traffic.sent++;
        this.#tell(this.random.pick(["broadcast", "latest", "volatile"] as const));
      } else if (this.random.chance(0.08)) {
        this.traffic.sent++;
        this.stores.act(this.server);
      } else this.traffic.say(speaker);
    }
    if (this.random.chance(0.002)) stall(this.random.below(100));
    if (this.random.chance(0.3)) await sleep(this.random.below(3));
    else await new Promise((resolve) => setImmediate(resolve));
    this.#check();
  }

  #speaker(): Speaker {
    const peer = this.serverPeer;
    if (peer === undefined || peer.state === "closed" || this.random.chance(0.5))
      return { end: this.current, peer: this.client };
    return { end: this.#serverEnds.get(peer)!, peer };
  }

  /** Sends one message to all of a topic: one that may be dropped, one of which only the newest of its key must arrive, or a volatile one. */
  #tell(kind: "broadcast" | "latest" | "volatile", length = 0): void {
    const { traffic } = this;
    const label = traffic.topicLabel();
    const topic = this.server.topic("all");
    const latest = kind === "latest" ? traffic.key() : undefined;
    const isVolatile = kind === "volatile";
    const said = { key: latest, isBroadcast: !isVolatile, isVolatile };
    for (const peer of topic) this.oracle.says(this.#serverEnds.get(peer)!, label, said);
    const options = { volatile: isVolatile, ...(latest !== undefined && { latest }) };
    topic.notify(latest === undefined ? TOLD : SHOWN, { label, padding: "x".repeat(length) }, options);
  }

  #isQuiet(): boolean {
    const { current, oracle, traffic } = this;
    const peer = this.serverPeer;
    if (current.other === undefined || peer === undefined) return false;
    const waits = [this.client, peer].some((one) => one.stats().pending > 0);
    return (
      !waits &&
      oracle.isComplete(current, 0) &&
      oracle.isComplete(current.other, peer.stats().dropped) &&
      traffic.hanging(current) === 0 &&
      traffic.hanging(current.other) === 0
    );
  }

  /** Returns whether all ends and streams have ended. A source that waits ends in its next tick. */
  get #isOver(): boolean {
    const { readers, streams } = this.traffic;
    return readers + streams === 0 && this.oracle.ends.every(({ isOver }) => isOver);
  }

  get #isEmpty(): boolean {
    return [this.client, ...this.#serverEnds.keys()].every((peer) => {
      const { pending, running, streams, malformed } = peer.stats();
      return pending + running + streams + malformed === 0;
    });
  }

  #situation(): string {
    const { newest } = this.proxy ?? {};
    const line = newest === undefined ? "no connection" : `a line that is ${newest.wire.state}`;
    return ` (the client is ${this.client?.state}, ${this.oracle.due(this.current)}, ${this.traffic.sent} messages, ${this.traffic.readers} readers and ${this.traffic.streams} sources of streams, ${this.#cuts} cuts, ${line}; faults: ${this.#recent.join(", ")}; losses: ${this.oracle.losses.slice(-3).join("; ")})`;
  }

  #check(): void {
    if (this.oracle.breach !== undefined) throw this.oracle.breach;
  }
}

/** Returns what it is given: no rule is broken. */
function same<T>(one: T): T {
  return one;
}
