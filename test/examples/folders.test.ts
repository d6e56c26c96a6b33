/** Checks what all examples have in common: a README of one page, whose links lead somewhere, and a test. */
import { access, readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { EXAMPLES } from "./page.js";

/** The test file that runs each example. */
const TESTS: Record<string, string> = {
  "board-react": "test/react/board.test.ts",
  chat: "test/examples/chat.test.ts",
  cursors: "test/examples/cursors.test.ts",
  "language-server": "test/examples/language-server.test.ts",
  "log-stream": "test/examples/log-stream.test.ts",
  "mcp-server": "test/interop/mcp/example.test.ts",
  "three-nodes": "test/scaling/three-nodes.test.ts",
};

const entries = await readdir(EXAMPLES, { withFileTypes: true });
const folders = entries.filter((entry) => entry.isDirectory()).map(({ name }) => name);

it("each example has a test, and is in the list of README.md and of the documents", async () => {
  expect(new Set(Object.keys(TESTS))).toEqual(new Set(folders));
  for (const document of ["README.md", "docs/examples.md"]) {
    const text = await readFile(document, "utf8");
    expect(folders.filter((name) => !text.includes(`examples/${name}`))).toEqual([]);
  }
});

describe.each(folders)("the example %s", (name) => {
  it("is run by its test", async () => {
    expect(await readFile(TESTS[name]!, "utf8")).toContain(name);
  });

  it("has a README of one page, which says how to start it, and whose links lead somewhere", async () => {
    const text = await readFile(join(EXAMPLES, name, "README.md"), "utf8");
    expect(text.startsWith(`# ${name}\n`)).toBe(true);
    expect(text.split("\n").length).toBeLessThan(60);
    expect(text).toContain("npm ci && npm run build");
    const links = [...text.matchAll(/\]\(([^)#:]+)(?:#[^)]*)?\)/g)].map(([, path]) => join(EXAMPLES, name, path!));
    expect(links.length).toBeGreaterThan(1);
    for (const path of links) await access(path);
  });
});
