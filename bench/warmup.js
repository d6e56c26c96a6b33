/**
 * Why the first calls on a connection are slower than later ones: `node warmup.js [ROUNDS]`, after `npm run build`. Each row is a state of
 * both processes before the connection, and each column a range of its calls, one at a time. If the first calls are slow also in `warm`,
 * the cause is the connection: the time since it was opened, unless they are as slow in `warm, idle`, and code that the second connection
 * invalidates, if `warm, 10 connections` is fast. Otherwise the cause is the process: its interpreter if `baseline code` helps, its
 * optimizing compiler if all calls are as slow in `not optimized` and fewer in `optimized sooner`, its garbage collector if `large heap`
 * helps. The other rows say on which side. Under `taskset -c 0`, no process moves to another core, and no thread of V8 has its own.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { check } from "./load.js";
import { serverMethods } from "./methods.js";
import { answer, Process } from "./process.js";
import { table } from "./report.js";
import { median, pairedRatio, shuffled } from "./statistics.js";

const KINDS = ["bare", "packed", "reciproc-plain", "reciproc-packed"];
const ENDS = [100, 300, 1_000, 3_000, 10_000, 30_000];
/** `warm`: the sides that have made as many calls on earlier connections, by default on one. */
const STATES = {
  "all new": {},
  "new server": { warm: ["client"] },
  "new client": { warm: ["server"] },
  warm: { warm: ["client", "server"] },
  "warm, 10 connections": { warm: ["client", "server"], connections: 10 },
  "warm, idle": { warm: ["client", "server"], idleMs: 1_000 },
  "all new, idle": { idleMs: 1_000 },
  "all new, baseline code": { execArgv: ["--always-sparkplug"] },
  // A tenth of the default of Node 20.
  "all new, optimized sooner": { execArgv: ["--interrupt-budget=6758"] },
  "all new, not optimized": { execArgv: ["--no-opt"] },
  "all new, large heap": { execArgv: ["--min-semi-space-size=16"] },
};

const [role, kind] = process.argv.slice(2);
if (role === "side") {
  const { serve, connector, call, close } = await import(`./contenders/${kind}.js`);
  answer({
    serve: async () => (await serve(serverMethods(() => {}))).port,
    /** Makes calls on a new connection, which is idle after the first one. Returns the microseconds of a call, for each range. */
    async calls(port, ends, idleMs) {
      const peer = await connector(`ws://127.0.0.1:${port}`, {})();
      let n = 0;
      const next = async () => check(await call(peer, "increment", n), ++n, "increment");
      await next();
      await sleep(idleMs);
      const times = [];
      for (const end of ends) {
        const [first, started] = [n, performance.now()];
        while (n < end) await next();
        times.push(((performance.now() - started) * 1_000) / (n - first));
      }
      close(peer);
      return times;
    },
  });
} else await main(Number(role ?? 5));

/** Returns the times of the calls on a connection of a kind, whose processes are in a state. */
async function timesOf(name, { warm = [], connections = 1, idleMs = 0, execArgv = [] }) {
  const start = () => new Process(new URL("warmup.js", import.meta.url), ["side", name], execArgv);
  const sides = { client: start(), server: start() };
  let port = await sides.server.ask("serve");
  if (warm.length > 0)
    for (let i = 0; i < connections; i++) await sides.client.ask("calls", port, [ENDS.at(-1) / connections], 0);
  for (const side of ["client", "server"]) {
    if (warm.length === 0 || warm.includes(side)) continue;
    await sides[side].kill();
    sides[side] = start();
    if (side === "server") port = await sides.server.ask("serve");
  }
  const times = await sides.client.ask("calls", port, ENDS, idleMs);
  await Promise.all([sides.client.kill(), sides.server.kill()]);
  return times;
}

async function main(rounds) {
  const rows = [["", "", ...ENDS.map((end) => `to ${end}`)]];
  for (const [state, settings] of Object.entries(STATES)) {
    const times = Object.fromEntries(KINDS.map((name) => [name, []]));
    for (let i = 0; i < rounds; i++)
      for (const name of shuffled(KINDS)) times[name].push(await timesOf(name, settings));
    const column = (name, at) => times[name].map((round) => round[at]);
    rows.push([state, "bare, µs", ...ENDS.map((_, at) => median(column("bare", at)).toFixed(1))]);
    for (const name of KINDS.slice(1))
      rows.push(["", name, ...ENDS.map((_, at) => pairedRatio(column("bare", at), column(name, at)).toFixed(2))]);
    process.stdout.write(`${state} `);
  }
  process.stdout.write(`\n\nThe speed of each kind is a multiple of that of bare ws.\n\n${table(rows)}\n`);
}
