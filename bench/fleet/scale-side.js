/** A process of a fleet whose growth is measured: some of its nodes, or all of its clients. It obeys its parent, and ends with it. */
import { setTimeout as sleep } from "node:timers/promises";
import { connect, serve } from "../../dist/node.js";
import { redis } from "../../dist/redis/index.js";
import { answer } from "../process.js";
import { shuffled } from "../statistics.js";
import { memory } from "../usage.js";

const POLL_MS = 20;
const RETRY_MS = 500;
/** The machine is busy while all fleets begin. */
const START_MS = 60_000;
const JOIN_MS = 60_000;
const MESSAGE = { text: "x".repeat(160) };
const nodes = [];
/** The clients of each node that has some. */
const clients = [];

async function startNode(url) {
  const server = await serve({
    port: 0,
    host: "127.0.0.1",
    engine: redis({ url, startTimeoutMs: START_MS }),
    topics: () => ({ log: {}, members: true }),
    methods: {
      join: ({ topics }, { peer }) =>
        Promise.all(topics.map((name) => server.topic(name).join(peer, { as: { name: "Ada" } }))),
    },
  });
  server.on("error", () => {});
  nodes.push(server);
  return server.url;
}

/** A client that joins its topics again on another node when its node is lost. */
class Client {
  opened = 0;
  #topics = [];
  #peer;

  async connect(home, spares) {
    const urls = [home, ...shuffled(spares)];
    let attempts = 0;
    const onOpen = async (server) => {
      await server.request("join", { topics: this.#topics });
      this.opened++;
    };
    this.#peer = await connect(() => urls[attempts++ % urls.length], { onOpen, fallback: () => {} });
  }

  async join(topics) {
    this.#topics.push(...topics);
    if (topics.length === 0) return;
    const join = () => this.#peer.request("join", { topics }, { timeoutMs: JOIN_MS });
    // On a machine that is too busy, the node has no connection to its broker for a moment.
    while (
      !(await join().then(
        () => true,
        () => false,
      ))
    )
      await sleep(RETRY_MS);
  }
}

answer({
  /** Starts nodes. Returns their addresses. */
  async start(url, count) {
    const urls = [];
    for (let i = 0; i < count; i++) urls.push(await startNode(url));
    return urls;
  },
  /** Resolves when each node reaches the broker and knows so many nodes. */
  async know(count) {
    while (!nodes.every((one) => one.health().ok && one.nodes.live.length === count)) await sleep(POLL_MS);
  },
  /** Returns the bytes of the heap, after a collection. */
  heap: async () => (await memory()).heapUsed,
  /** Returns how many frames the nodes have received. */
  received: () => nodes.reduce((sum, one) => sum + one.stats().engine.received, 0),
  /** Publishes so often to topics of which these nodes have members, at random. Returns how often that was. */
  async publish(topics, perSecond, ms) {
    const places = Array.from({ length: topics }, (_, i) => `topic-${i}`)
      .map((name) => nodes.find((one) => one.topic(name).size > 0)?.topic(name))
      .filter((topic) => topic !== undefined);
    const started = performance.now();
    const pending = [];
    for (let elapsed = 0; elapsed < ms; elapsed = performance.now() - started) {
      for (const due = Math.floor((elapsed * perSecond) / 1_000); pending.length < due;)
        pending.push(places[Math.floor(Math.random() * places.length)].publish("said", MESSAGE));
      await sleep(1);
    }
    await Promise.all(pending);
    return pending.length;
  },
  /** Connects clients to each of `homes`. If it is lost, they go to one of `spares`. */
  async connect(homes, spares, each) {
    for (const home of homes) {
      const some = Array.from({ length: each }, () => new Client());
      clients.push(some);
      await Promise.all(some.map((client) => client.connect(home, spares)));
    }
  },
  /** Each topic gets `members` members on one more node: on the `layer`-th one after its first. */
  async join(topics, members, layer) {
    const joins = new Map(clients.flat().map((client) => [client, []]));
    for (let topic = 0; topic < topics; topic++) {
      const some = clients[(topic + layer) % clients.length];
      const first = Math.floor(topic / clients.length);
      for (let i = 0; i < members; i++) joins.get(some[(first + i) % some.length]).push(`topic-${topic}`);
    }
    await Promise.all([...joins].map(([client, names]) => client.join(names)));
  },
  /** Resolves when the clients of the first node are on others. */
  async returned() {
    while (clients[0].some(({ opened }) => opened < 2)) await sleep(POLL_MS);
  },
});
