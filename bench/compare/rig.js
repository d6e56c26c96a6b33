/** The parts of the experiments: a server in a process of its own, a connection that can be cut, and a bare WebSocket. */
import { fork } from "node:child_process";
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { WebSocket, WebSocketServer } from "ws";

/** The time after which a missing reply over loopback counts as none. */
const ANSWER_MS = 1_000;

/** Starts the server of a contender in a process of its own: a frame that ends the server must not end the experiment. */
export async function startServer(contender) {
  // Ignore the output: several contenders print a stack for each frame that they refuse.
  const child = fork(new URL("server.js", import.meta.url), [contender], {
    stdio: ["ignore", "ignore", "ignore", "ipc"],
  });
  const exited = once(child, "exit");
  const alive = () => child.exitCode === null && child.signalCode === null;
  const [hello] = await Promise.race([once(child, "message"), exited]);
  if (!alive()) throw new Error(`the server of ${contender} did not start: node server.js ${contender} says why`);
  return { ...hello, exited, alive };
}

/** Starts a proxy between client and server. It reads every frame of the client, and can cut both TCP connections without a close frame. */
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
      here.on("error", () => {}); // The `close` event that follows reports it too.
      here.on("close", () => there.terminate());
    }
  });
  return {
    port: server.address().port,
    /** Resolves with the next frame of the client, when the proxy has forwarded it. */
    nextFrame: () => new Promise((resolve) => (sawFrame = resolve)),
    cut: () => sockets.forEach((socket) => socket.terminate()),
  };
}

/** Sends one frame over a bare WebSocket. Resolves with the text of the reply, or with what happened instead. */
export async function sendFrame(server, frame) {
  const socket = new WebSocket(`ws://127.0.0.1:${server.port}${server.path}`);
  const happened = new Promise((resolve) => {
    socket.on("message", (data) => resolve({ text: data.toString() }));
    socket.on("close", async (code) => {
      // The sockets of a process close a little before its exit is reported.
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

/** Returns the state of a promise after at most `ms`. */
export function outcome(promise, ms) {
  return Promise.race([
    promise.then(
      (value) => ({ state: "resolves", value }),
      (error) => ({ state: "rejects", error }),
    ),
    sleep(ms, { state: "pending" }),
  ]);
}
