/** The options of `redis()`, and the addresses in them. */
/// <reference types="node" preserve="true" />
import type { ConnectionOptions } from "node:tls";
import { checkOptions, must, oneOf, optional, secret } from "../message/options.js";
import { BROKER_OPTIONS, given, object, secretText } from "../fleet/broker-options.js";
import type { EngineSettings } from "../topics/engine.js";

/** The options of `redis()`. Exactly one of `url`, `cluster` and `sentinel` says where Redis is. */
export interface RedisOptions extends EngineSettings {
  /**
   * One server, as `redis://user:password@host:6379`, `rediss://` for TLS, or `unix:///path` of a socket. A database as path (`/1`) separates
   * keys, but not messages: set `prefix` for each application.
   */
  readonly url?: string | undefined;
  /** Some servers of a Redis Cluster 7.0 or later, as URLs. The others are found through them. */
  readonly cluster?: readonly string[] | undefined;
  /** Some Sentinels as URLs, with their own credentials, and the name by which they know the primary. */
  readonly sentinel?: { readonly name: string; readonly urls: readonly string[] } | undefined;
  /** The user of the servers. Default: that of the first URL, but never that of a Sentinel. */
  readonly username?: string | undefined;
  /** The password of the servers. Default: that of the first URL, but never that of a Sentinel. It is in no error. */
  readonly password?: string | undefined;
  /** Options of `tls.connect`, such as `ca`, `cert` and `key`. `url` and `cluster` must be `rediss:` then. Servers that a Sentinel names use TLS. */
  readonly tls?: ConnectionOptions | undefined;
  /** Separates applications that share a Redis: 1 to 64 of `[A-Za-z0-9_-]`. Default `"reciproc"`. */
  readonly prefix?: string | undefined;
  /**
   * `"durable"`: the servers lose nothing that they have acknowledged, also when one is replaced, such as MemoryDB. Then a failover is no
   * gap. Default `"volatile"`: what a server acknowledged last may be lost with it, as with Redis, so that a failover is a gap.
   */
  readonly history?: "volatile" | "durable" | undefined;
}

/** Where a server is. */
export type Address = { readonly host: string; readonly port: number } | { readonly path: string };

/** Returns an address as errors name it. */
export function textOf(address: Address): string {
  if ("path" in address) return address.path;
  return `${address.host.includes(":") ? `[${address.host}]` : address.host}:${address.port}`;
}

/** Who connects, and how. The password is in no error. */
export interface Login {
  readonly username?: string | undefined;
  readonly password?: string | undefined;
  readonly database?: number | undefined;
  /** Options of `tls.connect`; `undefined` without TLS. */
  readonly tls?: object | undefined;
}

/** A server of an option, and how to log in there. */
export interface Target {
  readonly address: Address;
  readonly login: Login;
}

/** How the primaries are found. */
export type Place =
  | { readonly kind: "single"; readonly address: Address }
  | { readonly kind: "cluster"; readonly roots: readonly Address[] }
  | { readonly kind: "sentinel"; readonly name: string; readonly sentinels: readonly Target[] };

/** The options after checking. */
export interface Config {
  readonly place: Place;
  /** How to log in on a primary. */
  readonly login: Login;
  readonly prefix: string;
  readonly isDurable: boolean;
  readonly settings: EngineSettings;
}

const urls = secret<readonly string[]>(
  "an array with at least one URL",
  (value) => Array.isArray(value) && value.length > 0 && value.every((one) => typeof one === "string"),
);

const SENTINEL_OPTIONS = { name: must<string>("a name", (value) => typeof value === "string" && value !== ""), urls };

const OPTIONS = {
  ...BROKER_OPTIONS,
  url: optional(secretText),
  cluster: optional(urls),
  sentinel: optional((value, of) => checkOptions(of, object(value, of), SENTINEL_OPTIONS)),
  history: optional(oneOf("volatile", "durable"), "volatile"),
};

/** Checks the options. Throws a `TypeError` that names the option and the rule, but no password. */
export function readOptions(options: RedisOptions): Config {
  const { url, cluster, sentinel, username, password, tls, prefix, history, ...settings } = checkOptions(
    "options",
    object(options, "options"),
    OPTIONS,
  );
  if ([url, cluster, sentinel].filter((one) => one !== undefined).length !== 1)
    throw new TypeError("Expected exactly one of `url`, `cluster` and `sentinel` in `options`");
  const targets = (cluster ?? (url === undefined ? [] : [url])).map((one) =>
    readUrl(one, cluster === undefined ? "url" : "cluster", tls),
  );
  const isTls = tls !== undefined || targets.some((target) => target.login.tls !== undefined);
  if (isTls && targets.some((target) => target.login.tls === undefined)) {
    const [what, why] = url === undefined ? ["each URL of `cluster`", " or another one is"] : ["`url`", ""];
    throw new TypeError(`Expected ${what} to be rediss://, because \`tls\` is given${why}`);
  }
  const first: Login = targets[0]?.login ?? { tls };
  return {
    place: placeOf(targets, cluster !== undefined, sentinel, tls),
    login: { ...first, ...given({ username, password }) },
    prefix,
    isDurable: history === "durable",
    settings: given(settings),
  };
}

function placeOf(
  targets: readonly Target[],
  isCluster: boolean,
  sentinel: { name: string; urls: readonly string[] } | undefined,
  tls: object | undefined,
): Place {
  if (sentinel !== undefined) {
    const sentinels = sentinel.urls.map((one) => readUrl(one, "sentinel.urls", tls));
    return { kind: "sentinel", name: sentinel.name, sentinels };
  }
  if (!isCluster) return { kind: "single", address: targets[0]!.address };
  return { kind: "cluster", roots: targets.map(({ address }) => address) };
}

/** Reads a URL. Its text may have a password, so it is in no error. */
function readUrl(value: string, option: string, tls: object | undefined): Target {
  const unfit = (): TypeError =>
    new TypeError(`Expected \`${option}\` to be redis://user:password@host:6379/database, rediss://.. or unix:///path`);
  const url = URL.canParse(value) ? new URL(value) : undefined;
  if (url === undefined) throw unfit();
  const { protocol, hostname, port, pathname } = url;
  const path = decoded(pathname) ?? "";
  const username = decoded(url.username);
  const password = decoded(url.password);
  const database = Number(path.slice(1));
  if (username === undefined || password === undefined) throw unfit();
  const user = given({ username: username || undefined, password: password || undefined });
  if (protocol === "unix:" && path.length > 1) return { address: { path }, login: user };
  if (!["redis:", "rediss:"].includes(protocol) || hostname === "" || !Number.isInteger(database)) throw unfit();
  // An IPv6 address is in brackets in a URL only.
  const address = { host: hostname.replace(/^\[(.*)\]$/, "$1"), port: port === "" ? 6379 : Number(port) };
  const login = {
    ...user,
    ...given({ database: database || undefined, tls: protocol === "rediss:" ? { ...tls } : undefined }),
  };
  return { address, login };
}

function decoded(part: string): string | undefined {
  try {
    return decodeURIComponent(part);
  } catch {
    return undefined;
  }
}
