/** Measures how soon clients are connected again after their server was killed and started again, beside socket.io, and writes the report. */
import { writeFileSync } from "node:fs";
import { setTimeout as wait } from "node:timers/promises";
import { machine, version } from "../machine.js";
import { Process } from "../process.js";
import { json, table } from "../report.js";
import { checkSockets } from "../settings.js";
import { median, precise, shuffled } from "../statistics.js";

const KINDS = ["reciproc", "socket.io"];
const HELP = `Usage: npm run bench -- --reconnect [--quick]

Kills a server, starts it again after some time, and measures when its clients are connected again. Both libraries have their defaults.
Writes docs/reconnect.md and docs/reconnect.json; with --quick it prints them.
`;

/** How many clients there are, how long the server is down, and how often each is measured. */
const FULL = { clients: [20, 1_000, 10_000], downSeconds: [1, 5, 15], rounds: 3 };
const QUICK = { clients: [20], downSeconds: [1], rounds: 1 };
const TIMEOUT_MS = 120_000;

const start = (file) => new Process(new URL(file, import.meta.url), []);

/** Kills the server of some clients, and starts it again. */
async function outage(kind, clients, count, server, port, downSeconds) {
  await clients.ask("forget");
  await server.kill();
  const killedAt = Date.now();
  // A new process needs some time of its own before it listens.
  const next = start("server.js");
  await wait(killedAt + 1000 * downSeconds - Date.now());
  await next.ask("listen", kind, port);
  const upAt = Date.now();
  let back = [];
  while (back.length < count) {
    if (Date.now() - upAt > TIMEOUT_MS) throw new Error(`${back.length} of ${count} clients of ${kind} are back`);
    await wait(50);
    back = await clients.ask("back");
  }
  const seconds = back.map((at) => (at - upAt) / 1000);
  return { server: next, median: median(seconds), last: Math.max(...seconds), peak: await next.ask("peak") };
}

/** Measures what the arguments of the command line name. */
export async function measureReconnect(args) {
  if (args.some((arg) => arg !== "--quick")) {
    process.stdout.write(HELP);
    return;
  }
  const budget = args.includes("--quick") ? QUICK : FULL;
  checkSockets(Math.max(...budget.clients));
  const rows = [];
  for (const count of budget.clients) {
    const results = budget.downSeconds.map((downSeconds) => ({
      downSeconds,
      kinds: { reciproc: [], "socket.io": [] },
    }));
    for (let round = 0; round < budget.rounds; round++)
      for (const kind of shuffled(KINDS)) {
        let server = start("server.js");
        const clients = start("clients.js");
        const port = await server.ask("listen", kind, 0);
        await clients.ask("open", kind, `${kind === "reciproc" ? "ws" : "http"}://127.0.0.1:${port}`, count);
        for (const { downSeconds, kinds } of results) {
          const { server: next, ...figures } = await outage(kind, clients, count, server, port, downSeconds);
          server = next;
          kinds[kind].push(figures);
          process.stdout.write(".");
          // A connection that was open for this long begins with the shortest delays again.
          await wait(6_000);
        }
        await clients.kill();
        await server.kill();
      }
    for (const { downSeconds, kinds } of results) {
      const of = (kind, name) => precise(median(kinds[kind].map((figures) => figures[name])));
      const figures = KINDS.map((kind) => [
        kind,
        Object.fromEntries(["median", "last", "peak"].map((name) => [name, of(kind, name)])),
      ]);
      rows.push({ count, downSeconds, results: Object.fromEntries(figures) });
    }
    process.stdout.write(` ${count} clients\n`);
  }
  const versions = Object.fromEntries(KINDS.map((kind) => [kind, version(kind)]));
  const report = { measured: new Date().toISOString(), machine: machine(), versions, budget, rows };
  if (budget === QUICK) {
    process.stdout.write(`\n${page(report)}`);
    return;
  }
  const docs = new URL("../../docs/", import.meta.url);
  writeFileSync(new URL("reconnect.json", docs), json(report));
  writeFileSync(new URL("reconnect.md", docs), page(report));
  process.stdout.write("\nWritten to docs/reconnect.md and docs/reconnect.json\n");
}

function page({ machine: on, measured, versions, budget, rows }) {
  const cells = rows.map(({ count, downSeconds, results }) => [
    count.toLocaleString("en"),
    String(downSeconds),
    ...["median", "last", "peak"].flatMap((name) => KINDS.map((kind) => String(results[kind][name]))),
  ]);
  const heads = ["median back after, s", "last back after, s", "most in 0.1 s"];
  return `${[
    "# Reconnecting, measured",
    "`npm run bench -- --reconnect` measures this page and writes it. [Reliability](RELIABILITY.md#a-client-reconnects) says what is promised.",
    `A server is killed, and another process listens on its port after the time in "down". "Back after" is the time from then until a client is connected again: of the median client, and of the last one. "Most in 0.1 s" is the largest number of clients that were connected in a tenth of a second, which a server with many clients must bear. Both libraries have their default options. Each figure is the median of ${budget.rounds} rounds, in which they take turns.`,
    `Measured ${measured.slice(0, 10)} on ${on.cpu}, ${on.memoryGiB} GiB, ${on.system}, Node ${on.node}, with reciproc ${versions.reciproc} and socket.io ${versions["socket.io"]}.`,
    table([["clients", "down, s", ...heads.flatMap((head) => [head, `${head}, socket.io`])], ...cells]),
  ].join("\n\n")}\n`;
}
