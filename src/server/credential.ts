/**
 * What `authenticate` returned for the client of one socket: a fresh `auth` replaces it, and when it expires, the server closes the
 * socket. A client that has sent `auth` is asked for a fresh one before.
 */
import type { IncomingMessage } from "node:http";
import * as CloseCode from "../message/close-codes.js";
import { LONGEST_DELAY_MS, setDeadline } from "../base/deadlines.js";
import type { Link } from "../message/transport.js";
import type { Connection } from "../peer/connection.js";
import { endPeer, type AnyPeer } from "../peer/peer.js";
import { ASK_AUTH, AUTHENTICATED } from "../session/frames.js";
import type { Socket } from "../socket/socket.js";
import type { Gate } from "./gate.js";
import { ServerLink } from "./link.js";
import type { ServerPeers } from "./peers.js";
import { EXPIRED, type Admission, type GateSocket, type Refusal } from "./upgrade.js";

const OTHER_PRINCIPAL: Refusal = { status: 401, reason: "the `principal` of a connection cannot change" };

/** In the last part of this length, the server asks for a fresh `auth`, at a random time: many credentials may expire together. */
const LAST_MS = 60_000;
/** In the last part of this length, the server does not ask again. */
const SHORT_MS = 1_000;

/** A client whose WebSocket is open. */
export interface Client {
  readonly socket: Socket;
  readonly request: IncomingMessage;
  readonly connection: GateSocket;
  /** Whether the client is authenticated by its hello, and may send `auth` again. */
  readonly takesAuth: boolean;
  /** Whether the client offers to resume a session, and gets `reciproc.v1`. */
  readonly resumes: boolean;
  /** What `authenticate` returned; `undefined` without that option, and until the client has sent its `auth`. */
  readonly admission: Admission | undefined;
}

/** The credential of the client of one socket. */
export class Credential {
  readonly #peers: ServerPeers;
  readonly #gate: Gate<Socket>;
  readonly #link: Link;
  readonly #peer: AnyPeer;
  readonly #client: Client & { readonly admission: Admission };
  /** Whether `authenticate` has not decided on the newest `auth`. */
  #isDeciding = false;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    peers: ServerPeers,
    gate: Gate<Socket>,
    link: Link,
    peer: AnyPeer,
    client: Client & { readonly admission: Admission },
  ) {
    this.#peers = peers;
    this.#gate = gate;
    this.#link = link;
    this.#peer = peer;
    this.#client = client;
  }

  /** Lets the client send `auth`, and lets its credential expire. */
  start(): void {
    if (this.#client.takesAuth) (this.#link as ServerLink).onAuth = (auth) => this.#receive(auth);
    this.#wait(this.#client.admission);
  }

  /** Whether the client has its peer on this socket. After the loss of the socket, the client is authenticated when it resumes. */
  get #isPresent(): boolean {
    const link = this.#link;
    return !(link instanceof ServerLink) || link.flowing?.socket === this.#client.socket;
  }

  /**
   * Waits until the admission expires. Asks the client for a fresh `auth` before: in the last minute, or in the last half of a shorter
   * time, and again while none has come.
   */
  #wait(admission: Admission): void {
    clearTimeout(this.#timer);
    const leftMs = admission.expiresAt - performance.now();
    if (leftMs === Infinity || !this.#isPresent) return;
    if (leftMs <= 0) return this.#expire();
    if (this.#timer === undefined) this.#client.connection.once("close", () => clearTimeout(this.#timer));
    const lastMs = leftMs > SHORT_MS ? Math.min(LAST_MS, leftMs / 2) * (0.5 + Math.random() / 2) : 0;
    const check = (): void => {
      const mayAsk = this.#client.takesAuth && !this.#isDeciding && this.#isPresent;
      if (mayAsk && performance.now() < admission.expiresAt) this.#link.sendControl!(ASK_AUTH);
      this.#wait(admission);
    };
    // Not a deadline of `base/deadlines.ts`: one that is late lets the event loop read first, also messages of this client.
    this.#timer = setTimeout(check, Math.min(Math.ceil(leftMs - lastMs), LONGEST_DELAY_MS));
    // The client's socket keeps the process alive while it is open.
    this.#timer.unref?.();
  }

  #expire(): void {
    const link = this.#link;
    if (link instanceof ServerLink) link.closeSocket(CloseCode.Expired, EXPIRED);
    else endPeer(this.#peer, { code: CloseCode.Expired, reason: EXPIRED });
  }

  /** A client that sends another `auth` before the reply to the first breaks the protocol. */
  #receive(auth: unknown): void {
    if (this.#isDeciding) return (this.#link as ServerLink).fail("a second `auth` before the reply to the first");
    this.#isDeciding = true;
    void this.#renew(auth);
  }

  /**
   * Authenticates the client again, whose principal must stay the same. An `auth` counts as a message: beyond `maxMessagesPerSecond` it
   * waits, because it has no response that would refuse only it.
   */
  async #renew(auth: unknown): Promise<void> {
    const { request, connection, admission } = this.#client;
    const link = this.#link as ServerLink;
    const { config, incoming } = link.receiver as Connection;
    const { maxMessagesPerSecond } = config.limits;
    while (this.#isPresent && incoming.takeRate?.() === false) await delay(1000 / maxMessagesPerSecond);
    if (!this.#isPresent) return;
    const verdict = await this.#gate.authenticate(request, auth, connection);
    this.#isDeciding = false;
    if (!this.#isPresent) return;
    if ("admission" in verdict && verdict.admission.principal === admission.principal) {
      // A disconnect has ended this peer, or will.
      verdict.admission.end();
      this.#wait(verdict.admission);
      this.#peers.refresh(this.#peer, verdict.admission)();
      return void link.sendControl(AUTHENTICATED);
    }
    const refusal = "refusal" in verdict ? verdict.refusal : OTHER_PRINCIPAL;
    this.#peers.refused(refusal, request);
    // `authenticate` has not decided. The client tries again, on a socket that needs the decision.
    if (refusal.status === 503) return link.closeSocket(CloseCode.fromHttpStatus(503), refusal.reason);
    endPeer(this.#peer, { code: CloseCode.fromHttpStatus(refusal.status), reason: refusal.reason });
  }
}

/** Resolves after `ms`. */
function delay(ms: number): Promise<void> {
  return new Promise((resolve) => setDeadline({ deadline: 0, expire: resolve }, ms));
}
