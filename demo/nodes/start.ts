/** Starts a Redis, nodes, and one address for the pages of all nodes. A node that is killed is started again. */
import { fork, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { connect, createServer, type AddressInfo, type Server, type Socket } from "node:net";
import { join } from "node:path";
import { pipeline } from "node:stream";
import type * as RedisScript from "../../scripts/redis.js";

const MOST_NODES = 9;
const RESTART_MS = 2_000;

/** The script is beside this folder's parent in the source and in the build. */
const { startRedis } = (await import(new URL("../../../scripts/redis.js", import.meta.url).href)) as typeof RedisScript;

/** Starts `count` nodes. Resolves when all accept pages. Prints the address, which PORT chooses (3000). A signal ends everything. */
export async function start(count: number): Promise<void> {
  if (!Number.isInteger(count) || count < 1 || count > MOST_NODES)
    throw new RangeError(`Expected --nodes to be a number from 1 to ${MOST_NODES}`);
  /** The ports of the nodes that accept pages, by name. */
  const ports = new Map<string, number>();
  const processes = new Map<string, ChildProcess>();
  let isEnding = false;
  process.stdout.write(`Starting a Redis and ${count} nodes ...\n`);
  // Ctrl+C must not reach Redis before the nodes have ended.
  const starting = startRedis({ isDetached: true });

  const end = async (): Promise<void> => {
    isEnding = true;
    const redis = await starting;
    balancer.close();
    await Promise.all([...processes.values()].map(endProcess));
    await redis.stop();
  };
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const)
    process.on(signal, () => isEnding || void end().then(() => process.exit()));

  const startNode = async (name: string, url: string): Promise<void> => {
    const node = fork(join(import.meta.dirname, "node.js"), [name, url]);
    processes.set(name, node);
    node.once("exit", () => {
      ports.delete(name);
      if (isEnding) return;
      process.stdout.write(`${name} is gone; it starts again in ${RESTART_MS / 1_000} s\n`);
      setTimeout(() => isEnding || void startNode(name, url), RESTART_MS);
    });
    const [{ port }] = (await once(node, "message")) as [{ port: number }];
    ports.set(name, port);
    process.stdout.write(`${name} is process ${node.pid}\n`);
  };
  const balancer = createServer((page) => {
    page.on("error", () => page.destroy());
    page.once("data", (head) => {
      page.pause();
      forward(page, head, portsFor(head, ports));
    });
  });

  const { url } = await starting;
  try {
    await Promise.all(Array.from({ length: count }, (_, i) => startNode(`n${i + 1}`, url)));
    await listen(balancer, Number(process.env["PORT"] ?? 3000));
  } catch (error) {
    await end();
    throw error;
  }
  const { port: address } = balancer.address() as AddressInfo;
  process.stdout.write(`reciproc demo on ${count} nodes: http://localhost:${address}\nOpen it in two windows.\n`);
}

/** Asks a node to drain and end. Resolves when it has ended. */
async function endProcess(node: ChildProcess): Promise<void> {
  if (node.exitCode !== null || node.signalCode !== null) return;
  const exit = once(node, "exit");
  if (node.connected) node.disconnect();
  await exit;
}

/** Listens on the port, or on the next one that is free. HOST chooses the address, which is this machine only by default. */
async function listen(server: Server, port: number): Promise<void> {
  server.listen(port, process.env["HOST"] ?? "127.0.0.1");
  try {
    await once(server, "listening");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EADDRINUSE" || port >= 65_535) throw error;
    await listen(server, port + 1);
  }
}

let requests = 0;
let webSockets = 0;

/**
 * Returns the ports in the order in which a connection tries them. First the one of the node that the URL names by its `route`, if it
 * is there: it has the session of the page. Otherwise each WebSocket begins with another node, and so does each connection for files.
 */
function portsFor(head: Buffer, ports: ReadonlyMap<string, number>): readonly number[] {
  const text = head.toString("latin1");
  const named = ports.get(/^GET \S*[?&]node=(\w+)/.exec(text)?.[1] ?? "");
  const all = [...ports.values()];
  // Counted apart: the files of a page need several connections, and the next window would get the same node.
  const count = /^upgrade: websocket/im.test(text) ? webSockets++ : requests++;
  const first = named === undefined ? count % Math.max(all.length, 1) : all.indexOf(named);
  return [...all.slice(first), ...all.slice(0, first)];
}

/** Connects a page to the first node that accepts, and sends `head` there. Without one, the page is cut, and tries again later. */
function forward(page: Socket, head: Buffer, [port, ...others]: readonly number[]): void {
  if (port === undefined) return void page.destroy();
  const node = connect(port, "127.0.0.1");
  const tryNext = (): void => forward(page, head, others);
  node.once("error", tryNext);
  node.once("connect", () => {
    node.off("error", tryNext);
    node.write(head);
    // If one side is lost, the other is cut too.
    pipeline(page, node, page, () => {});
  });
}
