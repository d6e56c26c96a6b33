/** A broker, the nodes of one contender, and the processes with its clients. */
import { createClient } from "@redis/client";
import { startRedis } from "../../scripts/redis.js";
import { Process } from "../process.js";

const CLIENT_PROCESSES = 2;

export class World {
  #broker;
  #redis;
  #clients;
  #nodes;
  #ports;

  /** Starts `nodes` nodes without clients. `recovers`: whether clients may recover messages after they change the node. */
  static async create(contender, nodes, { recovers = false } = {}) {
    const world = new World();
    try {
      await world.#start(contender, nodes, recovers);
      return world;
    } catch (error) {
      await world.stop();
      throw error;
    }
  }

  async #start({ name }, nodes, recovers) {
    this.#broker = await startRedis();
    this.#redis = await createClient({ url: this.#broker.url }).connect();
    const options = JSON.stringify({ url: this.#broker.url, recovers });
    this.#nodes = Array.from(
      { length: nodes },
      () => new Process(new URL("node.js", import.meta.url), [name, options]),
    );
    this.#ports = await Promise.all(this.#nodes.map((node) => node.ask("listen")));
    this.#clients = Array.from(
      { length: CLIENT_PROCESSES },
      () => new Process(new URL("clients.js", import.meta.url), [name]),
    );
  }

  get nodes() {
    return this.#nodes;
  }

  get ports() {
    return this.#ports;
  }

  /** Opens `count` clients, evenly over the nodes with these indexes. Returns their ids when all of them are in the topic. */
  async connect(count, indexes = this.#nodes.map((_, i) => i)) {
    const each = count / indexes.length;
    // With few clients, one process has all.
    const processes = each % CLIENT_PROCESSES === 0 ? this.#clients : this.#clients.slice(0, 1);
    const ports = indexes.map((i) => this.#ports[i]);
    const ids = await Promise.all(
      processes.map((one) => one.ask("connect", ports, each / processes.length, this.#ports)),
    );
    await Promise.all(indexes.map((i) => this.#nodes[i].ask("joined", each)));
    return ids.flat();
  }

  /** Connects `count` clients to a node, and closes them. Resolves when the node has none. */
  async visit(index, count) {
    await this.askClients("visit", this.#ports[index], count / this.#clients.length);
    await this.#nodes[index].ask("joined", 0);
  }

  /** Sends a command to all processes with clients. Returns their replies. */
  askClients(command, ...args) {
    return Promise.all(this.#clients.map((one) => one.ask(command, ...args)));
  }

  /** Sends one notification from the first node. Returns the milliseconds until the last client has received it. */
  async fanOut(number, message) {
    await this.askClients("arm", number);
    const sentAt = await this.#nodes[0].ask("fanOut", "moved", { ...message, round: number });
    const times = await this.askClients("received");
    return (Math.max(...times) - sentAt) / 1e6;
  }

  /** Returns what all processes have used so far: CPU in microseconds, and the broker's commands and bytes. */
  async usage() {
    const [nodes, stats, broker] = await Promise.all([
      Promise.all(this.#nodes.map((node) => node.ask("cpu"))),
      Promise.all(this.#nodes.map((node) => node.ask("stats"))),
      brokerUsage(this.#redis),
    ]);
    const received = stats.some((one) => one === undefined) ? undefined : stats.map((one) => one.received);
    return { nodes, received, ...broker };
  }

  /** Returns what was used since `before`. */
  async usageSince(before) {
    const now = await this.usage();
    const difference = (value, name) => {
      if (value === undefined) return undefined;
      return Array.isArray(value) ? value.map((one, i) => one - before[name][i]) : value - before[name];
    };
    return Object.fromEntries(Object.entries(now).map(([name, value]) => [name, difference(value, name)]));
  }

  /** Ends all processes. */
  async stop() {
    this.#redis?.destroy();
    const processes = [...(this.#clients ?? []), ...(this.#nodes ?? [])];
    await Promise.all(processes.map((one) => one.kill()));
    await this.#broker?.stop();
  }
}

/** Returns what a broker has used so far, and the bytes of its memory. `broker`: microseconds of CPU. */
export async function brokerUsage(redis) {
  const info = await redis.sendCommand(["INFO"]);
  const value = (name) => Number(new RegExp(`^${name}:([\\d.]+)`, "m").exec(info)[1]);
  return {
    broker: (value("used_cpu_sys") + value("used_cpu_user")) * 1e6,
    commands: value("total_commands_processed"),
    bytesIn: value("total_net_input_bytes"),
    bytesOut: value("total_net_output_bytes"),
    memory: value("used_memory"),
  };
}
