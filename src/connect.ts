/** `connect`: opens a connection and makes a peer of it. Here for a standard WebSocket; `node.ts` does the same over `ws`. */
import type { AnyMethods, Contract } from "./core/contract.js";
import { LONGEST_DELAY_MS } from "./core/deadlines.js";
import { ConnectError, expected } from "./core/errors.js";
import { checkKnown, checkTimeout } from "./core/limits.js";
import { Peer, type Context, type Options } from "./peer/peer.js";
import { PEER_OPTIONS, type AnyOptions } from "./core/settings.js";
import { settingsOf } from "./peer/settings.js";
import type { Socket, Transport } from "./core/transport.js";
import { isHello, PackedLink, PROTOCOL, readBye } from "./link/packed.js";
import { plain } from "./link/plain.js";
import { textOf } from "./sockets/inbox.js";
import { standardSocket, type StandardWebSocket } from "./sockets/standard.js";

/** How to connect. */
export interface ConnectOptions {
  /** How long the connection may take to open, in milliseconds; then `connect` rejects with `ConnectError`. Default 10,000; `Infinity` waits for ever. */
  openTimeoutMs?: number | undefined;
  /** `"plain"` asks for nothing of this package's own. Default `"packed"`: offers `reciproc.v1`, and is plain where the server does not know it. */
  link?: "packed" | "plain" | undefined;
}

/** A connection that has opened. */
export interface Opened {
  readonly socket: Socket;
  /** The subprotocol that was agreed; empty for none. */
  readonly protocol: string;
}

/** One that has also been waited for the server's first frame. */
export interface Admitted extends Opened {
  /** Whether that frame was a hello: then packs may be sent at once. */
  readonly isGreeted: boolean;
}

/** A connection under way. */
export interface Opening {
  /** Resolves when it is open, rejects with a `ConnectError`. */
  readonly opened: Promise<Admitted>;
  /** Whether it failed for what may be the subprotocol alone: some servers refuse any, or do not answer the offer. */
  readonly offerMayBeWhy: () => boolean;
  /** Gives up. */
  readonly abandon: () => void;
}

/** Opens a connection that offers `protocols`. */
export type Open = (url: URL, protocols: string[], maxMessageBytes: number) => Opening;

/** The names of the options of `connect`. */
export const CONNECT_OPTIONS = { ...PEER_OPTIONS, openTimeoutMs: 0, link: 0 };
const OPEN_TIMEOUT_MS = 10_000;
/** A server that knows `reciproc.v1` speaks first, in the same flight as its 101; one that agreed to what it does not know may say nothing. */
const FIRST_FRAME_WAIT_MS = 250;

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
  checkKnown("options", options[0] ?? {}, CONNECT_OPTIONS);
  return openPeer<C, S>(url, options[0], openStandard);
}

/** What both `connect` do: check everything first, open, and make the peer. */
export async function openPeer<C extends Contract<C>, S extends Contract<S>>(
  url: string | URL,
  options: (AnyOptions & ConnectOptions) | undefined,
  open: Open,
): Promise<Peer<C, S>> {
  const { openTimeoutMs = OPEN_TIMEOUT_MS, link = "packed", ...peerOptions } = options ?? {};
  checkTimeout("openTimeoutMs", openTimeoutMs);
  if (link !== "packed" && link !== "plain") throw expected("link", '"packed" or "plain"', link);
  const settings = settingsOf(peerOptions);
  const target = webSocketUrl(url);
  const { maxMessageBytes } = settings.limits;
  const { subprotocol } = settings.choseDialect ? settings.dialect : {};
  const offer = [...(link === "packed" ? [PROTOCOL] : []), ...(subprotocol === undefined ? [] : [subprotocol])];
  const opened = await openInTime(target, openTimeoutMs, offer, (protocols) =>
    open(target, protocols, maxMessageBytes),
  );
  return new Peer<C, S>(deferred(linkTo(opened)), settings as never);
}

/** Opens with the offer, and once more without it when that may be why it failed; both within `timeoutMs`. */
async function openInTime(
  url: URL,
  timeoutMs: number,
  offer: string[],
  open: (protocols: string[]) => Opening,
): Promise<Admitted> {
  let opening = open(offer);
  let isLate = false;
  const opened = opening.opened.catch((error: unknown) => {
    // One that opened and was then refused is still open here; for any other this does nothing.
    opening.abandon();
    if (isLate || offer.length === 0 || !opening.offerMayBeWhy()) throw error;
    opening = open([]);
    return opening.opened;
  });
  if (timeoutMs === Infinity) return opened;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    const giveUp = (): void => {
      isLate = true;
      reject(new ConnectError(publicUrl(url), `not open within ${timeoutMs} ms`));
      opening.abandon();
    };
    timer = setTimeout(giveUp, Math.min(timeoutMs, LONGEST_DELAY_MS));
  });
  try {
    return await Promise.race([opened, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** Waits, where `reciproc.v1` was agreed, for the frame that says whether the server lets us in. */
export function admitted(
  url: URL,
  opened: Opened,
  onFirstFrame: (listen: (frame: string) => void) => void,
): Promise<Admitted> {
  if (opened.protocol !== PROTOCOL) return Promise.resolve({ ...opened, isGreeted: false });
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => resolve({ ...opened, isGreeted: false }), FIRST_FRAME_WAIT_MS);
    onFirstFrame((frame) => {
      clearTimeout(timer);
      const bye = readBye(frame);
      if (bye === undefined) return resolve({ ...opened, isGreeted: isHello(frame) });
      const cause = new Error(`the server said ${frame}`);
      // 4401 is HTTP's 401, told to a browser that cannot see it.
      reject(new ConnectError(publicUrl(url), bye.reason, { status: bye.code - 4000, cause }));
    });
  });
}

function linkTo({ socket, protocol, isGreeted }: Admitted): Transport {
  return protocol === PROTOCOL ? new PackedLink(socket, "client", isGreeted) : plain(socket);
}

/** Reading starts a turn later: until then what comes in waits, and the caller can listen. */
function deferred(transport: Transport): Transport {
  return {
    start: (receiver) => nextTurn(() => transport.start(receiver)),
    send: (text) => transport.send(text),
    close: (code, reason) => transport.close(code, reason),
    get isOurs() {
      return transport.isOurs === true;
    },
    get unsentBytes() {
      return transport.unsentBytes ?? 0;
    },
    get traffic() {
      return transport.traffic;
    },
  };
}

/** A timer of 0 ms takes at least one; Node has something quicker. */
function nextTurn(task: () => void): void {
  const { setImmediate = setTimeout } = globalThis as { setImmediate?: (task: () => void) => unknown };
  setImmediate(task);
}

/** Accepts what a WebSocket does: ws, wss, http and https, in a page also relative to it. */
function webSocketUrl(url: string | URL): URL {
  const base = (globalThis as { location?: { href: string } }).location?.href;
  if (!URL.canParse(url, base)) throw expected("url", "a ws: or wss: address", url);
  const target = new URL(url, base);
  target.protocol = target.protocol.replace("http", "ws");
  target.hash = "";
  if (target.protocol !== "ws:" && target.protocol !== "wss:") {
    // Without what may be secret in it.
    throw expected("url", "a ws: or wss: address", target.protocol);
  }
  return target;
}

/** An address without what may be secret in it: user, password and query. */
export function publicUrl({ protocol, host, pathname }: URL): string {
  return `${protocol}//${host}${pathname}`;
}

const openStandard: Open = (url, protocols, maxMessageBytes) => {
  const { WebSocket } = globalThis as { WebSocket?: new (url: string, protocols: string[]) => StandardWebSocket };
  if (WebSocket === undefined) {
    throw new TypeError('this runtime has no WebSocket of its own; on Node import `connect` from "reciproc/node"');
  }
  const webSocket = new WebSocket(url.href, protocols);
  const socket = standardSocket(webSocket, maxMessageBytes);
  let wasOpen = false;
  const opened = new Promise<Admitted>((resolve, reject) => {
    webSocket.addEventListener("open", () => {
      wasOpen = true;
      const onFirstFrame = (listen: (frame: string) => void): void =>
        webSocket.addEventListener("message", ({ data }) => listen(textOf(data)), { once: true });
      resolve(admitted(url, { socket, protocol: webSocket.protocol }, onFirstFrame));
    });
    // After a failure "error" comes first and says nothing, "close" follows; after "open" this is too late to matter.
    webSocket.addEventListener("close", ({ code }) => {
      const reason = "the WebSocket failed, and browsers do not tell a page why";
      reject(new ConnectError(publicUrl(url), reason, { cause: new Error(`closed with ${code}`) }));
    });
  });
  return { opened, offerMayBeWhy: () => !wasOpen, abandon: () => webSocket.close() };
};
