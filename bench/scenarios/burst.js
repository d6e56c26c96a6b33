/** Many calls in one tick, like a page that loads everything at once. */
import { check } from "../load.js";
import { more } from "./metric.js";

const CALLS = 1_000;

export const burst = {
  name: "burst",
  title: "Bursts of 1,000 calls",
  main: true,
  metrics: [more("calls", "calls/s")],
  async run({ connect, budget }) {
    const [peer] = await connect(1);
    await bursts(peer, budget.warmUpMs);
    return { calls: await bursts(peer, budget.ms) };
  },
};

async function bursts(peer, ms) {
  const started = performance.now();
  let calls = 0;
  while (performance.now() < started + ms) {
    const answers = await Promise.all(Array.from({ length: CALLS }, (_, n) => peer.call("increment", n)));
    for (const [n, answer] of answers.entries()) check(answer, n + 1, "increment");
    calls += CALLS;
  }
  return (calls / (performance.now() - started)) * 1_000;
}
