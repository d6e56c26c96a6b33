/** A node for tests of an engine's failures. */
import { nanoid } from "nanoid";
import {
  EngineError,
  type Channel,
  type Engine,
  type EngineConnection,
  type EngineFacts,
} from "../../src/fleet/engine.js";
import { eventually } from "../support/redis.js";

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

/** Resolves when a node has its subscriptions again. */
export async function untilHeard(node: Listening, count = 1): Promise<void> {
  await eventually(
    () => node.heard.length,
    (heard) => heard >= count,
    30_000,
  );
}

/** Resolves with the outcome of an operation; "done" if it did not fail. */
export async function outcomeOf(operation: Promise<unknown>): Promise<string> {
  return operation.then(
    () => "done",
    (error: unknown) => (error instanceof EngineError ? error.outcome : String(error)),
  );
}

/** Returns how many sockets and timers keep this process running. */
export function countHandles(): number {
  return handles().length;
}

function handles(): string[] {
  return process.getActiveResourcesInfo().filter((kind) => /^(Timeout|TCP|TLS)/.test(kind));
}

/**
 * Returns a function that resolves when this process has no more timers and no more sockets than now. A socket of an earlier test may end
 * meanwhile, and does not make up for a timer.
 */
export function watchHandles(): () => Promise<void> {
  const before = handles();
  return async () => {
    await eventually(handles, (now) => now.every((kind) => countOf(now, kind) <= countOf(before, kind)), 3_000);
  };
}

function countOf(kinds: readonly string[], kind: string): number {
  return kinds.filter((one) => one === kind).length;
}
