/** A thread that runs programs, one after the other. Posts what each has printed when nothing is left that keeps it running. */
import { setTimeout } from "node:timers";
import { pathToFileURL } from "node:url";
import { parentPort } from "node:worker_threads";

const POLL_MS = 2;

let printed = "";
let errors = "";
process.stdout.write = (text) => ((printed += text), true);
process.stderr.write = (text) => ((errors += text), true);
for (const event of ["uncaughtException", "unhandledRejection"])
  process.on(event, (error) => (errors += error?.stack ?? error));

/** Returns the names of the timers, the sockets and the rest that keeps this thread running. */
const resources = () => process.getActiveResourcesInfo().toSorted().join();

/** Resolves when nothing but `before` keeps the thread running, in two turns of the event loop. */
async function end(before) {
  for (let turns = 0; turns < 2;)
    turns = await new Promise((resolve) => {
      setTimeout(() => resolve(resources() === before ? turns + 1 : 0), POLL_MS).unref();
    });
}

parentPort.on("message", async (path) => {
  printed = errors = "";
  const before = resources();
  await import(pathToFileURL(path).href).catch((error) => (errors += error.stack));
  await end(before);
  parentPort.postMessage({ printed, errors });
});
