/**
 * The gate: accepts or refuses upgrades and requests, and counts the connections. It hands open WebSockets to a delegate, and does
 * not interpret their messages. It needs no network: `http-gate.ts` has an HTTP server, and `testing/gate.ts` has clients in memory.
 */
import type { IncomingMessage } from "node:http";
import { PROTOCOL } from "../session/link.js";
import { cutLater } from "./closing.js";
import type { GateSettings } from "./options.js";
import {
  checkHandshake,
  checkOrigin,
  runAuthenticate,
  type Admission,
  type GateSocket,
  type Refusal,
  type Verdict,
} from "./upgrade.js";

/** Takes the sockets `W` of the clients that a gate accepts. None of its functions throws. */
export interface GateDelegate<W> {
  /** Maximum length of an incoming frame, in bytes. `ws` refuses a longer one before it is buffered. */
  readonly maxFrameBytes: number;
  /** True if a client that offers only unsupported subprotocols is refused. */
  readonly wantsAgreement?: boolean;
  /** Returns how many connections beyond `limits.maxConnections` may be open when this upgrade is checked. */
  reserved?(request: IncomingMessage): number;
  /** Returns true if the delegate calls `authenticate` of the gate itself, once the WebSocket of this upgrade is open. */
  authenticatesLater?(request: IncomingMessage): boolean;
  /** Chooses one of the subprotocols that a client offers. Returns `undefined` for none. */
  chooseProtocol(offered: ReadonlySet<string>): string | undefined;
  /**
   * Decides about a client that is about to get a WebSocket over `connection`. Returns a refusal, or what takes the open socket.
   * `admission` is what `authenticate` returned, and `undefined` without that option or if the client is authenticated later.
   */
  admit(request: IncomingMessage, admission: Admission | undefined, connection: GateSocket): Refusal | TakeSocket<W>;
  /** Called when a request is refused, before it is answered. */
  refused(refusal: Refusal, request: IncomingMessage): void;
  /** Takes an error that no caller receives: `authenticate` threw, or the HTTP server failed. */
  failed(error: unknown): void;
}

/** Takes the open socket of a client that is admitted. `protocol` is its subprotocol, and empty for none. */
export type TakeSocket<W> = (socket: W, protocol: string) => void;

/** A client that is counted as a connection. */
export interface Entry {
  /** The result of `authenticate`; `undefined` without that option, or if the client is authenticated later. */
  readonly verdict: Promise<Verdict> | undefined;
  /** Uncounts the connection. Must be called once, when it is closed. */
  readonly leave: () => void;
}

/** Accepts or refuses clients, and makes their sockets `W`. Takes checked settings. `head`: what was read behind the head of a request. */
export abstract class Gate<W> {
  protected readonly settings: GateSettings;
  protected readonly delegate: GateDelegate<W>;
  /** Sockets that wait for `authenticate`. */
  readonly #deciding = new Set<GateSocket>();
  /** Open sockets that passed the checks before `authenticate`, and what uncounts each. */
  readonly #sockets = new Map<GateSocket, () => void>();
  #connections = 0;
  /** One function for all connections, because each keeps a reference until it closes. So is the listener of "close". */
  readonly #leave = (): void => void this.#connections--;
  readonly #onClose: (this: GateSocket) => void;
  #isShut = false;

  constructor(settings: GateSettings, delegate: GateDelegate<W>) {
    this.settings = settings;
    this.delegate = delegate;
    const left = (socket: GateSocket): void => this.#left(socket);
    this.#onClose = function () {
      left(this);
    };
  }

  /** The URL of the gate, such as `ws://127.0.0.1:3000/rpc`. Empty if it does not listen. */
  abstract readonly url: string;

  /** Starts listening, if there is a `port`. Rejects if the address is in use. */
  abstract listen(): Promise<void>;

  /**
   * Answers the request with 101, and calls `use` with the open socket and its subprotocol. Throws if another listener has upgraded the
   * connection.
   */
  protected abstract open(request: IncomingMessage, connection: GateSocket, head: unknown, use: TakeSocket<W>): void;

  /** Answers the request with an HTTP error, and ends its connection. */
  protected abstract answer(connection: GateSocket, refusal: Refusal): void;

  /** Answers the request with 101, sends a bye and closes, with 4401 for HTTP's 401. Throws as `open`. */
  protected abstract refuseWithBye(
    request: IncomingMessage,
    connection: GateSocket,
    head: unknown,
    refusal: Refusal,
  ): void;

  /** Accepts or refuses an upgrade. Answers and closes a refused socket. Never throws. */
  handleUpgrade(request: IncomingMessage, socket: GateSocket, head: unknown): void {
    // An application may pass a socket late. The "close" of a destroyed socket was already emitted, so `close` would wait for ever.
    if (socket.destroyed) return;
    const refusal =
      checkHandshake(request) ??
      this.checkCapacity(request, true, true) ??
      this.checkOrigin(request) ??
      this.#checkOffer(request);
    if (refusal !== undefined) return this.#refuse(refusal, request, socket, head);
    const { verdict, leave } = this.enter(request, this.delegate.authenticatesLater?.(request));
    this.#sockets.set(socket, leave);
    // "close" is emitted only once, and `once` takes three times as much memory.
    socket.on("close", this.#onClose);
    if (verdict === undefined) this.#admit(undefined, request, socket, head);
    else this.#awaitVerdict(verdict, request, socket, head);
  }

  /** Uncounts a connection. */
  #left(socket: GateSocket): void {
    const leave = this.#sockets.get(socket);
    this.#sockets.delete(socket);
    this.#deciding.delete(socket);
    leave?.();
  }

  /**
   * Returns a refusal if the gate is shut, serves another path, or has too many connections. `checksPath` is false if the
   * application routes requests itself.
   */
  checkCapacity(request: IncomingMessage, checksPath: boolean, isUpgrade: boolean): Refusal | undefined {
    const { path, limits } = this.settings;
    if (this.#isShut) return { status: 503, reason: "the server is closing" };
    if (checksPath && !this.servesPath(request))
      return { status: 404, reason: `nothing is served at this path; \`path\` is "${path}"` };
    const { maxConnections } = limits;
    if (this.#connections < maxConnections) return undefined;
    const reserved = isUpgrade ? (this.delegate.reserved?.(request) ?? 0) : 0;
    return this.#connections < maxConnections + reserved ? undefined : fullRefusal(maxConnections);
  }

  /** Returns a refusal if the `Host` or the `Origin` of a request is not allowed. */
  checkOrigin(request: IncomingMessage): Refusal | undefined {
    return checkOrigin(request, this.settings);
  }

  /** Refuses a client that offers no supported subprotocol. Such a client would close a connection without one. */
  #checkOffer(request: IncomingMessage): Refusal | undefined {
    if (this.delegate.wantsAgreement !== true || request.headers["sec-websocket-protocol"] === undefined)
      return undefined;
    if (this.delegate.chooseProtocol(offeredBy(request)) !== undefined) return undefined;
    const offer = request.headers["sec-websocket-protocol"];
    return { status: 400, reason: `none of the subprotocols "${offer}" is supported; offer none` };
  }

  /** Counts a connection, and runs `authenticate` unless that is called later. */
  enter(request: IncomingMessage, isLater = false): Entry {
    const { authenticate, limits } = this.settings;
    this.#connections++;
    if (authenticate === undefined || isLater) return { verdict: undefined, leave: this.#leave };
    let parts = 2;
    const leave = (): void => void (--parts === 0 && this.#connections--);
    const { handshakeTimeoutMs } = limits;
    const { verdict, settled, abandon } = runAuthenticate(authenticate, request, undefined, handshakeTimeoutMs);
    // `authenticate` may run on after its timeout or after its client has disconnected. Until it ends, it counts as a connection.
    void settled.then((outcome) => {
      leave();
      if ("error" in outcome) this.delegate.failed(outcome.error);
    });
    const disconnect = (): void => {
      abandon();
      leave();
    };
    return { verdict, leave: disconnect };
  }

  /**
   * Runs `authenticate`, which must be set, for a client that has sent `auth` over its open `socket`. The client is counted as a
   * connection. If `authenticate` runs on after the socket has closed, it counts as a connection until it ends.
   */
  authenticate(request: IncomingMessage, auth: unknown, socket: GateSocket): Promise<Verdict> {
    const { authenticate, limits } = this.settings;
    const { verdict, settled, abandon } = runAuthenticate(authenticate!, request, auth, limits.handshakeTimeoutMs);
    let leave = (): void => void socket.off("close", stay);
    const stay = (): void => {
      abandon();
      this.#connections++;
      leave = this.#leave;
    };
    socket.once("close", stay);
    void settled.then((outcome) => {
      leave();
      if ("error" in outcome) this.delegate.failed(outcome.error);
    });
    return verdict;
  }

  /** Refuses all further requests with 503, and cuts the sockets that wait for `authenticate`. */
  shut(): void {
    this.#isShut = true;
    for (const socket of this.#deciding) socket.destroy();
  }

  /** Shuts the gate, and waits until the delegate has closed every connection. Never rejects. */
  async close(): Promise<void> {
    this.shut();
    // Not `once` of node:events, which rejects when a client resets its connection.
    await Promise.all(
      [...this.#sockets.keys()].map((socket) => new Promise<void>((resolve) => socket.once("close", resolve))),
    );
  }

  #awaitVerdict(verdict: Promise<Verdict>, request: IncomingMessage, socket: GateSocket, head: unknown): void {
    this.#deciding.add(socket);
    // Until `ws` takes the socket, it has no other listener, and an error without a listener ends the process.
    socket.on("error", ignore);
    void verdict.then((decision) => {
      this.#deciding.delete(socket);
      socket.off("error", ignore);
      if ("refusal" in decision) this.#refuse(decision.refusal, request, socket, head);
      else this.#admit(decision.admission, request, socket, head);
    });
  }

  #admit(admission: Admission | undefined, request: IncomingMessage, connection: GateSocket, head: unknown): void {
    // `ws` opens no WebSocket on a half-closed socket, so the socket must not claim a slot.
    if (!connection.readable || !connection.writable) return void connection.destroy();
    const admitted = this.delegate.admit(request, admission, connection);
    if (typeof admitted !== "function") return this.#refuse(admitted, request, connection, head);
    this.#upgrade(connection, () => this.open(request, connection, head, admitted));
  }

  #upgrade(connection: GateSocket, open: () => void): void {
    try {
      open();
    } catch (error) {
      // Another listener has upgraded this connection, so it is none of this gate, and `close` must not wait for it.
      this.#left(connection);
      this.delegate.failed(error);
    }
  }

  /** Returns true if the gate serves the path of a request. */
  servesPath({ url = "/" }: IncomingMessage): boolean {
    const { path } = this.settings;
    return path === undefined || url === path || url.startsWith(`${path}?`);
  }

  #refuse(refusal: Refusal, request: IncomingMessage, socket: GateSocket, head: unknown): void {
    // Reported before the answer: afterwards the socket may be closed, and its remote address unknown.
    this.delegate.refused(refusal, request);
    if (BYE_STATUS.has(refusal.status) && this.delegate.chooseProtocol(offeredBy(request)) === PROTOCOL) {
      this.#upgrade(socket, () => this.refuseWithBye(request, socket, head, refusal));
      cutLater(socket);
    } else this.answer(socket, refusal);
  }
}

/** The statuses that are also sent in a bye, because a browser shows a page no HTTP status. */
const BYE_STATUS = new Set([401, 403, 503]);

/** Returns the refusal of a connection without a free slot. */
export function fullRefusal(maxConnections: number): Refusal {
  return { status: 503, reason: `\`limits.maxConnections\`, ${maxConnections}, is reached` };
}

/** Returns the subprotocols that a client offers. */
export function offeredBy({ headers }: IncomingMessage): ReadonlySet<string> {
  return new Set((headers["sec-websocket-protocol"] ?? "").split(",").map((offered) => offered.trim()));
}

function ignore(): void {}
