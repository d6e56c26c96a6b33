/** What `turns.js` measures, with both ends of the connections in this process. */
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { check } from "./load.js";

const SOCKETS = 100;
const SOCKETS_IN_FLIGHT = 8;

/** A scenario returns how many messages it has sent after about `ms`. */
export const SCENARIOS = {
  one: ({ peers: [peer] }, ms) => callFor(peer, 1, ms),
  "in-flight": ({ peers: [peer] }, ms) => callFor(peer, 64, ms),
  burst: ({ peers: [peer] }, ms) =>
    roundsFor(ms, () => Promise.all(Array.from({ length: 1_000 }, (_, x) => peer.request("increment", [x])))),
  sockets: async ({ peers }, ms) => sumOf(await Promise.all(peers.map((peer) => callFor(peer, SOCKETS_IN_FLIGHT, ms)))),
  notify: ({ peers: [peer] }, ms) =>
    roundsFor(ms, () => {
      for (let x = 0; x < 1_000; x++) peer.notify("note", [x]);
      return peer.request("increment", [0]);
    }),
  topic: ({ server, peers }, ms) => topicFor(server, peers, 1_000, ms),
  "topic-sockets": ({ server, peers }, ms) => topicFor(server, peers, 10, ms),
  broadcast: ({ peers, server }, ms) =>
    roundsFor(ms, () => {
      for (let x = 0; x < 1_000 / SOCKETS; x++) server.peers.notify("note", [x]);
      return Promise.all(peers.map((peer) => peer.request("increment", [0])));
    }),
};

/** Scenarios with a hundred connections. The others have one. */
const MANY = new Set(["sockets", "topic-sockets"]);

const sumOf = (counts) => counts.reduce((sum, count) => sum + count, 0);

/** Keeps `inFlight` calls pending. */
async function callFor(peer, inFlight, ms) {
  const end = performance.now() + ms;
  let calls = 0;
  const worker = async () => {
    while (performance.now() < end) {
      const x = calls++;
      check(await peer.request("increment", [x]), x + 1, "increment");
    }
  };
  await Promise.all(Array.from({ length: inFlight }, worker));
  return calls;
}

/** Runs rounds of 1,000 notifications to the members of a topic, `perMember` to each. */
function topicFor(server, peers, perMember, ms) {
  return roundsFor(ms, () => {
    for (let x = 0; x < perMember; x++) server.topic("news").notify("note", [x]);
    // The responses arrive after the notifications.
    return Promise.all(peers.map((peer) => peer.request("increment", [0])));
  });
}

/** Runs rounds of 1,000 messages. */
async function roundsFor(ms, round) {
  const end = performance.now() + ms;
  let messages = 0;
  for (; performance.now() < end; messages += 1_000) await round();
  return messages;
}

/** Starts a server of a build, and connects the clients of a scenario. */
export async function setUp(root, scenario) {
  const { connect, serve } = await import(pathToFileURL(join(root, "dist/node.js")).href);
  const methods = { increment: ([x]) => x + 1, note: () => {} };
  const server = await serve({ port: 0, methods });
  server.on("peer", (peer) => server.topic("news").add(peer));
  const count = MANY.has(scenario) ? SOCKETS : 1;
  const peers = await Promise.all(Array.from({ length: count }, () => connect(server.url, { methods })));
  return { server, peers };
}
