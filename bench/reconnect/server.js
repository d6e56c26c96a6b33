/** A server of one kind, which is killed and started again. */
import { once } from "node:events";
import { createServer } from "node:http";
import { Server } from "socket.io";
import { serve } from "../../dist/node.js";
import { answer } from "../process.js";

/** How many connections were accepted in each tenth of a second. */
const accepted = new Map();
const accept = () => {
  const tenth = Math.floor(performance.now() / 100);
  accepted.set(tenth, (accepted.get(tenth) ?? 0) + 1);
};

answer({
  /** Listens, on a free port if it is 0. Returns the port. */
  async listen(kind, port) {
    if (kind === "reciproc") {
      const server = await serve({ port, methods: {} });
      server.on("peer", accept);
      return Number(new URL(server.url).port);
    }
    const http = createServer();
    new Server(http).on("connection", accept);
    http.listen(port, "127.0.0.1");
    await once(http, "listening");
    return http.address().port;
  },
  /** Returns the largest number of connections that were accepted in a tenth of a second. */
  peak: () => Math.max(0, ...accepted.values()),
});
