/** The part of node-redis that the engine uses, and its errors. The library is imported only when an engine connects. */
import { isIP } from "node:net";
import { EngineError } from "../topics/engine.js";
import { FinalError, UNTRUSTED } from "../fleet/reconnecting.js";
import type { Address, Login } from "./options.js";

/** One connection of node-redis. */
export interface Client {
  readonly isReady: boolean;
  on(event: "connect" | "error" | "terminated", listener: (error: Error) => void): this;
  /** A server has ended the subscription of a channel. */
  on(event: "sharded-channel-moved", listener: (name: string) => void): this;
  connect(): Promise<unknown>;
  destroy(): void;
  sendCommand(args: readonly string[]): Promise<unknown>;
  subscribe(names: readonly string[], listener: Listener): Promise<void>;
  unsubscribe(names: readonly string[], listener: Listener): Promise<void>;
  sSubscribe(names: readonly string[], listener: Listener): Promise<void>;
  sUnsubscribe(names: readonly string[], listener: Listener): Promise<void>;
}

/** Sends one command to a server, and returns its reply. */
export type Ask = (args: readonly string[]) => Promise<unknown>;

export type Listener = (frame: string, name: string) => void;

export interface Library {
  createClient(options: object): Client;
  readonly ErrorReply: new (message: string) => Error;
}

let loading: Promise<Library> | undefined;

/** Imports node-redis: the package `@redis/client`, or else `redis`. Rejects with a final error if neither is there in version 6. */
export function loadLibrary(): Promise<Library> {
  return (loading ??= importLibrary());
}

// A widened specifier needs no types of the library.
const PACKAGES: readonly (readonly [name: string, load: () => Promise<object>])[] = [
  // oxlint-disable-next-line typescript/no-unnecessary-type-assertion -- otherwise this compiles only where it is installed.
  ["@redis/client", () => import("@redis/client" as string) as Promise<object>],
  // oxlint-disable-next-line typescript/no-unnecessary-type-assertion -- as above.
  ["redis", () => import("redis" as string) as Promise<object>],
];

async function importLibrary(): Promise<Library> {
  const earlier: string[] = [];
  let cause: unknown;
  for (const [name, load] of PACKAGES)
    try {
      const found = await load();
      // Version 5 does not export this class. Another package may have brought an earlier version.
      if ("RedisClient" in found) return found as unknown as Library;
      earlier.push(`\`${name}\``);
    } catch (error) {
      cause ??= error;
    }
  loading = undefined;
  const found = earlier.length === 0 ? "" : `: there is an earlier version of ${earlier.join(" and ")}`;
  throw new FinalError(`the package \`redis\` or \`@redis/client\`, version 6, is not installed${found}`, { cause });
}

/**
 * Returns a client that connects once, and never again: the engine decides when and where to connect anew. `signal` destroys its socket,
 * also while it connects.
 */
export function createClient(
  library: Library,
  address: Address,
  login: Login,
  name: string,
  signal: AbortSignal,
): Client {
  const { tls, ...user } = login;
  const to = "path" in address ? { path: address.path } : { host: address.host, port: address.port };
  const client = library.createClient({
    ...user,
    name,
    socket: {
      ...to,
      signal,
      ...(tls === undefined ? {} : { tls: true, ...servername(address), ...tls }),
      reconnectStrategy: false,
      connectTimeout: 5_000,
    },
    RESP: 3,
    disableOfflineQueue: true,
    // A link looks for silence itself. A timer for each command would be expensive.
    commandOptions: { timeout: undefined },
    maintNotifications: "disabled",
  });
  // A client that is destroyed while its socket connects would use it nevertheless. A TLS socket has no signal.
  return client.on("connect", () => signal.aborted && client.destroy());
}

/** `tls.connect` sends the name of the server only if it is given. */
function servername(address: Address): object {
  return "host" in address && isIP(address.host) === 0 ? { servername: address.host } : {};
}

/** A command was refused because another server of the cluster has its keys, or will have them soon. It did nothing. */
export class RedirectError extends EngineError {
  constructor(message: string, options?: { cause?: unknown }) {
    super(message, "not-sent", options);
  }
}

/** A server can no longer be used for what it was connected for: it became a replica or may be replaced, or its cluster has failed. */
export class DemotedError extends EngineError {
  constructor(message: string, options?: { cause?: unknown }) {
    super(message, "not-sent", options);
  }
}

const REDIRECT = /^(MOVED|ASK|TRYAGAIN|CROSSSLOT)\b/;
const DEMOTED = /\b(LATE|READONLY|CLUSTERDOWN|MASTERDOWN|LOADING)\b/;
/** Replies to commands that were refused before they did anything. Redis 6.2 writes them inside the text of a script's error. */
const REFUSED = /\b(NOAUTH|NOSCRIPT|OOM|BUSY|MISCONF|NOREPLICAS|WRONGTYPE)\b/;
const WRONG_LOGIN = /^(WRONGPASS|NOAUTH|NOPERM|DENIED|ERR AUTH|ERR Client sent AUTH|ERR unknown command)/;
/** Replies to commands, also of scripts, which the user may not run or the server does not have. */
export const FORBIDDEN =
  /\bNOPERM\b|The user executing the script can't|ACL failure in script|unknown (redis |sub)?command/i;

/** Returns the error of a command. `isWritten`: whether it may have reached the server. */
export function commandError(library: Library, where: string, reason: unknown, isWritten = true): EngineError {
  const cause = reason instanceof Error ? reason : new Error(String(reason));
  const text = `Redis at ${where}: ${describe(cause)}`;
  if (!(cause instanceof library.ErrorReply))
    return new EngineError(text, isWritten ? "unknown" : "not-sent", { cause });
  if (REDIRECT.test(cause.message)) return new RedirectError(text, { cause });
  if (DEMOTED.test(cause.message)) return new DemotedError(text, { cause });
  if (/\bNOPERM\b/.test(cause.message)) return new FinalError(text, { cause });
  return new EngineError(text, REFUSED.test(cause.message) ? "not-sent" : "unknown", { cause });
}

/** Returns the error of an attempt to connect. */
export function connectError(where: string, reason: unknown): EngineError {
  if (reason instanceof EngineError) return reason;
  const cause = reason instanceof Error ? reason : new Error(String(reason));
  const text = `Redis at ${where}: ${describe(cause)}`;
  const { code = "" } = cause as { code?: unknown };
  const isFinal = WRONG_LOGIN.test(cause.message) || UNTRUSTED.test(String(code));
  return isFinal ? new FinalError(text, { cause }) : new EngineError(text, "not-sent", { cause });
}

/**
 * Returns the error of a server that refuses commands of the engine, with a text for each. It is final only if the user lacks a right or
 * the server lacks a command: a server that cannot save its data or has too few replicas accepts them later.
 */
export function refusalError(where: string, refusals: readonly string[]): EngineError {
  const text = `Redis at ${where} refuses commands of the engine: ${refusals.join(", ")}`;
  if (FORBIDDEN.test(text)) return new FinalError(text);
  return DEMOTED.test(text) ? new DemotedError(text) : new EngineError(text, "not-sent");
}

/** A refused connection to a name with several addresses has a message for each address, and none itself. */
function describe(error: Error): string {
  const [first] = error instanceof AggregateError ? error.errors : [];
  return error.message || (first instanceof Error ? first.message : error.name);
}
