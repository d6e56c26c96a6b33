import { newWebSocketRpcSession, RpcTarget } from "capnweb";
import { WebSocket } from "ws";
import { notifyEach, overSockets } from "./sockets.js";

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

function wire(socket, Target) {
  const target = new Target();
  target.caller = { api: newWebSocketRpcSession(socket, target), socket };
  return target.caller;
}

export const call = ({ api }, method, x) => api[method](x);
/** capnweb has no notifications. Its README asks a caller that does not await a call to dispose of it. */
export const notify = ({ api }, method, x) => api[method](x)[Symbol.dispose]();
export const close = ({ socket }) => socket.close();
export const { serve, connector } = overSockets({ prepare: targetOf, wire, broadcaster: notifyEach(notify) });
