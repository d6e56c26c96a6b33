/** Runs the unchanged examples of docs/guides/testing.md: those of `node:test`, and those of vitest. */
import { execFile } from "node:child_process";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { clean, examplesOf, extract, folder } from "../readme/examples.js";

const run = promisify(execFile);
const root = fileURLToPath(new URL("../..", import.meta.url));
const DOCUMENT = "docs/guides/testing.md";

/** The examples with React need packages that test/react installs, and run there. */
const names = (await examplesOf(DOCUMENT)).map(({ name }) => name).filter((name) => !name.startsWith("people"));

beforeAll(async () => {
  await extract(DOCUMENT);
  // Otherwise, vitest uses the config of this project.
  await writeFile(join(folder, "vitest.config.js"), "export default {};");
});
afterAll(clean);

describe("the guide on testing", () => {
  it.each(names.filter((name) => name.endsWith(".test.js")))(
    "has tests for node:test that pass: %s",
    async (name) => {
      // A test of the guide must not report to the runner of this one.
      const { NODE_TEST_CONTEXT: _, ...env } = process.env;
      const { stdout } = await run(process.execPath, ["--test", "--test-reporter=tap", join(folder, name)], { env });
      expect(stdout).toMatch(/^# pass [1-9]/m);
      expect(stdout).toMatch(/^# fail 0$/m);
    },
    60_000,
  );

  it.each(names.filter((name) => name.endsWith(".spec.js")))(
    "has tests for vitest that pass: %s",
    async (name) => {
      const vitest = join(root, "node_modules/vitest/vitest.mjs");
      const args = [vitest, "run", "--root", folder, "--reporter=json", name];
      const { stdout } = await run(process.execPath, args, { cwd: root });
      const { success, numPassedTests } = JSON.parse(stdout) as { success: boolean; numPassedTests: number };
      expect([success, numPassedTests > 0]).toEqual([true, true]);
    },
    60_000,
  );

  it("has tests for both runners, and the application that they test", () => {
    expect(names.filter((name) => !/\.(test|spec)\.js$/.test(name))).toEqual(["board.js"]);
    expect(names.filter((name) => name.endsWith(".test.js")).length).toBeGreaterThan(2);
    expect(names.filter((name) => name.endsWith(".spec.js")).length).toBeGreaterThan(1);
  });
});
