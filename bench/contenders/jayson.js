import { once } from "node:events";
import jayson from "jayson";

export async function serve(methods, peers) {
  const handlers = Object.fromEntries(
    Object.entries(methods).map(([name, method]) => [name, ([x], done) => done(null, method(x))]),
  );
  const listener = new jayson.Server(handlers).websocket({ port: 0, host: "127.0.0.1" });
  listener.on("connection", (socket) => {
    peers.add(socket);
    socket.on("close", () => peers.delete(socket));
  });
  await once(listener, "listening");
  return { port: listener.address().port };
}

export async function connect(url) {
  const client = jayson.client.websocket({ url });
  await once(client.ws, "open");
  return {
    call: (method, x) =>
      new Promise((resolve, reject) => {
        client.request(method, [x], (failure, error, result) => {
          if (failure ?? error) reject(failure ?? error);
          else resolve(result);
        });
      }),
    // With an id of null, jayson sends a notification in place of a request.
    notify: (method, x) => client.request(method, [x], null, () => {}),
    close: () => client.ws.close(),
  };
}
