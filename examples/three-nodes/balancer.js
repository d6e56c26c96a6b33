/** A load balancer in few lines, so that the example needs no other program. docs/SCALING.md has files for nginx, HAProxy and Envoy. */
import { once } from "node:events";
import { connect, createServer } from "node:net";
import { pipeline } from "node:stream";

/** Listens on a port. Brings each connection to one of the ports that `targets` returns, one after the other. */
export async function listen(port, targets) {
  let count = 0;
  const server = createServer({ pauseOnConnect: true }, (client) => {
    const ports = targets();
    const first = count++ % Math.max(ports.length, 1);
    client.on("error", () => client.destroy());
    forward(client, [...ports.slice(first), ...ports.slice(0, first)]);
  });
  server.listen(port, "127.0.0.1");
  await once(server, "listening");
  return server;
}

/** Connects a client to the first port that accepts. Without one, the client is cut, and tries again later. */
function forward(client, [port, ...others]) {
  if (port === undefined) return void client.destroy();
  const node = connect(port, "127.0.0.1");
  const tryNext = () => forward(client, others);
  node.once("error", tryNext);
  node.once("connect", () => {
    node.off("error", tryNext);
    // If one side is lost, the other is cut too.
    pipeline(client, node, client, () => {});
  });
}
