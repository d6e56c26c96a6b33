/** A Redis for the tests, found or installed, and servers of it. */
import { createClient } from "@redis/client";
import { ensureServer } from "./debian.js";
import { freePort } from "./ports.js";
import { Program, type Command } from "./program.js";

/** Resolves with the path of a Redis server, as `ensureServer` does. */
export function ensureRedis(): Promise<string> {
  return ensureServer("REDIS_SERVER_PATH", "Redis 6.2", "redis-server", "valkey-server");
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

/** One process of Redis. */
export class RedisServer extends Program {
  readonly #path: string;
  readonly #options: RedisServerOptions;
  /** The port by which the servers of a cluster talk to each other. */
  busPort = 0;

  private constructor(path: string, options: RedisServerOptions) {
    super();
    this.#path = path;
    this.#options = options;
  }

  static async create(options: RedisServerOptions = {}): Promise<RedisServer> {
    return Program.launch(new RedisServer(await ensureRedis(), options));
  }

  /** The URL without credentials. */
  get url(): string {
    return `${this.#options.certificate === undefined ? "redis" : "rediss"}://127.0.0.1:${this.port}`;
  }

  protected async takePorts(): Promise<void> {
    this.port = await freePort();
    this.busPort = await freePort();
    const { settings = {}, users, certificate, kind = "server" } = this.#options;
    const port = String(this.port);
    const tls = certificate && {
      port: "0",
      "tls-port": port,
      "tls-auth-clients": "no",
      "tls-key-file": await this.write("key.pem", certificate.key),
      "tls-cert-file": await this.write("cert.pem", certificate.cert),
    };
    const cluster = {
      "cluster-enabled": "yes",
      "cluster-config-file": "nodes.conf",
      "cluster-port": String(this.busPort),
      "cluster-node-timeout": "3000",
    };
    const all: Record<string, string> = {
      bind: "127.0.0.1",
      dir: this.folder,
      ...(tls ?? { port, "protected-mode": "no" }),
      ...(kind === "sentinel" ? {} : { save: '""', appendonly: "no", "repl-diskless-sync-delay": "0" }),
      ...(kind === "cluster" ? cluster : {}),
      ...(users && { aclfile: await this.write("users.acl", users.map((user) => `${user}\n`).join("")) }),
      ...settings,
    };
    const lines = Object.entries(all).map(([name, value]) => `${name} ${value}\n`);
    await this.write("redis.conf", lines.join(""));
  }

  /** The server writes its configuration itself when it runs, so that is written only once. */
  protected async prepare(): Promise<Command> {
    const args = [`${this.folder}/redis.conf`, ...(this.#options.kind === "sentinel" ? ["--sentinel"] : [])];
    return { path: this.#path, args, output: "stdout", ready: /Ready to accept connections|\+monitor master/ };
  }

  /** Runs one command, as the user of `url` or the default user. */
  async command<T = unknown>(...args: string[]): Promise<T> {
    return commandAt<T>(this.url, args);
  }
}

/** Connects to a server, runs one command and disconnects. */
export async function commandAt<T = unknown>(url: string, args: string[]): Promise<T> {
  const tls = url.startsWith("rediss:") ? { tls: true as const, rejectUnauthorized: false } : {};
  const client = createClient({ url, socket: { ...tls, reconnectStrategy: false, connectTimeout: 0 }, RESP: 2 });
  client.on("error", () => {});
  await client.connect();
  try {
    return (await client.sendCommand(args)) as T;
  } finally {
    client.destroy();
  }
}

/** Runs a check again until it returns true. The limit only ends a test that hangs: then rejects with the last value. */
export async function eventually<T>(
  check: () => Promise<T> | T,
  isDone: (value: T) => boolean,
  ms = 240_000,
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

/** Removes the keys of a prefix on one server: all, or those that match a pattern. */
export async function removeAt(url: string, prefix: string, pattern = "*"): Promise<void> {
  const keys = await commandAt<string[]>(url, ["KEYS", `${prefix}:${pattern}`]);
  for (const key of keys) await commandAt(url, ["DEL", key]);
}
