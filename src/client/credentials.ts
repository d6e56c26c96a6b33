/** What a client shows to a server: its URL, its headers and its `auth`. Each is a value, or a function that is called anew. */
import { checkForms, messageJson } from "../message/codec.js";
import { ConnectError, expected } from "../message/errors.js";
import type { CloseInfo } from "../message/transport.js";

/** A connection attempt, for which a client needs credentials. */
export interface Attempt {
  /** Counts the attempts of the peer since it was last connected, from 1. It is 0 for `reauthenticate`, on an open connection. */
  readonly number: number;
  /** Why the previous attempt or connection ended: an error, or how the connection was closed. `undefined` for the first attempt. */
  readonly reason?: Error | CloseInfo | undefined;
}

/** A value, or a function that returns or promises it for each attempt. */
export type Supplied<T> = T | ((attempt: Attempt) => T | PromiseLike<T>);

/** The credentials of one attempt. */
export interface AttemptCredentials {
  readonly url: string;
  /** Headers of the upgrade request, in Node. */
  readonly headers: unknown;
  /** `auth` as JSON; empty if the client has none. */
  readonly auth: string;
}

/** The credentials of one client. */
export class Credentials {
  /** The error of the last attempt whose functions failed. */
  declare failure: ConnectError | undefined;
  readonly #sources: readonly [url: unknown, headers: unknown, auth: unknown];
  /** The URL of the last attempt, without the route. Empty if it is not known yet. */
  #url = "";
  /** Whether the client has an `auth`. */
  declare readonly offersAuth: boolean;

  /** Throws a `TypeError` for a URL that is not one of a WebSocket. A function's is checked at each attempt. */
  constructor(url: Supplied<string | URL>, headers: unknown, auth: unknown) {
    this.#sources = [url, headers, auth];
    this.offersAuth = auth !== undefined;
    if (typeof url !== "function") this.#url = webSocketUrl(url);
  }

  /** The URL of the last attempt without its secrets. Empty if it is not known yet. */
  get publicUrl(): string {
    return publicUrl(this.#url);
  }

  /** Whether a function supplies a part of them, which may differ at the next attempt. */
  get mayChange(): boolean {
    return this.#sources.some((source) => typeof source === "function");
  }

  /**
   * Returns the credentials of an attempt, which may resume a session with a `route`. Rejects with a `ConnectError` whose cause is what
   * a function threw.
   */
  async forAttempt({ number, reason }: Attempt, route?: string): Promise<AttemptCredentials> {
    try {
      const values = this.#sources.map((source) => valueOf(source, { number, reason }));
      const [given, headers, auth] = await Promise.all(values);
      if (typeof this.#sources[0] === "function") this.#url = webSocketUrl(given as string);
      return { url: withRoute(this.#url, route), headers, auth: this.offersAuth ? encode(auth) : "" };
    } catch (cause) {
      throw (this.failure = new ConnectError(this.publicUrl, "`url`, `headers` or `auth` failed", { cause }));
    }
  }

  /** Returns a fresh `auth` for an open connection, as JSON. */
  async freshAuth(): Promise<string> {
    const [, , auth] = this.#sources;
    return encode(await valueOf(auth, { number: 0 }));
  }
}

async function valueOf(source: unknown, attempt: Attempt): Promise<unknown> {
  return typeof source === "function" ? source(attempt) : source;
}

/** Encodes once, so that the value cannot change between its check and its frame. */
function encode(auth: unknown): string {
  checkForms(auth);
  return messageJson(auth) ?? "null";
}

/**
 * Returns the URL of a WebSocket. Accepts ws, wss, http and https, and in a page relative URLs. Throws a `TypeError` for any other.
 *
 * Changes the text, and reads only `href`: the URL of React Native has no setters, and some of its getters throw.
 */
export function webSocketUrl(url: string | URL): string {
  const base = (globalThis as { location?: { href: string } }).location?.href;
  const given: unknown = typeof url === "string" ? url : url?.href;
  // An unparsable URL may have the user, the password or the query anywhere, which the error must not contain.
  let got = given === undefined ? url : "not a URL";
  try {
    // Without this check, a page would connect to its own path "undefined".
    if (typeof given === "string") {
      const [address] = new URL(given, base).href.replace(/^http/, "ws").split("#") as [string];
      got = address.split(":", 1)[0] + ":";
      if (/^wss?:/.test(address)) return address;
    }
  } catch {
    // The error below names the rule.
  }
  throw expected("url", "a ws, wss, http or https URL", got);
}

/** Returns the URL by which a load balancer finds a session. `searchParams` would encode the rest of the query anew, which may be signed. */
function withRoute(url: string, route: string | undefined): string {
  return route ? `${url}${url.includes("?") ? "&" : "?"}node=${encodeURIComponent(route)}` : url;
}

/** Returns a URL without its secrets: user, password and query. */
export function publicUrl(url: string): string {
  return url.split("?", 1)[0]!.replace(/\/\/[^/]*@/, "//");
}
