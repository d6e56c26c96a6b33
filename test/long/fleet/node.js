/** A node of the long runs in a process of its own, which a signal can stop or kill. It serves what the nodes of `fleet/world.ts` serve. */
import { setTimeout as after } from "node:timers/promises";
import { EngineError, RpcError, serve } from "reciproc/node";

const { port, engine, run, session, topics, workMs, pauseMs, hurry } = JSON.parse(process.argv[2]);
const [entry, options] = engine;
const { [entry]: createEngine } = await import(`reciproc/${entry}`);
const { random } = Math;
Math.random = () => hurry * random();

/** The peer of the world. */
let world;
const report = (kind, params) => world?.notify(kind, params);
/** Returns the state of the followed topic. */
const load = async () => {
  const board = await world.request("load");
  if (board === null) throw new EngineError("the world has not read the log", "not-sent");
  return board;
};

const server = await serve({
  port,
  host: "127.0.0.1",
  engine: createEngine(options),
  session,
  topics: (name) => topics[name],
  authenticate: ({ url }) => ({ name: new URL(url, "ws://node/").searchParams.get("name") }),
  principal: ({ name }) => String(name),
  methods: {
    openBoard: async ({ since }, { peer }) => {
      const joined = await server.topic("board").join(peer, { since, load });
      return { ...joined, at: joined.value?.at ?? joined.at };
    },
    people: (params, { peer }) => server.topic("people").present(peer, params, params.state),
    put: ({ change }, context) => {
      report("asked", { change });
      return server.runOnce(context, () => world.request("change", { change }));
    },
    join: async ({ since, as }, { peer }) => {
      await server.topic("plain").join(peer);
      const { outcome, at } = await server.topic("logged").join(peer, { since, as });
      await after(random() * workMs);
      return { outcome, at, id: peer.id, run };
    },
    rename: async ({ as }, { peer }) => {
      if (!server.topic("logged").has(peer)) throw new RpcError(1, "no member");
      await server.topic("logged").join(peer, { as });
    },
    work: async ({ n }) => {
      report("ran", { n });
      await after(n % workMs);
      return n;
    },
    obey: (_params, { peer }) => {
      world = peer;
      if (!server.health().ok) report("engine", { state: "down", text: "it was lost at the start" });
      server.topic("logged").watch((event, { id, as }) => report("member", { event, id, as }));
    },
    /** Calls a function of a part of the server. The outcome of an error is in its data. */
    order: async ({ part: [kind, name], method, args }) => {
      try {
        return await (kind === "nodes" ? server.nodes : server[kind](name))[method](...args);
      } catch (error) {
        throw new RpcError(1, String(error), { outcome: error.outcome });
      }
    },
  },
});
server.on("engine", ({ state, error }) => report("engine", { state, text: String(error ?? "") }));
server.on("gap", (topic) => {
  if (topic === "logged") server.topic(topic).notify("missed", {}, { here: true, whenSlow: "close" });
});
server.on("error", (error) => {
  if (!["EngineError", "ConnectionLostError"].includes(error.name)) report("error", { text: String(error) });
});
process.stderr.write("listening\n");
for (let at = performance.now(); ; at = performance.now()) {
  await after(10);
  const ms = performance.now() - at - 10;
  if (ms > pauseMs) report("paused", { ms });
}
