/** What is measured over several nodes. Each scenario starts its own broker, nodes and clients, and returns one figure for each metric. */
import { setTimeout as sleep } from "node:timers/promises";
import { text } from "../methods.js";
import { less, more } from "../scenarios/metric.js";
import { median, percentile } from "../statistics.js";
import { NODE_COUNTS } from "./growth.js";
import { World } from "./world.js";

const MESSAGE = { room: "lobby", text: text(160) };
/** How often the sending node sends where the cost of one message is measured. */
const COST_RATE = 3_000;
/** Messages a second where the time of a delivery is measured. At the last one, messages queue up. */
const RATES = [10, 100, 1_000, 2_500, 3_000, 4_000, 5_000];
const WARM_UPS = 2;
/** How long clients may need for the last messages after everything was sent, before they count as lost. */
const PATIENCE_MS = 5_000;
/** Clients to which nothing arrives for so long have everything. */
const QUIET_MS = 300;
const MOST_AWAY_MS = 300_000;

/** Runs a function with a world, which is stopped afterwards. */
async function within(contender, nodes, options, run) {
  const world = await World.create(contender, nodes, options);
  try {
    return await run(world);
  } finally {
    await world.stop();
  }
}

const LATENCY = [less("p50", "ms p50"), less("p99", "ms p99"), less("p999", "ms p99.9")];

function percentiles(latencies) {
  return { p50: percentile(latencies, 50), p99: percentile(latencies, 99), p999: percentile(latencies, 99.9) };
}

/** Sends for some time, and returns how long each notification took to the clients of the other nodes. */
async function latenciesOf(world, budget, { how, perSecond, ms }) {
  const [sender] = world.nodes;
  await sender.ask(how, perSecond, budget.warmUpMs, MESSAGE);
  await quiet(world);
  await world.askClients("measure", world.ports.slice(1));
  const sent = await sender.ask(how, perSecond, ms, MESSAGE);
  const expected = sent * budget.listeners;
  let latencies = [];
  for (const end = performance.now() + PATIENCE_MS; performance.now() < end; await sleep(50)) {
    latencies = (await world.askClients("measured")).flat();
    if (latencies.length >= expected) break;
  }
  if (latencies.length < expected) throw new Error(`${latencies.length} of ${expected} notifications arrived`);
  return latencies;
}

/** Resolves when the clients have everything that was sent. */
async function quiet(world) {
  await world.askClients("measure", world.ports);
  for (let before = -1, count = 0; count !== before;) {
    await sleep(QUIET_MS);
    before = count;
    count = sum(await world.askClients("countMeasured"));
  }
}

function delivery(perSecond) {
  return {
    name: `delivery-${perSecond}`,
    title: (budget) =>
      `Delivery to another node, ${perSecond.toLocaleString("en-US")} messages/s to ${budget.listeners} peers on each of 2 nodes`,
    perSecond,
    metrics: LATENCY,
    run: (contender, budget) =>
      within(contender, 2, {}, async (world) => {
        await world.connect(2 * budget.listeners);
        return percentiles(await latenciesOf(world, budget, { how: "notifyAt", perSecond, ms: budget.ms }));
      }),
  };
}

function fanOut(nodes) {
  return {
    name: `fan-out-${nodes}`,
    title: (budget) =>
      `\`notify\` to ${budget.peers.toLocaleString("en-US")} peers over ${nodes} ${nodes === 1 ? "node" : "nodes"}`,
    nodes,
    metrics: [
      more("delivered", "delivered/s"),
      less("last", "ms to the last peer"),
      less("nodeCpu", "CPU of the nodes, µs a delivery"),
      less("brokerCpu", "CPU of the broker, µs a message"),
    ],
    run: (contender, budget) =>
      within(contender, nodes, {}, async (world) => {
        await world.connect(budget.peers);
        for (let i = 0; i < WARM_UPS; i++) await world.fanOut(i, MESSAGE);
        const before = await world.usage();
        const times = [];
        for (let i = 0; i < budget.fanOuts; i++) times.push(await world.fanOut(i + WARM_UPS, MESSAGE));
        const { nodes: cpus, broker } = await world.usageSince(before);
        const deliveries = budget.peers * times.length;
        const total = times.reduce((sum, ms) => sum + ms, 0);
        return {
          delivered: (deliveries / total) * 1_000,
          last: median(times),
          nodeCpu: sum(cpus) / deliveries,
          brokerCpu: broker / times.length,
        };
      }),
  };
}

function sum(numbers) {
  return numbers.reduce((total, number) => total + number, 0);
}

/** What one message costs, whatever the number of peers: each node has one. */
function cost(nodes, how) {
  return {
    name: `${how === "notifyAt" ? "cost" : "log-cost"}-${nodes}`,
    title: () =>
      `${how === "notifyAt" ? "One `notify`" : "One `publish`"}, at ${COST_RATE.toLocaleString("en-US")}/s, to one peer on ` +
      (nodes === 1 ? "the sending node" : `each of ${nodes} nodes`),
    nodes,
    needs: how === "notifyAt" ? undefined : "publishes",
    metrics: [
      less("broker", "CPU of the broker, µs"),
      less("sender", "CPU of the sending node, µs"),
      less("receiver", "CPU of each other node, µs"),
      less("commands", "commands of the broker, with those of scripts"),
      less("received", "messages from the broker"),
      less("bytesIn", "bytes to the broker"),
      less("bytesOut", "bytes from the broker"),
    ],
    run: (contender, budget) =>
      within(contender, nodes, {}, async (world) => {
        await world.connect(nodes);
        await world.nodes[0].ask(how, COST_RATE, budget.warmUpMs, MESSAGE);
        const before = await world.usage();
        const sent = await world.nodes[0].ask(how, COST_RATE, budget.ms, MESSAGE);
        const used = await world.usageSince(before);
        const [sender, ...others] = used.nodes;
        return {
          broker: used.broker / sent,
          sender: sender / sent,
          receiver: others.length === 0 ? 0 : sum(others) / others.length / sent,
          commands: used.commands / sent,
          // Only reciproc counts them.
          received: used.received === undefined ? undefined : sum(used.received) / sent,
          bytesIn: used.bytesIn / sent,
          bytesOut: used.bytesOut / sent,
        };
      }),
  };
}

const publish = {
  name: "publish",
  title: () => "`publish` to two peers on each of 2 nodes",
  needs: "publishes",
  metrics: [
    more("perSecond", "acknowledged/s, 64 at a time"),
    less("ackP50", "ms to the acknowledgement p50"),
    less("ackP99", "ms p99"),
    less("p50", "ms to a peer of another node p50"),
    less("p99", "ms p99"),
  ],
  run: (contender, budget) =>
    within(contender, 2, {}, async (world) => {
      await world.connect(4);
      const [sender] = world.nodes;
      await sender.ask("publishRate", 64, budget.warmUpMs, MESSAGE);
      const { perSecond } = await sender.ask("publishRate", 64, budget.ms / 2, MESSAGE);
      await quiet(world);
      await world.askClients("measure", world.ports.slice(1));
      const { latencies } = await sender.ask("publishRate", 1, budget.ms / 2, MESSAGE);
      const delivered = (await world.askClients("measured")).flat();
      return {
        perSecond,
        ackP50: percentile(latencies, 50),
        ackP99: percentile(latencies, 99),
        p50: percentile(delivered, 50),
        p99: percentile(delivered, 99),
      };
    }),
};

const calls = {
  name: "calls",
  title: () => "Calls to a peer of another node",
  metrics: [more("perSecond", "calls/s, 64 at a time"), ...LATENCY],
  run: (contender, budget) =>
    within(contender, 2, {}, async (world) => {
      const [id] = await world.connect(1, [1]);
      const [caller] = world.nodes;
      await caller.ask("callRate", [id], 64, budget.warmUpMs);
      const { perSecond } = await caller.ask("callRate", [id], 64, budget.ms / 2);
      const { latencies } = await caller.ask("callRate", [id], 1, budget.ms / 2);
      return { perSecond, ...percentiles(latencies) };
    }),
};

const recovery = {
  name: "recovery",
  title: (budget) =>
    `Recovery of ${budget.peers.toLocaleString("en-US")} clients after \`kill -9\` of their node, on one other node`,
  metrics: [
    less("last", "s until the last client is back"),
    more("whole", "clients that got every message, %"),
    more("reported", "clients that know it, %"),
  ],
  mostRounds: 3,
  run: (contender, budget) =>
    within(contender, 2, { recovers: true }, async (world) => {
      const [dying, other] = world.nodes;
      // A node that runs for longer has compiled the code that accepts clients.
      await world.visit(1, budget.visitors);
      await world.connect(budget.peers, [0]);
      await other.ask("startNumbers", budget.numbersPerSecond, MESSAGE);
      await world.askClients("numbered");
      const killedAt = Number(process.hrtime.bigint());
      await dying.kill();
      const back = await world.askClients("returned", MOST_AWAY_MS);
      // Messages that are on their way to a client that is back must arrive too.
      await sleep(2_000 / budget.numbersPerSecond);
      const last = await other.ask("stopNumbers");
      const counts = await world.askClients("complete", last, PATIENCE_MS);
      const share = (name) => (100 * sum(counts.map((one) => one[name]))) / budget.peers;
      return { last: (Math.max(...back) - killedAt) / 1e9, whole: share("whole"), reported: share("reported") };
    }),
};

const all = [
  ...RATES.map(delivery),
  ...NODE_COUNTS.map(fanOut),
  ...NODE_COUNTS.map((nodes) => cost(nodes, "notifyAt")),
  ...NODE_COUNTS.map((nodes) => cost(nodes, "publishAt")),
  publish,
  calls,
  recovery,
];

export const scenarios = new Map(all.map((scenario) => [scenario.name, scenario]));
