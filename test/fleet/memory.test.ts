/** The engine in memory. What it keeps after all nodes are closed is in the tests of nodes, whose engine asks it. */
import { once } from "node:events";
import { Worker } from "node:worker_threads";
import { describe, expect, it } from "vitest";
import { memory, type EngineLog, type Position } from "../../src/node.js";
import { describeEngine } from "../../src/testing/engine.js";
import { virtualClock } from "../../src/testing/index.js";
import { LOG, page } from "../engines/kit.js";

describeEngine(
  "memory",
  async () => {
    const engine = memory();
    const removeLogs = async (): Promise<void> => {
      const log = await openLog(engine);
      for (let i = 0; i < 100_000; i++) await log.append(String(i), "", LOG, undefined);
    };
    return { engine: () => engine, removeLogs };
  },
  { describe, it, expect },
);

async function openLog(engine = memory()): Promise<EngineLog> {
  const connection = engine.createConnection("node", { received() {}, up() {}, down() {}, resubscribed() {} });
  await connection.open();
  return connection.log!;
}

it("memory() keeps the entries of a log for `ttlMs`, its position for a day more, and that of a key for 2 minutes", async () => {
  using clock = virtualClock();
  const engine = memory();
  const log = await openLog(engine);
  const append = (topic: string, body: string, key?: string): ReturnType<typeof log.append> =>
    log.append(topic, body, { length: 10, bytes: 2 ** 20, ttlMs: 1_000 }, key);
  const keyed = await append("c", "1", "key");
  await clock.pass(119_999);
  expect(await append("c", "2", "key")).toEqual(keyed);
  await clock.pass(1);
  expect(await append("c", "2", "key")).toEqual({ ...keyed, offset: 2 });
  const { epoch } = await append("a", "1");
  await append("a", "2");
  await clock.pass(1_001);
  expect(await log.read("a", 0, page(10))).toEqual({ epoch, top: 2, entries: [] });
  // Another publication forgets the entries.
  await append("b", "1");
  expect(await log.read("a", 0, page(10))).toEqual({ epoch, top: 2, entries: [] });
  expect(await append("a", "3")).toEqual({ epoch, offset: 3 });
  expect(await log.read("a", 0, page(10))).toEqual({ epoch, top: 3, entries: [[3, "3"]] });
  await clock.pass(86_400_000 + 1_001);
  expect(await log.read("a", 0, page(10))).toEqual({ epoch: "", top: 0, entries: [] });
  expect((await append("a", "4")).epoch).not.toBe(epoch);
  await append("b", "2");
});

it("memory() keeps 100,000 logs without an entry: the one that was read first is forgotten, but none that has one", async () => {
  const log = await openLog();
  const rule = { length: 10, bytes: 100, ttlMs: 60_000 };
  const epoch = async (name: string, begin?: typeof rule): Promise<string> =>
    (await log.read(name, 0, page(1), begin)).epoch;
  const begun = [await epoch("a", rule), await epoch("0", rule), await epoch("1", rule)];
  await log.append("a", "1", rule, undefined);
  for (let i = 2; i <= 100_000; i++) await epoch(String(i), rule);
  expect([await epoch("a"), await epoch("0"), await epoch("1")]).toEqual([begun[0], "", begun[2]]);
});

it("memory() keeps 100,000 positions and as many keys: a log whose position is forgotten begins anew, without the entries that it had", async () => {
  const log = await openLog();
  const append = (topic: string, key?: string): Promise<Position> =>
    log.append(topic, "1", { length: 10, bytes: 100, ttlMs: 60_000 }, key);
  const [first, second, third] = [await append("a"), await append("b", "key"), await append("b", "other")];
  for (let i = 2; i < 100_000; i++) await append(String(i), "key");
  expect([await append("a"), await append("b", "key"), await append("b")]).toEqual([
    { ...first, offset: 2 },
    second,
    { ...third, offset: 3 },
  ]);
  // One position and one key too many.
  await append("c", "key");
  expect([await append("b", "other"), await append("b", "key")]).toEqual([third, { ...third, offset: 4 }]);
  expect(await log.read("2", 0, page(10))).toEqual({ epoch: "", top: 0, entries: [] });
  expect(await append("2")).toMatchObject({ offset: 1 });
  expect(await log.read("2", 0, page(10))).toMatchObject({ top: 1, entries: [[1, "1"]] });
});

it("memory() keeps 128 MiB of all logs together: the entries of the one that was not published to for longest are forgotten", async () => {
  const log = await openLog();
  const rule = { length: 10, bytes: 2 ** 26, ttlMs: 60_000 };
  const text = "x".repeat(2 ** 26);
  const { epoch } = await log.append("a", text, rule, undefined);
  await log.append("b", text, rule, undefined);
  const kept = (topic: string): Promise<number> => log.read(topic, 0, page(10)).then(({ entries }) => entries.length);
  expect([await kept("a"), await kept("b")]).toEqual([1, 1]);
  await log.append("c", "1", rule, undefined);
  expect([await kept("a"), await kept("b"), await kept("c")]).toEqual([0, 1, 1]);
  expect(await log.append("a", "2", rule, undefined)).toEqual({ epoch, offset: 2 });
});

/** The package as it is built, in a thread whose heap is bounded. */
const PUBLISHING = `
import("reciproc/node").then(async ({ serve }) => {
  const server = await serve({ port: 0, topics: () => ({ log: { length: 10_000, bytes: 2 ** 26 } }) });
  const text = "x".repeat(1e6);
  for (let n = 0; n < 600; n++) await server.topic("room " + (n % 5)).publish("said", { n, text: text + n });
  await server.close();
  require("node:worker_threads").parentPort.postMessage("done");
})`;

it("one server with a heap of 512 MB takes 600 publications of 1 MB in five rooms", async () => {
  const worker = new Worker(PUBLISHING, { eval: true, resourceLimits: { maxOldGenerationSizeMb: 512 } });
  expect(await once(worker, "message")).toEqual(["done"]);
});
