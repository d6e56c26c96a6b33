/** The options of `serve` and their check, except the options that depend on the type of the server. */
import type { IncomingMessage, Server as HttpServer } from "node:http";
import type { Server as HttpsServer } from "node:https";
import type { NotifyName } from "../contract/contract.js";
import type { Dialect } from "../peer/dialect.js";
import { expected } from "../message/errors.js";
import { checkHeartbeat, type HeartbeatOptions } from "../socket/heartbeat.js";
import { aDialect, PEER_OPTIONS } from "../peer/config.js";
import { isObject } from "../message/message.js";
import { any, anyFunction, checkOptions, must, oneOf, optional, tableOf, type Checked } from "../message/options.js";
import { synchronous } from "../base/promises.js";
import { serverLimits, type ServerLimits } from "./limits.js";
import { checkEngine, type Engine } from "../topics/engine.js";
import type { NodeMethods } from "../topics/host.js";
import { principalName } from "../topics/remote.js";
import { checkLogRule, type TopicRules } from "../topics/topic-options.js";
import { serverFeatures } from "./streams.js";
import { isHost, isOrigin } from "./origin.js";
import { Admission, type Authenticate, type Disconnected } from "./upgrade.js";

/** What `authenticate` returns for a client that is refused. */
type Falsy = null | undefined | false | 0 | "";

/** Authentication. Required if the type of `peer.auth` is declared. */
export interface Authentication<A> {
  /**
   * Identifies the client of an upgrade, before the connection opens, and of each POST. Its result becomes `peer.auth`. If it
   * returns any falsy value (also `""`, as `auth && verify(auth)` does), throws or rejects, the client is refused with HTTP 401. An
   * error is emitted as `error`. If its `status` is 503, because what knows the credentials is away, the client is refused with 503,
   * and tries again.
   *
   * `auth` is what a reciproc client sent as its option `auth`, a parsed JSON value that is not checked. For such a client it is
   * called after the WebSocket opened, and a refused client gets 4401. For every other client `auth` is undefined.
   *
   * Called again when a client resumes its session or calls `reauthenticate()`. Then `peer.auth` becomes the new result, and the
   * server emits `refresh`. If it refuses a client that called `reauthenticate()`, the connection closes with 4401.
   *
   * Default: accepts every client, with `peer.auth` undefined. In an object literal, write it above `methods`: TypeScript then infers
   * the type of `peer.auth` from it.
   */
  authenticate(request: IncomingMessage, auth: unknown): A | Falsy | Promise<A | Falsy>;
  /**
   * Names the client that `authenticate` accepted. A client resumes a session only if its name is the same. A connection whose
   * name would change by `reauthenticate()` closes with 4401. A name is a well-formed string of at most 8,192 characters. If
   * `principal` throws or returns no name, the client is refused with 401. Default: the secret token of the session suffices.
   */
  principal?: ((auth: NoInfer<A>) => string) | undefined;
  /**
   * Returns how long what `authenticate` returned is valid, in milliseconds, such as `exp * 1000 - Date.now()` for a JWT. `undefined`:
   * for ever. Called after each `authenticate`. If the time is over already, the client is refused with 401, and also if
   * `expiresInMs` throws or returns anything else.
   *
   * In the last minute of that time, or the last half of a shorter one, the server asks a client that has sent `auth` for a fresh
   * one. When the time is over, the server closes the socket with 4001. A session is suspended, and its client resumes it with
   * fresh credentials. Any other connection ends. Default: what `authenticate` returned is valid for ever.
   */
  expiresInMs?: ((auth: NoInfer<A>) => number | undefined) | undefined;
}

/**
 * Where a server listens, which protocols it speaks and which clients it accepts. Exactly one of `port`, `server` and
 * `noServer` is required.
 */
export interface GateOptions {
  /** Listens on this port; 0 picks a free one (see `server.url`). */
  port?: number | undefined;
  /** The address to listen on, with `port`. Default `"127.0.0.1"`, which only this machine can reach. */
  host?: string | undefined;
  /**
   * Takes the upgrades of an existing HTTP server, which may also run Express or another framework. Takes its POSTs too, unless the
   * application listens for requests; then it mounts `server.handleRequest`. `close()` does not close the HTTP server.
   */
  server?: HttpServer | HttpsServer | undefined;
  /** Does not listen. The application passes upgrades to `server.handleUpgrade`, and POSTs to `server.handleRequest`. */
  noServer?: boolean | undefined;
  /** `"plain"` speaks plain JSON-RPC only. Default `"packed"`: `reciproc.v1` for clients that offer it, and plain JSON-RPC for others. */
  link?: "packed" | "plain" | undefined;
  /** The only path that the server serves, such as `"/rpc"`. Default: every path. Needed beside another listener for `upgrade`. */
  path?: string | undefined;
  /** The origins whose pages may connect, such as `"https://example.org"`; `"*"` for any. The server's own host always may. */
  origins?: readonly string[] | "*" | undefined;
  /**
   * The host names under which clients reach the server, such as `"example.org"`. On a connection to a loopback address, such as that
   * of a proxy on this machine, a name other than localhost is refused unless listed.
   */
  hosts?: readonly string[] | undefined;
  /** The limits of this server and of each of its peers. */
  limits?: Partial<ServerLimits> | undefined;
  /**
   * Pings each peer that has been silent for `intervalMs` (a WebSocket ping), and cuts one that has been silent for `deadAfterMs`.
   * Default 25,000 and 45,000 ms. `false` sends no pings, so a peer whose network fails stays open for ever.
   */
  heartbeat?: HeartbeatOptions | false | undefined;
  /**
   * How long a session can be resumed after it lost its socket, in milliseconds. Until then, its peer is suspended and no message
   * is lost. Default `{ ttlMs: 60_000 }`; `false` ends every peer with its socket. Over `reciproc.v1` only.
   *
   * `route` names this server to a load balancer: 1 to 64 of `A-Z`, `a-z`, `0-9`, `.`, `_` and `-`. A client that resumes a session
   * adds `?node=<route>` to its URL, by which the load balancer finds the server that has the session. Default: none.
   */
  session?: { ttlMs?: number | undefined; route?: string | undefined } | false | undefined;
  /**
   * How HTTP POSTs are answered. `notificationStatus` is the status of a POST that needs no reply, such as a notification: 204,
   * the default, or 200 with an empty body, for clients that treat 204 as a failure.
   */
  post?: { notificationStatus?: 200 | 204 | undefined } | undefined;
}

/** The options of a server that is a node of a fleet. */
export interface FleetOptions<R> {
  /**
   * Connects this server to those of other processes: `redis()` or `nats()`, or `memory()` for several servers in one process. Then
   * topics, `server.peers.notify`, `server.peer`, `server.principal` and `server.nodes` reach all of them. Default: this server has
   * no others.
   */
  engine?: Engine | undefined;
  /**
   * Returns the rules of a topic: whether its publications are logged, and whether it has a list of members. Called when a rule is
   * needed, and must return the same on every node. Default: no topic has rules.
   */
  topics?: ((name: string) => TopicRules<NotifyName<R>> | undefined) | undefined;
  /**
   * The log of `server.runOnce` for each principal and method: how many entries, of which a change has two, how many bytes, and how long
   * they are kept. Must be the same on every node. Default: as the rule `log` of a topic, 1,000 entries, 1 MiB, and 1 hour.
   */
  changes?: TopicRules["log"];
  /** Handles notifications of other nodes: see `server.nodes`. */
  nodes?: { readonly methods?: NodeMethods | undefined } | undefined;
}

const SESSION_TTL_MS = 60_000;

const isCount = (value: unknown): boolean => Number.isSafeInteger(value) && (value as number) > 0;
const isRoute = (value: unknown): boolean => typeof value === "string" && /^[\w.-]{1,64}$/.test(value);
const SESSION_OPTIONS = {
  ttlMs: optional(must<number>("a whole number from 1", isCount), SESSION_TTL_MS),
  route: optional(must<string>("1 to 64 of A-Z, a-z, 0-9, `.`, `_` and `-`", isRoute)),
};
const NODES_OPTIONS = { methods: (value: unknown = {}, name: string) => tableOf(value, name, anyFunction) };
const POST_OPTIONS = {
  notificationStatus: optional(oneOf(200, 204), 204),
};

/** The options of a server. Its `dialect` and `limits` replace those of a peer. */
const SERVER_OPTIONS = {
  port: optional(must<number>("a whole number from 0 to 65535", isPort)),
  host: optional(must<string>("a non-empty string", isText)),
  server: optional(must<HttpServer | HttpsServer>("an http.Server", (value) => typeof value?.on === "function")),
  noServer: any,
  path: optional(must<string>('a string that begins with "/" and has no "?"', isPath)),
  link: optional(oneOf("packed", "plain"), "packed"),
  authenticate: optional(anyFunction),
  origins: optional(checkOrigins),
  hosts: optional(checkHosts),
  heartbeat: (value: unknown) => checkHeartbeat(value as HeartbeatOptions | false | undefined),
  /** `undefined` without sessions. */
  session: (value: unknown, name: string): Checked<typeof SESSION_OPTIONS> | undefined => {
    if (value === false) return undefined;
    if (value !== undefined && !isObject(value)) throw expected(name, "`{ ttlMs }` or `false`", value);
    return checkOptions(name, value, SESSION_OPTIONS);
  },
  principal: optional(synchronousFunction),
  expiresInMs: optional(synchronousFunction),
  engine: checkEngine,
  topics: optional(anyFunction),
  changes: checkLogRule,
  nodes: (value: unknown) => checkOptions("nodes", value as object | undefined, NODES_OPTIONS),
  post: (value: unknown) => checkOptions("post", value as object | undefined, POST_OPTIONS),
  ...PEER_OPTIONS,
  limits: (value: unknown) => serverLimits(value as Partial<ServerLimits> | undefined),
  /** The dialects that a client may choose by subprotocol. A client that chooses none gets the first. */
  dialect: (value: unknown): readonly Dialect[] =>
    value === undefined
      ? []
      : Array.isArray(value)
        ? value.map((one) => aDialect(one, "dialect"))
        : [aDialect(value, "dialect")],
};

/** The checked options of a server. */
export type CheckedOptions = ReturnType<typeof checkServerOptions>;

/** The checked options of a gate. */
export type GateSettings = CheckedOptions["gate"];

/** Checks the options. Throws a `TypeError` that names the option, the rule and the value. */
export function checkServerOptions(options: object) {
  const checked = checkOptions("options", options, SERVER_OPTIONS);
  const { port, host, server, noServer, path, principal, origins, hosts, limits, dialect } = checked;
  const given = [port !== undefined, server !== undefined, noServer === true].filter(Boolean).length;
  if (given !== 1) throw new TypeError(`Expected exactly one of \`port\`, \`server\` and \`noServer\`, got ${given}`);
  if (host !== undefined && port === undefined) throw new TypeError("`host` requires `port`");
  const admitting = authenticator(checked);
  return {
    gate: {
      port,
      host: host ?? "127.0.0.1",
      server,
      path,
      authenticate: admitting.authenticate,
      origins,
      hosts,
      limits: limits.own,
    },
    heartbeat: checked.heartbeat,
    /** How sessions are kept; `undefined` without sessions. */
    session: checked.session,
    /** The HTTP status of a POST that needs no reply. */
    notificationStatus: checked.post.notificationStatus,
    link: checked.link,
    /** The options of the peers, for a client that chooses no dialect. */
    peer: { ...checked, limits: limits.peers, dialect: dialect[0], use: [...serverFeatures, ...(checked.use ?? [])] },
    dialects: dialect,
    fleet: {
      engine: checked.engine,
      topics: checked.topics,
      changes: checked.changes,
      nodes: checked.nodes.methods,
      principal,
      /** Refuses the clients of a principal that are being admitted. */
      disconnected: admitting.disconnected,
    },
  };
}

/**
 * Returns an `Authenticate` of the application's functions, and a function that reports each principal that is disconnected.
 * Every falsy value refuses.
 */
function authenticator({
  authenticate,
  principal,
  expiresInMs,
}: Pick<Checked<typeof SERVER_OPTIONS>, "authenticate" | "principal" | "expiresInMs">): {
  authenticate: Authenticate | undefined;
  disconnected: (principal: string, until: number) => void;
} {
  for (const [name, value] of Object.entries({ principal, expiresInMs }))
    if (authenticate === undefined && value !== undefined) throw new TypeError(`\`${name}\` requires \`authenticate\``);
  let last: Disconnected = { principal: undefined, until: 0, next: undefined };
  return {
    disconnected: (name, until) => (last = last.next = { principal: name, until, next: undefined }),
    authenticate:
      authenticate &&
      (async (request, credentials) => {
        const [since, before] = [performance.now(), last];
        const auth: unknown = await authenticate(request, credentials);
        // Every falsy value: `auth && verify(auth)` returns the empty string that a client sends.
        if (!auth) return null;
        const name = principal && principalName(principal(auth), "principal()");
        const validMs = oneDuration(expiresInMs?.(auth), "expiresInMs()");
        return new Admission(auth, name, performance.now() + validMs, since, before);
      }),
  };
}

/** Returns a function of the application whose result is needed at once. */
function synchronousFunction(value: unknown, name: string): (auth: unknown) => unknown {
  const given = anyFunction(value, name);
  return (auth) => synchronous(given(auth) as unknown, `\`${name}\``);
}

/** A time of day in place of a duration, which is above 10^12 since 2001, would let credentials live for decades. */
const oneDuration = optional(
  must<number>(
    "a number of milliseconds below 10^12, or undefined",
    (value) => typeof value === "number" && value < 1e12,
  ),
  Infinity,
);

function isPort(value: number): boolean {
  return Number.isInteger(value) && value >= 0 && value <= 65535;
}

function isText(value: unknown): boolean {
  return typeof value === "string" && value !== "";
}

const oneHost = must<string>('a whole name such as "example.org", listed once for each name', isHost);
const oneOrigin = must<string>('an origin as browsers send it, such as "https://example.org"', isOrigin);

/** Checks that each host is a name such as `"example.org"` or `"example.org:8080"`. Anything else would never match. */
function checkHosts(hosts: unknown, name: string): readonly string[] {
  if (!Array.isArray(hosts)) throw expected(name, 'a list of names such as "example.org"', hosts);
  // Browsers leave the default ports out of `Host`.
  return hosts.map((host, i) =>
    oneHost(host, `hosts[${i}]`)
      .toLowerCase()
      .replace(/:(80|443)$/, ""),
  );
}

/** Checks that each origin has no path, no trailing slash, no upper case and no default port. Anything else would never match. */
function checkOrigins(origins: unknown, name: string): readonly string[] | "*" {
  if (origins === "*") return origins;
  if (!Array.isArray(origins)) throw expected(name, 'a list of origins such as "https://example.org", or "*"', origins);
  return origins.map((origin, i) => oneOrigin(origin, `origins[${i}]`));
}

function isPath(value: unknown): boolean {
  return typeof value === "string" && value.startsWith("/") && !value.includes("?");
}
