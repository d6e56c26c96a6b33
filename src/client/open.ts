/** One connection attempt: the offered subprotocols, the timeout, and the first frame of the server, which accepts or refuses the client. */
import { toHttpStatus } from "../message/close-codes.js";
import { clearDeadline, setDeadline } from "../base/deadlines.js";
import { ConnectError } from "../message/errors.js";
import type { CoreDialect } from "../peer/dialect.js";
import type { Socket } from "../socket/socket.js";
import { AUTH_OFFER, helloOf, readBye, RESUME_OFFER, says } from "../session/frames.js";
import { PROTOCOL } from "../session/link.js";
import type { EndpointLimits } from "../session/state.js";
import type { Inbox } from "../socket/inbox.js";
import { closeCode, StandardSocket, type StandardWebSocket } from "../socket/standard.js";
import { publicUrl, type Attempt, type Credentials, type AttemptCredentials } from "./credentials.js";

/** An open socket whose server has accepted the client. */
export interface HandshakeResult {
  readonly socket: Socket;
  /** The selected subprotocol; empty for none. */
  readonly protocol: string;
  /** The content of the server's first frame, if that is a hello; `undefined` if it is no hello, or did not come in time. */
  readonly hello?: unknown;
  /** Whether the server asked for `auth`, and accepted it. */
  readonly takesAuth: boolean;
}

/** A socket that is being opened. */
export interface OpeningSocket {
  readonly socket: Socket & Inbox;
  /** Resolves with the selected subprotocol when the socket is open; empty for none. Rejects with a `ConnectError`. */
  readonly opened: Promise<string>;
  /** Returns true if the subprotocols may be the cause of a failure: some servers refuse all, or select none. */
  readonly mayOfferBeCause: () => boolean;
  /** Ends the attempt. */
  readonly abandon: () => void;
}

/** Opens a socket that offers `protocols`. `headers` are those of Node. */
export type Open = (url: string, protocols: string[], maxMessageBytes: number, headers?: unknown) => OpeningSocket;

/** A server of `reciproc.v1` sends its hello together with the 101. A server that selects any subprotocol may never send a frame. */
const FIRST_FRAME_WAIT_MS = 250;

/** The attempt that `attemptConnection` makes. */
export interface ConnectAttempt extends Attempt {
  /** The session to resume, if there is one. */
  readonly session: { readonly route: string | undefined } | undefined;
  /**
   * Whether the server sent a hello on an earlier socket. Then the attempt is not repeated without the offer, and waits for the hello
   * until it is aborted.
   */
  readonly isKnown: boolean;
  /** Set while the attempt is made: ends it, for a reason. */
  onAbort: ((reason: string) => void) | undefined;
}

/** How a client connects. */
export interface ConnectPlan {
  /** Whether `reciproc.v1` is offered. Without it, and if the server does not choose it, the link sends plain frames. */
  readonly offersV1: boolean;
  readonly dialect: Pick<CoreDialect, "subprotocol"> | undefined;
  readonly open: Open;
  readonly limits: EndpointLimits;
}

/** Returns the subprotocols to offer. */
function offerOf({ offersV1, dialect }: ConnectPlan, offersAuth: boolean, { session }: ConnectAttempt): string[] {
  const own = [PROTOCOL, session && RESUME_OFFER, offersAuth && AUTH_OFFER];
  return [...(offersV1 ? own : []), dialect?.subprotocol].filter((name) => typeof name === "string");
}

/**
 * Makes one connection attempt, with the offer. If the offer may be the cause of a failure, connects once more without it. Rejects
 * with `ConnectError`, also when it is aborted, or with an error after which no attempt is made again. `credentials`: give the URL, the
 * headers and `auth`.
 */
export async function attemptConnection(
  plan: ConnectPlan,
  credentials: Credentials,
  attempt: ConnectAttempt,
): Promise<HandshakeResult> {
  const { open, limits } = plan;
  const { isKnown } = attempt;
  const offer = offerOf(plan, credentials.offersAuth, attempt);
  let opening: OpeningSocket | undefined;
  let isAbandoned = false;
  const connect = async ({ url, headers, auth }: AttemptCredentials, protocols: string[]): Promise<HandshakeResult> => {
    opening = open(url, protocols, limits.maxMessageBytes, headers);
    const { socket, opened } = opening;
    const protocol = await opened;
    // A server that asks for `auth` closes the socket if a client sends anything before.
    const waitMs = isKnown || credentials.offersAuth ? Infinity : FIRST_FRAME_WAIT_MS;
    let hello = protocol === PROTOCOL ? await readHello(socket, url, waitMs) : undefined;
    const takesAuth = credentials.offersAuth && says(hello, "auth");
    if (takesAuth) {
      socket.send(`{"hello":{"auth":${auth}}}`);
      hello = await readHello(socket, url, Infinity);
    }
    return { socket, protocol, hello, takesAuth };
  };
  const start = async (): Promise<HandshakeResult> => {
    const given = await credentials.forAttempt(attempt, attempt.session?.route);
    if (isAbandoned) throw new Error();
    try {
      return await connect(given, offer);
    } catch (error) {
      // A socket that opened and was then refused is still open.
      opening?.abandon();
      if (isAbandoned || isKnown || offer.length === 0 || opening?.mayOfferBeCause() !== true) throw error;
      return connect(given, []);
    }
  };
  try {
    return await new Promise<HandshakeResult>((resolve, reject) => {
      attempt.onAbort = (reason) => {
        isAbandoned = true;
        reject(new ConnectError(credentials.publicUrl, reason));
        opening?.abandon();
      };
      start().then(resolve, reject);
    });
  } finally {
    attempt.onAbort = undefined;
  }
}

/**
 * Resolves with the content of the server's hello; with `undefined` if its next frame is no hello. Rejects if that frame is a bye.
 * If `waitMs` is finite, also resolves with `undefined` if no frame comes within that time, or before the end.
 */
function readHello(socket: Inbox, url: string, waitMs: number): Promise<unknown> {
  return new Promise((resolve, reject) => {
    const expire = (): void => {
      // The link reads a frame that comes later.
      socket.onFirstFrame(() => false);
      resolve(undefined);
    };
    const wait = { deadline: 0, expire };
    setDeadline(wait, waitMs);
    const refuse = (reason: string, details?: object): void =>
      reject(new ConnectError(publicUrl(url), reason, details));
    socket.onFirstFrame((first) => {
      clearDeadline(wait);
      if (typeof first !== "string") {
        if (waitMs === Infinity) refuse(`closed with ${first.code} before its first frame`);
        else resolve(undefined);
        return false;
      }
      const hello = helloOf(first);
      const bye = hello === undefined ? readBye(first) : undefined;
      if (bye === undefined) resolve(hello);
      else refuse(bye.reason, { status: toHttpStatus(bye.code), cause: new Error(`the server sent ${first}`) });
      // The link gets the hello with the socket. It reads any other frame itself.
      return hello !== undefined;
    });
  });
}

/** An `error` or a `close` event. The `error` event of a browser has no details. Other runtimes add the error or its message. */
interface FailureEvent {
  readonly error?: unknown;
  readonly message?: string;
  readonly code?: number;
}

/** Opens a socket with the runtime's own WebSocket. Throws a `TypeError` if the runtime has none. */
export const openStandard: Open = (url, protocols, maxMessageBytes) => {
  const { WebSocket } = globalThis as { WebSocket?: new (url: string, protocols: string[]) => StandardWebSocket };
  if (WebSocket === undefined) {
    throw new TypeError('this runtime has no WebSocket; on Node import `connect` from "reciproc/node"');
  }
  const webSocket = new WebSocket(url, protocols);
  const socket = new StandardSocket(webSocket, maxMessageBytes);
  let wasOpen = false;
  const opened = new Promise<string>((resolve, reject) => {
    webSocket.addEventListener("open", () => {
      wasOpen = true;
      resolve(webSocket.protocol);
    });
    // Node 20 and 22 emit no "close" after the "error" of a WebSocket that does not open. The WebSocket of `ws`, if it is the global
    // one, throws without a listener for "error".
    const failed = ({ error, message, code }: FailureEvent): void => {
      // An error records its stack, which takes as long as all else in a close.
      if (wasOpen) return;
      const reason = "the WebSocket failed, and browsers do not say why";
      const cause = error ?? new Error(message || `closed with ${closeCode(code)}`);
      reject(new ConnectError(publicUrl(url), reason, { cause }));
    };
    webSocket.addEventListener("error", failed);
    webSocket.addEventListener("close", failed);
  });
  return { socket, opened, mayOfferBeCause: () => !wasOpen, abandon: () => webSocket.close() };
};
