/** Runs the unchanged examples of the documents. */
import { execFile } from "node:child_process";
import { readdir, readFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ensurePackages } from "../../scripts/packages.js";
import {
  clean,
  compile,
  type Example,
  examplesOf,
  extract,
  folder,
  linkPackages,
  Running,
} from "../readme/examples.js";

const FOLDER = "docs";

/** The pages whose examples have a test file of their own. */
const TESTED_ELSEWHERE: Record<string, string> = {
  "API.md": "test/readme/readme.test.ts",
  "CLI.md": "test/guides/command-line.test.ts",
  "SCALING.md": "test/scaling/scaling.test.ts",
  "guides/mcp.md": "test/interop/mcp/guide.test.ts",
  "guides/metrics.md": "test/guides/metrics.test.ts",
  "guides/react.md": "test/react/guide.test.ts",
  "guides/testing.md": "test/guides/testing.test.ts",
  "guides/tracing.md": "test/guides/tracing.test.ts",
};
/** The documents that do not begin with an example: measured figures, a policy, the list of the examples, and a page for readers of the source. */
const WITHOUT_EXAMPLE = [
  "ARCHITECTURE.md",
  "benchmark.md",
  "examples.md",
  "fleet.md",
  "profile.md",
  "scale.md",
  "versions.md",
];
/** The examples that print nothing by themselves, and the test files that run them. */
const IN_BROWSER = "test/guides/in-browser.test.ts";
const DEPLOYED = "test/guides/deployment.test.ts";
const SILENT: Record<string, string> = {
  "api.ts": IN_BROWSER,
  "server.ts": IN_BROWSER,
  "index.html": IN_BROWSER,
  "page.ts": IN_BROWSER,
  "bytes-page.js": IN_BROWSER,
  "bytes-server.js": IN_BROWSER,
  "css-codemirror.js": IN_BROWSER,
  "css-monaco.js": IN_BROWSER,
  "production.js": DEPLOYED,
  "app.conf": DEPLOYED,
  "Caddyfile.app": DEPLOYED,
  "haproxy.cfg": DEPLOYED,
  "kubernetes.yaml": DEPLOYED,
};

const documents = (await readdir(FOLDER, { recursive: true })).map((name) => name.replaceAll("\\", "/"));
const pages = documents.filter((name) => name.endsWith(".md") && !WITHOUT_EXAMPLE.includes(name));
const ours = pages.filter((page) => !(page in TESTED_ELSEWHERE));
const examples = new Map<string, Example[]>();
for (const page of pages) examples.set(page, await examplesOf(`${FOLDER}/${page}`));
const all = ours.flatMap((page) => examples.get(page)!.map((example) => ({ page, ...example })));
const printing = all.filter(({ output }) => output !== undefined);

beforeAll(async () => {
  await ensurePackages(import.meta.dirname);
  await linkPackages(import.meta.dirname);
  for (const page of ours) await extract(`${FOLDER}/${page}`);
}, 600_000);
afterAll(clean);

describe("each page", () => {
  it.each(pages)("begins with an example, or with one after a few sentences: %s", async (page) => {
    const text = await readFile(`${FOLDER}/${page}`, "utf8");
    const [first] = examples.get(page)!;
    const before = text.slice(0, text.indexOf(first!.code));
    expect(before.match(/^```/gm)).toHaveLength(1);
    expect(before.match(/^#/gm)!.length).toBeLessThan(3);
    expect(before.length).toBeLessThan(700);
  });

  it.each(pages)("names the file of each example: %s", async (page) => {
    const text = await readFile(`${FOLDER}/${page}`, "utf8");
    const blocks = text.match(/^```(js|javascript|tsx?|typescript|html|yaml|nginx|caddy|haproxy)$/gm) ?? [];
    const shell = examples.get(page)!.filter(({ name }) => name.endsWith(".sh"));
    expect(examples.get(page)).toHaveLength(blocks.length + shell.length);
  });

  it.each(Object.entries(TESTED_ELSEWHERE))("has a test that reads it: %s", async (page, test) => {
    expect(await readFile(test, "utf8")).toContain(`docs/${page}`);
  });
});

/** These use other libraries or the DOM in a way that TypeScript accepts only with additional checks. */
const NOT_TYPED = [
  "bytes-page",
  "chat-socket-io",
  "greet-vscode-jsonrpc",
  "mixed",
  "other-client",
  "side-by-side",
  "sum-rpc-websockets",
];
/** Accepted errors of TypeScript: parameters without a type, and `peer.auth` of options that stand alone. */
const ALLOWED = /error TS(7006|7031|18046):/;

it("the examples are valid TypeScript", async () => {
  const code = all
    .map(({ name }) => name)
    .filter((name) => /\.(js|ts)$/.test(name) && !NOT_TYPED.includes(name.slice(0, -3)));
  expect(code.length).toBeGreaterThan(50);
  const tsc = join(import.meta.dirname, "../../node_modules/typescript/bin/tsc");
  const flags =
    "--ignoreConfig --allowJs --checkJs --noEmit --strict --exactOptionalPropertyTypes --skipLibCheck --target es2022 --module nodenext --types node --lib es2022,dom,dom.iterable,esnext.disposable --listFiles";
  const args = [tsc, ...flags.split(" "), ...code.map((name) => join(folder, name))];
  const compiling = promisify(execFile)(process.execPath, args, { maxBuffer: 2 ** 26 });
  // The compiler reports errors in its output.
  const { stdout } = await compiling.catch((error: unknown) => error as { stdout: string });
  const lines = stdout.split("\n");
  expect(lines.filter((line) => /error TS/.test(line) && !ALLOWED.test(line))).toEqual([]);
  for (const name of code) expect(stdout).toContain(`/${name}`);
}, 120_000);

describe("an example", () => {
  it("has a unique name, and its output in the page or a test that runs it", async () => {
    const names = all.map(({ name }) => name);
    expect(new Set(names).size).toBe(names.length);
    const silent = names.filter((name) => !printing.some((one) => one.name === name));
    expect(new Set(silent)).toEqual(new Set(Object.keys(SILENT)));
    for (const { name, page } of all.filter((one) => silent.includes(one.name)))
      expect(await readFile(SILENT[name]!, "utf8")).toContain(basename(page, ".md"));
  });

  it.each(printing)(
    "prints the documented output: $page $name",
    async ({ name, output }) => {
      if (name.endsWith(".ts")) await compile(name);
      const running = new Running(name.replace(/\.ts$/, ".js"));
      const exit = await running.exited;
      expect(running.lines).toEqual(output);
      expect(exit).toEqual([0, null]);
    },
    60_000,
  );
});
