/** Runs `reciproc/testing` in a runtime without anything of Node: a page or a worker has no more than this. */
import { createContext, Script } from "node:vm";
import { expect, it } from "vitest";
import { build } from "esbuild-wasm";

const root = new URL("../..", import.meta.url).pathname;

/** The globals of every runtime that the package uses. */
const GLOBALS = {
  AbortController,
  AbortSignal,
  DOMException,
  Event,
  EventTarget,
  TextDecoder,
  TextEncoder,
  URL,
  clearTimeout: (id: number) => clearTimeout(id),
  crypto,
  performance,
  queueMicrotask,
  // As in a page, a timer is a number.
  setTimeout: (task: () => void, ms: number) => Number(setTimeout(task, ms)),
};

const PROGRAM = `
  import { testServer } from "./dist/testing/index.js";
  import { connect } from "./dist/index.js";
  globalThis.run = async () => {
    const log = [];
    const kit = testServer({
      authenticate: async ({ headers }) => headers.cookie ?? "page",
      heartbeat: { intervalMs: 1000, deadAfterMs: 2000 },
      limits: { handshakeTimeoutMs: 1000 },
      methods: { who: (_params, { peer }) => peer.auth, ask: (_params, { peer }) => peer.request("answer") },
    });
    const client = await kit.connect(kit.server.url, { headers: { cookie: "ada" }, methods: { answer: () => 42 } });
    log.push(await client.request("who"), await client.request("ask"));
    kit.network.cut();
    log.push(client.state);
    await new Promise((resolve) => client.once("resume", resolve));
    log.push(kit.server.stats().resumed);
    globalThis.WebSocket = kit.WebSocket;
    const page = await connect("ws://localhost/");
    log.push(await page.request("who"));
    await page.close();
    await kit.network.settle();
    await kit.server.close();
    log.push(client.state);
    return JSON.stringify(log);
  };
`;

it("`reciproc/testing` bundles for a page, and runs without anything of Node", async () => {
  const { outputFiles } = await build({
    stdin: { contents: PROGRAM, resolveDir: root },
    bundle: true,
    format: "esm",
    platform: "browser",
    target: "es2022",
    logLevel: "error",
    write: false,
  });
  const context = createContext({ ...GLOBALS });
  new Script(new TextDecoder().decode(outputFiles![0]!.contents)).runInContext(context);
  const { run } = context as { run: () => Promise<string> };
  expect(JSON.parse(await run())).toEqual(["ada", 42, "suspended", 1, "page", "closed"]);
});
