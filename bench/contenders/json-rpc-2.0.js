import { once } from "node:events";
import jsonrpc from "json-rpc-2.0";
import { notifyEach, openSocket, serveSockets } from "./sockets.js";

const { JSONRPCClient, JSONRPCServer, JSONRPCServerAndClient } = jsonrpc;

/** The set-up of the section "Bi-directional JSON-RPC" of its README. */
function wire(socket, methods) {
  const both = new JSONRPCServerAndClient(
    new JSONRPCServer(),
    new JSONRPCClient(async (request) => socket.send(JSON.stringify(request))),
  );
  socket.on("message", (data) => both.receiveAndSend(JSON.parse(data.toString())));
  socket.on("close", () => both.rejectAllPendingRequests("Connection is closed."));
  const peer = {
    call: (method, x) => both.request(method, [x]),
    notify: (method, x) => both.notify(method, [x]),
    close: () => socket.close(),
  };
  for (const [name, method] of Object.entries(methods)) both.addMethod(name, ([x]) => method(x, peer));
  return peer;
}

export async function serve(methods, peers) {
  const port = await serveSockets(peers, (socket) => wire(socket, methods));
  return { port, broadcast: notifyEach(peers) };
}

export async function connect(url, methods) {
  const socket = openSocket(url);
  const peer = wire(socket, methods);
  await once(socket, "open");
  return peer;
}
