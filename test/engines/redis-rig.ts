/** Rigs of the suite over Redis. */
import { nanoid } from "nanoid";
import type { Channel } from "../../src/fleet/engine.js";
import { redis, type RedisOptions } from "../../src/redis/index.js";
import { Names } from "../../src/redis/names.js";
import { eventually, leftoversAt, removeAt } from "../support/redis.js";
import type { EngineRig } from "./rig.js";

/** The rights that the documents name, for the prefixes of the rigs. A cluster needs `CLUSTER_RIGHTS` too. */
export const RIGHTS =
  "resetkeys ~test-*:* resetchannels &test-*:* -@all +@pubsub +@hash +@stream +@sortedset +@set +@scripting +@connection " +
  "+info +del +pexpire +time";
export const CLUSTER_RIGHTS = "+cluster|slots +cluster|info +config|get";

export interface RedisRig extends EngineRig {
  readonly prefix: string;
}

/** Returns a rig with a prefix of its own. `servers`: the URLs of all primaries, with a user who may run every command. */
export function redisRig(options: RedisOptions, servers: readonly string[]): RedisRig {
  const prefix = `test-${nanoid(8)}`;
  const leftovers = async (): Promise<string[]> =>
    (await Promise.all(servers.map((url) => leftoversAt(url, prefix)))).flat();
  return {
    prefix,
    // Nodes learn of each other at each beat, every second.
    engine: () => redis({ leaseMs: 3_000, ...options, prefix }),
    // A server ends the subscriptions of a closed connection a little later.
    leftovers: () => eventually(leftovers, (left) => left.length === 0, 2_000).catch(leftovers),
    close: async () => {
      await Promise.all(servers.map((url) => removeAt(url, prefix)));
    },
  };
}

/** Returns the name of a channel in Redis. */
export function keyOf({ prefix }: RedisRig, channel: Channel): string {
  return new Names(prefix).channel(channel).name;
}
