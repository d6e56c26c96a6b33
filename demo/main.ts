/** Starts the demo: on one process, or with `--nodes 3` on several. */
import { parseArgs } from "node:util";

try {
  const { nodes } = parseArgs({ options: { nodes: { type: "string" } } }).values;
  if (nodes === undefined) await import("./server.js");
  else await (await import("./nodes/start.js")).start(Number(nodes));
} catch (error) {
  // A wrong argument, or no Redis on this machine.
  process.stderr.write(`${(error as Error).message}\n`);
  process.exit(1);
}
