/** The MCP SDK, unmodified, on either end of a real socket, with every message it saw and everything it complained of. */
import { once } from "node:events";
import { Client, type ClientOptions } from "@modelcontextprotocol/sdk/client/index.js";
import { WebSocketClientTransport } from "@modelcontextprotocol/sdk/client/websocket.js";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import type { Transport } from "@modelcontextprotocol/sdk/shared/transport.js";
import { JSONRPCMessageSchema, LATEST_PROTOCOL_VERSION, type JSONRPCMessage } from "@modelcontextprotocol/sdk/types.js";
import { expect, vi } from "vitest";
import { WebSocketServer, type ServerOptions, type WebSocket } from "ws";
import { connect, mcp, serve, type AnyMethods, type Dialect, type Peer, type Server } from "../../../src/node.js";
import { LINGER_MS } from "../../../src/core/deadlines.js";
import type { AnyOptions } from "../../support/pair.js";
import { expectEmpty } from "../../support/pair.js";
import { TappedWebSocket } from "../support/tapped.js";

/** Stops every clock, the SDK's and ours; what crosses the socket crosses it all the same. For after the connection is made. */
export function stopClocks(): void {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "Date", "performance"] });
}

/** Lets clocks that were stopped run again. */
export async function startClocks(): Promise<void> {
  if (!vi.isFakeTimers()) return;
  // The one timer for all deadlines may run on for so long, and would be taken for one of the next test's.
  await vi.advanceTimersByTimeAsync(LINGER_MS);
  vi.useRealTimers();
}

/** What crossed the wire, as the SDK's end saw it, and what that end could not use. */
export interface Wire {
  readonly sent: any[];
  readonly received: any[];
  /** What the SDK told its `onerror` since the last look. What a test does not look at fails it. */
  takeErrors(): string[];
}

/** An SDK client on a server of ours. */
export interface SdkClient extends Wire, AsyncDisposable {
  readonly client: Client;
  readonly webSocket: WebSocket;
  readonly server: Server;
  /** The server's end of the connection. */
  readonly peer: Peer;
  /** What our server emitted as `error` since the last look. */
  takeServerErrors(): unknown[];
}

/** The answers to the request of that id. */
export function answersTo(id: unknown, messages: any[]): any[] {
  return messages.filter((message) => message.id === id && message.method === undefined);
}

/** What a peer of ours serves. */
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

/** Starts a server of ours and connects the SDK's client to it, its handshake included. */
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
  // The SDK's transport takes the runtime's own, which Node 20 has not.
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

/** An SDK server with a client of ours. */
export interface SdkServer extends Wire, AsyncDisposable {
  readonly mcp: McpServer;
  readonly webSocket: WebSocket;
  readonly peer: Peer;
  /** What our peer emitted as `error` since the last look. */
  takePeerErrors(): unknown[];
}

/** Starts the SDK's server and connects a client of ours, which shakes hands as MCP wants it. */
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

/** The SDK has no server side for WebSocket. This one does no more than its transport for standard input does: parse, check, hand over. */
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
