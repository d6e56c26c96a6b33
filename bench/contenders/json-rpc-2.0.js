import jsonrpc from "json-rpc-2.0";
import { notifyEach, overSockets } from "./sockets.js";

const { JSONRPCClient, JSONRPCServer, JSONRPCServerAndClient } = jsonrpc;

/** Returns what serves the methods of all connections. The second parameter of its methods is the peer. */
function serverOf(methods) {
  const server = new JSONRPCServer();
  for (const [name, method] of Object.entries(methods)) server.addMethod(name, ([x], peer) => method(x, peer));
  return server;
}

/** The set-up of the section "Bi-directional JSON-RPC" of its README. */
function wire(socket, server) {
  const client = new JSONRPCClient((request) => socket.send(JSON.stringify(request)));
  const peer = { rpc: new JSONRPCServerAndClient(server, client), socket };
  socket.on("message", (data) => peer.rpc.receiveAndSend(JSON.parse(data.toString()), peer));
  socket.on("close", () => peer.rpc.rejectAllPendingRequests("Connection is closed."));
  return peer;
}

export const call = ({ rpc }, method, x) => rpc.request(method, [x]);
export const notify = ({ rpc }, method, x) => rpc.notify(method, [x]);
export const close = ({ socket }) => socket.close();
export const { serve, connector } = overSockets({ prepare: serverOf, wire, broadcaster: notifyEach(notify) });
