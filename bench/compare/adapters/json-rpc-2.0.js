import { once } from "node:events";
import jsonrpc from "json-rpc-2.0";
import { WebSocket, WebSocketServer } from "ws";

const { JSONRPCClient, JSONRPCServer, JSONRPCServerAndClient } = jsonrpc;

/** The set-up of the section "Bi-directional JSON-RPC" of its README, with the line that rejects on close. */
function wire(socket) {
  const both = new JSONRPCServerAndClient(
    new JSONRPCServer(),
    new JSONRPCClient(async (request) => socket.send(JSON.stringify(request))),
  );
  socket.addEventListener("message", ({ data }) => both.receiveAndSend(JSON.parse(data.toString())));
  socket.addEventListener("close", ({ reason }) => both.rejectAllPendingRequests(`Connection is closed (${reason}).`));
  return both;
}

export async function serve() {
  const server = new WebSocketServer({ port: 0, host: "127.0.0.1" });
  server.on("connection", (socket) => {
    const both = wire(socket);
    both.addMethod("echo", ([x]) => x);
    both.addMethod("hang", () => new Promise(() => {}));
    both.addMethod("ask", ([x]) => both.request("answer", [x]));
  });
  await once(server, "listening");
  return server.address().port;
}

export async function connect(url) {
  const socket = new WebSocket(url);
  const both = wire(socket);
  both.addMethod("answer", ([x]) => `answer to ${x}`);
  await once(socket, "open");
  // Its calls take no signal.
  return async (method, x) => both.request(method, [x]);
}
