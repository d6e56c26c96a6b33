/** The process with the server of one contender: `node server.js CONTENDER`. It ends with its parent, the client process. */
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
  /** Resolves when exactly `count` clients are connected. A client is open before the server has its peer. */
  async connected(count) {
    while (peers.size !== count) await sleep(2);
  },
  /** Returns the CPU time of this process so far, in microseconds. */
  cpu() {
    const { user, system } = process.cpuUsage();
    return user + system;
  },
  async memory() {
    // One collection may make garbage that only the next one frees.
    for (let times = 0; times < 3; times++) {
      globalThis.gc();
      await sleep(20);
    }
    const { heapUsed, rss } = process.memoryUsage();
    return { heapUsed, rss };
  },
  /** Sends one notification to every client. Returns the time when it began, on the clock that all processes share. */
  fanOut(method, payload) {
    const started = Number(process.hrtime.bigint());
    broadcast(method, payload);
    return started;
  },
  /** Calls the only client for some time, with some calls in flight. Returns the calls per second. */
  async callClient(inFlight, ms) {
    const [peer] = peers;
    const { rate } = await import("./load.js");
    return rate({ peers: [peer], inFlight, ms, method: "increment" });
  },
};

answer(process, commands);
process.on("disconnect", () => process.exit());
