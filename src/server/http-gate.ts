/** The gate of an HTTP server: takes its upgrades and its requests, and opens WebSockets by `ws`. */
import { createServer, type IncomingMessage, type Server as HttpServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { Duplex } from "node:stream";
import { WebSocketServer, type Server, type ServerOptions } from "ws";
import { LONGEST_DELAY_MS } from "../base/deadlines.js";
import { CLOSE_TIMEOUT_MS, GatheringWebSocket, pieceLimits } from "../socket/ws.js";
import { closeWithBye } from "./closing.js";
import { Gate, type GateDelegate, type TakeSocket } from "./gate.js";
import type { GateSettings } from "./options.js";
import {
  answerRefusal,
  answerUpgradeRequired,
  isTls,
  waitForResponse,
  withoutUpgrade,
  type Refusal,
} from "./upgrade.js";

/** What an HTTP gate makes of what it accepts. None of its functions throws. */
export interface HttpParts<W> {
  /** Makes the socket of an open WebSocket over `raw`. */
  socketOf(webSocket: GatheringWebSocket, raw: Duplex): W;
  /** True if these sockets answer pings themselves, with a bound, which `ws` does not have. */
  readonly answersPings?: boolean;
  /**
   * Takes a request that is no upgrade. The gate passes requests of an HTTP server that it did not make only while no other
   * listener is attached. Without this function, the gate answers with 426.
   */
  request?(request: IncomingMessage, response: ServerResponse): void;
}

/** The gates on each HTTP server. Several gates may share a server, each with its own path. */
const attached = new WeakMap<HttpServer, Set<HttpGate<any>>>();

/** The latest response on each HTTP connection. */
const latestResponse = new WeakMap<Duplex, ServerResponse>();

/** Accepts or refuses the clients of an HTTP server. The constructor throws a `TypeError` if another gate has its path. */
export class HttpGate<W> extends Gate<W> {
  readonly #parts: HttpParts<W>;
  readonly #upgrader: Server<typeof GatheringWebSocket>;
  readonly #http: HttpServer | undefined;
  #hasWarned = false;

  constructor(settings: GateSettings, delegate: GateDelegate<W>, parts: HttpParts<W>) {
    super(settings, delegate);
    this.#parts = parts;
    this.#upgrader = new WebSocketServer<typeof GatheringWebSocket>({
      noServer: true,
      clientTracking: false,
      WebSocket: GatheringWebSocket,
      // Compression costs memory and CPU for each connection.
      perMessageDeflate: false,
      maxPayload: delegate.maxFrameBytes,
      ...pieceLimits(delegate.maxFrameBytes),
      closeTimeout: CLOSE_TIMEOUT_MS,
      autoPong: parts.answersPings !== true,
      // Without this function, `ws` agrees to any subprotocol.
      handleProtocols: (offered) => delegate.chooseProtocol(offered) ?? false,
    } as ServerOptions<typeof GatheringWebSocket>);
    const { server, port, limits } = settings;
    this.#http = server ?? (port === undefined ? undefined : makeHttp(limits.handshakeTimeoutMs));
    if (this.#http !== undefined) this.#attach(this.#http);
  }

  get url(): string {
    const address = this.#http?.address();
    if (!address || typeof address === "string") return "";
    const scheme = "setSecureContext" in this.#http! ? "wss" : "ws";
    return `${scheme}://${hostInUrl(address)}:${address.port}${this.settings.path ?? "/"}`;
  }

  listen(): Promise<void> {
    const { port, host, server } = this.settings;
    const http = this.#http;
    if (http === undefined || server !== undefined) return Promise.resolve();
    return new Promise((resolve, reject) => {
      http.once("error", reject);
      http.listen(port, host, () => {
        http.off("error", reject);
        http.on("error", (error) => this.delegate.failed(error));
        resolve();
      });
    });
  }

  /**
   * Shuts the gate, waits until the delegate has closed every connection, and detaches from the HTTP server. Stops the HTTP
   * server if the gate made it. Never rejects.
   */
  override async close(): Promise<void> {
    await super.close();
    const http = this.#http;
    if (http === undefined) return;
    // Not before, so that clients that connected meanwhile were refused with 503.
    this.#detach(http);
    if (this.settings.server !== undefined || !http.listening) return;
    const closed = new Promise((resolve) => http.close(resolve));
    // Otherwise, a client that never ends its request would keep the server open for ever.
    http.closeAllConnections();
    await closed;
  }

  protected open(request: IncomingMessage, raw: Duplex, head: Buffer, use: TakeSocket<W>): void {
    this.#upgrade(request, raw, head, (webSocket) => use(this.#parts.socketOf(webSocket, raw), webSocket.protocol));
  }

  protected answer(raw: Duplex, refusal: Refusal): void {
    answerRefusal(raw, refusal);
  }

  protected refuseWithBye(request: IncomingMessage, raw: Duplex, head: Buffer, refusal: Refusal): void {
    this.#upgrade(request, raw, head, (webSocket) => refuseWithBye(webSocket, refusal));
  }

  #upgrade(request: IncomingMessage, raw: Duplex, head: Buffer, use: (webSocket: GatheringWebSocket) => void): void {
    // The server's first frames leave in one packet with the 101.
    raw.cork();
    try {
      this.#upgrader.handleUpgrade(request, raw, head, use);
    } finally {
      raw.uncork();
    }
  }

  readonly #onUpgrade = (request: IncomingMessage, socket: Duplex, head: Buffer): void => {
    if (this.#hasOnlyGates("upgrade")) {
      if (!this.#isResponsible(request)) return;
      if (request.method === "POST") this.#reparse(request, socket, head);
      else this.handleUpgrade(request, socket, head);
      return;
    }
    if (this.settings.path === undefined) this.#warnOfListener();
    if (this.servesPath(request)) return this.handleUpgrade(request, socket, head);
    // Another listener, such as that of a development server, may serve the path, so the gate does not refuse. If no listener
    // takes the socket, an error on it must not end the process.
    socket.on("error", ignore);
  };

  /** Warns once that this gate and another listener take the same upgrades. */
  #warnOfListener(): void {
    if (this.#hasWarned) return;
    this.#hasWarned = true;
    process.emitWarning(SHARED_UPGRADES, "reciproc");
  }

  /** Ignores requests while another listener is attached. That listener answers all requests, or passes them to `handleRequest`. */
  readonly #onRequest = (request: IncomingMessage, response: ServerResponse): void => {
    latestResponse.set(request.socket, response);
    if (!this.#hasOnlyGates("request") || !this.#isResponsible(request)) return;
    if (this.#parts.request !== undefined) this.#parts.request(request, response);
    else answerUpgradeRequired(response);
  };

  /** Returns true if only gates listen to the HTTP server. */
  #hasOnlyGates(event: "upgrade" | "request"): boolean {
    return this.#http!.listenerCount(event) === attached.get(this.#http!)!.size;
  }

  /** Returns true if this gate answers the request: the gate with its path does, or else the first gate. */
  #isResponsible(request: IncomingMessage): boolean {
    const gates = [...attached.get(this.#http!)!];
    return (gates.find((gate) => gate.servesPath(request)) ?? gates[0]) === this;
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
      return waitForResponse(response, socket, head, this.delegate.maxFrameBytes, again);
    }
    // A response that ends the connection leaves nothing to read.
    if (socket.writableEnded) return;
    socket.unshift(head);
    socket.unshift(withoutUpgrade(request));
    this.#http!.emit(isTls(request) ? "secureConnection" : "connection", socket);
    socket.resume();
  }

  #attach(http: HttpServer): void {
    const gates = attached.get(http) ?? new Set<HttpGate<any>>();
    const { path } = this.settings;
    for (const gate of gates) {
      const other = gate.settings;
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
}

const SHARED_UPGRADES =
  "The HTTP server has another listener for `upgrade`, and this server takes the upgrades of every path: give `path`";

/** After so many frames of a refused client, no more are read. It may send some before it reads the close. */
const BYE_MAX_FRAMES = 100;

/** Sends a bye and closes. Makes no peer. */
function refuseWithBye(webSocket: GatheringWebSocket, refusal: Refusal): void {
  // Frames of a refused client are ignored, even malformed ones.
  webSocket.on("error", ignore);
  let frames = 0;
  const count = (): void => {
    if (++frames === BYE_MAX_FRAMES) webSocket.pause();
  };
  webSocket.on("message", count).on("ping", count).on("pong", count);
  closeWithBye(webSocket, refusal);
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
