/** Frames that are sent again until they are received: for how long, and how many. */
import { expect, it } from "vitest";
import { countDeadlines } from "../../src/core/deadlines.js";
import { Broker } from "../../src/fleet/broker.js";
import { Calls } from "../../src/fleet/calls.js";
import { EngineError } from "../../src/fleet/engine.js";
import { readFrame } from "../../src/fleet/frames.js";
import { SessionReports } from "../../src/fleet/session-over.js";
import { pass, useFakeClock } from "../support/clock.js";
import { FaultyEngine } from "./faulty.js";

useFakeClock();

const LIVE = new Set(["a", "b"]);
const ignore = (): void => {};
const OWNER = {
  received: ignore,
  up: ignore,
  down: ignore,
  heard: ignore,
  sent: ignore,
  dropped: ignore,
  failed: ignore,
};

/** A broker that answers with `count`. Records the frames that were sent. */
function brokerOf(
  count: () => Promise<number | undefined>,
  maxFrameBytes = 2 ** 24,
): { broker: Broker; sent: string[] } {
  const sent: string[] = [];
  const connection = {
    send: (_channel: string, frame: string) => {
      sent.push(frame);
      return count();
    },
  };
  const facts = { maxFrameBytes };
  return { broker: { connection, facts, now: (run: () => unknown) => run() } as unknown as Broker, sent };
}

/** The reports of node "a", through a broker that answers with `count`. `ended`: the sessions that other nodes have reported. */
function reportsTo(
  count: () => Promise<number | undefined>,
  maxFrameBytes?: number,
): {
  reports: SessionReports;
  sent: string[];
  ended: unknown[][];
  counts: { dropped: number };
} {
  const { broker, sent } = brokerOf(count, maxFrameBytes);
  const ended: unknown[][] = [];
  const counts = { dropped: 0 };
  const reports = new SessionReports({
    node: "a",
    broker,
    live: LIVE,
    endSession: (...session) => ended.push(session),
    dropped: () => counts.dropped++,
  });
  return { reports, sent, ended, counts };
}

/** The time for which reports are gathered after a frame. */
const GATHER_MS = 20;

it("the first report is sent at once, and those of the next 20 ms in one frame", async () => {
  const { reports, sent } = reportsTo(async () => 2);
  reports.send("1", "ann");
  expect(sent).toEqual(["1z\ta\t1\tp\tann\n"]);
  reports.send("2", undefined);
  await pass(GATHER_MS - 1);
  reports.send("3", "bob");
  expect(sent).toHaveLength(1);
  await pass(1);
  expect(sent.slice(1)).toEqual(["1z\ta\t2\t\t\t3\tp\tbob\n"]);
  reports.send("4", undefined);
  expect(sent).toHaveLength(2);
  await pass(2 * GATHER_MS);
  reports.send("5", undefined);
  expect(sent.slice(2)).toEqual(["1z\ta\t4\t\t\n", "1z\ta\t5\t\t\n"]);
});

it("reports of 4,096 characters share a frame, and a longer one has its own", async () => {
  const { reports, sent } = reportsTo(async () => 2);
  const lengths = [8_192, 2_048, 2_048, 1, 8_192, 4_095, 1, 1];
  // A hash of one character each. Each character of the principals takes five in a frame.
  for (const length of lengths) reports.send("h", "é".repeat(length - 1));
  await pass(GATHER_MS);
  const principals = sent.map((text) =>
    readFrame(text)!
      .fields.slice(1)
      .filter((_, i) => i % 3 === 2),
  );
  expect(principals.map((some) => some.map((name) => name.length + 1))).toEqual([
    [8_192],
    [2_048, 2_048],
    [1],
    [8_192],
    [4_095, 1],
    [1],
  ]);
});

it("reports share a frame only if the broker takes it", async () => {
  const maxFrameBytes = 40;
  const { reports, sent } = reportsTo(async () => 2, maxFrameBytes);
  reports.send("first", undefined);
  for (const hash of ["12345678", "2345678", "345678", "4"]) reports.send(hash, "ann");
  await pass(GATHER_MS);
  expect(sent.every((frame) => frame.length <= maxFrameBytes)).toBe(true);
  expect(sent.length).toBeLessThan(5);
  expect(sent.flatMap((frame) => readFrame(frame)!.fields.filter((_, i) => i % 3 === 1))).toEqual([
    "first",
    "12345678",
    "2345678",
    "345678",
    "4",
  ]);
});

it("nothing is sent after the end, and no timer is left", async () => {
  const before = countDeadlines().waiting;
  const { reports, sent } = reportsTo(async () => 1);
  reports.stop();
  reports.send("1", undefined);
  await pass(120_000);
  expect(sent).toEqual([]);
  expect(countDeadlines().waiting).toBe(before);
});

it("a node ends each session of a frame, and none for its own frame", () => {
  const { reports, ended } = reportsTo(async () => 2);
  for (const from of ["b", "a"]) reports.received(readFrame(`1z\t${from}\t1\tp\tann\t2\t\t\t3\tp\t\n`)!);
  expect(ended).toEqual([
    ["1", "ann"],
    ["2", undefined],
    ["3", ""],
  ]);
});

it("gathered reports are sent when the node stops, which leaves no timer", async () => {
  const before = countDeadlines().waiting;
  const { reports, sent } = reportsTo(async () => 1);
  reports.send("1", undefined);
  reports.send("2", undefined);
  reports.stop();
  reports.stop();
  expect(sent).toEqual(["1z\ta\t1\t\t\n", "1z\ta\t2\t\t\n"]);
  await pass(0);
  expect(countDeadlines().waiting).toBe(before);
});

it.each([
  ["every live node has received it", async () => 2],
  ["the broker does not count receivers", async () => undefined],
])("a report is sent once if %s", async (_when, count) => {
  const { reports, sent } = reportsTo(count);
  reports.send("hash", "ann");
  await pass(120_000);
  expect(sent).toEqual(["1z\ta\thash\tp\tann\n"]);
});

it.each([
  ["a live node has not received it", async () => 1],
  ["it may be lost", () => Promise.reject(new EngineError("lost", "unknown"))],
])("a report is repeated for a minute, ever more seldom, while %s", async (_when, count) => {
  const { reports, sent } = reportsTo(count);
  reports.send("hash", undefined);
  await pass(1_600);
  expect(sent).toHaveLength(3);
  await pass(60_000);
  expect(sent).toHaveLength(11);
  await pass(120_000);
  expect(sent).toEqual(Array.from(sent, () => "1z\ta\thash\t\t\n"));
  expect(sent).toHaveLength(11);
});

it("at most 1,000 frames of reports are repeated, and none after the end", async () => {
  const before = countDeadlines().waiting;
  const { reports, counts } = reportsTo(async () => 1);
  const report = async (from: number, to: number): Promise<void> => {
    for (let i = from; i <= to; i++) {
      reports.send(String(i), undefined);
      await pass(GATHER_MS);
    }
  };
  await report(1, 1_000);
  expect(counts.dropped).toBe(0);
  await report(1_001, 1_001);
  expect(countDeadlines().waiting - before).toBe(1_000);
  expect(counts.dropped).toBe(1);
  reports.stop();
  expect(countDeadlines().waiting).toBe(before);
});

it("reports of 1 Mi are repeated, the newest", async () => {
  const { reports, sent, counts } = reportsTo(async () => 1);
  const names = Array.from({ length: 256 }, (_, i) => String(i).padEnd(4_095, "x"));
  for (const name of names) reports.send("h", name);
  await pass(GATHER_MS);
  // A frame is a little longer than its reports.
  expect(counts.dropped).toBe(1);
  await pass(480);
  expect(sent.slice(0, 256)).toEqual(names.map((name) => `1z\ta\th\tp\t${name}\n`));
  expect(sent.slice(256)).toEqual(sent.slice(1, 255));
  reports.stop();
});

it("reports take no place among the commands that wait for the connection, and are sent as soon as it is restored", async () => {
  const engine = new FaultyEngine();
  const broker = new Broker(engine, "a", OWNER);
  await broker.open();
  const reports = new SessionReports({ node: "a", broker, live: LIVE, endSession() {}, dropped() {} });
  const [link] = engine.links;
  link!.down();
  for (let i = 1; i <= 1_000; i++) {
    reports.send(String(i), undefined);
    await pass(GATHER_MS);
  }
  const command = broker.run(1, 60_000, async () => "done");
  await pass(400);
  const sends = (): number => link!.commands.filter((name) => name === "send").length;
  expect(sends()).toBe(0);
  link!.up();
  reports.up();
  await pass(0);
  expect([await command, sends()]).toEqual(["done", 1_000]);
  reports.stop();
  await broker.close();
});

/** Calls from a node that has ended. `ids`: of the peers of each principal. */
function callsFor(ids: readonly string[]): { calls: Calls; counts: { sent: number; dropped: number } } {
  const counts = { sent: 0, dropped: 0 };
  const { broker } = brokerOf(async () => {
    counts.sent++;
    return 0;
  });
  const calls = new Calls({
    node: "a",
    isAlone: false,
    broker,
    wait: { timeoutMs: 60_000, retry: false },
    live: LIVE,
    readLive: async () => true,
    peerOf: () => undefined,
    peersOf: () => ids.map((id) => ({ id })) as never,
    disconnected() {},
    report() {},
    foreign() {},
    dropped: () => counts.dropped++,
  });
  return { calls, counts };
}

it("at most 10,000 answers are sent again", async () => {
  const { calls, counts } = callsFor([]);
  const body = '{"jsonrpc":"2.0","method":"work"}';
  const ask = (from: number, to: number): void => {
    for (let i = from; i <= to; i++) calls.received({ kind: "q", fields: [String(i), "b", "none", "60000", ""], body });
  };
  ask(1, 10_000);
  await pass(0);
  expect(counts).toEqual({ sent: 10_000, dropped: 0 });
  ask(10_001, 10_003);
  await pass(0);
  expect(counts.dropped).toBe(3);
  calls.end();
});

it("answers of at most 16 Mi are sent again", async () => {
  const { calls, counts } = callsFor(["x".repeat(2 ** 20)]);
  const ask = (number: number): void =>
    calls.asked({ kind: "u", fields: [String(number), "b", "peers", "0", "ann"], body: "null" });
  for (let number = 1; number <= 15; number++) ask(number);
  await pass(0);
  expect(counts).toEqual({ sent: 15, dropped: 0 });
  ask(16);
  await pass(0);
  expect(counts.dropped).toBe(1);
  calls.end();
});

it("an answer to a call without a timeout is sent again for a minute", async () => {
  const { calls, counts } = callsFor([]);
  calls.received({ kind: "q", fields: ["1", "b", "none", "0", ""], body: '{"jsonrpc":"2.0","method":"work"}' });
  await pass(50_000);
  const sent = counts.sent;
  await pass(9_000);
  expect(counts.sent).toBeGreaterThan(sent);
  const all = counts.sent;
  await pass(60_000);
  expect(counts.sent).toBe(all);
});
