/** Imports `redis/names`: the slot of a log follows from its name. The brokers of the world: Redis, NATS, a Redis Cluster. */
import type { Random } from "../../faults/random.js";
import { NatsServer } from "../../support/nats.js";
import { RedisCluster } from "../../support/redis-groups.js";
import { commandAt, RedisServer } from "../../support/redis.js";
import { Names } from "../../../src/redis/names.js";
import { LOGGED, type BrokerKind } from "./orders.js";

/** A broker, and what can be done to it. */
export interface ChaosBroker extends AsyncDisposable {
  readonly kind: BrokerKind;
  readonly urls: readonly string[];
  /** The ports of its servers. */
  readonly ports: readonly number[];
  /** How many connections a healthy node has. */
  readonly connections: number;
  /** Ends the process, or one of them, and starts it again after a time. */
  restart(delayMs: number, isSaved: boolean): Promise<void>;
  /** Stops the process, or one of them, which keeps its connections. */
  pause(ms: number): Promise<void>;
  /** Removes all data. */
  empty(): Promise<void>;
  /** Ends the connections of clients, of one type. */
  killClients(): Promise<void>;
  /** Moves the slot of the log to another server. */
  migrate(): Promise<void>;
  /** Makes a replica the primary of the slot of the log. */
  failOver(): Promise<void>;
  /** Resolves when all servers serve. */
  untilOk(): Promise<void>;
}

const after = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
const cannot = (what: string) => (): Promise<void> => Promise.reject(new Error(`this broker cannot ${what}`));

/** Starts a broker. */
export async function startBroker(kind: BrokerKind, prefix: string, random: Random): Promise<ChaosBroker> {
  if (kind === "redis") return startRedis(random);
  return kind === "nats" ? startNats(prefix) : startCluster(prefix, random);
}

/** A subscriber that reads too slowly is cut soon. */
const settings = { "client-output-buffer-limit": "pubsub 256kb 64kb 2" };

async function startRedis(random: Random): Promise<ChaosBroker> {
  const server = await RedisServer.create({ settings });
  return {
    kind: "redis",
    urls: [server.url],
    ports: [server.port],
    connections: 2,
    async restart(delayMs, isSaved) {
      if (isSaved) {
        await server.command("SAVE");
        // So there is more than what was saved.
        await after(delayMs);
      }
      await server.kill();
      await after(delayMs);
      await server.start();
    },
    async pause(ms) {
      server.signal("SIGSTOP");
      await after(ms);
      server.signal("SIGCONT");
    },
    async empty() {
      await server.command("FLUSHALL");
    },
    async killClients() {
      await server.command("CLIENT", "KILL", "TYPE", random.pick(["normal", "pubsub"]), "SKIPME", "yes");
    },
    migrate: cannot("move a slot"),
    failOver: cannot("fail over"),
    untilOk: async () => {},
    [Symbol.asyncDispose]: () => server[Symbol.asyncDispose](),
  };
}

/** The parts of the client library that are used here. Its own types do not fit the options of this project's compiler. */
interface Transport {
  connect(options: { servers: string }): Promise<{ close(): Promise<void> }>;
}
interface JetStream {
  jetstreamManager(client: object): Promise<{
    readonly streams: { names(subject: string): AsyncIterable<string>; delete(name: string): Promise<boolean> };
  }>;
}
const load = <T>(name: string): Promise<T> => import(name) as Promise<T>;

async function startNats(prefix: string): Promise<ChaosBroker> {
  const server = await NatsServer.create();
  return {
    kind: "nats",
    urls: [server.url],
    ports: [server.port],
    connections: 1,
    async restart(delayMs) {
      await server.kill();
      await after(delayMs);
      await server.start();
    },
    async pause(ms) {
      server.signal("SIGSTOP");
      await after(ms);
      server.signal("SIGCONT");
    },
    async empty() {
      const client = await (await load<Transport>("@nats-io/transport-node")).connect({ servers: server.url });
      try {
        const { streams } = await (await load<JetStream>("@nats-io/jetstream")).jetstreamManager(client);
        for await (const name of streams.names(`${prefix}.>`)) await streams.delete(name);
      } finally {
        await client.close();
      }
    },
    killClients: cannot("end connections"),
    migrate: cannot("move a slot"),
    failOver: cannot("fail over"),
    untilOk: async () => {},
    [Symbol.asyncDispose]: () => server[Symbol.asyncDispose](),
  };
}

async function startCluster(prefix: string, random: Random): Promise<ChaosBroker> {
  const cluster = await RedisCluster.create({ settings });
  /** A name in the slot of the log. */
  const name = new Names(prefix).channel(`t:${LOGGED}`).name;
  const commandAll = async (...args: string[]): Promise<void> => {
    for (const url of await cluster.primaries()) await commandAt(url, args);
  };
  // The servers are disturbed one after the other, because a shard has one replica only.
  return {
    kind: "cluster",
    urls: cluster.urls,
    ports: cluster.servers.map(({ port }) => port),
    // Two to each primary.
    connections: 6,
    async restart(delayMs, isSaved) {
      const { owner } = await cluster.primaryOf(name);
      if (isSaved) {
        await owner.command("SAVE");
        await after(delayMs);
      }
      await owner.kill();
      await after(delayMs);
      await owner.start();
    },
    async pause(ms) {
      const { owner } = await cluster.primaryOf(name);
      owner.signal("SIGSTOP");
      await after(ms);
      owner.signal("SIGCONT");
    },
    empty: () => commandAll("FLUSHALL"),
    killClients: () => commandAll("CLIENT", "KILL", "TYPE", random.pick(["normal", "pubsub"]), "SKIPME", "yes"),
    migrate: () => cluster.migrate(name),
    failOver: () => cluster.failOver(name),
    untilOk: () => cluster.untilOk(),
    [Symbol.asyncDispose]: () => cluster[Symbol.asyncDispose](),
  };
}
