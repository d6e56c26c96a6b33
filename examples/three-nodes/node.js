/** One node: a chat room that all nodes share. Started by main.js, with its name. */
import { RpcError, serve } from "reciproc/node";
import { redis } from "reciproc/redis";

const [name] = process.argv.slice(2);

const server = await serve({
  port: 0,
  authenticate: ({ url }) => ({ name: new URL(url, "ws://localhost").searchParams.get("name") ?? "somebody" }),
  engine: redis({
    url: process.env.REDIS_URL ?? "redis://127.0.0.1:6379",
    prefix: "three-nodes",
    // The members of a node that was killed are gone after 4 s, not after 13 s as by default.
    leaseMs: 3_000,
  }),
  // A client that lost its socket asks the load balancer for this node, which has its session.
  session: { route: name },
  // The same on every node: what is said is logged for an hour, and the members see who joins and leaves.
  topics: () => ({ log: { length: 1_000, ttlMs: 3_600_000 }, members: "member" }),

  methods: {
    /** `since` is the position of the last message that the client got. What it missed is sent before this returns. */
    async join({ since }, { peer }) {
      const { at, outcome } = await room.join(peer, { since, as: { name: peer.auth.name } });
      return { node: name, at, outcome };
    },
    /** Resolves when Redis has logged the message. Then all members get it, in one order. */
    say: ({ text }, { peer }) => room.publish("said", { name: peer.auth.name, text }),
    /** Only live: a member that is away does not get it. */
    typing: (_params, { peer }) => room.notify("typing", { name: peer.auth.name }, { except: peer }),
    /** The members on all nodes. */
    who: async () => (await room.members()).map(({ as }) => as.name),
    /** Calls a member on any node, and returns its answer. */
    async wave({ to }, { peer }) {
      const member = (await room.members()).findLast(({ as }) => as.name === to);
      if (member === undefined) throw new RpcError(404, `${to} is not here`);
      return server.peer(member.id).request("waved", { from: peer.auth.name }, { timeoutMs: 5_000 });
    },
    /** For the demonstration: this node ends at once, as in a crash. */
    kill: () => void process.kill(process.pid, "SIGKILL"),
  },
});
const room = server.topic("room");

server.on("engine", ({ state, error }) => console.log(`${name}: Redis is ${state}`, error?.message ?? ""));
server.on("gap", (_topic, reason) => console.log(`${name}: messages are missing, because ${reason}`));
server.on("error", console.error);

process.send({ port: Number(new URL(server.url).port) });
// Ctrl+C reaches all processes. main.js says when this one ends.
process.on("SIGINT", () => {});
process.on("disconnect", async () => {
  await server.drain({ timeoutMs: 5_000 });
  process.exit();
});
