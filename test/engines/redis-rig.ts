/** Rigs of the suite over Redis, and a node for tests of its failures. */
import { nanoid } from "nanoid";
import type { Channel, Engine, EngineConnection, EngineError, EngineFacts } from "../../src/fleet/engine.js";
import { redis, type RedisOptions } from "../../src/redis/index.js";
import { Names } from "../../src/redis/names.js";
import { eventually, leftoversAt, removeAt } from "../support/redis.js";
import type { EngineRig } from "./rig.js";

/** The rights that the documents name, for the prefixes of the rigs. A cluster needs `CLUSTER_RIGHTS` too. */
export const RIGHTS =
  "resetkeys ~test-*:* resetchannels &test-*:* -@all +@pubsub +@hash +@stream +@sortedset +@set +@scripting +@connection " +
  "+info +del +pexpire +time";
export const CLUSTER_RIGHTS = "+cluster|slots +cluster|info";

export interface RedisRig extends EngineRig {
  readonly prefix: string;
}

/** Returns a rig with a prefix of its own. `servers`: the URLs of all primaries, with a user who may run every command. */
export function redisRig(options: RedisOptions, servers: readonly string[]): RedisRig {
  const prefix = `test-${nanoid(8)}`;
  const leftovers = async (): Promise<string[]> =>
    (await Promise.all(servers.map((url) => leftoversAt(url, prefix)))).flat();
  return {
    prefix,
    // Nodes learn of each other at each beat, every second.
    engine: () => redis({ leaseMs: 3_000, ...options, prefix }),
    // A server ends the subscriptions of a closed connection a little later.
    leftovers: () => eventually(leftovers, (left) => left.length === 0, 2_000).catch(leftovers),
    close: async () => {
      await Promise.all(servers.map((url) => removeAt(url, prefix)));
    },
  };
}

/** Returns the name of a channel in Redis. */
export function keyOf({ prefix }: RedisRig, channel: Channel): string {
  return new Names(prefix).channel(channel).name;
}

/** Returns true if each number is greater than the one before. */
export function isAscending(numbers: readonly number[]): boolean {
  return numbers.every((number, i) => i === 0 || number > numbers[i - 1]!);
}

/** A node that records what it receives and what is reported to it, also what the suite does not need. */
export class Listening implements AsyncDisposable {
  readonly name: string;
  readonly connection: EngineConnection;
  facts: EngineFacts | undefined;
  readonly received: [channel: Channel, frame: string][] = [];
  readonly downs: EngineError[] = [];
  readonly heard: ("all" | readonly Channel[])[] = [];
  ups = 0;

  private constructor(engine: Engine, name: string) {
    this.name = name;
    this.connection = engine.createConnection(name, {
      received: (channel, frame) => this.received.push([channel, frame]),
      up: () => this.ups++,
      down: (error) => this.downs.push(error),
      heard: (channels) => this.heard.push(channels),
    });
  }

  /** Makes a node, which is not open yet. */
  static create(engine: Engine, name: string): Listening {
    return new Listening(engine, `${name}-${nanoid(6)}`);
  }

  static async open(engine: Engine, name: string): Promise<Listening> {
    const node = Listening.create(engine, name);
    node.facts = await node.connection.open();
    return node;
  }

  /** Returns the frames of one channel. */
  of(channel: Channel): string[] {
    return this.received.flatMap(([where, frame]) => (where === channel ? [frame] : []));
  }

  /** Resolves when at least `count` such frames of a channel were received. */
  async until(channel: Channel, count: number, isCounted = (_frame: string): boolean => true): Promise<string[]> {
    return eventually(
      () => this.of(channel).filter(isCounted),
      (frames) => frames.length >= count,
    );
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.connection.close();
  }
}
