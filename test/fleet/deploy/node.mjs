/**
 * One node of the deployment. Its settings are its first argument. It sends its parent its URL, each call that it has begun, and what
 * goes wrong. When it gets a message, it drains, and ends by itself.
 */
import { serve } from "../../../dist/node.js";
import { redis } from "../../../dist/redis/index.js";

const { url, prefix, route } = JSON.parse(process.argv[2]);
const report = (message) => process.send(message);

/** Answers that take up to 20 ms, so that a drain finds running handlers. */
const pause = (id) => new Promise((resolve) => setTimeout(resolve, id % 20));

const server = await serve({
  port: 0,
  session: { route },
  engine: redis({ url, prefix }),
  authenticate: (_request, name) => (typeof name === "string" ? { name } : null),
  principal: ({ name }) => name,
  topics: (name) => (name.startsWith("room:") ? { log: { length: 5_000, ttlMs: 600_000 }, members: true } : undefined),
  methods: {
    join: ({ room, since }, { peer }) => server.topic(room).join(peer, { since, as: peer.auth.name }),
    members: ({ room }) => server.topic(room).members(),
    async add({ id, x, y }) {
      report({ ran: id });
      await pause(id);
      return x + y;
    },
    async say({ id, room }) {
      report({ ran: id });
      await pause(id);
      return server.topic(room).publish("said", { id }, { key: String(id) });
    },
    /** Calls another client, on whichever node it is. */
    async ask({ id, room, name }) {
      report({ ran: id });
      const members = await server.topic(room).members();
      const other = members.find(({ as }) => as === name);
      if (other === undefined) return { outcome: "not-sent" };
      try {
        return { result: await server.peer(other.id).request("confirm", { id }, { timeoutMs: 10_000 }) };
      } catch ({ code, outcome }) {
        return { code, outcome };
      }
    },
  },
});
server.on("error", (error) => report({ error: String(error) }));
server.on("gap", (topic, reason) => report({ error: `gap of ${topic}: ${reason}` }));
process.once("message", async () => {
  await server.drain({ timeoutMs: 10_000, retryMs: 300 });
  process.send({ drained: server.stats() }, () => process.disconnect());
});
report({ url: server.url });
