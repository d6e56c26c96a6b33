/** How the cost grows with the nodes: what follows from the measured figures, calculated. */

/** The share of a core that a process may use all the time, so that there is room for a peak. */
export const MOST_LOAD = 0.7;
export const PEERS_OF_NODE = 10_000;
/** The load of the calculation: rooms of 50 peers, each of which sends a message every 10 s to its room. */
export const ROOM = 50;
export const PAUSE_S = 10;
/** The numbers of nodes that are measured, and those for which the cost is calculated. */
export const NODE_COUNTS = [1, 2, 4];
export const SIZES = [1, 2, 4, 10, 30, 100];

/** Returns the line of least squares through points: `{ fixed, slope }`. */
export function line(points) {
  const count = points.length;
  const sum = (of) => points.reduce((total, point) => total + of(point), 0);
  const [x, y] = [sum(([value]) => value) / count, sum(([, value]) => value) / count];
  const slope = sum(([a, b]) => (a - x) * (b - y)) / sum(([a]) => (a - x) ** 2);
  return { fixed: y - slope * x, slope };
}

/**
 * Returns the unit costs, in microseconds of CPU, and in bytes. `cells`: by scenario, the medians of the metrics of reciproc.
 * `counts`: the numbers of nodes that were measured.
 */
export function unitCosts(cells, counts) {
  const points = (name) => counts.map((nodes) => [nodes, cells[`cost-${nodes}`][name]]);
  const several = counts.filter((nodes) => nodes > 1);
  const mean = (name) => several.reduce((sum, nodes) => sum + cells[`cost-${nodes}`][name], 0) / several.length;
  const delivery = cells["fan-out-1"].nodeCpu;
  const broker = line(points("broker"));
  const out = line(points("bytesOut"));
  return {
    // A measured line may begin below zero. A cost does not.
    brokerFixed: Math.max(0, broker.fixed),
    brokerNode: Math.max(0, broker.slope),
    delivery,
    // Each of these includes one delivery.
    receive: Math.max(0, mean("receiver") - delivery),
    send: Math.max(0, mean("sender") - delivery),
    bytesOut: Math.max(0, out.slope),
  };
}

/** Returns how many nodes have a member of a room, if its members are spread over all nodes at random. */
export function nodesOfRoom(nodes, members) {
  return nodes * (1 - (1 - 1 / nodes) ** members);
}

/** Calculates messages to all peers: how many a second the nodes and the broker can send. */
export function announcements(unit, nodes) {
  const ofNode = (1e6 * MOST_LOAD) / (unit.receive + PEERS_OF_NODE * unit.delivery);
  const ofBroker = (1e6 * MOST_LOAD) / (unit.brokerFixed + nodes * unit.brokerNode);
  return { nodes, peers: nodes * PEERS_OF_NODE, ofNode, ofBroker, limit: ofNode < ofBroker ? "nodes" : "broker" };
}

/** Calculates the load of rooms. `together`: each room is on one node, because the load balancer chooses the node by the room. */
export function rooms(unit, nodes, together) {
  const peers = nodes * PEERS_OF_NODE;
  const messages = peers / PAUSE_S;
  const reached = together ? 1 : nodesOfRoom(nodes, ROOM);
  // The node of the sender has a member: the sender itself.
  const node = (messages * (unit.send + (reached - 1) * unit.receive + ROOM * unit.delivery)) / nodes / 1e6;
  const broker = (messages * (unit.brokerFixed + reached * unit.brokerNode)) / 1e6;
  return {
    nodes,
    peers,
    messages,
    reached,
    received: messages * reached,
    node,
    broker,
    primaries: Math.max(1, Math.ceil(broker / MOST_LOAD)),
    mbit: (messages * reached * unit.bytesOut * 8) / 1e6,
    limit: limitOf(node, broker),
  };
}

function limitOf(node, broker) {
  if (node <= MOST_LOAD && broker <= MOST_LOAD) return "none";
  if (node > MOST_LOAD && broker > MOST_LOAD) return "nodes and broker";
  return node > MOST_LOAD ? "nodes" : "broker";
}
