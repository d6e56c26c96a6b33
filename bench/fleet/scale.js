/**
 * Measures how what a fleet needs grows with its nodes and its topics: fleets of several sizes at rest, when their broker is restarted,
 * when a node dies, and while they publish. Only commands, messages, bytes and memory are counted, so all fleets run at the same time.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { createClient } from "@redis/client";
import { startRedis } from "../../scripts/redis.js";
import { machine } from "../machine.js";
import { Process } from "../process.js";
import { precise } from "../statistics.js";
import { brokerUsage } from "./world.js";

/** The name in `--only`. */
export const SCALE = "scale";

/** `reach`: the nodes on which each topic has members. `members`: how many on each of them. */
const fleet = (nodes, topics = 0, reach = 1, members = 1) => ({ nodes, topics, reach, members });
export const FLEETS = [
  fleet(10),
  fleet(30),
  fleet(100),
  fleet(10, 1_000),
  fleet(10, 10_000),
  fleet(10, 1_000, 1, 10),
  fleet(10, 1_000, 2),
  fleet(10, 1_000, 5),
];
export const QUICK_FLEETS = [
  fleet(4),
  fleet(10),
  fleet(20),
  fleet(4, 100),
  fleet(4, 1_000),
  fleet(4, 100, 1, 10),
  fleet(4, 100, 2),
];

/** Clients of the node that dies, if there are no topics; and of each node with topics, which are half of all nodes. */
const CLIENTS = 100;
const CLIENTS_OF_NODE = 10;
/** After the last change of a topic, its node repeats the number of the change for a minute. */
const REPEATS_MS = 62_000;
/** A node beats three times in 10 s, and looks at its broker every 5 s. */
const REST_MS = 20_000;
const PUBLISHING_MS = 20_000;
/** How many topics get a publication a second, on average. */
const PUBLISHED = 100;
/** A fleet is repaired when it needs no more than at rest, within this tolerance. */
const TOLERANCE = 1.1;
const REPAIR_MS = 5_000;
/** The machine is busy while all fleets begin. */
const CONNECT_MS = 60_000;

/** Measures these fleets, and returns the part of docs/fleet.json. Throws if the rate at rest grows with the topics. */
export async function measureScale(fleets, quick) {
  const measured = new Date().toISOString();
  const results = await Promise.all(fleets.map(measure));
  for (const { nodes, topics, rest } of results) {
    const empty = results.find((one) => one.nodes === nodes && one.topics === 0);
    if (rest.commands > TOLERANCE * empty?.rest.commands)
      throw new Error(`at rest, the broker runs ${rest.commands} commands/s with ${topics} topics`);
  }
  return { measured, quick, machine: machine(), fleets: results };
}

async function measure(size) {
  const run = new Run(size);
  try {
    return await run.measure();
  } finally {
    await run.stop();
  }
}

/** One fleet. */
class Run {
  #size;
  #broker;
  #redis;
  /** The node that dies, the others, and the clients. */
  #dying;
  #others;
  #clients;
  /** The processes whose nodes live. */
  #live;

  constructor(size) {
    this.#size = size;
  }

  async measure() {
    const { nodes, topics, reach, members } = this.#size;
    await this.#startBroker();
    const { url } = this.#broker;
    [this.#dying, this.#others, this.#clients] = Array.from(
      { length: 3 },
      () => new Process(new URL("scale-side.js", import.meta.url), [], ["--expose-gc"]),
    );
    this.#live = [this.#dying, this.#others];
    const urls = (await Promise.all(this.#live.map((one) => one.ask("start", url, 1)))).flat();
    // The first node of a process loads the code.
    const codeHeap = await this.#others.ask("heap");
    urls.push(...(await this.#others.ask("start", url, nodes - 2)));
    await this.#know(nodes);
    const emptyHeap = await this.#others.ask("heap");
    const homes = topics === 0 ? 1 : nodes / 2;
    const clients = topics === 0 ? CLIENTS : CLIENTS_OF_NODE;
    await this.#clients.ask("connect", urls.slice(0, homes), urls.slice(homes), clients);
    const clientHeap = await this.#others.ask("heap");
    for (let layer = 0; layer < reach; layer++) await this.#clients.ask("join", topics, members, layer);
    await sleep(REPEATS_MS);
    const { memory } = await this.#usage();
    const result = {
      ...this.#size,
      homes,
      clients,
      /** The bytes of the heap for each node without clients, and for the topics of all nodes but the one that dies. */
      nodeBytes: (emptyHeap - codeHeap) / (nodes - 2),
      topicBytes: (await this.#others.ask("heap")) - clientHeap,
      brokerBytes: memory,
      rest: await this.#rest(),
    };
    result.restart = await this.#restart(result.rest);
    this.#live = [this.#others];
    result.death = await this.#during(async () => {
      await this.#dying.kill();
      await this.#clients.ask("returned");
      await sleep(REPEATS_MS);
    });
    const rest = await this.#rest();
    result.death = without(result.death, rest);
    if (topics > 0) {
      let count;
      const all = await this.#during(async () => {
        count = await this.#others.ask("publish", PUBLISHED, PUBLISHED, PUBLISHING_MS);
      });
      result.publication = each(without(all, rest), count);
    }
    return rounded(result);
  }

  async #startBroker(port) {
    this.#broker = await startRedis({ port });
    const socket = { connectTimeout: CONNECT_MS };
    this.#redis = await createClient({ url: this.#broker.url, socket }).connect();
  }

  async #stopBroker() {
    this.#redis?.destroy();
    await this.#broker?.stop();
  }

  #know(nodes) {
    return Promise.all(this.#live.map((one) => one.ask("know", nodes)));
  }

  /** Kills the broker, which loses all it has, and starts it again. Returns what the nodes needed beyond the rest until they were repaired. */
  async #restart(rest) {
    const { messages } = await this.#usage();
    await this.#stopBroker();
    await this.#startBroker(Number(new URL(this.#broker.url).port));
    await this.#know(this.#size.nodes);
    const repairing = performance.now();
    let window;
    do window = await this.#during(() => sleep(REPAIR_MS));
    while (window.commands > (TOLERANCE * rest.commands * window.ms) / 1_000 + this.#size.nodes);
    const now = await this.#usage();
    return without({ ...now, messages: now.messages - messages, ms: performance.now() - repairing }, rest);
  }

  /** Returns what is needed in a second. */
  async #rest() {
    const { ms, ...needed } = await this.#during(() => sleep(REST_MS));
    return each(needed, ms / 1_000);
  }

  /** Returns what is needed while `act` runs, and how long that was. */
  async #during(act) {
    const [before, started] = [await this.#usage(), performance.now()];
    await act();
    const now = await this.#usage();
    const needed = Object.entries(now).map(([name, value]) => [name, value - before[name]]);
    return { ...Object.fromEntries(needed), ms: performance.now() - started };
  }

  /** Returns what was needed so far, and the memory of the broker. */
  async #usage() {
    const [received, { commands, bytesOut, memory }] = await Promise.all([
      Promise.all(this.#live.map((one) => one.ask("received"))),
      brokerUsage(this.#redis),
    ]);
    return { commands, messages: received.reduce((sum, one) => sum + one, 0), bytesOut, memory };
  }

  async stop() {
    const processes = [this.#clients, this.#dying, this.#others].filter((one) => one !== undefined);
    await Promise.all(processes.map((one) => one.kill()));
    await this.#stopBroker();
  }
}

/** What is counted: commands of the broker with those of its scripts, messages from it to the nodes, and its bytes to them. */
const COUNTED = ["commands", "messages", "bytesOut"];

/** Returns what was needed beyond the rest. */
function without(needed, rest) {
  return Object.fromEntries(COUNTED.map((name) => [name, needed[name] - (rest[name] * needed.ms) / 1_000]));
}

function each(needed, count) {
  return Object.fromEntries(COUNTED.map((name) => [name, needed[name] / count]));
}

function rounded(result) {
  const entries = Object.entries(result).map(([name, value]) => [
    name,
    typeof value === "number" ? precise(value) : rounded(value),
  ]);
  return Object.fromEntries(entries);
}
