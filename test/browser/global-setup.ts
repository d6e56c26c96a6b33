/** Prepares once for each run what tests in Chromium share: it, the build of the demo, and the packages of its language servers. */
import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import type { TestProject } from "vitest/node";
import { ensurePackages } from "../../scripts/packages.js";
import { ensureChromium } from "./chromium.js";

const ROOT = join(import.meta.dirname, "../..");
const run = promisify(execFile);

export default async function setup({ vitest }: TestProject): Promise<void> {
  const files = vitest.state.getPaths();
  const isNeeded = (folder: string): boolean => files.some((file) => file.startsWith(join(ROOT, "test", folder)));
  if (isNeeded("browser") || isNeeded("site")) process.env["CHROMIUM_PATH"] = await ensureChromium();
  if (!isNeeded("browser")) return;
  await run(process.execPath, [join(ROOT, "node_modules/typescript/bin/tsc"), "-p", join(ROOT, "demo")]);
  await ensurePackages(join(ROOT, "demo/language-servers"));
}
