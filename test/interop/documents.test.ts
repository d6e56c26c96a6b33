/** Runs the unchanged examples of the documents that use the libraries of others, and compares docs/INTEROP.md with this folder. */
import { access, mkdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import { clean, examplesOf, extract, folder, linkPackages, Thread } from "../readme/examples.js";

const PAGES = [
  "docs/INTEROP.md",
  "docs/guides/from-rpc-websockets.md",
  "docs/guides/from-socket-io.md",
  "docs/guides/from-vscode-jsonrpc.md",
];
const OTHERS = /from "(rpc-websockets|socket\.io|vscode-jsonrpc)/;
const examples = (await Promise.all(PAGES.map(examplesOf))).flat().filter(({ code }) => OTHERS.test(code));

let thread: Thread;
beforeAll(async () => {
  await mkdir(folder, { recursive: true });
  await linkPackages(import.meta.dirname);
  for (const page of PAGES) await extract(page);
  thread = new Thread();
});
afterAll(async () => {
  await thread[Symbol.asyncDispose]();
  await clean();
});

it("each of these pages has such an example", () => expect(examples.length).toBeGreaterThan(PAGES.length));

it.each(examples)("$name prints the documented output", async ({ name, output }) => {
  const { printed, errors } = await thread.run(join(folder, name));
  expect(errors).toBe("");
  expect(printed.trimEnd().split("\n")).toEqual(output);
});

it("docs/INTEROP.md names every package with its version, and names only tests that exist", async () => {
  const here = import.meta.dirname;
  const document = await readFile("docs/INTEROP.md", "utf8");
  const { dependencies } = JSON.parse(await readFile(join(here, "package.json"), "utf8")) as Record<string, object>;
  // Others do not speak JSON-RPC.
  const tools = /^(@opentelemetry\/|@types\/|kubernetes-models |socket\.io|yaml )/;
  for (const [name, version] of Object.entries(dependencies!))
    if (!tools.test(`${name} `)) expect(document).toContain(`${name} ${version}`);
  const tests = [...document.matchAll(/`([^`]+\.test\.ts)`/g)].map(([, path]) => path!);
  expect(tests.length).toBeGreaterThan(10);
  for (const path of tests) await access(join(here, path));
});
