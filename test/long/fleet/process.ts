/** A node of the world: its process, which starts again when it was killed, and its proxy to the broker. */
import { fork, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import type { ChaosBroker } from "./brokers.js";
import type { BrokerPlace, Done, NodeStart, Order, Report } from "./orders.js";
import type { Oracle, Run, Trouble } from "./oracle.js";
import { Lines, type Line } from "./lines.js";

/** What the nodes of a world have in common. */
export interface NodeSettings {
  /** The compiled program of a node. */
  readonly program: string;
  readonly prefix: string;
  readonly mutant: string | undefined;
  readonly broker: ChaosBroker;
  readonly oracle: Oracle;
  /** Returns the number of the next process. */
  readonly nextRun: () => number;
}

/** A node notices so much later that the servers of a cluster have changed places, or that it was stopped: no connection ends. */
const UNSEEN_MS = 4_000;
/** A node asks a server of a cluster for the places of all in less time. It does not use such a connection again. */
const ASKED_MS = 2_000;

const children = new Set<ChildProcess>();
// A process that is stopped does not see that the world has ended.
process.once("exit", () => {
  for (const child of children) child.kill("SIGKILL");
});

export class NodeProcess {
  readonly #settings: NodeSettings;
  readonly relay: Lines;
  #child: ChildProcess | undefined = undefined;
  #orders = 0;
  readonly #pending = new Map<number, (done: Done | undefined) => void>();
  #trouble: Trouble | undefined = undefined;
  /** Faults that go on. */
  #faults = 0;
  #unseenUntil = 0;
  #isEnding = false;
  /** Whether a connection ended in this trouble, and whether the process was stopped in it. */
  #hasLost = false;
  #wasStopped = false;
  isStopped = false;
  run: Run;
  /** The port for clients; `undefined` while there is no process. */
  port: number | undefined = undefined;

  private constructor(settings: NodeSettings, relay: Lines) {
    this.#settings = settings;
    this.relay = relay;
    this.run = settings.oracle.started(settings.nextRun());
  }

  static async create(settings: NodeSettings): Promise<NodeProcess> {
    const targets = settings.broker.ports.map((port) => () => port);
    const relay = await Lines.listen(targets, (line) => node.#lost(line));
    const node = new NodeProcess(settings, relay);
    await node.#start();
    return node;
  }

  /** Whether the node may have no connection to the broker. */
  get isTroubled(): boolean {
    return this.#trouble !== undefined;
  }

  /** Starts a process again. Resolves when it accepts clients. */
  async restart(): Promise<void> {
    const { oracle, nextRun } = this.#settings;
    this.run = oracle.started(nextRun());
    await this.#start();
  }

  async #start(): Promise<void> {
    const { program, prefix, mutant, broker, oracle } = this.#settings;
    this.#trouble = undefined;
    this.#hasLost = this.#wasStopped = false;
    const { kind, urls, ports } = broker;
    const proxies = this.relay.ports;
    const place: BrokerPlace = { kind, urls, detours: ports.map((port, i) => [port, proxies[i]!]) };
    const start: NodeStart = { run: this.run.run, place, prefix, mutant };
    const child = fork(program, [JSON.stringify(start)]);
    this.#child = child;
    children.add(child);
    const { run } = this;
    await new Promise<void>((resolve, reject) => {
      child.on("message", (report: Report) => {
        if (report.kind === "listening") {
          this.port = report.port;
          if (this.#faults > 0) this.troubled();
          resolve();
        } else this.#take(run, report);
      });
      child.once("exit", (code, signal) => {
        children.delete(child);
        if (this.#child === child) oracle.breach("crash", `node ${run.run} ended with ${code ?? signal}`);
        reject(new Error(`node ${run.run} ended with ${code ?? signal}`));
      });
    });
  }

  #take(run: Run, report: Report): void {
    const { oracle } = this.#settings;
    if (report.kind === "done") {
      this.#pending.get(report.order)?.(report.done);
      this.#pending.delete(report.order);
    } else if (report.kind === "engine") run.states.push(report);
    else if (report.kind === "member") oracle.member(run, report.event, report.id);
    else if (report.kind === "error") oracle.breach("crash", `node ${run.run} reported ${report.text}`);
  }

  /** The proxy saw that a connection to the broker ended. */
  #lost(line: Line): void {
    if (this.port === undefined || this.#isEnding || !line.isUsed) return;
    // The first loss of a trouble is that of a connection which worked. A stopped process cannot report it.
    if (!this.#hasLost && !this.#wasStopped && this.#isLoss(line)) this.run.losses.push(Date.now());
    this.troubled();
    this.#hasLost = true;
  }

  /** Over a cluster, a node ends connections itself to servers that are no primaries any more, and to those that it has asked. */
  #isLoss(line: Line): boolean {
    if (!this.#isOverCluster) return true;
    return !line.isEndedByClient && Date.now() - line.openedAt > ASKED_MS;
  }

  get #isOverCluster(): boolean {
    return this.#settings.broker.kind === "cluster";
  }

  /** Records that this node may have no connection, until `settle` finds one. */
  troubled(): void {
    if (this.#trouble !== undefined) return;
    this.#trouble = { from: Date.now(), to: Infinity };
    this.run.troubles.push(this.#trouble);
  }

  /**
   * Records that this node may have no connection as long as a fault goes on, and until `settle` finds one. `isUnseen`: whether a node
   * over a cluster may notice later that it has none.
   */
  async during(fault: () => Promise<void>, isUnseen = false): Promise<void> {
    this.troubled();
    this.#faults++;
    try {
      await fault();
    } finally {
      this.#faults--;
      if (isUnseen && this.#isOverCluster) this.#unseenUntil = Date.now() + UNSEEN_MS;
    }
  }

  /** Ends the trouble if all connections are whole and the node is healthy. Returns whether there is none. */
  async settle(): Promise<boolean> {
    const trouble = this.#trouble;
    if (trouble === undefined) return this.port !== undefined;
    if (this.#faults > 0 || this.isStopped || this.port === undefined || !this.#isWhole()) return false;
    const before = new Set(this.relay.used);
    const done = await this.order({ kind: "health" });
    const isSame = this.#isWhole() && this.relay.used.every((line) => before.has(line));
    if (done?.ok !== true || !isSame || this.#faults > 0 || this.isStopped || this.#trouble !== trouble) return false;
    trouble.to = Date.now();
    this.#trouble = undefined;
    this.#hasLost = this.#wasStopped = false;
    return true;
  }

  /** What a report says of this node. */
  get description(): string {
    const { whole, used } = this.relay;
    return `${this.run.run} (${used.length} connections, ${whole.length} of them without a fault)`;
  }

  #isWhole(): boolean {
    const { whole, used } = this.relay;
    if (Date.now() < this.#unseenUntil) return false;
    return whole.length >= this.#settings.broker.connections && whole.length === used.length;
  }

  /** Gives an order. Resolves with `undefined` if the process ended before it was done. */
  async order(order: Order): Promise<Done | undefined> {
    const child = this.#child;
    if (child === undefined || !child.connected) return undefined;
    const number = ++this.#orders;
    return new Promise((resolve) => {
      this.#pending.set(number, resolve);
      child.send({ number, order }, (error) => {
        if (error === null || error === undefined) return;
        this.#pending.delete(number);
        resolve(undefined);
      });
    });
  }

  /** Stops the process for a time. It keeps its connections. */
  async stop(ms: number): Promise<void> {
    const child = this.#child;
    if (child === undefined) return;
    await this.during(async () => {
      this.isStopped = this.#wasStopped = true;
      this.run.stops.push(Date.now());
      child.kill("SIGSTOP");
      await new Promise((resolve) => setTimeout(resolve, ms));
      child.kill("SIGCONT");
      this.isStopped = false;
    }, true);
  }

  /** Kills the process. Resolves when it has ended. */
  async kill(): Promise<void> {
    const child = this.#child;
    if (child === undefined) return;
    this.run.endedAt = Date.now();
    this.port = undefined;
    this.#child = undefined;
    const exit = child.exitCode === null && child.signalCode === null ? once(child, "exit") : undefined;
    child.kill("SIGKILL");
    await exit;
    for (const resolve of this.#pending.values()) resolve(undefined);
    this.#pending.clear();
  }

  async close(): Promise<void> {
    this.#isEnding = true;
    await this.kill();
    await this.relay.close();
  }
}
