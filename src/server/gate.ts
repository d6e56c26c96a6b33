/**
 * The gate: an HTTP server, who of those that ask is let in, and how many there are. What comes through it are open
 * WebSockets; it knows nothing of what is said over them.
 */
import { createServer, type IncomingMessage, type Server as HttpServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { Duplex } from "node:stream";
import { WebSocketServer, type ServerOptions, type WebSocket } from "ws";
import { LONGEST_DELAY_MS } from "../core/deadlines.js";
import { cutReason } from "../core/transport.js";
import { PROTOCOL, sayBye } from "../link/packed.js";
import { CLOSE_TIMEOUT_MS } from "../sockets/ws.js";
import type { GateSettings } from "./options.js";
import {
  answerRefusal,
  checkHandshake,
  checkOrigin,
  runAuthenticate,
  type Authenticate,
  type Refusal,
} from "./upgrade.js";

/** Whoever takes what comes through a gate. None of its functions throws. */
export interface GateOwner {
  /** Longest incoming frame, in bytes; `ws` stops a longer one before it is gathered. */
  readonly maxFrameBytes: number;
  /** Whether it answers pings itself, with a bound, which `ws` does not have. */
  readonly answersPings?: boolean;
  /** Chooses the subprotocol among those a client offers; `undefined` for none. */
  chooseProtocol(offered: ReadonlySet<string>): string | undefined;
  /** Takes a connection that was let in. `data` is what `authenticate` answered, `protocol` the subprotocol, empty for none. */
  admit(webSocket: WebSocket, data: unknown, request: IncomingMessage, protocol: string): void;
  /** Somebody was refused; told before it is answered. */
  refused(refusal: Refusal, request: IncomingMessage): void;
  /** Takes an error that has no caller to go to: `authenticate` threw, the HTTP server failed. */
  failed(error: unknown): void;
}

/** The gates on each HTTP server: several may share one, each with its path. */
const attached = new WeakMap<HttpServer, Set<Gate>>();

/** Decides upgrades. Made with settings that are checked already; throws a `TypeError` when another gate has its path. */
export class Gate {
  readonly #settings: GateSettings;
  readonly #owner: GateOwner;
  readonly #upgrader: WebSocketServer;
  readonly #http: HttpServer | undefined;
  /** Sockets whose `authenticate` still runs, those that are closed meanwhile included. */
  readonly #deciding = new Set<Duplex>();
  /** Sockets that were not refused at once and are not closed. */
  readonly #sockets = new Set<Duplex>();
  /** How many are in either of the two. */
  #connections = 0;
  #isShut = false;

  constructor(settings: GateSettings, owner: GateOwner) {
    this.#settings = settings;
    this.#owner = owner;
    this.#upgrader = new WebSocketServer({
      noServer: true,
      clientTracking: false,
      // Compression costs memory and CPU for each connection.
      perMessageDeflate: false,
      maxPayload: owner.maxFrameBytes,
      closeTimeout: CLOSE_TIMEOUT_MS,
      autoPong: owner.answersPings !== true,
      // Left to itself, `ws` agrees to any subprotocol it never heard of.
      handleProtocols: (offered) => owner.chooseProtocol(offered) ?? false,
    } as ServerOptions);
    const { server, port, limits } = settings;
    this.#http = server ?? (port === undefined ? undefined : makeHttp(limits.handshakeTimeoutMs));
    if (this.#http !== undefined) this.#attach(this.#http);
  }

  /** Where it listens, such as `ws://127.0.0.1:3000/rpc`. Empty without an HTTP server, and while that does not listen. */
  get url(): string {
    const address = this.#http?.address();
    if (!address || typeof address === "string") return "";
    const scheme = "setSecureContext" in this.#http! ? "wss" : "ws";
    return `${scheme}://${reachable(address)}:${address.port}${this.#settings.path ?? "/"}`;
  }

  /** Starts listening, where there is a `port`. Rejects when the address is taken. */
  listen(): Promise<void> {
    const { port, host, server } = this.#settings;
    const http = this.#http;
    if (http === undefined || server !== undefined) return Promise.resolve();
    return new Promise((resolve, reject) => {
      http.once("error", reject);
      http.listen(port, host, () => {
        http.off("error", reject);
        http.on("error", (error) => this.#owner.failed(error));
        resolve();
      });
    });
  }

  /** Decides an upgrade. Answers and ends what it refuses. Never throws or rejects. */
  handleUpgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void {
    const refusal = this.#checkUpgrade(request);
    if (refusal !== undefined) return this.#refuse(refusal, request, socket, head);
    this.#connections++;
    this.#sockets.add(socket);
    socket.once("close", () => this.#leave(this.#sockets, socket));
    const { authenticate } = this.#settings;
    if (authenticate === undefined) this.#admit(undefined, request, socket, head);
    else this.#authenticate(authenticate, request, socket, head);
  }

  /** From now on everybody is refused with 503, and whoever is not decided about is cut. */
  shut(): void {
    this.#isShut = true;
    for (const socket of this.#deciding) socket.destroy();
  }

  /**
   * Shuts, waits until every connection that was let in is closed, which is its owner's to do, and lets go of the HTTP
   * server; one of its own stops. Never rejects.
   */
  async close(): Promise<void> {
    this.shut();
    // Not by `once` of node:events: that rejects when a client resets its connection.
    await Promise.all([...this.#sockets].map((socket) => new Promise((resolve) => socket.once("close", resolve))));
    const http = this.#http;
    if (http === undefined) return;
    // Not before: whoever came meanwhile was refused with 503.
    this.#detach(http);
    if (this.#settings.server !== undefined || !http.listening) return;
    const closed = new Promise((resolve) => http.close(resolve));
    // A client that never ends its request would hold the server open for ever.
    http.closeAllConnections();
    await closed;
  }

  #authenticate(authenticate: Authenticate, request: IncomingMessage, socket: Duplex, head: Buffer): void {
    const { verdict, settled } = runAuthenticate(authenticate, request, this.#settings.limits.handshakeTimeoutMs);
    this.#deciding.add(socket);
    // Until `ws` takes the socket, nobody else listens, and an error without a listener ends the process.
    socket.on("error", ignore);
    void verdict.then((decision) => {
      socket.off("error", ignore);
      if ("refusal" in decision) return this.#refuse(decision.refusal, request, socket, head);
      if (!this.#isShut) this.#admit(decision.data, request, socket, head);
    });
    // Its work goes on after its time is up or its client is gone, and counts as a connection until it ends.
    void settled.then((outcome) => {
      this.#leave(this.#deciding, socket);
      if ("error" in outcome) this.#owner.failed(outcome.error);
    });
  }

  /** One of the two things that make a connection is over: the last one counts it down. */
  #leave(part: Set<Duplex>, socket: Duplex): void {
    part.delete(socket);
    if (!this.#sockets.has(socket) && !this.#deciding.has(socket)) this.#connections--;
  }

  #admit(data: unknown, request: IncomingMessage, socket: Duplex, head: Buffer): void {
    this.#upgrade(request, socket, head, (webSocket) =>
      this.#owner.admit(webSocket, data, request, webSocket.protocol),
    );
  }

  #upgrade(request: IncomingMessage, socket: Duplex, head: Buffer, use: (webSocket: WebSocket) => void): void {
    try {
      this.#upgrader.handleUpgrade(request, socket, head, use);
    } catch (error) {
      // Somebody else has taken this socket.
      this.#owner.failed(error);
    }
  }

  readonly #onUpgrade = (request: IncomingMessage, socket: Duplex, head: Buffer): void => {
    if (this.#servesPath(request)) return this.handleUpgrade(request, socket, head);
    const ours = [...attached.get(this.#http!)!];
    // A listener that is not ours, such as a development server's, may serve the path: then it is not ours to refuse.
    if (this.#http!.listenerCount("upgrade") > ours.length) {
      // Should it leave the socket alone as well, an error on it must not end the process.
      socket.on("error", ignore);
      return;
    }
    const isServed = ours.some((gate) => gate.#servesPath(request));
    if (!isServed && ours[0] === this) this.handleUpgrade(request, socket, head);
  };

  #attach(http: HttpServer): void {
    const ours = attached.get(http) ?? new Set();
    const { path } = this.#settings;
    for (const gate of ours) {
      const other = gate.#settings;
      if (other.path !== undefined && path !== undefined && other.path !== path) continue;
      throw new TypeError(
        `This HTTP server has a server at \`path\` "${other.path ?? "(any)"}" already, got "${path ?? "(any)"}"`,
      );
    }
    attached.set(http, ours.add(this));
    http.on("upgrade", this.#onUpgrade);
  }

  #detach(http: HttpServer): void {
    attached.get(http)!.delete(this);
    http.off("upgrade", this.#onUpgrade);
  }

  #servesPath({ url = "/" }: IncomingMessage): boolean {
    const { path } = this.#settings;
    return path === undefined || url === path || url.startsWith(`${path}?`);
  }

  #checkUpgrade(request: IncomingMessage): Refusal | undefined {
    const { path, limits } = this.#settings;
    const malformed = checkHandshake(request);
    if (malformed !== undefined) return malformed;
    if (this.#isShut) return { status: 503, reason: "the server is closing" };
    if (!this.#servesPath(request))
      return { status: 404, reason: `nothing is served at this path; \`path\` is "${path}"` };
    if (this.#connections >= limits.maxConnections) {
      return { status: 503, reason: `\`limits.maxConnections\`, ${limits.maxConnections}, is reached` };
    }
    const address = this.#http?.address();
    const boundTo = typeof address === "string" ? address : address?.address;
    return checkOrigin(request, boundTo, this.#settings);
  }

  #refuse(refusal: Refusal, request: IncomingMessage, socket: Duplex, head: Buffer): void {
    // Told first: once it is answered the client may be gone, and its address with it.
    this.#owner.refused(refusal, request);
    if (BYE_STATUS.has(refusal.status) && this.#owner.chooseProtocol(offeredBy(request)) === PROTOCOL) {
      this.#upgrade(request, socket, head, (webSocket) => dismiss(webSocket, refusal));
    } else answerRefusal(socket, refusal);
  }
}

/** How long somebody who is not let in may take to answer the close. */
const DISMISS_MS = 1000;

/** What a browser must be told in a frame, because it shows a page no HTTP status. */
const BYE_STATUS = new Set([401, 403, 503]);

function offeredBy({ headers }: IncomingMessage): ReadonlySet<string> {
  return new Set((headers["sec-websocket-protocol"] ?? "").split(",").map((offered) => offered.trim()));
}

/** Says why, and closes: 4401 is HTTP's 401. No peer is made. */
function dismiss(webSocket: WebSocket, { status, reason }: Refusal): void {
  // What it still sends is not read, and may be malformed.
  webSocket.on("error", ignore);
  webSocket.send(sayBye({ code: 4000 + status, reason }));
  webSocket.close(4000 + status, cutReason(reason));
  setTimeout(() => webSocket.terminate(), DISMISS_MS).unref();
}

/** An HTTP server that has nothing to do but to upgrade. A request must be complete in time; Node looks every so often. */
function makeHttp(timeoutMs: number): HttpServer {
  const limit = timeoutMs === Infinity ? 0 : Math.min(timeoutMs, LONGEST_DELAY_MS);
  const times = {
    headersTimeout: limit,
    requestTimeout: limit,
    connectionsCheckingInterval: Math.min(limit || 30_000, 1000),
  };
  return createServer({ ...times, keepAliveTimeout: 5000 }, answerPlainHttp);
}

function answerPlainHttp(_request: IncomingMessage, response: ServerResponse): void {
  response.writeHead(426, { "Content-Type": "text/plain; charset=utf-8", Connection: "Upgrade", Upgrade: "websocket" });
  response.end("This server speaks JSON-RPC 2.0 over WebSocket.\n");
}

function reachable({ address, family }: AddressInfo): string {
  if (address === "0.0.0.0" || address === "::") return "localhost";
  return family === "IPv6" ? `[${address}]` : address;
}

function ignore(): void {}
