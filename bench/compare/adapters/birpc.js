import { once } from "node:events";
import { createBirpc } from "birpc";
import { WebSocket, WebSocketServer } from "ws";

/** The set-up of the section "Using WebSocket" of its README. */
function wire(socket, functions) {
  return createBirpc(functions, {
    post: (data) => socket.send(data),
    on: (listener) => socket.on("message", listener),
    serialize: (value) => JSON.stringify(value),
    deserialize: (text) => JSON.parse(text),
  });
}

export async function serve() {
  const server = new WebSocketServer({ port: 0, host: "127.0.0.1" });
  server.on("connection", (socket) => {
    const rpc = wire(socket, {
      echo: (x) => x,
      hang: () => new Promise(() => {}),
      ask: (x) => rpc.answer(x),
    });
  });
  await once(server, "listening");
  return server.address().port;
}

export async function connect(url) {
  const socket = new WebSocket(url);
  const rpc = wire(socket, { answer: (x) => `answer to ${x}` });
  await once(socket, "open");
  // Its calls take arguments only, and no signal.
  return (method, x) => rpc[method](x);
}
