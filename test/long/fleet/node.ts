/** The process of a node: a server with an engine, which obeys the world. */
import { EngineError, type Engine } from "../../../src/fleet/engine.js";
import { nats } from "../../../src/nats/index.js";
import { ConnectionLostError, RpcError, serve, type AnyPeer } from "../../../src/node.js";
import { redis } from "../../../src/redis/index.js";
import { bend } from "./bent.js";
import { RunClock } from "./clock.js";
import { detour } from "./detour.js";
import { MUTANTS } from "./mutants.js";
import {
  LEASE_MS,
  LOGGED,
  PLAIN,
  SESSION_MS,
  TIMEOUT_MS,
  type BrokerPlace,
  type Done,
  type NodeStart,
  type Order,
  type Report,
  type Welcome,
} from "./orders.js";

const { run, place, prefix, mutant } = JSON.parse(process.argv[2]!) as NodeStart;
const { engine: bends, isDurable = false, misuse } = mutant === undefined ? {} : { ...MUTANTS[mutant]! };

/** How long an application works before it answers to a join: at most, and with one that is wrong. */
const MOST_JOIN_MS = 50;
const LONG_JOIN_MS = 1_000;

/** Longer than every fault, and longer than the machine may stand still. */
const START_TIMEOUT_MS = 600_000;

const after = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

function engineAt({ kind, urls }: BrokerPlace): Engine {
  const settings = { prefix, leaseMs: LEASE_MS, startTimeoutMs: START_TIMEOUT_MS };
  if (kind === "nats") return nats({ url: urls, jetstream: {}, ...settings });
  const where = kind === "cluster" ? { cluster: urls } : { url: urls[0]! };
  return redis({ ...where, ...settings, ...(isDurable && { history: "durable" }) });
}

detour(new Map(place.detours));
const right = engineAt(place);
const report = (message: Report): void => void process.send!(message);
const server = await serve<any, any, any>({
  port: 0,
  host: "127.0.0.1",
  // Short, because a suspended peer is a member until its session expires.
  session: { ttlMs: SESSION_MS },
  engine: bends === undefined ? right : bend(right, bends),
  topics: (name) => (name === LOGGED ? { log: { length: 2_000, ttlMs: 600_000 }, members: true } : undefined),
  nodes: { methods: { flood: () => {} } },
  methods: {
    join: (params: Joining, { peer, signal }: { peer: AnyPeer; signal: AbortSignal }) =>
      join(params, peer).catch((error: unknown) => {
        // The client has gone meanwhile.
        if (signal.aborted) throw signal.reason;
        // Without the broker, or its own connection, a client cannot join. It tries again.
        const isExpected = error instanceof EngineError || error instanceof ConnectionLostError;
        throw isExpected ? new RpcError(1, error.message) : error;
      }),
  },
});

interface Joining {
  readonly since?: string;
  readonly as: string;
}

async function join({ since, as }: Joining, peer: AnyPeer): Promise<Welcome> {
  await server.topic(PLAIN).join(peer);
  const isLate = misuse === "replays after live messages" && since !== undefined;
  const joined = await server.topic(LOGGED).join(peer, isLate ? { as } : { since, as });
  const { at } = joined;
  let { outcome } = joined;
  // Meanwhile, live publications arrive.
  await after(misuse === undefined ? Math.random() * MOST_JOIN_MS : LONG_JOIN_MS);
  if (isLate) {
    const part = await server.topic(LOGGED).read({ since, limit: 1_000 });
    ({ outcome } = part);
    if (outcome === "complete") for (const { method, params } of part.entries) peer.notify(method, params);
  }
  return { run, id: peer.id, outcome: outcome!, at };
}

server.on("engine", ({ state, error }) =>
  report({ kind: "engine", state, text: String(error ?? ""), time: Date.now() }),
);
// An application reports a gap to the members, which load their state again.
server.on("gap", (topic) => server.topic(topic).notify("missed", {}, { here: true, whenSlow: "close" }));
server.on("error", (error: unknown) => report({ kind: "error", text: String(error) }));

/** The members as the watcher of this node knows them. Those that were members before were listed. */
const replica = new Set<string>();
const watched = new Set<string>();
const watch = (event: "joined" | "left", { id }: { id: string }): void => {
  watched.add(id);
  if (event === "joined") replica.add(id);
  else replica.delete(id);
  report({ kind: "member", event, id });
};
server.topic(LOGGED).watch(watch);
if (misuse === "watches twice") server.topic(LOGGED).watch(watch);

async function listBefore(): Promise<void> {
  for (;;) {
    try {
      const members = await server.topic(LOGGED).members();
      for (const { id } of members) if (!watched.has(id)) replica.add(id);
      return;
    } catch {
      // The broker is away.
      await after(MOST_JOIN_MS);
    }
  }
}
const listed = listBefore();

/** Returns the position of the last entry of the log. */
async function readTop(): Promise<string | undefined> {
  let part: { at: string | undefined; entries: readonly unknown[] } = { at: undefined, entries: [] };
  do part = await server.topic(LOGGED).read({ since: part.at, limit: 1_000 });
  while (part.entries.length > 0);
  return part.at;
}

async function obey(order: Order): Promise<Omit<Done, "time" | "tookMs">> {
  switch (order.kind) {
    case "notify":
      server.topic(PLAIN).notify("told", { run, n: order.n });
      return {};
    case "publish": {
      const options = { timeoutMs: TIMEOUT_MS, ...(order.key !== undefined && { key: order.key }) };
      return { at: await server.topic(LOGGED).publish("said", { n: order.n }, options) };
    }
    case "call": {
      const timeoutMs = misuse === "calls without a timeout" ? Infinity : TIMEOUT_MS;
      return { result: await server.peer(order.peer).request("run", { n: order.n }, { timeoutMs }) };
    }
    case "flood": {
      const pad = "x".repeat(order.bytes);
      for (let i = 0; i < order.count; i++) {
        server.nodes.notify("flood", { pad });
        await new Promise((resolve) => setImmediate(resolve));
      }
      return {};
    }
    case "members": {
      const members = await server.topic(LOGGED).members();
      await listed;
      return { members: members.map(({ id }) => id), replica: [...replica] };
    }
    case "top":
      return { at: await readTop() };
    default:
      return { ok: server.health().ok };
  }
}

const clock = new RunClock();
process.on("message", ({ number, order }: { number: number; order: Order }) => {
  const startedMs = clock.ms;
  const done = (result: Omit<Done, "time" | "tookMs">): void => {
    report({ kind: "done", order: number, done: { ...result, time: Date.now(), tookMs: clock.ms - startedMs } });
  };
  obey(order).then(done, (error: Error & { outcome?: string }) =>
    done({ error: { text: String(error), outcome: error.outcome } }),
  );
});
// Without its world, a node ends.
process.on("disconnect", () => process.exit());
report({ kind: "listening", port: Number(new URL(server.url).port) });
