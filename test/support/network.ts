/** Raw connections, for exact bytes as a browser, any client or an attacker may send them. */
import { once } from "node:events";
import { createServer } from "node:http";
import { connect as connectTcp, type AddressInfo, type Server as TcpServer, type Socket } from "node:net";
import { WebSocket } from "ws";
import { Inbox } from "./inbox.js";

export interface Answer {
  status: number;
  headers: Record<string, string>;
  body: string;
}

export const HANDSHAKE = {
  Connection: "Upgrade",
  Upgrade: "websocket",
  "Sec-WebSocket-Version": "13",
  "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
};

export const portOf = (url: string): number => Number(new URL(url).port);

/** Opens a TCP connection and sends an upgrade request with exactly these headers besides those of the handshake. */
export async function sendUpgrade(url: string, headers: Record<string, string> = {}): Promise<Socket> {
  const { host, pathname, search } = new URL(url);
  const socket = connectTcp(portOf(url), "127.0.0.1");
  await once(socket, "connect");
  const text = Object.entries({ Host: host, ...HANDSHAKE, ...headers }).map(([name, value]) => `${name}: ${value}\r\n`);
  socket.write(`GET ${pathname}${search} HTTP/1.1\r\n${text.join("")}\r\n`);
  return socket;
}

/** Sends an upgrade request, resolves with the response, and closes the connection after a 101. */
export async function upgrade(url: string, headers: Record<string, string> = {}): Promise<Answer> {
  return readAnswer(await sendUpgrade(url, headers));
}

/** Reads one HTTP response, up to its end or, for a 101, up to the end of its head. */
export async function readAnswer(socket: Socket): Promise<Answer> {
  let text = "";
  for await (const chunk of socket) {
    text += String(chunk);
    if (text.startsWith("HTTP/1.1 101 ") && text.includes("\r\n\r\n")) break;
  }
  const [head = "", body = ""] = text.split("\r\n\r\n");
  const [statusLine = "", ...lines] = head.split("\r\n");
  const headers = lines.map((line) => [
    line.slice(0, line.indexOf(":")).toLowerCase(),
    line.slice(line.indexOf(":") + 2),
  ]);
  return { status: Number(statusLine.split(" ")[1]), headers: Object.fromEntries(headers) as Answer["headers"], body };
}

/** Lets `server` listen on a free port of this machine until it is disposed of, with all its connections. */
export async function listening<S extends TcpServer>(server: S) {
  const sockets = new Set<Socket>();
  server.on("connection", (socket: Socket) => {
    // Not by a listener of the socket: tests count those.
    for (const other of sockets) if (other.destroyed) sockets.delete(other);
    sockets.add(socket);
  });
  const cut = (): void => sockets.forEach((socket) => socket.destroy());
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    server,
    url: `ws://127.0.0.1:${(server.address() as AddressInfo).port}`,
    cut,
    async [Symbol.asyncDispose]() {
      cut();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

export const bareHttp = () => listening(createServer());

export type PlainPeer = Awaited<ReturnType<typeof plainPeer>>;

/** Connects a bare `ws` client, which records what it receives. */
export async function plainPeer(url: string, options: object = {}, first?: string) {
  const webSocket = new WebSocket(url, options);
  const inbox = new Inbox<string>();
  webSocket.on("message", (data: Buffer) => inbox.push(data.toString()));
  const closed = new Promise<{ code: number; reason: string }>((resolve) =>
    webSocket.on("close", (code, reason) => resolve({ code, reason: reason.toString() })),
  );
  if (first !== undefined) webSocket.on("open", () => webSocket.send(first));
  await once(webSocket, "open");
  return {
    webSocket,
    received: inbox.all,
    /** Takes the next message, which may have come together with the handshake's answer. */
    next: async (): Promise<any> => JSON.parse(await inbox.next()),
    closed,
    [Symbol.dispose]: () => webSocket.terminate(),
  };
}
