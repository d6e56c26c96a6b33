/** What a server needs of its surroundings. `serve` has those of Node, with HTTP and WebSockets; a test server has clients in memory. */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Duplex } from "node:stream";
import type { Link } from "../core/transport.js";
import type { Engine } from "../fleet/engine.js";
import type { NodeHost, ServerNode } from "../fleet/host.js";
import type { Socket } from "../link/socket.js";
import type { AnyPeer } from "../peer/peer.js";
import type { GateDelegate } from "./gate.js";
import type { CheckedOptions } from "./options.js";
import type { Admission, GateSocket, Refusal, Verdict } from "./upgrade.js";

/** Accepts or refuses the clients of a server. */
export interface ServerGate {
  /** The URL of the server, such as `ws://127.0.0.1:3000/rpc`. Empty if it does not listen. */
  readonly url: string;
  /** Starts listening, if there is a port. Rejects if the address is in use. */
  listen(): Promise<void>;
  /** Accepts or refuses an upgrade of the application's HTTP server. */
  handleUpgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void;
  /** Runs `authenticate` for a client that has sent `auth`. `socket`: as `admit` got it. Never rejects. */
  authenticate(request: IncomingMessage, auth: unknown, socket: GateSocket): Promise<Verdict>;
  /** Refuses all further clients with 503. */
  shut(): void;
  /** Shuts the gate. Resolves when the connections of all peers, which are closed, have ended. Never rejects. */
  close(): Promise<void>;
}

/** Answers requests by HTTP POST. */
export interface ServerPosts {
  /** Number of requests that have a peer. Each takes a connection slot. */
  readonly running: number;
  /** Answers one request. `checksPath` is false if the application routed the request. */
  handle(request: IncomingMessage, response: ServerResponse, checksPath: boolean): void;
  /** Refuses the requests that do not run yet, and ends the others. */
  shut(code: number, reason: string): void;
  /** Resolves when no handler of any request runs, or after `timeoutMs`. Never rejects. */
  drain(timeoutMs: number): Promise<void>;
  /** Resolves when every response has left. Never rejects. */
  close(): Promise<void>;
}

/** What a server does for its gate. None of its functions throws. */
export interface ServerGateDelegate extends Omit<GateDelegate<GateSocket, never>, "admit"> {
  /**
   * Takes an open, unstarted socket over `connection`. `protocol` is the subprotocol, and empty for none. `admission` is as for
   * `GateDelegate`.
   */
  admit(
    socket: Socket,
    protocol: string,
    admission: Admission | undefined,
    request: IncomingMessage,
    connection: GateSocket,
  ): void;
}

/** Makes the peers of requests by POST. None of its functions throws. */
export interface PostDelegate {
  /** Maximum length of a body, in bytes. */
  readonly maxMessageBytes: number;
  /** Maximum number of unsent bytes of replies on one connection. The next reply cuts the connection. */
  readonly maxUnsentBytes: number;
  /** How long a request may take to arrive and to be authenticated, in milliseconds. */
  readonly handshakeTimeoutMs: number;
  /** Claims a connection slot for a request that is about to run. Returns a refusal if it may not. `admission`: as for `accept`. */
  claimSlot(admission: Admission | undefined): Refusal | undefined;
  /** The status of a request that needs no reply. */
  readonly notificationStatus: 200 | 204;
  /** Makes the peer of one request. `admission` is what `authenticate` returned, and `undefined` without that option. */
  accept(transport: Link, admission: Admission | undefined): AnyPeer;
  /** Called before a refusal is answered. */
  refused(refusal: Refusal, request: IncomingMessage): void;
  /** Takes an error that no caller receives. */
  failed(error: unknown): void;
}

/** What a server needs of its surroundings. */
export interface Platform {
  /** Makes the node of a server with an engine. A server without one needs nothing of a fleet. */
  makeNode?(this: void, engine: Engine, host: NodeHost): ServerNode;
  /** Returns a one-way hash of a token. */
  hash(token: string): string;
  /** Makes the gate of a server, and the part that answers POSTs. The options are checked. */
  connect(
    options: CheckedOptions,
    gate: ServerGateDelegate,
    posts: PostDelegate,
  ): { readonly gate: ServerGate; readonly posts: ServerPosts };
}
