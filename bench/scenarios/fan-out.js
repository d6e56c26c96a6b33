/** Notifications to many sockets, again as soon as the last socket has received the last one. */
import { text } from "../methods.js";
import { median } from "../statistics.js";
import { less, more } from "./metric.js";

const MESSAGE = { room: "lobby", text: text(120) };
const WARM_UPS = 2;

export const fanOuts = [
  fanOut("fan-out", (budget) => budget.fanOut[0], { main: true }),
  fanOut("fan-out-large", (budget) => budget.fanOut[1], { mostRounds: 5 }),
  fanOut("fan-out-tick", () => 300, { messages: 20, main: true }),
];

/** `messages`: how many each socket gets in one tick of the server. */
function fanOut(name, sockets, { messages = 1, main = false, mostRounds }) {
  const what = messages === 1 ? "Fan-out" : `Fan-out of ${messages} notifications in one tick`;
  return {
    name,
    title: (budget) => `${what} to ${sockets(budget).toLocaleString("en-US")} sockets`,
    kind: "fan-out",
    main,
    heavy: true,
    mostRounds,
    sockets,
    metrics: [
      more("delivered", "delivered/s"),
      less("cpu", "server CPU µs a delivery"),
      less("last", "ms to the last socket"),
    ],
    async run({ connect, server, budget }) {
      const inbox = new Inbox(sockets(budget) * messages);
      await connect(sockets(budget), { moved: (message) => inbox.take(message) });
      const payloads = (round) => Array.from({ length: messages }, () => ({ ...MESSAGE, round }));
      const fill = (round) => inbox.fill(round, () => server.ask("fanOut", "moved", payloads(round)));
      for (let round = 0; round < WARM_UPS; round++) await fill(round);
      const times = [];
      const cpu = await server.ask("cpu");
      for (let round = 0; round < budget.fanOuts; round++) times.push(await fill(round));
      const spent = (await server.ask("cpu")) - cpu;
      const deliveries = inbox.size * times.length;
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

  /** Sends one round. Returns the milliseconds from when `send` has begun until the last socket received the last message. */
  async fill(round, send) {
    this.#missing = this.size;
    this.#round = round;
    const lastCame = new Promise((resolve, reject) => {
      this.#full = () => resolve(Number(process.hrtime.bigint()));
      this.#wrong = reject;
    });
    const [started, ended] = await Promise.all([send(), lastCame]);
    return (ended - started) / 1e6;
  }
}
