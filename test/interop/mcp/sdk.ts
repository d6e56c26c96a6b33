/** The MCP SDK, unmodified, on either end of a real socket, with all its messages and errors. */
import { once } from "node:events";
import { Client, type ClientOptions } from "@modelcontextprotocol/sdk/client/index.js";
import { WebSocketClientTransport } from "@modelcontextprotocol/sdk/client/websocket.js";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import type { Transport } from "@modelcontextprotocol/sdk/shared/transport.js";
import { JSONRPCMessageSchema, LATEST_PROTOCOL_VERSION, type JSONRPCMessage } from "@modelcontextprotocol/sdk/types.js";
import { vi } from "vitest";
import { WebSocketServer, type ServerOptions, type WebSocket } from "ws";
import { connect, mcp, serve, type AnyMethods, type AnyPeer } from "../../../src/node.js";
import { virtualClock, type VirtualClock } from "../../../src/testing/index.js";
import { joined, type Joined, type Methods } from "../support/sdk.js";
import { TappedWebSocket } from "../support/tapped.js";

/** In a program that imports `reciproc/node`, the timer of all deadlines may stay for this time after the last one. */
const LINGER_MS = 1_000;

let clock: VirtualClock | undefined;

/** Stops all timers of both sides, and the date, but not the socket. Call it after the connection is made. */
export function stopClocks(): VirtualClock {
  const stopped = (clock = virtualClock());
  const startedAt = Date.now();
  vi.spyOn(Date, "now").mockImplementation(() => startedAt + stopped.now);
  return stopped;
}

/** Restores the stopped timers. */
export async function startClocks(): Promise<void> {
  await clock?.pass(LINGER_MS);
  clock?.restore();
  clock = undefined;
  vi.restoreAllMocks();
}

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
  capabilities: NonNullable<ClientOptions["capabilities"]> = {},
): Promise<Joined & { readonly client: Client }> {
  const server = await serve<AnyMethods, AnyMethods>({ port: 0, dialect: mcp, methods: { ...BASIC, ...methods } });
  const opened = once(server as never, "peer") as Promise<[AnyPeer]>;
  const client = new Client({ name: "sdk", version: "3.2.1" }, { capabilities });
  const complaints: string[] = [];
  client.onerror = ({ message }) => complaints.push(message);
  let wire!: TappedWebSocket;
  // The SDK's transport uses the global WebSocket, which Node 20 does not have.
  globalThis.WebSocket = class extends TappedWebSocket {
    constructor(...args: any[]) {
      super(...args);
      wire = this;
    }
  } as never;
  await client.connect(new WebSocketClientTransport(new URL(server.url)));
  const [peer] = await opened;
  return { ...joined(peer, wire, complaints, () => server.close()), client };
}

/** Starts the SDK's server and connects a reciproc client, including the MCP handshake. */
export async function sdkServer(
  register: (mcp: McpServer) => void,
  methods: Methods = {},
  listen: ServerOptions = { handleProtocols: (offered) => (offered.has("mcp") ? "mcp" : false) },
): Promise<Joined & { readonly mcp: McpServer }> {
  const http = new WebSocketServer({ port: 0, host: "127.0.0.1", WebSocket: TappedWebSocket as never, ...listen });
  await once(http, "listening");
  const server = new McpServer({ name: "sdk", version: "3.2.1" }, { capabilities: { logging: {} } });
  register(server);
  const complaints: string[] = [];
  server.server.onerror = ({ message }) => complaints.push(message);
  const accepted = once(http, "connection").then(async ([wire]: TappedWebSocket[]) => {
    await server.connect(new SocketTransport(wire!));
    return wire!;
  });
  const { port } = http.address() as { port: number };
  const peer: AnyPeer = await connect(`ws://127.0.0.1:${port}`, { dialect: mcp, methods });
  const wire = await accepted;
  await peer.request("initialize", {
    protocolVersion: LATEST_PROTOCOL_VERSION,
    capabilities: { roots: {}, sampling: {}, elicitation: {} },
    clientInfo: { name: "ours", version: "1.2.3" },
  });
  peer.notify("notifications/initialized");
  const stop = (): Promise<void> => new Promise((resolve) => http.close(() => resolve()));
  return { ...joined(peer, wire, complaints, stop), mcp: server };
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
