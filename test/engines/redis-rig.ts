/** Rigs of the suite over Redis. */
import { nanoid } from "nanoid";
import { redis, type RedisOptions } from "../../src/redis/index.js";
import { eventually, leftoversAt, removeAt } from "../support/redis.js";
import type { EngineRig } from "./suite.js";

/** Returns a rig with a prefix of its own. `servers`: the URLs of all primaries, with a user who may run every command. */
export function redisRig(options: RedisOptions, servers: readonly string[]): EngineRig {
  const prefix = `test-${nanoid(8)}`;
  const leftovers = async (): Promise<string[]> =>
    (await Promise.all(servers.map((url) => leftoversAt(url, prefix)))).flat();
  return {
    engine: () => redis({ ...options, prefix }),
    // A server ends the subscriptions of a closed connection a little later.
    leftovers: () => eventually(leftovers, (left) => left.length === 0, 2_000).catch(leftovers),
    close: async () => {
      await Promise.all(servers.map((url) => removeAt(url, prefix)));
    },
  };
}
