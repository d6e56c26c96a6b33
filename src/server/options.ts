/** The options of `serve`, except what needs the server's own type, and their check. */
import type { IncomingMessage, Server as HttpServer } from "node:http";
import type { Server as HttpsServer } from "node:https";
import type { Dialect } from "../core/dialect.js";
import { expected } from "../core/errors.js";
import { checkHeartbeat, type HeartbeatOptions, type HeartbeatTimes } from "../core/heartbeat.js";
import { checkKnown } from "../core/limits.js";
import { checkHandler, PEER_OPTIONS, type AnyOptions } from "../core/config.js";
import { serverLimits, type ServerLimits } from "./limits.js";
import { isHost, type OriginRules } from "./origin.js";
import type { Authenticate } from "./upgrade.js";

/** Who is let in. Required where `peer.data` is declared to be something. */
export interface Authentication<D> {
  /**
   * Says who asks, before there is a connection, and for each POST: what it answers becomes `peer.data`. Null, undefined, false,
   * a throw or a rejection refuse with HTTP 401; a throw is also emitted as `error`. Asked anew when a client returns to its
   * session: then `peer.data` stays what it was. Default: everybody, with `data` undefined.
   */
  authenticate(request: IncomingMessage): D | null | undefined | Promise<D | null | undefined>;
  /**
   * Names who it is that `authenticate` let in: a client that returns is given its session only if its name is the same. A
   * throw, and what is no string, refuse with 401. Default: whoever is let in and has the session's token, which is secret.
   */
  principal?: ((data: D) => string) | undefined;
}

/** Where a server listens, how it speaks and whom it lets in. Exactly one of `port`, `server` and `noServer` is given. */
export interface GateOptions {
  /** Listens on this port; 0 picks a free one (see `server.url`). */
  port?: number | undefined;
  /** The address to listen on, with `port`. Default `"127.0.0.1"`: this machine only. */
  host?: string | undefined;
  /**
   * Takes the upgrades of an HTTP server that is there already, beside Express or any other, and its POSTs while nobody else
   * listens for requests: an application that does mounts `server.handleRequest`. It is not closed by `close()`.
   */
  server?: HttpServer | HttpsServer | undefined;
  /** Listens nowhere: the application passes upgrades to `server.handleUpgrade`, and POSTs to `server.handleRequest`. */
  noServer?: boolean | undefined;
  /** `"plain"` knows nothing but plain JSON-RPC. Default `"packed"`: speaks `reciproc.v1` to whoever offers it, and plainly to everybody else. */
  link?: "packed" | "plain" | undefined;
  /** The only path that is served, such as `"/rpc"`. Default: every path. */
  path?: string | undefined;
  /** The origins whose pages may connect, such as `"https://example.org"`; `"*"` for any. The server's own host always may. */
  origins?: readonly string[] | "*" | undefined;
  /** The names under which the server is reached, such as `"example.org"`. On loopback, others than localhost are refused unless listed. */
  hosts?: readonly string[] | undefined;
  /** What this server and each of its peers accept. */
  limits?: Partial<ServerLimits> | undefined;
  /**
   * Asks each peer that said nothing for `intervalMs` for a sign of life (a WebSocket ping), and cuts it when none has come by
   * `deadAfterMs`. Default 25,000 and 45,000 ms; `false` never asks, and a peer whose cable is pulled stays for ever.
   */
  heartbeat?: HeartbeatOptions | false | undefined;
  /**
   * How long a peer waits for its client to come back after it lost its socket, in milliseconds; until then it is suspended
   * and nothing is lost. Default `{ ttlMs: 60_000 }`; `false` ends every peer with its socket. Over `reciproc.v1` only.
   */
  session?: { ttlMs?: number | undefined } | false | undefined;
  /**
   * How HTTP POSTs are answered. `notificationStatus` is the status of a POST that is owed no reply, as a notification: 204,
   * the default, or 200 with an empty body, for clients that take 204 for a failure.
   */
  post?: { notificationStatus?: 200 | 204 | undefined } | undefined;
}

/** Where a gate listens and whom it lets in, after checking. */
export interface GateSettings extends OriginRules {
  readonly port: number | undefined;
  readonly host: string;
  readonly server: HttpServer | HttpsServer | undefined;
  readonly path: string | undefined;
  readonly authenticate: Authenticate | undefined;
  readonly limits: ReturnType<typeof serverLimits>["own"];
}

/** The options of a server after checking. */
export interface CheckedOptions {
  readonly gate: GateSettings;
  readonly link: "packed" | "plain";
  readonly heartbeat: HeartbeatTimes | undefined;
  /** How long a session lasts without a socket; `undefined` for none. */
  readonly sessionTtlMs: number | undefined;
  /** The HTTP status of a POST that is owed no reply. */
  readonly notificationStatus: 200 | 204;
  /** What goes to every peer. */
  readonly peer: AnyOptions;
  /** The dialects that a client may choose among by subprotocol; the first is for who chooses none. Empty for the default. */
  readonly dialects: readonly Dialect[];
}

const SESSION_TTL_MS = 60_000;

const KNOWN = {
  port: 0,
  host: 0,
  server: 0,
  noServer: 0,
  path: 0,
  link: 0,
  authenticate: 0,
  origins: 0,
  hosts: 0,
  heartbeat: 0,
  session: 0,
  principal: 0,
  post: 0,
  ...PEER_OPTIONS,
};

/** Throws a `TypeError` that names the option, the rule and the value. */
export function checkOptions(
  options: GateOptions & { authenticate?: Authenticate; principal?: unknown; dialect?: unknown } & Omit<
      AnyOptions,
      "limits" | "dialect"
    >,
): CheckedOptions {
  checkKnown("options", options, KNOWN);
  const {
    port,
    host,
    server,
    noServer,
    path,
    link,
    authenticate,
    origins,
    hosts,
    limits,
    heartbeat,
    session,
    principal,
    post,
    dialect,
    ...peer
  } = options;
  const given = [port !== undefined, server !== undefined, noServer === true].filter(Boolean).length;
  if (given !== 1) throw new TypeError(`Expected exactly one of \`port\`, \`server\` and \`noServer\`, got ${given}`);
  if (host !== undefined && port === undefined) throw new TypeError("`host` goes with `port` only");
  const split = serverLimits(limits);
  return {
    gate: {
      port: check("port", "a whole number from 0 to 65535", port, isPort),
      host: check("host", "a non-empty string", host, isText) ?? "127.0.0.1",
      server: check("server", "an http.Server", server, (value) => typeof value.on === "function"),
      path: check("path", 'a string that begins with "/" and has no "?"', path, isPath),
      authenticate: admission(authenticate, principal),
      origins: checkOrigins(origins),
      hosts: checkHosts(hosts),
      limits: split.own,
    },
    heartbeat: checkHeartbeat(heartbeat),
    sessionTtlMs: checkSession(session),
    notificationStatus: checkPost(post),
    link: check("link", '"packed" or "plain"', link, isLink) ?? "packed",
    peer: { ...peer, limits: split.peers },
    // Each is checked where the settings of its peers are made.
    dialects: Array.isArray(dialect) ? dialect : dialect === undefined ? [] : [dialect as Dialect],
  };
}

/** Who was let in. */
export interface Admission {
  /** What `authenticate` answered. */
  readonly data: unknown;
  readonly principal: string | undefined;
}

/** `authenticate` that answers an `Admission`. */
function admission(authenticate: unknown, principal: unknown): Authenticate | undefined {
  // Not by truthiness: a null by mistake must not open the door to everybody.
  if (authenticate === undefined) {
    if (principal === undefined) return undefined;
    throw new TypeError("`principal` names who `authenticate` lets in, and goes with it only");
  }
  const judge = checkHandler("authenticate", authenticate);
  const name = principal === undefined ? undefined : checkHandler("principal", principal);
  return async (request): Promise<Admission | null> => {
    const data = await judge(request);
    if (data === null || data === undefined || data === false) return null;
    const named = name?.(data);
    if (name !== undefined && typeof named !== "string") throw expected("principal", "a function to a string", named);
    return { data, principal: named as string | undefined };
  };
}

function checkSession(session: GateOptions["session"]): number | undefined {
  if (session === false) return undefined;
  if (session !== undefined) checkKnown("session", session, { ttlMs: 0 });
  const { ttlMs = SESSION_TTL_MS } = session ?? {};
  if (Number.isSafeInteger(ttlMs) && ttlMs > 0) return ttlMs;
  throw expected("session.ttlMs", "a whole number from 1", ttlMs);
}

function checkPost(post: GateOptions["post"]): 200 | 204 {
  if (post !== undefined) checkKnown("post", post, { notificationStatus: 0 });
  const { notificationStatus = 204 } = post ?? {};
  if (notificationStatus === 200 || notificationStatus === 204) return notificationStatus;
  throw expected("post.notificationStatus", "200 or 204", notificationStatus);
}

function check<T>(name: string, rule: string, value: T, holds: (value: NonNullable<T>) => boolean): T {
  if (value === undefined || (value !== null && holds(value))) return value;
  throw expected(name, rule, value);
}

function isPort(value: number): boolean {
  return Number.isInteger(value) && value >= 0 && value <= 65535;
}

function isText(value: unknown): boolean {
  return typeof value === "string" && value !== "";
}

/** Names and not addresses: `"example.org"`, `"example.org:8080"`. Anything else would never match. */
function checkHosts(hosts: readonly string[] | undefined): readonly string[] | undefined {
  if (hosts === undefined) return undefined;
  if (!Array.isArray(hosts)) throw expected("hosts", 'a list of names such as "example.org"', hosts);
  for (const [i, host] of hosts.entries()) check(`hosts[${i}]`, 'a name such as "example.org"', host, isHost);
  return hosts.map((host: string) => host.toLowerCase());
}

/** As browsers send them: no path, no trailing slash, lower case, no default port. Anything else would never match. */
function checkOrigins(origins: readonly string[] | "*" | undefined): readonly string[] | "*" | undefined {
  if (origins === undefined || origins === "*") return origins;
  if (!Array.isArray(origins))
    throw expected("origins", 'a list of origins such as "https://example.org", or "*"', origins);
  for (const [i, origin] of origins.entries()) {
    check(`origins[${i}]`, 'an origin as browsers send it, such as "https://example.org"', origin, isOrigin);
  }
  return origins;
}

function isPath(value: unknown): boolean {
  return typeof value === "string" && value.startsWith("/") && !value.includes("?");
}

function isLink(value: unknown): boolean {
  return value === "packed" || value === "plain";
}

/** The origin of schemes that the URL standard does not know (an app's own) is opaque; their text is taken as it is. */
function isOrigin(text: unknown): boolean {
  if (typeof text !== "string" || !/^[a-z][a-z0-9+.-]*:\/\/[^/*]+$/.test(text)) return text === "null";
  if (!URL.canParse(text)) return false;
  const { origin } = new URL(text);
  return origin === text || origin === "null";
}
