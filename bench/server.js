/** The server of one contender as a process: `node server.js CONTENDER`. Its parent is the client process, and it ends with it. */
import { setTimeout as sleep } from "node:timers/promises";
import { answer } from "./channel.js";
import { serverMethods } from "./methods.js";

const contender = await import(`./contenders/${process.argv[2]}.js`);
const peers = new Set();
const { port, broadcast } = await contender.serve(
  serverMethods((...args) => broadcast(...args)),
  peers,
);

const commands = {
  port: () => port,
  /** Waits until just `count` clients are connected: a client knows that it is open before the server does. */
  async connected(count) {
    while (peers.size !== count) await sleep(2);
  },
  /** CPU time of this process so far, in microseconds. */
  cpu() {
    const { user, system } = process.cpuUsage();
    return user + system;
  },
  async memory() {
    // A collection may free what only the next one finds.
    for (let times = 0; times < 3; times++) {
      globalThis.gc();
      await sleep(20);
    }
    const { heapUsed, rss } = process.memoryUsage();
    return { heapUsed, rss };
  },
  /** Sends one notification to every client; answers when it began, on the clock that all processes share. */
  fanOut(method, payload) {
    const started = Number(process.hrtime.bigint());
    broadcast(method, payload);
    return started;
  },
  /** Calls the one client for so long, so many calls at once; answers the calls a second. */
  async callClient(inFlight, ms) {
    const [peer] = peers;
    const { rate } = await import("./load.js");
    return rate({ peers: [peer], inFlight, ms, method: "increment" });
  },
};

answer(process, commands);
process.on("disconnect", () => process.exit());
