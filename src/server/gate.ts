/**
 * The gate: accepts or refuses the upgrades and requests of an HTTP server, and counts the connections. It hands open WebSockets
 * and plain requests to a delegate, and does not interpret their messages.
 */
import { createServer, type IncomingMessage, type Server as HttpServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { Duplex } from "node:stream";
import { WebSocketServer, type Server, type ServerOptions } from "ws";
import { cutReason, fromHttpStatus } from "../close-codes.js";
import { LONGEST_DELAY_MS } from "../core/deadlines.js";
import { byeFrame } from "../session/frames.js";
import { PROTOCOL } from "../session/link.js";
import { CLOSE_TIMEOUT_MS, GatheringWebSocket, pieceLimits } from "../sockets/ws.js";
import type { GateSettings } from "./options.js";
import {
  answerRefusal,
  answerUpgradeRequired,
  checkHandshake,
  checkOrigin,
  isTls,
  runAuthenticate,
  waitForResponse,
  withoutUpgrade,
  type Admission,
  type Refusal,
  type Verdict,
} from "./upgrade.js";

/** Takes the WebSockets and requests that a gate accepts. None of its functions throws. */
export interface GateDelegate {
  /** Maximum length of an incoming frame, in bytes. `ws` refuses a longer one before it is buffered. */
  readonly maxFrameBytes: number;
  /** True if the delegate answers pings itself, with a bound, which `ws` does not have. */
  readonly answersPings?: boolean;
  /** True if a client that offers only unsupported subprotocols is refused. */
  readonly wantsAgreement?: boolean;
  /** Returns how many connections beyond `limits.maxConnections` may be open when this upgrade is checked. */
  reserved?(request: IncomingMessage): number;
  /** Returns true if the delegate calls `authenticate` of the gate itself, once the WebSocket of this upgrade is open. */
  authenticatesLater?(request: IncomingMessage): boolean;
  /** Claims a slot for a connection that is about to open. Returns a refusal if there is no slot. */
  claimSlot?(request: IncomingMessage): Refusal | undefined;
  /** Chooses one of the subprotocols that a client offers. Returns `undefined` for none. */
  chooseProtocol(offered: ReadonlySet<string>): string | undefined;
  /**
   * Takes an open connection over `socket`. `admission` is what `authenticate` returned, and `undefined` without that option or
   * if the client is authenticated later.
   * `webSocket.protocol` is empty for none.
   */
  admit(
    webSocket: GatheringWebSocket,
    admission: Admission | undefined,
    request: IncomingMessage,
    socket: Duplex,
  ): void;
  /**
   * Takes a request that is no upgrade. The gate passes requests of an HTTP server that it did not make only while no other
   * listener is attached. Without this function, the gate answers with 426.
   */
  request?(request: IncomingMessage, response: ServerResponse): void;
  /** Called when a request is refused, before it is answered. */
  refused(refusal: Refusal, request: IncomingMessage): void;
  /** Takes an error that no caller receives: `authenticate` threw, or the HTTP server failed. */
  failed(error: unknown): void;
}

/** A client that is counted as a connection. */
export interface Entry {
  /** The result of `authenticate`; `undefined` without that option, or if the client is authenticated later. */
  readonly verdict: Promise<Verdict> | undefined;
  /** Uncounts the connection. Must be called once, when it is closed. */
  readonly leave: () => void;
}

/** The gates on each HTTP server. Several gates may share a server, each with its own path. */
const attached = new WeakMap<HttpServer, Set<Gate>>();

/** The latest response on each HTTP connection. */
const latestResponse = new WeakMap<Duplex, ServerResponse>();

/** Accepts or refuses clients. Takes checked settings. The constructor throws a `TypeError` if another gate has its path. */
export class Gate {
  readonly #settings: GateSettings;
  readonly #delegate: GateDelegate;
  readonly #upgrader: Server<typeof GatheringWebSocket>;
  readonly #http: HttpServer | undefined;
  /** Sockets that wait for `authenticate`. */
  readonly #deciding = new Set<Duplex>();
  /** Open sockets that passed the checks before `authenticate`. */
  readonly #sockets = new Set<Duplex>();
  #connections = 0;
  /** One function for all connections, because each keeps a reference until it closes. */
  readonly #leave = (): void => void this.#connections--;
  #isShut = false;

  constructor(settings: GateSettings, delegate: GateDelegate) {
    this.#settings = settings;
    this.#delegate = delegate;
    this.#upgrader = new WebSocketServer<typeof GatheringWebSocket>({
      noServer: true,
      clientTracking: false,
      WebSocket: GatheringWebSocket,
      // Compression costs memory and CPU for each connection.
      perMessageDeflate: false,
      maxPayload: delegate.maxFrameBytes,
      ...pieceLimits(delegate.maxFrameBytes),
      closeTimeout: CLOSE_TIMEOUT_MS,
      autoPong: delegate.answersPings !== true,
      // Without this function, `ws` agrees to any subprotocol.
      handleProtocols: (offered) => delegate.chooseProtocol(offered) ?? false,
    } as ServerOptions<typeof GatheringWebSocket>);
    const { server, port, limits } = settings;
    this.#http = server ?? (port === undefined ? undefined : makeHttp(limits.handshakeTimeoutMs));
    if (this.#http !== undefined) this.#attach(this.#http);
  }

  /** The URL of the gate, such as `ws://127.0.0.1:3000/rpc`. Empty without an HTTP server, and while that does not listen. */
  get url(): string {
    const address = this.#http?.address();
    if (!address || typeof address === "string") return "";
    const scheme = "setSecureContext" in this.#http! ? "wss" : "ws";
    return `${scheme}://${hostInUrl(address)}:${address.port}${this.#settings.path ?? "/"}`;
  }

  /** Starts listening, if there is a `port`. Rejects if the address is in use. */
  listen(): Promise<void> {
    const { port, host, server } = this.#settings;
    const http = this.#http;
    if (http === undefined || server !== undefined) return Promise.resolve();
    return new Promise((resolve, reject) => {
      http.once("error", reject);
      http.listen(port, host, () => {
        http.off("error", reject);
        http.on("error", (error) => this.#delegate.failed(error));
        resolve();
      });
    });
  }

  /** Accepts or refuses an upgrade. Answers and closes a refused socket. Never throws. */
  handleUpgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void {
    // An application may pass a socket late. The "close" of a destroyed socket was already emitted, so `close` would wait for ever.
    if (socket.destroyed) return;
    const refusal =
      checkHandshake(request) ??
      this.checkRoom(request, true, true) ??
      this.checkOrigin(request) ??
      this.#checkOffer(request);
    if (refusal !== undefined) return this.#refuse(refusal, request, socket, head);
    const { verdict, leave } = this.enter(request, this.#delegate.authenticatesLater?.(request));
    this.#sockets.add(socket);
    // "close" is emitted only once, and `once` takes three times as much memory.
    socket.on("close", () => {
      this.#sockets.delete(socket);
      leave();
    });
    if (verdict === undefined) this.#admit(undefined, request, socket, head);
    else this.#awaitVerdict(verdict, request, socket, head);
  }

  /**
   * Returns a refusal if the gate is shut, serves another path, or has too many connections. `checksPath` is false if the
   * application routes requests itself.
   */
  checkRoom(request: IncomingMessage, checksPath: boolean, isUpgrade: boolean): Refusal | undefined {
    const { path, limits } = this.#settings;
    if (this.#isShut) return { status: 503, reason: "the server is closing" };
    if (checksPath && !this.#servesPath(request))
      return { status: 404, reason: `nothing is served at this path; \`path\` is "${path}"` };
    const { maxConnections } = limits;
    if (this.#connections < maxConnections) return undefined;
    const reserved = isUpgrade ? (this.#delegate.reserved?.(request) ?? 0) : 0;
    return this.#connections < maxConnections + reserved ? undefined : fullRefusal(maxConnections);
  }

  /** Returns a refusal if the `Host` or the `Origin` of a request is not allowed. */
  checkOrigin(request: IncomingMessage): Refusal | undefined {
    const address = this.#http?.address();
    const boundTo = typeof address === "string" ? address : address?.address;
    return checkOrigin(request, boundTo, this.#settings);
  }

  /** Refuses a client that offers no supported subprotocol. Such a client would close a connection without one. */
  #checkOffer(request: IncomingMessage): Refusal | undefined {
    if (this.#delegate.wantsAgreement !== true || request.headers["sec-websocket-protocol"] === undefined)
      return undefined;
    if (this.#delegate.chooseProtocol(offeredBy(request)) !== undefined) return undefined;
    const offer = request.headers["sec-websocket-protocol"];
    return { status: 400, reason: `none of the subprotocols "${offer}" is supported; offer none` };
  }

  /** Counts a connection, and runs `authenticate` unless that is called later. */
  enter(request: IncomingMessage, isLater = false): Entry {
    const { authenticate, limits } = this.#settings;
    this.#connections++;
    if (authenticate === undefined || isLater) return { verdict: undefined, leave: this.#leave };
    let parts = 2;
    const leave = (): void => void (--parts === 0 && this.#connections--);
    const { verdict, settled } = runAuthenticate(authenticate, request, undefined, limits.handshakeTimeoutMs);
    // `authenticate` may run on after its timeout or after its client has disconnected. Until it ends, it counts as a connection.
    void settled.then((outcome) => {
      leave();
      if ("error" in outcome) this.#delegate.failed(outcome.error);
    });
    return { verdict, leave };
  }

  /**
   * Runs `authenticate`, which must be set, for a client that has sent `auth` over its open `socket`. The client is counted as a
   * connection. If `authenticate` runs on after the socket has closed, it counts as a connection until it ends.
   */
  authenticate(request: IncomingMessage, auth: unknown, socket: Duplex): Promise<Verdict> {
    const { authenticate, limits } = this.#settings;
    const { verdict, settled } = runAuthenticate(authenticate!, request, auth, limits.handshakeTimeoutMs);
    let leave = (): void => void socket.off("close", stay);
    const stay = (): void => {
      this.#connections++;
      leave = this.#leave;
    };
    socket.once("close", stay);
    void settled.then((outcome) => {
      leave();
      if ("error" in outcome) this.#delegate.failed(outcome.error);
    });
    return verdict;
  }

  /** Refuses all further requests with 503, and cuts the sockets that wait for `authenticate`. */
  shut(): void {
    this.#isShut = true;
    for (const socket of this.#deciding) socket.destroy();
  }

  /**
   * Shuts the gate, waits until the delegate has closed every connection, and detaches from the HTTP server. Stops the HTTP
   * server if the gate made it. Never rejects.
   */
  async close(): Promise<void> {
    this.shut();
    // Not `once` of node:events, which rejects when a client resets its connection.
    await Promise.all([...this.#sockets].map((socket) => new Promise((resolve) => socket.once("close", resolve))));
    const http = this.#http;
    if (http === undefined) return;
    // Not before, so that clients that connected meanwhile were refused with 503.
    this.#detach(http);
    if (this.#settings.server !== undefined || !http.listening) return;
    const closed = new Promise((resolve) => http.close(resolve));
    // Otherwise, a client that never ends its request would keep the server open for ever.
    http.closeAllConnections();
    await closed;
  }

  #awaitVerdict(verdict: Promise<Verdict>, request: IncomingMessage, socket: Duplex, head: Buffer): void {
    this.#deciding.add(socket);
    // Until `ws` takes the socket, it has no other listener, and an error without a listener ends the process.
    socket.on("error", ignore);
    void verdict.then((decision) => {
      this.#deciding.delete(socket);
      socket.off("error", ignore);
      if ("refusal" in decision) return this.#refuse(decision.refusal, request, socket, head);
      if (!this.#isShut) this.#admit(decision.admission, request, socket, head);
    });
  }

  #admit(admission: Admission | undefined, request: IncomingMessage, socket: Duplex, head: Buffer): void {
    // `ws` opens no WebSocket on a half-closed socket, so the socket must not claim a slot.
    if (!socket.readable || !socket.writable) return void socket.destroy();
    const refusal = this.#delegate.claimSlot?.(request);
    if (refusal !== undefined) return this.#refuse(refusal, request, socket, head);
    this.#upgrade(request, socket, head, (webSocket) => this.#delegate.admit(webSocket, admission, request, socket));
  }

  #upgrade(request: IncomingMessage, socket: Duplex, head: Buffer, use: (webSocket: GatheringWebSocket) => void): void {
    // The server's first frames leave in one packet with the 101.
    socket.cork();
    try {
      this.#upgrader.handleUpgrade(request, socket, head, use);
    } catch (error) {
      // Another listener has upgraded this socket, and `close` must not wait for its WebSocket.
      this.#sockets.delete(socket);
      this.#delegate.failed(error);
    } finally {
      socket.uncork();
    }
  }

  readonly #onUpgrade = (request: IncomingMessage, socket: Duplex, head: Buffer): void => {
    if (this.#hasOnlyGates("upgrade")) {
      if (!this.#isResponsible(request)) return;
      if (request.method === "POST") this.#reparse(request, socket, head);
      else this.handleUpgrade(request, socket, head);
      return;
    }
    if (this.#servesPath(request)) return this.handleUpgrade(request, socket, head);
    // Another listener, such as that of a development server, may serve the path, so the gate does not refuse. If no listener
    // takes the socket, an error on it must not end the process.
    socket.on("error", ignore);
  };

  /** Ignores requests while another listener is attached. That listener answers all requests, or passes them to `handleRequest`. */
  readonly #onRequest = (request: IncomingMessage, response: ServerResponse): void => {
    latestResponse.set(request.socket, response);
    if (!this.#hasOnlyGates("request") || !this.#isResponsible(request)) return;
    if (this.#delegate.request !== undefined) this.#delegate.request(request, response);
    else answerUpgradeRequired(response);
  };

  /** Returns true if only gates listen to the HTTP server. */
  #hasOnlyGates(event: "upgrade" | "request"): boolean {
    return this.#http!.listenerCount(event) === attached.get(this.#http!)!.size;
  }

  /** Returns true if this gate answers the request: the gate with its path does, or else the first gate. */
  #isResponsible(request: IncomingMessage): boolean {
    const gates = [...attached.get(this.#http!)!];
    return (gates.find((gate) => gate.#servesPath(request)) ?? gates[0]) === this;
  }

  /**
   * Passes the connection of a POST to Node again, without the offer to upgrade. A server may ignore the offer (RFC 9110, section
   * 7.8), but Node emits no "request" for it. Java's client offers HTTP/2 with its requests. Requests that are pipelined behind
   * the POST stay on the connection, and are read after it.
   */
  #reparse(request: IncomingMessage, socket: Duplex, head: Buffer): void {
    const response = latestResponse.get(socket);
    // Node orders responses only within one parser of a connection, so the next parser starts when the last response has left.
    if (response !== undefined && !response.writableFinished) {
      const again = (all: Buffer): void => this.#reparse(request, socket, all);
      return waitForResponse(response, socket, head, this.#delegate.maxFrameBytes, again);
    }
    // A response that ends the connection leaves nothing to read.
    if (socket.writableEnded) return;
    socket.unshift(head);
    socket.unshift(withoutUpgrade(request));
    this.#http!.emit(isTls(request) ? "secureConnection" : "connection", socket);
    socket.resume();
  }

  #attach(http: HttpServer): void {
    const gates = attached.get(http) ?? new Set<Gate>();
    const { path } = this.#settings;
    for (const gate of gates) {
      const other = gate.#settings;
      if (other.path !== undefined && path !== undefined && other.path !== path) continue;
      throw new TypeError(
        `This HTTP server has a server at \`path\` "${other.path ?? "(any)"}" already, got "${path ?? "(any)"}"`,
      );
    }
    attached.set(http, gates.add(this));
    http.on("upgrade", this.#onUpgrade);
    http.on("request", this.#onRequest);
  }

  #detach(http: HttpServer): void {
    attached.get(http)!.delete(this);
    http.off("upgrade", this.#onUpgrade);
    http.off("request", this.#onRequest);
  }

  #servesPath({ url = "/" }: IncomingMessage): boolean {
    const { path } = this.#settings;
    return path === undefined || url === path || url.startsWith(`${path}?`);
  }

  #refuse(refusal: Refusal, request: IncomingMessage, socket: Duplex, head: Buffer): void {
    // Reported before the answer: afterwards the socket may be closed, and its remote address unknown.
    this.#delegate.refused(refusal, request);
    if (BYE_STATUS.has(refusal.status) && this.#delegate.chooseProtocol(offeredBy(request)) === PROTOCOL) {
      this.#upgrade(request, socket, head, (webSocket) => refuseWithBye(webSocket, refusal));
    } else answerRefusal(socket, refusal);
  }
}

/** How long a refused client may take to answer the close. */
const BYE_TIMEOUT_MS = 1000;

/** After so many frames of a refused client, no more are read. It may send some before it reads the close. */
const BYE_MAX_FRAMES = 100;

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

/** Sends a bye and closes, with 4401 for HTTP's 401. Makes no peer. */
function refuseWithBye(webSocket: GatheringWebSocket, { status, reason }: Refusal): void {
  // Frames of a refused client are ignored, even malformed ones.
  webSocket.on("error", ignore);
  let frames = 0;
  const count = (): void => {
    if (++frames === BYE_MAX_FRAMES) webSocket.pause();
  };
  webSocket.on("message", count).on("ping", count).on("pong", count);
  const code = fromHttpStatus(status);
  webSocket.send(byeFrame({ code, reason }));
  webSocket.close(code, cutReason(reason));
  setTimeout(() => webSocket.terminate(), BYE_TIMEOUT_MS).unref();
}

/** Makes an HTTP server that limits how long the head and the body of a request may take. */
function makeHttp(timeoutMs: number): HttpServer {
  return createServer({
    headersTimeout: timeLimit(timeoutMs),
    requestTimeout: timeLimit(timeoutMs * 2),
    connectionsCheckingInterval: Math.min(timeoutMs, 1000),
    keepAliveTimeout: 5000,
  });
}

/** Returns a limit as Node's HTTP server takes it, with 0 for none. */
function timeLimit(ms: number): number {
  return ms === Infinity ? 0 : Math.min(ms, LONGEST_DELAY_MS);
}

function hostInUrl({ address, family }: AddressInfo): string {
  if (address === "0.0.0.0" || address === "::") return "localhost";
  return family === "IPv6" ? `[${address}]` : address;
}

function ignore(): void {}
