import { ConsoleLogger, createWebSocketConnection, listen, toSocket } from "vscode-ws-jsonrpc";
import { NOTIFICATIONS } from "../methods.js";
import { notifyEach, openSocket, serveSockets } from "./sockets.js";

function wire(connection, socket, methods) {
  const peer = {
    call: (method, x) => connection.sendRequest(method, x),
    notify: (method, x) => connection.sendNotification(method, x),
    close: () => socket.close(),
  };
  for (const [name, method] of Object.entries(methods)) {
    if (NOTIFICATIONS.has(name)) connection.onNotification(name, (x) => method(x, peer));
    else connection.onRequest(name, (x) => method(x, peer));
  }
  connection.listen();
  return peer;
}

export async function serve(methods, peers) {
  const port = await serveSockets(peers, (socket) =>
    wire(createWebSocketConnection(toSocket(socket), new ConsoleLogger()), socket, methods),
  );
  return { port, broadcast: notifyEach(peers) };
}

export async function connect(url, methods) {
  const webSocket = openSocket(url);
  const connection = await new Promise((resolve) => listen({ webSocket, onConnection: resolve }));
  return wire(connection, webSocket, methods);
}
