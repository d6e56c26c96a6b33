/** The sockets of the contenders that have none of their own: `ws`, with the same options for all. */
import { once } from "node:events";
import { WebSocket, WebSocketServer } from "ws";
import { MAX_MESSAGE_BYTES } from "../methods.js";

const OPTIONS = { perMessageDeflate: false, maxPayload: MAX_MESSAGE_BYTES };

/**
 * Returns `serve` and `connector` of a contender.
 *
 * - `prepare(methods)` returns what all connections share. Default: the methods.
 * - `wire(socket, shared)` returns the peer of a connection, which may not be open yet.
 * - `broadcaster(peers)` returns the `broadcast` of a server.
 */
export function overSockets({ prepare = (methods) => methods, wire, broadcaster }) {
  return {
    async serve(methods) {
      const shared = prepare(methods);
      const peers = new Set();
      // `peers` is in the place of the clients that `ws` would keep.
      const server = new WebSocketServer({ ...OPTIONS, port: 0, host: "127.0.0.1", clientTracking: false });
      server.on("connection", (socket) => {
        const peer = wire(socket, shared);
        peers.add(peer);
        socket.on("close", () => peers.delete(peer));
      });
      await once(server, "listening");
      return { port: server.address().port, peers, broadcast: broadcaster(peers) };
    },
    connector(url, methods) {
      const shared = prepare(methods);
      return async () => {
        const socket = new WebSocket(url, OPTIONS);
        const peer = wire(socket, shared);
        await once(socket, "open");
        return peer;
      };
    },
  };
}

/** Returns the `broadcaster` of a contender without groups: it notifies the clients one by one. */
export function notifyEach(notify) {
  return (peers) => (method, x, except) => {
    for (const peer of peers) if (peer !== except) notify(peer, method, x);
  };
}
