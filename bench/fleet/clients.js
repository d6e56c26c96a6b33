/** A process with clients: `node clients.js CONTENDER`. It obeys its parent, and ends with it. */
import { setTimeout as sleep } from "node:timers/promises";
import { answer } from "../process.js";

/** The number of connections that are opened at the same time. */
const OPENING = 64;

const contender = await import(`./contenders/${process.argv[2]}.js`);
const clients = [];
/** The notification that every client must receive, and how many have not. */
const round = { number: -1, missing: 0, full: undefined, wrong: undefined };
let latencies = [];
/** The ports whose clients measure latencies: of nodes that do not send. */
let measured = new Set();

function now() {
  return Number(process.hrtime.bigint());
}

/** One client, and what it has received. */
class Client {
  id;
  /** The newest numbered message, and how many did not follow the one before. */
  last = 0;
  wrong = 0;
  /** How often the client has joined, when it did the last time, and whether it was reported that nothing is missing. */
  joins = 0;
  joinedAt = 0;
  isComplete = false;
  #port;
  #urls;

  /** `ports`: of all nodes. After a loss, the client goes to the next one, as with a list of servers or through a load balancer. */
  constructor(port, ports) {
    this.#port = port;
    const first = ports.indexOf(port);
    this.#urls = [...ports.slice(first), ...ports.slice(0, first)].map((one) => `ws://127.0.0.1:${one}`);
  }

  async connect() {
    return contender.connect(this.#urls, {
      methods: { moved: (message) => this.#moved(message), said: ({ n }) => this.#said(n) },
      joined: (id, isComplete) => {
        Object.assign(this, { id, isComplete, joinedAt: now() });
        this.joins++;
      },
    });
  }

  #moved({ sentAt, round: number }) {
    if (sentAt !== undefined) {
      if (measured.has(this.#port)) latencies.push(now() - sentAt);
    } else if (number !== round.number) round.wrong?.(new Error("a client got a wrong message"));
    else if (--round.missing === 0) round.full(now());
  }

  #said(n) {
    if (this.last !== 0 && n !== this.last + 1) this.wrong++;
    this.last = n;
  }
}

/** Connects clients, some at the same time. Returns their connections. */
async function openAll(opened) {
  const rest = opened.values();
  const connections = [];
  const opener = async () => {
    for (const client of rest) connections.push(await client.connect());
  };
  await Promise.all(Array.from({ length: Math.min(OPENING, opened.length) }, opener));
  return connections;
}

answer({
  /** Opens `count` clients at each port. `allPorts`: where they go when they lose it. Returns their ids. */
  async connect(ports, count, allPorts) {
    const opened = ports.flatMap((port) => Array.from({ length: count }, () => new Client(port, allPorts)));
    await openAll(opened);
    clients.push(...opened);
    return opened.map(({ id }) => id);
  },
  /** Opens `count` clients at a port, and closes them. */
  async visit(port, count) {
    const connections = await openAll(Array.from({ length: count }, () => new Client(port, [port])));
    for (const connection of connections) connection.close();
  },
  /** Prepares for a notification, which every client must receive once. */
  arm(number) {
    round.number = number;
    round.missing = clients.length;
    round.received = new Promise((resolve, reject) => {
      round.full = resolve;
      round.wrong = reject;
    });
    // It is awaited by the next command.
    round.received.catch(() => {});
  },
  /** Resolves with the time at which the last client received it. */
  received: () => round.received,
  /** From now on, clients of these ports measure how long notifications take. */
  measure(ports) {
    measured = new Set(ports);
    latencies = [];
  },
  countMeasured: () => latencies.length,
  /** Returns how long each notification took, in milliseconds. */
  measured: () => latencies.map((nanoseconds) => nanoseconds / 1e6),
  /** Resolves when every client has a numbered message. */
  async numbered() {
    while (clients.some(({ last }) => last === 0)) await sleep(10);
  },
  /** Resolves with the time at which the last client joined for the second time. Rejects after `ms`. */
  async returned(ms) {
    for (const end = performance.now() + ms; clients.some(({ joins }) => joins < 2); await sleep(10))
      if (performance.now() > end)
        throw new Error(`${clients.filter(({ joins }) => joins < 2).length} clients are away`);
    return Math.max(...clients.map(({ joinedAt }) => joinedAt));
  },
  /** Waits until every client has message `last`, for `ms` at most. Returns how many clients have missed nothing. */
  async complete(last, ms) {
    const end = performance.now() + ms;
    while (clients.some((client) => client.last !== last) && performance.now() < end) await sleep(10);
    const whole = clients.filter((client) => client.last === last && client.wrong === 0);
    return { whole: whole.length, reported: clients.filter(({ isComplete }) => isComplete).length };
  },
});
