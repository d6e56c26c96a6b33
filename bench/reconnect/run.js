/** Measures how soon clients are back after their server was killed and started again, beside socket.io, and writes the report. */
import { writeFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { machine, version } from "../machine.js";
import { Process } from "../process.js";
import { json, table } from "../report.js";
import { checkSockets } from "../settings.js";
import { median, precise, shuffled } from "../statistics.js";

const KINDS = ["reciproc", "socket.io"];
const HELP = `Usage: npm run bench -- --reconnect [--quick]

Kills a server, starts it again after some time, and measures when its clients are back, beside socket.io. Takes less than 20 minutes.
Writes docs/reconnecting.md and docs/reconnecting.json; with --quick it prints them.
`;

/** How many clients there are, how long their server is down, how many such groups are measured at once, and in how many rounds. */
const FULL = {
  outages: [
    // The delays are random, so that a few clients differ much from a few others.
    { clients: 20, groups: 5, downSeconds: [1, 5, 15] },
    { clients: 1_000, groups: 1, downSeconds: [1, 5, 15] },
    // After more time, the delays of all clients are long, and spread their attempts more.
    { clients: 10_000, groups: 1, downSeconds: [1, 5] },
  ],
  rounds: 3,
};
const QUICK = { outages: [{ clients: 20, groups: 1, downSeconds: [1] }], rounds: 1 };

/** One process could not make enough attempts at a time to show a storm. */
const CLIENTS_OF_PROCESS = 2_500;
/** reciproc begins with its shortest delays again if a connection was open for 5 s. */
const OPEN_MS = 6_000;

/** The figures: those of the first table, and those of the second. */
const SOON = [
  { name: "median", title: "median client, s", digits: 2 },
  { name: "last", title: "last client, s", digits: 2 },
];
const LOAD = [
  { name: "tenth", title: "most attempts in 0.1 s", digits: 0 },
  { name: "second", title: "most attempts in 1 s", digits: 0 },
  { name: "cpu", title: "CPU, s", digits: 2 },
];

const count = (number) => number.toLocaleString("en");

/** Kills the server of some clients once for each of `downSeconds`. Returns the figures of each outage. */
async function measure(kind, { clients, downSeconds }) {
  const processes = [];
  const start = (file) => {
    const started = new Process(new URL(file, import.meta.url), [kind]);
    processes.push(started);
    return started;
  };
  try {
    let server = start("server.js");
    const { port } = await server.ask("listen", 0);
    const sides = [];
    for (let left = clients; left > 0; left -= CLIENTS_OF_PROCESS) {
      sides.push(start("clients.js"));
      await sides.at(-1).ask("open", port, Math.min(left, CLIENTS_OF_PROCESS));
    }
    const askAll = (command) => Promise.all(sides.map((side) => side.ask(command)));
    const results = [];
    for (const seconds of downSeconds) {
      await sleep(OPEN_MS);
      await askAll("forget");
      const next = start("server.js");
      await next.ask("ready");
      await server.kill();
      await sleep(seconds * 1_000);
      const { at } = await next.ask("listen", port);
      const times = (await askAll("back")).flat().map((back) => (back - at) / 1_000);
      results.push({ median: median(times), last: Math.max(...times), ...(await next.ask("load")) });
      server = next;
      process.stdout.write(".");
    }
    return results;
  } finally {
    await Promise.all(processes.map((one) => one.kill()));
  }
}

/** Measures the outages of both kinds, which take turns. Returns the medians for each time that the server was down. */
async function play(outage, rounds) {
  const results = Object.fromEntries(KINDS.map((kind) => [kind, []]));
  for (let round = 0; round < rounds; round++)
    for (const kind of shuffled(KINDS)) {
      const groups = Array.from({ length: outage.groups }, () => measure(kind, outage));
      results[kind].push(...(await Promise.all(groups)));
    }
  return outage.downSeconds.map((downSeconds, at) => {
    const figures = (kind) =>
      Object.fromEntries(
        [...SOON, ...LOAD].map(({ name }) => [name, precise(median(results[kind].map((round) => round[at][name])))]),
      );
    return {
      clients: outage.clients,
      downSeconds,
      results: Object.fromEntries(KINDS.map((kind) => [kind, figures(kind)])),
    };
  });
}

/** Measures what the arguments of the command line name. */
export async function measureReconnect(args) {
  if (args.some((arg) => arg !== "--quick")) {
    process.stdout.write(HELP);
    return;
  }
  const budget = args.includes("--quick") ? QUICK : FULL;
  checkSockets(Math.max(...budget.outages.map(({ clients }) => clients)));
  const rows = [];
  for (const outage of budget.outages) {
    rows.push(...(await play(outage, budget.rounds)));
    process.stdout.write(` ${count(outage.clients)} clients\n`);
  }
  const versions = Object.fromEntries(KINDS.map((kind) => [kind, version(kind)]));
  const report = { measured: new Date().toISOString(), machine: machine(), versions, budget, rows };
  if (budget === QUICK) {
    process.stdout.write(`\n${page(report)}`);
    return;
  }
  const docs = new URL("../../docs/", import.meta.url);
  writeFileSync(new URL("reconnecting.json", docs), json(report));
  writeFileSync(new URL("reconnecting.md", docs), page(report));
  process.stdout.write("\nWritten to docs/reconnecting.md and docs/reconnecting.json\n");
}

function page({ machine: on, measured, versions, budget, rows }) {
  return `${[
    "# Reconnecting, measured",
    "`npm run bench -- --reconnect` measures this page and writes it. [Reliability](RELIABILITY.md#a-client-reconnects) says what is promised.",
    'A server is killed, and another process listens on its port after the time in "down". The clients are in other processes of the same machine. They notice the loss at once, because the system closes the connections of a killed process. The new server has no sessions, so a client of reciproc begins a new one.',
    `Both libraries have their default delays. reciproc makes its first attempt at once, and each further one after a [longer random time](API.md#sessions-and-reconnecting). socket.io waits before its first attempt, too. Its clients use WebSockets from the start (\`transports: ["websocket"]\`), which needs fewer requests than its default. The libraries take turns for ${budget.rounds} rounds. A round with 20 clients has ${budget.outages[0].groups} servers at once, each with 20 clients of its own. Each figure is the median of all.`,
    `Measured ${measured.slice(0, 10)} on ${on.cpu}, ${on.memoryGiB} GiB, ${on.system}, Node ${on.node}, with reciproc ${versions.reciproc} and socket.io ${versions["socket.io"]}.`,
    "## How soon clients are back",
    "This is the time from when the new server listens until a client is back: until a call of its own is answered, or with socket.io an event is acknowledged.",
    figures(SOON, rows),
    "## What the new server bears",
    'An attempt is a connection that the new server accepts, on which the client sends its upgrade request. Clients that attempt to connect before the server listens are not counted. "Most attempts" is the largest number in any 0.1 s, and in any second. "CPU" is what the process of the server takes until all clients are back. A server without a free core accepts connections later than they arrive. The clients share the other cores, so they may attempt less at a time than on machines of their own.',
    figures(LOAD, rows),
  ].join("\n\n")}\n`;
}

/** Returns a table of some figures of both kinds. */
function figures(metrics, rows) {
  const each = (cell) => metrics.flatMap((metric) => KINDS.map((kind) => cell(metric, kind)));
  return table([
    ["clients", "down, s", ...each(({ title }, kind) => `${kind}: ${title}`)],
    ...rows.map(({ clients, downSeconds, results }) => [
      count(clients),
      String(downSeconds),
      ...each(({ name, digits }, kind) =>
        results[kind][name].toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }),
      ),
    ]),
  ]);
}
