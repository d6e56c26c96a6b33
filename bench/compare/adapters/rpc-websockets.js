import { once } from "node:events";
import { Client, Server } from "rpc-websockets";

export async function serve() {
  const server = new Server({ port: 0, host: "127.0.0.1" });
  server.register("echo", ([x]) => x);
  server.register("hang", () => new Promise(() => {}));
  // rpc-websockets has no calls in this direction, so the request is written by hand. A client that served it would respond.
  server.register("ask", async ([x]) => {
    const [client] = server.wss.clients;
    client.send(JSON.stringify({ jsonrpc: "2.0", id: "ask", method: "answer", params: [x] }));
    const [data] = await once(client, "message");
    return JSON.parse(data.toString()).result;
  });
  await once(server, "listening");
  return server.wss.address().port;
}

export async function connect(url) {
  const client = new Client(url);
  await once(client, "open");
  // Its calls take a timeout and options of `ws`, and no signal.
  return (method, x) => client.call(method, [x]);
}
