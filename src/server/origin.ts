/**
 * Who may open a connection from a browser. Any page may open a WebSocket to any server, cookies included, so the server
 * must look at `Origin`; and a name that an attacker points at 127.0.0.1 makes a page same-origin with a local server, so
 * one bound to loopback must look at `Host` as well (DNS rebinding).
 */

/** What is allowed, apart from what always is. */
export interface OriginRules {
  /** Names, with or without a port, under which the server is reached. */
  readonly hosts: readonly string[] | undefined;
  /** Origins whose pages may connect; `"*"` for any. */
  readonly origins: readonly string[] | "*" | undefined;
}

const LOOPBACK_NAMES = new Set(["localhost", "127.0.0.1", "[::1]"]);

/** Whether a bound or local address is loopback. */
export function isLoopback(address: string): boolean {
  return address === "::1" || /^(::ffff:)?127\./.test(address);
}

/** Why a request's `Host` is refused, naming the cure; `undefined` when it is allowed. */
export function refuseHost(host: string, boundToLoopback: boolean, { hosts }: OriginRules): string | undefined {
  if (!boundToLoopback && hosts === undefined) return undefined;
  const name = parseHost(host)?.hostname;
  if (name !== undefined && boundToLoopback && LOOPBACK_NAMES.has(name)) return undefined;
  if (name !== undefined && hosts?.some((allowed) => allowed === name || allowed === host.toLowerCase()))
    return undefined;
  return `Host "${host}" is not allowed; if it is yours, list it in \`hosts\``;
}

/** Why a request's `Origin` is refused, naming the cure; `undefined` when it is allowed. No header means no browser. */
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
 * A page of the same host, or a page of this machine (a dev server on another port) to a server of this machine. A page that
 * came without TLS may have been changed on its way, so it is not of the same host as a server with TLS.
 */
function sameHost(origin: string, host: string, isTls: boolean): boolean {
  const from = URL.canParse(origin) ? new URL(origin) : undefined;
  // Read with the origin's scheme, so that ":443" is the default port where it is one.
  const to = from && parseHost(host, from.protocol);
  if (from === undefined || to === undefined || from.hostname === "") return false;
  if (LOOPBACK_NAMES.has(from.hostname) && LOOPBACK_NAMES.has(to.hostname)) return true;
  return from.host === to.host && !(isTls && from.protocol === "http:");
}

/** Whether `name` can be what a `Host` header holds, with or without its port. */
export function isHost(name: unknown): boolean {
  if (typeof name !== "string") return false;
  const url = parseHost(name);
  return url !== undefined && (url.host === name.toLowerCase() || `${url.hostname}:80` === name.toLowerCase());
}

function parseHost(host: string, protocol = "http:"): URL | undefined {
  const url = `${protocol}//${host}`;
  // Anything but a name and a port would move into another part of the URL.
  return /^[^\s/?#@\\]+$/.test(host) && URL.canParse(url) ? new URL(url) : undefined;
}
