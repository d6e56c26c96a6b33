import { once } from "node:events";
import { createServer } from "node:http";
import { Server } from "socket.io";
import { io } from "socket.io-client";
import { MAX_MESSAGE_BYTES } from "../methods.js";

/** Returns the listeners that serve the methods on all sockets. */
function listenersOf(methods) {
  return Object.entries(methods).map(([name, method]) => [
    name,
    function (x, acknowledge) {
      const result = method(x, this);
      acknowledge?.(result);
    },
  ]);
}

function listen(socket, listeners) {
  for (const [name, listener] of listeners) socket.on(name, listener);
}

export async function serve(methods) {
  const http = createServer();
  const server = new Server(http, { maxHttpBufferSize: MAX_MESSAGE_BYTES });
  const listeners = listenersOf(methods);
  server.on("connection", (socket) => listen(socket, listeners));
  http.listen(0, "127.0.0.1");
  await once(http, "listening");
  const { sockets } = server.sockets;
  return {
    port: http.address().port,
    peers: {
      get size() {
        return sockets.size;
      },
      [Symbol.iterator]: () => sockets.values(),
    },
    broadcast: (event, x, except) => (except?.broadcast ?? server).emit(event, x),
  };
}

export function connector(url, methods) {
  const listeners = listenersOf(methods);
  return async () => {
    // Without `forceNew` all sockets of one process share one connection.
    const socket = io(url, { transports: ["websocket"], forceNew: true });
    listen(socket, listeners);
    await new Promise((resolve, reject) => {
      socket.once("connect", resolve);
      socket.once("connect_error", reject);
    });
    return socket;
  };
}

export const call = (socket, event, x) => socket.emitWithAck(event, x);
export const notify = (socket, event, x) => socket.emit(event, x);
export const close = (socket) => socket.disconnect();
export const put = (socket, view) => socket.emitWithAck("received", view);

/** The parts of an upload that wait for their acknowledgement. */
const PARTS_IN_FLIGHT = 16;

/** Sends bytes in parts, each acknowledged, because socket.io has no other backpressure. */
export async function upload(socket, parts) {
  let length = 0;
  const inFlight = [];
  for await (const part of parts) {
    if (inFlight.length === PARTS_IN_FLIGHT) length += await inFlight.shift();
    inFlight.push(socket.emitWithAck("received", part));
  }
  for (const received of inFlight) length += await received;
  return length;
}
