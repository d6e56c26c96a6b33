/** The processes of the nodes, and the load balancer in front of them. */
import { fork, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { connect, createServer, type AddressInfo, type Server, type Socket } from "node:net";
import { fileURLToPath } from "node:url";

const PROGRAM = fileURLToPath(new URL("node.mjs", import.meta.url));

/** What a node sends. */
interface Message {
  readonly url?: string;
  readonly ran?: number;
  readonly error?: string;
  readonly drained?: object;
}

/** What the nodes report. */
export interface NodeReports {
  /** The ids of all calls that have begun, on any node. */
  readonly ran: number[];
  readonly errors: string[];
}

/** The process of one node. */
export class NodeProcess implements AsyncDisposable {
  readonly route: string;
  readonly #child: ChildProcess;
  readonly #exited: Promise<[code: number | null, signal: string | null]>;
  port = 0;

  private constructor(route: string, child: ChildProcess) {
    this.route = route;
    this.#child = child;
    this.#exited = once(child, "exit") as Promise<[number | null, string | null]>;
    process.once("exit", () => child.kill("SIGKILL"));
  }

  /** Resolves when the node listens. */
  static async start(route: string, settings: object, reports: NodeReports): Promise<NodeProcess> {
    const child = fork(PROGRAM, [JSON.stringify({ ...settings, route })], { execArgv: [] });
    const node = new NodeProcess(route, child);
    const url = await new Promise<string>((resolve, reject) => {
      void node.#exited.then(([code]) => reject(new Error(`the node ended with ${code}`)));
      child.on("message", ({ url: own, ran, error }: Message) => {
        if (own !== undefined) resolve(own);
        if (ran !== undefined) reports.ran.push(ran);
        if (error !== undefined) reports.errors.push(error);
      });
    });
    node.port = Number(new URL(url).port);
    return node;
  }

  /** Drains the node. Resolves with its exit code when the process has ended by itself. */
  async drain(): Promise<number | null> {
    this.#child.send("drain");
    const [code] = await this.#exited;
    return code;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#child.kill("SIGKILL");
    await this.#exited;
  }
}

/** Forwards each connection to the node that its URL names by `node=`, or else to the next one. */
export class Balancer implements AsyncDisposable {
  readonly #nodes = new Map<string, NodeProcess>();
  readonly #pairs = new Set<readonly [Socket, Socket]>();
  readonly #listener: Server;
  #next = 0;
  /** How many connections went to the node that their URL names. */
  routed = 0;
  /** Whether it ignores the node in URLs. */
  isBlind = false;

  private constructor(listener: Server) {
    this.#listener = listener;
    listener.on("connection", (near) => {
      near.on("error", () => {});
      near.once("data", (head) => this.#forward(near, head));
    });
  }

  static async create(): Promise<Balancer> {
    const listener = createServer().listen(0, "127.0.0.1");
    await once(listener, "listening");
    return new Balancer(listener);
  }

  get url(): string {
    return `ws://127.0.0.1:${(this.#listener.address() as AddressInfo).port}/`;
  }

  add(node: NodeProcess): void {
    this.#nodes.set(node.route, node);
  }

  remove(node: NodeProcess): void {
    if (this.#nodes.get(node.route) === node) this.#nodes.delete(node.route);
  }

  #forward(near: Socket, head: Buffer): void {
    const route = /^GET \S*[?&]node=([^ &]*)/.exec(head.toString("latin1"))?.[1];
    const named = route === undefined || this.isBlind ? undefined : this.#nodes.get(route);
    if (named !== undefined) this.routed++;
    const node = named ?? [...this.#nodes.values()][this.#next++ % this.#nodes.size];
    if (node === undefined) return void near.destroy();
    const far = connect(node.port, "127.0.0.1");
    far.write(head);
    const pair = [near, far] as const;
    this.#pairs.add(pair);
    for (const [i, from] of pair.entries()) {
      const to = pair[1 - i]!;
      from.pipe(to);
      from.on("error", () => {});
      from.on("close", () => {
        to.destroy();
        this.#pairs.delete(pair);
      });
    }
  }

  /** Cuts about so many of the connections, old and new ones, on all nodes. */
  cut(count: number): void {
    const every = Math.max(1, Math.floor(this.#pairs.size / count));
    for (const [i, pair] of [...this.#pairs].entries())
      if (i % every === 0) for (const socket of pair) socket.destroy();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.cut(Infinity);
    this.#listener.close();
    await once(this.#listener, "close");
  }
}
