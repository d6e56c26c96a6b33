/**
 * The behaviour of every engine. A rig makes engines of one broker. `describeEngine` runs the same tests over each, from a file of two
 * lines.
 */
import { beforeEach, describe, expect, it, onTestFinished } from "vitest";
import type { Channel } from "../../src/fleet/engine.js";
import { closeAll, makeNode, type Client, type Node } from "../fleet/nodes.js";
import { rejection } from "../support/turns.js";
import {
  HOSTILE_NAMES,
  logFrame,
  page,
  outcomeOf,
  TestNode,
  TOPIC,
  untilNothingLeft,
  watchHandles,
  type EngineRig,
} from "./kit.js";

const RULE = { length: 10, bytes: 2 ** 20, ttlMs: 60_000 };
const CHANNEL = `t:${TOPIC}` as const;
/** Frames and bodies that a broker may treat as special. */
const TEXTS = ["", "\0", "\r\n", "é😀"];
const EPOCH = /^[A-Za-z0-9_-]{1,64}$/;

/** Runs the suite of the engine `engineName` over the rigs that `make` returns. */
export function describeEngine(engineName: string, make: () => Promise<EngineRig>): void {
  describe(`the engine ${engineName}`, () => {
    let rig: EngineRig;

    const open = (): Promise<TestNode> => TestNode.open(rig.engine());
    const openPair = async (): Promise<[a: TestNode, b: TestNode]> => [await open(), await open()];

    beforeEach(async () => {
      rig = await make();
      // After the nodes of the test, which are closed before.
      onTestFinished(() => rig.close());
    });

    describe("sends", () => {
      it("receives its inbox, the channel of all nodes, and what is sent after `subscribe` resolved, its own too", async () => {
        const [a, b] = await openPair();
        await Promise.all([a, b].map(({ connection }) => connection.subscribe(CHANNEL)));
        await a.connection.send(`n:${b.name}`, "to b");
        await a.connection.send("a:all", "to all");
        await a.connection.send(CHANNEL, "1");
        await b.connection.send(CHANNEL, "2");
        for (const node of [a, b]) {
          expect(await node.until("a:all", 1)).toEqual(["to all"]);
          expect(new Set(await node.until(CHANNEL, 2))).toEqual(new Set(["1", "2"]));
        }
        expect(await b.until(`n:${b.name}`, 1)).toEqual(["to b"]);
        expect(a.received).toHaveLength(3);
      });

      it("receives nothing of a channel that is not subscribed, or no longer", async () => {
        const [a, b] = await openPair();
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

      it("carries any text of a frame, in the order in which one node sends to a channel", async () => {
        const [a, b] = await openPair();
        await b.connection.subscribe(CHANNEL);
        const numbers = Array.from({ length: 500 }, (_, i) => String(i));
        const frames = [...numbers, ...TEXTS, "a".repeat(Math.min(a.facts!.maxFrameBytes, 900_000)), "last"];
        await Promise.all(frames.map((frame) => a.connection.send(CHANNEL, frame)));
        expect(await b.until(CHANNEL, frames.length)).toEqual(frames);
      });

      it("returns how many nodes were subscribed, if it says that it counts", async () => {
        const [a, b] = await openPair();
        const expected = (count: number): number | undefined => (a.facts!.counts ? count : undefined);
        expect(await a.connection.send(CHANNEL, "x")).toBe(expected(0));
        for (const [i, node] of [b, a].entries()) {
          await node.connection.subscribe(CHANNEL);
          expect(await a.connection.send(CHANNEL, "x")).toBe(expected(i + 1));
        }
        // An engine that does not count may know nevertheless that an inbox has no node.
        expect([expected(0), 0]).toContain(await a.connection.send("n:none", "x"));
      });

      it("rejects with `not-sent` before it is open and after it is closed", async () => {
        const [a, early] = [await open(), new TestNode(rig.engine())];
        await a.connection.close();
        for (const { connection } of [a, early]) {
          const operations = [
            connection.send("a:all", "x"),
            connection.subscribe("t:x"),
            connection.log?.append("x", "{}", RULE, undefined),
          ];
          for (const operation of operations)
            if (operation !== undefined) expect(await outcomeOf(operation)).toBe("not-sent");
        }
        await early.connection.close();
      });

      it("leaves nothing after `close`, no socket and no timer, and calls no function of its host any more", async () => {
        const untilReleased = watchHandles();
        const [a, b] = await openPair();
        await b.connection.subscribe(CHANNEL);
        await b.connection.log?.append(TOPIC, "1", RULE, "key");
        await b.connection.log?.read(TOPIC, 0, page(10));
        const closed = b.connection.close();
        const { length } = b.received;
        await a.connection.send("a:all", "late");
        await closed;
        await b.connection.close();
        await a.until("a:all", 1);
        expect(b.received).toHaveLength(length);
        expect(b.downs).toEqual([]);
        await a.connection.close();
        await untilReleased();
        await untilNothingLeft(rig);
      });
    });

    it("keeps topics with hostile names apart, and their logs", async () => {
      const [a, b] = await openPair();
      const channels = HOSTILE_NAMES.map((name): Channel => `t:${name}`);
      await Promise.all(channels.map((channel) => b.connection.subscribe(channel)));
      for (const channel of channels) await a.connection.send(channel, channel);
      for (const channel of channels) expect(await b.until(channel, 1)).toEqual([channel]);
      expect(b.received).toHaveLength(channels.length);
      const { log } = a.connection;
      const epochs = new Set<string>();
      for (const name of HOSTILE_NAMES) {
        await log?.append(name, name, RULE, undefined);
      }
      for (const name of HOSTILE_NAMES) {
        const part = await b.connection.log?.read(name, 0, page(10));
        if (part !== undefined) expect(part.entries).toEqual([[1, name]]);
        if (part !== undefined) epochs.add(part.epoch);
      }
      expect(epochs.size).toBe(log === undefined ? 0 : HOSTILE_NAMES.length);
    });

    /** Opens nodes, and runs a test of what the broker may lack. */
    const itLogs = (title: string, run: (a: TestNode, b: TestNode) => Promise<void>): void => {
      it(title, async () => {
        const [a, b] = await openPair();
        if (rig.lacks?.includes("log") === true) expect(a.connection.log).toBeUndefined();
        else await run(a, b);
      });
    };

    describe("logs", () => {
      itLogs("gives each entry the next offset, sends it in that order, and carries any text", async (a, b) => {
        await b.connection.subscribe(CHANNEL);
        const bodies = [...TEXTS, "a".repeat(100_000), ...Array.from({ length: 20 }, (_, i) => `{"i":${i}}`)];
        const places = await Promise.all(bodies.map((body, i) => [a, b][i % 2]!.append(body)));
        const { epoch } = places[0]!;
        expect(epoch).toMatch(EPOCH);
        expect(new Set(places.map((place) => place.epoch))).toEqual(new Set([epoch]));
        const bodyAt = new Map(places.map(({ offset }, i) => [offset, bodies[i]!]));
        const frames = bodies.map((_, i) => logFrame(epoch, i + 1, bodyAt.get(i + 1)!));
        expect(await b.until(CHANNEL, bodies.length)).toEqual(frames);
        const { entries } = await b.read(100);
        expect(entries.map(([offset, body]) => logFrame(epoch, offset, body))).toEqual(frames);
        expect(a.of(CHANNEL)).toEqual([]);
      });

      itLogs("reads what is after an offset, the oldest first", async (a, b) => {
        expect(await b.read()).toEqual({ epoch: "", top: 0, entries: [] });
        for (const body of ["1", "2", "3", "4"]) await a.append(body, undefined, RULE);
        const { epoch } = await b.read(0);
        const part = (...offsets: number[]): object => ({ epoch, top: 4, entries: offsets.map((o) => [o, String(o)]) });
        expect(await b.read(0)).toEqual(part());
        expect(await b.read()).toEqual(part(1, 2, 3, 4));
        expect(await b.connection.log!.read(TOPIC, 1, page(2))).toEqual(part(2, 3));
        for (const [bytes, ...offsets] of [[0], [1, 2], [2, 2, 3], [3, 2, 3, 4]])
          expect(await b.connection.log!.read(TOPIC, 1, page(10, bytes))).toEqual(part(...offsets));
        expect(await b.connection.log!.read(TOPIC, 4, page(10))).toEqual(part());
        expect(await b.connection.log!.read(TOPIC, 9, page(10))).toEqual(part());
      });

      itLogs("begins a log without entries if it is asked to, and appends to it once for one key", async (a, b) => {
        await b.connection.subscribe(CHANNEL);
        const [begun, again] = await Promise.all(
          [a, b].map(({ connection }) => connection.log!.read(TOPIC, 0, page(0), RULE)),
        );
        const { epoch } = begun!;
        expect(epoch).toMatch(EPOCH);
        const empty = { epoch, top: 0, entries: [] };
        expect([begun, again, await a.read()]).toEqual([empty, empty, empty]);
        expect(await b.append("1", "key", RULE)).toEqual({ epoch, offset: 1 });
        expect(await a.append("2", undefined, RULE)).toEqual({ epoch, offset: 2 });
        expect(await a.append("again", "key", RULE)).toEqual({ epoch, offset: 1 });
        expect((await a.connection.log!.append("elsewhere", "1", RULE, "key")).offset).toBe(1);
        const entries = ["1", "2"].map((body, i) => [i + 1, body]);
        expect(await b.connection.log!.read(TOPIC, 0, page(10), RULE)).toEqual({ epoch, top: 2, entries });
        expect(await b.until(CHANNEL, 2)).toEqual([logFrame(epoch, 1, "1"), logFrame(epoch, 2, "2")]);
      });

      itLogs("keeps the last entries of the rule, and not many more", async (a) => {
        // They have 1,092 bytes.
        for (let i = 1; i <= 400; i++) await a.append(String(i), undefined, { ...RULE, bytes: 1_300 });
        const { top, entries } = await a.read(1000);
        expect(top).toBe(400);
        expect(entries.length).toBeGreaterThanOrEqual(RULE.length);
        expect(entries.length).toBeLessThanOrEqual(RULE.length + 200);
        expect(entries.at(-1)).toEqual([400, "400"]);
        expect(entries[0]![0]).toBe(401 - entries.length);
        // What the number has removed counts no longer.
        await a.append("401", undefined, { ...RULE, length: 1_000, bytes: 1_000 });
        expect((await a.read(1000)).entries).toHaveLength(entries.length + 1);
      });

      itLogs(
        "keeps the last entries that have the bytes of the rule together, and the last one in any case",
        async (a, b) => {
          for (const [bodies, offsets] of [
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
          ] as const) {
            for (const body of bodies) await a.append(body, undefined, { ...RULE, bytes: 1_000 });
            await expect.poll(async () => (await b.read()).entries.map(([offset]) => offset)).toEqual(offsets);
          }
        },
      );

      itLogs("does not mistake the end of a topic for the beginning of a key", async (a) => {
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
        expect(kept).toHaveLength(bodies.length);
        expect(new Set(kept)).toEqual(new Set(bodies));
      });
    });

    it("connects servers: they notify, publish, list members, call and close across nodes", async () => {
      const hasLog = rig.lacks === undefined;
      const topics = () => ({ members: true, ...(hasLog && { log: RULE }) });
      const nodes: Node[] = [];
      const clients: Client[] = [];
      onTestFinished(async () => {
        await closeAll(nodes);
        await untilNothingLeft(rig);
      });
      for (const name of ["ann", "bob"]) {
        const options = { engine: rig.engine(), topics, principal: (auth: { name: string }) => auth.name };
        const node = makeNode(options, {
          add: ([x, y]: number[]) => x! + y!,
          never: () => new Promise(() => {}),
        });
        nodes.push(node);
        const client = await node.client(name);
        clients.push(client);
        await node.server.topic(TOPIC).join(client.peer, { as: name });
      }
      const [[a, b], [ann, bob]] = [nodes as [Node, Node], clients as [Client, Client]];
      const asked = await b.server.principal("ann").peers();
      expect([asked.peers.map(({ id }) => id), asked.unheard]).toEqual([[ann.peer.id], []]);
      const [topic, other] = [a, b].map(({ server }) => server.topic(TOPIC));
      topic!.notify("said", { n: 1 }, { except: ann.peer.id });
      other!.notify("said", { n: 2 });
      if (hasLog) {
        const since = await topic!.publish("said", { n: 3 });
        await other!.publish("said", { n: 4 });
        const { peer, until } = await b.client();
        expect((await other!.join(peer, { since })).outcome).toBe("complete");
        expect(await until(1)).toMatchObject([["said", { n: 4 }]]);
      }
      const sent = hasLog ? [2, 3, 4] : [2];
      for (const [client, numbers] of [[ann, sent] as const, [bob, [1, ...sent]] as const]) {
        const got = await client.until(numbers.length);
        expect(new Set(got.map(([, { n }]) => n as number))).toEqual(new Set(numbers));
      }
      const events: unknown[] = [];
      topic!.watch((event, { as }) => events.push([event, as]));
      const names = async (): Promise<unknown> => new Set((await topic!.members()).map(({ as }) => as));
      await expect.poll(names).toEqual(new Set(["ann", "bob"]));
      const handle = b.server.peer(ann.peer.id);
      expect(await handle.request("add", [1, 2])).toBe(3);
      const pending = rejection(handle.request("never"));
      await expect.poll(() => ann.client.stats().running).toBe(1);
      await handle.close(4001, "moved");
      expect(await pending).toMatchObject({ code: "CONNECTION_LOST", outcome: "unknown" });
      await bob.client.close();
      await expect.poll(() => events).toContainEqual(["left", "bob"]);
      for (const { server } of nodes)
        expect(server.stats().engine).toMatchObject({ dropped: 0, foreign: 0, gaps: 0, reconnects: 0 });
    });
  });
}
