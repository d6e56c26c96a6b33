/** Servers to call: a reciproc server, and plain servers that misbehave. */
import type { IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { onTestFinished } from "vitest";
import { WebSocketServer, type WebSocket } from "ws";
import { serve, type AnyMethods, type Server, type ServeOptions } from "../../src/node.js";

type Options = Omit<Partial<ServeOptions<AnyMethods, AnyMethods, any>>, "methods" | "fallback"> & {
  methods?: Record<string, (params: any, context: any) => unknown>;
  fallback?: (params: any, context: any) => unknown;
};

/** Starts a reciproc server, which is closed after the test. */
export async function reciprocServer(options: Options = {}): Promise<Server> {
  const server = await serve({ port: 0, methods: {}, ...options });
  onTestFinished(() => server.close());
  return server;
}

/** Starts a plain server that passes each connection to `onSocket`. Returns its URL. */
export async function plainServer(onSocket: (socket: WebSocket, request: IncomingMessage) => void): Promise<string> {
  const server = new WebSocketServer({ port: 0, host: "127.0.0.1" });
  server.on("connection", onSocket);
  onTestFinished(() => {
    for (const socket of server.clients) socket.terminate();
    server.close();
  });
  await new Promise((resolve) => server.once("listening", resolve));
  return `ws://127.0.0.1:${(server.address() as AddressInfo).port}`;
}
