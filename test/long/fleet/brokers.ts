/** The brokers of the long runs, the relays before them, and the faults. */
import { nats } from "../../../src/nats/index.js";
import type { Engine } from "../../../src/node.js";
import { redis } from "../../../src/redis/index.js";
import { keyOf } from "../../engines/redis-rig.js";
import type { Random } from "../../faults/random.js";
import type { Node } from "../../fleet/nodes.js";
import { after, LEASE_MS, LOGGED, type Fault as FaultOf, type Link, type Place } from "../../fleet/world.js";
import { NatsServer, removeStreams } from "../../support/nats.js";
import type { Program } from "../../support/program.js";
import { RedisCluster } from "../../support/redis-groups.js";
import { commandAt, RedisServer } from "../../support/redis.js";
import { Relay } from "../../support/relay.js";

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
  /** A node over a cluster has none: it connects to the addresses that the cluster names. */
  readonly relay: Relay | undefined;

  readonly #node: Node;

  constructor(node: Node, relay?: Relay) {
    this.#node = node;
    this.relay = relay;
  }

  cut(): void {
    if (this.relay === undefined || this.relay.lines.size === 0) return;
    // While the broker does not answer, a new node has a connection that does not work yet.
    if (this.#node.server.health().ok) this.losses.push(performance.now());
    this.relay.cut();
  }

  async down(): Promise<void> {
    this.cut();
    await this.relay?.close();
  }

  async up(): Promise<void> {
    await this.relay?.open();
  }

  async kill(): Promise<void> {
    await this.relay?.close();
  }
}

const START_TIMEOUT_MS = 600_000;
const MOST_BYTES = 5_000;
/** A node whose connection is silent for so long connects again. */
const LONGEST_SILENCE_MS = LEASE_MS + 2_000;
const LONGEST_PAUSE_MS = 8_000;
/** A node whose servers have changed places notices that later, because no connection ends. */
const NOTICE_MS = { redis: 1_000, nats: 1_000, core: 1_000, cluster: 4_000 } satisfies Record<BrokerKind, number>;

const ofOne =
  (fault: (link: RelayLink & { relay: Relay }, random: Random) => Promise<void>): Fault =>
  (world, one) =>
    world.during(() => fault(one.link as RelayLink & { relay: Relay }, world.random), one);
const ofAll =
  (fault: (random: Random) => Promise<unknown>): Fault =>
  (world) =>
    world.during(() => fault(world.random));

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
  /** Not each direction is noticed, because nothing may have to pass. Then the connection ends after a time. */
  "node muted": ofOne(async (link, random) => {
    link.relay.mute(...random.pick([["client"], ["server"], ["client", "server"]] as const));
    await after(random.below(LONGEST_SILENCE_MS));
    link.cut();
  }),
  /** What is sent arrives late, when another node may have removed the members of this one. */
  "node stopped": ofOne(async (link, random) => {
    link.relay.pause();
    await after(random.below(LONGEST_SILENCE_MS));
    link.relay.mend();
  }),
};

/** The faults of a broker, of which `get` returns the server with the log. */
function faultsOf(get: () => Promise<Program>, empty: () => Promise<unknown>): Record<string, Fault> {
  return {
    "broker killed": ofAll(async (random) => {
      const server = await get();
      await server.kill();
      await after(random.below(500));
      await server.start();
    }),
    "broker stopped": ofAll(async (random) => {
      const server = await get();
      server.signal("SIGSTOP");
      await after(LONGEST_PAUSE_MS * random.next() ** 2);
      server.signal("SIGCONT");
    }),
    "broker emptied": ofAll(empty),
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
    "broker kills clients": ofAll((random) =>
      commandAll("CLIENT", "KILL", "TYPE", random.pick(["normal", "pubsub"]), "SKIPME", "yes"),
    ),
  };
}

export async function startBroker(kind: BrokerKind, prefix: string): Promise<ChaosBroker> {
  const facts = { noticeMs: NOTICE_MS[kind], patienceMs: 240_000, hasLogs: kind !== "core" };
  const settings = { prefix, leaseMs: LEASE_MS, startTimeoutMs: START_TIMEOUT_MS };
  const single = (
    server: Program,
    engineAt: (port: number) => Engine,
    ofBroker: ChaosBroker["ofBroker"],
  ): ChaosBroker => {
    const relays: Relay[] = [];
    const next = async (): ReturnType<Place<RelayLink>["next"]> => {
      const relay = await Relay.to(server.port);
      relays.push(relay);
      return { engine: engineAt(relay.port), link: (node) => new RelayLink(node, relay) };
    };
    const dispose = async (): Promise<void> => {
      for (const one of [...relays, server]) await one[Symbol.asyncDispose]();
    };
    return { place: { next, ...facts }, ofNodes: OF_NODES, ofBroker, [Symbol.asyncDispose]: dispose };
  };
  if (kind === "redis") {
    const server = await RedisServer.create();
    const faults = faultsOfRedis(
      async () => server,
      async () => [server.url],
    );
    return single(server, (port) => redis({ url: `redis://127.0.0.1:${port}`, ...settings }), faults);
  }
  if (kind === "nats" || kind === "core") {
    const server = await NatsServer.create(facts.hasLogs ? {} : { jetstream: false });
    const faults = faultsOf(
      async () => server,
      () => removeStreams(server.url, prefix),
    );
    if (!facts.hasLogs) delete faults["broker emptied"];
    const jetstream = facts.hasLogs ? {} : undefined;
    return single(server, (port) => nats({ url: `nats://127.0.0.1:${port}`, jetstream, ...settings }), faults);
  }
  const cluster = await RedisCluster.create();
  const log = keyOf({ prefix }, `t:${LOGGED}`);
  const faults = {
    ...faultsOfRedis(
      async () => (await cluster.primaryOf(log)).owner,
      () => cluster.primaries(),
    ),
    "slot moved": ofAll(() => cluster.migrate(log)),
    failover: ofAll(() => cluster.failOver(log)),
  };
  const untilOk = ([name, fault]: [string, Fault]): [string, Fault] => [
    name,
    (...args) => fault(...args).finally(() => cluster.untilOk()),
  ];
  return {
    place: {
      next: async () => ({
        engine: redis({ cluster: cluster.urls, ...settings }),
        link: (node) => new RelayLink(node),
      }),
      ...facts,
    },
    ofNodes: {},
    ofBroker: Object.fromEntries(Object.entries(faults).map(untilOk)),
    [Symbol.asyncDispose]: () => cluster[Symbol.asyncDispose](),
  };
}
