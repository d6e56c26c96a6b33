/** The process of a node: a server with the engine of Redis, which obeys the world. */
import { serve, type AnyPeer } from "../../../src/node.js";
import { redis } from "../../../src/redis/index.js";
import { applyMutant } from "./mutants.js";
import {
  LEASE_MS,
  LOGGED,
  PLAIN,
  SESSION_MS,
  type Done,
  type NodeStart,
  type Order,
  type Report,
  type Welcome,
} from "./orders.js";

const { run, url, prefix, mutant } = JSON.parse(process.argv[2]!) as NodeStart;
if (mutant !== undefined) applyMutant(mutant);

const report = (message: Report): void => void process.send!(message);
const server = await serve<any, any, any>({
  port: 0,
  host: "127.0.0.1",
  // Short, because a suspended peer is a member until its session expires.
  session: { ttlMs: SESSION_MS },
  engine: redis({ url, prefix, leaseMs: LEASE_MS, startTimeoutMs: 60_000 }),
  topics: (name) => (name === LOGGED ? { log: { length: 2_000, ttlMs: 600_000 }, members: true } : undefined),
  methods: {
    async join({ since, as }: { since?: string; as: string }, { peer }: { peer: AnyPeer }): Promise<Welcome> {
      await server.topic(PLAIN).join(peer);
      const { outcome, at } = await server.topic(LOGGED).join(peer, { since, as });
      return { run, id: peer.id, outcome: outcome!, at };
    },
  },
});

server.on("engine", ({ state }) => report({ kind: "engine", state, time: Date.now() }));
server.on("gap", (topic) => report({ kind: "gap", topic, time: Date.now() }));
server.on("error", (error: unknown) => report({ kind: "error", text: String(error) }));
const replica = new Set<string>();
server.topic(LOGGED).watch((event, { id }) => {
  if (event === "joined") replica.add(id);
  else replica.delete(id);
  report({ kind: "member", event, id });
});

async function obey(order: Order): Promise<Omit<Done, "time">> {
  switch (order.kind) {
    case "notify":
      server.topic(PLAIN).notify("told", { run, n: order.n });
      return {};
    case "publish":
      return {
        at: await server
          .topic(LOGGED)
          .publish("said", { n: order.n }, order.key === undefined ? {} : { key: order.key }),
      };
    case "call":
      return { result: await server.peer(order.peer).request("run", { n: order.n }, { timeoutMs: 5_000 }) };
    case "members":
      return { members: (await server.topic(LOGGED).members()).map(({ id }) => id), replica: [...replica] };
    case "health":
      return { ok: server.health().ok };
    case "close":
      await server.close();
      return {};
  }
}

process.on("message", ({ number, order }: { number: number; order: Order }) => {
  const done = (result: Omit<Done, "time">): void => {
    report({ kind: "done", order: number, done: { ...result, time: Date.now() } });
    if (order.kind === "close") process.disconnect();
  };
  obey(order).then(done, (error: Error & { outcome?: string }) =>
    done({ error: { text: String(error), outcome: error.outcome } }),
  );
});
// Without its world, a node ends.
process.on("disconnect", () => process.exit());
report({ kind: "listening", port: Number(new URL(server.url).port) });
