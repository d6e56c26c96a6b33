/** Connections opened in a second. Each must carry a call. */
import { check } from "../load.js";
import { more } from "./metric.js";

export const connections = {
  name: "connect",
  title: "Connections opened, 64 at once",
  metrics: [more("opened", "connections/s")],
  sockets: (budget) => budget.opened,
  async run({ connect, disconnect, budget }) {
    await connect(50);
    await disconnect();
    const started = performance.now();
    const peers = await connect(budget.opened);
    const opened = (budget.opened / (performance.now() - started)) * 1_000;
    await Promise.all(peers.map(async (peer, n) => check(await peer.call("increment", n), n + 1, "increment")));
    return { opened };
  },
};
