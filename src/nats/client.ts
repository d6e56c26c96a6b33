/**
 * The part of the client libraries of NATS that the engine uses, and their errors. The libraries are imported only when an engine
 * connects. Their types are not imported: they do not pass a check of declarations, which an application may have switched on.
 */
import { EngineError } from "../fleet/engine.js";
import { FinalError } from "../fleet/reconnecting.js";
import { dial } from "./dial.js";
import type { Config } from "./options.js";

/** The headers of a message. A header that is not there is empty. */
export interface Headers {
  get(name: string): string;
  set(name: string, value: string): void;
}

/** A message that a subscription has received. */
export interface Message {
  readonly subject: string;
  readonly reply?: string;
  readonly headers?: Headers | undefined;
  string(): string;
  respond(): boolean;
}

export interface Subscription {
  unsubscribe(): void;
}

/** An error that the server has reported (`"error"`), pings without answers (`"staleConnection"`), or another change. */
interface Status {
  readonly type: string;
  readonly error?: unknown;
}

/** A connection of `@nats-io/transport-node`. */
export interface Client {
  readonly info?: { readonly version: string; readonly max_payload: number; readonly cluster?: string } | undefined;
  publish(subject: string, payload: string): void;
  request(subject: string, payload: string, options: { timeout: number }): Promise<Message>;
  subscribe(subject: string, options: { callback: (error: Error | null, message: Message) => void }): Subscription;
  flush(): Promise<void>;
  status(): AsyncIterable<Status>;
  close(): Promise<void>;
  /** Resolves when the connection has ended, with the reason if it was not `close`. */
  closed(): Promise<Error | void>;
  isClosed(): boolean;
}

/** The settings of a stream that the engine uses. */
export interface StreamSettings {
  readonly description?: string;
  readonly subjects: readonly string[];
  readonly storage: "memory";
  readonly num_replicas: number;
  /** In nanoseconds; 0 for ever. */
  readonly max_age: number;
  readonly max_msgs_per_subject: number;
  /** Of all messages; -1 for no maximum. */
  readonly max_bytes: number;
  readonly duplicate_window: number;
  readonly republish?: { readonly src: string; readonly dest: string };
}

export interface StreamInfo {
  /** When the stream was created, by the clock of the server. */
  readonly created: string;
  readonly config: StreamSettings;
  readonly state: {
    readonly first_seq: number;
    readonly last_seq: number;
    readonly subjects?: Readonly<Record<string, number>>;
  };
}

/** One message: the last of a subject, the one of a sequence, or the first of a subject from a sequence on. */
export type MessageQuery = { last_by_subj: string } | { seq: number; next_by_subj?: string };

/** A message of a stream. Reading its headers throws if the library refuses them. */
export interface StoredMessage {
  readonly seq: number;
  readonly header: Headers;
  string(): string;
}

/** The manager of JetStream. Its methods reject with a `JetStreamApiError`, which has a `code`, if the server refuses. */
export interface Manager {
  readonly streams: {
    info(name: string, options?: { subjects_filter: string }): Promise<StreamInfo>;
    add(settings: Partial<StreamSettings> & { name: string }): Promise<StreamInfo>;
    update(name: string, settings: Partial<StreamSettings>): Promise<StreamInfo>;
    purge(name: string, options: { filter?: string; seq?: number }): Promise<unknown>;
    getMessage(name: string, query: MessageQuery): Promise<StoredMessage | null>;
  };
}

/** Publishes to streams. */
export interface Publisher {
  publish(
    subject: string,
    payload: string,
    options: {
      headers?: Headers;
      expect?: { lastSubjectSequence: number } | { lastSequence: number };
      msgID?: string;
      timeout: number;
    },
  ): Promise<{ readonly seq: number; readonly duplicate: boolean }>;
}

type ErrorClass = abstract new (...args: never) => Error;

/** `@nats-io/transport-node`. */
export interface Transport {
  connect(options: object): Promise<Client>;
  headers(): Headers;
  readonly NoRespondersError: ErrorClass;
  readonly PermissionViolationError: ErrorClass;
}

/** `@nats-io/jetstream`. */
export interface JetStream {
  jetstream(client: Client, options: { timeout: number }): Publisher;
  jetstreamManager(client: Client, options: { timeout: number; checkAPI: boolean }): Promise<Manager>;
}

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

async function load<T>(name: string, importing: () => Promise<unknown>): Promise<T> {
  try {
    return (await importing()) as T;
  } catch (cause) {
    throw new FinalError(`the package \`${name}\`, version 3, is not installed`, { cause });
  }
}

// A widened specifier needs no types of the library.
/* oxlint-disable typescript/no-unnecessary-type-assertion -- otherwise these compile only where the libraries are installed. */

/** Imports `@nats-io/transport-node`. Rejects with a final error if it is not installed. */
export function loadTransport(): Promise<Transport> {
  return load("@nats-io/transport-node", () => import("@nats-io/transport-node" as string));
}

/** Imports `@nats-io/jetstream`. Rejects with a final error if it is not installed. */
export function loadJetStream(): Promise<JetStream> {
  return load("@nats-io/jetstream", () => import("@nats-io/jetstream" as string));
}

/* oxlint-enable typescript/no-unnecessary-type-assertion */

/** One connection to a server, which ends when it is lost. */
export interface Link {
  readonly client: Client;
  readonly library: Transport;
  /** `undefined` without the option `jetstream`. */
  readonly jetstream?: { readonly publisher: Publisher; readonly manager: Manager } | undefined;
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
    const library = await loadTransport();
    const streams = config.jetstream === undefined ? undefined : await loadJetStream();
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
    const client = await dial(() => library.connect(options), signal);
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

/** The names of errors that time does not cure, and the codes of `tls.connect` for certificates that are not trusted. */
const FINAL_NAMES =
  /^(AuthorizationError|UserAuthenticationExpiredError|PermissionViolationError|JetStreamNotEnabled)$/;
const UNTRUSTED = /^(ERR_TLS_|CERT_|UNABLE_TO_|SELF_SIGNED_|DEPTH_ZERO_)/;
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
    (error) => FINAL_NAMES.test(error.name) || UNTRUSTED.test(String((error as { code?: unknown }).code)),
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
export function whileOpen<T>(client: Client, work: Promise<T>): Promise<T> {
  const ended = client.closed().then((error): never => {
    throw error instanceof Error ? error : new EngineError("the connection to NATS was lost again", "not-sent");
  });
  return Promise.race([work, ended]);
}
