/** The process with the clients of one contender: `node client.js CONTENDER`. It starts the server process, and runs the scenarios that its parent names. */
import { fork } from "node:child_process";
import { answer, asker } from "./channel.js";
import { scenarios } from "./scenarios/index.js";

/** The number of connections that are opened at the same time. */
const OPENING = 64;

const [name] = process.argv.slice(2);
const child = fork(new URL("server.js", import.meta.url), [name], { execArgv: process.execArgv });
child.on("exit", (code, signal) => {
  process.stderr.write(`\nthe server process ended with ${code ?? signal}\n`);
  process.exit(1);
});
const server = asker(child);
const contender = await import(`./contenders/${name}.js`);
const url = `ws://127.0.0.1:${await server("port")}`;
let open = [];

/** Opens `count` connections, each with the methods that `methodsOf` returns for it. Resolves when the server has all of them. */
async function connect(count, methodsOf = () => ({})) {
  const first = open.length;
  let next = 0;
  const opener = async () => {
    while (next < count) {
      const index = next++;
      open[first + index] = await contender.connect(url, methodsOf(index));
    }
  };
  await Promise.all(Array.from({ length: Math.min(OPENING, count) }, opener));
  await server("connected", open.length);
  return open.slice(first);
}

async function disconnect() {
  for (const peer of open) peer?.close();
  open = [];
  await server("connected", 0);
}

answer(process, {
  async run(scenarioName, budget) {
    // Collect the garbage of earlier scenarios first: it must not count for this one.
    globalThis.gc();
    const result = await scenarios.get(scenarioName).run({ connect, disconnect, server, budget });
    await disconnect();
    return result;
  },
});
process.on("disconnect", () => process.exit());
