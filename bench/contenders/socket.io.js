import { once } from "node:events";
import { createServer } from "node:http";
import { Server } from "socket.io";
import { io } from "socket.io-client";
import { MAX_MESSAGE_BYTES } from "../methods.js";

function listen(socket, methods) {
  for (const [name, method] of Object.entries(methods)) {
    socket.on(name, (x, acknowledge) => {
      const result = method(x, socket);
      acknowledge?.(result);
    });
  }
}

/** The parts of an upload that wait for their acknowledgement. */
const PARTS_IN_FLIGHT = 16;

/** Sends bytes in parts, each acknowledged, because socket.io has no other backpressure. */
async function upload(socket, parts) {
  let length = 0;
  const inFlight = [];
  for await (const part of parts) {
    if (inFlight.length === PARTS_IN_FLIGHT) length += await inFlight.shift();
    inFlight.push(socket.emitWithAck("received", part));
  }
  for (const received of inFlight) length += await received;
  return length;
}

function callerOf(socket) {
  return {
    call: (event, x) => socket.emitWithAck(event, x),
    notify: (event, x) => socket.emit(event, x),
    put: (view) => socket.emitWithAck("received", view),
    upload: (parts) => upload(socket, parts),
    close: () => socket.disconnect(),
  };
}

export async function serve(methods, peers) {
  const http = createServer();
  const server = new Server(http, { maxHttpBufferSize: MAX_MESSAGE_BYTES });
  server.on("connection", (socket) => {
    listen(socket, methods);
    const peer = callerOf(socket);
    peers.add(peer);
    socket.on("disconnect", () => peers.delete(peer));
  });
  http.listen(0, "127.0.0.1");
  await once(http, "listening");
  return {
    port: http.address().port,
    broadcast: (event, x, except) => (except?.broadcast ?? server).emit(event, x),
  };
}

export async function connect(url, methods) {
  // Without `forceNew` all sockets of one process share one connection.
  const socket = io(url, { transports: ["websocket"], forceNew: true });
  listen(socket, methods);
  await new Promise((resolve, reject) => {
    socket.once("connect", resolve);
    socket.once("connect_error", reject);
  });
  return callerOf(socket);
}
