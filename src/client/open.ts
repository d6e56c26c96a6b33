/** Opening a connection: the offer, the time it may take, and the server's first frame, which says whether it lets us in. */
import { clearDeadline, setDeadline, type Expiring } from "../core/deadlines.js";
import { ConnectError, expected } from "../core/errors.js";
import { observed } from "../core/promises.js";
import type { Socket } from "../core/transport.js";
import { helloOf, readBye } from "../link/frames.js";
import { PROTOCOL } from "../link/packed.js";
import { textOf } from "../sockets/inbox.js";
import { StandardSocket, type StandardWebSocket } from "../sockets/standard.js";

/** A connection that has opened. */
export interface Opened {
  readonly socket: Socket;
  /** The subprotocol that was agreed; empty for none. */
  readonly protocol: string;
  /** The first frame that comes; its socket keeps that as well. Rejects with a `ConnectError` when none does before the end. */
  readonly firstFrame: Promise<string>;
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
      clearDeadline(this, this.#timeoutMs);
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
    if (opened.protocol !== PROTOCOL) return opened;
    const frame = await (isKnown ? opened.firstFrame : this.#soon(opened.firstFrame));
    if (frame === undefined) return opened;
    const bye = readBye(frame);
    if (bye === undefined) return { ...opened, hello: helloOf(frame) };
    const cause = new Error(`the server said ${frame}`);
    // 4401 is HTTP's 401, told to a browser that cannot see it.
    const status = bye.code > 4000 ? bye.code - 4000 : undefined;
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

/** The first frame that `listen` tells of. Rejects with a `ConnectError` when the end comes before it. */
export function firstFrameOf(
  url: URL,
  onFrame: (listen: (frame: string) => void) => void,
  onEnd: (listen: (code: number) => void) => void,
): Promise<string> {
  const frame = new Promise<string>((resolve, reject) => {
    onFrame(resolve);
    onEnd((code) => reject(new ConnectError(publicUrl(url), `closed with ${code} before its first frame`)));
  });
  // Most connections are not asked for it.
  return observed(frame);
}

/** Accepts what a WebSocket does: ws, wss, http and https, in a page also relative to it. Throws a `TypeError` for anything else. */
export function webSocketUrl(url: string | URL): URL {
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

/** Opens the runtime's own WebSocket. Throws a `TypeError` where there is none. */
export const openStandard: Open = (url, protocols, maxMessageBytes) => {
  const { WebSocket } = globalThis as { WebSocket?: new (url: string, protocols: string[]) => StandardWebSocket };
  if (WebSocket === undefined) {
    throw new TypeError('this runtime has no WebSocket of its own; on Node import `connect` from "reciproc/node"');
  }
  const webSocket = new WebSocket(url.href, protocols);
  const socket = new StandardSocket(webSocket, maxMessageBytes);
  const firstFrame = firstFrameOf(
    url,
    (listen) => webSocket.addEventListener("message", ({ data }) => listen(textOf(data)), { once: true }),
    (listen) => webSocket.addEventListener("close", ({ code }) => listen(code)),
  );
  let wasOpen = false;
  const opened = new Promise<Opened>((resolve, reject) => {
    webSocket.addEventListener("open", () => {
      wasOpen = true;
      resolve({ socket, protocol: webSocket.protocol, firstFrame });
    });
    // After a failure "error" comes first and says nothing, "close" follows; after "open" this is too late to matter.
    webSocket.addEventListener("close", ({ code }) => {
      const reason = "the WebSocket failed, and browsers do not tell a page why";
      reject(new ConnectError(publicUrl(url), reason, { cause: new Error(`closed with ${code}`) }));
    });
  });
  return { opened, offerMayBeWhy: () => !wasOpen, abandon: () => webSocket.close() };
};
