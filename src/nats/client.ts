/** The client libraries of NATS, which are imported only when an engine connects, and their errors. */
import type { JetStreamClient, JetStreamManager } from "@nats-io/jetstream";
import type { NatsConnection } from "@nats-io/transport-node";
import { EngineError } from "../fleet/engine.js";
import type { Config } from "./options.js";

/** An error that trying again does not cure, such as a wrong password. */
export class FinalError extends EngineError {
  constructor(message: string, options?: ErrorOptions) {
    super(message, "not-sent", options);
  }
}

type Transport = typeof import("@nats-io/transport-node");
type JetStream = typeof import("@nats-io/jetstream");

async function load(name: string): Promise<unknown> {
  try {
    return await import(name);
  } catch (cause) {
    throw new FinalError(`the package \`${name}\`, version 3, is not installed`, { cause });
  }
}

/** One connection to a server, that ends when it is lost. */
export interface Link {
  readonly client: NatsConnection;
  readonly library: Transport;
  /** `undefined` without the option `jetstream`. */
  readonly jetstream?: { readonly client: JetStreamClient; readonly manager: JetStreamManager } | undefined;
}

const CONNECT_MS = 5_000;
/** How long a server may take to answer a command. */
export const COMMAND_MS = 5_000;

/** Connects once. The client does not connect again by itself: the engine decides when, and subscribes anew. */
export async function connect(config: Config, name: string): Promise<Link> {
  const library = (await load("@nats-io/transport-node")) as Transport;
  try {
    const client = await library.connect({
      ...config.login,
      servers: [...config.servers],
      ...(config.tls === undefined ? {} : { tls: config.tls }),
      name,
      reconnect: false,
      timeout: CONNECT_MS,
      pingInterval: 5_000,
      maxPingOut: 2,
    });
    if (config.replicas === undefined) return { library, client };
    const { jetstream, jetstreamManager } = (await load("@nats-io/jetstream")) as JetStream;
    try {
      const manager = await jetstreamManager(client, { timeout: COMMAND_MS, checkAPI: true });
      return { library, client, jetstream: { manager, client: jetstream(client, { timeout: COMMAND_MS }) } };
    } catch (error) {
      await client.close();
      throw error;
    }
  } catch (error) {
    throw connectError(config, error);
  }
}

function describe(error: unknown): string {
  return error instanceof Error ? error.message || error.name : String(error);
}

function connectError(config: Config, cause: unknown): EngineError {
  if (cause instanceof EngineError) return cause;
  const text = `NATS at ${config.servers.join(", ")}: ${describe(cause)}`;
  const isFinal = /authorization|authentication|certificate|self.signed|jetstream (is )?not enabled/i.test(
    describe(cause),
  );
  return isFinal ? new FinalError(text, { cause }) : new EngineError(text, "not-sent", { cause });
}

/** Returns the error of a command that was written. */
export function commandError(cause: unknown): EngineError {
  return cause instanceof EngineError ? cause : new EngineError(`NATS: ${describe(cause)}`, "unknown", { cause });
}
