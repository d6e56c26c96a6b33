/// <reference types="node" preserve="true" />
/** The entry for Redis: an engine that connects the servers of several processes. The application brings the package `redis`. */
import type { Engine } from "../topics/engine.js";
import { RedisConnection } from "./connection.js";
import { readOptions, type RedisOptions } from "./options.js";

export type { RedisOptions } from "./options.js";
export { EngineError, type Engine, type EngineSettings } from "../topics/engine.js";

/**
 * Returns an engine over Redis 6.2 or later, over Sentinel, or over a Redis Cluster 7.0 or later. Servers with the same Redis and the same
 * `prefix` are a fleet. Each server makes its own connections, two to each primary, and closes them when it closes. Nothing is
 * left in Redis then, except logs, which expire.
 *
 * Needs the package `redis` or `@redis/client`, version 6, which the application installs. Throws a `TypeError` for a bad option, which
 * names the option and the rule. `serve` rejects with an `EngineError` if Redis cannot be reached or lacks something.
 */
export function redis(options: RedisOptions): Engine {
  const config = readOptions(options);
  return {
    name: "redis",
    settings: config.settings,
    createConnection: (node, host) => new RedisConnection(config, node, host),
  };
}
