/**
 * The client libraries of NATS, and their errors. The libraries are imported only when an engine connects. No declaration that an application
 * sees imports their types: these do not pass a check of declarations, which the application may have switched on.
 */
import type * as JetStream from "@nats-io/jetstream";
import type * as Transport from "@nats-io/transport-node";
import { EngineError } from "../topics/engine.js";
import { FinalError, UNTRUSTED } from "../fleet/reconnecting.js";
import { runAttempt } from "./attempt.js";
import type { Config } from "./options.js";

/** The first version with JetStream as the engine uses it: it sends on what a stream has stored. */
const LEAST_VERSION = [2, 9, 0];
/**
 * The first version whose streams on several servers accept one of two messages that are to be behind the same one. Earlier ones may accept
 * both, so a log would have two entries at one place.
 */
const LEAST_REPLICATING = [2, 10, 19];

/** Returns what a server of this version lacks; `undefined` if nothing. `replicas`: on how many servers streams are kept. */
export function lackOf(version: string, replicas: number | undefined): string | undefined {
  const isReplicated = (replicas ?? 1) > 1;
  const least = isReplicated ? LEAST_REPLICATING : LEAST_VERSION;
  const parts = (/^\d+\.\d+\.\d+/.exec(version)?.[0] ?? "0.0.0").split(".").map(Number);
  const differing = parts.findIndex((part, i) => part !== least[i]);
  if (differing === -1 || parts[differing]! > least[differing]!) return undefined;
  const reason = isReplicated ? ` for ${replicas} replicas` : "";
  return `version ${version || "unknown"} is too old: ${least.join(".")} or later is needed${reason}`;
}

export type { JetStreamManager, MsgRequest, StoredMsg, StreamConfig, StreamInfo } from "@nats-io/jetstream";
export type { Msg, MsgHdrs, Subscription } from "@nats-io/transport-node";

/** Imports a package. Rejects with a final error if it is not installed. */
async function load<T>(name: string, importing: Promise<T>): Promise<T> {
  return importing.catch((cause: unknown) => {
    throw new FinalError(`the package \`${name}\`, version 3, is not installed`, { cause });
  });
}

/** One connection to a server, which ends when it is lost. */
export interface Link {
  readonly client: Transport.NatsConnection;
  readonly library: typeof Transport;
  /** `undefined` without the option `jetstream`. */
  readonly jetstream?:
    { readonly publisher: JetStream.JetStreamClient; readonly manager: JetStream.JetStreamManager } | undefined;
}

const CONNECT_MS = 5_000;
/** How long a server may take to answer a command. */
export const COMMAND_MS = 5_000;

/**
 * Connects once. The client does not connect again by itself: the engine decides when, and subscribes anew. `inbox`: what the subjects of
 * answers begin with. If `signal` aborts, rejects at once. An attempt that fails leaves no socket.
 */
export async function connect(config: Config, name: string, inbox: string, signal: AbortSignal): Promise<Link> {
  try {
    const library = await load("@nats-io/transport-node", import("@nats-io/transport-node"));
    const streams = config.jetstream && (await load("@nats-io/jetstream", import("@nats-io/jetstream")));
    const options = {
      ...config.login,
      servers: [...config.servers],
      ...(config.tls === undefined ? {} : { tls: config.tls }),
      name,
      inboxPrefix: inbox,
      reconnect: false,
      // Without them, a request is cheaper. They are of no use: each error has a cause.
      noAsyncTraces: true,
      timeout: CONNECT_MS,
      pingInterval: 5_000,
      maxPingOut: 2,
    };
    const client = await runAttempt(() => library.connect(options), signal);
    try {
      const lack = lackOf(client.info?.version ?? "", config.jetstream?.replicas);
      if (lack !== undefined) throw new FinalError(`NATS at ${config.servers.join(", ")}: ${lack}`);
      if (streams === undefined) return { library, client };
      const manager = await streams.jetstreamManager(client, { timeout: COMMAND_MS, checkAPI: true });
      return { library, client, jetstream: { manager, publisher: streams.jetstream(client, { timeout: COMMAND_MS }) } };
    } catch (error) {
      await client.close();
      throw error;
    }
  } catch (error) {
    throw connectError(config, error);
  }
}

/** An error of a request names its subject only: its cause says what happened. */
function describe(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const { cause } = error;
  if (cause instanceof Error && !error.message.includes(cause.message))
    return `${error.message || error.name}: ${describe(cause)}`;
  return error.message || error.name;
}

/** The names of errors that time does not cure. */
const FINAL_NAMES =
  /^(AuthorizationError|UserAuthenticationExpiredError|PermissionViolationError|JetStreamNotEnabled)$/;
/** Time may cure it: this process or the server was too busy for the login. The library gives it the name of a login that is refused. */
const TOO_LATE = /authentication timeout/i;
/** The names of errors of a command that was not written, or that nothing has received. */
const REFUSED_NAMES = /^(NoRespondersError|JetStreamNotEnabled|PermissionViolationError|InvalidArgumentError)$/;

/** Returns an error and its causes. */
export function chainOf(reason: unknown): Error[] {
  return reason instanceof Error ? [reason, ...chainOf(reason.cause)] : [];
}

/** Returns the error of an attempt to connect. */
export function connectError(config: Config, reason: unknown): EngineError {
  if (reason instanceof EngineError) return reason;
  const text = `NATS at ${config.servers.join(", ")}: ${describe(reason)}`;
  const isFinal = chainOf(reason).some(
    (error) =>
      (FINAL_NAMES.test(error.name) && !TOO_LATE.test(error.message)) ||
      UNTRUSTED.test(String((error as { code?: unknown }).code)),
  );
  return isFinal ? new FinalError(text, { cause: reason }) : new EngineError(text, "not-sent", { cause: reason });
}

/** Returns the error of a command. What the server has refused did nothing. */
export function commandError(cause: unknown): EngineError {
  if (cause instanceof EngineError) return cause;
  const isRefused = codeOf(cause) !== undefined || chainOf(cause).some(({ name }) => REFUSED_NAMES.test(name));
  return new EngineError(`NATS: ${describe(cause)}`, isRefused ? "not-sent" : "unknown", { cause });
}

/** Returns what the user may not do, if that is the reason of an error. */
export function refusalIn(reason: unknown): string | undefined {
  return chainOf(reason).find(({ name }) => name === "PermissionViolationError")?.message;
}

/** Returns the code of an error with which JetStream has refused a command; `undefined` for any other error. */
export function codeOf(error: unknown): number | undefined {
  const codes = chainOf(error).map((reason) => (reason as { code?: unknown }).code);
  return codes.find((code) => typeof code === "number");
}

/** Rejects if the connection ends before. */
export function whileOpen<T>(client: Transport.NatsConnection, work: Promise<T>): Promise<T> {
  const ended = client.closed().then((error): never => {
    throw error instanceof Error ? error : new EngineError("the connection to NATS was lost again", "not-sent");
  });
  return Promise.race([work, ended]);
}
