/** Measures what each flood costs the server, and how long another client waits meanwhile, and writes the report. */
import { writeFileSync } from "node:fs";
import { WebSocket } from "ws";
import { machine, version } from "../machine.js";
import { Process } from "../process.js";
import { json, table } from "../report.js";
import { median, percentile, precise, shuffled } from "../statistics.js";
import { FLOODS, PIPELINES, upgradeText } from "./floods.js";

const MIB = 2 ** 20;
const KINDS = ["reciproc", "bare ws"];
const HELP = `Usage: npm run bench -- --attacks [--quick]

Floods a server with its defaults, and bare ws beside it. Writes docs/attacks.md and docs/attacks.json; with --quick it prints them.
`;

/** How long another client is measured, in turn without and during the flood, and how often. */
const FULL = { roundMs: 500, rounds: 7, bytesPerSecond: MIB };
const QUICK = { roundMs: 150, rounds: 1, bytesPerSecond: MIB };
/** The interval of the calls of the other client. */
const PERIOD_MS = 2;

/** Starts a process of this folder. */
function start(file, ...args) {
  return new Process(new URL(file, import.meta.url), args, ["--expose-gc"]);
}

/** Makes a call every 2 ms, and returns how long each took from when it was due: a late tick delays every call. */
async function waits(socket, roundMs) {
  const taken = [];
  const pending = new Map();
  let id = 0;
  socket.on("message", (data) => {
    const call = JSON.parse(String(data)).id;
    taken.push(performance.now() - pending.get(call));
    pending.delete(call);
  });
  const end = performance.now() + roundMs;
  for (let due = performance.now(); due < end; await new Promise((resolve) => setTimeout(resolve, 1)))
    for (; due <= performance.now(); due += PERIOD_MS) {
      pending.set(++id, due);
      socket.send(`{"jsonrpc":"2.0","id":${id},"method":"here"}`);
    }
  while (pending.size > 0) await new Promise((resolve) => setTimeout(resolve, 1));
  socket.removeAllListeners("message");
  return taken;
}

/** Measures one flood of one server: without the flood, and then during it. */
async function round(server, attacker, flood, { roundMs, bytesPerSecond }) {
  const port = await server.ask("port");
  const other = new WebSocket(`ws://127.0.0.1:${port}`);
  await new Promise((resolve, reject) => other.once("open", resolve).once("error", reject));
  const keptBefore = await server.ask("bytesKept");
  // The forced collection drops compiled code.
  await waits(other, roundMs);
  const quietCpu = await server.ask("cpuMs");
  const quiet = await waits(other, roundMs);
  const before = await server.ask("cpuMs");
  const packed = flood.isPacked ? ["Sec-WebSocket-Protocol: reciproc.v1"] : [];
  const head =
    flood.first === undefined
      ? "GET / HTTP/1.1\r\nHost:127.0.0.1\r\n\r\n"
      : upgradeText(`127.0.0.1:${port}`, ...packed);
  await attacker.ask("start", {
    port,
    head,
    first: (flood.first ?? Buffer.alloc(0)).toString("base64"),
    chunk: flood.chunk.toString("base64"),
    bytesPerSecond,
  });
  const attacked = await waits(other, roundMs);
  const bytes = await attacker.ask("stop");
  while ((await server.ask("connections")) > 1) await new Promise((resolve) => setTimeout(resolve, 5));
  const cpu = (await server.ask("cpuMs")) - before - (before - quietCpu);
  const kept = (await server.ask("bytesKept")) - keptBefore;
  other.terminate();
  return {
    p99Quiet: percentile(quiet, 99),
    p99: percentile(attacked, 99),
    cpuPerMib: (Math.max(0, cpu) * MIB) / bytes,
    keptKib: kept / 1024,
    mib: bytes / MIB,
  };
}

/** Values of 1 MiB of JSON that take much memory. */
const VALUES = {
  "brackets that are nested (`[[[ ... ]]]`)": () => "[".repeat(MIB / 2) + "]".repeat(MIB / 2),
  "empty objects (`{},{},...`)": () => `[${"{},".repeat(MIB / 3)}{}]`,
  "objects with one name each, all different": () => {
    const objects = Array.from({ length: MIB / 14 }, (_, i) => `{"${i.toString(36).padStart(5, "x")}":1}`);
    return `[${objects}]`;
  },
  "empty arrays (`[],[],...`)": () => `[${"[],".repeat(MIB / 3)}[]]`,
  "whole numbers of one digit": () => `[${"1,".repeat(MIB / 2)}1]`,
  text: () => `"${"x".repeat(MIB)}"`,
};

/** Returns the memory that each value takes, in MiB for each MiB of its JSON. */
async function measureValues(server) {
  const held = {};
  for (const [name, make] of Object.entries(VALUES)) {
    const json = make();
    const { before, after } = await server.ask("hold", json);
    held[name] = precise((after - before) / json.length);
  }
  return held;
}

/** Returns the medians of the rounds of one flood and one server. */
function summary(rounds) {
  const of = (value) => precise(median(rounds.map(value)));
  return {
    p99Ms: of(({ p99 }) => p99),
    p99QuietMs: of(({ p99Quiet }) => p99Quiet),
    ratio: of(({ p99, p99Quiet }) => p99 / p99Quiet),
    cpuMsPerMib: of(({ cpuPerMib }) => cpuPerMib),
    keptKib: of(({ keptKib }) => keptKib),
  };
}

/** Measures what the arguments of the command line name. */
export async function measureAttacks(args) {
  if (args.some((arg) => arg !== "--quick")) {
    process.stdout.write(HELP);
    return;
  }
  const budget = args.includes("--quick") ? QUICK : FULL;
  const attacker = start("attacker.js");
  const floods = [];
  try {
    for (const flood of [...FLOODS, ...PIPELINES]) {
      process.stdout.write(`${flood.name} `);
      const servers = Object.fromEntries(KINDS.map((kind) => [kind, start("server.js", kind)]));
      const rounds = Object.fromEntries(KINDS.map((kind) => [kind, []]));
      // One round warms up.
      for (let i = 0; i <= budget.rounds; i++)
        for (const kind of shuffled(KINDS)) {
          const one = await round(servers[kind], attacker, flood, budget);
          if (i > 0) rounds[kind].push(one);
        }
      for (const server of Object.values(servers)) await server.kill();
      const results = Object.fromEntries(KINDS.map((kind) => [kind, summary(rounds[kind])]));
      floods.push({ name: flood.name, results });
      process.stdout.write(`${results.reciproc.p99Ms} ms, ${results.reciproc.ratio} times\n`);
    }
  } finally {
    await attacker.kill();
  }
  const server = start("server.js", "reciproc");
  const held = await measureValues(server);
  await server.kill();
  const versions = { reciproc: version("reciproc"), ws: version("ws") };
  const report = { measured: new Date().toISOString(), machine: machine(), versions, budget, floods, held };
  if (budget === QUICK) {
    process.stdout.write(`\n${page(report)}`);
    return;
  }
  const docs = new URL("../../docs/", import.meta.url);
  writeFileSync(new URL("attacks.json", docs), json(report));
  writeFileSync(new URL("attacks.md", docs), page(report));
  process.stdout.write("\nWritten to docs/attacks.md and docs/attacks.json\n");
}

function page({ machine: on, measured, versions, budget, floods, held }) {
  const figure = (value) => (value >= 100 ? value.toFixed(0) : value.toFixed(1));
  const rows = floods.map(({ name, results: { reciproc, "bare ws": bare } }) => [
    name,
    figure(reciproc.p99Ms),
    figure(reciproc.ratio),
    figure(bare.ratio),
    figure(reciproc.cpuMsPerMib),
    figure(bare.cpuMsPerMib),
    figure(reciproc.keptKib),
  ]);
  return `${[
    "# Attacks, measured",
    "`npm run bench -- --attacks` measures this page and writes it. [SECURITY.md](SECURITY.md) says what each attack meets, and which test counts it.",
    `Each row is a flood of ${budget.bytesPerSecond / MIB} MiB a second over one connection, from a process of its own. Another client makes a call every ${PERIOD_MS} ms. "p99" is how long 99 of 100 of its calls took at most. "p99 ratio" divides that by the same figure without the flood, a moment before. "CPU" is the time of the server's process for each MiB of the flood. "Kept" is the memory in use after the flood has disconnected, minus that before. Each figure is the median of ${budget.rounds} rounds. Both servers take turns within a round. Bare \`ws\` parses each message, answers the calls of the other client, and does nothing else.`,
    `Measured ${measured.slice(0, 10)} on ${on.cpu}, ${on.memoryGiB} GiB, ${on.system}, Node ${on.node}, with reciproc ${versions.reciproc} and ws ${versions.ws}.`,
    table([
      ["flood", "p99, ms", "p99 ratio", "p99 ratio of bare ws", "CPU, ms/MiB", "CPU of bare ws, ms/MiB", "kept, KiB"],
      ...rows,
    ]),
    "## What a value takes in memory",
    "The limits count the length of a message. Its parsed value takes more. Each figure is the difference of the memory in use after full collections, while the server holds the value, divided by the length of its JSON.",
    table([["1 MiB of", "held, MiB"], ...Object.entries(held).map(([name, mib]) => [name, figure(mib)])]),
  ].join("\n\n")}\n`;
}
