/**
 * Runs the unchanged examples of docs/guides/testing.md: those of `node:test` in a process, and those of vitest as tests of this file.
 * @vitest-environment happy-dom
 * @vitest-environment-options { "url": "https://board.example/" }
 */
import { execFile } from "node:child_process";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, describe, expect, it } from "vitest";
import { clean, examplesOf, extract, folder } from "./examples.js";

const PAGE = "docs/guides/testing.md";
const examples = await examplesOf(PAGE);
const specs = examples.filter(({ name }) => /\.spec\.[jt]sx?$/.test(name));
const tests = examples.filter(({ name }) => name.endsWith(".test.js"));

await extract(PAGE);
afterAll(clean);

describe("the guide on testing", () => {
  it("has tests for both runners, and the application and the component that they test", () => {
    expect(tests.length).toBeGreaterThan(2);
    expect(specs.length).toBeGreaterThan(2);
    const others = examples.filter((example) => ![...tests, ...specs].includes(example));
    expect(others.map(({ name }) => name)).toEqual(["board.js", "people.tsx", "people-server.js"]);
  });

  it("has tests for node:test that pass", async () => {
    await writeFile(join(folder, "all.js"), tests.map(({ name }) => `import ${JSON.stringify(`./${name}`)};`).join(""));
    const { stdout } = await promisify(execFile)(process.execPath, ["--test-reporter=tap", join(folder, "all.js")]);
    const count = tests.flatMap(({ code }) => code.match(/^test\(/gm)!).length;
    expect(stdout).toContain(`\n# pass ${count}\n`);
    expect(stdout).toContain("\n# fail 0\n");
  });

  describe.each(specs)("has tests for vitest that pass: $name", async ({ name }) => {
    await import(/* @vite-ignore */ join(folder, name));
  });
});
