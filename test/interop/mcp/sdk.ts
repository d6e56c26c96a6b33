/** The MCP SDK, unmodified, on either end of a real socket, with all its messages and errors. */
import { once } from "node:events";
import { Client, type ClientOptions } from "@modelcontextprotocol/sdk/client/index.js";
import { WebSocketClientTransport } from "@modelcontextprotocol/sdk/client/websocket.js";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import type { Transport } from "@modelcontextprotocol/sdk/shared/transport.js";
import { JSONRPCMessageSchema, LATEST_PROTOCOL_VERSION, type JSONRPCMessage } from "@modelcontextprotocol/sdk/types.js";
import { expect, vi } from "vitest";
import { WebSocketServer, type ServerOptions, type WebSocket } from "ws";
import { connect, mcp, serve, type AnyMethods, type Dialect, type Peer, type Server } from "../../../src/node.js";
import { LINGER_MS } from "../../../src/core/shared-timer.js";
import type { AnyOptions } from "../../support/pair.js";
import { expectEmpty } from "../../support/pair.js";
import { TappedWebSocket } from "../support/tapped.js";

/** Stops all timers of both sides, but not the socket. Call it after the connection is made. */
export function stopClocks(): void {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "Date", "performance"] });
}

/** Restores the stopped timers. */
export async function startClocks(): Promise<void> {
  if (!vi.isFakeTimers()) return;
  // The shared timer of all deadlines may stay for this time, and would be counted for the next test.
  await vi.advanceTimersByTimeAsync(LINGER_MS);
  vi.useRealTimers();
}

/** The messages at the SDK's end of the wire, and the errors of that end. */
export interface Wire {
  readonly sent: any[];
  readonly received: any[];
  /** Returns the errors passed to the SDK's `onerror` since the last call. Unread ones fail the test. */
  takeErrors(): string[];
}

/** An SDK client on a reciproc server. */
export interface SdkClient extends Wire, AsyncDisposable {
  readonly client: Client;
  readonly webSocket: WebSocket;
  readonly server: Server;
  /** The server's end of the connection. */
  readonly peer: Peer;
  /** Returns the `error` events of the server since the last call. */
  takeServerErrors(): unknown[];
}

/** Returns the answers to the request of this id. */
export function answersTo(id: unknown, messages: any[]): any[] {
  return messages.filter((message) => message.id === id && message.method === undefined);
}

/** The methods of a reciproc peer. */
export type Methods = NonNullable<AnyOptions["methods"]>;

/** Answers `initialize` as every MCP server does. */
export function initialize({ protocolVersion }: { protocolVersion: string }): object {
  return {
    protocolVersion,
    capabilities: { tools: { listChanged: true } },
    serverInfo: { name: "ours", version: "1.2.3" },
  };
}

const BASIC: Methods = { initialize, "notifications/initialized": () => {}, ping: () => ({}) };

/** Starts a reciproc server and connects the SDK's client to it, including its handshake. */
export async function sdkClient(
  methods: Methods,
  { capabilities = {}, prepare, dialect = mcp }: Prepared & { dialect?: Dialect | Dialect[] } = {},
): Promise<SdkClient> {
  const server = await serve<AnyMethods, AnyMethods>({ port: 0, dialect, methods: { ...BASIC, ...methods } });
  const serverErrors: unknown[] = [];
  server.on("error", (error) => serverErrors.push(error));
  const arrived = once(server as never, "peer") as Promise<[Peer]>;
  const client = new Client({ name: "sdk", version: "3.2.1" }, { capabilities });
  prepare?.(client);
  const errors: string[] = [];
  client.onerror = ({ message }) => errors.push(message);
  let webSocket!: TappedWebSocket;
  // The SDK's transport uses the global WebSocket, which Node 20 does not have.
  globalThis.WebSocket = class extends TappedWebSocket {
    constructor(...args: any[]) {
      super(...args);
      webSocket = this;
    }
  } as never;
  await client.connect(new WebSocketClientTransport(new URL(server.url)));
  const [peer] = await arrived;
  return {
    client,
    webSocket,
    server,
    peer,
    sent: webSocket.sent,
    received: webSocket.received,
    takeErrors: () => errors.splice(0),
    takeServerErrors: () => serverErrors.splice(0),
    async [Symbol.asyncDispose]() {
      await client.close();
      await peer.closed;
      await server.close();
      expectEmpty(peer);
      expect(serverErrors).toEqual([]);
      expect(errors).toEqual([]);
    },
  };
}

interface Prepared {
  capabilities?: NonNullable<ClientOptions["capabilities"]>;
  /** Registers what the client serves, before it connects. */
  prepare?: (client: Client) => void;
}

/** An SDK server with a reciproc client. */
export interface SdkServer extends Wire, AsyncDisposable {
  readonly mcp: McpServer;
  readonly webSocket: WebSocket;
  readonly peer: Peer;
  /** Returns the `error` events of the client since the last call. */
  takePeerErrors(): unknown[];
}

/** Starts the SDK's server and connects a reciproc client, including the MCP handshake. */
export async function sdkServer(
  register: (mcp: McpServer) => void,
  options: AnyOptions = {},
  listen: ServerOptions = { handleProtocols: (offered) => (offered.has("mcp") ? "mcp" : false) },
): Promise<SdkServer> {
  const http = new WebSocketServer({ port: 0, host: "127.0.0.1", WebSocket: TappedWebSocket as never, ...listen });
  await once(http, "listening");
  const errors: string[] = [];
  const server = new McpServer({ name: "sdk", version: "3.2.1" }, { capabilities: { logging: {} } });
  register(server);
  server.server.onerror = ({ message }) => errors.push(message);
  const arrived = once(http, "connection").then(async ([webSocket]: TappedWebSocket[]) => {
    await server.connect(new SocketTransport(webSocket!));
    return webSocket!;
  });
  const { port } = http.address() as { port: number };
  const peer: Peer = await connect(`ws://127.0.0.1:${port}`, { dialect: mcp, ...options });
  const peerErrors: unknown[] = [];
  peer.on("error", (error) => peerErrors.push(error));
  const webSocket = await arrived;
  await peer.request("initialize", {
    protocolVersion: LATEST_PROTOCOL_VERSION,
    capabilities: { roots: {}, sampling: {}, elicitation: {} },
    clientInfo: { name: "ours", version: "1.2.3" },
  });
  peer.notify("notifications/initialized");
  return {
    mcp: server,
    webSocket,
    peer,
    sent: webSocket.sent,
    received: webSocket.received,
    takeErrors: () => errors.splice(0),
    takePeerErrors: () => peerErrors.splice(0),
    async [Symbol.asyncDispose]() {
      await peer.close();
      await new Promise((resolve) => http.close(resolve));
      expectEmpty(peer);
      expect(peerErrors).toEqual([]);
      expect(errors).toEqual([]);
    },
  };
}

/** A server transport for WebSocket, which the SDK lacks. It parses, checks and delivers, as the SDK's stdio transport does. */
class SocketTransport implements Transport {
  onclose?: () => void;
  onerror?: (error: Error) => void;
  onmessage?: (message: JSONRPCMessage) => void;
  readonly #webSocket: WebSocket;

  constructor(webSocket: WebSocket) {
    this.#webSocket = webSocket;
  }

  async start(): Promise<void> {
    this.#webSocket.on("message", (data: Buffer) => {
      try {
        this.onmessage?.(JSONRPCMessageSchema.parse(JSON.parse(data.toString())));
      } catch (error) {
        this.onerror?.(error as Error);
      }
    });
    this.#webSocket.on("close", () => this.onclose?.());
  }

  async send(message: JSONRPCMessage): Promise<void> {
    this.#webSocket.send(JSON.stringify(message));
  }

  async close(): Promise<void> {
    this.#webSocket.close();
  }
}
