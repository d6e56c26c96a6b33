/** The process of a node: `node node.js CONTENDER OPTIONS`. It obeys its parent, and ends with it. */
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { rate } from "../load.js";
import { answer } from "../process.js";

/** The kernel allows fewer. Clients of a killed node come all at once. */
const BACKLOG = 10_000;

const [name, options] = process.argv.slice(2);
const { startNode } = await import(`./contenders/${name}.js`);
const node = await startNode(JSON.parse(options));
const publications = { timer: undefined, count: 0, pending: new Set() };

async function listen({ http }) {
  http.listen({ port: 0, host: "127.0.0.1", backlog: BACKLOG });
  await once(http, "listening");
  return http.address().port;
}

function now() {
  return Number(process.hrtime.bigint());
}

/** Calls `send` `rate` times a second. Resolves with the number of calls. */
async function repeat(perSecond, ms, send) {
  const started = performance.now();
  let sent = 0;
  for (let elapsed = 0; elapsed < ms; elapsed = performance.now() - started) {
    for (const due = Math.floor((elapsed * perSecond) / 1_000); sent < due; sent++) send();
    await sleep(1);
  }
  return sent;
}

answer({
  listen: () => listen(node),
  /** Resolves when `count` clients of this node are in the topic. */
  async joined(count) {
    while (node.count() !== count) await sleep(2);
  },
  /** Returns the CPU time of this process so far, in microseconds. */
  cpu() {
    const { user, system } = process.cpuUsage();
    return user + system;
  },
  stats: () => node.stats(),
  /** Sends one notification to all clients. Returns the time when it began, on the clock that all processes share. */
  fanOut(method, message) {
    const started = now();
    node.broadcast(method, message);
    return started;
  },
  /** Sends notifications with the time at which each was sent. Returns their number. */
  notifyAt: (perSecond, ms, message) =>
    repeat(perSecond, ms, () => node.broadcast("moved", { ...message, sentAt: now() })),
  /** Publishes, and waits for no acknowledgement before the next. Resolves when all are acknowledged. */
  async publishAt(perSecond, ms, message) {
    const pending = [];
    const sent = await repeat(perSecond, ms, () => pending.push(node.publish("moved", { ...message, sentAt: now() })));
    await Promise.all(pending);
    return sent;
  },
  /** Keeps `inFlight` publications unacknowledged. Returns how many were acknowledged a second, and how long each took. */
  async publishRate(inFlight, ms, message) {
    const latencies = [];
    const call = async (publish, _method, x) => {
      await publish("moved", { ...message, sentAt: now() });
      return x + 1;
    };
    const perSecond = await rate({ peers: [node.publish], call, inFlight, ms, method: "publish", latencies });
    return { perSecond, latencies };
  },
  /** Keeps `inFlight` calls pending to each of some peers of other nodes. */
  async callRate(ids, inFlight, ms) {
    const latencies = [];
    const call = (peer, method, x) => peer.call(method, x);
    const perSecond = await rate({ peers: ids.map(node.peer), call, inFlight, ms, method: "increment", latencies });
    return { perSecond, latencies };
  },
  /** Sends numbered messages until `stopNumbers`: logged ones if the contender logs. */
  startNumbers(perSecond, message) {
    const send = node.publish ?? node.broadcast;
    publications.timer = setInterval(() => {
      const sending = Promise.resolve(send("said", { ...message, n: ++publications.count }));
      publications.pending.add(sending);
      void sending.finally(() => publications.pending.delete(sending));
    }, 1_000 / perSecond);
  },
  /** Resolves with the number of the last message when all have been sent. */
  async stopNumbers() {
    clearInterval(publications.timer);
    await Promise.all(publications.pending);
    return publications.count;
  },
});
