/** A NATS for the tests, found or installed, and servers of it on free ports, each in a temporary folder. */
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { connect as connectTcp } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { chainOf, loadJetStream, loadTransport, type Client, type Manager } from "../../src/nats/client.js";
import { aptInstall, canRun, onPath } from "./debian.js";
import { freePort } from "./ports.js";
import { eventually } from "./redis.js";
import { untilStopped } from "./stopped.js";

const CURE =
  "no nats-server found and none could be installed; install NATS 2.9 or later, or set NATS_SERVER_PATH to one";
/** How often a server starts on another port if its port was taken meanwhile. */
const STARTS = 5;

function findNats(): string | undefined {
  return [...onPath("nats-server"), "/usr/sbin/nats-server"].find(canRun);
}

/** Resolves with the path of a NATS server. Installs one if necessary. If that fails, rejects with the remedy. */
export async function ensureNats(): Promise<string> {
  const given = process.env["NATS_SERVER_PATH"];
  if (given !== undefined && given !== "") {
    if (canRun(given)) return given;
    throw new Error(`NATS_SERVER_PATH is ${given}, which cannot be run`);
  }
  const found = findNats() ?? ((await aptInstall("nats-server")) ? findNats() : undefined);
  if (found === undefined) throw new Error(CURE);
  return found;
}

export interface NatsServerOptions {
  /** Lines of the configuration, such as `max_payload: 64KB`. */
  readonly lines?: readonly string[];
  /** The files of a certificate: the server accepts TLS only. */
  readonly certificate?: { readonly key: string; readonly cert: string };
  /** Makes the server one of a cluster: its name, the port for the others, and the ports of all. */
  readonly cluster?: { readonly name: string; readonly port: number; readonly ports: readonly number[] };
  /** Lines of the configuration of JetStream. `false`: without JetStream. */
  readonly jetstream?: readonly string[] | false;
}

/** One process of NATS. It keeps its ports and its folder when it is killed and started again. */
export class NatsServer implements AsyncDisposable {
  readonly #path: string;
  readonly #folder: string;
  #options: NatsServerOptions;
  #child: ChildProcess | undefined;
  #gone: Promise<unknown> = Promise.resolve();
  port = 0;
  #monitorPort = 0;

  private constructor(path: string, folder: string, options: NatsServerOptions) {
    this.#path = path;
    this.#folder = folder;
    this.#options = options;
  }

  static async create(options: NatsServerOptions = {}): Promise<NatsServer> {
    const server = new NatsServer(await ensureNats(), await mkdtemp(join(tmpdir(), "reciproc-nats-")), options);
    for (let i = 1; ; i++) {
      server.port = await freePort();
      server.#monitorPort = await freePort();
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
    return `${this.#options.certificate === undefined ? "nats" : "tls"}://127.0.0.1:${this.port}`;
  }

  async #writeFiles(): Promise<void> {
    const { lines = [], certificate, cluster, jetstream = [] } = this.#options;
    const files = ["key", "cert"].map((name) => join(this.#folder, `${name}.pem`));
    const routes = cluster?.ports.map((port) => `nats://127.0.0.1:${port}`);
    const all = [
      `listen: 127.0.0.1:${this.port}`,
      `http: 127.0.0.1:${this.#monitorPort}`,
      ...(jetstream === false ? [] : ["jetstream {", `store_dir: "${this.#folder}"`, ...jetstream, "}"]),
      ...(certificate === undefined ? [] : [`tls { key_file: "${files[0]}", cert_file: "${files[1]}" }`]),
      ...(cluster === undefined
        ? []
        : [
            `server_name: ${cluster.name}`,
            `cluster { name: tests, listen: 127.0.0.1:${cluster.port}, routes: [${routes!.join(", ")}] }`,
          ]),
      ...lines,
    ];
    await writeFile(join(this.#folder, "nats.conf"), all.map((line) => `${line}\n`).join(""));
    if (certificate === undefined) return;
    await writeFile(files[0]!, certificate.key);
    await writeFile(files[1]!, certificate.cert);
  }

  /** Starts the process. Resolves when it accepts connections. `lines`: replaces those of the configuration. */
  async start(lines = this.#options.lines): Promise<void> {
    this.#options = { ...this.#options, ...(lines && { lines }) };
    await this.#writeFiles();
    const child = spawn(this.#path, ["-c", join(this.#folder, "nats.conf")], { stdio: ["ignore", "ignore", "pipe"] });
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

  /** Replaces the lines of the configuration while the server runs. Resolves when they are in force. */
  async reload(lines: readonly string[]): Promise<void> {
    const loadedAt = async (): Promise<string> =>
      (await this.#monitor<{ config_load_time: string }>("varz")).config_load_time;
    const before = await loadedAt();
    this.#options = { ...this.#options, lines };
    await this.#writeFiles();
    this.#child!.kill("SIGHUP");
    await eventually(loadedAt, (at) => at !== before);
  }

  async #monitor<T>(path: string): Promise<T> {
    const response = await fetch(`http://127.0.0.1:${this.#monitorPort}/${path}`);
    return (await response.json()) as T;
  }

  /** The name in a cluster. */
  get name(): string {
    return this.#options.cluster?.name ?? "";
  }

  async #connections(): Promise<readonly { name?: string; subscriptions_list?: string[] }[]> {
    type Connections = { connections: { name?: string; subscriptions_list?: string[] }[] };
    return (await this.#monitor<Connections>("connz?subs=1&limit=1000")).connections;
  }

  /** Returns the names of the clients that are connected. */
  async names(): Promise<string[]> {
    return (await this.#connections()).map(({ name = "" }) => name);
  }

  /** Returns the subjects of a prefix that are subscribed. */
  async subscriptions(prefix: string): Promise<string[]> {
    return (await this.#connections())
      .flatMap(({ subscriptions_list: list }) => list ?? [])
      .filter((subject) => subject.startsWith(`${prefix}.`));
  }

  async version(): Promise<string> {
    return (await this.#monitor<{ version: string }>("varz")).version;
  }

  /** Returns how many connections the server has cut because they were too slow. */
  async slowConsumers(): Promise<number> {
    return (await this.#monitor<{ slow_consumers: number }>("varz")).slow_consumers;
  }

  /** Ends the process at once, and resolves when it has ended. */
  async kill(): Promise<void> {
    this.#child?.kill("SIGKILL");
    await this.#gone;
  }

  /** Ends the process as an administrator does, and resolves when it has ended. */
  async stop(): Promise<void> {
    this.#child?.kill("SIGTERM");
    await this.#gone;
  }

  /** Stops the process, which keeps its connections. Resolves when it is stopped. */
  async suspend(): Promise<void> {
    this.signal("SIGSTOP");
    await untilStopped(this.#child!.pid!);
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

/** Resolves when a server keeps a stream together with the two others of its cluster. */
async function untilPlaced(url: string): Promise<void> {
  const place = (): Promise<boolean> =>
    managed(url, async ({ streams }) => {
      await streams.add({ name: "probe", subjects: ["probe"], storage: "memory", num_replicas: 3 });
      return streams.delete("probe");
    });
  await eventually(
    () => place().catch((error: unknown) => String(error)),
    (result) => result === true,
    20_000,
  );
}

/**
 * Starts a cluster of three servers. Resolves when each of them answers and they keep a stream together. On a busy machine, servers that
 * have just started sometimes refuse that for minutes, although all of them answer: then starts others. `use`: takes what is to be
 * disposed of.
 */
export async function startCluster(use: <T extends AsyncDisposable>(one: T) => T): Promise<NatsServer[]> {
  for (let i = 1; ; i++) {
    const ports = [await freePort(), await freePort(), await freePort()];
    const servers = await Promise.all(
      ports.map(async (port, at) => use(await NatsServer.create({ cluster: { name: `server${at}`, port, ports } }))),
    );
    try {
      for (const { url } of servers) await untilPlaced(url);
      return servers;
    } catch (error) {
      if (i === STARTS) throw error;
      await Promise.all(servers.map((server) => server.kill()));
    }
  }
}

/** What tests do with JetStream beside the engine. */
export interface Management extends Manager {
  readonly streams: Manager["streams"] & {
    delete(name: string): Promise<boolean>;
    names(): AsyncIterable<string>;
  };
  /** Deletes the streams of a prefix. */
  remove(prefix: string): Promise<void>;
}

async function connectTo(url: string): Promise<Client> {
  const { username, password, protocol, host } = new URL(url);
  const { connect } = await loadTransport();
  return connect({
    servers: host,
    ...(username === "" ? {} : { user: username, pass: password }),
    ...(protocol === "tls:" ? { tls: { rejectUnauthorized: false } } : {}),
  });
}

/** Connects to a server, publishes messages and disconnects. */
export async function publishAt(url: string, subject: string, ...texts: string[]): Promise<void> {
  const client = await connectTo(url);
  for (const text of texts) client.publish(subject, text);
  await client.flush();
  await client.close();
}

/** Returns true if a node is subscribed to a subject. A node confirms each message that asks for it. */
export async function isSubscribed(url: string, subject: string): Promise<boolean> {
  const client = await connectTo(url);
  const { NoRespondersError } = await loadTransport();
  try {
    await client.request(subject, "", { timeout: 1_000 });
    return true;
  } catch (error) {
    return !chainOf(error).some((reason) => reason instanceof NoRespondersError);
  } finally {
    await client.close();
  }
}

/** Publishes one message with any headers, without a library. Resolves when the server has taken it. */
export async function publishRaw({ port }: NatsServer, subject: string, headers: string, text: string): Promise<void> {
  const socket = connectTcp(port, "127.0.0.1");
  const lines = createInterface(socket);
  const [head, all] = [headers.length, headers.length + text.length];
  socket.write(
    `CONNECT {"verbose":false,"headers":true}\r\nHPUB ${subject} ${head} ${all}\r\n${headers}${text}\r\nPING\r\n`,
  );
  for await (const line of lines) {
    if (line.startsWith("-ERR")) throw new Error(line);
    if (line === "PONG") break;
  }
  socket.destroy();
}

/** Connects to a server, runs what manages its streams and disconnects. */
export async function managed<T>(url: string, run: (manager: Management) => Promise<T>): Promise<T> {
  const client = await connectTo(url);
  try {
    const { jetstreamManager } = await loadJetStream();
    const options = { timeout: 5_000, checkAPI: true };
    const { streams, consumers } = (await jetstreamManager(client, options)) as Management;
    const remove = async (prefix: string): Promise<void> => {
      // A rig that no node has used has no streams.
      for await (const name of streams.names()) if (name.startsWith(`${prefix}_`)) await streams.delete(name);
    };
    return await run({ streams, consumers, remove });
  } finally {
    await client.close();
  }
}
