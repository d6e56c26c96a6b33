import { once } from "node:events";
import { newWebSocketRpcSession, RpcTarget } from "capnweb";
import { WebSocket, WebSocketServer } from "ws";

// capnweb uses the global class, which Node 20 does not have.
globalThis.WebSocket ??= WebSocket;

export async function serve() {
  const server = new WebSocketServer({ port: 0, host: "127.0.0.1" });
  server.on("connection", (socket) => {
    class Api extends RpcTarget {
      echo(x) {
        return x;
      }
      hang() {
        return new Promise(() => {});
      }
      ask(x) {
        return client.answer(x);
      }
    }
    const client = newWebSocketRpcSession(socket, new Api());
  });
  await once(server, "listening");
  return server.address().port;
}

class Client extends RpcTarget {
  answer(x) {
    return `answer to ${x}`;
  }
}

export async function connect(url) {
  const socket = new WebSocket(url);
  await once(socket, "open");
  const api = newWebSocketRpcSession(socket, new Client());
  return async (method, x, signal) => {
    const call = api[method](x);
    // Its calls take no signal. A caller that no longer needs a result disposes of its promise.
    signal?.addEventListener("abort", () => call[Symbol.dispose]());
    return await call;
  };
}
