/** One connection attempt: the offer, the time that it may take, and the server's first frame, which accepts or refuses the client. */
import { toHttpStatus } from "../close-codes.js";
import { clearDeadline, setDeadline } from "../core/deadlines.js";
import { ConnectError, expected } from "../core/errors.js";
import { observed } from "../core/promises.js";
import type { Socket } from "../link/socket.js";
import { helloOf, readBye } from "../session/frames.js";
import { PROTOCOL } from "../session/link.js";
import { textOf } from "../sockets/inbox.js";
import { closeCode, StandardSocket, type StandardWebSocket } from "../sockets/standard.js";

/** A connection that has opened. */
export interface Opened {
  readonly socket: Socket;
  /** The subprotocol that was agreed; empty for none. */
  readonly protocol: string;
  /**
   * The first frame that comes, where `reciproc.v1` was agreed; its socket keeps that as well. Rejects with a `ConnectError`
   * when none does before the end.
   */
  readonly firstFrame: Promise<string> | undefined;
}

/** A connection whose server has accepted the client. */
export interface Admitted extends Opened {
  /** What the server's first frame says, if it is a hello; `undefined` if it is none, or did not come in time. */
  readonly hello?: unknown;
}

/** A connection under way. */
export interface Opening {
  /** Resolves when it is open, rejects with a `ConnectError`. */
  readonly opened: Promise<Opened>;
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
  const { url, offer, timeoutMs, isKnown, signal } = attempt;
  let opening: Opening | undefined;
  let isAbandoned = false;
  let reject!: (error: ConnectError) => void;
  const abandoned = observed(new Promise<never>((_resolve, rejectAll) => (reject = rejectAll)));
  const abandon = (reason: string): void => {
    isAbandoned = true;
    reject(new ConnectError(publicUrl(url), reason));
    opening?.abandon();
  };
  const begin = (protocols: readonly string[]): Promise<Opened> =>
    (opening = attempt.open(url, [...protocols], attempt.maxMessageBytes)).opened;
  const connect = async (): Promise<Admitted> => {
    try {
      return await admit(url, await begin(offer), isKnown, abandoned);
    } catch (error) {
      // One that opened and was then refused is still open here. For any other this does nothing.
      opening?.abandon();
      if (isAbandoned || isKnown || offer.length === 0 || opening?.offerMayBeWhy() !== true) throw error;
      return await begin([]);
    }
  };
  const onAbort = (): void => abandon("aborted");
  const deadline = { deadline: 0, expire: () => abandon(`not open within ${timeoutMs} ms`) };
  setDeadline(deadline, timeoutMs);
  signal?.addEventListener("abort", onAbort);
  try {
    return await Promise.race([connect(), abandoned]);
  } finally {
    clearDeadline(deadline);
    signal?.removeEventListener("abort", onAbort);
  }
}

/** Waits for the frame that says whether the server accepts the client, if `reciproc.v1` was agreed. */
async function admit(url: URL, opened: Opened, isKnown: boolean, abandoned: Promise<never>): Promise<Admitted> {
  const { firstFrame } = opened;
  const frame = firstFrame && (await (isKnown ? firstFrame : soon(firstFrame, abandoned)));
  if (frame === undefined) return opened;
  const bye = readBye(frame);
  if (bye === undefined) return { ...opened, hello: helloOf(frame) };
  const cause = new Error(`the server said ${frame}`);
  throw new ConnectError(publicUrl(url), bye.reason, { status: toHttpStatus(bye.code), cause });
}

/** Resolves with the frame, or with `undefined` if it does not come soon or at all. */
async function soon(frame: Promise<string>, abandoned: Promise<never>): Promise<string | undefined> {
  const wait = { deadline: 0, expire: () => {} };
  const late = new Promise<undefined>((resolve) => (wait.expire = () => resolve(undefined)));
  setDeadline(wait, FIRST_FRAME_WAIT_MS);
  try {
    return await Promise.race([frame.catch(() => undefined), late, abandoned]);
  } finally {
    clearDeadline(wait);
  }
}

/** What just opened, with the first frame that `onFrame` tells of where it has a meaning. */
export function justOpened(
  socket: Socket,
  protocol: string,
  url: URL,
  onFrame: (listen: (frame: string) => void) => void,
  onEnd: (listen: (code: number) => void) => void,
): Opened {
  if (protocol !== PROTOCOL) return { socket, protocol, firstFrame: undefined };
  const firstFrame = new Promise<string>((resolve, reject) => {
    let hasCome = false;
    onFrame((frame) => {
      hasCome = true;
      resolve(frame);
    });
    onEnd((code) => {
      if (!hasCome) reject(new ConnectError(publicUrl(url), `closed with ${code} before its first frame`));
    });
  });
  // Whoever gave up meanwhile does not ask for it.
  void observed(firstFrame);
  return { socket, protocol, firstFrame };
}

/** Accepts what a WebSocket does: ws, wss, http and https, in a page also relative to it. Throws a `TypeError` for anything else. */
export function webSocketUrl(url: string | URL): URL {
  const base = (globalThis as { location?: { href: string } }).location?.href;
  const target = parseUrl(url, base);
  if (target === undefined) throw expected("url", "a ws: or wss: address", url);
  // Setting a part parses all of it again.
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
  const opened = new Promise<Opened>((resolve, reject) => {
    webSocket.addEventListener("open", () => {
      wasOpen = true;
      resolve(
        justOpened(
          socket,
          webSocket.protocol,
          url,
          (listen) => webSocket.addEventListener("message", ({ data }) => listen(textOf(data)), { once: true }),
          (listen) => webSocket.addEventListener("close", ({ code }) => listen(code)),
        ),
      );
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
  return { opened, offerMayBeWhy: () => !wasOpen, abandon: () => webSocket.close() };
};
