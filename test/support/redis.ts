/** A Redis for the tests, found or installed, and servers of it on free ports, each in a temporary folder. */
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { createClient } from "@redis/client";
import { aptInstall, canRun, onPath } from "./debian.js";
import { freePort } from "./ports.js";

const NAMES = ["redis-server", "valkey-server"];
const CURE =
  "no redis-server found and none could be installed; install Redis 6.2 or later, or set REDIS_SERVER_PATH to one";
/** How often a server starts on another port if its port was taken meanwhile. */
const STARTS = 5;

/** Resolves with the path of a Redis server. Installs one if necessary. If that fails, rejects with the remedy. */
export async function ensureRedis(): Promise<string> {
  const given = process.env["REDIS_SERVER_PATH"];
  if (given !== undefined && given !== "") {
    if (canRun(given)) return given;
    throw new Error(`REDIS_SERVER_PATH is ${given}, which cannot be run`);
  }
  const found = onPath(...NAMES)[0] ?? ((await aptInstall("redis-server")) ? onPath(...NAMES)[0] : undefined);
  if (found === undefined) throw new Error(CURE);
  return found;
}

export interface RedisServerOptions {
  /** Further settings, by name, as in `redis.conf`. */
  readonly settings?: Readonly<Record<string, string>>;
  /** Users, as in an ACL file. Default: one without a password. */
  readonly users?: readonly string[];
  /** The files of a certificate: the server accepts TLS only. */
  readonly certificate?: { readonly key: string; readonly cert: string };
  readonly kind?: "server" | "cluster" | "sentinel";
}

/** One process of Redis. It keeps its port and its folder when it is killed and started again. */
export class RedisServer implements AsyncDisposable {
  readonly #path: string;
  readonly #folder: string;
  readonly #options: RedisServerOptions;
  #child: ChildProcess | undefined;
  #gone: Promise<unknown> = Promise.resolve();
  port = 0;
  /** The port by which the servers of a cluster talk to each other. */
  busPort = 0;

  private constructor(path: string, folder: string, options: RedisServerOptions) {
    this.#path = path;
    this.#folder = folder;
    this.#options = options;
  }

  static async create(options: RedisServerOptions = {}): Promise<RedisServer> {
    const folder = await mkdtemp(join(tmpdir(), "reciproc-redis-"));
    const server = new RedisServer(await ensureRedis(), folder, options);
    for (let i = 1; ; i++) {
      server.port = await freePort();
      await server.#writeFiles();
      try {
        await server.start();
        return server;
      } catch (error) {
        if (i === STARTS) throw error;
      }
    }
  }

  /** The URL without credentials. */
  get url(): string {
    return `${this.#options.certificate === undefined ? "redis" : "rediss"}://127.0.0.1:${this.port}`;
  }

  async #writeFiles(): Promise<void> {
    this.busPort = await freePort();
    const { settings = {}, users, certificate, kind = "server" } = this.#options;
    const port = String(this.port);
    const files = ["key", "cert"].map((name) => join(this.#folder, `${name}.pem`));
    const tls = {
      port: "0",
      "tls-port": port,
      "tls-auth-clients": "no",
      "tls-key-file": files[0]!,
      "tls-cert-file": files[1]!,
    };
    const plain = { port, "protected-mode": "no" };
    const cluster = {
      "cluster-enabled": "yes",
      "cluster-config-file": "nodes.conf",
      "cluster-port": String(this.busPort),
      "cluster-node-timeout": "3000",
    };
    const all: Record<string, string> = {
      bind: "127.0.0.1",
      dir: this.#folder,
      ...(certificate === undefined ? plain : tls),
      ...(kind === "sentinel" ? {} : { save: '""', appendonly: "no", "repl-diskless-sync-delay": "0" }),
      ...(kind === "cluster" ? cluster : {}),
      ...(users === undefined ? {} : { aclfile: join(this.#folder, "users.acl") }),
      ...settings,
    };
    const lines = Object.entries(all).map(([name, value]) => `${name} ${value}\n`);
    await writeFile(join(this.#folder, "redis.conf"), lines.join(""));
    if (users !== undefined)
      await writeFile(join(this.#folder, "users.acl"), users.map((user) => `${user}\n`).join(""));
    if (certificate === undefined) return;
    await writeFile(files[0]!, certificate.key);
    await writeFile(files[1]!, certificate.cert);
  }

  /** Starts the process. Resolves when it accepts connections. */
  async start(): Promise<void> {
    const args = [join(this.#folder, "redis.conf"), ...(this.#options.kind === "sentinel" ? ["--sentinel"] : [])];
    const child = spawn(this.#path, args, { stdio: ["ignore", "pipe", "inherit"] });
    this.#child = child;
    const kill = (): boolean => child.kill("SIGKILL");
    process.once("exit", kill);
    this.#gone = once(child, "exit").finally(() => process.off("exit", kill));
    const output: string[] = [];
    for await (const line of createInterface(child.stdout)) {
      output.push(line);
      if (/Ready to accept connections|\+monitor master/.test(line)) {
        child.stdout.resume();
        return;
      }
    }
    await this.#gone;
    throw new Error(`redis-server ended with ${child.exitCode}:\n${output.join("\n")}`);
  }

  get isRunning(): boolean {
    return this.#child?.exitCode === null && this.#child.signalCode === null;
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

  /** Runs one command, as the user of `url` or the default user. */
  async command<T = unknown>(...args: string[]): Promise<T> {
    return commandAt<T>(this.url, args);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
    await rm(this.#folder, { recursive: true, force: true });
  }
}

/** Connects to a server, runs one command and disconnects. */
export async function commandAt<T = unknown>(url: string, args: string[]): Promise<T> {
  const tls = url.startsWith("rediss:") ? { tls: true as const, rejectUnauthorized: false } : {};
  const client = createClient({ url, socket: { ...tls, reconnectStrategy: false }, RESP: 2 });
  client.on("error", () => {});
  await client.connect();
  try {
    return (await client.sendCommand(args)) as T;
  } finally {
    client.destroy();
  }
}

/** Runs a check again until it returns true. Rejects after a time, with the last value that it has returned. */
export async function eventually<T>(
  check: () => Promise<T> | T,
  isDone: (value: T) => boolean,
  ms = 10_000,
): Promise<T> {
  const until = performance.now() + ms;
  for (;;) {
    const value = await check();
    if (isDone(value)) return value;
    if (performance.now() > until) throw new Error(`not within ${ms} ms; at last ${JSON.stringify(value)}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

/** Returns the keys and subscriptions of a prefix on one server. Not the keys of logs, which expire. */
export async function leftoversAt(url: string, prefix: string): Promise<string[]> {
  const keys = await commandAt<string[]>(url, ["KEYS", `${prefix}:*`]);
  const channels = await commandAt<string[]>(url, ["PUBSUB", "CHANNELS", `${prefix}:*`]);
  const version = /redis_version:(\d+)/.exec(await commandAt<string>(url, ["INFO", "server"]));
  const shards =
    Number(version?.[1]) < 7 ? [] : await commandAt<string[]>(url, ["PUBSUB", "SHARDCHANNELS", `${prefix}:*`]);
  return [
    ...keys.filter((key) => !/^[^:]+:1:\{..\}:[mlk]:/.test(key)).map((key) => `key ${key}`),
    ...[...channels, ...shards].map((channel) => `subscription ${channel}`),
  ];
}

/** Removes the keys of a prefix on one server. */
export async function removeAt(url: string, prefix: string): Promise<void> {
  const keys = await commandAt<string[]>(url, ["KEYS", `${prefix}:*`]);
  for (const key of keys) await commandAt(url, ["DEL", key]);
}
