/** Runs before each test file. Installs the packages of the nearest `package.json`, which is the project's own for most files. */
import { access } from "node:fs/promises";
import { dirname, join } from "node:path";
import { expect, vi } from "vitest";
import { ensurePackages } from "../../scripts/packages.js";

const TESTS = join(import.meta.dirname, "..");

/** How long `vi.waitFor` waits at most. It ends only a test that hangs: a loaded machine may stand still for many seconds. */
const PATIENCE_MS = 240_000;
const { waitFor } = vi;
vi.waitFor = (check, options) =>
  waitFor(check, typeof options === "number" ? options : { timeout: PATIENCE_MS, ...options });

let folder = dirname(expect.getState().testPath!);
while (folder !== TESTS && !(await hasPackages(folder))) folder = dirname(folder);
if (folder !== TESTS) await ensurePackages(folder);

function hasPackages(path: string): Promise<boolean> {
  return access(join(path, "package.json")).then(
    () => true,
    () => false,
  );
}
