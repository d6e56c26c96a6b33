/** The checks that an upgrade request must pass before a WebSocket is opened. */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Duplex } from "node:stream";
import type { TLSSocket } from "node:tls";
import { LONGEST_DELAY_MS } from "../base/deadlines.js";
import { refuseHost, refuseOrigin, type OriginRules } from "./origin.js";

/** The connection of an upgrade request: a socket of an HTTP server, or one in memory. */
export interface GateSocket {
  readonly destroyed: boolean;
  readonly readable: boolean;
  readonly writable: boolean;
  /** Cuts the connection. */
  destroy(): unknown;
  on(event: "close" | "error", listener: (this: this) => void): unknown;
  once(event: "close", listener: () => void): unknown;
  off(event: "close" | "error", listener: () => void): unknown;
}

/** Why an upgrade or a POST was refused: the argument of the `refuse` event, and the HTTP answer. */
export interface Refusal {
  /** The HTTP status: 400, 401, 403, 404, 405, 408, 413, 415, 426 or 503. */
  readonly status: number;
  /** The rule that was broken, the value that broke it, and the option that would allow it, if one does. */
  readonly reason: string;
}

/** The reason phrases of the statuses. */
export const STATUS_TEXT: Readonly<Record<number, string>> = {
  400: "Bad Request",
  401: "Unauthorized",
  403: "Forbidden",
  404: "Not Found",
  405: "Method Not Allowed",
  426: "Upgrade Required",
  503: "Service Unavailable",
};

const EXTRA_HEADERS: Readonly<Record<number, string>> = {
  405: "Allow: GET",
  426: "Sec-WebSocket-Version: 13",
  503: "Retry-After: 5",
};

/** Answers an upgrade request with an HTTP error and ends its socket. */
export function answerRefusal(socket: Duplex, { status, reason }: Refusal): void {
  const body = `${reason}\n`;
  const headers = [
    `HTTP/1.1 ${status} ${STATUS_TEXT[status]}`,
    "Connection: close",
    "Content-Type: text/plain; charset=utf-8",
    `Content-Length: ${Buffer.byteLength(body)}`,
  ];
  const extra = EXTRA_HEADERS[status];
  if (extra !== undefined) headers.push(extra);
  // The socket has no other listener, and its client may have disconnected. An error without a listener would end the process.
  socket.on("error", () => socket.destroy());
  socket.once("finish", () => socket.destroy());
  socket.end(`${headers.join("\r\n")}\r\n\r\n${body}`);
}

/** The headers of an offer to upgrade, which are also the options by which `Connection` names them. */
const OFFER = new Set(["upgrade", "http2-settings"]);

/** Returns the bytes of a request's head without its offer to upgrade. Keeps other options of `Connection`, such as `close`. */
export function withoutUpgrade({ method, url, httpVersion, rawHeaders }: IncomingMessage): Buffer {
  const lines = [`${method} ${url} HTTP/${httpVersion}`];
  for (let i = 0; i < rawHeaders.length; i += 2) {
    const name = rawHeaders[i]!.toLowerCase();
    const value = rawHeaders[i + 1]!;
    if (!OFFER.has(name)) lines.push(`${rawHeaders[i]}: ${name === "connection" ? withoutOffer(value) : value}`);
  }
  return Buffer.from(`${lines.join("\r\n")}\r\n\r\n`, "latin1");
}

function withoutOffer(connection: string): string {
  const options = connection.split(",").filter((option) => !OFFER.has(option.trim().toLowerCase()));
  return options.join(",");
}

/** The memory of a buffered part of a body besides its length, in bytes. */
const PART_BYTES = 200;
/** Maximum length of a request's head, with a margin: Node's own limit is 16 KiB. */
const HEAD_BYTES = 65_536;

/**
 * Waits until `response` has left, and then calls `use` with `head` and the bytes received after it. Reads the socket meanwhile,
 * because its end would not be noticed otherwise. Cuts the socket if it ends or if more than one message has come.
 */
export function waitForResponse(
  response: ServerResponse,
  socket: Duplex,
  head: Buffer,
  maxMessageBytes: number,
  use: (head: Buffer) => void,
): void {
  const parts = [head];
  let bytes = head.length;
  const take = (part: Buffer): void => {
    parts.push(part);
    bytes += part.length + PART_BYTES;
    if (bytes > maxMessageBytes + HEAD_BYTES) socket.destroy();
  };
  const cut = (): void => void socket.destroy();
  socket.on("data", take).on("end", cut).on("error", cut);
  response.once("finish", () => {
    socket.off("data", take).off("end", cut).off("error", cut).pause();
    use(Buffer.concat(parts));
  });
}

/** Answers a request that must be an upgrade and is not. */
export function answerUpgradeRequired(response: ServerResponse): void {
  response.writeHead(426, { "Content-Type": "text/plain; charset=utf-8", Connection: "Upgrade", Upgrade: "websocket" });
  response.end("This server speaks JSON-RPC 2.0 over WebSocket.\n");
}

/** A token between blanks. Takes linear time, because a token contains no blank. */
const TOKEN = /^[ \t]*([\w!#$%&'*+.^`|~-]+)[ \t]*$/;

/** Checks that a request is a WebSocket handshake (RFC 6455, section 4.2.1), before `authenticate` runs. */
export function checkHandshake({ method, headers }: IncomingMessage): Refusal | undefined {
  const { upgrade = "", "sec-websocket-key": key = "", "sec-websocket-version": version = "" } = headers;
  if (method !== "GET") return { status: 405, reason: `a WebSocket is opened by GET, not by ${method}` };
  if (upgrade.toLowerCase() !== "websocket")
    return { status: 400, reason: `\`Upgrade\` is "${upgrade}", not "websocket"` };
  if (!/^[+/0-9A-Za-z]{22}==$/.test(key))
    return { status: 400, reason: "`Sec-WebSocket-Key` is not 16 bytes in base64" };
  if (version !== "13") return { status: 426, reason: `\`Sec-WebSocket-Version\` is "${version}", not "13"` };
  return checkProtocols(headers["sec-websocket-protocol"]);
}

/** Checks that each offered subprotocol is a token (RFC 9110, section 5.6.2), and that none is offered twice. */
function checkProtocols(header: string | undefined): Refusal | undefined {
  if (header === undefined) return undefined;
  const offers = header.split(",").map((offer) => TOKEN.exec(offer)?.[1]);
  if (!offers.includes(undefined) && new Set(offers).size === offers.length) return undefined;
  return { status: 400, reason: `\`Sec-WebSocket-Protocol\` is "${header}", not different tokens` };
}

/**
 * Checks that a request has one `Host` header (RFC 9112, section 3.2). If there are two, Node keeps the first, and a proxy in
 * front may have used the second.
 */
export function checkHost({ httpVersion, rawHeaders }: IncomingMessage): Refusal | undefined {
  let hosts = 0;
  for (let i = 0; i < rawHeaders.length; i += 2) if (rawHeaders[i]!.toLowerCase() === "host") hosts++;
  if (hosts === 1 || (hosts === 0 && httpVersion !== "1.1")) return undefined;
  return { status: 400, reason: `the request has ${hosts} \`Host\` headers, not one` };
}

/** Checks `Host` and `Origin`. */
export function checkOrigin(request: IncomingMessage, rules: OriginRules): Refusal | undefined {
  const refusal = checkHost(request);
  if (refusal !== undefined) return refusal;
  const { host = "", origin } = request.headers;
  const reason = refuseHost(host, request.socket, rules) ?? refuseOrigin(origin, host, isTls(request), rules);
  return reason === undefined ? undefined : { status: 403, reason };
}

/** Returns true if this process terminates the TLS of a request. */
export function isTls({ socket }: IncomingMessage): boolean {
  return (socket as Partial<TLSSocket>).encrypted === true;
}

/** A principal that was disconnected, and the one after it. An admission keeps the last one before it, and so only later ones. */
export interface Disconnected {
  readonly principal: string | undefined;
  /** When: a client whose `authenticate` was called later is not concerned. `Infinity` if it was just now. */
  readonly until: number;
  next: Disconnected | undefined;
}

const DISCONNECTED: Refusal = {
  // The client tries again, and then `authenticate` decides.
  status: 503,
  reason: "the principal was disconnected while this client was admitted",
};

/** A client that `authenticate` accepted. */
export class Admission {
  /** What the application's `authenticate` returned. */
  readonly auth: unknown;
  readonly principal: string | undefined;
  /** When `auth` expires, by `performance.now()`; `Infinity` if it does not. */
  readonly expiresAt: number;
  /** When `authenticate` was called, by `performance.now()`. */
  readonly since: number;
  #before: Disconnected | undefined;

  /** `before`: the last principal that was disconnected before `since`. */
  constructor(auth: unknown, principal: string | undefined, expiresAt: number, since: number, before: Disconnected) {
    this.auth = auth;
    this.principal = principal;
    this.expiresAt = expiresAt;
    this.since = since;
    this.#before = before;
  }

  /**
   * Ends the admission, once: its client is about to get a peer, or resumes a session. Returns a refusal if the principal was
   * disconnected since `authenticate` was called. From now on, a disconnect closes the peer itself.
   */
  end(): Refusal | undefined {
    let one = this.#before?.next;
    // A connection may refer to its admission for as long as it lives.
    this.#before = undefined;
    while (one !== undefined && (one.principal !== this.principal || one.until < this.since)) one = one.next;
    return one && DISCONNECTED;
  }
}

/** Why a client is refused, or its socket is closed. */
export const EXPIRED = "the credentials have expired";

/** Identifies the client of a request, by the `auth` that it sent if it did. Returns null for a client that is refused. */
export type Authenticate = (request: IncomingMessage, auth: unknown) => Promise<Admission | null>;

/** The result of `authenticate`, or a refusal. `error` is what `authenticate` threw. */
export type Verdict = { admission: Admission } | { refusal: Refusal; error?: unknown };

/** One run of `authenticate`. */
export interface AuthenticationRun {
  /** Settles within the timeout, unless `abandon` was called. */
  readonly verdict: Promise<Verdict>;
  /** Settles when `authenticate` does. */
  readonly settled: Promise<Verdict>;
  /** Ends the timeout, because the client has disconnected. */
  readonly abandon: () => void;
}

/** Runs `authenticate`, and fails closed: null, a rejection and a delay beyond `timeoutMs` all refuse. An error may have the status 503. */
export function runAuthenticate(
  authenticate: Authenticate,
  request: IncomingMessage,
  auth: unknown,
  timeoutMs: number,
): AuthenticationRun {
  const settled = callAuthenticate(authenticate, request, auth);
  if (timeoutMs === Infinity) return { verdict: settled, settled, abandon: () => {} };
  const reason = `authentication took longer than ${timeoutMs} ms`;
  let timer: ReturnType<typeof setTimeout>;
  const abandon = (): void => clearTimeout(timer);
  const verdict = new Promise<Verdict>((resolve) => {
    const refuse = (): void => resolve({ refusal: { status: 503, reason } });
    timer = setTimeout(refuse, Math.min(timeoutMs, LONGEST_DELAY_MS));
    // The client's socket keeps the process alive while it is open.
    timer.unref?.();
    void settled.finally(abandon).then(resolve);
  });
  return { verdict, settled, abandon };
}

async function callAuthenticate(authenticate: Authenticate, request: IncomingMessage, auth: unknown): Promise<Verdict> {
  const refusal: Refusal = { status: 401, reason: "authentication failed" };
  try {
    const admission = await authenticate(request, auth);
    if (admission === null) return { refusal };
    return admission.expiresAt > performance.now() ? { admission } : { refusal: { status: 401, reason: EXPIRED } };
  } catch (error) {
    // As errors of HTTP have it. Such a client tries again.
    if ((error as { status?: unknown } | undefined)?.status !== 503) return { refusal, error };
    return { refusal: { status: 503, reason: "authentication is not available" }, error };
  }
}
