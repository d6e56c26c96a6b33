import { WebSocketServer } from "ws";
import type { AnyPeer, CloseInfo } from "../../src/index.js";
import { bareHttp } from "../support/network.js";

export type Connect = (url: string, options?: any) => Promise<AnyPeer>;

/** Connects, and waits until the server knows that the client has its session: from then on both keep it. */
export async function confirmed(connect: Connect, url: string, options?: object): Promise<AnyPeer> {
  const peer = await connect(url, options);
  // The ack is sent before the second call, in order.
  for (let i = 0; i < 2; i++) await peer.request("confirmed").catch(() => {});
  return peer;
}

export function record(peer: AnyPeer): string[] {
  const emitted: string[] = [];
  peer.on("suspend", () => emitted.push("suspend"));
  peer.on("lost", () => emitted.push("lost"));
  peer.on("resume", () => emitted.push("resume"));
  peer.on("close", ({ code }: CloseInfo) => emitted.push(`close ${code}`));
  peer.on("error", (error) => emitted.push(`error ${(error as Error).message}`));
  return emitted;
}

/** A plain server: echoes params, except those of "never", which gets no response. Sends `greeting` on each connection. */
export async function bareServer(options: object = {}, greeting?: string) {
  const http = await bareHttp();
  const offers: string[] = [];
  http.server.on("upgrade", ({ headers }) => offers.push(headers["sec-websocket-protocol"] ?? ""));
  const upgrader = new WebSocketServer({ handleProtocols: () => false, ...options, server: http.server });
  upgrader.on("connection", (webSocket) => {
    webSocket.on("error", () => {});
    if (greeting !== undefined) webSocket.send(greeting);
    webSocket.on("message", (data: Buffer) => {
      const { id, method, params } = JSON.parse(data.toString()) as { id?: number; method: string; params?: unknown };
      if (id !== undefined && method !== "never")
        webSocket.send(JSON.stringify({ jsonrpc: "2.0", id, result: params }));
    });
  });
  return Object.assign(http, { offers, webSockets: upgrader.clients });
}
