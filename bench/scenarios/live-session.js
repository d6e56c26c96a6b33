/** A board with 30 people. Each cursor goes to all others 60 times a second, and each person also calls. */
import { setTimeout as sleep } from "node:timers/promises";
import { check } from "../load.js";
import { percentile } from "../statistics.js";
import { less } from "./metric.js";

const PEOPLE = 30;
const MOVES_A_SECOND = 60;
/** One move in this many is followed by a call. */
const MOVES_A_CALL = 6;

export const liveSession = {
  name: "live",
  title: `Live session: ${PEOPLE} peers, cursors at ${MOVES_A_SECOND} Hz to the others, calls in between`,
  kind: "live",
  heavy: true,
  metrics: [less("cpu", "server CPU, % of a core"), less("p99", "p99 of a call, ms"), less("p50", "p50 of a call, ms")],
  async run({ connect, call, notify, server, budget }) {
    const board = new Board();
    const people = [];
    for (let me = 0; me < PEOPLE; me++) {
      const [peer] = await connect(1, { moved: (at) => board.take(at, me) });
      people.push({
        me,
        call: (method, x) => call(peer, method, x),
        notify: (method, x) => notify(peer, method, x),
      });
    }
    await session(people, board, budget.warmUpMs);
    const cpu = await server.ask("cpu");
    const latencies = await session(people, board, budget.liveMs);
    // The share of the intended time. A contender that falls behind takes more than all of it.
    const spent = (await server.ask("cpu")) - cpu;
    return {
      cpu: (spent / 1_000 / budget.liveMs) * 100,
      p99: percentile(latencies, 99),
      p50: percentile(latencies, 50),
    };
  },
};

/** Resolves when each person has received every move of the others. Returns the durations of the calls. */
async function session(people, board, ms) {
  const moves = Math.ceil((ms / 1_000) * MOVES_A_SECOND);
  const complete = board.expect(PEOPLE * (PEOPLE - 1) * moves);
  const latencies = [];
  await Promise.all(people.map((person) => act(person, moves, latencies)));
  await complete;
  return latencies;
}

class Board {
  #missing = 0;
  #done = () => {};

  expect(deliveries) {
    this.#missing = deliveries;
    return new Promise((resolve) => {
      this.#done = resolve;
    });
  }

  take({ from }, me) {
    // A contender that cannot leave the sender out notifies it too. That message does not count.
    if (from !== me && --this.#missing === 0) this.#done();
  }
}

/** Moves at a steady rate: after a late timer, it makes up for the missed moves. Each person begins at a different time. */
async function act({ me, call, notify }, moves, latencies) {
  const started = performance.now() + (me / PEOPLE) * (1_000 / MOVES_A_SECOND);
  const calls = [];
  for (let n = 0; n < moves; n++) {
    const due = started + (n / MOVES_A_SECOND) * 1_000;
    const early = due - performance.now();
    if (early > 0) await sleep(early);
    void notify("cursor", { from: me, x: n % 1_920, y: (n * 7) % 1_080 });
    if ((n + me) % MOVES_A_CALL === 0) calls.push(timedCall(call, n, latencies));
  }
  await Promise.all(calls);
}

async function timedCall(call, n, latencies) {
  const before = performance.now();
  check(await call("increment", n), n + 1, "increment");
  latencies.push(performance.now() - before);
}
