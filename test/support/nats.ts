/** A NATS for the tests, found or installed, and servers of it. */
import { connect as connectTcp } from "node:net";
import { createInterface } from "node:readline";
import { jetstreamManager, type JetStreamManager } from "@nats-io/jetstream";
import { connect, NoRespondersError, TimeoutError, type NatsConnection } from "@nats-io/transport-node";
import { ensureServer } from "./debian.js";
import { freePort } from "./ports.js";
import { Program, type Command } from "./program.js";
import { eventually } from "./redis.js";

/** The code of a stream that does not exist. */
const NOT_FOUND = 10_059;

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

export class NatsServer extends Program {
  readonly #path: string;
  #options: NatsServerOptions;
  #monitorPort = 0;

  private constructor(path: string, options: NatsServerOptions) {
    super();
    this.#path = path;
    this.#options = options;
  }

  static async create(options: NatsServerOptions = {}): Promise<NatsServer> {
    return Program.launch(new NatsServer(await ensureServer("NATS_SERVER_PATH", "NATS 2.9", "nats-server"), options));
  }

  /** The URL without credentials. */
  get url(): string {
    return `${this.#options.certificate === undefined ? "nats" : "tls"}://127.0.0.1:${this.port}`;
  }

  protected async takePorts(): Promise<void> {
    this.port = await freePort();
    this.#monitorPort = await freePort();
  }

  protected async prepare(): Promise<Command> {
    const { lines = [], certificate, cluster, jetstream = [] } = this.#options;
    const all = [
      `listen: 127.0.0.1:${this.port}`,
      `http: 127.0.0.1:${this.#monitorPort}`,
      ...(jetstream === false ? [] : ["jetstream {", `store_dir: "${this.folder}"`, ...jetstream, "}"]),
      ...lines,
    ];
    if (certificate !== undefined) {
      const key = await this.write("key.pem", certificate.key);
      const cert = await this.write("cert.pem", certificate.cert);
      all.push(`tls { key_file: "${key}", cert_file: "${cert}" }`);
    }
    if (cluster !== undefined) {
      const routes = cluster.ports.map((port) => `nats://127.0.0.1:${port}`).join(", ");
      all.push(`server_name: ${cluster.name}`);
      all.push(`cluster { name: tests, listen: 127.0.0.1:${cluster.port}, routes: [${routes}] }`);
    }
    const path = await this.write("nats.conf", all.map((line) => `${line}\n`).join(""));
    return { path: this.#path, args: ["-c", path], output: "stderr", ready: /Server is ready/ };
  }

  /** Replaces the lines of the configuration while the server runs. Resolves when they are in force. */
  async reload(lines: readonly string[]): Promise<void> {
    const loadedAt = async (): Promise<string> =>
      (await this.#monitor<{ config_load_time: string }>("varz")).config_load_time;
    const before = await loadedAt();
    this.#options = { ...this.#options, lines };
    await this.prepare();
    this.signal("SIGHUP");
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

  async names(): Promise<string[]> {
    return (await this.#connections()).map(({ name = "" }) => name);
  }

  async subscriptions(prefix: string): Promise<string[]> {
    return (await this.#connections())
      .flatMap(({ subscriptions_list: list }) => list ?? [])
      .filter((subject) => subject.startsWith(`${prefix}.`));
  }

  async version(): Promise<string> {
    return (await this.#monitor<{ version: string }>("varz")).version;
  }
}

/** Resolves when a server keeps a stream together with the two others of its cluster. Rejects if it does not in time. */
async function untilPlaced(url: string, ms: number): Promise<void> {
  const place = (): Promise<boolean> =>
    managedOnce(url, async ({ streams }) => {
      await streams.add({ name: "probe", subjects: ["probe"], storage: "memory", num_replicas: 3 });
      return streams.delete("probe");
    });
  await eventually(
    () => place().catch((error: unknown) => String(error)),
    (result) => result === true,
    ms,
  );
}

/**
 * Starts a cluster of three servers. Resolves when each of them answers and they keep a stream together. On a busy machine, servers that
 * have just started sometimes refuse that for minutes, although all of them answer: then starts others, and waits twice as long.
 */
export async function startCluster(): Promise<NatsServer[]> {
  for (let ms = 20_000; ; ms *= 2) {
    const ports = [await freePort(), await freePort(), await freePort()];
    const servers = await Promise.all(
      ports.map((port, at) => NatsServer.create({ cluster: { name: `server${at}`, port, ports } })),
    );
    try {
      for (const { url } of servers) await untilPlaced(url, ms);
      return servers;
    } catch {
      await Promise.all(servers.map((server) => server[Symbol.asyncDispose]()));
    }
  }
}

async function connectTo(url: string): Promise<NatsConnection> {
  const { username, password, protocol, host } = new URL(url);
  return connect({
    servers: host,
    ...(username === "" ? {} : { user: username, pass: password }),
    ...(protocol === "tls:" ? { tls: { rejectUnauthorized: false } } : {}),
  });
}

/** Returns true if a node is subscribed to a subject. A node confirms each message that asks for it. */
export async function isSubscribed(url: string, subject: string): Promise<boolean> {
  const client = await connectTo(url);
  try {
    await client.request(subject, "", { timeout: 1_000 });
    return true;
  } catch (error) {
    return !(error instanceof NoRespondersError || (error as Error).cause instanceof NoRespondersError);
  } finally {
    await client.close();
  }
}

/** Connects to a server, publishes messages and disconnects. */
export async function publishAt(url: string, subject: string, ...texts: string[]): Promise<void> {
  const client = await connectTo(url);
  for (const text of texts) client.publish(subject, text);
  await client.flush();
  await client.close();
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

/** Connects to a server, runs what manages its streams and disconnects: again if the server does not answer in time. */
export async function managed<T>(...how: Parameters<typeof managedOnce<T>>): Promise<T> {
  for (;;)
    try {
      return await managedOnce(...how);
    } catch (error) {
      if (!(error instanceof TimeoutError)) throw error;
    }
}

async function managedOnce<T>(url: string, run: (manager: JetStreamManager) => Promise<T>): Promise<T> {
  const client = await connectTo(url);
  try {
    // A cluster that has no leader yet does not answer.
    return await run(await jetstreamManager(client, { timeout: 5_000 }));
  } finally {
    await client.close();
  }
}

/** Deletes the streams of a prefix. A prefix that no node has used has none. */
export async function removeStreams(url: string, prefix: string): Promise<void> {
  await managed(url, async ({ streams }) => {
    const remove = (name: string): Promise<unknown> =>
      streams.delete(name).catch((error: { code?: number }) => {
        // It was removed, and that was not answered in time.
        if (error.code !== NOT_FOUND) throw error;
      });
    for await (const name of streams.names()) if (name.startsWith(`${prefix}_`)) await remove(name);
  });
}
