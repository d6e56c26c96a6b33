/** The test folders with packages of their own: their pinned versions, and the use of the packages by their types. */
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, it } from "vitest";
import { ensurePackages } from "../../scripts/packages.js";

const TESTS = join(import.meta.dirname, "..");
const TSC = join(TESTS, "../node_modules/typescript/bin/tsc");

const FOLDERS = [
  ...(await readdir(TESTS)).filter((name) => existsSync(join(TESTS, name, "package-lock.json"))),
  "../demo/language-servers",
  "../examples/language-server",
  "../examples/nextjs",
  "../examples/three-nodes",
  "../site",
];

async function readJson<T>(...path: string[]): Promise<T> {
  return JSON.parse(await readFile(join(TESTS, ...path), "utf8")) as T;
}

it.each(FOLDERS)(
  "the packages of test/%s are of exact versions, by a lock file without addresses, and run no script",
  async (folder) => {
    await ensurePackages(join(TESTS, folder));
    const { dependencies } = await readJson<{ dependencies: Record<string, string> }>(folder, "package.json");
    const { packages } = await readJson<{ packages: Record<string, object> }>(folder, "package-lock.json");
    expect(Object.keys(packages).length).toBeGreaterThan(Object.keys(dependencies).length);
    // A link to this repository is resolved by its path.
    expect(Object.values(packages).filter((entry) => "resolved" in entry && !("link" in entry))).toEqual([]);
    expect((await readFile(join(TESTS, folder, ".npmrc"), "utf8")).split("\n")).toContain("ignore-scripts=true");
    for (const [name, wanted] of Object.entries(dependencies)) {
      if (wanted.startsWith("file:")) continue;
      const [, version] = /^(?:npm:.+@)?(\d+\.\d+\.\d+)$/.exec(wanted)!;
      expect(await readJson(folder, "node_modules", name, "package.json")).toMatchObject({ version });
    }
  },
  600_000,
);

it("the packages of test/interop are used according to their types", async () => {
  await ensurePackages(join(TESTS, "interop"));
  const args = [TSC, "-p", join(TESTS, "interop"), "--listFiles"];
  const { stdout } = await promisify(execFile)(process.execPath, args);
  expect(stdout).toMatch(/test\/interop\/\S+\.test\.ts/);
  expect(stdout).toContain("test/interop/node_modules/");
});
