/** A server under attack, and raw bytes to attack it. */
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import type { Socket } from "node:net";
import { serve, type AnyMethods, type AnyPeer, type ServeOptions, type Server } from "../../../src/node.js";
import { portOf, sendUpgrade } from "../../support/network.js";

type TargetOptions = Partial<ServeOptions<AnyMethods, AnyMethods, any>>;

export type Target = Awaited<ReturnType<typeof target>>;

/** Serves `methods`, and `here`, which bystanders call, on a free port. Returns all its peers, past ones included. */
export async function target(options: TargetOptions = {}) {
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
    /** Its open TCP connections, of any protocol. */
    sockets: sockets as ReadonlySet<Socket>,
    next: () => new Promise<AnyPeer>((resolve) => server.once("peer", resolve)),
    async [Symbol.asyncDispose]() {
      forget();
      await server.close();
    },
  };
}

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

export type RawSocket = Awaited<ReturnType<typeof rawSocket>>;

/** Opens a socket. Received bytes are not read until the test reads them. */
export async function rawSocket(on: Target, headers?: Record<string, string>) {
  const arrived = on.next();
  const socket = await sendUpgrade(on.url, headers);
  // The test provokes the reset.
  socket.on("error", () => {});
  const peer = await arrived;
  const closed = new Promise((resolve) => socket.once("close", resolve));
  return {
    socket,
    peer,
    async write(bytes: Buffer): Promise<void> {
      if (socket.destroyed || socket.write(bytes)) return;
      // Not by `once` of node:events: that rejects when the server resets the connection.
      await Promise.race([new Promise((resolve) => socket.once("drain", resolve)), closed, peer.closed]);
    },
    [Symbol.dispose]: () => void socket.destroy(),
  };
}

/** Returns the code and the reason of a server's close frame, and disconnects without an answer. Fails if the output ends without one. */
export function closeFrame(socket: Socket): Promise<{ code: number; reason: string }> {
  let received = Buffer.alloc(0);
  return new Promise((resolve, reject) => {
    socket.on("data", (chunk: Buffer) => {
      received = Buffer.concat([received, chunk]);
      // It is the last frame, at most 125 bytes long, and no other frame here has this byte.
      const at = received.lastIndexOf(0x88);
      if (at < 0 || received[at + 1] !== received.length - at - 2) return;
      resolve({ code: received.readUInt16BE(at + 2), reason: received.subarray(at + 4).toString() });
      socket.destroy();
    });
    socket.once("close", () => reject(new Error(`no close frame in ${received.length} bytes`)));
  });
}
