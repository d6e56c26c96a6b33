/** Calls in a closed loop: each worker calls again when its result has come. */
import { rate } from "../load.js";
import { text } from "../methods.js";
import { percentile } from "../statistics.js";
import { less, more } from "./metric.js";

const KIB = 1024;

export const calls = [
  loop("one", "One call at a time", { inFlight: 1, main: true, latency: true }),
  loop("in-flight", "64 calls in flight", { inFlight: 64, main: true }),
  loop("sockets", "100 sockets, 8 calls in flight on each", { peers: 100, inFlight: 8, main: true }),
  loop("echo-1k", "1 KB echo, 64 in flight", { inFlight: 64, bytes: KIB, main: true }),
  loop("echo-64k", "64 KB echo, 8 in flight", { inFlight: 8, bytes: 64 * KIB, main: true }),
  loop("echo-1m", "1 MB echo, 2 in flight", { inFlight: 2, bytes: KIB * KIB, leastMs: 150 }),
];

function loop(name, title, { peers: count = 1, inFlight, bytes, main = false, latency = false, leastMs = 0 }) {
  const load = bytes === undefined ? { method: "increment" } : { method: "echo", payload: text(bytes) };
  return {
    name,
    title,
    main,
    metrics: [more("calls", "calls/s"), ...(latency ? [less("p50", "p50, µs"), less("p99", "p99, µs")] : [])],
    async run({ connect, budget }) {
      const peers = await connect(count);
      await rate({ peers, inFlight, ms: budget.warmUpMs, ...load });
      const latencies = latency ? [] : undefined;
      const perSecond = await rate({ peers, inFlight, ms: Math.max(budget.ms, leastMs), ...load, latencies });
      if (!latency) return { calls: perSecond };
      return { calls: perSecond, p50: percentile(latencies, 50) * 1_000, p99: percentile(latencies, 99) * 1_000 };
    },
  };
}
