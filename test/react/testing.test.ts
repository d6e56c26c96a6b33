/** Runs the unchanged tests of a React component in docs/guides/testing.md: without a port, and without a browser. */
import { execFile } from "node:child_process";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, it } from "vitest";
import { ensurePackages } from "../../scripts/packages.js";
import { clean, extract, folder, linkPackages } from "../readme/examples.js";
import { PACKAGES } from "./bundle.js";

const ROOT = join(import.meta.dirname, "../..");

/** The environment "happy-dom" of vitest needs happy-dom beside vitest, and only these tests need it. */
const DOM = `import { GlobalRegistrator } from "@happy-dom/global-registrator";
GlobalRegistrator.register({ url: "http://localhost" });`;

/** The package under test is not in `node_modules`, so it does not find React by itself. */
const CONFIG = { resolve: { alias: { react: join(PACKAGES, "react") } }, test: { setupFiles: "dom.js" } };

beforeAll(async () => {
  await ensurePackages(import.meta.dirname);
  await linkPackages(import.meta.dirname);
  await extract("docs/guides/testing.md");
  await writeFile(join(folder, "dom.js"), DOM);
  await writeFile(join(folder, "vitest.config.js"), `export default ${JSON.stringify(CONFIG)};`);
}, 600_000);
afterAll(clean);

it("the component of the guide passes its tests", async () => {
  const vitest = join(ROOT, "node_modules/vitest/vitest.mjs");
  const args = [vitest, "run", "--root", folder, "--reporter=json", "people.spec.tsx"];
  const { stdout } = await promisify(execFile)(process.execPath, args, { cwd: ROOT });
  const { success, numPassedTests } = JSON.parse(stdout) as { success: boolean; numPassedTests: number };
  expect([success, numPassedTests]).toEqual([true, 4]);
}, 60_000);
