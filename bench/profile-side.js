/** One side of a profiled call: `profile-side.js server|client JSON`. The process exits by itself, so that its profile is written. */
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [role, given] = process.argv.slice(2);
const { kind, root, port, inFlight, calls } = JSON.parse(given);
const isBare = kind === "bare";
const library = await import(isBare ? "./contenders/bare.js" : pathToFileURL(join(root, "dist/node.js")).href);
const PARAMS = { text: "eight ch" };

async function serve() {
  const methods = { echo: (params) => params };
  if (isBare) return (await library.serve(methods)).port;
  const server = await library.serve({ port: 0, methods });
  return Number(new URL(server.url).port);
}

async function connect() {
  const url = `ws://127.0.0.1:${port}`;
  if (isBare) {
    const peer = await library.connector(url, {})();
    return (params) => library.call(peer, "echo", params);
  }
  const peer = await library.connect(url, kind === "plain" ? { link: "plain" } : {});
  return (params) => peer.request("echo", params);
}

if (role === "server") {
  process.send(await serve());
  process.once("message", () => process.exit());
} else {
  const call = await connect();
  const started = performance.now();
  let left = calls;
  const work = async () => {
    while (left-- > 0) {
      const { text } = await call(PARAMS);
      if (text !== PARAMS.text) throw new Error(`the answer is ${text}`);
    }
  };
  await Promise.all(Array.from({ length: inFlight }, work));
  process.send(performance.now() - started);
  setTimeout(() => process.exit(), 50);
}
