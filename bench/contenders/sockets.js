/** What the contenders without a socket of their own stand on: `ws`, set up alike for all. */
import { once } from "node:events";
import { WebSocket, WebSocketServer } from "ws";
import { MAX_MESSAGE_BYTES } from "../methods.js";

/** Serves on a free port; `wire(socket)` makes the peer that stands in `peers` while its connection is open. */
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

/** A client's socket, not yet open: what comes with the opening must find its listeners. */
export function openSocket(url) {
  return new WebSocket(url, { perMessageDeflate: false, maxPayload: MAX_MESSAGE_BYTES });
}

/** The loop by which a contender without groups tells many. */
export function notifyEach(peers) {
  return (method, x, except) => {
    for (const peer of peers) if (peer !== except) peer.notify(method, x);
  };
}
