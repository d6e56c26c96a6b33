/** Groups of Redis servers: a cluster of three primaries with a replica each, and a primary with a replica and a Sentinel. */
import { eventually, RedisServer, type RedisServerOptions } from "./redis.js";

const SLOTS = 16_384;
const PRIMARIES = 3;

type Place = [host: string, port: number];
type Range = [from: number, to: number, primary: Place, replica?: Place];

/** Returns the ranges of slots as one server of a cluster sees them. */
async function rangesAt(server: RedisServer): Promise<Range[]> {
  const ranges = await server.command<Range[]>("CLUSTER", "SLOTS");
  ranges.sort(([a], [b]) => a - b);
  return ranges;
}

/** Returns ranges with their primaries, as a text. */
const textOf = (ranges: readonly Range[]): string => JSON.stringify(ranges.map((range) => range.slice(0, 3)));

/** Resolves when what a server says contains one of the texts. */
async function untilSays(server: RedisServer, command: readonly string[], ...texts: string[]): Promise<void> {
  await eventually(
    () => server.command<string>(...command),
    (info) => texts.some((text) => info.includes(text)),
  );
}

/** A cluster. The first three servers are its primaries at the beginning, and each of the others is a replica of one. */
export class RedisCluster implements AsyncDisposable {
  readonly servers: readonly RedisServer[];

  private constructor(servers: readonly RedisServer[]) {
    this.servers = servers;
  }

  static async create(options: Pick<RedisServerOptions, "users" | "settings"> = {}): Promise<RedisCluster> {
    const servers = await Promise.all(
      Array.from({ length: 2 * PRIMARIES }, () => RedisServer.create({ ...options, kind: "cluster" })),
    );
    const cluster = new RedisCluster(servers);
    const [first, ...others] = servers;
    for (const [i, server] of servers.entries()) await server.command("CLUSTER", "SET-CONFIG-EPOCH", String(i + 1));
    for (const { port, busPort } of others)
      await first!.command("CLUSTER", "MEET", "127.0.0.1", `${port}`, `${busPort}`);
    for (const [i, server] of servers.slice(0, PRIMARIES).entries()) {
      const [from, to] = [i, i + 1].map((one) => Math.ceil((one * SLOTS) / PRIMARIES));
      await server.command("CLUSTER", "ADDSLOTSRANGE", String(from), String(to! - 1));
    }
    for (const server of servers) await untilSays(server, ["CLUSTER", "INFO"], `cluster_known_nodes:${servers.length}`);
    for (const [i, replica] of servers.slice(PRIMARIES).entries())
      await replica.command("CLUSTER", "REPLICATE", await servers[i]!.command("CLUSTER", "MYID"));
    await cluster.untilOk();
    // A server may learn of the replicas of others later.
    for (const server of servers)
      await eventually(
        () => rangesAt(server),
        (ranges) => ranges.every(({ length }) => length === 4),
      );
    return cluster;
  }

  get urls(): string[] {
    return this.servers.map(({ url }) => url);
  }

  /** Sets for how long a server may be silent before the others replace it. A cluster begins with 3 s. */
  async setSilence(ms: number): Promise<void> {
    for (const server of this.servers) await server.command("CONFIG", "SET", "cluster-node-timeout", String(ms));
  }

  /** Resolves when all servers that run see a healthy cluster, and all replicas have the data of their primary. */
  async untilOk(): Promise<void> {
    for (const server of this.servers.filter(({ isRunning }) => isRunning)) {
      await untilSays(server, ["CLUSTER", "INFO"], "cluster_state:ok");
      await untilSays(server, ["INFO", "replication"], "role:master", "master_link_status:up");
    }
  }

  async primaries(): Promise<string[]> {
    const running = this.servers.filter(({ isRunning }) => isRunning);
    const infos = await Promise.all(running.map((server) => server.command<string>("INFO", "replication")));
    return running.flatMap(({ url }, i) => (infos[i]!.includes("role:master") ? [url] : []));
  }

  /** Returns, as a server sees it that was not stopped, the primary of a key, another one, and the replica of the first, unless the cluster counts that as absent. */
  async primaryOf(
    key: string,
    stopped?: RedisServer,
  ): Promise<{ slot: number; owner: RedisServer; other: RedisServer; replica: RedisServer | undefined }> {
    const running = this.servers.find((server) => server.isRunning && server !== stopped)!;
    const slot = Number(await running.command("CLUSTER", "KEYSLOT", key));
    const ranges = await rangesAt(running);
    const serverAt = (port: number): RedisServer | undefined => this.servers.find((server) => server.port === port);
    const own = ranges.find(([from, to]) => from <= slot && slot <= to)!;
    const foreign = ranges.find(([, , [, port]]) => port !== own[2][1])!;
    return { slot, owner: serverAt(own[2][1])!, other: serverAt(foreign[2][1])!, replica: serverAt(own[3]?.[1] ?? 0) };
  }

  /** Returns the ranges of slots, as each server that runs sees them. */
  #views(): Promise<Range[][]> {
    return Promise.all(this.servers.filter(({ isRunning }) => isRunning).map(rangesAt));
  }

  /** Resolves when all servers that run agree who has which slots. For some time after a failover, they do not. */
  async #untilAgreed(): Promise<void> {
    await eventually(
      () => this.#views(),
      (views) => new Set(views.map(textOf)).size === 1,
    );
  }

  /**
   * Makes the replica of a key's primary the primary. A replica that was elected less than four times the silence ago "wins" its next
   * election with the old votes, and the others depose it at once. So it is the primary when all say so, and is asked again otherwise.
   */
  async failOver(key: string): Promise<void> {
    await this.#untilAgreed();
    const { replica } = await eventually(
      () => this.primaryOf(key),
      (one) => one.replica !== undefined,
    );
    const isPrimary = async (): Promise<boolean> =>
      (await this.#views()).every((ranges) => ranges.some(([, , [, port]]) => port === replica!.port));
    for (let isDone = false; !isDone;) {
      await replica!.command("CLUSTER", "FAILOVER").catch(() => {});
      // Redis gives it up after 5 s.
      isDone = await eventually(isPrimary, (is) => is, 6_000).catch(() => false);
    }
  }

  /**
   * Moves the slot of a key to another primary, as `redis-cli` does. `midway` runs when the keys are half moved. `first` runs when the
   * servers know that the slot moves, and all its keys are where they were.
   */
  async migrate(
    key: string,
    midway: () => Promise<unknown> = async () => {},
    first: () => Promise<unknown> = async () => {},
  ): Promise<void> {
    await this.#untilAgreed();
    const { slot, owner, other } = await this.primaryOf(key);
    const [from, to] = await Promise.all([owner, other].map((server) => server.command<string>("CLUSTER", "MYID")));
    await other.command("CLUSTER", "SETSLOT", String(slot), "IMPORTING", from!);
    await owner.command("CLUSTER", "SETSLOT", String(slot), "MIGRATING", to!);
    await first();
    const keys = await owner.command<string[]>("CLUSTER", "GETKEYSINSLOT", String(slot), "10000");
    const move = (moved: string[]): Promise<unknown> =>
      moved.length === 0
        ? Promise.resolve()
        : owner.command("MIGRATE", "127.0.0.1", String(other.port), "", "0", "600000", "KEYS", ...moved);
    await move(keys.slice(0, Math.ceil(keys.length / 2)));
    await midway();
    await move(keys.slice(Math.ceil(keys.length / 2)));
    for (const server of [other, owner]) await server.command("CLUSTER", "SETSLOT", String(slot), "NODE", to!);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.servers.map((server) => server[Symbol.asyncDispose]()));
  }
}

/** Returns true if a server is a replica that has some data of its primary. */
const isUp = (info: string): boolean => /master_link_status:up/.test(info) && /master_repl_offset:[1-9]/.test(info);

/** A primary, a replica, and a Sentinel that watches them. */
export class RedisSentinelGroup implements AsyncDisposable {
  readonly primary: RedisServer;
  readonly replica: RedisServer;
  readonly sentinel: RedisServer;

  private constructor(primary: RedisServer, replica: RedisServer, sentinel: RedisServer) {
    this.primary = primary;
    this.replica = replica;
    this.sentinel = sentinel;
  }

  static async create(): Promise<RedisSentinelGroup> {
    const primary = await RedisServer.create();
    const replica = await RedisServer.create({ settings: { replicaof: `127.0.0.1 ${primary.port}` } });
    const settings = {
      "sentinel monitor": `main 127.0.0.1 ${primary.port} 1`,
      "sentinel down-after-milliseconds": "main 2000",
      "sentinel failover-timeout": "main 3000",
    };
    const sentinel = await RedisServer.create({ kind: "sentinel", settings });
    await eventually(
      () => sentinel.command<unknown[]>("SENTINEL", "REPLICAS", "main"),
      (replicas) => replicas.length === 1,
    );
    return new RedisSentinelGroup(primary, replica, sentinel);
  }

  /** The option of an engine. Its first Sentinel is not there. */
  get place(): { name: string; urls: string[] } {
    return { name: "main", urls: ["redis://127.0.0.1:1", this.sentinel.url] };
  }

  /** Sets for how long the primary may be silent before it is replaced. A group begins with 2 s. */
  async setSilence(ms: number): Promise<void> {
    await this.sentinel.command("SENTINEL", "SET", "main", "down-after-milliseconds", String(ms));
  }

  /** Resolves with the present primary and its replica, when that has its data. A primary that was replaced learns that seconds later. */
  async untilReplicated(): Promise<{ primary: RedisServer; replica: RedisServer }> {
    const servers = [this.primary, this.replica];
    const infos = await eventually(
      () => Promise.all(servers.map((server) => server.command<string>("INFO", "replication").catch(() => ""))),
      (all) => all.some((info) => info.includes("role:master")) && all.some(isUp),
    );
    const [replica] = servers.filter((_, i) => isUp(infos[i]!));
    return { primary: servers.find((server) => server !== replica)!, replica: replica! };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const server of [this.sentinel, this.replica, this.primary]) await server[Symbol.asyncDispose]();
  }
}
