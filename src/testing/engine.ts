/** The rules of an engine, as tests: `describeEngine` runs the same ones over every engine, with the functions of any test runner. */
import { ConnectionLostError } from "../message/errors.js";
import { nanoid } from "../base/packages.js";
import {
  EngineError,
  logFrame,
  MAX_TOPIC_BYTES,
  type Channel,
  type Engine,
  type EngineConnection,
  type EngineFacts,
  type LogPage,
  type LogPart,
  type LogRule,
  type Position,
} from "../topics/engine.js";
import type { AnyPeer } from "../peer/peer.js";
import { testServer } from "./server.js";

/** The functions of a test runner, such as those of vitest or Jest. */
export interface TestFunctions {
  /** Groups the tests that `body` adds. */
  describe(this: void, title: string, body: () => void): unknown;
  /** Adds a test. It fails if `run` rejects. */
  it(this: void, title: string, run: () => Promise<void>): unknown;
  /** `toEqual` throws if a value has not the same content as another one. */
  expect(this: void, actual: unknown): { toEqual(expected: unknown): unknown };
}

/** A broker for one test. */
export interface EngineRig {
  /** Returns an engine of this broker, as a process makes it. All engines of the rig are one fleet, in which no log is before. */
  engine(): Engine;
  /** What the broker does not offer. Then the engine must not have it. */
  readonly lacks?: readonly "log"[] | undefined;
  /** Removes all logs of these engines, and no position of a key that the broker keeps for itself. Default: logs are not lost in a test. */
  removeLogs?(): Promise<unknown>;
  /** Returns what the broker has now of these engines, one text for each key and subscription, without logs. Default: it is not checked. */
  leftovers?(): Promise<readonly string[]>;
  /** Returns what keeps this process running: on Node, `process.getActiveResourcesInfo()`. Default: it is not checked. */
  handles?(): readonly string[];
  /** Called after the test. */
  close?(): Promise<void>;
}

/** The topic of a test that needs one, and the rule of its log. */
export const TOPIC = "topic";
export const LOG: LogRule = { length: 1_000, bytes: 2 ** 26, ttlMs: 60_000 };

const CHANNEL = `t:${TOPIC}` as const;
const RULE = { length: 10, bytes: 2 ** 20, ttlMs: 60_000 };
const EPOCH = /^[A-Za-z0-9_-]{1,64}$/;
/** Frames and bodies that a broker may treat as special. */
const TEXTS = ["", "\0", "\r\n", "é😀"];
/** Names that a broker may treat as special, or that two channels could share. */
const HOSTILE_NAMES = [
  ..."*|>|a.*|a.>|{|}|{}|{a}|a b|a\tb|a\nb|a\r\nb|a:b|t:a|=2A|%002a|__proto__|[a]|?|\\|a\0b|é|e\u0301|😀|$SYS.a".split(
    "|",
  ),
  "x".repeat(MAX_TOPIC_BYTES),
  "ß".repeat(MAX_TOPIC_BYTES / 2),
];
/** How often what becomes true at some time is looked at, and how long at most. */
const LOOK_MS = 10;
const MOST_LOOKS = 6_000;

/** Returns a page of so many entries, and of so many bytes. */
export const page = (length: number, bytes: number = 2 ** 20): LogPage => ({ length, bytes });

/** Repeats what is safe to repeat until the broker answers in time. One that is not scheduled for seconds is no fault of an engine. */
export async function answered<T>(run: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await run();
    } catch (error) {
      if (!(error instanceof EngineError)) throw error;
      await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
    }
  }
}

/** Resolves with the outcome of an operation; "done" if it did not fail. */
export async function outcomeOf(operation: Promise<unknown>): Promise<string> {
  return operation.then(
    () => "done",
    (error: unknown) => (error instanceof EngineError ? error.outcome : String(error)),
  );
}

/** One node of a fleet without a server. What it appends and reads is of the topic `TOPIC`. */
export class TestNode implements AsyncDisposable {
  readonly name: string;
  readonly connection: EngineConnection;
  facts: EngineFacts | undefined;
  readonly received: [channel: Channel, frame: string][] = [];
  readonly downs: EngineError[] = [];
  readonly resubscribed: ("all" | readonly Channel[])[] = [];
  ups = 0;
  readonly #waiting = new Set<() => void>();

  /** The node is not open yet. */
  constructor(engine: Engine, name = "node") {
    this.name = `${name}-${nanoid(6)}`;
    this.connection = engine.createConnection(this.name, {
      received: (channel, frame) => this.#report(() => this.received.push([channel, frame])),
      up: () => this.#report(() => this.ups++),
      down: (error) => this.#report(() => this.downs.push(error)),
      resubscribed: (channels) => this.#report(() => this.resubscribed.push(channels)),
    });
  }

  /** Opens the node. An attempt to connect that the broker did not answer in time is no loss. */
  async open(): Promise<this> {
    this.facts = await this.connection.open();
    this.downs.length = 0;
    return this;
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
    await this.when(() => this.resubscribed.length >= count);
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

  read(limit = 10, after = 0, bytes?: number): Promise<LogPart> {
    return this.connection.log!.read(TOPIC, after, page(limit, bytes));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.connection.close();
  }
}

/**
 * Adds the tests of an engine: what each of its functions promises, and that servers work over it. `makeRig` makes a broker, or a part of
 * one, for each test.
 */
export function describeEngine(
  engineName: string,
  makeRig: () => Promise<EngineRig>,
  { describe, it, expect }: TestFunctions,
): void {
  /** Adds a test, after which its nodes are closed, and then the rig. */
  const test = (title: string, run: (rig: EngineRig, open: () => Promise<TestNode>) => Promise<void>): void =>
    void it(title, async () => {
      const rig = await makeRig();
      const nodes: TestNode[] = [];
      try {
        await run(rig, async () => {
          const node = new TestNode(rig.engine());
          nodes.push(node);
          return node.open();
        });
      } finally {
        await Promise.all(nodes.map(({ connection }) => connection.close()));
        await rig.close?.();
      }
    });
  /** Adds a test of two nodes. */
  const testPair = (title: string, run: (a: TestNode, b: TestNode) => Promise<void>): void =>
    test(title, async (_rig, open) => run(await open(), await open()));
  /** The same for the logs. */
  const testLogs = (title: string, run: (a: TestNode, b: TestNode) => Promise<void>): void =>
    test(title, async ({ lacks }, open) => {
      const [a, b] = [await open(), await open()];
      if (lacks?.includes("log") === true) expect(a.connection.log).toEqual(undefined);
      else await run(a, b);
    });
  /** Resolves when a value has this content. Rejects if it has not after a minute. */
  const expectSoon = async (read: () => unknown, expected: unknown): Promise<void> => {
    for (let looks = 1; ; looks++) {
      try {
        return void expect(await read()).toEqual(expected);
      } catch (error) {
        if (looks === MOST_LOOKS) throw error;
        await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
      }
    }
  };

  describe(`the engine ${engineName}`, () => {
    describe("sends", () => {
      testPair(
        "receives its inbox, the channel of all nodes, and what is sent after `subscribe` resolved, its own too",
        async (a, b) => {
          await Promise.all([a, b].map(({ connection }) => connection.subscribe(CHANNEL)));
          await a.connection.send(`n:${b.name}`, "to b");
          await a.connection.send("a:all", "to all");
          await a.connection.send(CHANNEL, "1");
          await b.connection.send(CHANNEL, "2");
          for (const node of [a, b]) {
            expect(await node.until("a:all", 1)).toEqual(["to all"]);
            expect(sorted(await node.until(CHANNEL, 2))).toEqual(["1", "2"]);
          }
          expect(await b.until(`n:${b.name}`, 1)).toEqual(["to b"]);
          expect(a.received.length).toEqual(3);
        },
      );

      testPair("receives nothing of a channel that is not subscribed, or no longer", async (a, b) => {
        await b.connection.subscribe("t:left");
        await b.connection.subscribe(CHANNEL);
        for (const channel of ["t:left", CHANNEL] as const) b.connection.unsubscribe(channel);
        // Takes effect after the end of the first subscription.
        await b.connection.subscribe(CHANNEL);
        for (const channel of ["t:left", "t:never", CHANNEL] as const) await a.connection.send(channel, "once");
        await a.connection.send(CHANNEL, "last");
        await b.until(CHANNEL, 2);
        expect(b.received).toEqual(["once", "last"].map((frame) => [CHANNEL, frame]));
      });

      testPair("carries any text of a frame, in the order in which one node sends to a channel", async (a, b) => {
        await b.connection.subscribe(CHANNEL);
        const numbers = Array.from({ length: 500 }, (_, i) => String(i));
        const frames = [...numbers, ...TEXTS, "a".repeat(Math.min(a.facts!.maxFrameBytes, 900_000)), "last"];
        await Promise.all(frames.map((frame) => a.connection.send(CHANNEL, frame)));
        expect(await b.until(CHANNEL, frames.length)).toEqual(frames);
      });

      testPair("returns how many nodes were subscribed, or always `undefined`", async (a, b) => {
        const first = await a.connection.send(CHANNEL, "x");
        const expected = (count: number): number | undefined => (first === undefined ? undefined : count);
        expect(first).toEqual(expected(0));
        for (const [i, node] of [b, a].entries()) {
          await node.connection.subscribe(CHANNEL);
          expect(await a.connection.send(CHANNEL, "x")).toEqual(expected(i + 1));
        }
        // An engine that does not count may know nevertheless that an inbox has no node.
        const none = await a.connection.send("n:none", "x");
        if (none !== 0) expect(none).toEqual(expected(0));
      });

      test("rejects with `not-sent` before it is open and after it is closed", async (rig, open) => {
        const [a, early] = [await open(), new TestNode(rig.engine())];
        await a.connection.close();
        for (const { connection } of [a, early]) {
          const operations = [
            connection.send("a:all", "x"),
            connection.subscribe("t:x"),
            connection.log?.append("x", "{}", RULE, undefined),
          ];
          for (const operation of operations)
            if (operation !== undefined) expect(await outcomeOf(operation)).toEqual("not-sent");
        }
        await early.connection.close();
      });

      test("leaves nothing after `close`, no socket and no timer, and calls no function of its host any more", async (rig, open) => {
        const before = sortsOf(rig);
        const [a, b] = [await open(), await open()];
        await b.connection.subscribe(CHANNEL);
        await b.connection.log?.append(TOPIC, "1", RULE, "key");
        await b.connection.log?.read(TOPIC, 0, page(10));
        const closed = b.connection.close();
        const { length } = b.received;
        await a.connection.send("a:all", "late");
        await closed;
        await b.connection.close();
        await a.until("a:all", 1);
        expect([b.received.length, b.downs]).toEqual([length, []]);
        await a.connection.close();
        // A socket of an earlier test may end meanwhile, and does not make up for a timer.
        await expectSoon(() => [...sortsOf(rig)].filter(([sort, count]) => count > (before.get(sort) ?? 0)), []);
        await expectSoon(async () => (await rig.leftovers?.()) ?? [], []);
      });
    });

    testPair("keeps topics with hostile names apart, and their logs", async (a, b) => {
      const channels = HOSTILE_NAMES.map((name): Channel => `t:${name}`);
      await Promise.all(channels.map((channel) => b.connection.subscribe(channel)));
      for (const channel of channels) await a.connection.send(channel, channel);
      for (const channel of channels) expect(await b.until(channel, 1)).toEqual([channel]);
      expect(b.received.length).toEqual(channels.length);
      const { log } = a.connection;
      if (log === undefined) return;
      for (const name of HOSTILE_NAMES) await log.append(name, name, RULE, undefined);
      const parts = await Promise.all(HOSTILE_NAMES.map((name) => b.connection.log!.read(name, 0, page(10))));
      expect(parts.map(({ entries }) => entries)).toEqual(HOSTILE_NAMES.map((name) => [[1, name]]));
      expect(new Set(parts.map(({ epoch }) => epoch)).size).toEqual(parts.length);
    });

    describe("logs", () => {
      testLogs("gives each entry the next offset, sends each once, and carries any text", async (a, b) => {
        await b.connection.subscribe(CHANNEL);
        const bodies = [...TEXTS, "a".repeat(100_000), ...Array.from({ length: 20 }, (_, i) => `{"i":${i}}`)];
        const places = await Promise.all(bodies.map((body, i) => [a, b][i % 2]!.append(body)));
        const { epoch } = places[0]!;
        expect(EPOCH.test(epoch)).toEqual(true);
        expect(new Set(places.map((place) => place.epoch))).toEqual(new Set([epoch]));
        const bodyAt = new Map(places.map(({ offset }, i) => [offset, bodies[i]!]));
        const frames = bodies.map((_, i) => logFrame(epoch, i + 1, bodyAt.get(i + 1)!));
        const got = await b.until(CHANNEL, bodies.length);
        expect([got.length, frames.filter((frame) => !got.includes(frame))]).toEqual([frames.length, []]);
        const { entries } = await b.read(100);
        expect(entries.map(([offset, body]) => logFrame(epoch, offset, body))).toEqual(frames);
        expect(a.of(CHANNEL)).toEqual([]);
      });

      testLogs("reads what is after an offset, the oldest first", async (a, b) => {
        expect(await b.read()).toEqual({ epoch: "", top: 0, entries: [] });
        for (const body of ["1", "2", "3", "4"]) await a.append(body, undefined, RULE);
        const { epoch } = await b.read(0);
        const part = (...offsets: number[]): object => ({ epoch, top: 4, entries: offsets.map((o) => [o, String(o)]) });
        expect(await b.read(0)).toEqual(part());
        expect(await b.read()).toEqual(part(1, 2, 3, 4));
        expect(await b.read(2, 1)).toEqual(part(2, 3));
        for (const [bytes, ...offsets] of [[0], [1, 2], [2, 2, 3], [3, 2, 3, 4]])
          expect(await b.read(10, 1, bytes)).toEqual(part(...offsets));
        for (const after of [4, 9]) expect(await b.read(10, after)).toEqual(part());
      });

      testLogs("begins a log without entries if it is asked to, and appends to it once for one key", async (a, b) => {
        await b.connection.subscribe(CHANNEL);
        const begin = ({ connection }: TestNode): Promise<LogPart> => connection.log!.read(TOPIC, 0, page(0), RULE);
        const [begun, again] = await Promise.all([a, b].map(begin));
        const { epoch } = begun!;
        expect(EPOCH.test(epoch)).toEqual(true);
        const empty = { epoch, top: 0, entries: [] };
        expect([begun, again, await a.read()]).toEqual([empty, empty, empty]);
        expect(await b.append("1", "key", RULE)).toEqual({ epoch, offset: 1 });
        expect(await a.append("2", undefined, RULE)).toEqual({ epoch, offset: 2 });
        expect(await a.append("again", "key", RULE)).toEqual({ epoch, offset: 1 });
        expect((await a.connection.log!.append("elsewhere", "1", RULE, "key")).offset).toEqual(1);
        const entries = ["1", "2"].map((body, i) => [i + 1, body]);
        expect(await b.connection.log!.read(TOPIC, 0, page(10), RULE)).toEqual({ epoch, top: 2, entries });
        expect(await b.until(CHANNEL, 2)).toEqual([logFrame(epoch, 1, "1"), logFrame(epoch, 2, "2")]);
      });

      test("knows a key only in the epoch of its log", async (rig, open) => {
        if (rig.removeLogs === undefined || rig.lacks?.includes("log") === true) return;
        const [a, b] = [await open(), await open()];
        const before = await a.append("1", "key", RULE);
        await rig.removeLogs();
        // It knows the end of the log that is gone.
        const after = await a.append("2", "key", RULE);
        expect([after.offset, after.epoch === before.epoch]).toEqual([1, false]);
        for (const node of [a, b]) expect(await node.append("3", "key", RULE)).toEqual(after);
        expect(await b.read()).toEqual({ epoch: after.epoch, top: 1, entries: [[1, "2"]] });
      });

      testLogs("keeps the last entries of the rule, and not many more", async (a) => {
        // They have 1,092 bytes.
        for (let i = 1; i <= 400; i++) await a.append(String(i), undefined, { ...RULE, bytes: 1_300 });
        const { top, entries } = await a.read(1000);
        const count = entries.length;
        const isKept = count >= RULE.length && count <= RULE.length + 200;
        expect([top, isKept, entries.at(-1), entries[0]![0]]).toEqual([400, true, [400, "400"], 401 - count]);
        // What the number has removed counts no longer.
        await a.append("401", undefined, { ...RULE, length: 1_000, bytes: 1_000 });
        expect((await a.read(1000)).entries.length).toEqual(count + 1);
      });

      testLogs(
        "keeps the last entries that have the bytes of the rule together, and the last one in any case",
        async (a, b) => {
          const steps: [bodies: string[], offsets: number[]][] = [
            [
              ["1", "é".repeat(250), "", "x".repeat(500)],
              [2, 3, 4],
            ],
            [
              ["5", "6"],
              [3, 4, 5, 6],
            ],
            [["x".repeat(1_001)], [7]],
            [["8"], [8]],
          ];
          for (const [bodies, offsets] of steps) {
            for (const body of bodies) await a.append(body, undefined, { ...RULE, bytes: 1_000 });
            await expectSoon(async () => (await b.read()).entries.map(([offset]) => offset), offsets);
          }
        },
      );

      testLogs("does not mistake the end of a topic for the beginning of a key", async (a) => {
        const pairs = [":", "\0", "\n", "1", "é"].flatMap((part): [of: string, key: string][] => [
          [`${TOPIC}${part}x`, "y"],
          [TOPIC, `x${part}y`],
          [`${TOPIC}${part}`, "xy"],
          [TOPIC, `${part}xy`],
        ]);
        const bodies = pairs.map((pair) => JSON.stringify(pair));
        for (const [i, [of, key]] of pairs.entries()) await a.connection.log!.append(of, bodies[i]!, RULE, key);
        const names = new Set(pairs.map(([of]) => of));
        const logs = await Promise.all(Array.from(names, (of) => a.connection.log!.read(of, 0, page(100))));
        const kept = logs.flatMap(({ entries }) => entries.map(([, body]) => body));
        expect(sorted(kept)).toEqual(sorted(bodies));
      });
    });

    test("connects servers: they notify, publish, list members, call and close across nodes", async (rig) => {
      const hasLog = rig.lacks?.includes("log") !== true;
      const servers = ["ann", "bob"].map(() => serverOf(rig.engine(), hasLog));
      try {
        const [a, b] = servers.map(({ server }) => server.topic(TOPIC));
        const [ann, bob] = [await clientOf(servers[0]!, "ann"), await clientOf(servers[1]!, "bob")];
        await answered(() => a!.join(ann.peer, { as: "ann" }));
        await answered(() => b!.join(bob.peer, { as: "bob" }));
        await expectSoon(async () => {
          const { peers, isComplete } = await servers[1]!.server.principal("ann").peers();
          return [peers.map(({ id }) => id), isComplete];
        }, [[ann.peer.id], true]);
        a!.notify("said", { n: 1 }, { except: ann.peer.id });
        b!.notify("said", { n: 2 });
        if (hasLog) {
          const since = await answered(() => a!.publish("said", { n: 3 }, { key: "3" }));
          await answered(() => b!.publish("said", { n: 4 }, { key: "4" }));
          const late = await clientOf(servers[1]!, "late");
          expect((await answered(() => b!.join(late.peer, { since }))).outcome).toEqual("complete");
          await expectSoon(() => late.got, [4]);
        }
        const sent = hasLog ? [2, 3, 4] : [2];
        await expectSoon(() => [sorted(ann.got), sorted(bob.got)], [sent, [1, ...sent]]);
        const events: unknown[] = [];
        a!.watch((event, { as }) => events.push([event, as]));
        await expectSoon(async () => sorted((await a!.members()).map(({ as }) => String(as))), ["ann", "bob"]);
        const handle = servers[1]!.server.peer(ann.peer.id);
        expect(await handle.request("add", [1, 2])).toEqual(3);
        const pending = handle.request("never").catch((error: unknown) => error);
        await expectSoon(() => ann.client.stats().running, 1);
        await handle.close(4100, "moved");
        const error = await pending;
        expect([error instanceof ConnectionLostError, (error as ConnectionLostError).outcome]).toEqual([
          true,
          "unknown",
        ]);
        await bob.client.close();
        await expectSoon(() => events.filter((event) => String(event) === "left,bob").length, 1);
        for (const { server } of servers) {
          const { foreign, reconnects } = server.stats().engine!;
          expect([foreign, reconnects]).toEqual([0, 0]);
        }
      } finally {
        await Promise.all(servers.map(({ server }) => server.close()));
      }
      await expectSoon(async () => (await rig.leftovers?.()) ?? [], []);
    });
  });
}

function sorted<T extends string | number>(list: readonly T[]): T[] {
  // oxlint-disable-next-line unicorn/no-array-sort -- a copy, and `toSorted` is younger than some runtimes.
  return [...list].sort((a, b) => (a < b ? -1 : 1));
}

/** Returns how many sockets and timers of each kind keep this process running. */
function sortsOf(rig: EngineRig): Map<string, number> {
  const sorts = new Map<string, number>();
  for (const sort of rig.handles?.() ?? [])
    if (/^(Timeout|TCP|TLS)/.test(sort)) sorts.set(sort, (sorts.get(sort) ?? 0) + 1);
  return sorts;
}

function serverOf(engine: Engine, hasLog: boolean): ReturnType<typeof testServer<any, any, { name: string }>> {
  return testServer<any, any, { name: string }>({
    engine,
    topics: () => ({ members: true, ...(hasLog && { log: RULE }) }),
    authenticate: ({ headers }) => ({ name: String(headers["x-name"]) }),
    principal: ({ name }) => name,
  });
}

/** Connects a client. Returns the peer of the server, the client, and the numbers that it got. */
async function clientOf(
  { server, connect }: ReturnType<typeof serverOf>,
  name: string,
): Promise<{ peer: AnyPeer; client: AnyPeer; got: number[] }> {
  const got: number[] = [];
  const coming = new Promise<AnyPeer>((resolve) => server.once("peer", (peer) => resolve(peer as AnyPeer)));
  const client = await connect(server.url, {
    headers: { "x-name": name },
    methods: {
      add: ([x, y]: number[]) => x! + y!,
      never: () => new Promise(() => {}),
      said: ({ n }: { n: number }) => void got.push(n),
    },
  });
  return { peer: await coming, client: client as AnyPeer, got };
}
