/** What the experiments stand on: a server in a process of its own, a connection that can be cut, and a client with a bare socket. */
import { fork } from "node:child_process";
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { WebSocket, WebSocketServer } from "ws";

/** How long an answer over loopback may take before it counts as none. */
const ANSWER_MS = 1_000;

/** The contender's server, in a process of its own: a frame that kills it must not kill the experiment. */
export async function startServer(contender) {
  // Its output is of no interest: several print a stack for each frame they refuse.
  const child = fork(new URL("server.js", import.meta.url), [contender], {
    stdio: ["ignore", "ignore", "ignore", "ipc"],
  });
  const exited = once(child, "exit");
  const alive = () => child.exitCode === null && child.signalCode === null;
  const [hello] = await Promise.race([once(child, "message"), exited]);
  if (!alive()) throw new Error(`the server of ${contender} did not start: node server.js ${contender} says why`);
  return { ...hello, exited, alive };
}

/** Stands between client and server, sees every frame that the client sends, and can cut both TCP connections without a close frame. */
export async function startProxy(target) {
  const server = new WebSocketServer({ port: 0, host: "127.0.0.1" });
  await once(server, "listening");
  const sockets = new Set();
  let sawFrame;
  server.on("connection", (client, request) => {
    const upstream = new WebSocket(`ws://127.0.0.1:${target}${request.url}`);
    const opened = once(upstream, "open");
    client.on("message", async (data, binary) => {
      await opened;
      upstream.send(data, { binary });
      sawFrame?.(data.toString());
    });
    upstream.on("message", (data, binary) => client.send(data, { binary }));
    for (const [here, there] of [
      [client, upstream],
      [upstream, client],
    ]) {
      sockets.add(here);
      here.on("error", () => {}); // The close that follows says it too.
      here.on("close", () => there.terminate());
    }
  });
  return {
    port: server.address().port,
    /** The next frame that the client sends, once it went on to the server. */
    nextFrame: () => new Promise((resolve) => (sawFrame = resolve)),
    cut: () => sockets.forEach((socket) => socket.terminate()),
  };
}

/** Sends one frame on a bare socket. Resolves with the text that answers it, or with another outcome. */
export async function tell(server, frame) {
  const socket = new WebSocket(`ws://127.0.0.1:${server.port}${server.path}`);
  const happened = new Promise((resolve) => {
    socket.on("message", (data) => resolve({ text: data.toString() }));
    socket.on("close", async (code) => {
      // A process that dies drops its sockets a little before its exit is seen.
      await Promise.race([server.exited, sleep(ANSWER_MS)]);
      resolve({ instead: server.alive() ? `the connection is closed (${code})` : "the server process exits" });
    });
    socket.on("error", () => {});
  });
  await once(socket, "open");
  socket.send(frame);
  const reply = await Promise.race([happened, sleep(ANSWER_MS, { instead: "no answer" })]);
  socket.terminate();
  return reply;
}

/** What became of a promise within `ms`. */
export function outcome(promise, ms) {
  return Promise.race([
    promise.then(
      (value) => ({ state: "resolves", value }),
      (error) => ({ state: "rejects", error }),
    ),
    sleep(ms, { state: "pending" }),
  ]);
}
