/** Runs all clients in one process: `node clients.js KIND URL`. */
import { once } from "node:events";
import { WebSocket } from "ws";
import { connect } from "../../src/node.js";
import { answer } from "./channel.js";
import { measurements } from "./held.js";
import type { Kind } from "./measure.js";

const AT_ONCE = 64;

const [kind, url] = process.argv.slice(2) as [Kind, string];

/** Sends the frame that a peer on a plain link would send. */
async function openBare() {
  const webSocket = new WebSocket(url, { perMessageDeflate: false, maxPayload: 2 ** 20 });
  await once(webSocket, "open");
  return {
    async call(n: number): Promise<unknown> {
      webSocket.send(JSON.stringify({ jsonrpc: "2.0", id: 1, method: "echo", params: [n] }));
      const [data] = (await once(webSocket, "message")) as [Buffer];
      return JSON.parse(data.toString()).params;
    },
    isOpen: () => webSocket.readyState === WebSocket.OPEN,
    async close(): Promise<void> {
      webSocket.close(1000);
      await once(webSocket, "close");
    },
  };
}

async function openPeer() {
  const peer = await connect(url, { link: kind === "plain" ? "plain" : "packed" });
  const call = (n: number): Promise<unknown> => peer.request("echo", [n]);
  return { call, isOpen: () => peer.state === "open", close: () => peer.close() };
}

const open = kind === "ws" ? openBare : openPeer;
const clients: Awaited<ReturnType<typeof open>>[] = [];

/** Runs `job` for every number below `count`, some at a time. */
async function each(count: number, job: (n: number) => Promise<unknown>): Promise<void> {
  let next = 0;
  const work = async (): Promise<void> => {
    while (next < count) await job(next++);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
}

const commands = {
  /** Opens `count` clients, each of which makes one call. Returns the duration and the number of correct results. */
  async open(count: number) {
    const from = performance.now();
    let right = 0;
    await each(count, async (n) => {
      const client = await open();
      clients.push(client);
      if (JSON.stringify(await client.call(n)) === `[${n}]`) right++;
    });
    return { tookMs: performance.now() - from, right };
  },
  alive: () => clients.filter((client) => client.isOpen()).length,
  async close() {
    const closing = clients.splice(0);
    await each(closing.length, (n) => closing[n]!.close());
  },
  ...measurements,
};

export type ClientCommands = typeof commands;
answer(commands);
