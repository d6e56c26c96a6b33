/** A server under attack, and raw bytes to attack it. */
import { fork } from "node:child_process";
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { once } from "node:events";
import type { Socket } from "node:net";
import { fileURLToPath } from "node:url";
import { serve, type AnyPeer, type Server } from "../../../src/node.js";
import type { AnyOptions } from "../../../src/core/config.js";
import type { Authentication, GateOptions } from "../../../src/server/options.js";
import { portOf, sendUpgrade } from "../../support/network.js";

type TargetOptions = Omit<GateOptions, "port"> &
  Pick<AnyOptions, "methods" | "schemas" | "dialect"> &
  Partial<Authentication<unknown>>;

/** A server on a free port, and all its peers, past ones included. */
export interface Target extends AsyncDisposable {
  readonly server: Server;
  readonly url: string;
  /** All peers, in order of connection. */
  readonly peers: AnyPeer[];
  /** All emitted `error` events. */
  readonly errors: unknown[];
  /** Its open TCP connections, of any protocol. */
  readonly sockets: ReadonlySet<Socket>;
  /** Resolves with the next peer. */
  next(): Promise<AnyPeer>;
}

/** Serves `methods`, and `here`, which bystanders call. */
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
  /** Resolves with the number of its TCP connections. */
  connections(): Promise<number>;
}

/**
 * Serves `here` from the built package in a process of its own. There, an error is as expensive as in production: a
 * process of tests maps each stack to its sources.
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

/** Tracks the connections to a port of this process from now on. */
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

/** Returns the head of an upgrade request, with these additional lines. */
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

/**
 * Returns the head of a client's frame, masked with zeros so that the payload is unchanged. `length` can differ from
 * the real length.
 */
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

/** Returns a whole frame of a client. */
export function frame(opcode: number, payload: string | Buffer, isLast = true): Buffer {
  const bytes = Buffer.from(payload);
  return Buffer.concat([frameHead(opcode, bytes.length, isLast), bytes]);
}

/** An open WebSocket whose bytes the test writes, and the server's peer for it. */
export interface RawSocket extends Disposable {
  readonly socket: Socket;
  readonly peer: AnyPeer;
  /** Writes, and waits while the socket is full. */
  write(bytes: Buffer): Promise<void>;
}

/** Opens a socket. Received bytes are not read until the test reads them. */
export async function rawSocket(on: Target, headers?: Record<string, string>): Promise<RawSocket> {
  const arrived = on.next();
  const socket = await sendUpgrade(on.url, headers);
  // The test provokes the reset.
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

/** Returns the code and the reason of a server's close frame, if its output contains one. */
export async function closeFrame(socket: Socket): Promise<{ code: number; reason: string }> {
  const chunks: Buffer[] = [];
  socket.on("data", (chunk: Buffer) => chunks.push(chunk));
  // Not by iterating: that rejects if the server cuts a connection that it no longer reads.
  await new Promise((resolve) => socket.once("close", resolve).once("end", resolve));
  const bytes = Buffer.concat(chunks);
  // It is the last frame, at most 125 bytes long.
  for (let at = Math.max(0, bytes.length - 127); at < bytes.length; at++) {
    if (bytes[at] !== 0x88 || bytes[at + 1] !== bytes.length - at - 2) continue;
    return { code: bytes.readUInt16BE(at + 2), reason: bytes.subarray(at + 4).toString() };
  }
  throw new Error(`no close frame at the end of ${bytes.length} bytes`);
}
