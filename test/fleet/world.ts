/** A fleet with clients, traffic and faults, over any engine. The oracle judges what happened. */
import { vi } from "vitest";
import { connect } from "../../src/index.js";
import { ConnectionLostError, EngineError, RpcError, type AnyPeer, type Engine } from "../../src/node.js";
import { Random } from "../faults/random.js";
import { Stores, STORE_TOPICS, type StoreMisuse } from "../support/stores.js";
import { BEAT_MS, covers, LATE_MS, Oracle, TIMEOUT_MS } from "./oracle.js";
import type { Call, Cause, Figures, Moment, Publication, Rule, Run, Stay, Trouble, Welcome } from "./oracle.js";
import { makeNode, type Node } from "./nodes.js";
export { LEASE_MS } from "./oracle.js";

/** The topic that is notified, and the topic with a log and members. */
const PLAIN = "plain";
export const LOGGED = "logged";
const SESSION_MS = 3_000;
const TICK_MS = 40;
/** From when on it is noted that a process was not scheduled. */
const PAUSE_MS = LATE_MS / 4;
/** The most of the patience that one check takes, also if the process does nothing for longer. */
const MOST_STEP_MS = 5_000;
/** A client that is cut often would mostly wait for its next attempt. This is the share of the usual delay. */
const HURRY = 0.1;
/** How long a handler works at most, so that a drain finds running ones, and publications arrive while a client joins. */
const WORK_MS = 20;
/** How long the handler of `join` works for an application that is wrong. */
const LONG_JOIN_MS = 1_000;
/** The share of publications that have a key, of those that two nodes publish at once, and of messages after which a member or a store acts. */
const KEYED = 0.4;
const DOUBLED = 0.3;
const RENAMED = 0.1;
const STORED = 0.6;

const now = (): number => performance.now();
export const after = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

export interface Link {
  /** When a connection that worked was ended. */
  readonly losses: readonly number[];
  /** Ends the connection. The node gets no other one until `up`. */
  down(): unknown;
  up(): unknown;
  /** For the broker, the node is gone. */
  kill(): unknown;
}

/** What a world uses of a node, in this process or in another one. */
export interface Served {
  readonly server: Pick<Node["server"], "health" | "topic" | "peer" | "close">;
  readonly WebSocket: new (url: string, options: { protocols: string[]; headers: Record<string, string> }) => unknown;
  readonly network: { cut(): void; of(socket: any): { cut(): void } };
}

/** How the next node is started. */
export interface Starting {
  readonly run: Run;
  /** As JSON can carry them. */
  readonly settings: { readonly session: object; readonly topics: Record<string, object> };
  /** What the node reports or asks, by the names of the methods by which a node in another process does that. */
  readonly reports: Readonly<
    Record<"engine" | "member" | "ran" | "error" | "paused" | "asked" | "load" | "change", (report: any) => unknown>
  >;
  /** Makes the node in this process. */
  serve(engine: Engine): Node;
}

/** Where nodes run, and what connects them to the broker. */
export interface Place<L extends Link> {
  start(next: Starting): Promise<{ readonly node: Served; readonly link: L }>;
  /** Resolves when the broker has answered, with what changes if other servers have taken over. `undefined`: it always answers. */
  readonly ping?: (() => Promise<unknown>) | undefined;
  /** How long a node may take until it notices that a fault has ended its connection. */
  readonly noticeMs: number;
  /** The longest wait until all are connected again, and until all have everything. A node or a client waits up to 5 s before it connects. */
  readonly patienceMs: number;
  /** Without logs, nothing is published, and a client joins without a position. */
  readonly hasLogs: boolean;
}

/** Resolves when the fault is over. `one`: a node that has no other fault of its own. */
export type Fault<L extends Link> = (world: World<L>, one: FleetNode<L>) => Promise<void>;

/** How the application of a node or of a client is wrong. */
export type Misuse =
  | StoreMisuse
  | "calls with a timeout of a day"
  | "watches twice"
  | "replays after live messages"
  | "a client moves `since` before its join is answered";

/** A server, its connection to the broker, and what the oracle knows of it. */
export interface FleetNode<L extends Link> {
  readonly route: string;
  readonly node: Served;
  readonly link: L;
  readonly run: Run;
}

/** A client that joins at each new session, and records what arrives. */
class Client {
  readonly number: number;
  readonly #world: World<Link>;
  peer!: AnyPeer;
  stay!: Stay;
  /** The position up to which the client has everything. */
  since: string | undefined;
  /** What others know of the client; `undefined` if the node has not confirmed it. */
  as: string | undefined;
  lost = 0;
  resumed = 0;

  constructor(number: number, world: World<any>) {
    this.number = number;
    this.#world = world;
  }

  async connect(): Promise<void> {
    const { oracle, misuse } = this.#world;
    const isHasty = misuse === "a client moves `since` before its join is answered";
    this.peer = (await connect<any, any>(`ws://balancer/?name=${this.number}`, {
      reconnect: { initial: true },
      onOpen: (server: any) => void this.#join(server, this.#begin()),
      methods: {
        told: ({ run, n, time }) => void this.stay.told.push({ run, n, sentAt: time, time: now() }),
        missed: () => void this.stay.events.push({ kind: "missed", time: now() }),
        said: ({ n, at }) => {
          this.stay.events.push({ kind: "said", n, at, time: now() });
          if (this.stay.welcome !== undefined || isHasty) this.since = at;
        },
        run: ({ n }) => this.#world.ran(n),
      },
    })) as AnyPeer;
    this.peer.on("lost", () => this.lost++);
    let [endedAt, replayedAt] = [0, 0];
    // Soon after it has resumed, what it missed before may not have arrived.
    this.peer.on("suspend", () => (this.stay.endedAt = now() > replayedAt ? now() : Math.min(now(), endedAt)));
    this.peer.on("resume", () => {
      this.resumed++;
      [endedAt, replayedAt] = [this.stay.endedAt, now() + LATE_MS];
      this.stay.endedAt = Infinity;
    });
    this.peer.on("close", ({ code }) => code === 1000 || oracle.breach("crash", `client ${this.number}: ${code}`));
    // While the broker is away, no state of a member can be set.
    this.peer.on("error", () => {});
    this.#world.stores.open(this.peer);
  }

  #begin(): Stay {
    const { number: client, since } = this;
    const times = { joinedAt: Infinity, endedAt: Infinity, lateMs: 0 };
    this.stay = { client, since, told: [], events: [], welcome: undefined, ...times };
    this.#world.oracle.stays.push(this.stay);
    return this.stay;
  }

  async #join(server: AnyPeer, stay: Stay): Promise<void> {
    while (this.stay === stay) {
      try {
        this.as = String(this.number);
        const welcome = (await server.request("join", { since: stay.since, as: this.as })) as Welcome;
        // What was sent in this millisecond may have been sent before.
        Object.assign(stay, { welcome, joinedAt: now() + 1 });
        const last = stay.events.flatMap((event) => (event.kind === "said" ? [event.at] : [])).at(-1);
        stay.events.push({ kind: "joined" });
        this.since = last ?? welcome.at ?? this.since;
        return;
      } catch (error) {
        if (!(error instanceof RpcError)) return;
        await after(100);
      }
    }
  }

  /** Joins again with another `as`. */
  async rename(n: number): Promise<void> {
    const { stay } = this;
    const as = `${this.number} as ${n}`;
    this.as = undefined;
    const isDone = await this.peer.request("rename", { as }).then(
      () => true,
      () => false,
    );
    if (isDone && this.stay === stay) this.as = as;
  }

  get isMember(): boolean {
    return this.peer.state === "open" && this.stay.welcome !== undefined && this.stay.endedAt === Infinity;
  }
}

export class World<L extends Link> {
  readonly oracle = new Oracle();
  readonly random: Random;
  readonly stores: Stores;
  readonly misuse: Misuse | undefined;
  /** By the name in the URLs of their clients. */
  readonly nodes = new Map<string, FleetNode<L>>();
  readonly clients: Client[];
  /** Whether the balancer ignores the node in URLs. */
  isBlind = false;
  /** How many connections went to the node that their URL names. */
  routed = 0;
  readonly #place: Place<L>;
  readonly #sockets = new Map<WebSocket, Served>();
  readonly #made: Served[] = [];
  readonly #pending = new Set<Promise<unknown>>();
  /** The nodes with faults of their own, and the faults of all connections. */
  readonly #disturbed = new Set<FleetNode<L>>();
  readonly #troubles = new Set<Trouble>();
  #isOver = false;
  #hasHappened = false;
  #next = 0;
  #numbers = 0;

  constructor(seed: number, clients: number, place: Place<L>, misuse?: Misuse) {
    this.random = new Random(seed);
    this.misuse = misuse;
    this.#place = place;
    this.stores = new Stores({
      random: this.random,
      breach: (rule, text) => this.oracle.breach(rule, text),
      hasOneLife: (one, other) => this.oracle.hasOneLife(one as Moment, other as Moment),
      hasLogs: place.hasLogs,
      misuse,
    });
    vi.spyOn(Math, "random").mockImplementation(() => HURRY * this.random.next());
    const open = (url: string, protocols: string[]): WebSocket => this.#open(url, protocols);
    vi.stubGlobal("WebSocket", function (url: string, protocols: string[]): WebSocket {
      return open(url, protocols);
    });
    this.clients = Array.from({ length: clients }, (_, i) => new Client(i, this));
  }

  /** Starts a node. It has the place of the one with its name that has ended. */
  async start(route: string): Promise<void> {
    const [run, startedAt] = [this.oracle.started(this.oracle.runs.size + 1), now()];
    const log = this.#place.hasLogs ? { length: 5_000, bytes: 2 ** 24, ttlMs: 600_000 } : undefined;
    const session = { route, ttlMs: SESSION_MS };
    const topics = { [LOGGED]: { log, members: true }, ...STORE_TOPICS };
    const settings = { session, topics, workMs: WORK_MS, pauseMs: PAUSE_MS, hurry: HURRY };
    const reports: Starting["reports"] = {
      engine: (report) => void run.states.push({ ...report, time: now() }),
      member: ({ event, id, as }) => this.oracle.member(run, event, id, as),
      ran: ({ n }) => void this.ran(n),
      error: ({ text }) => this.oracle.breach("crash", `node ${run.run}: ${text}`),
      paused: ({ ms }) => void run.troubles.push({ from: now() - ms, to: now(), cause: "machine" }),
      asked: ({ change }) => this.stores.asked(change),
      // The broker may be away.
      load: () => this.stores.load(node.server).catch(() => undefined),
      change: ({ change }) => this.stores.run(change, { run, time: now() }),
    };
    const serve = (engine: Engine): Node => this.#serve(engine, run, settings, reports);
    const { node, link } = await this.#place.start({ run, settings, reports, serve });
    run.troubles.push(...[...this.#troubles].filter(({ to }) => to > startedAt));
    this.#made.push(node);
    this.nodes.set(route, { route, node, run, link });
    const from = now();
    const listed = (ids: string[]): unknown => this.oracle.lists.push({ run: run.run, from, to: now(), ids });
    const list = node.server.topic(LOGGED).members();
    list.then((members) => listed(members.map(({ id }) => id))).catch(() => {});
  }

  #serve(engine: Engine, run: Run, { session, topics }: Starting["settings"], reports: Starting["reports"]): Node {
    const node = makeNode({
      engine,
      session,
      principal: ({ name }: { name: string }) => name,
      topics: (name: string) => topics[name],
      methods: {
        ...this.stores.methods(() => ({ run, time: now() })),
        join: async (params: any, { peer }: any) => ({ ...(await this.#join(node, params, peer)), run: run.run }),
        rename: async ({ as }: { as: string }, { peer }: any) => {
          const topic = node.server.topic(LOGGED);
          // In a new session, this call may overtake the join, which is a gap for a peer that is a member already.
          if (!topic.has(peer)) throw new RpcError(1, "no member");
          await topic.join(peer, { as });
        },
        work: async ({ n }: { n: number }) => {
          const result = this.ran(n);
          await after(n % WORK_MS);
          return result;
        },
      },
    });
    const { server } = node;
    server.on("engine", ({ state, error }) => reports.engine({ state, text: String(error ?? "") }));
    server.on("gap", (topic) => {
      if (topic === LOGGED) server.topic(topic).notify("missed", {}, { here: true, whenSlow: "close" });
    });
    server.on("error", (error) => {
      const isExpected = error instanceof EngineError || error instanceof ConnectionLostError;
      if (!isExpected) reports.error({ text: String(error) });
    });
    for (let times = this.misuse === "watches twice" ? 2 : 1; times > 0; times--)
      server.topic(LOGGED).watch((event, { id, as }) => reports.member({ event, id, as }));
    return node;
  }

  async #join({ server }: Node, { since, as }: any, peer: AnyPeer): Promise<Omit<Welcome, "run">> {
    const topic = server.topic(LOGGED);
    const isLate = this.misuse === "replays after live messages" && since !== undefined;
    await server.topic(PLAIN).join(peer);
    const joined = await topic.join(peer, isLate || !this.#place.hasLogs ? { as } : { since, as });
    let { outcome } = joined;
    // Meanwhile, publications arrive.
    await after(this.misuse === undefined ? this.random.below(WORK_MS) : LONG_JOIN_MS);
    if (isLate) {
      const part = await topic.read({ since, limit: 1_000 });
      ({ outcome } = part);
      if (outcome === "complete") for (const { method, params } of part.entries) peer.notify(method, params);
    }
    return { outcome, at: joined.at, id: peer.id };
  }

  /** Connects a client to the node that its URL names, or else to the next one. */
  #open(url: string, protocols: string[]): WebSocket {
    const { searchParams } = new URL(url);
    const named = this.isBlind ? undefined : this.nodes.get(searchParams.get("node") ?? "");
    if (named !== undefined) this.routed++;
    const { node } = named ?? [...this.nodes.values()][this.#next++ % this.nodes.size]!;
    const headers = { "x-name": searchParams.get("name")! };
    const socket = new node.WebSocket(url, { protocols, headers }) as WebSocket;
    this.#sockets.set(socket, node);
    socket.addEventListener("close", () => this.#sockets.delete(socket));
    return socket;
  }

  /** Counts that a call has run. Returns its result. */
  ran(n: number): number {
    this.oracle.ran.set(n, (this.oracle.ran.get(n) ?? 0) + 1);
    return n;
  }

  get any(): FleetNode<L> {
    return this.random.pick([...this.nodes.values()]);
  }

  /** Cuts about so many sockets, old and new ones, on all nodes. */
  cut(count: number): void {
    const every = Math.max(1, Math.floor(this.#sockets.size / count));
    for (const [i, [socket, node]] of [...this.#sockets].entries()) if (i % every === 0) node.network.of(socket).cut();
  }

  /** Plays faults, together with those of the other sequences. There are no more sequences than nodes. */
  async disturb(...sequences: readonly (readonly Fault<L>[])[]): Promise<void> {
    const play = async (faults: readonly Fault<L>[]): Promise<void> => {
      for (const left = [...faults]; left.length > 0; await after(this.random.below(500))) {
        const [fault] = left.splice(this.random.below(left.length), 1);
        const one = this.random.pick([...this.nodes.values()].filter((node) => !this.#disturbed.has(node)));
        this.#disturbed.add(one);
        const end = fault!(this, one);
        this.isBlind = this.random.chance(0.5);
        this.cut(this.clients.length / 6);
        await end;
        this.#disturbed.delete(one);
      }
    };
    await Promise.all(sequences.map(play));
  }

  /** Runs a fault of one node, or of what all share. Resolves when they have connections. */
  async during(fault: () => unknown, of: FleetNode<L> | Cause, from = now()): Promise<void> {
    const isOfAll = typeof of === "string";
    const trouble: Trouble = { from, to: Infinity, cause: isOfAll ? of : "node" };
    if (isOfAll) this.#troubles.add(trouble);
    const nodes = (): FleetNode<L>[] => (isOfAll ? [...this.nodes.values()] : [of]);
    for (const { run } of nodes()) run.troubles.push(trouble);
    await fault();
    await after(isOfAll ? this.#place.noticeMs : Math.min(this.#place.noticeMs, LATE_MS));
    await this.until("W", () => {
      const away = nodes().filter(
        ({ node: { server }, run }) => !server.health().ok || run.states.at(-1)?.state === "down",
      );
      return away.length === 0 ? undefined : `nodes without a connection: ${away.map(({ run }) => run.run).join(", ")}`;
    });
    trouble.to = now();
  }

  /** A node ends as a process that is killed. Another one has its place. */
  async kill({ route, node, run, link }: FleetNode<L>): Promise<void> {
    await this.start(route);
    run.endedAt = now();
    run.troubles.push({ from: now(), to: Infinity, cause: "node" });
    await link.kill();
    node.network.cut();
  }

  /** Waits until a check returns no complaint. Otherwise, a rule is broken. */
  async until(rule: Rule, check: () => Promise<string | undefined> | string | undefined): Promise<void> {
    let [left, before] = [this.#place.patienceMs, now()];
    for (let complaint; (complaint = await check()) !== undefined; await after(TICK_MS)) {
      left -= Math.min(now() - before, MOST_STEP_MS);
      before = now();
      if (left < 0) return this.oracle.breach(rule, `not in time: ${complaint}`);
    }
  }

  /** Waits until all clients are members. */
  untilMembers(): Promise<void> {
    return this.until("W", () => {
      const away = this.clients.filter(({ isMember }) => !isMember).map(({ number }) => number);
      return away.length === 0 ? undefined : `clients ${away.join(", ")} have not joined`;
    });
  }

  /**
   * Notes how long this process does nothing, when the broker answers nothing for a beat, and when its servers have changed places, perhaps
   * without a fault: a busy machine may not schedule them.
   */
  async #watch(): Promise<void> {
    let [seen, seenAt]: [unknown, number] = [undefined, 0];
    const takeovers: Promise<void>[] = [];
    const noteWait = (cause: Cause, from: number, leastMs: number): number => {
      const trouble = { from, to: now(), cause };
      if (trouble.to - from > leastMs) for (const { troubles } of this.oracle.runs.values()) troubles.push(trouble);
      return trouble.to;
    };
    let before = now();
    // A ping may wait for seconds.
    const watching = setInterval(() => (before = noteWait("machine", before, PAUSE_MS)), TICK_MS);
    for (; !this.#hasHappened; await after(TICK_MS)) {
      const from = now();
      const found = await this.#place.ping?.().catch(() => undefined);
      noteWait("broker", from, BEAT_MS);
      if (found === undefined) continue;
      if (seen !== undefined && found !== seen) takeovers.push(this.during(() => {}, "slots", seenAt));
      [seen, seenAt] = [found, from];
    }
    clearInterval(watching);
    await Promise.all(takeovers);
  }

  /** Plays `act` with so many nodes while there is traffic, and then `rest`. Then judges everything. */
  async play(nodes: number, act: () => Promise<void>, rest = async (): Promise<void> => {}): Promise<Figures> {
    const watch = this.#watch();
    for (let i = 1; i <= nodes; i++) await this.start(`n${i}`);
    await Promise.all(this.clients.map((client) => client.connect()));
    const traffic = this.#traffic();
    await act();
    await this.untilMembers();
    this.#isOver = true;
    await traffic;
    await this.until("C1", () => (this.#pending.size === 0 ? undefined : "calls are pending"));
    if (this.#place.hasLogs) await this.#publishUnseen();
    await rest();
    await this.#expectMembers();
    const isOpen = (id: string): boolean => this.clients.some(({ stay }) => stay.welcome?.id === id);
    await this.stores.rest(() => this.any.node.server, this.#place.patienceMs, isOpen);
    // A busy machine may have cost a node its connection since.
    await this.during(() => {}, "machine");
    for (const { link, run } of this.nodes.values()) run.losses.push(...link.losses);
    this.#hasHappened = true;
    await watch;
    return { ...this.oracle.judge(), ...this.stores.figures };
  }

  /** Restores what the world has replaced. */
  restore(): void {
    vi.unstubAllGlobals();
    vi.restoreAllMocks();
  }

  async close(): Promise<void> {
    await Promise.all(this.clients.map(({ peer }) => peer?.close()));
    await Promise.all(this.#made.map(({ server }) => server.close()));
  }

  /** Notifies, publishes and calls until `play` ends it. */
  async #traffic(): Promise<void> {
    for (; !this.#isOver; await after(TICK_MS)) {
      const { node, run } = this.any;
      const n = ++this.#numbers;
      // Until its first connection, a node reports nothing, and an application awaits that.
      if (node.server.health().ok || run.states.length > 0) {
        const told = { run: run.run, n, time: now() };
        this.oracle.sent.push(told);
        node.server.topic(PLAIN).notify("told", told);
      }
      const key = this.random.chance(KEYED) ? `key ${n}` : undefined;
      this.#track(this.#publish(n, key));
      if (key !== undefined && this.random.chance(DOUBLED)) this.#track(this.#publish(n, key));
      const client = this.random.pick(this.clients);
      const { peer, stay } = client;
      this.#track(this.#call(run, peer, "work"));
      if (stay.welcome !== undefined && client.as !== undefined && this.random.chance(RENAMED))
        this.#track(client.rename(n));
      if (stay.welcome !== undefined) this.#track(this.#call(run, node.server.peer(stay.welcome.id), "run"));
      if (this.random.chance(STORED)) this.stores.act(node.server);
    }
  }

  #track(order: Promise<unknown>): void {
    const done: Promise<unknown> = order.then(() => this.#pending.delete(done));
    this.#pending.add(done);
  }

  /** Publishes. One with a key and an unknown outcome is published again. */
  async #publish(n: number, key?: string, { node, run: { run } } = this.any): Promise<string | undefined> {
    if (!this.#place.hasLogs) return undefined;
    const publication: Publication = { n, run, key, state: "pending", at: undefined, orderedAt: now(), time: 0 };
    this.oracle.publications.push(publication);
    const options = { timeoutMs: TIMEOUT_MS, ...(key !== undefined && { key }) };
    try {
      publication.at = await node.server.topic(LOGGED).publish("said", { n }, options);
      publication.state = "acked";
    } catch (error) {
      publication.state = this.#outcomeOf(error);
    }
    publication.time = now();
    if (key !== undefined && publication.state === "unknown") await this.#publish(n, key);
    return publication.at;
  }

  async #call({ run }: Run, peer: Pick<AnyPeer, "request">, method: string): Promise<void> {
    const n = ++this.#numbers;
    const call: Call = { n, run, timedOutAt: Infinity, settledAt: 0, result: undefined, state: "pending" };
    this.oracle.calls.push(call);
    void after(TIMEOUT_MS).then(() => (call.timedOutAt = now()));
    const timeoutMs = this.misuse === "calls with a timeout of a day" ? 86_400_000 : TIMEOUT_MS;
    try {
      call.result = await peer.request(method, { n }, { timeoutMs });
      call.state = "result";
    } catch (error) {
      call.state = this.#outcomeOf(error);
    }
    call.settledAt = now();
  }

  #outcomeOf(error: unknown): "not-sent" | "unknown" {
    const { outcome } = error as { outcome?: "not-sent" | "unknown" };
    if (outcome === undefined) this.oracle.breach("C1", `there is no outcome: ${String(error)}`);
    return outcome ?? "unknown";
  }

  /** L1: the last publication reaches all, also those of a node that missed it. The node must find that by itself, because nothing follows. */
  async #publishUnseen(): Promise<void> {
    const [away, other] = [...this.nodes.values()] as [FleetNode<L>, FleetNode<L>];
    let last: string | undefined;
    await this.during(async () => {
      await away.link.down();
      // After the last fault of the broker, one may still be refused.
      while (last === undefined) last = await this.#publish(++this.#numbers, undefined, other);
      await away.link.up();
    }, away);
    await this.until("L1", () => {
      const behind = this.clients.filter(
        ({ since, stay }) => !covers(since, last!) && stay.events.at(-1)?.kind !== "missed",
      );
      return behind.length === 0
        ? undefined
        : `${last} did not reach clients ${behind.map(({ number }) => number).join(", ")}`;
    });
  }

  /** P1: all nodes list the clients, and their watchers know the same. A suspended peer is a member until its session expires. */
  async #expectMembers(): Promise<void> {
    await after(2 * SESSION_MS);
    await this.until("P1", async () => {
      const ids = this.clients.map(({ stay }) => stay.welcome?.id ?? "");
      const lists = Array.from(this.nodes.values(), async ({ node, run: { run, members } }) => {
        const listed = await node.server
          .topic(LOGGED)
          .members()
          .catch(() => []);
        const list = listed.map(({ id }) => id);
        const [missing, extra] = [ids.filter((id) => !list.includes(id)), list.filter((id) => !ids.includes(id))];
        const clientOf = (id: string): Client | undefined => this.clients.find(({ stay }) => stay.welcome?.id === id);
        const isWrong = (id: string, as: unknown): boolean => (clientOf(id)?.as ?? as) !== as;
        const known = [...members].filter(
          ([id, { event, as }]) =>
            (event === "joined") !== (clientOf(id) !== undefined) || (event === "joined" && isWrong(id, as)),
        );
        known.push(...(listed.filter(({ id, as }) => isWrong(id, as)) as never[]));
        if (missing.length + extra.length + known.length === 0 && list.length === ids.length) return [];
        return [
          `node ${run} lacks ${missing.join(" ") || "none"}, has ${extra.join(" ") || "none"}, knows ${known.length} others`,
        ];
      });
      return (await Promise.all(lists)).flat().join("; ") || undefined;
    });
  }
}
