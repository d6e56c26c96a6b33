/**
 * Runs a command, and stops all brokers that it has started again and again, for up to 6 s, as a busy machine may:
 * `node scripts/stutter.js --most 6 -- npx vitest run --project all test/engines/nats.test.ts`. Not for tests that stop a broker themselves,
 * because this continues it.
 */
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";

const { values, positionals } = parseArgs({
  options: { most: { type: "string", default: "6" } },
  allowPositionals: true,
});
const mostMs = Number(values.most) * 1000;
if (!(mostMs > 0) || positionals.length === 0) {
  console.error("Usage: node scripts/stutter.js [--most 6] -- COMMAND ...");
  process.exit(64);
}

/** The least and the longest time between two stops, in milliseconds. */
const [LEAST_MS, LONGEST_MS] = [500, 4_000];
const BROKER = /(redis|valkey|nats)-server$/;

const child = spawn(positionals[0], positionals.slice(1), { stdio: "inherit" });
const exited = once(child, "exit");
const pass = (ms) => Promise.race([exited, sleep(ms, undefined, { ref: false })]);

let stops = 0;
while (child.exitCode === null && child.signalCode === null) {
  await pass(LEAST_MS + Math.random() * (LONGEST_MS - LEAST_MS));
  const brokers = brokersOf(child.pid);
  for (const pid of brokers) signal(pid, "SIGSTOP");
  stops += brokers.length;
  await pass(Math.random() * mostMs);
  for (const pid of brokers) signal(pid, "SIGCONT");
}
const [code] = await exited;
console.log(`Brokers were stopped ${stops} times, for up to ${values.most} s: ${code === 0 ? "passed" : "failed"}`);
process.exit(code ?? 1);

/** Returns the brokers that run below a process, also below the processes that it has started. */
function brokersOf(root) {
  const lines = execFileSync("ps", ["-eo", "pid=,ppid=,stat=,comm="], { encoding: "utf8" }).trim().split("\n");
  const all = lines.map((line) => line.trim().split(/\s+/));
  const below = new Set([String(root)]);
  for (let size = 0; size < below.size;) {
    size = below.size;
    for (const [pid, parent] of all) if (below.has(parent)) below.add(pid);
  }
  return all
    .filter(([pid, , state, name]) => below.has(pid) && BROKER.test(name) && !state.startsWith("T"))
    .map(([pid]) => Number(pid));
}

/** A process may have ended meanwhile. */
function signal(pid, name) {
  try {
    process.kill(pid, name);
  } catch (error) {
    if (error.code !== "ESRCH") throw error;
  }
}
