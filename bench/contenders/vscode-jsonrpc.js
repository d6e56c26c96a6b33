import { ConsoleLogger, createWebSocketConnection, toSocket } from "vscode-ws-jsonrpc";
import { NOTIFICATIONS } from "../methods.js";
import { notifyEach, overSockets } from "./sockets.js";

const logger = new ConsoleLogger();

function wire(socket, methods) {
  const connection = createWebSocketConnection(toSocket(socket), logger);
  const peer = { connection, socket };
  for (const [name, method] of Object.entries(methods)) {
    // Only a method with a second parameter uses the caller.
    const handler = method.length < 2 ? method : (x) => method(x, peer);
    if (NOTIFICATIONS.has(name)) connection.onNotification(name, handler);
    else connection.onRequest(name, handler);
  }
  connection.listen();
  return peer;
}

export const call = ({ connection }, method, x) => connection.sendRequest(method, x);
export const notify = ({ connection }, method, x) => connection.sendNotification(method, x);
export const close = ({ socket }) => socket.close();
export const { serve, connector } = overSockets({ wire, broadcaster: notifyEach(notify) });
