/** A server of one kind, which is killed, or takes the place of one that was: `node server.js KIND`. */
import { once } from "node:events";
import { createServer } from "node:http";
import { answer } from "../process.js";
import { cpu } from "../usage.js";

/** What serves a method `here` on an HTTP server. */
const KINDS = {
  async reciproc(http) {
    const { serve } = await import("../../dist/node.js");
    await serve({ server: http, methods: { here: () => true } });
  },
  async "socket.io"(http) {
    const { Server } = await import("socket.io");
    new Server(http).on("connection", (socket) => socket.on("here", (acknowledge) => acknowledge(true)));
  },
};

/** When each connection was accepted. Each attempt of a client opens one, and sends its upgrade request on it. */
const attempts = [];
let cpuBefore;

const http = createServer();
await KINDS[process.argv[2]](http);
http.on("connection", () => attempts.push(performance.now()));

/** Returns the largest number of attempts within so many milliseconds. */
function most(ms) {
  let [largest, first] = [0, 0];
  for (const [last, at] of attempts.entries()) {
    while (at - attempts[first] >= ms) first++;
    largest = Math.max(largest, last + 1 - first);
  }
  return largest;
}

answer({
  /** Resolves when all modules are loaded. */
  ready: () => {},
  /** Listens, on a free port if it is 0. Returns the port, and the time by the clock of the machine. */
  async listen(port) {
    cpuBefore = cpu();
    http.listen(port, "127.0.0.1");
    await once(http, "listening");
    return { port: http.address().port, at: Date.now() };
  },
  /** Returns what the clients were for the server since it listened. */
  load: () => ({ tenth: most(100), second: most(1_000), cpu: (cpu() - cpuBefore) / 1e6 }),
});
