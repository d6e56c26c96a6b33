/** The process with the server of one contender: `node server.js CONTENDER`. Its parent is the client process. */
import { setTimeout as sleep } from "node:timers/promises";
import { rate } from "./load.js";
import { serverMethods } from "./methods.js";
import { answer } from "./process.js";
import { cpu, disconnected, memory } from "./usage.js";

const contender = await import(`./contenders/${process.argv[2]}.js`);
const { port, peers, broadcast } = await contender.serve(serverMethods((...args) => broadcast(...args)));

answer({
  port: () => port,
  /** Resolves when exactly `count` clients are connected. A client is open before the server has its peer. */
  async connected(count) {
    while (peers.size !== count) await sleep(2);
    if (count === 0) await disconnected();
  },
  cpu,
  memory,
  /** Sends notifications to every client, all in one tick. Returns the time when it began, on the clock that all processes share. */
  fanOut(method, payloads) {
    const started = Number(process.hrtime.bigint());
    for (const payload of payloads) broadcast(method, payload);
    return started;
  },
  /** Notifies the only client so many times, all in one tick. */
  flood(count) {
    const [peer] = peers;
    for (let n = 1; n <= count; n++) void contender.notify(peer, "moved", n);
  },
  /** Calls the only client for some time, with some calls in flight. Returns the calls per second. */
  callClient: (inFlight, ms) => rate({ peers: [...peers], call: contender.call, inFlight, ms, method: "increment" }),
});
