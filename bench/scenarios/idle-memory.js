/** The memory of an idle connection on a server: the growth of a new process. */
import { less } from "./metric.js";

export const idleMemory = {
  name: "memory",
  title: (budget) => `Memory of an idle connection, of ${budget.idle.toLocaleString("en-US")}`,
  heavy: true,
  mostRounds: 3,
  fresh: true,
  sockets: (budget) => budget.idle,
  metrics: [less("rss", "KiB resident"), less("heap", "KiB of heap")],
  async run({ connect, disconnect, server, budget }) {
    // The first connections compile code, whose memory must not count.
    await connect(50);
    await disconnect();
    const empty = await server("memory");
    await connect(budget.idle);
    const full = await server("memory");
    const each = (bytes) => bytes / 1024 / budget.idle;
    return { rss: each(full.rss - empty.rss), heap: each(full.heapUsed - empty.heapUsed) };
  },
};
