import { createBirpc } from "birpc";
import { notifyEach, overSockets } from "./sockets.js";

function functionsOf(methods) {
  const functions = {};
  for (const [name, method] of Object.entries(methods)) {
    functions[name] = function (x) {
      return method(x, this);
    };
  }
  return functions;
}

/** The set-up of the section "Using WebSocket" of its README. */
function wire(socket, functions) {
  return createBirpc(functions, {
    meta: socket,
    post: (data) => socket.send(data),
    on: (listener) => socket.on("message", listener),
    serialize: JSON.stringify,
    deserialize: JSON.parse,
  });
}

export const call = (peer, method, x) => peer[method](x);
export const notify = (peer, method, x) => peer[method].asEvent(x);
export const close = (peer) => peer.$meta.close();
// Its groups send to each client in the same way, and cannot leave one out.
export const { serve, connector } = overSockets({ prepare: functionsOf, wire, broadcaster: notifyEach(notify) });
