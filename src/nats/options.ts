/** The options of `nats()`. */
/// <reference types="node" preserve="true" />
import type { ConnectionOptions } from "node:tls";
import { checkOptions, must, optional, secret } from "../message/options.js";
import { BROKER_OPTIONS, given, object, secretText } from "../fleet/broker-options.js";
import type { EngineSettings } from "../topics/engine.js";

/** The options of `nats()`. */
export interface NatsOptions extends EngineSettings {
  /**
   * One server or several of a cluster, as `nats://user:password@host:4222`, or `tls://` for TLS. The node connects to one of them, and after
   * a loss to any of them. A user in the first URL is used for all.
   */
  readonly url: string | readonly string[];
  /** The user. Default: that of the first URL. */
  readonly username?: string | undefined;
  /** The password. Default: that of the first URL. It is in no error. */
  readonly password?: string | undefined;
  /** A token, instead of a user. It is in no error. */
  readonly token?: string | undefined;
  /** Options of `tls.connect`, such as `ca`, `cert` and `key`. */
  readonly tls?: ConnectionOptions | undefined;
  /** Separates applications that share a NATS: 1 to 64 of `[A-Za-z0-9_-]`. Default `"reciproc"`. */
  readonly prefix?: string | undefined;
  /**
   * Keeps logs in JetStream, which the servers must have enabled, in memory, on so many servers of the cluster (default 1).
   * Several need NATS 2.10.19 or later: earlier ones may give two publications one place. `bytes`: the length of all logs together, which
   * NATS reserves, 1 MiB to 1 TiB (default 128 MiB). NATS removes the oldest entries beyond that. Default: no JetStream, so topics have no
   * logs.
   */
  readonly jetstream?: { readonly replicas?: 1 | 3 | 5 | undefined; readonly bytes?: number | undefined } | undefined;
}

/** On how many servers JetStream keeps the logs, and how many bytes of them. */
export interface KeptLogs {
  readonly replicas: 1 | 3 | 5;
  readonly bytes: number;
}

/** The options after checking. */
export interface Config {
  readonly servers: readonly string[];
  readonly login: { readonly user?: string; readonly pass?: string; readonly token?: string };
  readonly tls: object | undefined;
  readonly prefix: string;
  /** How JetStream keeps logs; `undefined` without JetStream. */
  readonly jetstream: KeptLogs | undefined;
  readonly settings: EngineSettings;
}

const urls = secret<string | readonly string[]>("a URL, or an array with at least one", (value) =>
  Array.isArray(value) ? value.length > 0 && value.every((one) => typeof one === "string") : typeof value === "string",
);
const JETSTREAM_OPTIONS = {
  replicas: optional(
    must<1 | 3 | 5>("1, 3 or 5", (value) => [1, 3, 5].includes(value)),
    1 as const,
  ),
  bytes: optional(
    must<number>(
      "a whole number from 2^20 to 2^40",
      (value) => Number.isInteger(value) && value >= 2 ** 20 && value <= 2 ** 40,
    ),
    2 ** 27,
  ),
};

const OPTIONS = {
  ...BROKER_OPTIONS,
  url: urls,
  token: optional(secretText),
  jetstream: optional((value, of) => checkOptions(of, value as object, JETSTREAM_OPTIONS)),
};

/** Checks the options. Throws a `TypeError` that names the option and the rule, but no password. */
export function readOptions(options: NatsOptions): Config {
  const { url, username, password, token, tls, prefix, jetstream, ...settings } = checkOptions(
    "options",
    object(options, "options"),
    OPTIONS,
  );
  const servers = (typeof url === "string" ? [url] : url).map(readUrl);
  const [first] = servers;
  const user = username ?? (first!.user || undefined);
  const pass = password ?? (first!.pass || undefined);
  return {
    servers: servers.map(({ address }) => address),
    login: given({ user, pass, token }),
    tls: tls ?? (servers.some(({ isTls }) => isTls) ? {} : undefined),
    prefix,
    jetstream,
    settings: given(settings),
  };
}

/** Reads a URL. Its text may have a password, so it is in no error. */
function readUrl(value: string): { address: string; isTls: boolean; user: string; pass: string } {
  try {
    const { protocol, hostname, port, username, password } = new URL(value);
    if (!["nats:", "tls:"].includes(protocol) || hostname === "") throw new TypeError("another protocol");
    const [user, pass] = [username, password].map(decodeURIComponent) as [string, string];
    return { address: `${hostname}:${port || "4222"}`, isTls: protocol === "tls:", user, pass };
  } catch {
    throw new TypeError("Expected `url` to be nats://user:password@host:4222 or tls://..");
  }
}
