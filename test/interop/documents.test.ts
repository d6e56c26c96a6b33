/** Runs the unchanged examples of the documents that use the libraries of others, and compares what they print with the text below them. */
import { mkdir } from "node:fs/promises";
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
