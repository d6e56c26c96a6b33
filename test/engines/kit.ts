/** The kit of the tests of engines: a broker for one test, and a node that records what it receives and what is reported to it. */
import { nanoid } from "nanoid";
import { expect, onTestFinished } from "vitest";
import {
  EngineError,
  MAX_TOPIC_BYTES,
  type Channel,
  type Engine,
  type EngineConnection,
  type EngineFacts,
  type LogPage,
  type LogPart,
  type LogRule,
  type Position,
} from "../../src/fleet/engine.js";

/** A broker for one test. */
export interface EngineRig {
  /** Returns an engine of this broker, as a process makes it. All engines of the rig have the same prefix. */
  engine(): Engine;
  /** What the broker does not offer. The suite asserts that the engine has no such member. */
  readonly lacks?: readonly "log"[];
  /** Returns what is now in the broker under the prefix, one text for each key and subscription. Logs are not counted. */
  leftovers(): Promise<string[]>;
  /** Removes everything of the prefix, and stops what the rig started. */
  close(): Promise<void>;
}

/** Names that a broker may treat as special, or that two channels could share. */
export const HOSTILE_NAMES = [
  ..."*|>|a.*|a.>|{|}|{}|{a}|a b|a\tb|a\nb|a\r\nb|a:b|t:a|=2A|%002a|__proto__|[a]|?|\\|a\0b|é|e\u0301|😀|$SYS.a".split(
    "|",
  ),
  "x".repeat(MAX_TOPIC_BYTES),
  "ß".repeat(MAX_TOPIC_BYTES / 2),
];

/** The topic of a test that needs one, and the rule of its log. */
export const TOPIC = "topic";
export const LOG: LogRule = { length: 1_000, bytes: 2 ** 26, ttlMs: 60_000 };

/** Returns a page of so many entries, and of so many bytes. */
export const page = (length: number, bytes: number = 2 ** 20): LogPage => ({ length, bytes });

/** Disposes of something after the test: the last first. */
export function use<T extends AsyncDisposable>(one: T): T {
  onTestFinished(() => one[Symbol.asyncDispose]());
  return one;
}

/** Returns the frame of an entry of a log, as it is received. */
export function logFrame(epoch: string, offset: number, body: string): string {
  return `1L\t${epoch}\t${offset}\n${body}`;
}

/** One node of a fleet. What it appends and reads is of the topic `TOPIC`. */
export class TestNode implements AsyncDisposable {
  readonly name: string;
  readonly connection: EngineConnection;
  facts: EngineFacts | undefined;
  readonly received: [channel: Channel, frame: string][] = [];
  readonly downs: EngineError[] = [];
  readonly heard: ("all" | readonly Channel[])[] = [];
  ups = 0;
  readonly #waiting = new Set<() => void>();

  /** The node is not open yet. */
  constructor(engine: Engine, name = "node") {
    this.name = `${name}-${nanoid(6)}`;
    this.connection = engine.createConnection(this.name, {
      received: (channel, frame) => this.#report(() => this.received.push([channel, frame])),
      up: () => this.#report(() => this.ups++),
      down: (error) => this.#report(() => this.downs.push(error)),
      heard: (channels) => this.#report(() => this.heard.push(channels)),
    });
  }

  /** Opens a node, which is closed after the test. */
  static async open(engine: Engine, name?: string): Promise<TestNode> {
    const node = use(new TestNode(engine, name));
    node.facts = await node.connection.open();
    return node;
  }

  #report(record: () => unknown): void {
    record();
    for (const check of this.#waiting) check();
  }

  /** Resolves when a check returns true. It runs after each report of the engine. */
  async when(check: () => boolean): Promise<void> {
    if (check()) return;
    await new Promise<void>((resolve) => {
      const waiting = (): void => {
        if (!check()) return;
        this.#waiting.delete(waiting);
        resolve();
      };
      this.#waiting.add(waiting);
    });
  }

  /** Resolves when the node has its subscriptions again. */
  async untilHeard(count = 1): Promise<void> {
    await this.when(() => this.heard.length >= count);
  }

  /** Resolves when the connection was lost, or an attempt has failed, so many times. */
  async untilDown(count = 1): Promise<void> {
    await this.when(() => this.downs.length >= count);
  }

  /** Returns the frames of one channel. */
  of(channel: Channel): string[] {
    return this.received.flatMap(([where, frame]) => (where === channel ? [frame] : []));
  }

  /** Resolves when at least `count` such frames of a channel were received. */
  async until(channel: Channel, count: number, isCounted = (_frame: string): boolean => true): Promise<string[]> {
    await this.when(() => this.of(channel).filter(isCounted).length >= count);
    return this.of(channel).filter(isCounted);
  }

  append(body: string, key?: string, rule = LOG): Promise<Position> {
    return this.connection.log!.append(TOPIC, body, rule, key);
  }

  read(limit = 10): Promise<LogPart> {
    return this.connection.log!.read(TOPIC, 0, page(limit));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.connection.close();
  }
}

/** Resolves when the broker has nothing more under the prefix of a rig that contains a text. */
export async function untilNothingLeft(rig: EngineRig, text = ""): Promise<void> {
  await expect.poll(async () => (await rig.leftovers()).filter((one) => one.includes(text))).toEqual([]);
}

/** Resolves with the outcome of an operation; "done" if it did not fail. */
export async function outcomeOf(operation: Promise<unknown>): Promise<string> {
  return operation.then(
    () => "done",
    (error: unknown) => (error instanceof EngineError ? error.outcome : String(error)),
  );
}

/** Resolves with the error with which a node over an engine does not open. */
export async function refusalOf(engine: Engine): Promise<EngineError> {
  return use(new TestNode(engine))
    .connection.open()
    .then(
      () => expect.fail("it is open"),
      (error: unknown) => error as EngineError,
    );
}

/** Resolves after what is written in this tick. */
export function written(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

/** Returns the sockets and timers that keep this process running. */
function handles(): string[] {
  return process.getActiveResourcesInfo().filter((kind) => /^(Timeout|TCP|TLS)/.test(kind));
}

function countOf(kinds: readonly string[], kind: string): number {
  return kinds.filter((one) => one === kind).length;
}

/**
 * Returns a function that resolves when this process has no more timers and no more sockets than now. A socket of an earlier test may end
 * meanwhile, and does not make up for a timer.
 */
export function watchHandles(): () => Promise<void> {
  const before = handles();
  return async () => {
    // A check by `expect.poll` would set a timer itself.
    for (let now = handles(); now.some((kind) => countOf(now, kind) > countOf(before, kind)); now = handles())
      await written();
  };
}
