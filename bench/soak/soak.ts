/**
 * Runs mixed traffic for an hour: cursors, calls both ways and broadcasts, over a proxy that cuts connections at random.
 * Writes the figures each minute, so that an interrupted run leaves its figures. A complete run without `--out` puts its
 * figures into docs/RELIABILITY.md.
 *
 *     npm run soak -- [--minutes 60] [--peers 30] [--hz 60] [--seed 1] [--out FILE]
 */
import { mkdirSync, writeFileSync } from "node:fs";
import os from "node:os";
import { dirname } from "node:path";
import { createHistogram } from "node:perf_hooks";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { connect, serve, type AnyPeer, type Server } from "../../src/node.js";
import { Proxy, type Line } from "../../test/faults/proxy.js";
import { Random } from "../../test/faults/random.js";
import { putMeasured, tableOf } from "../measured.js";
import { memoryInUse, MIB } from "./memory.js";

/** The number of peers that see each other's cursors. */
const ROOM_SIZE = 5;
/** Calls of each peer to the server, and of the server to each peer. */
const CALLS_A_SECOND = 1;
/** Broadcasts to each room. */
const BROADCASTS_A_SECOND = 5;
/** The mean duration of a connection before a fault. */
const CUT_AFTER_MS = 20_000;
const MINUTE_MS = 60_000;
const OUT = "docs/soak.json";
const MACHINE = `${os.cpus().length} x ${os.cpus()[0]?.model.trim()}, Node ${process.versions.node}`;

const { values } = parseArgs({
  options: {
    minutes: { type: "string", default: "60" },
    peers: { type: "string", default: "30" },
    hz: { type: "string", default: "60" },
    seed: { type: "string", default: "1" },
    out: { type: "string", default: OUT },
  },
});
const minutes = Number(values.minutes);
const peerCount = Number(values.peers);
const hz = Number(values.hz);
const random = new Random(Number(values.seed));

/** The counters. `broken`: events that must never happen. */
const figures = {
  calls: 0,
  settled: { result: 0, "not-sent": 0, unknown: 0, other: 0 },
  notifications: { sent: 0, arrived: 0 },
  broadcasts: { sent: 0, arrived: 0 },
  cuts: {} as Record<string, number>,
  suspends: 0,
  resumes: 0,
  lost: 0,
  broken: [] as string[],
};
/** The durations of all calls, in microseconds. */
const latencies = createHistogram();
const heapMiB: number[] = [];
const startedAt = performance.now();

function broken(what: string): void {
  if (figures.broken.push(what) > 100) figures.broken.length = 100;
}

/** Connects a client to the proxy, and joins a room. */
async function openClient(room: string) {
  let [said, seen] = [0, 0];
  const board = ({ n }: { n: number }): void => {
    figures.broadcasts.arrived++;
    if (n !== seen + 1) broken(`broadcast ${n} came after ${seen}`);
    seen = n;
  };
  const peer: AnyPeer = await connect(`ws://127.0.0.1:${proxy.port}`, { methods: { board, echo } } as never);
  peer.on("suspend", () => void figures.suspends++);
  peer.on("resume", () => void figures.resumes++);
  peer.on("lost", (error) => {
    figures.lost++;
    broken(`a session was lost: ${error.message}`);
  });
  peer.on("error", (error) => broken(`a client reports ${String(error)}`));
  await peer.request("join", { room });
  return {
    peer,
    move() {
      const at = { n: ++said, x: random.below(2000), y: random.below(1200) };
      if (peer.notify("moved", at)) figures.notifications.sent++;
      else broken("a notification was not taken");
    },
  };
}

/** The last notification of each peer, and the numbers of its calls, by the server's peer. */
const heard = new Map<AnyPeer, number>();
const calledBy = new Map<AnyPeer, Set<number>>();

/** Must run once for each number. */
function echo({ n }: { n: number }, { peer }: { peer: AnyPeer }): number {
  const ran = calledBy.get(peer) ?? new Set();
  if (ran.has(n)) broken(`call ${n} ran twice`);
  calledBy.set(peer, ran.add(n));
  return n;
}

/** Makes a call, and counts its outcome. */
async function call(peer: AnyPeer): Promise<void> {
  const n = ++figures.calls;
  const start = performance.now();
  try {
    if ((await peer.request("echo", { n })) !== n) broken(`call ${n} has the result of another`);
    figures.settled.result++;
  } catch (error) {
    const { outcome } = error as { outcome?: "not-sent" | "unknown" };
    figures.settled[outcome ?? "other"]++;
    if (outcome === undefined) broken(`call ${n} was rejected: ${String(error)}`);
  }
  latencies.record(Math.max(1, Math.round((performance.now() - start) * 1000)));
}

/** The faults of connections. */
const HURTS: Record<string, (line: Line) => unknown> = {
  cut: (line) => line.cut(),
  reset: (line) => line.reset(),
  end: (line) => line.end(),
  cutAtByte: (line) => line.toClient.stopAfter(random.below(2000), () => line.cut()),
  resetAtByte: (line) => line.toServer.stopAfter(random.below(2000), () => line.reset()),
  async freeze(line) {
    line.toServer.freeze();
    await sleep(random.below(3000));
    line.toServer.thaw();
  },
  async freezeAndCut(line) {
    line.toClient.freeze();
    await sleep(random.below(3000));
    line.cut();
  },
  /** Lets the client resume while the server considers the old socket alive. */
  async halfOpen(line) {
    line.toServer.freeze();
    await sleep(random.below(50));
    line.drop("client");
    await sleep(1000);
    line.toServer.thaw();
    await sleep(100);
    line.drop("server");
  },
};

/** Writes the figures so far. */
async function write(): Promise<void> {
  heapMiB.push(Number(((await memoryInUse()).heapUsed / MIB).toFixed(1)));
  const { user, system } = process.cpuUsage();
  const ranMs = performance.now() - startedAt;
  const report = {
    machine: MACHINE,
    at: new Date().toISOString(),
    minutes: Number((ranMs / MINUTE_MS).toFixed(1)),
    load: { peers: peerCount, hz, callsASecond: CALLS_A_SECOND, broadcastsASecond: BROADCASTS_A_SECOND },
    cpuShare: Number(((user + system) / 1000 / ranMs).toFixed(3)),
    ...figures,
    cutsInAll: sum(figures.cuts),
    latencyMs: durations(),
    heapMiB,
  };
  mkdirSync(dirname(values.out), { recursive: true });
  writeFileSync(values.out, `${JSON.stringify(report, null, 2)}\n`);
}

/** Returns the figures for docs/RELIABILITY.md. */
function summary(): string {
  const { settled, notifications, broadcasts, cuts, suspends, resumes, lost, broken: rules } = figures;
  const { p50, p99, longest } = durations();
  return tableOf(
    ["what", `in ${minutes} minutes`],
    [
      ["machine", `${MACHINE}, both sides in one process`],
      ["peers", `${peerCount}, in rooms of ${ROOM_SIZE}, each notifying ${hz} times a second`],
      ["disturbances", byKind(cuts)],
      ["connections suspended, resumed, lost", `${suspends}, ${resumes}, ${lost}`],
      ["calls, both ways", byKind(settled)],
      ["notifications sent, arrived", `${notifications.sent}, ${notifications.arrived}`],
      ["broadcasts sent, arrived", `${broadcasts.sent}, ${broadcasts.arrived}`],
      ["lost, twice, out of order, or settled twice", `${rules.length}`],
      ["a call took", `half within ${p50} ms, 99 of 100 within ${p99} ms, all within ${longest} ms`],
      ["heap, MiB, every ten minutes", heapMiB.filter((_, minute) => minute % 10 === 0).join(", ")],
    ],
  );
}

/** Returns the durations that half, 99 of 100 and all calls did not exceed, in milliseconds. */
function durations() {
  const us = [latencies.percentile(50), latencies.percentile(99), latencies.max];
  const [p50, p99, longest] = us.map((one) => Number((one / 1000).toPrecision(3)));
  return { p50, p99, longest };
}

function byKind(counts: Record<string, number>): string {
  const each = Object.entries(counts).map(([kind, count]) => `${count} ${kind}`);
  return `${sum(counts)}: ${each.join(", ")}`;
}

function sum(counts: Record<string, number>): number {
  return Object.values(counts).reduce((total, count) => total + count, 0);
}

const server: Server<any, any, any> = await serve({
  port: 0,
  methods: {
    join: ({ room }: { room: string }, { peer }: { peer: AnyPeer }) => {
      heard.set(peer, 0);
      server.topic(room).add(peer);
    },
    moved: ({ n }: { n: number }, { peer }: { peer: AnyPeer }) => {
      figures.notifications.arrived++;
      if (n !== heard.get(peer)! + 1) broken(`notification ${n} came after ${heard.get(peer)}`);
      heard.set(peer, n);
    },
    echo,
  },
});
server.on("error", (error) => broken(`the server reports ${String(error)}`));
const proxy = await Proxy.listen(() => Number(new URL(server.url).port));
const clients = await Promise.all(
  Array.from({ length: peerCount }, (_, index) => openClient(`room ${Math.floor(index / ROOM_SIZE)}`)),
);
/** The number of the last broadcast to each room. */
const told = new Map(Array.from({ length: Math.ceil(peerCount / ROOM_SIZE) }, (_, i) => [`room ${i}`, 0]));
await write();

const timers = [
  setInterval(() => {
    for (const client of clients) client.move();
  }, 1000 / hz),
  setInterval(() => {
    for (const [room, last] of told) {
      const n = last + 1;
      told.set(room, n);
      figures.broadcasts.sent += server.topic(room).size;
      server.topic(room).notify("board", { n, at: [random.below(2000), random.below(1200)] });
    }
  }, 1000 / BROADCASTS_A_SECOND),
  setInterval(
    () => {
      void call(random.pick(clients).peer);
      void call(random.pick([...heard.keys()]));
    },
    1000 / (CALLS_A_SECOND * peerCount),
  ),
  setInterval(() => {
    const line = random.pick([...proxy.lines]);
    if (line === undefined || !line.isWhole) return;
    const kind = random.pick(Object.keys(HURTS));
    figures.cuts[kind] = (figures.cuts[kind] ?? 0) + 1;
    void HURTS[kind]!(line);
  }, CUT_AFTER_MS / peerCount),
];

for (let minute = 0; minute < minutes; minute++) {
  await sleep(MINUTE_MS);
  // By now each number has certainly run once, or never will.
  calledBy.clear();
  await write();
}
for (const timer of timers) clearInterval(timer);

/** All messages arrive once the faults stop. */
const patience = performance.now() + 90_000;
const isQuiet = (): boolean =>
  figures.notifications.sent === figures.notifications.arrived &&
  figures.broadcasts.sent === figures.broadcasts.arrived &&
  figures.calls === sum(figures.settled);
while (!isQuiet() && performance.now() < patience) await sleep(50);
if (!isQuiet()) broken("something was never delivered, or never settled");
await Promise.all(clients.map(({ peer }) => peer.close()));
await server.close();
await proxy.close();
await write();
if (values.out === OUT) putMeasured("docs/RELIABILITY.md", "soak", summary());
process.stdout.write(`${figures.broken.length === 0 ? "nothing broke" : figures.broken.join("\n")}\n`);
process.exitCode = figures.broken.length === 0 ? 0 : 1;
