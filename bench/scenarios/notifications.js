/** Notifications in one direction. The receiver counts them, and a call behind each thousand confirms that they have come. */
import { check } from "../load.js";
import { more } from "./metric.js";

const COUNT = 1_000;
const SUM = (COUNT * (COUNT + 1)) / 2;

export const notifications = {
  name: "notify",
  title: "Notifications one way, a call after each 1,000",
  main: true,
  metrics: [more("delivered", "delivered/s")],
  async run({ connect, budget }) {
    const [peer] = await connect(1);
    await thousands(peer, budget.warmUpMs);
    return { delivered: await thousands(peer, budget.ms) };
  },
};

async function thousands(peer, ms) {
  const started = performance.now();
  let delivered = 0;
  while (performance.now() < started + ms) {
    for (let n = 1; n <= COUNT; n++) void peer.notify("note", n);
    check(await peer.call("noted", 0), SUM, "noted");
    delivered += COUNT;
  }
  return (delivered / (performance.now() - started)) * 1_000;
}
