/** The process with the clients of one contender: `node client.js CONTENDER`. It starts the server process, and runs the scenarios that its parent names. */
import { answer, Process } from "./process.js";
import { scenarios } from "./scenarios/index.js";
import { disconnected } from "./usage.js";

/** The number of connections that are opened at the same time. */
const OPENING = 64;

const [name] = process.argv.slice(2);
const server = new Process(new URL("server.js", import.meta.url), [name]);
const contender = await import(`./contenders/${name}.js`);
const url = `ws://127.0.0.1:${await server.ask("port")}`;
const open = [];

/** Opens `count` connections, all with the same methods. Resolves when the server has all of them. */
async function connect(count, methods = {}) {
  const connectOne = contender.connector(url, methods);
  const first = open.length;
  let left = count;
  const opener = async () => {
    while (left-- > 0) open.push(await connectOne());
  };
  await Promise.all(Array.from({ length: OPENING }, opener));
  await server.ask("connected", open.length);
  return open.slice(first);
}

/** Closes all connections. Resolves when both processes have no socket left. */
async function disconnect() {
  for (const peer of open.splice(0)) contender.close(peer);
  await Promise.all([server.ask("connected", 0), disconnected()]);
}

answer({
  async run(scenarioName, budget) {
    const scenario = scenarios.get(scenarioName);
    const result = await server.whileAlive(scenario.run({ ...contender, connect, disconnect, server, budget }));
    await disconnect();
    return result;
  },
});
