/** A node of the world: its process, which starts again when it was killed, and its proxy to the broker. */
import { fork, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import type { ChaosBroker } from "./brokers.js";
import type { BrokerPlace, Done, NodeStart, Order, Report } from "./orders.js";
import type { Oracle, Run, Trouble } from "./oracle.js";
import { Relay, type Line } from "./relay.js";

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

/** Without a proxy, a node may notice a fault so much later. */
const UNSEEN_MS = 4_000;

const children = new Set<ChildProcess>();
// A process that is stopped does not see that the world has ended.
process.once("exit", () => {
  for (const child of children) child.kill("SIGKILL");
});

export class NodeProcess {
  readonly #settings: NodeSettings;
  #relay: Relay | undefined = undefined;
  #child: ChildProcess | undefined = undefined;
  #orders = 0;
  readonly #pending = new Map<number, (done: Done | undefined) => void>();
  #trouble: Trouble | undefined = undefined;
  /** Faults that go on. */
  #faults = 0;
  #faultEndedAt = 0;
  #isEnding = false;
  /** Whether a connection ended in this trouble, and whether the process was stopped in it. */
  #hasLost = false;
  #wasStopped = false;
  isStopped = false;
  run: Run;
  /** The port for clients; `undefined` while there is no process. */
  port: number | undefined = undefined;

  private constructor(settings: NodeSettings) {
    this.#settings = settings;
    this.run = settings.oracle.started(settings.nextRun());
  }

  static async create(settings: NodeSettings): Promise<NodeProcess> {
    const node = new NodeProcess(settings);
    const { port } = settings.broker;
    if (port !== undefined)
      node.#relay = await Relay.listen(
        () => port,
        (line) => node.#lost(line),
      );
    await node.#start();
    return node;
  }

  /** The proxy to the broker, if there is one. */
  get relay(): Relay | undefined {
    return this.#relay;
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
    const { kind } = broker;
    const port = this.#relay?.port;
    const place: BrokerPlace =
      port === undefined
        ? { kind, urls: broker.urls }
        : { kind, urls: [`${kind === "nats" ? "nats" : "redis"}://127.0.0.1:${port}`] };
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
    if (!this.#hasLost && !this.#wasStopped) this.run.losses.push(Date.now());
    this.troubled();
    this.#hasLost = true;
  }

  /** Records that this node may have no connection, until `settle` finds one. */
  troubled(): void {
    this.#faultEndedAt = Date.now();
    if (this.#trouble !== undefined) return;
    this.#trouble = { from: Date.now(), to: Infinity };
    this.run.troubles.push(this.#trouble);
  }

  /** Records that this node may have no connection as long as a fault goes on, and until `settle` finds one. */
  async during(fault: () => Promise<void>): Promise<void> {
    this.troubled();
    this.#faults++;
    try {
      await fault();
    } finally {
      this.#faults--;
      this.#faultEndedAt = Date.now();
    }
  }

  /** Ends the trouble if all connections are whole and the node is healthy. Returns whether there is none. */
  async settle(): Promise<boolean> {
    const trouble = this.#trouble;
    if (trouble === undefined) return this.port !== undefined;
    if (this.#faults > 0 || this.isStopped || this.port === undefined || !this.#isWhole()) return false;
    const before = new Set(this.#relay?.used);
    const done = await this.order({ kind: "health" });
    const isSame = this.#isWhole() && (this.#relay?.used ?? []).every((line) => before.has(line));
    if (done?.ok !== true || !isSame || this.#faults > 0 || this.isStopped || this.#trouble !== trouble) return false;
    trouble.to = Date.now();
    this.#trouble = undefined;
    this.#hasLost = this.#wasStopped = false;
    return true;
  }

  /** What a report says of this node. */
  get description(): string {
    const { whole, used } = this.#relay ?? { whole: [], used: [] };
    return `${this.run.run} (${used.length} connections, ${whole.length} of them without a fault)`;
  }

  #isWhole(): boolean {
    if (this.#relay === undefined) return Date.now() > this.#faultEndedAt + UNSEEN_MS;
    const { whole, used } = this.#relay;
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
    });
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
    await this.#relay?.close();
  }
}
