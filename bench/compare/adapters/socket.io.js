import { once } from "node:events";
import { createServer } from "node:http";
import { Server } from "socket.io";
import { io } from "socket.io-client";

/** The URL at which a bare WebSocket reaches the server. */
export const path = "/socket.io/?EIO=4&transport=websocket";

export async function serve() {
  const http = createServer();
  new Server(http).on("connection", (socket) => {
    socket.on("echo", (x, acknowledge) => acknowledge(x));
    socket.on("hang", () => {});
    socket.on("ask", async (x, acknowledge) => acknowledge(await socket.emitWithAck("answer", x)));
  });
  http.listen(0, "127.0.0.1");
  await once(http, "listening");
  return http.address().port;
}

export async function connect(url) {
  const socket = io(url, { transports: ["websocket"] });
  socket.on("answer", (x, acknowledge) => acknowledge(`answer to ${x}`));
  await new Promise((resolve) => socket.once("connect", resolve));
  // An event takes arguments only, and no signal.
  return (event, x) => socket.emitWithAck(event, x);
}
