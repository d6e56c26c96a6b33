/** Clients that send `auth`: the first time in their hello, when their WebSocket is open, and later on the open connection. */
import type { Duplex } from "node:stream";
import * as CloseCode from "../close-codes.js";
import type { Connection } from "../core/connection.js";
import { clearDeadline, setDeadline, type Expiring } from "../core/deadlines.js";
import { member } from "../core/message.js";
import type { Socket, SocketHandler } from "../link/socket.js";
import { AUTH_HELLO, AUTHENTICATED, helloOf } from "../session/frames.js";
import { closeIgnored, closeWithBye, cutLater, IGNORE } from "./closing.js";
import { MAX_AUTH_BYTES, type ServerLink } from "./link.js";
import type { Admission, GateSocket, Refusal, Verdict } from "./upgrade.js";

/** A client that is not authenticated may send so many bytes more: the headers of its frames, and pongs. */
const EXTRA_BYTES = 1024;

/** The part of the server in the authentication of one client by its `auth`. */
export interface AuthHooks {
  /** Runs `authenticate`. Never rejects. */
  authenticate(auth: unknown): Promise<Verdict>;
  /** Takes the socket of an accepted client, whose handler it replaces. Returns a refusal if there is no slot for the client. */
  accept(admission: Admission): Refusal | undefined;
  /** Called when the client is refused, before the refusal is sent. */
  refused(refusal: Refusal): void;
}

/** The open sockets whose clients are not authenticated yet. */
export class AuthArrivals {
  readonly #open = new Set<AuthArrival>();
  readonly #timeoutMs: number;

  /** `timeoutMs`: the time in which a client must send its `auth`. */
  constructor(timeoutMs: number) {
    this.#timeoutMs = timeoutMs;
  }

  /**
   * Asks the client of an open, unstarted socket over `connection` for its `auth`. Closes a client that sends anything else, more
   * than `MAX_AUTH_BYTES`, or nothing in time.
   */
  take(socket: Socket, connection: GateSocket, hooks: AuthHooks): void {
    const arrival = new AuthArrival(socket, connection, hooks, () => this.#open.delete(arrival));
    this.#open.add(arrival);
    setDeadline(arrival, this.#timeoutMs);
  }

  /** Closes all these sockets. */
  shut(code: number, reason: string): void {
    for (const arrival of this.#open) arrival.close(code, reason);
  }
}

/** A socket whose client is not authenticated yet. */
class AuthArrival implements SocketHandler, Expiring {
  deadline = 0;
  readonly #socket: Socket;
  readonly #connection: GateSocket;
  /** The TCP socket; `undefined` in memory, where no part of a frame is buffered. */
  readonly #raw: Duplex | undefined;
  readonly #hooks: AuthHooks;
  readonly #settled: () => void;
  #bytes = 0;
  #isAsking = false;
  #isOver = false;

  constructor(socket: Socket, connection: GateSocket, hooks: AuthHooks, settled: () => void) {
    this.#socket = socket;
    this.#connection = connection;
    this.#raw = isStream(connection) ? connection : undefined;
    this.#hooks = hooks;
    this.#settled = settled;
    socket.maxFrameBytes = MAX_AUTH_BYTES;
    // The WebSocket itself would buffer a frame of the longest message.
    this.#raw?.on("data", this.#count);
    socket.send(AUTH_HELLO);
    socket.start(this);
  }

  frame(text: string): void {
    const hello = helloOf(text);
    if (hello === undefined || this.#isAsking) return this.close(CloseCode.ProtocolError, "not one hello with `auth`");
    this.#isAsking = true;
    clearDeadline(this);
    void this.#hooks.authenticate(member(hello, "auth")).then((verdict) => this.#decide(verdict));
  }

  closed(): void {
    this.#settle();
  }

  expire(): void {
    this.close(CloseCode.Superseded, "no `auth` came in time");
  }

  /** Closes the socket, and ignores further frames. */
  close(code: number, reason: string): void {
    this.#settle();
    closeIgnored(this.#socket, code, reason);
    cutLater(this.#connection);
  }

  #decide(verdict: Verdict): void {
    if (this.#isOver) return;
    this.#settle();
    const refusal = "refusal" in verdict ? verdict.refusal : this.#hooks.accept(verdict.admission);
    if (refusal === undefined) return;
    this.#hooks.refused(refusal);
    this.#socket.start(IGNORE);
    closeWithBye(this.#socket, refusal);
    cutLater(this.#connection);
  }

  readonly #count = (part: Buffer): void => {
    const wasFlooded = this.#isFlooded;
    this.#bytes += part.length;
    if (!this.#isFlooded) return;
    if (!wasFlooded) this.close(CloseCode.MessageTooBig, "message is too large");
    // Nothing more is buffered. The WebSocket may resume its socket, so each further part pauses it again.
    this.#raw!.pause();
  };

  get #isFlooded(): boolean {
    return this.#bytes > MAX_AUTH_BYTES + EXTRA_BYTES;
  }

  #settle(): void {
    this.#isOver = true;
    clearDeadline(this);
    if (!this.#isFlooded) this.#raw?.off("data", this.#count);
    this.#settled();
  }
}

function isStream(connection: GateSocket): connection is Duplex {
  return "pause" in connection;
}

/** The part of the server in the authentication of a client that sends `auth` again. */
export interface RenewalHooks {
  /** Runs `authenticate`. Never rejects. */
  authenticate(auth: unknown): Promise<Verdict>;
  /** Takes the new result for the peer. */
  accept(admission: Admission): void;
  /** Takes the refusal, and closes the peer. */
  refuse(refusal: Refusal): void;
}

/**
 * Lets the client of `link` send `auth` again over its present socket. `principal` is the name of the client, which must stay.
 * An `auth` counts as a message: beyond `maxMessagesPerSecond` it waits, because it has no response that would refuse only it. A
 * client that sends another `auth` before the reply to the first breaks the protocol.
 */
export function takeAuth(link: ServerLink, principal: string | undefined, hooks: RenewalHooks): void {
  const { socket } = link;
  let isAsking = false;
  // After the loss of its socket, the client is authenticated when it resumes.
  const isPresent = (): boolean => link.socket === socket && link.isFlowing;
  const renew = async (auth: unknown): Promise<void> => {
    const connection = link.receiver as Connection;
    const { maxMessagesPerSecond } = connection.config.limits;
    while (isPresent() && connection.takeRate?.() === false) await delay(1000 / maxMessagesPerSecond);
    if (!isPresent()) return;
    const verdict = await hooks.authenticate(auth);
    isAsking = false;
    if (!isPresent()) return;
    if ("refusal" in verdict) hooks.refuse(verdict.refusal);
    else if (verdict.admission.principal !== principal) hooks.refuse(OTHER_PRINCIPAL);
    else {
      hooks.accept(verdict.admission);
      link.sendControl(AUTHENTICATED);
    }
  };
  link.onAuth = (auth) => {
    if (isAsking) return link.fail("a second `auth` before the reply to the first");
    isAsking = true;
    void renew(auth);
  };
}

/** Resolves after `ms`. */
function delay(ms: number): Promise<void> {
  return new Promise((resolve) => setDeadline({ deadline: 0, expire: resolve }, ms));
}

const OTHER_PRINCIPAL: Refusal = { status: 401, reason: "the `principal` of a connection cannot change" };
