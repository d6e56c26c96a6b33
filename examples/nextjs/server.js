/** The server: the pages of Next.js, and the calls of reciproc, on one HTTP server. */
import { createServer } from "node:http";
import next from "next";
import { serve } from "reciproc/node";

const dev = process.env.NODE_ENV !== "production";
const hostname = "127.0.0.1";
/** Next listens to the upgrades of this server, which has no port, and not to those of `http`. */
const upgrades = createServer();
const app = next({ dev, hostname, dir: import.meta.dirname, httpServer: upgrades });
await app.prepare();

let likes = 0;
const server = await serve({
  noServer: true,
  path: "/rpc",
  topics: () => ({ log: {} }),
  methods: {
    likes: ({ since }, { peer, server }) => server.topic("likes").join(peer, { since, load: () => likes }),
    async like(_params, { server }) {
      await server.topic("likes").publish("liked", { likes: ++likes });
    },
  },
});
server.on("error", console.error);

const http = createServer(app.getRequestHandler());
http.on("upgrade", (request, socket, head) => {
  const isForNext = dev && request.url.startsWith("/_next/"); // the WebSocket by which `dev` replaces modules
  if (!isForNext) server.handleUpgrade(request, socket, head);
  else if (!upgrades.emit("upgrade", request, socket, head)) socket.destroy();
});
http.listen(process.env.PORT ?? 3000, hostname, () => {
  console.log(`nextjs: http://${hostname}:${http.address().port}/`);
});

process.once("SIGTERM", async () => {
  await server.drain();
  await app.close();
  process.exit(); // `http` still listens
});
