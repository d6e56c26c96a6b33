/** One notification to many sockets, again as soon as the last socket has received it. */
import { text } from "../methods.js";
import { median } from "../statistics.js";
import { less, more } from "./metric.js";

const MESSAGE = { room: "lobby", text: text(120) };

const WARM_UPS = 2;

export const fanOuts = [fanOut("fan-out", 0, { main: true }), fanOut("fan-out-large", 1, { mostRounds: 3 })];

function fanOut(name, size, { main = false, mostRounds } = {}) {
  return {
    name,
    title: (budget) => `Fan-out to ${budget.fanOut[size].toLocaleString("en-US")} sockets`,
    kind: "fan-out",
    main,
    heavy: true,
    mostRounds,
    sockets: (budget) => budget.fanOut[size],
    metrics: [
      more("delivered", "delivered/s"),
      less("cpu", "server CPU µs a delivery"),
      less("last", "ms to the last socket"),
    ],
    async run({ connect, server, budget }) {
      const count = budget.fanOut[size];
      const inbox = new Inbox(count);
      await connect(count, () => ({ moved: (message) => inbox.take(message) }));
      for (let round = 0; round < WARM_UPS; round++) await inbox.fill(server, round);
      const times = [];
      const cpu = await server("cpu");
      for (let round = 0; round < budget.fanOuts; round++) times.push(await inbox.fill(server, round));
      const spent = (await server("cpu")) - cpu;
      const deliveries = count * times.length;
      const total = times.reduce((sum, ms) => sum + ms, 0);
      return { delivered: (deliveries / total) * 1_000, cpu: spent / deliveries, last: median(times) };
    },
  };
}

/** The notifications of one round that all clients of this process received. */
class Inbox {
  #missing = 0;
  #round = -1;
  #full = () => {};
  #wrong = () => {};

  constructor(size) {
    this.size = size;
  }

  take({ round, text: received }) {
    if (round !== this.#round || received !== MESSAGE.text) this.#wrong(new Error("a socket got a wrong message"));
    else if (--this.#missing === 0) this.#full();
  }

  /** Makes the server send one round. Returns the milliseconds until the last socket received it. */
  async fill(server, round) {
    this.#missing = this.size;
    this.#round = round;
    const lastCame = new Promise((resolve, reject) => {
      this.#full = () => resolve(Number(process.hrtime.bigint()));
      this.#wrong = reject;
    });
    const [started, ended] = await Promise.all([server("fanOut", "moved", { ...MESSAGE, round }), lastCame]);
    return (ended - started) / 1e6;
  }
}
