/** `connect`: opens a connection and makes a peer of it. Here for a standard WebSocket; `node.ts` does the same over `ws`. */
import type { AnyMethods, Contract } from "./core/contract.js";
import { LONGEST_DELAY_MS } from "./core/deadlines.js";
import { ConnectError, expected } from "./core/errors.js";
import { checkTimeout } from "./core/limits.js";
import { Peer, type Context, type Options } from "./core/peer.js";
import { Settings, type AnyOptions } from "./core/settings.js";
import type { Socket } from "./core/transport.js";
import { plain } from "./link/plain.js";
import { standardSocket, type StandardWebSocket } from "./sockets/standard.js";

/** How to connect. */
export interface ConnectOptions {
  /** How long the connection may take to open, in milliseconds; then `connect` rejects with `ConnectError`. Default 10,000; `Infinity` waits for ever. */
  openTimeoutMs?: number | undefined;
}

/** A connection under way: either settles, and `abandon` ends it. */
export interface Opening {
  /** Resolves when it is open, rejects with a `ConnectError`. */
  readonly opened: Promise<Socket>;
  /** Gives up. */
  readonly abandon: () => void;
}

const OPEN_TIMEOUT_MS = 10_000;

/**
 * Connects to a server that serves `S` and may call back by `C`; resolves when the connection is open. What the server sends
 * at once is dispatched only after that, so listeners added right behind `await connect(..)` miss nothing.
 *
 * Uses the runtime's own WebSocket. Rejects with `ConnectError` when the connection cannot be opened, and with `TypeError`
 * for bad options, naming option, rule and value.
 */
export async function connect<S extends Contract<S> = AnyMethods, C extends Contract<C> = AnyMethods>(
  url: string | URL,
  ...options: NoInfer<
    {} extends Options<C, Context<C, S>>
      ? [options?: Options<C, Context<C, S>> & ConnectOptions]
      : [options: Options<C, Context<C, S>> & ConnectOptions]
  >
): Promise<Peer<C, S>> {
  return openPeer<C, S>(url, options[0], openStandard);
}

/** What both `connect` do: check everything first, open, and make the peer. */
export async function openPeer<C extends Contract<C>, S extends Contract<S>>(
  url: string | URL,
  options: (AnyOptions & ConnectOptions) | undefined,
  open: (url: URL, maxMessageBytes: number) => Opening,
): Promise<Peer<C, S>> {
  const { openTimeoutMs = OPEN_TIMEOUT_MS, ...peerOptions } = options ?? {};
  checkTimeout("openTimeoutMs", openTimeoutMs);
  const settings = new Settings(peerOptions);
  const target = webSocketUrl(url);
  const socket = await inTime(open(target, settings.limits.maxMessageBytes), openTimeoutMs, target);
  const transport = plain(socket);
  return new Peer<C, S>(
    // Reading starts a turn later: until then what comes in waits, and the caller can listen.
    { ...transport, start: (receiver) => void setTimeout(() => transport.start(receiver), 0) },
    settings as never,
  );
}

async function inTime({ opened, abandon }: Opening, timeoutMs: number, url: URL): Promise<Socket> {
  if (timeoutMs === Infinity) return opened;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(
      () => {
        reject(new ConnectError(publicUrl(url), `not open within ${timeoutMs} ms`));
        abandon();
      },
      Math.min(timeoutMs, LONGEST_DELAY_MS),
    );
  });
  try {
    return await Promise.race([opened, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** Accepts what a WebSocket does: ws, wss, http and https, in a page also relative to it. */
function webSocketUrl(url: string | URL): URL {
  const base = (globalThis as { location?: { href: string } }).location?.href;
  if (!URL.canParse(url, base)) throw expected("url", "a ws: or wss: address", url);
  const target = new URL(url, base);
  target.protocol = target.protocol.replace("http", "ws");
  target.hash = "";
  if (target.protocol !== "ws:" && target.protocol !== "wss:") throw expected("url", "a ws: or wss: address", url);
  return target;
}

/** An address without what may be secret in it: user, password and query. */
export function publicUrl({ protocol, host, pathname }: URL): string {
  return `${protocol}//${host}${pathname}`;
}

function openStandard(url: URL, maxMessageBytes: number): Opening {
  const { WebSocket } = globalThis as { WebSocket?: new (url: string) => StandardWebSocket };
  if (WebSocket === undefined) {
    throw new TypeError('this runtime has no WebSocket of its own; on Node import `connect` from "reciproc/node"');
  }
  const webSocket = new WebSocket(url.href);
  const socket = standardSocket(webSocket, maxMessageBytes);
  const opened = new Promise<Socket>((resolve, reject) => {
    // After a failure "error" comes first and says nothing, "close" follows; after "open" a rejection is too late to matter.
    webSocket.addEventListener("open", () => resolve(socket));
    webSocket.addEventListener("close", ({ code }: { code: number }) => {
      const reason = "the WebSocket failed, and browsers do not tell a page why";
      reject(new ConnectError(publicUrl(url), reason, { cause: new Error(`closed with ${code}`) }));
    });
  });
  return { opened, abandon: () => webSocket.close() };
}
