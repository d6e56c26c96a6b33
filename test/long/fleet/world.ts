/** Plays one seed: nodes in processes of their own over one broker, their clients, and the faults between them. */
import { randomUUID } from "node:crypto";
import { Random } from "../../faults/random.js";
import { startBroker, type ChaosBroker } from "./brokers.js";
import { RunClock } from "./clock.js";
import { disturb, FAULT_WEIGHTS, type FaultKind } from "./disturbances.js";
import { Member } from "./member.js";
import { MUTANTS } from "./mutants.js";
import { Breach, covers, Oracle, type Call, type Figures, type Publication, type Rule } from "./oracle.js";
import { LEASE_MS, type BrokerKind, type Done } from "./orders.js";
import { NodeProcess } from "./process.js";

/** What to play. */
export interface Plan {
  readonly seed: number;
  readonly broker: BrokerKind;
  /** The compiled program of a node. */
  readonly program: string;
  readonly nodes: number;
  readonly clients: number;
  /** How long there is traffic, and how long there are faults, in milliseconds. */
  readonly ms: number;
  /** After the last fault, when all are connected again: the longest wait for publications and calls, in milliseconds. */
  readonly patienceMs: number;
  /** The name of the mutant in each node. */
  readonly mutant?: string | undefined;
  /** Only these faults. Default: all of the broker, by their weights. */
  readonly faults?: readonly FaultKind[] | undefined;
}

/** What happened. */
export interface Played {
  readonly broker: BrokerKind;
  readonly figures: Figures;
  /** How often there was each fault. */
  readonly faults: Figures;
}

const TICK_MS = 40;
/** The number of the last publication. */
const LAST = -1;
/** The longest delay until the next fault. */
const FAULT_MS = 600;
/** The share of publications that have a key, and of those that two nodes publish at once. */
const KEYED = 0.4;
const DOUBLED = 0.3;
/** How often a publication with a key and an unknown outcome is repeated, and after how long. */
const REPEATS = 3;
const REPEAT_MS = 200;
/** The longest wait for connections after the last fault. A node or a client waits up to 20 s before it connects again. */
const SETTLE_MS = 45_000;
/** Beyond the time in which a dead node's lease ends. */
const MEMBERS_MS = 2_000;
/** How long no list of members may change after the last fault. More than the time between two renewals of a lease. */
const UNCHANGED_MS = LEASE_MS / 2;

/** The longest play, beside its traffic. */
const MOST_MS = 240_000;

const after = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** Plays a plan. Rejects with a `Breach` if a rule is broken. */
export async function play(plan: Plan): Promise<Played> {
  const world = new World(plan);
  try {
    const ended = world.start().then(async () => {
      const faults = await world.run();
      await world.quiesce();
      return faults;
    });
    const faults = await inTime(ended, plan.ms + MOST_MS);
    return { broker: plan.broker, figures: world.judge(), faults };
  } finally {
    await world.close();
  }
}

/** Rejects if a promise does not settle in time, so that other seeds can be played. */
async function inTime<T>(promise: Promise<T>, ms: number): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(new Breach(`the world has not ended after ${ms} ms`)), ms);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

class World {
  readonly oracle = new Oracle();
  readonly random: Random;
  readonly nodes: NodeProcess[] = [];
  readonly clients: Member[] = [];
  readonly #plan: Plan;
  readonly #orders = new Set<Promise<void>>();
  #broker: ChaosBroker | undefined = undefined;
  readonly #clock = new RunClock();
  readonly #startedAt = Date.now();
  /** The faults of nodes and the broker, with their times. */
  readonly #notes: string[] = [];
  #until = 0;

  constructor(plan: Plan) {
    this.#plan = plan;
    this.random = new Random(plan.seed);
  }

  get broker(): ChaosBroker {
    return this.#broker!;
  }

  leftMs(): number {
    return this.#until - Date.now();
  }

  async start(): Promise<void> {
    const { broker: kind, program, mutant, nodes, clients } = this.#plan;
    const { oracle, random } = this;
    const prefix = `chaos-${randomUUID()}`;
    this.#broker = await startBroker(kind, prefix, random);
    let runs = 0;
    const settings = { program, prefix, mutant, broker: this.#broker, oracle, nextRun: () => ++runs };
    for (let i = 0; i < nodes; i++) this.nodes.push(await NodeProcess.create(settings));
    // So no client has the beginning of the log.
    await this.#publish(0, undefined, 0);
    const isHasty =
      mutant !== undefined && MUTANTS[mutant]!.misuse === "a client moves `since` before its join is answered";
    const getPort = (): number | undefined => {
      const live = this.nodes.filter((node) => node.port !== undefined && !node.isStopped);
      return live.length === 0 ? undefined : random.pick(live).port;
    };
    const connecting = Array.from({ length: clients }, (_, i) => Member.connect(i, oracle, getPort, isHasty));
    this.clients.push(...(await Promise.all(connecting)));
  }

  /** Traffic and faults until the time is over. Returns how often there was each fault. */
  async run(): Promise<Figures> {
    this.#until = Date.now() + this.#plan.ms;
    const traffic = async (): Promise<void> => {
      for (let n = 1; this.leftMs() > 0; n++) {
        this.#send(n);
        await after(TICK_MS);
      }
    };
    const watch = async (): Promise<void> => {
      while (this.leftMs() > 0) {
        await Promise.all(this.nodes.map((node) => node.settle()));
        await after(TICK_MS);
      }
    };
    const [faults] = await Promise.all([this.#disturb(), traffic(), watch()]);
    return faults;
  }

  async #disturb(): Promise<Figures> {
    const all = this.#plan.faults ?? faultsOf(this.#plan.broker);
    const counts: Figures = {};
    const running = new Set<Promise<void>>();
    let undrawn: FaultKind[] = [];
    while (this.leftMs() > 0) {
      await after(this.random.below(FAULT_MS));
      if (all.length === 0 || this.leftMs() <= 0) continue;
      if (undrawn.length === 0) undrawn = [...all];
      const [kind] = undrawn.splice(this.random.below(undrawn.length), 1) as [FaultKind];
      const fault = disturb(kind, this).then((isDone) => {
        if (isDone) counts[kind] = (counts[kind] ?? 0) + 1;
        else undrawn.push(kind);
        running.delete(fault);
      });
      running.add(fault);
    }
    await Promise.all(running);
    return counts;
  }

  /** Orders one notification, and sometimes a publication and a call. */
  #send(n: number): void {
    const { random, oracle } = this;
    const node = random.pick(this.nodes);
    const { run } = node.run;
    void node.order({ kind: "notify", n }).then((done) => {
      if (done !== undefined && done.error === undefined) oracle.sent.push({ run, n, time: done.time });
    });
    if (random.chance(0.5)) {
      const key = random.chance(KEYED) ? `key ${n}` : undefined;
      for (let i = key !== undefined && random.chance(DOUBLED) ? 2 : 1; i > 0; i--)
        this.#track(this.#publish(n, key, REPEATS));
    }
    const peer = random.pick(this.clients).stay?.welcome?.id;
    if (peer !== undefined && random.chance(0.5)) this.#track(this.#call(n, peer));
  }

  #track(order: Promise<unknown>): void {
    const done: Promise<void> = order.then(() => void this.#orders.delete(done));
    this.#orders.add(done);
  }

  async #publish(
    n: number,
    key: string | undefined,
    repeats: number,
    node = this.random.pick(this.nodes),
  ): Promise<string | undefined> {
    const { run } = node.run;
    const publication: Publication = {
      n,
      run,
      key,
      state: "pending",
      at: undefined,
      orderedAt: Date.now(),
      time: 0,
    };
    this.oracle.publications.push(publication);
    const done = await node.order({ kind: "publish", n, key });
    const state = this.#stateOf("publication", n, done);
    publication.state = state === "done" ? "acked" : state;
    publication.at = done?.at;
    publication.time = done?.time ?? 0;
    if (key === undefined || repeats === 0 || (state !== "unknown" && state !== "interrupted")) return done?.at;
    await after(REPEAT_MS);
    return this.#publish(n, key, repeats - 1);
  }

  async #call(n: number, peer: string): Promise<void> {
    const node = this.random.pick(this.nodes);
    const { run } = node.run;
    const call: Call = { n, run, tookMs: 0, result: undefined, state: "pending" };
    this.oracle.calls.push(call);
    const done = await node.order({ kind: "call", n, peer });
    const state = this.#stateOf("call", n, done);
    call.state = state === "done" ? "result" : state;
    call.result = done?.result;
    call.tookMs = done?.tookMs ?? 0;
  }

  /** Returns how an order ended. A call or a publication that fails has an outcome. */
  #stateOf(what: string, n: number, done: Done | undefined): "done" | "not-sent" | "unknown" | "interrupted" {
    if (done === undefined) return "interrupted";
    if (done.error === undefined) return "done";
    const { outcome, text } = done.error;
    if (outcome === "not-sent" || outcome === "unknown") return outcome;
    this.oracle.breach("C1", `${what} ${n} failed without an outcome: ${text}`);
    return "unknown";
  }

  /** Waits until all are connected again, have everything, and list the same members. If they do not connect, checks nothing else. */
  async quiesce(): Promise<void> {
    const { patienceMs } = this.#plan;
    this.note("no more faults");
    if (!(await this.#isConnected()) || !(await this.#hasJoined())) return;
    await this.#expectMembers();
    // Without another publication, which would show each node what it has missed.
    await this.#expectAll(await this.#top());
    await this.#expectAll(await this.#publishUnseen());
    await this.#expectSoon("C1", patienceMs, () => (this.#orders.size === 0 ? undefined : "calls are pending"));
  }

  /** W. Returns true when all nodes have connections to the broker. */
  async #isConnected(): Promise<boolean> {
    const { nodes } = this;
    const isConnected = await this.#expectSoon("W", SETTLE_MS, async () => {
      const settled = await Promise.all(nodes.map((node) => node.settle()));
      const waiting = nodes.filter((_, i) => !settled[i]).map(({ description }) => description);
      return waiting.length === 0 ? undefined : `not settled: nodes ${waiting.join(", ")}`;
    });
    if (isConnected) this.note("all nodes have connections");
    return isConnected;
  }

  /** W. Returns true when all clients are members. */
  async #hasJoined(): Promise<boolean> {
    const hasJoined = await this.#expectSoon("W", SETTLE_MS, () => {
      const away = this.clients.filter(({ isBack }) => !isBack).map(({ number }) => number);
      return away.length === 0 ? undefined : `clients ${away.join(", ")} have not joined again`;
    });
    if (hasJoined) this.note("all clients have joined");
    return hasJoined;
  }

  /** P1. */
  async #expectMembers(): Promise<void> {
    const { nodes, clients } = this;
    await this.#expectSoon("P1", (LEASE_MS * 4) / 3 + MEMBERS_MS + UNCHANGED_MS, async () => {
      const truth = clients.map(({ stay }) => stay!.welcome?.id ?? "");
      const dones = await Promise.all(nodes.map((node) => node.order({ kind: "members" })));
      const lists = dones.flatMap((done, i) => [
        ...this.#differenceOf(`members() of node ${nodes[i]!.run.run}`, truth, done?.members),
        ...this.#differenceOf(`the replica of node ${nodes[i]!.run.run}`, truth, done?.replica),
      ]);
      if (lists.length > 0) return lists.join("; ");
      // A list that is right for a moment only is wrong.
      const quietMs = Date.now() - this.oracle.memberAt;
      if (quietMs < UNCHANGED_MS) return "watchers are notified, and no client comes or goes";
      this.oracle.listed(truth);
      return undefined;
    });
  }

  /** Publishes while one node has no connection. The node must find that by itself, because nothing follows. */
  async #publishUnseen(): Promise<string | undefined> {
    const [away, other] = this.nodes as [NodeProcess, NodeProcess];
    const { relay } = away;
    let at: string | undefined;
    await away.during(async () => {
      relay.isRefusing = true;
      for (const line of relay.all) line.cut();
      at = await this.#publish(LAST, undefined, 0, other);
      relay.isRefusing = false;
    });
    if (at === undefined) this.oracle.breach("crash", "a publication after the last fault failed");
    return (await this.#isConnected()) ? at : undefined;
  }

  /** Returns the position of the last entry of the log. */
  async #top(): Promise<string | undefined> {
    let top: string | undefined;
    await this.#expectSoon("W", SETTLE_MS, async () => {
      const done = await this.nodes[0]!.order({ kind: "top" });
      top = done?.at;
      return done === undefined || done.error !== undefined ? "the log cannot be read" : undefined;
    });
    return top;
  }

  /** L1: a position reaches all clients, or they are told of a gap. */
  async #expectAll(at: string | undefined): Promise<void> {
    if (at === undefined) return;
    await this.#expectSoon("L1", this.#plan.patienceMs, () => {
      const behind = this.clients.filter((client) => !client.isInGap && !covers(client.since, at));
      if (behind.length === 0) return undefined;
      return `${at} did not reach clients ${behind.map(({ number }) => number).join(", ")}`;
    });
  }

  note(text: string): void {
    this.#notes.push(`${((Date.now() - this.#startedAt) / 1_000).toFixed(2)} ${text}`);
  }

  /** Judges everything, after the end. Throws a `Breach` with the broken rules and what happened before. */
  judge(): Figures {
    try {
      return this.oracle.judge();
    } catch (error) {
      if (!(error instanceof Breach)) throw error;
      const { longestStopMs } = this.#clock;
      const stop = `The machine stood still for at most ${Math.round(longestStopMs)} ms.`;
      throw new Breach(
        `${error.message}\n${stop} Faults, by seconds and with the numbers of nodes:\n${this.#notes.join(", ")}`,
      );
    }
  }

  /** Repeats a check until it returns no complaint, and returns true then. Otherwise, a rule is broken. */
  async #expectSoon(
    rule: Rule,
    ms: number,
    check: () => Promise<string | undefined> | string | undefined,
  ): Promise<boolean> {
    const end = this.#clock.ms + ms;
    for (let complaint; (complaint = await check()) !== undefined; await after(TICK_MS)) {
      if (this.#clock.ms <= end) continue;
      this.oracle.breach(rule, `not within ${Math.round(ms)} ms: ${complaint}`);
      return false;
    }
    return true;
  }

  /** Returns what a list lacks and what it has too much. */
  #differenceOf(name: string, truth: readonly string[], list: readonly string[] | undefined): string[] {
    if (list === undefined) return [`${name} failed`];
    const missing = truth.filter((id) => !list.includes(id));
    const extra = list.filter((id) => !truth.includes(id));
    const isTwice = new Set(list).size < list.length;
    if (missing.length === 0 && extra.length === 0 && !isTwice) return [];
    return [`${name} lacks ${this.#nameAll(missing)} and also has ${this.#nameAll(extra)}`];
  }

  /** Returns ids of members, with the numbers of their nodes and clients. */
  #nameAll(ids: readonly string[]): string {
    if (ids.length === 0) return "none";
    const { stays } = this.oracle;
    return ids
      .map((id) => [id, stays.find(({ welcome }) => welcome?.id === id)] as const)
      .map(([id, stay]) => `${id} (node ${stay?.welcome?.run}, client ${stay?.client})`)
      .join(" ");
  }

  async close(): Promise<void> {
    this.#clock.stop();
    await Promise.allSettled(this.clients.map((member) => member.close()));
    await Promise.allSettled(this.nodes.map((node) => node.close()));
    await this.#broker?.[Symbol.asyncDispose]();
  }
}

/** Returns each fault of a broker, as often as its weight. A seed draws all of them before it draws one again. */
function faultsOf(broker: BrokerKind): FaultKind[] {
  const weights = Object.entries(FAULT_WEIGHTS[broker]) as [FaultKind, number][];
  return weights.flatMap(([kind, weight]) => Array.from({ length: weight }, () => kind));
}
