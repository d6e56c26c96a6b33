/** A node of the world: its process, which starts again when it was killed, and its proxy to the broker. */
import { fork, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import type { Done, NodeStart, Order, Report } from "./orders.js";
import type { Oracle, Run, Trouble } from "./oracle.js";
import { Relay } from "./relay.js";

const PROGRAM = join(import.meta.dirname, ".build/test/fleet/chaos/node.js");
/** The connections of a node: one for commands, and one for subscriptions. */
const CONNECTIONS = 2;

export class NodeProcess {
  readonly #start: Omit<NodeStart, "run" | "url">;
  readonly #oracle: Oracle;
  readonly #nextRun: () => number;
  #relay!: Relay;
  #child: ChildProcess | undefined;
  #orders = 0;
  readonly #pending = new Map<number, (done: Done | undefined) => void>();
  #trouble: Trouble | undefined;
  #isEnding = false;
  /** Whether a connection ended in this trouble, and whether the process was paused in it. */
  #hasLost = false;
  #wasPaused = false;
  isPaused = false;
  run!: Run;
  /** The port for clients; `undefined` while there is no process. */
  port: number | undefined;

  private constructor(start: Omit<NodeStart, "run" | "url">, oracle: Oracle, nextRun: () => number) {
    this.#start = start;
    this.#oracle = oracle;
    this.#nextRun = nextRun;
  }

  static async create(
    start: Omit<NodeStart, "run" | "url">,
    broker: number,
    oracle: Oracle,
    nextRun: () => number,
  ): Promise<NodeProcess> {
    const node = new NodeProcess(start, oracle, nextRun);
    node.#relay = await Relay.listen(
      () => broker,
      () => node.#lost(),
    );
    await node.start();
    return node;
  }

  get relay(): Relay {
    return this.#relay;
  }

  /** Starts the process. Resolves when it accepts clients. */
  async start(): Promise<void> {
    this.run = this.#oracle.started(this.#nextRun());
    this.#trouble = undefined;
    this.#hasLost = this.#wasPaused = false;
    const url = `redis://127.0.0.1:${this.#relay.port}`;
    const start: NodeStart = { ...this.#start, run: this.run.run, url };
    const child = fork(PROGRAM, [JSON.stringify(start)], { execArgv: ["--disable-warning=ExperimentalWarning"] });
    this.#child = child;
    const { run } = this;
    const listening = new Promise<void>((resolve, reject) => {
      child.on("message", (report: Report) => {
        if (report.kind === "listening") {
          this.port = report.port;
          resolve();
        } else this.#take(run, report);
      });
      child.once("exit", (code, signal) => reject(new Error(`a node ended with ${code ?? signal}`)));
    });
    await listening;
  }

  #take(run: Run, report: Report): void {
    if (report.kind === "done") {
      this.#pending.get(report.order)?.(report.done);
      this.#pending.delete(report.order);
    } else if (report.kind === "engine") {
      if (report.state === "down") run.downs.push(report.time);
    } else if (report.kind === "gap") run.gaps.push(report.time);
    else if (report.kind === "member") this.#oracle.member(run, report.event, report.id);
  }

  /** The broker's proxy saw that a connection ended. */
  #lost(): void {
    if (this.port === undefined || this.#isEnding) return;
    // The first loss of a trouble is that of a connection which worked. A paused process cannot report it.
    if (!this.#hasLost && !this.#wasPaused) this.run.losses.push(Date.now());
    this.troubled();
    this.#hasLost = true;
  }

  /** Records that this node may have no connection, until `settle` finds one. */
  troubled(): void {
    if (this.#trouble !== undefined) return;
    this.#trouble = { from: Date.now(), to: Infinity };
    this.run.troubles.push(this.#trouble);
  }

  /** Ends the trouble if both connections are whole and the node is healthy. Returns whether there is none. */
  async settle(): Promise<boolean> {
    const trouble = this.#trouble;
    if (trouble === undefined) return this.port !== undefined;
    if (this.isPaused || this.port === undefined) return false;
    const { whole, lines } = this.#relay;
    const before = [...lines];
    if (whole.length < CONNECTIONS || whole.length < lines.size) return false;
    const done = await this.order({ kind: "health" });
    const isSame = this.#relay.whole.length === before.length && before.every((line) => this.#relay.lines.has(line));
    if (done?.ok !== true || !isSame || this.isPaused || this.#trouble !== trouble) return false;
    trouble.to = Date.now();
    this.#trouble = undefined;
    this.#hasLost = this.#wasPaused = false;
    return true;
  }

  /** Gives an order. Resolves with `undefined` if the process ended before it was done. */
  async order(order: Order): Promise<Done | undefined> {
    const child = this.#child;
    if (child === undefined || !child.connected) return undefined;
    const number = ++this.#orders;
    return new Promise((resolve) => {
      this.#pending.set(number, resolve);
      child.send({ number, order }, (error) => {
        if (error !== null && error !== undefined) this.#forget();
      });
    });
  }

  #forget(): void {
    for (const resolve of this.#pending.values()) resolve(undefined);
    this.#pending.clear();
  }

  signal(name: "SIGSTOP" | "SIGCONT"): void {
    this.isPaused = name === "SIGSTOP";
    this.troubled();
    this.#wasPaused = true;
    this.#child?.kill(name);
  }

  /** Kills the process. Resolves when it has ended. */
  async kill(): Promise<void> {
    const child = this.#child!;
    this.run.endedAt = Date.now();
    this.port = undefined;
    this.#child = undefined;
    const exit = child.exitCode === null && child.signalCode === null ? once(child, "exit") : undefined;
    child.kill("SIGKILL");
    await exit;
    this.isPaused = false;
    this.#forget();
  }

  async close(): Promise<void> {
    this.#isEnding = true;
    if (this.#child !== undefined) await this.kill();
    await this.#relay.close();
  }
}
