/** What these tests rest on: everybody else's software is pinned, installed without running a script, and used as its types say. */
import { execFile } from "node:child_process";
import { access, readFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { describe, expect, it } from "vitest";

const here = import.meta.dirname;
const root = join(here, "../..");

async function read(path: string): Promise<string> {
  return readFile(join(here, path), "utf8");
}

describe("other people's packages", () => {
  it("are of exact versions, by a lock file without addresses, and none may run a script", async () => {
    const { dependencies } = JSON.parse(await read("package.json")) as { dependencies: Record<string, string> };
    for (const version of Object.values(dependencies)) expect(version).toMatch(/^\d+\.\d+\.\d+$/);
    const { packages } = JSON.parse(await read("package-lock.json")) as { packages: Record<string, object> };
    expect(Object.keys(packages).length).toBeGreaterThan(10);
    expect(Object.values(packages).filter((entry) => "resolved" in entry)).toEqual([]);
    expect((await read(".npmrc")).split("\n")).toContain("ignore-scripts=true");
    for (const [name, version] of Object.entries(dependencies)) {
      expect(JSON.parse(await read(`node_modules/${name}/package.json`))).toMatchObject({ version });
    }
  });

  it("are named with their versions in docs/INTEROP.md, and so is every test that it speaks of", async () => {
    const document = await read("../../docs/INTEROP.md");
    const { dependencies } = JSON.parse(await read("package.json")) as { dependencies: Record<string, string> };
    const { "@types/ws": _types, ...named } = dependencies;
    for (const [name, version] of Object.entries(named)) expect(document).toContain(`${name} ${version}`);
    const tests = [...document.matchAll(/`([^`]+\.test\.ts)`/g)].map(([, path]) => path!);
    expect(tests.length).toBeGreaterThan(10);
    for (const path of tests) await access(join(here, path));
  });

  it("are used as their types say", async () => {
    const tsc = join(root, "node_modules/typescript/bin/tsc");
    const { stdout } = await promisify(execFile)(process.execPath, [tsc, "-p", here, "--listFiles"], { cwd: root });
    expect(stdout).toContain("test/interop/ethereum/viem.test.ts");
  }, 90_000);
});
