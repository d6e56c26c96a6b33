/** The test folders with packages of their own: their pinned versions, and the use of the packages by their types. */
import { execFile } from "node:child_process";
import { access, readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { beforeAll, describe, expect, it } from "vitest";
import { ensurePackages } from "../../scripts/packages.js";

const TESTS = join(import.meta.dirname, "..");
const TSC = join(TESTS, "../node_modules/typescript/bin/tsc");

/** The folders whose packages have types. */
const TYPED = ["interop"];
const FOLDERS = [...TYPED, "browser", "package", "runtimes", "site"];
const OUTSIDE = [
  "../demo/language-servers",
  "../examples/board-react",
  "../examples/language-server",
  "../examples/three-nodes",
  "../site",
];

async function readJson<T>(...path: string[]): Promise<T> {
  return JSON.parse(await readFile(join(TESTS, ...path), "utf8")) as T;
}

it("all folders with packages of their own are tested here", async () => {
  const found: string[] = [];
  for (const folder of await readdir(TESTS)) {
    await access(join(TESTS, folder, "package.json")).then(
      () => found.push(folder),
      () => {},
    );
  }
  expect(new Set(found)).toEqual(new Set(FOLDERS));
});

it("the tools of the documentation site are not installed with the package or with its tests, except those of test/site", async () => {
  interface Lock {
    packages: Record<string, object>;
  }
  const { dependencies } = await readJson<{ dependencies: Record<string, string> }>("../site/package.json");
  // The compiler is also a tool of the package.
  const { typescript: _, ...tools } = dependencies;
  expect(Object.keys(tools)).toContain("vitepress");
  for (const folder of ["..", ...FOLDERS.filter((name) => name !== "site")]) {
    const { packages } = await readJson<Lock>(folder, "package-lock.json");
    expect(Object.keys(tools).filter((name) => `node_modules/${name}` in packages)).toEqual([]);
  }
});

describe.each([...FOLDERS, ...OUTSIDE])("the packages of test/%s", (folder) => {
  beforeAll(() => ensurePackages(join(TESTS, folder)), 600_000);

  it("are of exact versions, by a lock file without addresses, and no package may run a script", async () => {
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
  });
});

describe.each(TYPED)("the packages of test/%s", (folder) => {
  it("are used according to their types", async () => {
    await ensurePackages(join(TESTS, folder));
    const args = [TSC, "-p", join(TESTS, folder), "--listFiles"];
    const { stdout } = await promisify(execFile)(process.execPath, args);
    expect(stdout).toMatch(new RegExp(`test/${folder}/\\S+\\.test\\.ts`));
    expect(stdout).toContain(`test/${folder}/node_modules/`);
  }, 600_000);
});
