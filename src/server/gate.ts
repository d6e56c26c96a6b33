/**
 * The gate: an HTTP server, who of those that ask is let in, and how many there are. What comes through it are open
 * WebSockets, and whatever its owner makes of plain requests; it knows nothing of what is said over them.
 */
import { createServer, type IncomingMessage, type Server as HttpServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { Duplex } from "node:stream";
import { WebSocketServer, type Server, type ServerOptions } from "ws";
import { fromHttpStatus } from "../close-codes.js";
import { LONGEST_DELAY_MS } from "../core/deadlines.js";
import { cutReason } from "../close-codes.js";
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
  type Refusal,
  type Verdict,
} from "./upgrade.js";

/** Whoever takes what comes through a gate. None of its functions throws. */
export interface GateOwner {
  /** Longest incoming frame, in bytes; `ws` stops a longer one before it is gathered. */
  readonly maxFrameBytes: number;
  /** Whether it answers pings itself, with a bound, which `ws` does not have. */
  readonly answersPings?: boolean;
  /** Whether a client that offers subprotocols is refused when none of them is chosen. */
  readonly wantsAgreement?: boolean;
  /** Returns how many connections beyond `limits.maxConnections` there may be for the sake of this upgrade. */
  reserved?(request: IncomingMessage): number;
  /** Claims a slot for a connection that is about to be let in. Returns why there is none. */
  claim?(request: IncomingMessage): Refusal | undefined;
  /** Chooses the subprotocol among those a client offers; `undefined` for none. */
  chooseProtocol(offered: ReadonlySet<string>): string | undefined;
  /** Takes a connection that was let in, over `socket`. `data` is what `authenticate` answered; `webSocket.protocol` is empty for none. */
  admit(webSocket: GatheringWebSocket, data: unknown, request: IncomingMessage, socket: Duplex): void;
  /**
   * Takes a request that is no upgrade: every one to an HTTP server of the gate's own, and to another while nobody else
   * listens. Where it is missing, they are answered with 426.
   */
  request?(request: IncomingMessage, response: ServerResponse): void;
  /** Somebody was refused; told before it is answered. */
  refused(refusal: Refusal, request: IncomingMessage): void;
  /** Takes an error that has no caller to go to: `authenticate` threw, the HTTP server failed. */
  failed(error: unknown): void;
}

/** Somebody who counts as a connection. */
export interface Entry {
  /** Whether `authenticate` lets them in; `undefined` where there is none. */
  readonly verdict: Promise<Verdict> | undefined;
  /** To be called once, when they are gone. */
  readonly leave: () => void;
}

/** The gates on each HTTP server: several may share one, each with its path. */
const attached = new WeakMap<HttpServer, Set<Gate>>();

/** The latest response on each HTTP connection. */
const latest = new WeakMap<Duplex, ServerResponse>();

/** Decides who gets in. Made with settings that are checked already; throws a `TypeError` when another gate has its path. */
export class Gate {
  readonly #settings: GateSettings;
  readonly #owner: GateOwner;
  readonly #upgrader: Server<typeof GatheringWebSocket>;
  readonly #http: HttpServer | undefined;
  /** Sockets that are being decided about. */
  readonly #deciding = new Set<Duplex>();
  /** Sockets that were not refused at once and are not closed. */
  readonly #sockets = new Set<Duplex>();
  #connections = 0;
  /** One for all: each connection keeps it until its end. */
  readonly #leave = (): void => void this.#connections--;
  #isShut = false;

  constructor(settings: GateSettings, owner: GateOwner) {
    this.#settings = settings;
    this.#owner = owner;
    this.#upgrader = new WebSocketServer<typeof GatheringWebSocket>({
      noServer: true,
      clientTracking: false,
      WebSocket: GatheringWebSocket,
      // Compression costs memory and CPU for each connection.
      perMessageDeflate: false,
      maxPayload: owner.maxFrameBytes,
      ...pieceLimits(owner.maxFrameBytes),
      closeTimeout: CLOSE_TIMEOUT_MS,
      autoPong: owner.answersPings !== true,
      // Left to itself, `ws` agrees to any subprotocol it never heard of.
      handleProtocols: (offered) => owner.chooseProtocol(offered) ?? false,
    } as ServerOptions<typeof GatheringWebSocket>);
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
    // An application may have thought about it for a while. Its end is told already, and would be waited for without end.
    if (socket.destroyed) return;
    const refusal =
      checkHandshake(request) ??
      this.checkRoom(request, true, true) ??
      this.checkOrigin(request) ??
      this.#checkOffer(request);
    if (refusal !== undefined) return this.#refuse(refusal, request, socket, head);
    const { verdict, leave } = this.enter(request);
    this.#sockets.add(socket);
    // Told once, and `once` costs three times as much memory.
    socket.on("close", () => {
      this.#sockets.delete(socket);
      leave();
    });
    if (verdict === undefined) this.#admit(undefined, request, socket, head);
    else this.#await(verdict, request, socket, head);
  }

  /** Why there is no place for a request: the gate is shut, another path is served, or too many are in. `path` is left to an application that has chosen it itself. */
  checkRoom(request: IncomingMessage, checksPath: boolean, isUpgrade: boolean): Refusal | undefined {
    const { path, limits } = this.#settings;
    if (this.#isShut) return { status: 503, reason: "the server is closing" };
    if (checksPath && !this.#servesPath(request))
      return { status: 404, reason: `nothing is served at this path; \`path\` is "${path}"` };
    const { maxConnections } = limits;
    if (this.#connections < maxConnections) return undefined;
    const reserved = isUpgrade ? (this.#owner.reserved?.(request) ?? 0) : 0;
    return this.#connections < maxConnections + reserved ? undefined : fullRefusal(maxConnections);
  }

  /** Why a request is refused for its `Host` or its `Origin`. */
  checkOrigin(request: IncomingMessage): Refusal | undefined {
    const address = this.#http?.address();
    const boundTo = typeof address === "string" ? address : address?.address;
    return checkOrigin(request, boundTo, this.#settings);
  }

  /** Who offers subprotocols and is agreed none gives up when the connection is there already: better not to open it. */
  #checkOffer(request: IncomingMessage): Refusal | undefined {
    if (this.#owner.wantsAgreement !== true || request.headers["sec-websocket-protocol"] === undefined)
      return undefined;
    if (this.#owner.chooseProtocol(offeredBy(request)) !== undefined) return undefined;
    const offer = request.headers["sec-websocket-protocol"];
    return { status: 400, reason: `none of the subprotocols "${offer}" is spoken here; offer none` };
  }

  /** Counts a connection, and asks `authenticate` who it is. */
  enter(request: IncomingMessage): Entry {
    const { authenticate, limits } = this.#settings;
    this.#connections++;
    if (authenticate === undefined) return { verdict: undefined, leave: this.#leave };
    let parts = 2;
    const leave = (): void => void (--parts === 0 && this.#connections--);
    const { verdict, settled } = runAuthenticate(authenticate, request, limits.handshakeTimeoutMs);
    // Its work goes on after its time is up or its client is gone, and counts as a connection until it ends.
    void settled.then((outcome) => {
      leave();
      if ("error" in outcome) this.#owner.failed(outcome.error);
    });
    return { verdict, leave };
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

  #await(verdict: Promise<Verdict>, request: IncomingMessage, socket: Duplex, head: Buffer): void {
    this.#deciding.add(socket);
    // Until `ws` takes the socket, nobody else listens, and an error without a listener ends the process.
    socket.on("error", ignore);
    void verdict.then((decision) => {
      this.#deciding.delete(socket);
      socket.off("error", ignore);
      if ("refusal" in decision) return this.#refuse(decision.refusal, request, socket, head);
      if (!this.#isShut) this.#admit(decision.data, request, socket, head);
    });
  }

  #admit(data: unknown, request: IncomingMessage, socket: Duplex, head: Buffer): void {
    // `ws` opens nothing on such a socket, so it must not claim a slot.
    if (!socket.readable || !socket.writable) return void socket.destroy();
    const refusal = this.#owner.claim?.(request);
    if (refusal !== undefined) return this.#refuse(refusal, request, socket, head);
    this.#upgrade(request, socket, head, (webSocket) => this.#owner.admit(webSocket, data, request, socket));
  }

  #upgrade(request: IncomingMessage, socket: Duplex, head: Buffer, use: (webSocket: GatheringWebSocket) => void): void {
    // What the server says first leaves in one packet with the 101.
    socket.cork();
    try {
      this.#upgrader.handleUpgrade(request, socket, head, use);
    } catch (error) {
      // Somebody else has taken this socket.
      this.#owner.failed(error);
    } finally {
      socket.uncork();
    }
  }

  readonly #onUpgrade = (request: IncomingMessage, socket: Duplex, head: Buffer): void => {
    if (this.#isAlone("upgrade")) {
      if (!this.#isMine(request)) return;
      if (request.method === "POST") this.#readAgain(request, socket, head);
      else this.handleUpgrade(request, socket, head);
      return;
    }
    if (this.#servesPath(request)) return this.handleUpgrade(request, socket, head);
    // A listener that is not ours, such as a development server's, may serve the path: then it is not ours to refuse.
    // Should it leave the socket alone as well, an error on it must not end the process.
    socket.on("error", ignore);
  };

  /** Whoever else listens answers all requests, and hands on those that are not for it. */
  readonly #onRequest = (request: IncomingMessage, response: ServerResponse): void => {
    latest.set(request.socket, response);
    if (!this.#isAlone("request") || !this.#isMine(request)) return;
    if (this.#owner.request !== undefined) this.#owner.request(request, response);
    else answerUpgradeRequired(response);
  };

  /** Whether nobody but gates listens to the HTTP server. */
  #isAlone(event: "upgrade" | "request"): boolean {
    return this.#http!.listenerCount(event) === attached.get(this.#http!)!.size;
  }

  /** Whether this of all gates is to answer: the one with the path, or the first when there is none. */
  #isMine(request: IncomingMessage): boolean {
    const gates = [...attached.get(this.#http!)!];
    return (gates.find((gate) => gate.#servesPath(request)) ?? gates[0]) === this;
  }

  /**
   * Hands a POST's connection to Node once more without the offer to upgrade, which a server may ignore (RFC 9110, section
   * 7.8): Node hands out no request that makes one, and a POST opens no WebSocket. Java's client offers HTTP/2 with its
   * requests. What is pipelined behind the request stays on the connection, and is read after it.
   */
  #readAgain(request: IncomingMessage, socket: Duplex, head: Buffer): void {
    const response = latest.get(socket);
    // Node keeps responses in order for one reading of a connection only, so the next begins when the last response has left.
    if (response !== undefined && !response.writableFinished) {
      const again = (all: Buffer): void => this.#readAgain(request, socket, all);
      return waitForResponse(response, socket, head, this.#owner.maxFrameBytes, again);
    }
    // A response that ends the connection leaves nothing to read.
    if (socket.writableEnded) return;
    socket.unshift(head);
    socket.unshift(withoutUpgrade(request));
    this.#http!.emit(isTls(request) ? "secureConnection" : "connection", socket);
    socket.resume();
  }

  #attach(http: HttpServer): void {
    const ours = attached.get(http) ?? new Set<Gate>();
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
    // Told first: once it is answered the client may be gone, and its address with it.
    this.#owner.refused(refusal, request);
    if (BYE_STATUS.has(refusal.status) && this.#owner.chooseProtocol(offeredBy(request)) === PROTOCOL) {
      this.#upgrade(request, socket, head, (webSocket) => dismiss(webSocket, refusal));
    } else answerRefusal(socket, refusal);
  }
}

/** How long somebody who is not let in may take to answer the close. */
const DISMISS_MS = 1000;

/** What a client that is not let in may send before it has read so: then nothing more is read. */
const DISMISS_FRAMES = 100;

/** What a browser must be told in a frame, because it shows a page no HTTP status. */
const BYE_STATUS = new Set([401, 403, 503]);

/** Returns the refusal of a connection for which there is no slot. */
export function fullRefusal(maxConnections: number): Refusal {
  return { status: 503, reason: `\`limits.maxConnections\`, ${maxConnections}, is reached` };
}

/** Returns the subprotocols that a client offers. */
export function offeredBy({ headers }: IncomingMessage): ReadonlySet<string> {
  return new Set((headers["sec-websocket-protocol"] ?? "").split(",").map((offered) => offered.trim()));
}

/** Says why, and closes: 4401 is HTTP's 401. No peer is made. */
function dismiss(webSocket: GatheringWebSocket, { status, reason }: Refusal): void {
  // What it still sends is not read, and may be malformed.
  webSocket.on("error", ignore);
  let frames = 0;
  const count = (): void => {
    if (++frames === DISMISS_FRAMES) webSocket.pause();
  };
  webSocket.on("message", count).on("ping", count).on("pong", count);
  const code = fromHttpStatus(status);
  webSocket.send(byeFrame({ code, reason }));
  webSocket.close(code, cutReason(reason));
  setTimeout(() => webSocket.terminate(), DISMISS_MS).unref();
}

/** A request must come in time: its head, then its body. Node looks every so often. */
function makeHttp(timeoutMs: number): HttpServer {
  return createServer({
    headersTimeout: timeLimit(timeoutMs),
    requestTimeout: timeLimit(timeoutMs * 2),
    connectionsCheckingInterval: Math.min(timeoutMs, 1000),
    keepAliveTimeout: 5000,
  });
}

/** As Node's HTTP server takes it: 0 for none. */
function timeLimit(ms: number): number {
  return ms === Infinity ? 0 : Math.min(ms, LONGEST_DELAY_MS);
}

function reachable({ address, family }: AddressInfo): string {
  if (address === "0.0.0.0" || address === "::") return "localhost";
  return family === "IPv6" ? `[${address}]` : address;
}

function ignore(): void {}
