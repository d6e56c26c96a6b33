/** The MCP SDK, unmodified, on either end of a real socket. */
import { Client, type ClientOptions } from "@modelcontextprotocol/sdk/client/index.js";
import { WebSocketClientTransport } from "@modelcontextprotocol/sdk/client/websocket.js";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import type { Transport } from "@modelcontextprotocol/sdk/shared/transport.js";
import { JSONRPCMessageSchema, LATEST_PROTOCOL_VERSION } from "@modelcontextprotocol/sdk/types.js";
import { vi } from "vitest";
import type { ServerOptions, WebSocket } from "ws";
import { mcp } from "../../../src/node.js";
import { joinClient, joinServer, type Joined, type Methods } from "../support/sdk.js";

/** Answers `initialize` as every MCP server does. */
export function initialize({ protocolVersion }: { protocolVersion: string }): object {
  const serverInfo = { name: "ours", version: "1.2.3" };
  return { protocolVersion, capabilities: { tools: { listChanged: true } }, serverInfo };
}

const BASIC: Methods = { initialize, "notifications/initialized": () => {}, ping: () => ({}) };

export async function connectClient(
  url: string,
  capabilities: NonNullable<ClientOptions["capabilities"]>,
  Wire: unknown,
  prepare: (client: Client) => unknown = () => {},
): Promise<Client> {
  const client = new Client({ name: "sdk", version: "3.2.1" }, { capabilities });
  prepare(client);
  // The SDK's transport uses the global WebSocket, which Node 20 does not have.
  vi.stubGlobal("WebSocket", Wire);
  await client.connect(new WebSocketClientTransport(new URL(url)));
  vi.unstubAllGlobals();
  return client;
}

export function sdkClient(methods: Methods, capabilities: ClientOptions["capabilities"] = {}): Promise<Joined<Client>> {
  const complaints: string[] = [];
  return joinClient(mcp, { ...BASIC, ...methods }, complaints, (url, Wire) =>
    connectClient(url, capabilities, Wire, (client) => {
      client.onerror = ({ message }) => complaints.push(message);
    }),
  );
}

export async function sdkServer(
  register: (mcp: McpServer) => void,
  methods: Methods = {},
  listen: ServerOptions = { handleProtocols: (offered) => (offered.has("mcp") ? "mcp" : false) },
): Promise<Joined<McpServer>> {
  const complaints: string[] = [];
  const accept = async (wire: WebSocket): Promise<McpServer> => {
    const server = new McpServer({ name: "sdk", version: "3.2.1" }, { capabilities: { logging: {} } });
    register(server);
    server.server.onerror = ({ message }) => complaints.push(message);
    await server.connect(transportOf(wire));
    return server;
  };
  const both = await joinServer({ dialect: mcp, methods }, complaints, accept, listen);
  await both.peer.request("initialize", {
    protocolVersion: LATEST_PROTOCOL_VERSION,
    capabilities: { roots: {}, sampling: {}, elicitation: {} },
    clientInfo: { name: "ours", version: "1.2.3" },
  });
  both.peer.notify("notifications/initialized");
  return both;
}

/** A server transport for WebSocket, which the SDK lacks. It parses, checks and delivers, as the SDK's stdio transport does. */
function transportOf(webSocket: WebSocket): Transport {
  const transport: Transport = {
    async start() {
      webSocket.on("message", (data: Buffer) => {
        try {
          transport.onmessage?.(JSONRPCMessageSchema.parse(JSON.parse(data.toString())));
        } catch (error) {
          transport.onerror?.(error as Error);
        }
      });
      webSocket.on("close", () => transport.onclose?.());
    },
    send: async (message) => webSocket.send(JSON.stringify(message)),
    close: async () => webSocket.close(),
  };
  return transport;
}
