/** A server: many peers that share their handlers, who gets in, and what is sent to many at once. */
import { EventEmitter } from "eventemitter3";
import { createServer, type IncomingMessage, type Server as HttpServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { Duplex } from "node:stream";
import { WebSocketServer, type ServerOptions, type WebSocket } from "ws";
import { CallContext } from "../core/context.js";
import { LONGEST_DELAY_MS } from "../core/deadlines.js";
import type { AnyMethods, Contract } from "../core/contract.js";
import { endPeer, Peer, type AnyPeer } from "../peer/peer.js";
import type { Settings } from "../core/settings.js";
import { settingsOf } from "../peer/settings.js";
import { tell } from "../core/tell.js";
import { cutReason, type Transport } from "../core/transport.js";
import { PACK_OVERHEAD_BYTES, PackedLink, PROTOCOL, sayBye } from "../link/packed.js";
import { plain } from "../link/plain.js";
import { CLOSE_TIMEOUT_MS, WsSocket } from "../sockets/ws.js";
import { groupOf, Topics, type Group, type Topic } from "./groups.js";
import { checkOptions, type Authenticate, type CheckedOptions, type ServeOptions } from "./options.js";
import { answerRefusal, checkHandshake, checkOrigin, runAuthenticate, type Refusal } from "./upgrade.js";

/** What a server emits. A listener that throws is reported to `error`; without listeners nothing is thrown or logged. */
export type ServerEvents<L extends Contract<L>, R extends Contract<R>, D> = {
  /** Somebody connected; emitted before the peer's first message is dispatched. Not for `accept`, which answers its peer. */
  peer(peer: Peer<L, R, D>, request: IncomingMessage): void;
  /** An upgrade was refused. `reason` names the rule, and the option that would allow it. */
  refuse(refusal: Refusal, request: IncomingMessage): void;
  /** What went wrong without a caller to tell: every peer's `error`, with the peer; `authenticate` threw; the HTTP server failed. */
  error(error: unknown, peer?: Peer<L, R, D>): void;
};

/** The servers on each HTTP server: several may share one, each with its path. */
const attached = new WeakMap<HttpServer, Set<Server<any, any, any>>>();

/**
 * Serves contract `L` to many peers and calls them back by contract `R`; `D` is what `authenticate` answers. Made by `serve`.
 */
export class Server<
  L extends Contract<L> = AnyMethods,
  R extends Contract<R> = AnyMethods,
  D = unknown,
> extends EventEmitter<ServerEvents<L, R, D>> {
  /** All open peers. */
  readonly peers: Group<L, R, D>;
  readonly #options: CheckedOptions;
  readonly #settings: Settings;
  readonly #peers = new Set<Peer<L, R, D>>();
  readonly #topics = new Topics<L, R, D>();
  readonly #upgrader: WebSocketServer;
  readonly #http: HttpServer | undefined;
  /** Sockets whose upgrade is being decided, or whose `authenticate` still runs. */
  readonly #upgrading = new Set<Duplex>();
  /** Sockets that were let in and are not closed, those of closing peers included. */
  readonly #sockets = new Set<Duplex>();
  #closed: Promise<void> | undefined;

  /** Use `serve`. Throws a `TypeError` for bad options. */
  constructor(options: ServeOptions<L, R, D>) {
    super();
    this.#options = checkOptions(options as never);
    this.#settings = settingsOf(this.#options.peer, {
      Context: contextOf(this),
      failed: (error, peer) => this.#report(error, peer as Peer<L, R, D>),
      ended: (peer) => this.#forget(peer as Peer<L, R, D>),
    });
    this.peers = groupOf(() => this.#peers);
    this.#upgrader = new WebSocketServer({
      noServer: true,
      clientTracking: false,
      // Compression costs memory and CPU for each connection.
      perMessageDeflate: false,
      maxPayload: this.#settings.limits.maxMessageBytes + PACK_OVERHEAD_BYTES,
      closeTimeout: CLOSE_TIMEOUT_MS,
      // Left to itself, `ws` agrees to any subprotocol it never heard of.
      handleProtocols: (offered) => (this.#options.link === "packed" && offered.has(PROTOCOL) ? PROTOCOL : false),
    } as ServerOptions);
    this.#http =
      this.#options.server ??
      (this.#options.port === undefined ? undefined : makeHttp(this.#options.limits.handshakeTimeoutMs));
    if (this.#http !== undefined) this.#attach(this.#http);
  }

  /** Where it listens, such as `ws://127.0.0.1:3000/rpc`. Empty with `noServer`, and while it does not listen. */
  get url(): string {
    const address = this.#http?.address();
    if (!address || typeof address === "string") return "";
    const scheme = "setSecureContext" in this.#http! ? "wss" : "ws";
    return `${scheme}://${reachable(address)}:${address.port}${this.#options.path ?? "/"}`;
  }

  /** The topic of that name. It needs no making: a topic is there while it has peers. */
  topic(name: string): Topic<L, R, D> {
    return this.#topics.topic(name, (peer) => this.#peers.has(peer));
  }

  /** Makes a peer of any open transport, with this server's handlers. No rule of the handshake applies: `data` is the caller's word. */
  accept(transport: Transport, data: D): Peer<L, R, D> {
    // The settings stand for the options they were made of; a server's context has more than a peer's.
    const peer = new Peer<L, R, D>(transport, this.#settings as never);
    peer.data = data;
    if (peer.state === "open") this.#peers.add(peer);
    if (this.#closed !== undefined) endPeer(peer, 1001, CLOSING);
    return peer;
  }

  /** Decides an upgrade, for an application that listens itself (`noServer`). Answers and ends what it refuses. Never throws or rejects. */
  handleUpgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void {
    const refusal = this.#checkUpgrade(request);
    if (refusal !== undefined) return this.#refuse(refusal, request, socket, head);
    this.#sockets.add(socket);
    socket.once("close", () => this.#sockets.delete(socket));
    const { authenticate } = this.#options;
    if (authenticate === undefined)
      this.#upgrade(request, socket, head, (webSocket) => this.#welcome(webSocket, undefined as D, request));
    else this.#authenticate(authenticate, request, socket, head);
  }

  #authenticate(authenticate: Authenticate, request: IncomingMessage, socket: Duplex, head: Buffer): void {
    const { verdict, settled } = runAuthenticate(authenticate, request, this.#options.limits.handshakeTimeoutMs);
    this.#upgrading.add(socket);
    // Until `ws` takes the socket, nobody else listens, and an error without a listener ends the process.
    socket.on("error", ignore);
    void verdict.then((decision) => {
      socket.off("error", ignore);
      if ("refusal" in decision) return this.#refuse(decision.refusal, request, socket, head);
      if (this.#closed !== undefined) return;
      this.#upgrade(request, socket, head, (webSocket) => this.#welcome(webSocket, decision.data as D, request));
    });
    // Its work goes on after its time is up or its client is gone, and counts as a connection until it ends.
    void settled.then((outcome) => {
      this.#upgrading.delete(socket);
      if ("error" in outcome) this.#report(outcome.error);
    });
  }

  #upgrade(request: IncomingMessage, socket: Duplex, head: Buffer, use: (webSocket: WebSocket) => void): void {
    try {
      this.#upgrader.handleUpgrade(request, socket, head, use);
    } catch (error) {
      // Somebody else has taken this socket.
      this.#report(error);
    }
  }

  /**
   * Stops taking connections, closes every peer with 1001, and resolves when all are gone and, with `port`, the HTTP server
   * has stopped. A peer that does not answer the close is cut after 5 seconds. Never rejects; a second call waits for the first.
   */
  close(): Promise<void> {
    return (this.#closed ??= this.#shutDown());
  }

  /** `close()`, for `await using`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** Starts listening, for `serve`. Rejects when the address is taken. @internal */
  listen(): Promise<void> {
    const { port, host, server } = this.#options;
    const http = this.#http;
    if (http === undefined || server !== undefined) return Promise.resolve();
    return new Promise((resolve, reject) => {
      http.once("error", reject);
      http.listen(port, host, () => {
        http.off("error", reject);
        http.on("error", (error) => this.#report(error));
        resolve();
      });
    });
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
    const isServed = ours.some((server) => server.#servesPath(request));
    if (!isServed && ours[0] === this) this.handleUpgrade(request, socket, head);
  };

  #attach(http: HttpServer): void {
    const ours = attached.get(http) ?? new Set();
    const { path } = this.#options;
    for (const server of ours) {
      const other = server.#options;
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
    const { path } = this.#options;
    return path === undefined || url === path || url.startsWith(`${path}?`);
  }

  #checkUpgrade(request: IncomingMessage): Refusal | undefined {
    const { path, limits } = this.#options;
    const malformed = checkHandshake(request);
    if (malformed !== undefined) return malformed;
    if (this.#closed !== undefined) return { status: 503, reason: "the server is closing" };
    if (!this.#servesPath(request))
      return { status: 404, reason: `nothing is served at this path; \`path\` is "${path}"` };
    const abandoned = [...this.#upgrading].filter((socket) => !this.#sockets.has(socket)).length;
    if (this.#sockets.size + abandoned >= limits.maxConnections) {
      return { status: 503, reason: `\`limits.maxConnections\`, ${limits.maxConnections}, is reached` };
    }
    const address = this.#http?.address();
    const boundTo = typeof address === "string" ? address : address?.address;
    return checkOrigin(request, boundTo, this.#options);
  }

  #refuse(refusal: Refusal, request: IncomingMessage, socket: Duplex, head: Buffer): void {
    // Told first: once it is answered the client may be gone, and its address with it.
    tell(this, "refuse", [refusal, request], (error) => this.#report(error));
    if (this.#options.link === "packed" && BYE_STATUS.has(refusal.status) && offers(request, PROTOCOL)) {
      this.#upgrade(request, socket, head, (webSocket) => dismiss(webSocket, refusal));
    } else answerRefusal(socket, refusal);
  }

  #welcome(webSocket: WebSocket, data: D, request: IncomingMessage): void {
    const { protocol } = webSocket;
    const socket = new WsSocket(webSocket, this.#settings.limits.maxMessageBytes, request.socket);
    const peer = this.accept(protocol === PROTOCOL ? new PackedLink(socket, "server") : plain(socket), data);
    tell(this, "peer", [peer, request], (error) => this.#report(error, peer));
  }

  #forget(peer: Peer<L, R, D>): void {
    this.#peers.delete(peer);
    this.#topics.leaveAll(peer);
  }

  #report(error: unknown, peer?: AnyPeer): void {
    tell(this, "error", [error, peer]);
  }

  async #shutDown(): Promise<void> {
    for (const socket of this.#upgrading) socket.destroy();
    const peers = [...this.#peers];
    for (const peer of peers) endPeer(peer, 1001, CLOSING);
    await Promise.all([
      ...peers.map((peer) => peer.closed),
      // Not by `once` of node:events: that rejects when a client resets its connection.
      ...[...this.#sockets].map((socket) => new Promise((resolve) => socket.once("close", resolve))),
    ]);
    // Not before: whoever came meanwhile was refused with 503.
    if (this.#http !== undefined) this.#detach(this.#http);
    if (this.#http === undefined || this.#options.server !== undefined || !this.#http.listening) return;
    const closed = new Promise((resolve) => this.#http!.close(resolve));
    // A client that never ends its request would hold the server open for ever.
    this.#http.closeAllConnections();
    await closed;
  }
}

const CLOSING = "the server is closing";
/** How long somebody who is not let in may take to answer the close. */
const DISMISS_MS = 1000;

/** What a browser must be told in a frame, because it shows a page no HTTP status. */
const BYE_STATUS = new Set([401, 403, 503]);

function offers({ headers }: IncomingMessage, protocol: string): boolean {
  return (headers["sec-websocket-protocol"] ?? "").split(",").some((offered) => offered.trim() === protocol);
}

/** Says why, and closes: 4401 is HTTP's 401. No peer is made. */
function dismiss(webSocket: WebSocket, { status, reason }: Refusal): void {
  // What it still sends is not read, and may be malformed.
  webSocket.on("error", ignore);
  webSocket.send(sayBye({ code: 4000 + status, reason }));
  webSocket.close(4000 + status, cutReason(reason));
  setTimeout(() => webSocket.terminate(), DISMISS_MS).unref();
}

/** The `context` of a server's calls. */
function contextOf(server: unknown): typeof CallContext {
  return class extends CallContext {
    get server(): unknown {
      return server;
    }
  };
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
