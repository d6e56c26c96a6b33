/** What connections take: to open, to close, and while they are idle. */
import { check } from "../load.js";
import { cpu, memory } from "../usage.js";
import { less, more } from "./metric.js";

/** The first connections compile code, whose time and memory must not count. */
async function warmUp({ connect, disconnect }) {
  await connect(50);
  await disconnect();
}

async function cpuOfBoth(server) {
  return cpu() + (await server.ask("cpu"));
}

const opened = {
  name: "connect",
  title: "Connections opened, 64 at once",
  metrics: [more("opened", "connections/s"), less("cpu", "CPU µs a connection, client and server")],
  sockets: (budget) => budget.opened,
  async run({ connect, disconnect, call, server, budget }) {
    await warmUp({ connect, disconnect });
    const before = await cpuOfBoth(server);
    const started = performance.now();
    const peers = await connect(budget.opened);
    const seconds = (performance.now() - started) / 1_000;
    const spent = (await cpuOfBoth(server)) - before;
    // Each connection must carry a call.
    await Promise.all(peers.map(async (peer, n) => check(await call(peer, "increment", n), n + 1, "increment")));
    return { opened: budget.opened / seconds, cpu: spent / budget.opened };
  },
};

const closed = {
  name: "close",
  title: "Connections closed, all at once",
  metrics: [less("cpu", "CPU µs a connection, client and server")],
  sockets: (budget) => budget.opened,
  async run({ connect, disconnect, server, budget }) {
    await warmUp({ connect, disconnect });
    await connect(budget.opened);
    const before = await cpuOfBoth(server);
    await disconnect();
    return { cpu: ((await cpuOfBoth(server)) - before) / budget.opened };
  },
};

const idle = {
  name: "memory",
  title: (budget) => `Memory of an idle connection, of ${budget.idle.toLocaleString("en-US")}`,
  heavy: true,
  mostRounds: 3,
  collects: true,
  sockets: (budget) => budget.idle,
  metrics: [
    less("rss", "KiB resident on the server"),
    less("heap", "KiB of heap on the server"),
    less("clientRss", "KiB resident on the client"),
    less("clientHeap", "KiB of heap on the client"),
  ],
  async run({ connect, disconnect, server, budget }) {
    await warmUp({ connect, disconnect });
    const used = async () => {
      const [here, there] = [await memory(), await server.ask("memory")];
      return { rss: there.rss, heap: there.heapUsed, clientRss: here.rss, clientHeap: here.heapUsed };
    };
    const empty = await used();
    await connect(budget.idle);
    const full = await used();
    return Object.fromEntries(
      Object.entries(full).map(([name, bytes]) => [name, (bytes - empty[name]) / 1024 / budget.idle]),
    );
  },
};

export const connections = [opened, closed, idle];
