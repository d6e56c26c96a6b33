/** The sockets of the contenders that have none of their own: `ws`, with the same options for all. */
import { once } from "node:events";
import { WebSocket, WebSocketServer } from "ws";
import { MAX_MESSAGE_BYTES } from "../methods.js";

/** Listens on a free port. `wire(socket)` returns the peer that is in `peers` while its connection is open. */
export async function serveSockets(peers, wire) {
  const server = new WebSocketServer({
    port: 0,
    host: "127.0.0.1",
    perMessageDeflate: false,
    maxPayload: MAX_MESSAGE_BYTES,
  });
  server.on("connection", (socket) => {
    const peer = wire(socket);
    peers.add(peer);
    socket.on("close", () => peers.delete(peer));
  });
  await once(server, "listening");
  return server.address().port;
}

/** Returns the socket of a client before it is open, so that the caller can add listeners for the first messages. */
export function openSocket(url) {
  return new WebSocket(url, { perMessageDeflate: false, maxPayload: MAX_MESSAGE_BYTES });
}

/** Notifies the clients of a contender without groups one by one. */
export function notifyEach(peers) {
  return (method, x, except) => {
    for (const peer of peers) if (peer !== except) peer.notify(method, x);
  };
}
