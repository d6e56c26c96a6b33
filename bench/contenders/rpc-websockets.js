import { once } from "node:events";
import { Client, Server } from "rpc-websockets";

/** The event by which the server notifies its clients, which subscribe to it. */
const EVENT = "moved";

export async function serve(methods) {
  const server = new Server({ port: 0, host: "127.0.0.1" });
  for (const [name, method] of Object.entries(methods)) server.register(name, ([x], caller) => method(x, caller));
  server.event(EVENT);
  await once(server, "listening");
  const { wss } = server;
  // An event goes to all subscribers, and cannot leave one out.
  return { port: wss.address().port, peers: wss.clients, broadcast: (method, x) => server.emit(method, x) };
}

export function connector(url, methods) {
  return async () => {
    const client = new Client(url);
    await once(client, "open");
    if (EVENT in methods) {
      client.on(EVENT, methods[EVENT]);
      await client.subscribe(EVENT);
    }
    return client;
  };
}

export const call = (client, method, x) => client.call(method, [x]);
export const notify = (client, method, x) => client.notify(method, [x]);
export const close = (client) => client.close();
