/** The Agent Client Protocol's own SDK as client or agent on one end of a WebSocket, and a reciproc peer on the other. */
import { AcpServer } from "@agentclientprotocol/sdk/experimental/server";
import { createNodeWebSocketUpgradeHandler } from "@agentclientprotocol/sdk/experimental/node";
import { createWebSocketStream } from "@agentclientprotocol/sdk/experimental/ws-client";
import { RequestError, type AgentApp, type ClientApp, type ClientConnection } from "@agentclientprotocol/sdk";
import { createServer } from "node:http";
import { onTestFinished, vi } from "vitest";
import { WebSocketServer } from "ws";
import { acp, connect, serve, type AnyMethods, type AnyPeer, type NodeConnectOptions } from "../../../src/node.js";
import { listening } from "../../support/network.js";
import { joined, type Handlers, type Joined, type Methods, type Traits } from "../support/sdk.js";
import { TappedWebSocket } from "../support/tapped.js";

/** The params of a request that opens a connection. */
export const INITIALIZE = {
  protocolVersion: 1,
  clientCapabilities: { fs: { readTextFile: true, writeTextFile: false } },
};

/** The params of a prompt. */
export const PROMPT = { sessionId: "s-1", prompt: [{ type: "text" as const, text: "hello" }] };

/** Connects the SDK's client to a reciproc agent. */
export async function joinClient(app: ClientApp, methods: Methods): Promise<Joined & { theirs: ClientConnection }> {
  const complaints = listenToConsole();
  const server = await serve<AnyMethods>({ port: 0, dialect: acp, methods });
  const opened = new Promise<AnyPeer>((resolve) => server.once("peer", resolve));
  let wire!: TappedWebSocket;
  const Wire = function (...args: unknown[]): TappedWebSocket {
    return (wire = new TappedWebSocket(...args));
  };
  const theirs = app.connect(createWebSocketStream(server.url, { WebSocket: Wire as never }));
  return { ...joined(await opened, wire, complaints, () => server.close()), theirs };
}

/** Connects a reciproc client to the SDK's agent. */
export async function joinAgent(
  app: AgentApp,
  methods: Methods = {},
  options: NodeConnectOptions = {},
): Promise<Joined> {
  const complaints = listenToConsole();
  const http = await listening(createServer());
  const webSockets = new WebSocketServer({ noServer: true, WebSocket: TappedWebSocket });
  const agents = new AcpServer({ agent: app });
  http.server.on("upgrade", createNodeWebSocketUpgradeHandler(agents, webSockets));
  const peer: AnyPeer = await connect(`${http.url}/acp`, { link: "plain", dialect: acp, methods, ...options });
  const [wire] = webSockets.clients as Set<TappedWebSocket>;
  return joined(peer, wire!, complaints, async () => {
    await agents.close();
    await http[Symbol.asyncDispose]();
  });
}

/** What a client and an agent of the SDK have in common. */
interface App {
  onRequest(
    method: string,
    parse: (params: unknown) => any,
    handler: (context: { params: any; signal: AbortSignal }) => unknown,
  ): unknown;
  onNotification(method: string, parse: (params: unknown) => any, handler: (context: { params: any }) => void): unknown;
}

/** Registers the handlers of the shared suite with the SDK, as client or agent. */
export function register(app: App, handlers: Handlers, heard: (params: unknown) => void): void {
  const any = (params: unknown): any => params;
  for (const [name, run] of Object.entries(handlers)) {
    app.onRequest(name, any, ({ params, signal }) => run(params, signal));
  }
  app.onNotification("_note", any, ({ params }) => heard(params));
}

/** The differences from other SDKs that are the same on both ends. */
export const TRAITS: Omit<Traits, "open" | "firstId"> = {
  cancel: (requestId) => ({ method: "$/cancel_request", params: { requestId } }),
  cancelled: -32800,
  error: (code, message, data) => new RequestError(code, message, data),
  closed: { message: "ACP connection closed" },
};

/** The SDK reports messages that it does not understand there. */
function listenToConsole(): unknown[] {
  const complaints: unknown[] = [];
  for (const level of ["error", "warn"] as const) {
    const spy = vi.spyOn(console, level).mockImplementation((...args) => void complaints.push(args));
    onTestFinished(() => spy.mockRestore());
  }
  return complaints;
}
