/** Measures a client in a page of Chromium, beside a bare WebSocket, and writes the report. */
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { fileURLToPath } from "node:url";
import { build } from "esbuild-wasm";
import { chromium } from "playwright-core";
import { machine, version } from "../machine.js";
import { Process } from "../process.js";
import { json, table } from "../report.js";
import { median, pairedRatio, precise, shuffled } from "../statistics.js";

const HELP = `Usage: npm run bench -- --page [--quick]

Measures clients in pages of Chromium, that of CHROMIUM_PATH or /usr/bin/chromium, and their servers in other processes.
Writes docs/page.md and docs/page.json; with --quick it prints them.
`;

const FULL = { rounds: 12, warmUpMs: 3_000, ms: 500, opened: 50, notifications: 100_000 };
const QUICK = { rounds: 1, warmUpMs: 100, ms: 100, opened: 10, notifications: 100_000 };

/** Each kind of client by its name in `clients.js`, which is the name of the contender with its server. */
const KINDS = [
  { name: "bare", title: "bare WebSocket" },
  { name: "packed", title: "bare WebSocket, packed" },
  { name: "reciproc-packed", title: "reciproc (packed)" },
  { name: "reciproc-plain", title: "reciproc (plain)" },
];

const METRICS = [
  { name: "firstCalls", title: ({ ms }) => `one call at a time, first ${ms} ms of a new page, calls/s` },
  { name: "calls", title: ({ warmUpMs }) => `one call at a time, after ${warmUpMs / 1_000} s more, calls/s` },
  { name: "first", title: () => "connect and first call in a new page, CPU ms" },
  { name: "later", title: ({ opened }) => `connect and first call, of ${opened} more, CPU ms` },
  { name: "longest", title: ({ notifications }) => `longest task of ${count(notifications)} notifications, ms` },
  { name: "notified", title: () => "each of them, CPU µs" },
  { name: "last", title: () => "the first until the last of them, ms" },
];

/** A browser reports no shorter task. */
const LEAST_LONG_TASK_MS = 50;

const count = (number) => number.toLocaleString("en");

/** Serves the page with the clients on a free port. Returns its server. */
async function servePage() {
  const { outputFiles } = await build({
    entryPoints: [fileURLToPath(new URL("clients.js", import.meta.url))],
    bundle: true,
    minify: true,
    write: false,
    format: "esm",
    target: "es2022",
    define: { "process.env.NODE_ENV": '"production"' },
    logLevel: "error",
  });
  const http = createServer(({ url }, response) => {
    if (url === "/clients.js") response.setHeader("Content-Type", "text/javascript").end(outputFiles[0].text);
    else
      response
        .setHeader("Content-Type", "text/html; charset=utf-8")
        .end('<!doctype html><link rel="icon" href="data:," /><script type="module" src="/clients.js"></script>');
  });
  http.listen(0, "127.0.0.1");
  await once(http, "listening");
  return http;
}

/** Measures one kind in a new page. */
async function measure(browser, pageUrl, kind, server, { warmUpMs, ms, opened, notifications }) {
  const url = `ws://127.0.0.1:${await server.ask("port")}`;
  const context = await browser.newContext();
  try {
    const page = await context.newPage();
    await page.goto(pageUrl);
    await page.waitForFunction(() => globalThis.perform !== undefined);
    const devTools = await context.newCDPSession(page);
    // The CPU time of the page's thread, not the time that passes.
    await devTools.send("Performance.enable", { timeDomain: "threadTicks" });
    const cpuMs = async () => {
      const { metrics } = await devTools.send("Performance.getMetrics");
      const secondsOf = (wanted) => metrics.find(({ name }) => name === wanted)?.value ?? 0;
      return (secondsOf("TaskDuration") - secondsOf("DevToolsCommandDuration")) * 1_000;
    };
    const perform = (action, ...args) =>
      page.evaluate((all) => globalThis.perform(...all), [action, kind, url, ...args]);
    /** Returns the CPU time that the page takes for an action. */
    const cpuOf = async (act) => {
      const before = await cpuMs();
      await act();
      return (await cpuMs()) - before;
    };
    const first = await cpuOf(() => perform("open", 1));
    const firstCalls = await perform("calls", 0, ms);
    const later = (await cpuOf(() => perform("open", opened))) / opened;
    const calls = await perform("calls", warmUpMs, ms);
    await perform("close");
    await server.ask("connected", 0);
    await perform("expect", notifications);
    await server.ask("connected", 1);
    let flood;
    const notified = await cpuOf(async () => {
      [flood] = await Promise.all([perform("flooded"), server.ask("flood", notifications)]);
    });
    await perform("close");
    await server.ask("connected", 0);
    return {
      firstCalls,
      calls,
      first,
      later,
      longest: flood.longest,
      notified: (notified / notifications) * 1_000,
      last: flood.ms,
    };
  } finally {
    await context.close();
  }
}

/** Measures what the arguments of the command line name. */
export async function measurePage(args) {
  if (args.some((arg) => arg !== "--quick")) {
    process.stdout.write(HELP);
    return;
  }
  const budget = args.includes("--quick") ? QUICK : FULL;
  const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM_PATH || "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic"],
  });
  const versions = { Chromium: browser.version(), reciproc: version("reciproc"), ws: version("ws") };
  const http = await servePage();
  const servers = new Map(
    KINDS.map(({ name }) => [name, new Process(new URL("../server.js", import.meta.url), [name])]),
  );
  const rounds = Object.fromEntries(KINDS.map(({ name }) => [name, []]));
  const pageUrl = `http://127.0.0.1:${http.address().port}/`;
  try {
    // One round compiles the code of the servers.
    for (let round = 0; round <= budget.rounds; round++)
      for (const { name } of shuffled(KINDS)) {
        const figures = await measure(browser, pageUrl, name, servers.get(name), budget);
        if (round > 0) rounds[name].push(figures);
        process.stdout.write(".");
      }
  } finally {
    await Promise.all([...servers.values()].map((server) => server.kill()));
    await browser.close();
    http.close();
  }
  const results = Object.fromEntries(KINDS.map(({ name }) => [name, summary(rounds[name], rounds.bare)]));
  const report = { measured: new Date().toISOString(), machine: machine(), versions, budget, results };
  if (budget === QUICK) {
    process.stdout.write(`\n${pageOf(report)}`);
    return;
  }
  const docs = new URL("../../docs/", import.meta.url);
  writeFileSync(new URL("page.json", docs), json(report));
  writeFileSync(new URL("page.md", docs), pageOf(report));
  process.stdout.write("\nWritten to docs/page.md and docs/page.json\n");
}

function summary(rounds, bare) {
  return Object.fromEntries(
    METRICS.map(({ name }) => {
      const values = rounds.map((figures) => figures[name]);
      const ratio = pairedRatio(
        values,
        bare.map((figures) => figures[name]),
      );
      return [name, { median: precise(median(values)), ratio: ratio && precise(ratio), rounds: values.map(precise) }];
    }),
  );
}

function pageOf({ machine: on, measured, versions, budget, results }) {
  const rows = METRICS.map(({ name, title }) => [
    title(budget),
    ...KINDS.map((kind) => {
      const { median: value, ratio } = results[kind.name][name];
      if (name === "longest") return value < LEAST_LONG_TASK_MS ? `under ${LEAST_LONG_TASK_MS}` : value.toFixed(0);
      const text = value >= 100 ? count(Math.round(value)) : value.toFixed(2);
      return ratio === undefined ? text : `${text} (${ratio.toFixed(2)}x)`;
    }),
  ]);
  return `${[
    "# In a page, measured",
    "`npm run bench -- --page` measures this page and writes it. [Benchmark](benchmark.md) has the figures on Node.",
    `Each figure is the median of ${budget.rounds} rounds, in which the kinds take turns, each in a new page of Chromium. A ratio compares a kind with a bare WebSocket in the same round. The server is another process, and of the same kind. "CPU" is the CPU time of the page's main thread, without that of DevTools. The server sends the notifications in one tick, and the page counts them. A task is long from ${LEAST_LONG_TASK_MS} ms on: until it ends, the page does not render, and does not react to its user.`,
    '- **bare WebSocket** is JSON-RPC by hand, with one message in each frame, and without errors, limits and timeouts. Its server is **bare ws** of the benchmark.\n- **bare WebSocket, packed** takes the messages of a tick as arrays of about 1 KiB. It is the floor.\n- **reciproc (packed)** is `connect` with its defaults. **reciproc (plain)** has one message in each frame (`link: "plain"`).',
    `Measured ${measured.slice(0, 10)} on ${on.cpu}, ${on.memoryGiB} GiB, ${on.system}, Chromium ${versions.Chromium} and Node ${on.node}, with reciproc ${versions.reciproc} and ws ${versions.ws}.`,
    table([["", ...KINDS.map(({ title }) => title)], ...rows]),
  ].join("\n\n")}\n`;
}
