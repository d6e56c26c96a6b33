/** Starts three nodes and a load balancer. A node that ends is started again after a second. */
import { fork } from "node:child_process";
import { join } from "node:path";
import { listen } from "./balancer.js";

const RESTART_MS = 1_000;

/** The processes of the nodes, and the ports of those that accept clients, by the names of the nodes. */
const nodes = new Map();
const ports = new Map();
let isEnding = false;

function startNode(name) {
  const node = fork(join(import.meta.dirname, "node.js"), [name]);
  nodes.set(name, node);
  node.on("message", ({ port }) => {
    ports.set(name, port);
    console.log(`${name} listens on port ${port}`);
  });
  node.on("exit", (code, signal) => {
    ports.delete(name);
    if (isEnding) return;
    console.log(`${name} ended with ${code ?? signal}`);
    setTimeout(() => isEnding || startNode(name), RESTART_MS);
  });
}

for (const name of ["n1", "n2", "n3"]) startNode(name);
const balancer = await listen(Number(process.env.PORT ?? 8000), ports);
console.log(`clients connect to ws://127.0.0.1:${balancer.address().port}`);

for (const signal of ["SIGINT", "SIGTERM"])
  process.once(signal, () => {
    isEnding = true;
    balancer.close();
    // The nodes drain, and end.
    for (const node of nodes.values()) if (node.connected) node.disconnect();
  });
