/** One side of a profiled call: `profile-side.js server|client JSON`. The process exits by itself, so that its profile is written. */
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [role, given] = process.argv.slice(2);
const { kind, root, port, inFlight, calls } = JSON.parse(given);
const { WebSocket, WebSocketServer } = createRequire(join(root, "package.json"))("ws");
const load = () => import(pathToFileURL(join(root, "dist/node.js")).href);
const PARAMS = { text: "eight ch" };

async function serveBare() {
  const server = new WebSocketServer({ port: 0, host: "127.0.0.1", perMessageDeflate: false });
  server.on("connection", (webSocket) => {
    webSocket.on("message", (data) => {
      const { id, params } = JSON.parse(data);
      webSocket.send(JSON.stringify({ jsonrpc: "2.0", id, result: params }));
    });
  });
  await new Promise((resolve) => server.once("listening", resolve));
  return server.address().port;
}

async function serve() {
  if (kind === "bare") return serveBare();
  const server = await (await load()).serve({ port: 0, methods: { echo: (params) => params } });
  return Number(new URL(server.url).port);
}

async function connectBare() {
  const webSocket = new WebSocket(`ws://127.0.0.1:${port}`, { perMessageDeflate: false });
  await new Promise((resolve) => webSocket.once("open", resolve));
  const pending = new Map();
  let lastId = 0;
  webSocket.on("message", (data) => {
    const { id, result } = JSON.parse(data);
    const resolve = pending.get(id);
    pending.delete(id);
    resolve(result);
  });
  return (params) =>
    new Promise((resolve) => {
      pending.set(++lastId, resolve);
      webSocket.send(JSON.stringify({ jsonrpc: "2.0", id: lastId, method: "echo", params }));
    });
}

async function connect() {
  if (kind === "bare") return connectBare();
  const options = kind === "plain" ? { link: "plain" } : {};
  const peer = await (await load()).connect(`ws://127.0.0.1:${port}`, options);
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
