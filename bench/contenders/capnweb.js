import { once } from "node:events";
import { newWebSocketRpcSession, RpcTarget } from "capnweb";
import { WebSocket } from "ws";
import { notifyEach, openSocket, serveSockets } from "./sockets.js";

// capnweb uses the global class, which Node 20 does not have.
globalThis.WebSocket ??= WebSocket;

/** Returns a class whose methods the sessions serve. */
function targetOf(methods) {
  class Target extends RpcTarget {}
  for (const [name, method] of Object.entries(methods)) {
    Target.prototype[name] = function (x) {
      return method(x, this.caller);
    };
  }
  return Target;
}

function wire(socket, target) {
  const api = newWebSocketRpcSession(socket, target);
  const peer = {
    call: async (method, x) => await api[method](x),
    // capnweb has no notifications. Its README asks a caller that does not await a call to dispose of it.
    notify: (method, x) => api[method](x)[Symbol.dispose](),
    close: () => socket.close(),
  };
  target.caller = peer;
  return peer;
}

export async function serve(methods, peers) {
  const Target = targetOf(methods);
  const port = await serveSockets(peers, (socket) => wire(socket, new Target()));
  return { port, broadcast: notifyEach(peers) };
}

export async function connect(url, methods) {
  const socket = openSocket(url);
  await once(socket, "open");
  const Target = targetOf(methods);
  return wire(socket, new Target());
}
