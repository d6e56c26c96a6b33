import { once } from "node:events";
import { CancellationTokenSource } from "vscode-jsonrpc";
import { ConsoleLogger, createWebSocketConnection, listen, toSocket } from "vscode-ws-jsonrpc";
import { WebSocket, WebSocketServer } from "ws";

export async function serve() {
  const server = new WebSocketServer({ port: 0, host: "127.0.0.1" });
  server.on("connection", (socket) => {
    const connection = createWebSocketConnection(toSocket(socket), new ConsoleLogger());
    connection.onRequest("echo", (x) => x);
    connection.onRequest("hang", () => new Promise(() => {}));
    connection.onRequest("ask", (x) => connection.sendRequest("answer", x));
    connection.listen();
  });
  await once(server, "listening");
  return server.address().port;
}

export async function connect(url) {
  const webSocket = new WebSocket(url);
  const connection = await new Promise((resolve) => listen({ webSocket, onConnection: resolve }));
  connection.onRequest("answer", (x) => `answer to ${x}`);
  connection.listen();
  return (method, x, signal) => {
    // Its calls take tokens of its own in place of signals. A cancelled token asks the server to respond.
    const source = new CancellationTokenSource();
    signal?.addEventListener("abort", () => source.cancel());
    return connection.sendRequest(method, x, source.token);
  };
}
