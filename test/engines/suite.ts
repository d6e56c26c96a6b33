/**
 * The behaviour of every engine. A rig makes engines of one broker. `describeEngine` runs the same tests over each, from a file of two
 * lines.
 */
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import {
  EngineError,
  type Channel,
  type Engine,
  type EngineConnection,
  type EngineFacts,
  type EngineHost,
  type RosterId,
} from "../../src/fleet/engine.js";
import { logFrame, rosterFrame } from "../../src/fleet/frames.js";
import { describeFleet } from "./fleet-suite.js";
import { watchHandles } from "./listening.js";
import { HOSTILE_NAMES, type EngineRig } from "./rig.js";

export { HOSTILE_NAMES, type EngineRig } from "./rig.js";

/** What one node has received and what was reported to it. */
export class RecordingNode {
  readonly name: string;
  readonly connection: EngineConnection;
  readonly received: [channel: Channel, frame: string][] = [];
  readonly downs: EngineError[] = [];
  ups = 0;
  readonly #waiting = new Set<() => void>();

  constructor(engine: Engine, name: string) {
    this.name = name;
    const host: EngineHost = {
      received: (channel, frame) => {
        this.received.push([channel, frame]);
        for (const check of this.#waiting) check();
      },
      up: () => this.ups++,
      down: (error) => this.downs.push(error),
      heard: () => {},
    };
    this.connection = engine.createConnection(name, host);
  }

  /** Returns the frames of one channel. */
  of(channel: Channel): string[] {
    return this.received.flatMap(([where, frame]) => (where === channel ? [frame] : []));
  }

  /** Resolves when `count` frames of a channel have been received. */
  async until(channel: Channel, count: number): Promise<string[]> {
    if (this.of(channel).length < count)
      await new Promise<void>((resolve) => {
        const check = (): void => {
          if (this.of(channel).length < count) return;
          this.#waiting.delete(check);
          resolve();
        };
        this.#waiting.add(check);
      });
    return this.of(channel);
  }
}

const RULE = { length: 10, ttlMs: 60_000 };

/** Returns ids of members of a node. */
function ids(one: RecordingNode, count: number): RosterId[] {
  return Array.from({ length: count }, (_, i): RosterId => `${one.name}/1.m${i}`);
}

/** Runs the suite of the engine `engineName` over the rigs that `make` returns. */
export function describeEngine(engineName: string, make: () => Promise<EngineRig>): void {
  describe(`the engine ${engineName}`, () => {
    let rig: EngineRig;
    let nodes: RecordingNode[];
    let topics = 0;

    const node = async (): Promise<RecordingNode & { facts: EngineFacts }> => {
      const one = new RecordingNode(rig.engine(), `node${nodes.length}-${process.pid}`);
      nodes.push(one);
      return Object.assign(one, { facts: await one.connection.open() });
    };
    /** A topic of this test. */
    const topic = (suffix = ""): string => `topic${++topics}${suffix}`;

    beforeEach(async () => {
      rig = await make();
      nodes = [];
    });
    afterEach(async () => {
      await Promise.all(nodes.map(({ connection }) => connection.close()));
      await rig.close();
    });

    describe("sends", () => {
      it("receives its inbox and the channel of all nodes when it is open", async () => {
        const [a, b] = [await node(), await node()];
        await a.connection.send(`n:${b.name}`, "to b");
        await a.connection.send("a:all", "to all");
        expect(await b.until("a:all", 1)).toEqual(["to all"]);
        expect(await b.until(`n:${b.name}`, 1)).toEqual(["to b"]);
        expect(await a.until("a:all", 1)).toEqual(["to all"]);
        expect(a.of(`n:${b.name}`)).toEqual([]);
      });

      it("receives every message that is sent after `subscribe` resolved, its own too", async () => {
        const [a, b] = [await node(), await node()];
        const channel: Channel = `t:${topic()}`;
        await Promise.all([a.connection.subscribe(channel), b.connection.subscribe(channel)]);
        await a.connection.send(channel, "1");
        await b.connection.send(channel, "2");
        expect(await a.until(channel, 2)).toEqual(["1", "2"]);
        expect(await b.until(channel, 2)).toEqual(["1", "2"]);
      });

      it("receives nothing of a channel that is not subscribed, or no longer", async () => {
        const [a, b] = [await node(), await node()];
        const [left, never]: Channel[] = [`t:${topic()}`, `t:${topic()}`];
        await b.connection.subscribe(left!);
        b.connection.unsubscribe(left!);
        // A later subscription takes effect after the end of the first.
        const last: Channel = `t:${topic()}`;
        await b.connection.subscribe(last);
        for (const channel of [left!, never!, last]) await a.connection.send(channel, "message");
        await b.until(last, 1);
        expect(b.received).toEqual([[last, "message"]]);
      });

      it("restores a subscription that was ended and begun again in one tick", async () => {
        const [a, b] = [await node(), await node()];
        const channel: Channel = `t:${topic()}`;
        await b.connection.subscribe(channel);
        b.connection.unsubscribe(channel);
        await b.connection.subscribe(channel);
        await a.connection.send(channel, "once");
        await a.connection.send(channel, "last");
        expect(await b.until(channel, 2)).toEqual(["once", "last"]);
      });

      it("keeps the order of one node's messages to a channel", async () => {
        const [a, b] = [await node(), await node()];
        const channel: Channel = `t:${topic()}`;
        await b.connection.subscribe(channel);
        const frames = Array.from({ length: 500 }, (_, i) => String(i));
        await Promise.all(frames.map((frame) => a.connection.send(channel, frame)));
        expect(await b.until(channel, 500)).toEqual(frames);
      });

      it("returns how many nodes were subscribed, if it says that it counts", async () => {
        const [a, b] = [await node(), await node()];
        const channel: Channel = `t:${topic()}`;
        const expected = (count: number): number | undefined => (a.facts.counts ? count : undefined);
        expect(await a.connection.send(channel, "x")).toBe(expected(0));
        await b.connection.subscribe(channel);
        expect(await a.connection.send(channel, "x")).toBe(expected(1));
        await a.connection.subscribe(channel);
        expect(await a.connection.send(channel, "x")).toBe(expected(2));
        // An engine that does not count may know nevertheless that an inbox has no node.
        expect([expected(0), 0]).toContain(await a.connection.send(`n:nobody-${process.pid}`, "x"));
      });

      it("carries any text of a frame, also a long one", async () => {
        const [a, b] = [await node(), await node()];
        const channel: Channel = `t:${topic()}`;
        await b.connection.subscribe(channel);
        const frames = ["", "\0", "\r\n", "é😀", "a".repeat(Math.min(a.facts.maxFrameBytes, 900_000))];
        for (const frame of frames) await a.connection.send(channel, frame);
        expect(await b.until(channel, frames.length)).toEqual(frames);
      });

      it("keeps topics with hostile names apart", async () => {
        const [a, b] = [await node(), await node()];
        const channels = HOSTILE_NAMES.map((hostile): Channel => `t:${hostile}`);
        await Promise.all(channels.map((channel) => b.connection.subscribe(channel)));
        for (const channel of channels) await a.connection.send(channel, channel);
        for (const channel of channels) expect(await b.until(channel, 1)).toEqual([channel]);
        expect(b.received).toHaveLength(channels.length);
      });

      it("rejects with `not-sent` before it is open and after it is closed", async () => {
        const a = await node();
        const early = new RecordingNode(rig.engine(), "early");
        await a.connection.close();
        for (const { connection } of [a, early]) {
          const operations = [
            connection.send("a:all", "x"),
            connection.subscribe("t:x"),
            connection.log?.append("x", "{}", RULE, undefined),
            connection.roster?.list("x"),
          ];
          for (const operation of operations.filter((one) => one !== undefined)) {
            const error: unknown = await operation.then(
              () => undefined,
              (reason: unknown) => reason,
            );
            expect(error).toBeInstanceOf(EngineError);
            expect((error as EngineError).outcome).toBe("not-sent");
          }
        }
        await early.connection.close();
      });

      it("leaves nothing after `close`, and calls no function of its host any more", async () => {
        const [a, b] = [await node(), await node()];
        const name = topic();
        await b.connection.subscribe(`t:${name}`);
        await b.connection.roster?.enter(`${b.name}/1`, 10_000);
        await b.connection.roster?.put(name, `${b.name}/1.x`, "{}");
        const closed = b.connection.close();
        const { length } = b.received;
        await a.connection.send("a:all", "late");
        await closed;
        await b.connection.close();
        await a.until("a:all", 1);
        expect(b.received).toHaveLength(length);
        expect(b.downs).toEqual([]);
        await a.connection.close();
        expect(await rig.leftovers()).toEqual([]);
      });
    });

    it("leaves no socket and no timer after `close`", async () => {
      const untilReleased = watchHandles();
      const [a, b] = [await node(), await node()];
      const name = topic();
      await b.connection.subscribe(`t:${name}`);
      await a.connection.send(`t:${name}`, "x");
      await b.until(`t:${name}`, 1);
      await b.connection.log?.append(name, "1", RULE, "key");
      await b.connection.log?.read(name, 0, 10);
      await b.connection.roster?.enter(`${b.name}/1`, 10_000);
      await b.connection.roster?.put(name, `${b.name}/1.x`, "{}");
      await b.connection.roster?.beat(`${b.name}/1`, 10_000);
      await Promise.all([a, b].map(({ connection }) => connection.close()));
      await untilReleased();
    });

    /** Opens nodes, and runs a test of what the broker may lack. */
    const itWith = (
      capability: "log" | "roster",
      title: string,
      run: (a: RecordingNode, b: RecordingNode, name: string) => Promise<void>,
    ): void => {
      it(title, async () => {
        const [a, b] = [await node(), await node()];
        if (rig.lacks?.includes(capability) === true) expect(a.connection[capability]).toBeUndefined();
        else await run(a, b, topic());
      });
    };

    describe("logs", () => {
      itWith("log", "gives each entry the next offset, and sends it in that order", async (a, b, name) => {
        await b.connection.subscribe(`t:${name}`);
        const bodies = Array.from({ length: 20 }, (_, i) => `{"i":${i}}`);
        const places = await Promise.all(
          bodies.map((body, i) => [a, b][i % 2]!.connection.log!.append(name, body, RULE, undefined)),
        );
        const { epoch } = places[0]!;
        expect(epoch).toMatch(/^[A-Za-z0-9_-]{1,64}$/);
        expect(new Set(places.map((place) => place.epoch))).toEqual(new Set([epoch]));
        const bodyAt = new Map(places.map(({ offset }, i) => [offset, bodies[i]!]));
        const offsets = bodies.map((_, i) => i + 1);
        const frames = offsets.map((offset) => logFrame(epoch, offset, bodyAt.get(offset)!));
        expect(await b.until(`t:${name}`, bodies.length)).toEqual(frames);
        expect(a.of(`t:${name}`)).toEqual([]);
      });

      itWith("log", "reads what is after an offset, the oldest first", async (a, b, name) => {
        expect(await b.connection.log!.read(name, 0, 10)).toEqual({ epoch: "", top: 0, entries: [] });
        for (const body of ["1", "2", "3", "4"]) await a.connection.log!.append(name, body, RULE, undefined);
        const { epoch } = await b.connection.log!.read(name, 0, 0);
        const part = (...offsets: number[]): object => ({ epoch, top: 4, entries: offsets.map((o) => [o, String(o)]) });
        expect(await b.connection.log!.read(name, 0, 0)).toEqual(part());
        expect(await b.connection.log!.read(name, 0, 10)).toEqual(part(1, 2, 3, 4));
        expect(await b.connection.log!.read(name, 1, 2)).toEqual(part(2, 3));
        expect(await b.connection.log!.read(name, 4, 10)).toEqual(part());
        expect(await b.connection.log!.read(name, 9, 10)).toEqual(part());
      });

      itWith("log", "begins a log without entries if it is asked to, which `append` continues", async (a, b, name) => {
        await b.connection.subscribe(`t:${name}`);
        const [begun, again] = await Promise.all(
          [a, b].map(({ connection }) => connection.log!.read(name, 0, 0, RULE)),
        );
        const { epoch } = begun!;
        expect(epoch).toMatch(/^[A-Za-z0-9_-]{1,64}$/);
        const empty = { epoch, top: 0, entries: [] };
        expect([begun, again, await a.connection.log!.read(name, 0, 10)]).toEqual([empty, empty, empty]);
        expect(await b.connection.log!.append(name, "1", RULE, "key")).toEqual({ epoch, offset: 1 });
        expect(await a.connection.log!.append(name, "2", RULE, undefined)).toEqual({ epoch, offset: 2 });
        expect(await a.connection.log!.append(name, "again", RULE, "key")).toEqual({ epoch, offset: 1 });
        const entries = [
          [1, "1"],
          [2, "2"],
        ];
        expect(await b.connection.log!.read(name, 0, 10, RULE)).toEqual({ epoch, top: 2, entries });
        expect(await b.until(`t:${name}`, 2)).toEqual([logFrame(epoch, 1, "1"), logFrame(epoch, 2, "2")]);
      });

      itWith("log", "keeps the last entries of the rule, and not many more", async (a, _b, name) => {
        for (let i = 1; i <= 400; i++) await a.connection.log!.append(name, String(i), RULE, undefined);
        const { top, entries } = await a.connection.log!.read(name, 0, 1000);
        expect(top).toBe(400);
        expect(entries.length).toBeGreaterThanOrEqual(RULE.length);
        expect(entries.length).toBeLessThanOrEqual(RULE.length + 200);
        expect(entries.at(-1)).toEqual([400, "400"]);
        expect(entries[0]![0]).toBe(401 - entries.length);
      });

      itWith("log", "appends once for one key", async (a, b, name) => {
        await b.connection.subscribe(`t:${name}`);
        const first = await a.connection.log!.append(name, "1", RULE, "key");
        expect(await b.connection.log!.append(name, "again", RULE, "key")).toEqual(first);
        const other = await a.connection.log!.append(name, "2", RULE, "other");
        expect(other).toEqual({ epoch: first.epoch, offset: first.offset + 1 });
        const elsewhere = await a.connection.log!.append(`${name}-b`, "1", RULE, "key");
        expect(elsewhere.offset).toBe(1);
        expect(await b.until(`t:${name}`, 2)).toEqual([logFrame(first.epoch, 1, "1"), logFrame(first.epoch, 2, "2")]);
      });

      itWith("log", "does not mistake the end of a topic for the beginning of a key", async (a, _b, name) => {
        const parts = [":", "\0", "\n", "1", "é"];
        const pairs = parts.flatMap((part) => [
          [`${name}${part}x`, "y"] as const,
          [name, `x${part}y`] as const,
          [`${name}${part}`, "xy"] as const,
          [name, `${part}xy`] as const,
        ]);
        const bodies = pairs.map((pair) => JSON.stringify(pair));
        for (const [i, [of, key]] of pairs.entries()) await a.connection.log!.append(of, bodies[i]!, RULE, key);
        const names = new Set(pairs.map(([of]) => of));
        const logs = await Promise.all(Array.from(names, (of) => a.connection.log!.read(of, 0, 100)));
        const kept = logs.flatMap(({ entries }) => entries.map(([, body]) => body));
        expect(kept).toHaveLength(bodies.length);
        expect(new Set(kept)).toEqual(new Set(bodies));
      });

      itWith("log", "keeps the logs of hostile names apart", async (a, b) => {
        for (const hostile of HOSTILE_NAMES) await a.connection.log!.append(hostile, hostile, RULE, undefined);
        const parts = await Promise.all(HOSTILE_NAMES.map((hostile) => b.connection.log!.read(hostile, 0, 10)));
        expect(parts.map(({ entries }) => entries)).toEqual(HOSTILE_NAMES.map((hostile) => [[1, hostile]]));
        expect(new Set(parts.map(({ epoch }) => epoch)).size).toBe(HOSTILE_NAMES.length);
      });

      itWith("log", "carries any text as a body", async (a, b, name) => {
        await b.connection.subscribe(`t:${name}`);
        const bodies = ["", "\0", "\r\n", "é😀", "a".repeat(100_000)];
        for (const body of bodies) await a.connection.log!.append(name, body, RULE, undefined);
        const { epoch, entries } = await b.connection.log!.read(name, 0, 10);
        expect(entries.map(([, body]) => body)).toEqual(bodies);
        expect(await b.until(`t:${name}`, 5)).toEqual(bodies.map((body, i) => logFrame(epoch, i + 1, body)));
      });
    });

    describe("members", () => {
      itWith("roster", "sends each change with its version, and lists the result", async (a, b, name) => {
        await b.connection.subscribe(`t:${name}`);
        const [first, second] = ids(a, 2) as [RosterId, RosterId];
        expect(await b.connection.roster!.list(name)).toEqual({ version: 0, members: [] });
        await a.connection.roster!.put(name, first, '{"n":1}');
        await a.connection.roster!.put(name, second, '{"n":2}');
        await a.connection.roster!.put(name, first, '{"n":3}');
        await a.connection.roster!.put(name, second, undefined);
        const { version, members } = await b.connection.roster!.list(name);
        expect(members).toEqual([[first, '{"n":3}']]);
        expect(await b.until(`t:${name}`, 4)).toEqual([
          rosterFrame(version - 3, first, '{"n":1}'),
          rosterFrame(version - 2, second, '{"n":2}'),
          rosterFrame(version - 1, first, '{"n":3}'),
          rosterFrame(version, second, undefined),
        ]);
      });

      itWith("roster", "changes nothing for an id that is not there", async (a, b, name) => {
        await b.connection.subscribe(`t:${name}`);
        const [first, second] = ids(a, 2) as [RosterId, RosterId];
        await a.connection.roster!.put(name, second, undefined);
        await a.connection.roster!.put(name, first, "1");
        const { version } = await b.connection.roster!.list(name);
        await a.connection.roster!.put(name, second, undefined);
        expect(await b.connection.roster!.list(name)).toEqual({ version, members: [[first, "1"]] });
        expect(await b.until(`t:${name}`, 1)).toEqual([rosterFrame(version, first, "1")]);
      });

      itWith("roster", "gives a roster that became empty a greater version", async (a, b, name) => {
        const [id] = ids(a, 1) as [RosterId];
        const versions: number[] = [];
        for (let i = 0; i < 3; i++) {
          await a.connection.roster!.put(name, id, "1");
          versions.push((await b.connection.roster!.list(name)).version);
          await a.connection.roster!.put(name, id, undefined);
          expect((await b.connection.roster!.list(name)).members).toEqual([]);
        }
        expect(versions[1]).toBeGreaterThan(versions[0]! + 1);
        expect(versions[2]).toBeGreaterThan(versions[1]! + 1);
        expect(versions.every(Number.isSafeInteger)).toBe(true);
      });

      itWith("roster", "keeps the members of hostile names apart", async (a, b) => {
        const [id] = ids(a, 1) as [RosterId];
        for (const hostile of HOSTILE_NAMES) await a.connection.roster!.put(hostile, id, JSON.stringify(hostile));
        for (const hostile of HOSTILE_NAMES)
          expect((await b.connection.roster!.list(hostile)).members).toEqual([[id, JSON.stringify(hostile)]]);
      });

      itWith(
        "roster",
        "lists the incarnations that live, and removes the members of a node that closes",
        async (a, b, name) => {
          await a.connection.roster!.enter(`${a.name}/1`, 10_000);
          await b.connection.roster!.enter(`${b.name}/1`, 10_000);
          await b.connection.roster!.enter(`${b.name}/2`, 10_000);
          const both = await a.connection.roster!.beat(`${a.name}/1`, 10_000);
          expect(both.isMine).toBe(true);
          expect(new Set(both.live)).toEqual(new Set([`${a.name}/1`, `${b.name}/1`, `${b.name}/2`]));
          expect(await a.connection.roster!.beat(`${a.name}/2`, 10_000)).toEqual({ isMine: false, live: [] });
          await a.connection.subscribe(`t:${name}`);
          const [id] = ids(b, 1) as [RosterId];
          await b.connection.roster!.put(name, id, "1");
          await b.connection.close();
          const frames = await a.until(`t:${name}`, 2);
          expect(frames[1]).toMatch(/^1l\t/);
          expect((await a.connection.roster!.list(name)).members).toEqual([]);
          expect((await a.connection.roster!.beat(`${a.name}/1`, 10_000)).live).toEqual([`${a.name}/1`]);
        },
      );
    });

    describeFleet(make);
  });
}
