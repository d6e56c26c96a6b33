/** What a run over several nodes shows, as a part of docs/fleet.md and of docs/SCALING.md. scripts/fleet.js writes them. */
import { table } from "../report.js";
import { OWN } from "./contenders.js";
import * as growth from "./growth.js";

const { NODE_COUNTS } = growth;
const GOALS = { p99: 0.25, recoveryS: 4 };
/** A rate with a larger p99 is more than a contender can deliver: its queue grows for as long as the rate lasts. */
const LOADED_MS = 100;

const short = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 3 });
const figure = (value) => short.format(value);

/** Returns the medians of one contender, by scenario. A scenario that it did not run is missing. */
function medians({ scenarios }, contender) {
  const found = scenarios.flatMap(({ name, metrics, results }) => {
    const cell = results[contender];
    if (cell === undefined || cell.absent !== undefined || cell.error !== undefined) return [];
    return [[name, Object.fromEntries(metrics.map((metric) => [metric.name, cell[metric.name]?.median]))]];
  });
  return Object.fromEntries(found);
}

/** Returns the part of docs/fleet.md. */
export function benchPart(report) {
  const { machine, measured, quick, versions, budget, scenarios } = report;
  const list = Object.entries(versions).map(([name, version]) => `${name} ${version}`);
  const kind = quick
    ? "This was a quick run, with short rounds and fewer peers. It is good for a first look, and not for a claim."
    : `Each figure is the median of ${budget.rounds} rounds, or of 3 for the recovery.`;
  return [
    "## Benchmark",
    "`npm run bench -- --fleet` measures this and writes it. reciproc runs beside socket.io with its three adapters for Redis.",
    `${kind} Each round begins a Redis, the nodes and two processes with clients, all on one machine, which share its cores. The contenders take turns in random order. A delivery is one message that arrives at one peer, and every delivery is counted. The messages have 160 characters of text.`,
    "A contender has failed if a delivery is missing, also at a rate at which others deliver all. reciproc bounds its memory: it drops a `notify` for a peer beyond a queue of at most half of its `maxUnsentBytes` (2 MiB), and for other nodes while 10,000 are unanswered by the broker. socket.io queues without a bound, and delivers late. A message that must not be missed needs `publish`.",
    `Measured ${measured.slice(0, 10)} on ${machine.cpu}, ${machine.memoryGiB} GiB, ${machine.system}, Node ${machine.node}, with ${list.join(", ")}.`,
    ...updates(scenarios),
    ...goals(report),
    ...scenarios.flatMap((scenario) => [`### ${scenario.title}`, details(scenario, report)]),
    ...growing(report),
  ].join("\n\n");
}

function updates(scenarios) {
  const all = scenarios.filter(({ updated }) => updated !== undefined);
  if (all.length === 0) return [];
  const list = all.map(({ title, updated }) => `- ${title} (${updated.slice(0, 16).replace("T", " ")} UTC)`);
  return [`Measured by a later run on the same machine, with all contenders:\n\n${list.join("\n")}`];
}

function details({ metrics, results }, { contenders }) {
  const rows = contenders.flatMap(({ name, title }) => {
    const cell = results[name];
    if (cell.error !== undefined) return [[title, `failed: ${cell.error}`, ...metrics.slice(1).map(() => "")]];
    if (cell.absent !== undefined) return [[title, cell.absent, ...metrics.slice(1).map(() => "")]];
    return [
      [title, ...metrics.map(({ name: metric }) => (cell[metric] === undefined ? "" : figure(cell[metric].median)))],
    ];
  });
  return table([["", ...metrics.map(({ unit }) => unit)], ...rows]);
}

/** Returns the goals, and whether this run has met them. */
function goals(report) {
  const own = medians(report, OWN);
  const others = report.contenders.filter(({ name }) => name !== OWN).map(({ name }) => medians(report, name));
  const rows = [];
  const add = (goal, is, isMet) => rows.push([goal, is, isMet ? "yes" : "no"]);
  const of = (scenario, metric) => others.flatMap((cells) => cells[scenario]?.[metric] ?? []);
  const busiest = report.scenarios.filter(({ name, perSecond }) => {
    const all = [own, ...others].flatMap((cells) => cells[name]?.p99 ?? []);
    return perSecond !== undefined && Math.min(...all) <= LOADED_MS;
  });
  // The machine is loaded at the highest rate that it can still deliver.
  const loaded = busiest.at(-1);
  if (loaded !== undefined && own[loaded.name] !== undefined) {
    const best = Math.min(...of(loaded.name, "p99"));
    const ratio = own[loaded.name].p99 / best;
    add(
      `p99 to another node under load, which is the highest rate that some contender delivers within ${LOADED_MS} ms (${figure(loaded.perSecond)} messages/s): at most a quarter of the best of socket.io`,
      best === Infinity ? "socket.io delivered not all" : `${figure(ratio)} of it`,
      ratio <= GOALS.p99,
    );
  }
  // Above the rate at which the machine is loaded, messages queue up. They arrive late, or are dropped.
  const highest = report.scenarios.findLast(
    ({ name, perSecond }) => perSecond !== undefined && of(name, "p99").length > 0,
  );
  const cell = highest?.results[OWN];
  if (cell !== undefined) {
    const goal = `no message is missing at the highest rate at which socket.io delivers all, early or late (${figure(highest.perSecond)} messages/s)`;
    add(goal, cell.error ?? "none is missing", cell.error === undefined);
  }
  for (const nodes of NODE_COUNTS) {
    const name = `fan-out-${nodes}`;
    if (own[name] === undefined || of(name, "delivered").length === 0) continue;
    const ratio = own[name].delivered / Math.max(...of(name, "delivered"));
    const where = `${nodes} ${nodes === 1 ? "node" : "nodes"}`;
    add(`deliveries/s over ${where}: at least the best of socket.io`, `${figure(ratio)} of it`, ratio >= 1);
  }
  if (own.recovery !== undefined) {
    const { last, whole } = own.recovery;
    add(
      `the last client is back within ${GOALS.recoveryS} s, and none has missed a message`,
      `${figure(last)} s, ${figure(whole)} % whole`,
      last <= GOALS.recoveryS && whole === 100,
    );
  }
  return rows.length === 0 ? [] : ["### Goals", table([["goal", "in this run", "met"], ...rows])];
}

/** Returns the unit costs. `undefined` if the run has not measured what they need, or if there is none. */
export function unitCostsOf(report = { scenarios: [] }) {
  const cells = medians(report, OWN);
  const needed = NODE_COUNTS.flatMap((nodes) => [`fan-out-${nodes}`, `cost-${nodes}`]);
  return needed.some((name) => cells[name] === undefined) ? undefined : growth.unitCosts(cells, NODE_COUNTS);
}

/** Returns the calculation. Empty if there are no unit costs. */
function growing(report) {
  const unit = unitCostsOf(report);
  if (unit === undefined) return [];
  const cells = medians(report, OWN);
  const { MOST_LOAD, PAUSE_S, PEERS_OF_NODE, ROOM, SIZES } = growth;
  const percent = Math.round(MOST_LOAD * 100);
  return [
    "### How the cost grows",
    `What one \`notify\` to ${report.budget.peers.toLocaleString("en-US")} peers costs, divided by the deliveries. A message goes to the broker once, and from there to each node that has a member:`,
    table([
      ["nodes", "CPU of the nodes, µs a delivery", "CPU of the broker, µs a delivery", "broker messages a delivery"],
      ...NODE_COUNTS.map((nodes) => perDelivery(cells, nodes, report.budget.peers)),
    ]),
    "What follows is calculated from the measured figures. The script that publishes them calculates it, so it changes with them. The units:",
    table([
      ["what", "cost", "from"],
      [
        "`B`, the broker, for each message",
        `${figure(unit.brokerFixed)} µs`,
        "the line through its CPU at 1, 2 and 4 nodes",
      ],
      ["`b`, the broker, for each node that gets it", `${figure(unit.brokerNode)} µs`, "the slope of this line"],
      [
        "`s`, the sending node, for each message",
        `${figure(unit.send)} µs`,
        "its CPU at 2 and 4 nodes, without one delivery",
      ],
      [
        "`r`, each other node, for each message",
        `${figure(unit.receive)} µs`,
        "its CPU at 2 and 4 nodes, without one delivery",
      ],
      ["`d`, a node, for each delivery", `${figure(unit.delivery)} µs`, "`notify` to many peers on one node"],
      ["`o`, bytes from the broker, for each node", figure(unit.bytesOut), "the slope of the line through its bytes"],
    ]),
    `A process counts as full at ${percent} % of a core. Every node has ${figure(PEERS_OF_NODE)} peers.`,
    `**One message to all peers.** A node can send \`${MOST_LOAD} s / (r + ${figure(PEERS_OF_NODE)} d)\` messages a second, and the broker \`${MOST_LOAD} s / (B + N b)\` to \`N\` nodes. The smaller number is the limit:`,
    table([
      ["nodes", "peers", "messages/s by the nodes", "messages/s by the broker", "limit"],
      ...SIZES.map((nodes) => {
        const { peers, ofNode, ofBroker, limit } = growth.announcements(unit, nodes);
        return [figure(nodes), peers.toLocaleString("en-US"), figure(ofNode), figure(ofBroker), limit];
      }),
    ]),
    `**Rooms of ${ROOM} peers**, each of which sends a message to its room every ${PAUSE_S} s: \`M = peers / ${PAUSE_S}\` messages a second. Without affinity, the members of a room are spread over \`k = N (1 - (1 - 1/N)^${ROOM})\` nodes. The broker needs \`M (B + k b)\`, and each node \`M (s + (k - 1) r + ${ROOM} d) / N\`, both in seconds of CPU for each second:`,
    roomTable(unit, false),
    `The same rooms, when the load balancer chooses the node by the room (\`k = 1\`):`,
    roomTable(unit, true),
    ...nextStep(unit),
  ];
}

function perDelivery(cells, nodes, peers) {
  const { nodeCpu, brokerCpu } = cells[`fan-out-${nodes}`];
  const { commands, received } = cells[`cost-${nodes}`];
  return [figure(nodes), figure(nodeCpu), figure(brokerCpu / peers), figure((commands + received) / peers)];
}

function roomTable(unit, together) {
  return table([
    [
      "nodes",
      "peers",
      "messages/s",
      "nodes of a room",
      "broker messages/s",
      "cores of the broker",
      "Mbit/s from it",
      "cores of each node",
      "limit",
    ],
    ...growth.SIZES.map((nodes) => {
      const one = growth.rooms(unit, nodes, together);
      return [
        figure(nodes),
        one.peers.toLocaleString("en-US"),
        figure(one.messages),
        figure(one.reached),
        figure(one.messages + one.received),
        figure(one.broker),
        figure(one.mbit),
        figure(one.node),
        one.limit,
      ];
    }),
  ]);
}

/** Says what limits the next step, at each size at which the limit changes. */
function nextStep(unit) {
  const sentences = [false, true].map((together) => {
    const all = growth.SIZES.map((nodes) => growth.rooms(unit, nodes, together));
    const full = all.find(({ limit }) => limit !== "none");
    const last = all.at(-1);
    const where = together ? "With one node for each room" : "Without affinity";
    const first =
      full === undefined
        ? `${where}, nothing is full up to ${figure(last.nodes)} nodes.`
        : `${where}, the first limit is met at ${figure(full.nodes)} ${full.nodes === 1 ? "node" : "nodes"} and ${full.peers.toLocaleString("en-US")} peers: ${full.limit}.`;
    return `${first} At ${last.peers.toLocaleString("en-US")} peers, the broker needs ${figure(last.broker)} cores: a Redis Cluster of ${last.primaries} ${last.primaries === 1 ? "primary" : "primaries"}, because one Redis sends on one core. Each node needs ${figure(last.node)} cores${last.node > growth.MOST_LOAD ? `, so ${figure(Math.ceil((last.nodes * last.node) / growth.MOST_LOAD))} nodes with fewer peers each would be needed` : ""}.`;
  });
  return [
    `**What limits the next step.** ${sentences.join(" ")}`,
    "Not calculated: the network between the machines, and the beats of the nodes, which [Scale](#scale) has.",
  ];
}

/** Returns the figures of docs/SCALING.md. `idle`: what docs/scale.json has. */
export function scalingPart(report, idle) {
  const cells = medians(report, OWN);
  const { server } = idle.results.find(({ kind }) => kind === "packed");
  const bytes = (server.full.rss - server.empty.rss) / idle.connections;
  const rows = [
    [
      `memory of ${idle.connections.toLocaleString("en-US")} idle connections`,
      `${figure((bytes * idle.connections) / 2 ** 20)} MiB`,
      "[scale.md](scale.md)",
    ],
  ];
  const add = (name, metric, what, unit) => {
    if (cells[name] !== undefined) rows.push([what, `${figure(cells[name][metric])}${unit}`, "[fleet.md](fleet.md)"]);
  };
  const peers = report.budget.peers.toLocaleString("en-US");
  add("fan-out-1", "delivered", `\`notify\` to ${peers} peers, deliveries`, "/s");
  add("fan-out-1", "nodeCpu", "CPU for one delivery", " µs");
  add("calls", "perSecond", "calls to a peer of another node", "/s");
  add("publish", "perSecond", "acknowledged `publish` to one topic", "/s");
  return table([["what", "on the machine of the run", "measured in"], ...rows]);
}
