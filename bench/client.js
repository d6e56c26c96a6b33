/** The clients of one contender as a process, which starts the server's: `node client.js CONTENDER`. Runs the scenarios that its parent names. */
import { fork } from "node:child_process";
import { answer, asker } from "./channel.js";
import { scenarios } from "./scenarios/index.js";

/** How many connections are being opened at once. */
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

/** Opens `count` connections, each with the methods that `methodsOf` makes for it, and waits until the server knows them all. */
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
    // What an earlier scenario left is not this one's to clear away.
    globalThis.gc();
    const result = await scenarios.get(scenarioName).run({ connect, disconnect, server, budget });
    await disconnect();
    return result;
  },
});
process.on("disconnect", () => process.exit());
