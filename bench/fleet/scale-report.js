/** What a fleet needs at sizes that no machine of a benchmark has: calculated from fleets that were measured, as a part of docs/fleet.md. */
import { table } from "../report.js";
import { line, MOST_LOAD, nodesOfRoom, ROOM } from "./growth.js";

/** The load of the calculation: each peer has a topic of its own, and is in a room of `ROOM` peers. */
const PEERS = 1_000_000;
const ROOMS = PEERS / ROOM;
const SIZES = [10, 100, 1_000];
/** In which time a fleet does what it needs after a node has died or the broker was restarted. */
const MINUTE_S = 60;

const CORES = `The cores are \`B\` for each command and \`b\` for each message, as calculated above. They are an upper bound: a command of a script, and one of many in a packet, needs less than \`B\`. One Redis should need at most ${MOST_LOAD}. Beyond that, a Redis Cluster is needed, or the work after a failure takes longer than a minute.`;

const short = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 3 });
const figure = (value) => short.format(value);
const whole = (value) => value.toLocaleString("en-US");
const mib = (bytes) => figure(bytes / 2 ** 20);

/** Applies a function to each of the three figures that are counted. */
function map(of) {
  return { commands: of("commands"), messages: of("messages"), bytesOut: of("bytesOut") };
}

function plus(...all) {
  return map((name) => all.reduce((sum, one) => sum + one[name], 0));
}

function times(factor, one) {
  return map((name) => factor * one[name]);
}

/** Returns what the first of something needs, and each further one: where lines begin, and their slopes. */
function lines(points) {
  const all = map((name) => line(points.map(([x, needed]) => [x, needed[name]])));
  // A measured line may fall. A cost does not.
  const least = (what) => map((name) => Math.max(0, all[name][what]));
  return { first: least("fixed"), further: least("slope") };
}

/** Returns the bytes of the heap of a node, and for each other node that it knows. What a process needs once is in neither. */
function heapOf(bare) {
  const bytes = ({ nodes, nodeBytes }) => (nodes - 2) * nodeBytes;
  const pairs = bare.slice(1).map((one, i) => [one, bare[i]]);
  return line(
    pairs.map(([one, less]) => [one.nodes + less.nodes - 2, (bytes(one) - bytes(less)) / (one.nodes - less.nodes)]),
  );
}

/** Returns the constants of a fleet. `fleets`: those that were measured. */
export function constants(fleets) {
  const bare = fleets.filter(({ topics }) => topics === 0);
  // The rates at rest are clearest in the largest fleet, and what exceeds them in the smallest one.
  const [smallest, largest] = [bare[0], bare.at(-1)];
  const growing = fleets.filter(({ reach, members, topics }) => reach === 1 && members === 1 && topics > 0);
  const [small] = growing;
  const alike = fleets.filter(({ topics }) => topics === small.topics);
  const reaching = alike.filter(({ members }) => members === 1);
  const crowded = alike.find(({ members }) => members > 1);
  const ofNode = times(1 / smallest.nodes, smallest.restart);
  const ofClient = times(1 / smallest.clients, smallest.death);
  const places = ({ topics, reach }) => topics * reach;
  const perPlace = (needed) => lines(reaching.map((one) => [one.reach - 1, needed(one)]));
  const restart = (one) =>
    times(
      1 / places(one),
      plus(
        one.restart,
        times(
          -one.nodes,
          map((name) => ofNode[name]),
        ),
      ),
    );
  const death = (one) => times(one.homes / places(one), plus(one.death, times(-one.clients, ofClient)));

  const brokerOfNodes = line(bare.map((one) => [one.nodes, one.brokerBytes]));
  const brokerOfTopics = line(growing.map((one) => [one.topics, one.brokerBytes]));
  const brokerOfReach = line(reaching.map((one) => [one.topics * (one.reach - 1), one.brokerBytes]));
  const heap = heapOf(bare);
  // Topics of the nodes whose memory is measured.
  const held = (one) => (places(one) * (one.homes - 1)) / one.homes;
  const ofTopic = line(growing.map((one) => [held(one), one.topicBytes]));
  const each = (one) => (one.topicBytes - ofTopic.fixed) / held(one);
  return {
    // By node for commands, and by pair of nodes for what is sent to all of them.
    node: largest.rest.commands / largest.nodes,
    pair: times(1 / largest.nodes ** 2, largest.rest),
    publication: perPlace(({ publication }) => publication),
    ofClient,
    membership: perPlace(death),
    ofNode,
    topic: perPlace(restart),
    bytes: {
      broker: brokerOfNodes.fixed,
      brokerNode: brokerOfNodes.slope,
      brokerTopic: brokerOfTopics.slope,
      brokerReach: brokerOfReach.slope,
      node: heap.fixed,
      otherNode: heap.slope,
      topic: ofTopic.slope,
      reach: line(reaching.map((one) => [one.reach - 1, each(one)])).slope,
      member: (each(crowded) - each(small)) / (crowded.members - 1),
    },
  };
}

/** Calculates what a fleet needs in a second, by occasion. `reach`: the nodes of a room. */
export function loads(unit, nodes, reach) {
  const rest = { ...times(nodes ** 2, unit.pair), commands: nodes * unit.node };
  const ofRoom = ({ first, further }) => plus(first, times(reach - 1, further));
  const published = times(ROOMS, ofRoom(unit.publication));
  const returned = times(PEERS / nodes, plus(unit.ofClient, unit.membership.first, ofRoom(unit.membership)));
  const repaired = plus(
    times(nodes, unit.ofNode),
    times(PEERS, unit.topic.first),
    times(ROOMS * reach, ofRoom(unit.topic)),
  );
  return {
    "at rest": rest,
    "each room has 1 publication/s": plus(rest, published),
    "the minute after a node has died": plus(rest, times(1 / MINUTE_S, returned)),
    "the minute after the broker was restarted": plus(rest, times(1 / MINUTE_S, repaired)),
  };
}

/** Calculates the memory of the broker without entries of logs, and of each node without its peers. */
export function memory({ bytes }, nodes, reach) {
  const ofRoom = bytes.topic + (reach - 1) * bytes.reach + (ROOM - reach) * bytes.member;
  return {
    broker:
      bytes.broker +
      nodes * bytes.brokerNode +
      (PEERS + ROOMS) * bytes.brokerTopic +
      ROOMS * (reach - 1) * bytes.brokerReach,
    node: bytes.node + nodes * bytes.otherNode + (PEERS * bytes.topic + ROOMS * reach * ofRoom) / nodes,
  };
}

/** Returns the part of docs/fleet.md. `cost`: the microseconds of the broker for each message and for each node that gets it, if known. */
export function scalePart({ measured, quick, machine, fleets }, cost) {
  const unit = constants(fleets);
  const [spread, together] = [(nodes) => nodesOfRoom(nodes, ROOM), () => 1];
  return [
    "## Scale",
    "`npm run bench -- --fleet` measures this and writes it. Fleets of several sizes run over a Redis each. They rest, their Redis is killed and started again without data, one of their nodes is killed, and they publish. What is counted hardly depends on the speed of the machine: commands that Redis runs, with those of scripts, messages from Redis to nodes, bytes and memory. Only a machine that is so busy that nodes do not answer each other within a second counts more after a restart, because they ask again.",
    ...(quick ? ["This was a quick run, with small fleets. It is good for a first look, and not for a claim."] : []),
    `Measured ${measured.slice(0, 10)} on ${machine.cpu}, ${machine.memoryGiB} GiB, ${machine.system}, Node ${machine.node}. Each node is a server with \`redis()\`. Each topic has a log and a list of members. What is needed at rest is subtracted from the other figures. A node that dies has ${whole(fleets[0].clients)} clients, or a share of the topics, and its clients join these again on other nodes.`,
    measuredTable(fleets),
    growth(fleets),
    "### What each part needs",
    "These are the lines through the figures of topics. Figures of nodes at rest are those of the largest fleet, and of nodes and clients after a failure those of the smallest.",
    unitTable(unit),
    bytesTable(unit),
    "### A million peers and topics",
    `What follows is calculated from these constants. ${whole(PEERS)} peers have a topic of their own each, and are in ${whole(ROOMS)} rooms of ${ROOM}. All topics have a log and a list of members. After a node has died or the broker was restarted, all that is needed besides the rest is spread over a minute. Nodes bound that work: each has at most 128 frames of it and 32 reads unanswered, and repeats at most 1,000 reports of sessions at a time.`,
    ...(cost === undefined ? [] : [CORES]),
    "**The members of a room are spread over all nodes:**",
    loadTable(unit, cost, spread),
    "**Each room is on one node**, because the load balancer chooses the node by the room:",
    loadTable(unit, cost, together),
    "The memory of the broker is without entries of logs, and that of a node without its peers:",
    memoryTable(unit, spread, together),
    squares(unit, cost),
  ].join("\n\n");
}

function measuredTable(fleets) {
  const head = ["nodes", "topics", "nodes of a topic", "members on each", "at rest: commands/s", "messages/s"];
  const events = ["one publication: commands", "messages", "a node dies: commands", "messages"];
  const cells = (needed) => (needed === undefined ? ["", ""] : [figure(needed.commands), figure(needed.messages)]);
  const rows = fleets.map(({ nodes, topics, reach, members, rest, publication, death, restart, brokerBytes }) => [
    ...[nodes, topics].map(whole),
    ...(topics === 0 ? ["", ""] : [reach, members].map(whole)),
    ...[rest, publication, death, restart].flatMap(cells),
    mib(brokerBytes),
  ]);
  return table([[...head, ...events, "Redis restarts: commands", "messages", "MiB of Redis"], ...rows]);
}

/** Says how the rates at rest grow. */
function growth(fleets) {
  const bare = fleets.filter(({ topics }) => topics === 0);
  const [first, last] = [bare[0], bare.at(-1)];
  const full = fleets.toSorted((a, b) => a.topics - b.topics).at(-1);
  const empty = bare.find(({ nodes }) => nodes === full.nodes);
  const ratio = (one, other, name) => figure(one.rest[name] / other.rest[name]);
  return `At rest, ${figure(last.nodes / first.nodes)} times as many nodes need ${ratio(last, first, "commands")} times as many commands, and ${ratio(last, first, "messages")} times as many messages. ${whole(full.topics)} topics need ${ratio(full, empty, "commands")} times the commands of none. The run fails if that is more than 1.1.`;
}

function unitTable({ node, pair, publication, ofClient, membership, ofNode, topic }) {
  const row = (what, { commands, messages, bytesOut }) => [what, figure(commands), figure(messages), figure(bytesOut)];
  const further = "for each further node of the topic";
  return table([
    ["what", "commands", "messages", "bytes from the broker"],
    ["a node at rest, in a second", figure(node), "", ""],
    ["each pair of nodes at rest, in a second", "", figure(pair.messages), figure(pair.bytesOut)],
    row("a publication to a topic on one node", publication.first),
    row(`a publication, ${further}`, publication.further),
    row("a node dies: each of its clients", ofClient),
    row("a node dies: each topic that a client joins again", membership.first),
    row(`a node dies: such a topic, ${further}`, membership.further),
    row("the broker is restarted: each node", ofNode),
    row("the broker is restarted: each topic of a node", topic.first),
    row(`the broker is restarted: such a topic, ${further}`, topic.further),
  ]);
}

function bytesTable({ bytes }) {
  return table([
    ["memory of", "bytes"],
    ["Redis, for each node", figure(bytes.brokerNode)],
    ["Redis, for each topic with a log without entries, on one node", figure(bytes.brokerTopic)],
    ["Redis, for each further node of a topic", figure(bytes.brokerReach)],
    ["a node, without clients", figure(bytes.node)],
    ["a node, for each other node", figure(bytes.otherNode)],
    ["a node, for each topic with a log and one member", figure(bytes.topic)],
    ["a node, for each other node of a topic, with one member there", figure(bytes.reach)],
    ["a node, for each further member of a topic", figure(bytes.member)],
  ]);
}

function coresOf({ commands, messages }, { brokerFixed, brokerNode }) {
  return (commands * brokerFixed + messages * brokerNode) / 1e6;
}

function loadTable(unit, cost, reachOf) {
  const rows = SIZES.flatMap((nodes) =>
    Object.entries(loads(unit, nodes, reachOf(nodes))).map(([when, needed]) => [
      whole(nodes),
      when,
      figure(needed.commands),
      figure(needed.messages),
      figure((needed.bytesOut * 8) / 1e6),
      ...(cost === undefined ? [] : [figure(coresOf(needed, cost))]),
    ]),
  );
  const head = ["nodes", "when", "commands/s", "messages/s", "Mbit/s from the broker"];
  return table([[...head, ...(cost === undefined ? [] : ["cores of the broker"])], ...rows]);
}

function memoryTable(unit, spread, together) {
  const rows = SIZES.map((nodes) => {
    const [far, near] = [spread, together].map((reachOf) => memory(unit, nodes, reachOf(nodes)));
    return [whole(nodes), ...[far.broker, far.node, near.broker, near.node].map(mib)];
  });
  const head = ["rooms spread: MiB of the broker", "MiB of each node", "rooms on one node: MiB of the broker"];
  return table([["nodes", ...head, "MiB of each node"], ...rows]);
}

/** Says what grows with the square of the nodes. */
function squares(unit, cost) {
  const nodes = SIZES.at(-1);
  const rest = loads(unit, nodes, 1)["at rest"];
  const cores = cost === undefined ? "" : `, which need ${figure(coresOf(rest, cost))} cores of it`;
  const full = cost === undefined ? 0 : coresOf(rest, cost);
  const cure =
    full > MOST_LOAD
      ? " That is more than one Redis should do all the time: a longer `leaseMs` sends fewer beats."
      : "";
  return `**What grows with nodes times nodes.** At rest, only the messages from the broker: each node sends its beats to all nodes, ${figure(unit.pair.messages)} a second for each pair. Their number does not depend on peers and topics. ${whole(nodes)} nodes get ${figure(rest.messages)} messages/s from the broker${cores}.${cure} After a restart of the broker, each node of a topic asks all of its other nodes, so the answers grow with the square of the nodes of a topic. A room of ${ROOM} peers is on at most ${ROOM} nodes. In memory, each node knows all others, with ${figure(unit.bytes.otherNode)} bytes each.`;
}
