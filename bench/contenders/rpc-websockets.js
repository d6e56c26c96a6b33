import { once } from "node:events";
import { Client, Server } from "rpc-websockets";

/** The event by which the server notifies its clients, which subscribe to it. */
const EVENT = "moved";

export async function serve(methods, peers) {
  const server = new Server({ port: 0, host: "127.0.0.1" });
  for (const [name, method] of Object.entries(methods)) server.register(name, ([x], caller) => method(x, caller));
  server.event(EVENT);
  server.on("connection", (socket) => peers.add(socket));
  server.on("disconnection", (socket) => peers.delete(socket));
  await once(server, "listening");
  // An event goes to all subscribers, and cannot leave one out.
  return { port: server.wss.address().port, broadcast: (method, x) => server.emit(method, x) };
}

export async function connect(url, methods) {
  const client = new Client(url);
  await once(client, "open");
  if (EVENT in methods) {
    client.on(EVENT, methods[EVENT]);
    await client.subscribe(EVENT);
  }
  return {
    call: (method, x) => client.call(method, [x]),
    notify: (method, x) => client.notify(method, [x]),
    close: () => client.close(),
  };
}
