/** The brokers of the long runs, the relays before them, and the faults. */
import { connect } from "node:net";
import { keyOf } from "../../engines/redis-rig.js";
import type { Random } from "../../faults/random.js";
import type { Cause } from "../../fleet/oracle.js";
import { after, LEASE_MS, LOGGED, type Fault as FaultOf, type Link, type Place } from "../../fleet/world.js";
import { NatsServer, removeStreams } from "../../support/nats.js";
import type { Program } from "../../support/program.js";
import { RedisCluster } from "../../support/redis-groups.js";
import { commandAt, RedisServer } from "../../support/redis.js";
import { Relay } from "../../support/relay.js";
import { NodeProcess } from "./process.js";

export type BrokerKind = "redis" | "nats" | "core" | "cluster";
export type Fault = FaultOf<RelayLink>;

/** A broker, and what can happen to its connections and to itself. It has one fault at a time. */
export interface ChaosBroker extends AsyncDisposable {
  readonly place: Place<RelayLink>;
  readonly ofNodes: Readonly<Record<string, Fault>>;
  readonly ofBroker: Readonly<Record<string, Fault>>;
}

class RelayLink implements Link {
  readonly losses: number[] = [];
  readonly node: NodeProcess;
  readonly relay: Relay;

  constructor(node: NodeProcess, relay: Relay) {
    this.node = node;
    this.relay = relay;
  }

  cut(): void {
    if (this.relay.lines.size > 0) this.losses.push(performance.now());
    this.relay.cut();
  }

  async down(): Promise<void> {
    this.cut();
    await this.relay.close();
  }

  up(): Promise<void> {
    return this.relay.open();
  }

  async kill(): Promise<void> {
    await this.node.kill();
    await this.relay.close();
  }
}

const START_TIMEOUT_MS = 600_000;
const MOST_BYTES = 5_000;
/** A node whose connection is silent for so long connects again. */
const LONGEST_SILENCE_MS = LEASE_MS + 2_000;
/** Longer than a node may take to report that it is not answered. */
const SWALLOWED_MS = 3 * LEASE_MS;
/** More than the sockets between the broker and a node take, and less than the 16 MiB beyond which the sender drops notifications. */
const FLOOD = Array.from({ length: 150 }, () => ({ pad: "x".repeat(100_000) }));
const LONGEST_PAUSE_MS = 8_000;
/** A node whose servers have changed places notices that later, because no connection ends. */
const NOTICE_MS = { redis: 1_000, nats: 1_000, core: 1_000, cluster: 4_000 } satisfies Record<BrokerKind, number>;

const ofOne =
  (fault: (link: RelayLink, random: Random) => Promise<void>): Fault =>
  (world, one) =>
    world.during(() => fault(one.link, world.random), one);
const ofAll =
  (cause: Cause, fault: (random: Random) => Promise<unknown>): Fault =>
  (world) =>
    world.during(() => fault(world.random), cause);

const OF_NODES: Readonly<Record<string, Fault>> = {
  "node killed": (world, one) => world.kill(one),
  "node cut": ofOne(async (link) => link.cut()),
  "node cut at a byte": ofOne(async (link, random) => {
    let left = random.below(MOST_BYTES);
    link.relay.pass = (bytes) => {
      left -= bytes.length;
      if (left >= 0) return bytes;
      link.cut();
      return undefined;
    };
    await after(LEASE_MS);
    link.relay.pass = (bytes) => bytes;
  }),
  "node cut for long": ofOne(async (link, random) => {
    await link.down();
    await after(random.below(LONGEST_SILENCE_MS));
    await link.up();
  }),
  "node muted": ofOne(async (link, random) => {
    link.relay.mute(random.pick(["client", "server"] as const));
    await after(random.below(LONGEST_SILENCE_MS));
    link.cut();
  }),
  /** Its connections are accepted, and nothing is answered. Its own beats do not come back, so it must notice that in its lease. */
  "node swallowed": ofOne(async (link) => {
    link.losses.push(performance.now() + LEASE_MS);
    link.relay.pass = () => undefined;
    await after(SWALLOWED_MS);
    link.relay.pass = (bytes) => bytes;
    link.cut();
  }),
  /** The broker keeps what a node does not read, or cuts it. What all others get at that time is late too. */
  "node reads slowly": (world, one) => {
    const { server } = world.any.link.node;
    const read = async (): Promise<void> => {
      one.link.relay.pause("server");
      // Another fault may end the node that sends.
      for (const params of FLOOD) await server.nodes.notify("flood", params).catch(() => {});
      await after(LEASE_MS / 2);
      one.link.relay.mend();
    };
    return world.during(() => world.during(read, one), "broker");
  },
  /** Its process stands still, with all its timers, and what came meanwhile is there when it continues. */
  "node stopped": ofOne(async ({ node }, random) => {
    await node.pause();
    await after(random.below(LONGEST_SILENCE_MS));
    node.resume();
  }),
};

/** The faults of a broker, of which `get` returns the server with the log. */
function faultsOf(get: () => Promise<Program>, empty: () => Promise<unknown>): Record<string, Fault> {
  return {
    "broker killed": ofAll("logs", async (random) => {
      const server = await get();
      await server.kill();
      await after(random.below(500));
      await server.start();
    }),
    "broker stopped": ofAll("broker", async (random) => {
      const server = await get();
      server.signal("SIGSTOP");
      await after(LONGEST_PAUSE_MS * random.next() ** 2);
      server.signal("SIGCONT");
    }),
    "broker emptied": ofAll("logs", empty),
  };
}

/** The faults of a Redis, or of the servers of a cluster. */
function faultsOfRedis(get: () => Promise<RedisServer>, all: () => Promise<readonly string[]>): Record<string, Fault> {
  const commandAll = async (...args: string[]): Promise<void> => {
    for (const url of await all()) await commandAt(url, args);
  };
  const faults = faultsOf(get, () => commandAll("FLUSHALL"));
  return {
    ...faults,
    "broker killed after a snapshot": async (...args) => {
      await (await get()).command("SAVE");
      // So there is more than what was saved.
      await after(300);
      await faults["broker killed"]!(...args);
    },
    "broker kills clients": ofAll("broker", (random) =>
      commandAll("CLIENT", "KILL", "TYPE", random.pick(["normal", "pubsub"]), "SKIPME", "yes"),
    ),
  };
}

/** Resolves with a part of what a server answers. A cluster counts the elections of its servers. */
async function pingAt(port: number, kind: BrokerKind): Promise<string> {
  const [command, answer] = kind === "cluster" ? ["CLUSTER INFO", /current_epoch:\d+\r/] : ["PING", /PONG/];
  const socket = connect(port, "127.0.0.1");
  socket.write(`${command}\r\n`);
  let text = "";
  for await (const bytes of socket) {
    const [found] = answer.exec((text += String(bytes))) ?? [];
    if (found !== undefined) return found;
  }
  throw new Error(`it did not answer ${command}`);
}

export async function startBroker(kind: BrokerKind, prefix: string): Promise<ChaosBroker> {
  const hasLogs = kind !== "core";
  const settings = { prefix, leaseMs: LEASE_MS, startTimeoutMs: START_TIMEOUT_MS };
  const relays: Relay[] = [];
  /** `ports`: of all servers. `relayTo`: makes the relay of a node. `engineAt`: returns the options of its engine. */
  const over = (
    broker: AsyncDisposable,
    ports: readonly number[],
    relayTo: () => Promise<Relay>,
    engineAt: (relay: Relay) => object,
    ofBroker: ChaosBroker["ofBroker"],
  ): ChaosBroker => {
    const start: Place<RelayLink>["start"] = async (next) => {
      const relay = await relayTo();
      relays.push(relay);
      const entry = ["redis", "cluster"].includes(kind) ? "redis" : "nats";
      const node = await NodeProcess.create([entry, { ...engineAt(relay), ...settings }], next);
      return { node, link: new RelayLink(node, relay) };
    };
    const ping = async (): Promise<string> => String(await Promise.all(ports.map((port) => pingAt(port, kind))));
    const dispose = async (): Promise<void> => {
      for (const one of [...relays, broker]) await one[Symbol.asyncDispose]();
    };
    const place = { start, ping, noticeMs: NOTICE_MS[kind], patienceMs: 240_000, hasLogs };
    return { place, ofNodes: OF_NODES, ofBroker, [Symbol.asyncDispose]: dispose };
  };
  if (kind === "redis") {
    const server = await RedisServer.create();
    const faults = faultsOfRedis(
      async () => server,
      async () => [server.url],
    );
    const relayTo = (): Promise<Relay> => Relay.to(server.port);
    return over(server, [server.port], relayTo, ({ port }) => ({ url: `redis://127.0.0.1:${port}` }), faults);
  }
  if (kind === "nats" || kind === "core") {
    const server = await NatsServer.create(hasLogs ? {} : { jetstream: false });
    const faults = faultsOf(
      async () => server,
      () => removeStreams(server.url, prefix),
    );
    if (!hasLogs) delete faults["broker emptied"];
    const jetstream = hasLogs ? {} : undefined;
    const engineAt = ({ port }: Relay): object => ({ url: `nats://127.0.0.1:${port}`, jetstream });
    return over(server, [server.port], () => Relay.to(server.port), engineAt, faults);
  }
  // A server does not name its host. So a node uses the host that it has asked, which is its relay.
  const cluster = await RedisCluster.create({ settings: { "cluster-preferred-endpoint-type": "unknown-endpoint" } });
  const log = keyOf({ prefix }, `t:${LOGGED}`);
  const faults = {
    ...faultsOfRedis(
      async () => (await cluster.primaryOf(log)).owner,
      () => cluster.primaries(),
    ),
    "slot moved": ofAll("slots", () => cluster.migrate(log)),
    failover: ofAll("slots", () => cluster.failOver(log)),
  };
  const untilOk = ([name, fault]: [string, Fault]): [string, Fault] => [
    name,
    (...args) => fault(...args).finally(() => cluster.untilOk()),
  ];
  const ports = cluster.servers.map(({ port }) => port);
  let count = 0;
  const relayTo = (): Promise<Relay> => Relay.to((at) => at, `127.0.1.${++count}`, ports);
  const engineAt = ({ host }: Relay): object => ({ cluster: ports.map((port) => `redis://${host}:${port}`) });
  return over(cluster, ports, relayTo, engineAt, Object.fromEntries(Object.entries(faults).map(untilOk)));
}
