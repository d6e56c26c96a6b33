/** reciproc over Redis. */
import { createServer } from "node:http";
import { connect as open, serve } from "../../../dist/node.js";
import { redis } from "../../../dist/redis/index.js";

const TOPIC = "everyone";
/** Longer than what is published while a client is away. */
const LOG = { length: 10_000, bytes: 2 ** 26, ttlMs: 600_000 };
/** All clients of a node that was killed come to one other node. */
const limits = { maxConnections: 20_000 };

/** Starts a node. `http` does not listen yet. */
export async function startNode({ url }) {
  const http = createServer();
  const server = await serve({
    server: http,
    limits,
    engine: redis({ url }),
    topics: () => ({ log: LOG }),
    methods: {
      async join({ since }, { peer }) {
        const { outcome } = await server.topic(TOPIC).join(peer, { since });
        return { id: peer.id, outcome };
      },
    },
  });
  const topic = server.topic(TOPIC);
  return {
    http,
    broadcast: (method, params) => topic.notify(method, params),
    publish: (method, params) => topic.publish(method, params),
    peer: (id) => ({ call: (method, x) => server.peer(id).request(method, [x]) }),
    count: () => topic.size,
    stats: () => server.stats().engine,
  };
}

/**
 * Connects a client to the first of `urls`, and to the next one after each loss. `joined` is called each time when the client is in the
 * topic, with its id and whether it has every message so far.
 */
export async function connect(urls, { methods, joined }) {
  let since;
  let attempts = 0;
  const client = await open(() => urls[attempts++ % urls.length], {
    methods: {
      increment: ([n]) => n + 1,
      moved: (message) => methods.moved(message),
      said: (message) => {
        since = message.at;
        methods.said(message);
      },
    },
    onOpen: async (server) => {
      const { id, outcome } = await server.request("join", { since });
      joined(id, outcome === "complete");
    },
  });
  return { close: () => client.close() };
}
