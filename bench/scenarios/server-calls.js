/** The server calls a client: the load of "64 calls in flight" in the other direction. */
import { more } from "./metric.js";

const IN_FLIGHT = 64;

export const serverCalls = {
  name: "server-calls",
  title: "Server calls client, 64 in flight",
  kind: "server-calls",
  main: true,
  metrics: [more("calls", "calls/s")],
  async run({ connect, server, budget }) {
    await connect(1, () => ({ increment: (n) => n + 1 }));
    await server("callClient", IN_FLIGHT, budget.warmUpMs);
    return { calls: await server("callClient", IN_FLIGHT, budget.ms) };
  },
};
