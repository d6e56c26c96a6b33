/** Imports `redis/names`: a cluster moves slots by the names of channels. */
import { nanoid } from "nanoid";
import type { Channel } from "../../src/topics/engine.js";
import { redis, type RedisOptions } from "../../src/redis/index.js";
import { Names } from "../../src/redis/names.js";
import { selfSigned } from "../support/certificates.js";
import { eventually, leftoversAt, RedisServer, removeAt, type RedisServerOptions } from "../support/redis.js";
import type { RedisCluster, RedisSentinelGroup } from "../support/redis-groups.js";
import { Relay, type Line } from "../support/relay.js";
import type { BrokerKind, Group, PrefixedRig, Variant } from "./failures.js";
import { TOPIC, use } from "./kit.js";

/** The rights that the documents name, for the prefixes of the rigs. A cluster needs `CLUSTER_RIGHTS` too. */
export const RIGHTS =
  "resetkeys ~test-*:* resetchannels &test-*:* -@all +@pubsub +@hash +@stream +@scripting +@connection " +
  "+info +del +pexpire +time";
export const CLUSTER_RIGHTS = "+cluster|slots +cluster|info +config|get";

/** Returns a rig with a prefix of its own. `servers`: the URLs of all primaries, with a user who may run every command. */
export function redisRig(options: RedisOptions, servers: readonly string[] = []): PrefixedRig {
  const prefix = options.prefix ?? `test-${nanoid(8)}`;
  return {
    prefix,
    // No lease and no start ends while the machine is busy.
    engine: () => redis({ leaseMs: 60_000, startTimeoutMs: 240_000, ...options, prefix }),
    removeLogs: () => Promise.all(servers.map((url) => removeAt(url, prefix, "1:{??}:[ml]:*"))),
    leftovers: async () => (await Promise.all(servers.map((url) => leftoversAt(url, prefix)))).flat(),
    close: async () => {
      await Promise.all(servers.map((url) => removeAt(url, prefix)));
    },
  };
}

/** Returns the name of a channel in Redis. */
export function keyOf({ prefix }: Pick<PrefixedRig, "prefix">, channel: Channel): string {
  return new Names(prefix).channel(channel).name;
}

/** Resolves when what a server says about its replication contains a text. */
export async function untilReplication(server: RedisServer, text: string): Promise<void> {
  for (;;) if ((await server.command<string>("INFO", "replication").catch(() => "")).includes(text)) return;
}

/** Returns a relay to a server, and its connections that have subscribed. */
export async function relayRedis(
  server: RedisServer,
): Promise<{ relay: Relay; url: string; subscribers: ReadonlySet<Line> }> {
  const relay = use(await Relay.to(server.port));
  const subscribers = new Set<Line>();
  relay.pass = (bytes, to, line) => {
    if (to === "server" && /subscribe/i.test(bytes.toString("latin1"))) subscribers.add(line);
    return bytes;
  };
  return { relay, url: `redis://127.0.0.1:${relay.port}`, subscribers };
}

const VARIANTS: Record<Variant, RedisServerOptions> = {
  plain: {},
  password: { users: ["user default on >se:cret ~* &* +@all"] },
  get untrusted() {
    return { certificate: selfSigned() };
  },
  "small output": { settings: { "client-output-buffer-limit": "pubsub 64kb 64kb 1" } },
};

/** One server of Redis. */
export const REDIS: BrokerKind<RedisServer> = {
  name: "redis",
  user: "",
  create: (variant) => RedisServer.create(VARIANTS[variant]),
  purge: (server) => server.command("FLUSHALL"),
  rig: ({ url }, options) => redisRig(options, [url]),
  names: async (server) =>
    Array.from((await server.command<string>("CLIENT", "LIST")).matchAll(/ name=(\S*) /g), ([, name]) => name!),
};

/** Returns a cluster, each slot of which has a primary and a replica. */
export function clusterGroup(cluster: RedisCluster): Group {
  return {
    rig: async () => redisRig({ cluster: cluster.urls }),
    failover: async (rig, how) => {
      const key = keyOf(rig, `t:${TOPIC}`);
      const { owner } = await cluster.primaryOf(key);
      // A replica that is behind does not take over.
      await untilReplication(owner, "state=online");
      await owner[how]();
      return {
        replaced: async () => {
          await eventually(
            () => cluster.primaryOf(key, owner),
            (present) => present.owner !== owner,
          );
        },
        restore: async () => {
          await (how === "kill" ? owner.start() : owner.resume());
          await cluster.untilOk();
        },
      };
    },
  };
}

/** Returns a primary and a replica with a Sentinel. */
export function sentinelGroup(group: RedisSentinelGroup): Group {
  return {
    rig: async () => redisRig({ sentinel: group.place }),
    failover: async (_rig, how) => {
      const { primary, replica } = await group.untilReplicated();
      await primary[how]();
      return {
        replaced: () => untilReplication(replica, "role:master"),
        restore: async () => (how === "kill" ? primary.start() : primary.resume()),
      };
    },
    witness: async ({ prefix }) => redis({ url: (await group.untilReplicated()).primary.url, prefix }),
  };
}
