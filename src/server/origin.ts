/**
 * Checks of `Origin` and `Host`. Any page may open a WebSocket to any server, cookies included, so the server must check
 * `Origin`. If an attacker points a name at 127.0.0.1, a page becomes same-origin with a local server (DNS rebinding), so `Host`
 * must also be checked on each connection to a loopback address, whatever addresses the server listens on.
 */

/** The hosts and origins that are allowed in addition to the default ones. */
export interface OriginRules {
  /** Host names of the server, with or without a port. */
  readonly hosts: readonly string[] | undefined;
  /** Origins whose pages may connect; `"*"` for any. */
  readonly origins: readonly string[] | "*" | undefined;
}

/**
 * A host, as a URL has it, that no DNS server of an attacker can point elsewhere: a loopback address, `localhost`, or a name below it
 * (RFC 6761, section 6.3).
 */
const LOOPBACK_NAME = /^(127\.[\d.]+|\[::1\]|\[::ffff:7f[\da-f]{2}:[\da-f]+\]|(.+\.)?localhost\.?)$/;

/** A loopback address, also as an IPv6 socket shows one of IPv4. */
const LOOPBACK_ADDRESS = /^(::1$|(::ffff:)?127\.)/;

/**
 * Returns why the `Host` of a request is refused, and which option allows it, or `undefined` if it is allowed. The `localAddress` of
 * `connection` is missing for a Unix socket, which no page can reach. Node asks the system for it, so the name is examined first.
 */
export function refuseHost(
  host: string,
  connection: { readonly localAddress?: string | undefined },
  { hosts }: OriginRules,
): string | undefined {
  if (hosts?.includes(host.toLowerCase())) return undefined;
  const name = parseHost(host)?.hostname ?? "";
  const isLoopback = LOOPBACK_NAME.test(name);
  if (hosts === undefined ? isLoopback : hosts.includes(name)) return undefined;
  const isLocal = LOOPBACK_ADDRESS.test(connection.localAddress ?? "");
  if (isLocal ? isLoopback : hosts === undefined) return undefined;
  return `Host "${host}" is not allowed; if it is yours, list it in \`hosts\``;
}

/**
 * Returns why the `Origin` of a request is refused, and which option allows it, or `undefined` if it is allowed. Allows a request
 * without the header, because no browser sent it.
 */
export function refuseOrigin(
  origin: string | undefined,
  host: string,
  isTls: boolean,
  { origins }: OriginRules,
): string | undefined {
  if (origin === undefined || origins === "*" || origins?.includes(origin)) return undefined;
  if (sameHost(origin, host, isTls)) return undefined;
  return `Origin "${origin}" is not allowed; if it is yours, list it in \`origins\``;
}

/**
 * Returns true for a page of the same host, and for a page of this machine (a dev server on another port) to a server of this
 * machine. A page that came without TLS may have been changed in transit, so it is not of the same host as a server with TLS.
 */
function sameHost(origin: string, host: string, isTls: boolean): boolean {
  // Most pages are of the same host, in the same text. Then nothing is parsed.
  if (origin === `https://${host}` || (!isTls && origin === `http://${host}`)) return true;
  const from = URL.canParse(origin) ? new URL(origin) : undefined;
  // Parsed with the origin's scheme, so that ":443" is the default port of "https:".
  const to = from && parseHost(host, from.protocol);
  if (from === undefined || to === undefined || from.hostname === "") return false;
  if (LOOPBACK_NAME.test(from.hostname) && LOOPBACK_NAME.test(to.hostname)) return true;
  return from.host === to.host && !(isTls && from.protocol === "http:");
}

/** Returns true if `name` can be the value of a `Host` header, with or without its port. */
export function isHost(name: unknown): boolean {
  if (typeof name !== "string") return false;
  const url = parseHost(name);
  const isName = url !== undefined && !name.includes("*");
  return isName && (url.host === name.toLowerCase() || `${url.hostname}:80` === name.toLowerCase());
}

/**
 * Returns true if `text` can be the value of an `Origin` header. An origin with a path would never match. The URL standard
 * defines no origin for an app's own scheme, so such a text is accepted as it is.
 */
export function isOrigin(text: unknown): boolean {
  if (typeof text !== "string" || !/^[a-z][a-z0-9+.-]*:\/\/[^\s/?#@*]+$/.test(text)) return text === "null";
  if (!URL.canParse(text)) return false;
  const { origin } = new URL(text);
  return origin === text || origin === "null";
}

function parseHost(host: string, protocol = "http:"): URL | undefined {
  const url = `${protocol}//${host}`;
  // Anything but a name and a port would become another part of the URL.
  return /^[^\s/?#@\\]+$/.test(host) && URL.canParse(url) ? new URL(url) : undefined;
}
