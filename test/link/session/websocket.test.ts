/** A session over real WebSockets that are cut at random moments. */
import type { Socket as TcpSocket } from "node:net";
import { afterEach, expect, it } from "vitest";
import { nanoid } from "nanoid";
import { WebSocketServer } from "ws";
import { TestClient } from "../../support/links.js";
import { RESUME_OFFER } from "../../../src/session/frames.js";
import { PROTOCOL } from "../../../src/session/link.js";
import { Sessions } from "../../../src/server/sessions.js";
import { GatheringWebSocket, WsSocket } from "../../../src/sockets/ws.js";
import { bareHttp, type Listening } from "../../support/network.js";
import { KEPT, numbers, PEER_LIMITS, Told, ToldLost, type ServerSide } from "./rig.js";

const COUNT = 4000;
const CUTS = 25;

let http: Listening<any> | undefined;
afterEach(() => http?.[Symbol.asyncDispose]());

async function listen(): Promise<{ url: string; servers: ServerSide[]; connections: Set<TcpSocket> }> {
  http = await bareHttp();
  const sessions = new Sessions({
    limits: PEER_LIMITS,
    ...KEPT,
    makeToken: () => nanoid(22),
    hash: (token) => `#${token}`,
  });
  const servers: ServerSide[] = [];
  const welcome = (link: ServerSide["link"]): void => {
    const told = new Told();
    servers.push({ link, told });
    link.start(told);
  };
  const connections = new Set<TcpSocket>();
  const upgrader = new WebSocketServer({
    noServer: true,
    handleProtocols: () => PROTOCOL,
    WebSocket: GatheringWebSocket,
  });
  http.server.on("upgrade", (request: any, raw: TcpSocket, head: Buffer) => {
    connections.add(raw);
    raw.on("close", () => connections.delete(raw));
    upgrader.handleUpgrade(request, raw, head, (webSocket) => {
      const socket = new WsSocket(webSocket, PEER_LIMITS.maxMessageBytes, raw);
      if (request.headers["sec-websocket-protocol"].includes(RESUME_OFFER))
        sessions.admit(socket, undefined, 5000, welcome);
      else welcome(sessions.link(socket, undefined));
    });
  });
  return { url: http.url, servers, connections };
}

function open(url: string, protocols: string[]): Promise<WsSocket> {
  const webSocket = new GatheringWebSocket(url, protocols);
  const socket = new WsSocket(webSocket, PEER_LIMITS.maxMessageBytes);
  return new Promise((resolve, reject) => {
    webSocket.on("open", () => resolve(socket));
    webSocket.on("error", reject);
  });
}

it("delivers all messages both ways, in order and once, through cuts at any moment", async () => {
  const { url, servers, connections } = await listen();
  const told = new ToldLost();
  let client: TestClient;
  const comeBack = (): void =>
    void open(url, [PROTOCOL, RESUME_OFFER]).then(
      (socket) => client.dial(socket),
      () => setTimeout(comeBack, 5),
    );
  const owner = { suspended: comeBack, flows: () => {}, over: () => false };
  client = new TestClient(await open(url, [PROTOCOL]), PEER_LIMITS, owner);
  client.link.start(told);
  const server = (): ServerSide => servers[0]!;
  let cuts = 0;
  for (let i = 0; i < COUNT; i++) {
    const text = JSON.stringify({ n: i, padding: "x".repeat(i % 97 === 0 ? 30_000 : i % 50) });
    client.link.send(text);
    server().link.send(text);
    if (i % 10 === 0) await new Promise((resolve) => setImmediate(resolve));
    // Alternates between a cut that both ends notice, and one that the server notices only when the client is back.
    if (i % Math.floor(COUNT / CUTS) === 100 && cuts++ % 2 === 0) for (const raw of connections) raw.destroy();
    else if (i % Math.floor(COUNT / CUTS) === 100) client.link.giveUp("the test");
  }
  const done = (): boolean => told.messages.length >= COUNT && server().told.messages.length >= COUNT;
  while (!done()) await new Promise((resolve) => setTimeout(resolve, 5));
  const expected = Array.from({ length: COUNT }, (_, i) => i);
  expect(numbers(told)).toEqual(expected);
  expect(numbers(server().told)).toEqual(expected);
  expect(servers).toHaveLength(1);
  expect(told.notices.filter((notice) => notice === "resumed").length).toBeGreaterThan(CUTS / 2);
  client.link.close();
  while (server().told.notices.at(-1) === "resumed") await new Promise((resolve) => setTimeout(resolve, 5));
  expect(server().told.notices.at(-1)).toEqual({ closed: { code: 1000, reason: "" } });
});
