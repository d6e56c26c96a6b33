/** A server under attack, in a process of its own: reciproc with its defaults, or bare `ws` that parses each message. */
import { createServer } from "node:http";
import { WebSocketServer } from "ws";
import { serve } from "../../dist/node.js";
import { answer } from "../process.js";
import { METHODS } from "./floods.js";

const http = createServer();
if (process.argv[2] === "reciproc") {
  const server = await serve({ server: http, methods: METHODS });
  // An application counts errors, and does not store each error of a flood.
  server.on("error", () => {});
} else bare();
http.listen(0, "127.0.0.1");

/** Answers calls of `here`, and nothing else. Has no limits but that of the length of a message. */
function bare() {
  http.on("request", (request, response) => void request.resume().on("end", () => response.writeHead(404).end()));
  const handleProtocols = (offered) => (offered.has("reciproc.v1") ? "reciproc.v1" : false);
  const sockets = new WebSocketServer({ server: http, maxPayload: 2 ** 20, handleProtocols });
  sockets.on("connection", (socket) => {
    socket.on("error", () => {});
    if (socket.protocol !== "") socket.send('{"hello":{}}');
    socket.on("message", (data) => {
      let given;
      try {
        given = JSON.parse(String(data));
      } catch {
        socket.send('{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}');
        return;
      }
      for (const { id, method } of Array.isArray(given) ? given : [given])
        if (method === "here" && id !== undefined) socket.send(`{"jsonrpc":"2.0","id":${id},"result":true}`);
    });
  });
}

/** Returns the bytes in use after full collections. Closing sockets needs ticks between them. */
async function bytesKept() {
  for (let i = 0; i < 6; i++) {
    globalThis.gc();
    await new Promise(setImmediate);
  }
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

answer({
  async port() {
    if (!http.listening) await new Promise((resolve) => http.once("listening", resolve));
    return http.address().port;
  },
  /** The milliseconds of CPU since the start. */
  cpuMs() {
    const { user, system } = process.cpuUsage();
    return (user + system) / 1000;
  },
  bytesKept,
  /** Returns the bytes in use before and while the value of a JSON text is held. */
  async hold(json) {
    const before = await bytesKept();
    const value = JSON.parse(json);
    const after = await bytesKept();
    return { before, after, isHeld: value !== undefined };
  },
  connections: () => new Promise((resolve) => http.getConnections((_error, count) => resolve(count))),
});
