/** One connection attempt: the offer, the time that it may take, and the server's first frame, which accepts or refuses the client. */
import { toHttpStatus } from "../close-codes.js";
import { clearDeadline, setDeadline } from "../core/deadlines.js";
import { ConnectError, expected } from "../core/errors.js";
import type { Socket } from "../link/socket.js";
import { helloOf, readBye } from "../session/frames.js";
import { PROTOCOL } from "../session/link.js";
import type { Inbox } from "../sockets/inbox.js";
import { closeCode, StandardSocket, type StandardWebSocket } from "../sockets/standard.js";

/** A connection whose server has accepted the client. */
export interface Admitted {
  readonly socket: Socket;
  /** The agreed subprotocol; empty for none. */
  readonly protocol: string;
  /** The content of the server's first frame, if that is a hello; `undefined` if it is none, or did not come in time. */
  readonly hello?: unknown;
}

/** A connection under way. */
export interface Opening {
  readonly socket: Socket & Inbox;
  /** Resolves with the agreed subprotocol when the socket is open; empty for none. Rejects with a `ConnectError`. */
  readonly opened: Promise<string>;
  /** Whether it failed for what may be the subprotocol alone: some servers refuse any, or do not answer the offer. */
  readonly offerMayBeWhy: () => boolean;
  /** Gives up. */
  readonly abandon: () => void;
}

/** Opens a connection that offers `protocols`. */
export type Open = (url: URL, protocols: string[], maxMessageBytes: number) => Opening;

/** A server that knows `reciproc.v1` speaks first, in the same flight as its 101; one that agreed to what it does not know may say nothing. */
const FIRST_FRAME_WAIT_MS = 250;

/** One connection attempt. */
export interface Attempt {
  readonly url: URL;
  /** The subprotocols to offer. */
  readonly offer: readonly string[];
  /** How long the attempt may take, in milliseconds. */
  readonly timeoutMs: number;
  /**
   * Whether the server has sent a hello before. Then the attempt is not repeated without the offer, and waits for the hello as
   * long as it takes.
   */
  readonly isKnown: boolean;
  /** Aborting it ends the attempt. */
  readonly signal: AbortSignal | undefined;
  readonly open: Open;
  readonly maxMessageBytes: number;
}

/**
 * Connects with the offer, and once more without it if the offer may be why the connection failed. Rejects with `ConnectError`,
 * also when the signal aborts.
 */
export async function dial(attempt: Attempt): Promise<Admitted> {
  const { url, offer, timeoutMs, isKnown, signal, open, maxMessageBytes } = attempt;
  let opening: Opening | undefined;
  let isAbandoned = false;
  let fail!: (error: unknown) => void;
  const abandon = (reason: string): void => {
    isAbandoned = true;
    fail(new ConnectError(publicUrl(url), reason));
    opening?.abandon();
  };
  const connect = async (protocols: readonly string[]): Promise<Admitted> => {
    opening = open(url, [...protocols], maxMessageBytes);
    const { socket, opened } = opening;
    const protocol = await opened;
    return { socket, protocol, hello: protocol === PROTOCOL ? await readHello(socket, url, isKnown) : undefined };
  };
  const connectAgain = (error: unknown): Promise<Admitted> => {
    // A socket that opened and was then refused is still open. For any other this does nothing.
    opening?.abandon();
    if (isAbandoned || isKnown || offer.length === 0 || opening?.offerMayBeWhy() !== true) throw error;
    return connect([]);
  };
  const onAbort = (): void => abandon("aborted");
  const deadline = { deadline: 0, expire: () => abandon(`not open within ${timeoutMs} ms`) };
  setDeadline(deadline, timeoutMs);
  signal?.addEventListener("abort", onAbort);
  try {
    return await new Promise<Admitted>((resolve, reject) => {
      fail = reject;
      connect(offer).catch(connectAgain).then(resolve, reject);
    });
  } finally {
    clearDeadline(deadline);
    signal?.removeEventListener("abort", onAbort);
  }
}

/**
 * Resolves with the content of the server's hello, or with `undefined` if its first frame is none. Rejects if that is a bye. If
 * the server is not known to send a hello, `undefined` also means that no frame came in time, or before the end.
 */
function readHello(socket: Inbox, url: URL, isKnown: boolean): Promise<unknown> {
  return new Promise((resolve, reject) => {
    let isLate = false;
    const expire = (): void => {
      isLate = true;
      resolve(undefined);
    };
    const wait = { deadline: 0, expire };
    if (!isKnown) setDeadline(wait, FIRST_FRAME_WAIT_MS);
    const refuse = (reason: string, details?: object): void =>
      reject(new ConnectError(publicUrl(url), reason, details));
    socket.first((first) => {
      clearDeadline(wait);
      if (isLate) return;
      if (typeof first !== "string") {
        return isKnown ? refuse(`closed with ${first.code} before its first frame`) : resolve(undefined);
      }
      const bye = readBye(first);
      if (bye !== undefined)
        return refuse(bye.reason, { status: toHttpStatus(bye.code), cause: new Error(`the server said ${first}`) });
      const hello = helloOf(first);
      // The link gets its content with the socket. Any other frame stays for the link.
      if (hello !== undefined) socket.skipFirst();
      resolve(hello);
    });
  });
}

/** Accepts what a WebSocket does: ws, wss, http and https, in a page also relative to it. Throws a `TypeError` for anything else. */
export function webSocketUrl(url: string | URL): URL {
  const base = (globalThis as { location?: { href: string } }).location?.href;
  const target = parseUrl(url, base);
  if (target === undefined) throw expected("url", "a ws: or wss: address", url);
  // Assigning to a part parses the URL again.
  if (target.protocol.startsWith("http")) target.protocol = target.protocol.replace("http", "ws");
  if (target.hash !== "") target.hash = "";
  if (target.protocol !== "ws:" && target.protocol !== "wss:") {
    // Without what may be secret in it.
    throw expected("url", "a ws: or wss: address", target.protocol);
  }
  return target;
}

/** `URL.parse`, where that may be missing. */
function parseUrl(url: string | URL, base: string | undefined): URL | undefined {
  try {
    return new URL(url, base);
  } catch {
    return undefined;
  }
}

/** An address without what may be secret in it: user, password and query. */
export function publicUrl({ protocol, host, pathname }: URL): string {
  return `${protocol}//${host}${pathname}`;
}

/** An `error` or a `close` event. Browsers say nothing in the former, other runtimes put the error or its message there. */
interface FailureEvent {
  readonly error?: unknown;
  readonly message?: string;
  readonly code?: number;
}

/** Opens the runtime's own WebSocket. Throws a `TypeError` where there is none. */
export const openStandard: Open = (url, protocols, maxMessageBytes) => {
  const { WebSocket } = globalThis as { WebSocket?: new (url: string, protocols: string[]) => StandardWebSocket };
  if (WebSocket === undefined) {
    throw new TypeError('this runtime has no WebSocket of its own; on Node import `connect` from "reciproc/node"');
  }
  const webSocket = new WebSocket(url.href, protocols);
  const socket = new StandardSocket(webSocket, maxMessageBytes);
  let wasOpen = false;
  const opened = new Promise<string>((resolve, reject) => {
    webSocket.addEventListener("open", () => {
      wasOpen = true;
      resolve(webSocket.protocol);
    });
    // Node 20 and 22 fire no "close" after the "error" of a WebSocket that does not open. After "open" both come too late.
    const failed = ({ error, message, code }: FailureEvent): void => {
      const reason = "the WebSocket failed, and browsers do not tell a page why";
      const cause = error ?? new Error(message || `closed with ${closeCode(code)}`);
      reject(new ConnectError(publicUrl(url), reason, { cause }));
    };
    webSocket.addEventListener("error", failed);
    webSocket.addEventListener("close", failed);
  });
  return { socket, opened, offerMayBeWhy: () => !wasOpen, abandon: () => webSocket.close() };
};
