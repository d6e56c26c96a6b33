/** Some clients of one kind, with its defaults: `node clients.js KIND`. */
import { setTimeout as sleep } from "node:timers/promises";
import { answer } from "../process.js";

/** How many are opened at a time. */
const AT_ONCE = 100;
const POLL_MS = 20;
const TIMEOUT_MS = 120_000;

/** What opens a client, and calls `connected` with a function that makes a call, each time that it is connected again. */
const KINDS = {
  async reciproc(port, connected) {
    const { connect } = await import("../../dist/node.js");
    const peer = await connect(`ws://127.0.0.1:${port}`);
    peer.on("resume", () => connected(() => peer.request("here")));
  },
  async "socket.io"(port, connected) {
    const { io } = await import("socket.io-client");
    // Without `forceNew` all sockets of one process share one connection.
    const socket = io(`http://127.0.0.1:${port}`, { transports: ["websocket"], forceNew: true });
    await new Promise((resolve) => socket.once("connect", resolve));
    socket.on("connect", () => connected(() => socket.emitWithAck("here")));
  },
};

/** When the first call of each client was answered, by the clock of the machine. */
const backAt = new Map();
let opened = 0;

async function open(port) {
  const client = opened++;
  await KINDS[process.argv[2]](port, async (call) => {
    // If the connection is lost again, the next one makes the call.
    if (await call().catch(() => false)) backAt.set(client, backAt.get(client) ?? Date.now());
  });
}

answer({
  async open(port, count) {
    for (let left = count; left > 0; left -= AT_ONCE)
      await Promise.all(Array.from({ length: Math.min(left, AT_ONCE) }, () => open(port)));
  },
  forget: () => backAt.clear(),
  /** Returns the times of all clients, when all are back. */
  async back() {
    for (const end = Date.now() + TIMEOUT_MS; backAt.size < opened; await sleep(POLL_MS))
      if (Date.now() > end) throw new Error(`only ${backAt.size} of ${opened} clients are back`);
    return [...backAt.values()];
  },
});
