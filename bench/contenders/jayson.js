import { once } from "node:events";
import jayson from "jayson";

export async function serve(methods) {
  const handlers = Object.fromEntries(
    Object.entries(methods).map(([name, method]) => [name, ([x], done) => done(null, method(x))]),
  );
  const listener = new jayson.Server(handlers).websocket({ port: 0, host: "127.0.0.1" });
  await once(listener, "listening");
  return { port: listener.address().port, peers: listener.clients };
}

export function connector(url) {
  return async () => {
    const client = jayson.client.websocket({ url });
    await once(client.ws, "open");
    return client;
  };
}

export function call(client, method, x) {
  return new Promise((resolve, reject) => {
    client.request(method, [x], (failure, error, result) => {
      if (failure ?? error) reject(failure ?? error);
      else resolve(result);
    });
  });
}

/** With an id of null, jayson sends a notification in place of a request. */
export const notify = (client, method, x) => client.request(method, [x], null, () => {});
export const close = (client) => client.ws.close();
