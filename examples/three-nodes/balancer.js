/** A load balancer in few lines, so that the example needs no other program. docs/SCALING.md has files for nginx and HAProxy. */
import { once } from "node:events";
import { connect, createServer } from "node:net";
import { pipeline } from "node:stream";

/**
 * Listens on a port. `nodes` maps the names of the nodes that accept clients to their ports. A client that names a node in its URL has
 * a session there, and is brought to it. Any other client is brought to the next node.
 */
export async function listen(port, nodes) {
  let count = 0;
  const server = createServer((client) => {
    client.on("error", () => client.destroy());
    client.once("data", (head) => {
      client.pause();
      const ports = [...nodes.values()];
      const named = nodes.get(/^GET \S*[?&]node=(\w+)/.exec(head)?.[1]);
      const first = named === undefined ? count++ % Math.max(ports.length, 1) : ports.indexOf(named);
      forward(client, head, [...ports.slice(first), ...ports.slice(0, first)]);
    });
  });
  server.listen(port, "127.0.0.1");
  await once(server, "listening");
  return server;
}

/** Connects a client to the first port that accepts. Without one, the client is cut, and tries again later. */
function forward(client, head, [port, ...others]) {
  if (port === undefined) return void client.destroy();
  const node = connect(port, "127.0.0.1");
  const tryNext = () => forward(client, head, others);
  node.once("error", tryNext);
  node.once("connect", () => {
    node.off("error", tryNext);
    node.write(head);
    // If one side is lost, the other is cut too.
    pipeline(client, node, client, () => {});
  });
}
