import { once } from "node:events";
import { createBirpc } from "birpc";
import { notifyEach, openSocket, serveSockets } from "./sockets.js";

/** The set-up of the section "Using WebSocket" of its README. */
function wire(socket, methods) {
  const functions = Object.fromEntries(Object.entries(methods).map(([name, method]) => [name, (x) => method(x, peer)]));
  const rpc = createBirpc(functions, {
    post: (data) => socket.send(data),
    on: (listener) => socket.on("message", listener),
    serialize: (value) => JSON.stringify(value),
    deserialize: (text) => JSON.parse(text),
  });
  const peer = {
    call: (method, x) => rpc[method](x),
    notify: (method, x) => rpc[method].asEvent(x),
    close: () => socket.close(),
  };
  return peer;
}

export async function serve(methods, peers) {
  const port = await serveSockets(peers, (socket) => wire(socket, methods));
  // Its groups send to each client in the same way, and cannot leave one out.
  return { port, broadcast: notifyEach(peers) };
}

export async function connect(url, methods) {
  const socket = openSocket(url);
  const peer = wire(socket, methods);
  await once(socket, "open");
  return peer;
}
