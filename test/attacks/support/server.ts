/** A server to attack, and raw bytes to do it with. */
import { fork } from "node:child_process";
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { once } from "node:events";
import type { Socket } from "node:net";
import { fileURLToPath } from "node:url";
import { serve, type AnyPeer, type Server } from "../../../src/node.js";
import type { AnyOptions } from "../../../src/core/config.js";
import type { GateOptions } from "../../../src/server/options.js";
import type { Authenticate } from "../../../src/server/upgrade.js";
import { portOf, sendUpgrade } from "../../support/network.js";

type TargetOptions = Omit<GateOptions, "port"> &
  Pick<AnyOptions, "methods" | "schemas" | "dialect"> & { authenticate?: Authenticate };

/** A server on a free port, and the peers that it has had. */
export interface Target extends AsyncDisposable {
  readonly server: Server;
  readonly url: string;
  /** The peers that came, in their order. */
  readonly peers: AnyPeer[];
  /** What it emitted as `error`. */
  readonly errors: unknown[];
  /** The TCP connections that it has, whatever is said over them. */
  readonly sockets: ReadonlySet<Socket>;
  /** The next peer to come. */
  next(): Promise<AnyPeer>;
}

/** Serves `methods`, and `here`, which is what bystanders call. */
export async function target(options: TargetOptions = {}): Promise<Target> {
  const server: Server = await serve({ port: 0, ...options, methods: { here: () => true, ...options.methods } });
  const peers: AnyPeer[] = [];
  const errors: unknown[] = [];
  server.on("peer", (peer) => peers.push(peer));
  server.on("error", (error) => errors.push(error));
  const { sockets, forget } = socketsOf(portOf(server.url));
  return {
    server,
    url: server.url,
    peers,
    errors,
    sockets,
    next: () => new Promise((resolve) => server.once("peer", resolve)),
    async [Symbol.asyncDispose]() {
      forget();
      await server.close();
    },
  };
}

/** A server in a process of its own. */
export interface Apart extends Disposable {
  readonly url: string;
  /** How many TCP connections it has. */
  connections(): Promise<number>;
}

/**
 * Serves `here` from the built package in a process of its own. There, an error costs what it costs in production: in a process
 * of tests, each stack is mapped to its sources.
 */
export async function targetApart(): Promise<Apart> {
  const child = fork(fileURLToPath(new URL("apart.mjs", import.meta.url)));
  const answer = async (): Promise<number> => ((await once(child, "message")) as [number])[0];
  const url = `ws://127.0.0.1:${await answer()}/`;
  return {
    url,
    async connections() {
      const count = answer();
      child.send("");
      return count;
    },
    [Symbol.dispose]: () => void child.kill(),
  };
}

/** The connections that come to a port of this process, from now on. */
function socketsOf(port: number): { sockets: Set<Socket>; forget: () => void } {
  const sockets = new Set<Socket>();
  const onSocket = (message: unknown): void => {
    const { socket } = message as { socket: Socket };
    if (socket.localPort !== port) return;
    sockets.add(socket);
    socket.once("close", () => sockets.delete(socket));
  };
  subscribe("net.server.socket", onSocket);
  return { sockets, forget: () => void unsubscribe("net.server.socket", onSocket) };
}

/** The head of an upgrade request, with these lines more. */
export function upgradeText(url: string, ...more: string[]): string {
  const lines = [
    "GET / HTTP/1.1",
    `Host: ${new URL(url).host}`,
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
    ...more,
  ];
  return `${lines.join("\r\n")}\r\n\r\n`;
}

/** The opcodes of RFC 6455, section 5.2. */
export const CONTINUATION = 0;
export const TEXT = 1;
export const CLOSE = 8;
export const PING = 9;
export const PONG = 10;

/** The head of a client's frame, masked with zeroes so that the payload stands as it is; `length` may be a lie. */
export function frameHead(opcode: number, length: number | bigint, isLast = true): Buffer {
  const first = (isLast ? 0x80 : 0) | opcode;
  if (length < 126) return Buffer.from([first, 0x80 | Number(length), 0, 0, 0, 0]);
  const head = Buffer.alloc(length < 65_536 ? 8 : 14);
  head[0] = first;
  head[1] = 0x80 | (length < 65_536 ? 126 : 127);
  if (length < 65_536) head.writeUInt16BE(Number(length), 2);
  else head.writeBigUInt64BE(BigInt(length), 2);
  return head;
}

/** A whole frame of a client. */
export function frame(opcode: number, payload: string | Buffer, isLast = true): Buffer {
  const bytes = Buffer.from(payload);
  return Buffer.concat([frameHead(opcode, bytes.length, isLast), bytes]);
}

/** An open WebSocket of which the test writes each byte, and the server's peer for it. */
export interface RawSocket extends Disposable {
  readonly socket: Socket;
  readonly peer: AnyPeer;
  /** Writes, and waits while the other side takes no more. */
  write(bytes: Buffer): Promise<void>;
}

/** Opens one; what comes is not read until the test does. */
export async function rawSocket(on: Target, headers?: Record<string, string>): Promise<RawSocket> {
  const arrived = on.next();
  const socket = await sendUpgrade(on.url, headers);
  // Being cut is what it asks for.
  socket.on("error", () => {});
  const peer = await arrived;
  const closed = new Promise((resolve) => socket.once("close", resolve));
  return {
    socket,
    peer,
    async write(bytes) {
      if (socket.destroyed || socket.write(bytes)) return;
      // Not by `once` of node:events: that rejects when the server resets the connection.
      await Promise.race([new Promise((resolve) => socket.once("drain", resolve)), closed, peer.closed]);
    },
    [Symbol.dispose]: () => void socket.destroy(),
  };
}

/** The code and the reason of a server's close frame, where one stands in what it sent. */
export async function closeFrame(socket: Socket): Promise<{ code: number; reason: string }> {
  const chunks: Buffer[] = [];
  socket.on("data", (chunk: Buffer) => chunks.push(chunk));
  // Not by iterating: that rejects when the server cuts a connection of which it reads nothing more.
  await new Promise((resolve) => socket.once("close", resolve).once("end", resolve));
  const bytes = Buffer.concat(chunks);
  // It is the last frame, at most 125 bytes long.
  for (let at = Math.max(0, bytes.length - 127); at < bytes.length; at++) {
    if (bytes[at] !== 0x88 || bytes[at + 1] !== bytes.length - at - 2) continue;
    return { code: bytes.readUInt16BE(at + 2), reason: bytes.subarray(at + 4).toString() };
  }
  throw new Error(`no close frame at the end of ${bytes.length} bytes`);
}
