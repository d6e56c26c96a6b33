/** The code that the rows of socket.io share. They differ in their adapters. */
import { createServer } from "node:http";
import { createClient } from "@redis/client";
import { Server } from "socket.io";
import { io } from "socket.io-client";

const ROOM = "everyone";
const CALL_TIMEOUT_MS = 30_000;

/** Returns a client of Redis that is connected. */
export async function redisClient(url) {
  const client = createClient({ url });
  client.on("error", (error) => process.stderr.write(`${error}\n`));
  await client.connect();
  return client;
}

/** Returns `startNode` of a row. `adapterOf` makes its adapter. */
export function startNodeWith(adapterOf) {
  return async ({ url, recovers }) => {
    const http = createServer();
    const adapter = await adapterOf(url);
    // Without recovery, packets carry no offset, which is the default and faster.
    const recovery = recovers ? { connectionStateRecovery: { maxDisconnectionDuration: 120_000 } } : {};
    const server = new Server(http, { adapter, ...recovery });
    server.on("connection", (socket) => {
      // The room of a recovered socket is restored.
      void socket.join(ROOM);
    });
    return {
      http,
      broadcast: (event, x) => server.to(ROOM).emit(event, x),
      peer: (id) => ({
        async call(event, x) {
          const [result] = await server.to(id).timeout(CALL_TIMEOUT_MS).emitWithAck(event, x);
          return result;
        },
      }),
      count: () => server.sockets.adapter.rooms.get(ROOM)?.size ?? 0,
      stats: () => undefined,
    };
  };
}

/** As the other contender does. */
export async function connect(urls, { methods, joined }) {
  // Without `forceNew` all sockets of one process share one connection.
  const socket = io(urls[0], { transports: ["websocket"], forceNew: true });
  // There is no option for several servers. The manager reads its address for each attempt.
  socket.io.on("reconnect_attempt", (attempt) => (socket.io.uri = urls[attempt % urls.length]));
  socket.on("increment", (n, acknowledge) => acknowledge(n + 1));
  for (const [name, method] of Object.entries(methods)) socket.on(name, method);
  await new Promise((resolve, reject) => {
    socket.on("connect", () => {
      joined(socket.id, socket.recovered);
      resolve();
    });
    socket.once("connect_error", reject);
  });
  return { close: () => socket.disconnect() };
}
