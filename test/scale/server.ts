/**
 * Runs the server in a process of its own: `node server.js KIND`. All options have their defaults, heartbeats included.
 */
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { WebSocketServer } from "ws";
import { serve, type ServerStats } from "../../src/node.js";
import { answer } from "./channel.js";
import { cpuMs, held, memory } from "./held.js";
import { MAX_MESSAGE_BYTES } from "./kinds.js";

interface Serving {
  readonly url: string;
  connections(): number;
  /** Undefined for bare `ws`. */
  stats(): ServerStats | undefined;
  close(): Promise<void>;
}

/** Sends back what comes. */
async function serveBare(): Promise<Serving> {
  const limits = { perMessageDeflate: false, maxPayload: MAX_MESSAGE_BYTES };
  const server = new WebSocketServer({ port: 0, host: "127.0.0.1", ...limits });
  server.on("connection", (webSocket) => {
    webSocket.on("message", (data: Buffer) => webSocket.send(data.toString()));
  });
  await once(server, "listening");
  return {
    url: `ws://127.0.0.1:${(server.address() as AddressInfo).port}`,
    connections: () => server.clients.size,
    stats: () => undefined,
    close: () => new Promise((resolve) => server.close(() => resolve())),
  };
}

async function serveReciproc(): Promise<Serving> {
  const server = await serve({ port: 0, methods: { echo: (params: unknown) => params } });
  return {
    url: server.url,
    connections: () => server.peers.size,
    stats: () => server.stats(),
    close: () => server.close(),
  };
}

const serving = await (process.argv[2] === "ws" ? serveBare() : serveReciproc());

const commands = {
  url: () => serving.url,
  connections: () => serving.connections(),
  stats: () => serving.stats(),
  held,
  memory,
  cpuMs,
  /** Waits until no client is connected: a client closes before the server notices. */
  async left() {
    while (serving.connections() > 0) await sleep(5);
  },
  close: () => serving.close(),
};

export type ServerCommands = typeof commands;
answer(commands);
