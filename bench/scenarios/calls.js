/** Calls and notifications in a closed loop: the next ones follow when the results have come. */
import { check, perSecond, rate } from "../load.js";
import { text } from "../methods.js";
import { percentile } from "../statistics.js";
import { less, more } from "./metric.js";

const KIB = 1024;
/** The messages of a burst. */
const COUNT = 1_000;
const SUM = (COUNT * (COUNT + 1)) / 2;
const IN_FLIGHT = 64;

const one = calls("one", "One call at a time", { inFlight: 1, main: true, latency: true });

const burst = {
  name: "burst",
  title: "Bursts of 1,000 calls",
  main: true,
  metrics: [more("calls", "calls/s")],
  async run({ connect, call, budget }) {
    const [peer] = await connect(1);
    const round = async () => {
      const answers = await Promise.all(Array.from({ length: COUNT }, (_, n) => call(peer, "increment", n)));
      for (const [n, answer] of answers.entries()) check(answer, n + 1, "increment");
      return COUNT;
    };
    await perSecond(budget.warmUpMs, round);
    return { calls: await perSecond(budget.ms, round) };
  },
};

const serverCalls = {
  name: "server-calls",
  title: "Server calls client, 64 in flight",
  kind: "server-calls",
  main: true,
  metrics: [more("calls", "calls/s")],
  async run({ connect, server, budget }) {
    await connect(1, { increment: (n) => n + 1 });
    await server.ask("callClient", IN_FLIGHT, budget.warmUpMs);
    return { calls: await server.ask("callClient", IN_FLIGHT, budget.ms) };
  },
};

/** The receiver counts the notifications, and a call after each thousand confirms that they have come. */
const notifications = {
  name: "notify",
  title: "Notifications one way, a call after each 1,000",
  main: true,
  metrics: [more("delivered", "delivered/s")],
  async run({ connect, call, notify, budget }) {
    const [peer] = await connect(1);
    const round = async () => {
      for (let n = 1; n <= COUNT; n++) void notify(peer, "note", n);
      check(await call(peer, "noted", 0), SUM, "noted");
      return COUNT;
    };
    await perSecond(budget.warmUpMs, round);
    return { delivered: await perSecond(budget.ms, round) };
  },
};

export const messages = [
  one,
  calls("in-flight", "64 calls in flight", { inFlight: IN_FLIGHT, main: true }),
  burst,
  calls("sockets", "100 sockets, 8 calls in flight on each", { peers: 100, inFlight: 8, main: true }),
  calls("echo-1k", "1 KB echo, 64 in flight", { inFlight: 64, bytes: KIB, main: true }),
  calls("echo-64k", "64 KB echo, 8 in flight", { inFlight: 8, bytes: 64 * KIB, main: true }),
  calls("echo-1m", "1 MB echo, 2 in flight", { inFlight: 2, bytes: KIB * KIB, leastMs: 150 }),
  serverCalls,
  notifications,
];

function calls(name, title, { peers: count = 1, inFlight, bytes, main = false, latency = false, leastMs = 0 }) {
  const load = bytes === undefined ? { method: "increment" } : { method: "echo", payload: text(bytes) };
  return {
    name,
    title,
    main,
    metrics: [more("calls", "calls/s"), ...(latency ? [less("p50", "p50, µs"), less("p99", "p99, µs")] : [])],
    async run({ connect, call, budget }) {
      const peers = await connect(count);
      await rate({ peers, call, inFlight, ms: budget.warmUpMs, ...load });
      const latencies = latency ? [] : undefined;
      const result = await rate({ peers, call, inFlight, ms: Math.max(budget.ms, leastMs), ...load, latencies });
      if (!latency) return { calls: result };
      return { calls: result, p50: percentile(latencies, 50) * 1_000, p99: percentile(latencies, 99) * 1_000 };
    },
  };
}
