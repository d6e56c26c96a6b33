/** Opening a connection: the offer, the time it may take, and the server's first frame, which says whether it lets us in. */
import { toHttpStatus } from "../close-codes.js";
import { clearDeadline, setDeadline, type Expiring } from "../core/deadlines.js";
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

/** One that has also been waited for the server's first frame. */
export interface Admitted extends Opened {
  /** What that holds, where it is a hello; `undefined` where it is none, or did not come in time. */
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

/** One try to connect, of a client that knows where to. */
export class Dial implements Expiring {
  deadline = 0;
  readonly url: URL;
  readonly #offer: readonly string[];
  readonly #timeoutMs: number;
  readonly #open: (protocols: string[]) => Opening;
  /** The opening that is under way, or was last. */
  #opening: Opening | undefined;
  /** Rejects when the try is given up, whatever it waits for. */
  readonly #abandoned: Promise<never>;
  #reject!: (error: ConnectError) => void;
  #isAbandoned = false;

  /** `open` is given the subprotocols to offer: `offer`, or none. */
  constructor(url: URL, offer: readonly string[], timeoutMs: number, open: (protocols: string[]) => Opening) {
    this.url = url;
    this.#offer = offer;
    this.#timeoutMs = timeoutMs;
    this.#open = open;
    this.#abandoned = observed(new Promise((_resolve, reject) => (this.#reject = reject)));
  }

  /**
   * Connects with the offer, and once more without it when that may be why it failed; both within `timeoutMs`. `isKnown`: the
   * server has said hello before. Then it is not tried without the offer, and its hello is waited for. Rejects with `ConnectError`.
   */
  async connect(isKnown: boolean): Promise<Admitted> {
    setDeadline(this, this.#timeoutMs);
    try {
      return await Promise.race([this.#connect(isKnown), this.#abandoned]);
    } finally {
      clearDeadline(this);
    }
  }

  expire(): void {
    this.abandon(`not open within ${this.#timeoutMs} ms`);
  }

  /** Gives up what is under way: `connect` rejects at once. */
  abandon(reason: string): void {
    this.#isAbandoned = true;
    this.#reject(new ConnectError(publicUrl(this.url), reason));
    this.#opening?.abandon();
  }

  async #connect(isKnown: boolean): Promise<Admitted> {
    const [...offer] = this.#offer;
    const first = (this.#opening = this.#open(offer));
    try {
      return await this.#admit(await first.opened, isKnown);
    } catch (error) {
      // One that opened and was then refused is still open here; for any other this does nothing.
      first.abandon();
      if (this.#isAbandoned || isKnown || offer.length === 0 || !first.offerMayBeWhy()) throw error;
      this.#opening = this.#open([]);
      return await this.#opening.opened;
    }
  }

  /** Waits, where `reciproc.v1` was agreed, for the frame that says whether the server lets us in. */
  async #admit(opened: Opened, isKnown: boolean): Promise<Admitted> {
    const { firstFrame } = opened;
    if (firstFrame === undefined) return opened;
    const frame = await (isKnown ? firstFrame : this.#soon(firstFrame));
    if (frame === undefined) return opened;
    const bye = readBye(frame);
    if (bye === undefined) return { ...opened, hello: helloOf(frame) };
    const cause = new Error(`the server said ${frame}`);
    const status = toHttpStatus(bye.code);
    throw new ConnectError(publicUrl(this.url), bye.reason, { status, cause });
  }

  /** The frame, unless it does not come soon, or at all. */
  async #soon(frame: Promise<string>): Promise<string | undefined> {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const late = new Promise<undefined>((resolve) => {
      timer = setTimeout(() => resolve(undefined), FIRST_FRAME_WAIT_MS);
    });
    try {
      return await Promise.race([frame.catch(() => undefined), late, this.#abandoned]);
    } finally {
      clearTimeout(timer);
    }
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
