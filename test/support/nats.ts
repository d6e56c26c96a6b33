/** A NATS for the tests, found or installed, and servers of it on free ports, each in a temporary folder. */
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { aptInstall, canRun, onPath } from "./debian.js";
import { freePort } from "./redis.js";

const CURE =
  "no nats-server found and none could be installed; install NATS 2.9 or later, or set NATS_SERVER_PATH to one";
/** How often a server starts on another port if its port was taken meanwhile. */
const STARTS = 5;

/** Resolves with the path of a NATS server. Installs one if necessary. If that fails, rejects with the remedy. */
export async function ensureNats(): Promise<string> {
  const given = process.env["NATS_SERVER_PATH"];
  if (given !== undefined && given !== "") {
    if (canRun(given)) return given;
    throw new Error(`NATS_SERVER_PATH is ${given}, which cannot be run`);
  }
  const find = (): string | undefined => [...onPath("nats-server"), "/usr/sbin/nats-server"].find(canRun);
  const found = find() ?? ((await aptInstall("nats-server")) ? find() : undefined);
  if (found === undefined) throw new Error(CURE);
  return found;
}

/** One process of NATS, with JetStream. It keeps its ports when it is killed and started again. */
export class NatsServer implements AsyncDisposable {
  readonly #path: string;
  readonly #folder: string;
  #child: ChildProcess | undefined;
  #gone: Promise<unknown> = Promise.resolve();
  #port = 0;
  #monitorPort = 0;

  private constructor(path: string, folder: string) {
    this.#path = path;
    this.#folder = folder;
  }

  static async create(): Promise<NatsServer> {
    const server = new NatsServer(await ensureNats(), await mkdtemp(join(tmpdir(), "reciproc-nats-")));
    for (let i = 1; ; i++) {
      server.#port = await freePort();
      server.#monitorPort = await freePort();
      try {
        await server.start();
        return server;
      } catch (error) {
        if (i === STARTS) throw error;
      }
    }
  }

  get port(): number {
    return this.#port;
  }

  get url(): string {
    return `nats://127.0.0.1:${this.#port}`;
  }

  /** Starts the process. Resolves when it accepts connections. */
  async start(): Promise<void> {
    const args = [
      "-a",
      "127.0.0.1",
      "-p",
      String(this.#port),
      "-m",
      String(this.#monitorPort),
      "-js",
      "-sd",
      this.#folder,
    ];
    const child = spawn(this.#path, args, { stdio: ["ignore", "ignore", "pipe"] });
    this.#child = child;
    const kill = (): boolean => child.kill("SIGKILL");
    process.once("exit", kill);
    this.#gone = once(child, "exit").finally(() => process.off("exit", kill));
    const output: string[] = [];
    for await (const line of createInterface(child.stderr)) {
      output.push(line);
      if (line.includes("Server is ready")) {
        child.stderr.resume();
        return;
      }
    }
    await this.#gone;
    throw new Error(`nats-server ended with ${child.exitCode}:\n${output.join("\n")}`);
  }

  /** Returns the subjects of a prefix that are subscribed. */
  async subscriptions(prefix: string): Promise<string[]> {
    const response = await fetch(`http://127.0.0.1:${this.#monitorPort}/connz?subs=1&limit=1000`);
    const { connections } = (await response.json()) as { connections: { subscriptions_list?: string[] }[] };
    return connections
      .flatMap(({ subscriptions_list: list }) => list ?? [])
      .filter((subject) => subject.startsWith(`${prefix}.`));
  }

  /** Ends the process at once, and resolves when it has ended. */
  async kill(): Promise<void> {
    this.#child?.kill("SIGKILL");
    await this.#gone;
  }

  /** Stops the process, which keeps its connections, or continues it. */
  signal(name: "SIGSTOP" | "SIGCONT"): void {
    this.#child?.kill(name);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
    await rm(this.#folder, { recursive: true, force: true });
  }
}
