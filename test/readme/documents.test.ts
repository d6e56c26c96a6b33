/** Runs the unchanged examples of README.md and of all documents, compiles them, and compares what they print with the text below them. */
import { copyFile, mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Peer } from "../../src/index.js";
import { connect } from "../support/connect.js";
import { gate } from "../support/turns.js";
import { clean, examplesOf, extract, folder, Running, Thread, tsc, type Example } from "./examples.js";

/** The pages that do not begin with an example: measured figures, a policy, lists, and a page for readers of the source. */
const WITHOUT_EXAMPLE = [
  "README.md",
  ..."ARCHITECTURE attacks benchmark examples fleet page profile reconnecting scale versions"
    .split(" ")
    .map((name) => `docs/${name}.md`),
];
const GUIDES = "test/browser/guides.test.ts";
const TABS = "test/browser/tabs.test.ts";
const OTHERS = "test/interop/documents.test.ts";
/** The examples that another test file runs, because they need a page, a broker, or a package that is not the project's. `*` means all of a page. */
const ELSEWHERE: Record<string, string> = {
  "README.md browser.js": GUIDES,
  "docs/API.md tabs-server.js": TABS,
  "docs/API.md tabs-worker.js": TABS,
  "docs/API.md tabs-page.js": TABS,
  "docs/CLI.md api.mjs": "test/readme/command-line.test.ts",
  "docs/CLI.md json-client.js": "test/interop/lsp/language-servers.test.ts",
  "docs/INTEROP.md other-client.js": OTHERS,
  "docs/SCALING.md *": "test/scaling/scaling.test.ts",
  "docs/guides/board.md *": "test/browser/board-guide.test.ts",
  "docs/guides/engine.md bus.ts": "test/readme/engine.test.ts",
  "docs/guides/engine.md bus.spec.ts": "test/readme/engine.test.ts",
  "docs/guides/from-rpc-websockets.md sum-rpc-websockets.js": OTHERS,
  "docs/guides/from-socket-io.md chat-socket-io.js": OTHERS,
  "docs/guides/from-socket-io.md side-by-side.js": OTHERS,
  "docs/guides/from-vscode-jsonrpc.md greet-vscode-jsonrpc.js": OTHERS,
  "docs/guides/frameworks.md *": "test/interop/frameworks.test.ts",
  "docs/guides/language-servers.md *": GUIDES,
  "docs/guides/mcp.md *": "test/interop/mcp/guide.test.ts",
  "docs/guides/metrics.md *": "test/readme/metrics.test.ts",
  "docs/guides/nextjs.md *": "test/browser/nextjs.test.ts",
  "docs/guides/react.md *": "test/browser/react.test.ts",
  "docs/guides/testing.md *": "test/readme/testing.test.ts",
  "docs/guides/tracing.md *": "test/interop/tracing.test.ts",
};
for (const [test, page, names] of [
  [GUIDES, "files", "bytes-page.js bytes-server.js"],
  [GUIDES, "frameworks", "page.js vue-topic.js svelte-topic.js solid-topic.js"],
  [GUIDES, "getting-started", "api.ts server.ts index.html page.ts"],
  ["test/interop/deployment.test.ts", "deployment", "production.js app.conf Caddyfile.app haproxy.cfg kubernetes.yaml"],
] as const)
  for (const name of names.split(" ")) ELSEWHERE[`docs/guides/${page}.md ${name}`] = test;
/** The examples that print nothing by themselves, and that a test below runs. */
const BELOW = ["server.js", "client.js", "blocks-server.js", "port.js"];

interface Extracted extends Example {
  readonly page: string;
  readonly path: string;
}

const documents = (await readdir("docs", { recursive: true })).map((name) => `docs/${name.replaceAll("\\", "/")}`);
const pages = ["README.md", ...documents.filter((name) => name.endsWith(".md"))];
const examples: Extracted[] = [];
for (const page of pages) {
  for (const example of await examplesOf(page))
    examples.push({ page, path: join(folder, page, example.name), ...example });
}
const testOf = ({ page, name }: Extracted): string | undefined =>
  ELSEWHERE[`${page} ${name}`] ?? ELSEWHERE[`${page} *`];
const printing = examples.filter((one) => one.output !== undefined && testOf(one) === undefined);
const pathOf = (name: string): string => examples.find((one) => one.name === name)!.path;

/** Other packages, and JavaScript that TypeScript accepts only with additional checks: not compiled. */
const NOT_TYPED = [
  ..."bytes-page.js chat-socket-io.js css-monaco.js greet-vscode-jsonrpc.js metered-client.js".split(" "),
  ..."metered-server.js metrics.js mixed.js monitoring.js node.js".split(" "),
  ..."other-client.js side-by-side.js sum-rpc-websockets.js traced-client.js traced-server.js".split(" "),
  ..."tracing.js".split(" "),
];
/** Compiled as JavaScript, in which every parameter is optional. */
const JAVASCRIPT = ["bank.js"];
const typed = examples.filter(
  ({ name, page }) =>
    /\.[jt]sx?$/.test(name) && !NOT_TYPED.includes(name) && !/(board|frameworks|nextjs)\.md$/.test(page),
);
let compiled: string;
const [first, second, clock] = [new Thread(), new Thread(), new Thread()];
const results = new Map<Extracted, Promise<{ printed: string; errors: string }>>();

beforeAll(async () => {
  for (const page of pages) await extract(page, join(folder, page));
  // As TypeScript, each page in a folder of its own. The output of those that are TypeScript goes to the examples of the page.
  const sources = await Promise.all(
    typed.map(async ({ page, name, code }) => {
      const path = join(folder, "typed", page, JAVASCRIPT.includes(name) ? name : name.replace(/\.js$/, ".ts"));
      await mkdir(join(path, ".."), { recursive: true });
      await writeFile(path, code);
      return path;
    }),
  );
  const flags =
    "--ignoreConfig --allowJs --checkJs --strict --exactOptionalPropertyTypes --skipLibCheck --target es2022 --module nodenext --jsx react-jsx --types node --lib es2022,dom,dom.iterable,dom.asynciterable,esnext.disposable --listFiles";
  const built = join(folder, "built");
  compiled = await tsc([...sources, ...flags.split(" "), "--rootDir", join(folder, "typed"), "--outDir", built]);
  for (const { page, name, path } of typed.filter((one) => one.name.endsWith(".ts")))
    await copyFile(join(built, page, name.replace(/ts$/, "js")), path.replace(/ts$/, "js"));
  // The examples of a page may use the same port. So a thread runs all of a page.
  for (const example of printing) {
    const ordinary = example.page === "docs/API.md" ? first : second;
    // Otherwise, an example that counts timers counts those of the programs before it.
    const thread = example.code.includes("virtualClock") ? clock : ordinary;
    results.set(example, thread.run(example.path.replace(/ts$/, "js")));
  }
});
afterAll(async () => {
  for (const thread of [first, second, clock]) await thread[Symbol.asyncDispose]();
  await clean();
});

it.each(pages)("names the file of each example, and begins with one, or after a few sentences: %s", async (page) => {
  const text = await readFile(page, "utf8");
  const own = examples.filter((one) => one.page === page);
  const blocks = text.match(/^```(js|javascript|tsx?|typescript|html|yaml|nginx|caddy|haproxy)$/gm) ?? [];
  expect(own.filter(({ name }) => !name.endsWith(".sh"))).toHaveLength(blocks.length);
  if (WITHOUT_EXAMPLE.includes(page)) return;
  const before = text.slice(0, text.indexOf(own[0]!.code));
  expect(before.match(/^```/gm)).toHaveLength(1);
  expect(before.match(/^#/gm)!.length).toBeLessThan(3);
  expect(before.length).toBeLessThan(700);
});

describe("an example", () => {
  it("has a name that is unique in its page, and is run", async () => {
    for (const page of pages) {
      const names = examples.filter((one) => one.page === page).map(({ name }) => name);
      expect(names).toEqual([...new Set(names)]);
    }
    expect(printing.length).toBeGreaterThan(80);
    const silent = examples.filter((one) => one.output === undefined);
    expect(silent.filter((one) => testOf(one) === undefined).map(({ name }) => name)).toEqual(BELOW);
    const used = new Set(examples.flatMap(({ page, name }) => [`${page} ${name}`, `${page} *`]));
    for (const [example, test] of Object.entries(ELSEWHERE)) {
      expect(used).toContain(example);
      expect(await readFile(test, "utf8")).toContain(example.split(" ")[0]!);
    }
  });

  it.each(printing)("prints the documented output: $page $name", async (example) => {
    const { printed, errors } = await results.get(example)!;
    expect(errors).toBe("");
    expect(printed.trimEnd().split("\n")).toEqual(example.output);
  });

  it("that adds a feature has less than 60 lines", () => {
    const { code } = examples.find(({ name }) => name === "ping.ts")!;
    expect(code.trimEnd().split("\n").length).toBeLessThan(60);
  });

  it("is valid TypeScript", () => {
    // Parameters and variables without a type, and values of an unknown type.
    const allowed = /error TS(7005|7006|7031|7034|18046):/;
    const lines = compiled.split("\n");
    expect(lines.filter((line) => /error TS/.test(line) && !allowed.test(line))).toEqual([]);
    expect(lines.filter((line) => line.includes("/typed/")).length).toBeGreaterThanOrEqual(typed.length);
    expect(typed.length).toBeGreaterThan(120);
  });
});

describe("the examples without an output", () => {
  it("run unchanged: a server and a client", async () => {
    const server = new Running(pathOf("server.js"));
    expect(await server.line(/listening/)).toBe("listening on ws://127.0.0.1:4321/");
    const client = new Running(pathOf("client.js"));
    expect(await client.line(/room/)).toBe('the room is "Attic"');
    await client.exited;
    await server.stop();
  });

  it("run unchanged: subscriptions", async () => {
    const server = new Running(pathOf("blocks-server.js"));
    const url = (await server.line(/listening/)).replace("listening on ", "");
    const pushes: unknown[] = [];
    const third = gate();
    await using peer = await connect(url, {
      link: "plain",
      methods: { eth_subscription: (push) => void (pushes.push(push) === 3 && third.resolve()) },
    });
    const id = await peer.request("eth_subscribe", ["newHeads"]);
    await third.promise;
    const [{ result }] = pushes as [{ result: { number: number } }];
    const numbers = [0, 1, 2].map((i) => result.number + i);
    expect(pushes.slice(0, 3)).toEqual(numbers.map((number) => ({ subscription: id, result: { number } })));
    for (const isOpen of [true, false]) expect(await peer.request("eth_unsubscribe", [id])).toBe(isOpen);
    await server.stop();
  });

  it("are a transport that connects two peers", async () => {
    const { overPort } = (await import(pathToFileURL(pathOf("port.js")).href)) as {
      overPort: (port: MessagePort, options: object) => Peer;
    };
    const { port1, port2 } = new MessageChannel();
    const a = overPort(port1, { methods: { add: ([x, y]: [number, number]) => x + y } });
    const b = overPort(port2, {});
    expect(await b.request("add", [1, 2])).toBe(3);
    await b.close();
    expect((await a.closed).code).toBe(1000);
    // A thread that ends closes its port without a message.
    const ended = new MessageChannel();
    const left = overPort(ended.port1, {});
    ended.port2.close();
    expect((await left.closed).code).toBe(1006);
  });
});
