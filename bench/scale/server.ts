/** Runs the server in a process of its own: `node server.js KIND`. All options have their defaults, heartbeats included. */
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { WebSocketServer } from "ws";
import { serve, type ServerStats } from "../../src/node.js";
import { answer } from "./channel.js";
import { measurements } from "./held.js";

async function serveBare() {
  // The limit is the default of `limits.maxMessageBytes`.
  const server = new WebSocketServer({ port: 0, host: "127.0.0.1", perMessageDeflate: false, maxPayload: 2 ** 20 });
  server.on("connection", (webSocket) => {
    webSocket.on("message", (data: Buffer) => webSocket.send(data.toString()));
  });
  await once(server, "listening");
  return {
    url: () => `ws://127.0.0.1:${(server.address() as AddressInfo).port}`,
    connections: () => server.clients.size,
    stats: () => undefined,
    close: () => new Promise<void>((resolve) => server.close(() => resolve())),
  };
}

async function serveReciproc() {
  const server = await serve({ port: 0, methods: { echo: (params: unknown) => params } });
  const stats = (): ServerStats => server.stats();
  return { url: () => server.url, connections: () => server.peers.size, stats, close: () => server.close() };
}

const serving = await (process.argv[2] === "ws" ? serveBare() : serveReciproc());

const commands = {
  ...serving,
  ...measurements,
  stats: (): ServerStats | undefined => serving.stats(),
  /** Waits until no client is connected: a client closes before the server notices. */
  async left() {
    while (serving.connections() > 0) await sleep(5);
  },
};

export type ServerCommands = typeof commands;
answer(commands);
