/// <reference types="node" preserve="true" />
/** The entry for NATS: an engine that connects the servers of several processes. The application brings the packages `@nats-io/..`. */
import type { Engine } from "../topics/engine.js";
import { NatsConnection } from "./connection.js";
import { readOptions, type NatsOptions } from "./options.js";

export type { NatsOptions } from "./options.js";
export { EngineError, type Engine, type EngineSettings } from "../topics/engine.js";

/**
 * Returns an engine over NATS 2.9 or later. Servers with the same NATS and the same `prefix` are a fleet. Each server makes its own
 * connection, and closes it when it closes. Nothing is left in NATS then, except logs and empty streams. Without the option `jetstream`,
 * topics have no logs.
 *
 * Needs the package `@nats-io/transport-node`, and `@nats-io/jetstream` for that option, version 3, which the application installs. Throws
 * a `TypeError` for a bad option, which names the option and the rule. `serve` rejects with an `EngineError` if NATS cannot be reached
 * or lacks something.
 */
export function nats(options: NatsOptions): Engine {
  const config = readOptions(options);
  return {
    name: "nats",
    settings: config.settings,
    createConnection: (node, host) => new NatsConnection(config, node, host),
  };
}
