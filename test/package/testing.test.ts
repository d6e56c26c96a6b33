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
    const kit = testServer({
      authenticate: ({ headers }) => headers.cookie ?? "page",
      methods: { who: (_params, { peer }) => peer.auth, ask: (_params, { peer }) => peer.request("answer") },
    });
    const client = await kit.connect(kit.server.url, { headers: { cookie: "ada" }, methods: { answer: () => 42 } });
    const log = [await client.request("who"), await client.request("ask")];
    kit.network.cut();
    await new Promise((resolve) => client.once("resume", resolve));
    globalThis.WebSocket = kit.WebSocket;
    const page = await connect("ws://localhost/");
    log.push(await page.request("who"));
    await kit.server.close();
    return [...log, client.state].join();
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
  expect(await run()).toBe("ada,42,page,closed");
});
