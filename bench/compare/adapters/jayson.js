import { once } from "node:events";
import jayson from "jayson";

export async function serve() {
  let caller;
  const server = new jayson.Server({
    echo: ([x], done) => done(null, x),
    hang: () => {},
    // jayson has no calls in this direction. Its client can be attached to the socket of the server.
    ask: ([x], done) =>
      jayson.client.websocket({ ws: caller }).request("answer", [x], (error, reply) => done(error, reply?.result)),
  });
  const listener = server.websocket({ port: 0, host: "127.0.0.1" });
  listener.on("connection", (socket) => (caller = socket));
  await once(listener, "listening");
  return listener.address().port;
}

export async function connect(url) {
  const client = jayson.client.websocket({ url });
  await once(client.ws, "open");
  // Its calls take no signal.
  return (method, x) =>
    new Promise((resolve, reject) => {
      client.request(method, [x], (failure, error, result) => {
        if (failure ?? error) reject(failure ?? error);
        else resolve(result);
      });
    });
}
