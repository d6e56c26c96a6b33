/**
 * Measures the parts of a call's time: runs client and server with `--cpu-prof`, and writes docs/profile.md. `--before REF` adds a
 * build of the package at that commit, so that one run measures before and after.
 */
import { fork } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { checkout, ROOT } from "./checkout.js";
import { machine } from "./machine.js";
import { median } from "./statistics.js";

const SIDE = fileURLToPath(new URL("profile-side.js", import.meta.url));
const ROUNDS = 5;
const SCENARIOS = [
  { title: "one call at a time", inFlight: 1, calls: 20_000 },
  { title: "64 calls in flight", inFlight: 64, calls: 100_000 },
];
/** The parts of the time. The first match counts. */
const PARTS = [
  ["waiting for the other side", ({ functionName }) => functionName === "(idle)"],
  ["garbage collection", ({ functionName }) => functionName === "(garbage collector)"],
  ["the system calls that write and read", ({ functionName, url }) => url === "" && /^(write|read)/.test(functionName)],
  ["native code of Node, JSON included", ({ url }) => url === ""],
  ["Node's streams and events", ({ url }) => url.startsWith("node:")],
  ["`ws`", ({ url }) => url.includes("/node_modules/ws/")],
  ["this package", ({ url }) => url.includes("/dist/")],
  ["the benchmark itself, and the rest", () => true],
];

/** Returns the time of each part, in microseconds per call, on both sides together. */
async function profile(contender, scenario) {
  const folder = mkdtempSync(join(tmpdir(), "reciproc-profile-"));
  const start = (role, port) =>
    fork(SIDE, [role, JSON.stringify({ ...contender, ...scenario, port })], {
      execArgv: ["--cpu-prof", `--cpu-prof-dir=${join(folder, role)}`, "--cpu-prof-interval=200"],
    });
  const server = start("server");
  const port = await messageOf(server);
  const client = start("client", port);
  const elapsedMs = await messageOf(client);
  await new Promise((resolve) => client.once("exit", resolve));
  server.send("stop");
  await new Promise((resolve) => server.once("exit", resolve));
  const parts = ["client", "server"].map((role) => read(join(folder, role), scenario.calls));
  rmSync(folder, { recursive: true });
  return { call: (elapsedMs * 1000) / scenario.calls, client: parts[0], server: parts[1] };
}

function messageOf(child) {
  return new Promise((resolve, reject) => {
    child.once("message", resolve);
    child.once("exit", (code) => reject(new Error(`ended with ${code}`)));
  });
}

function read(folder, calls) {
  const [file] = readdirSync(folder);
  const { nodes, samples, timeDeltas } = JSON.parse(readFileSync(join(folder, file), "utf8"));
  const partOf = new Map(nodes.map(({ id, callFrame }) => [id, PARTS.findIndex(([, holds]) => holds(callFrame))]));
  const spent = PARTS.map(() => 0);
  for (const [i, sample] of samples.entries()) spent[partOf.get(sample)] += timeDeltas[i];
  return spent.map((us) => us / calls);
}

function table(title, columns) {
  const head = `| µs a call, client + server | ${columns.map(({ name }) => name).join(" | ")} |`;
  const rows = PARTS.slice(1).map(([part], i) => {
    const cells = columns.map(({ rounds }) => at(rounds, ({ client, server }) => client[i + 1] + server[i + 1]));
    return `| ${part} | ${cells.join(" | ")} |`;
  });
  const whole = `| **a call takes** | ${columns.map(({ rounds }) => `**${at(rounds, ({ call }) => call)}**`).join(" | ")} |`;
  return [`## ${title}`, "", head, `| --- |${" ---: |".repeat(columns.length)}`, ...rows, whole, ""].join("\n");
}

function at(rounds, pick) {
  return median(rounds.map(pick)).toFixed(1);
}

const { values } = parseArgs({ options: { before: { type: "string" } } });
const before = values.before === undefined ? undefined : checkout(values.before);
const contenders = [
  { name: "bare `ws`", kind: "bare", root: ROOT },
  ...(before === undefined ? [] : [{ name: "before", kind: "as it was", root: before }]),
  { name: "plain", kind: "plain", root: ROOT },
  { name: "packed", kind: "packed", root: ROOT },
];
const sections = [];
for (const scenario of SCENARIOS) {
  const columns = contenders.map(({ name }) => ({ name, rounds: [] }));
  for (let round = 0; round < ROUNDS; round++) {
    for (const [i, contender] of contenders.entries()) columns[i].rounds.push(await profile(contender, scenario));
  }
  sections.push(table(scenario.title, columns));
}
if (before !== undefined) rmSync(before, { recursive: true });
const { cpu, node } = machine();
writeFileSync(
  join(ROOT, "docs/profile.md"),
  [
    "# Where a call's time goes",
    "",
    `\`npm --prefix bench run profile\` measures this page and writes it. Each figure is the median of ${ROUNDS} runs under \`--cpu-prof\`, with client and server in separate new processes, of an echo of a short text, from the first call on: V8 compiles the code meanwhile. Measured on ${cpu}, Node ${node}. "plain" and "packed" are this package with one message in each frame, and with \`reciproc.v1\`.`,
    before === undefined
      ? ""
      : `\n"before" is this package at commit \`${values.before}\`, with one frame and one write for each message, and one timer for each call.\n`,
    ...sections,
  ].join("\n"),
);
