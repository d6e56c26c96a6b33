/** Proves that docs/INTEROP.md names the software that the tests use, and the tests. */
import { access, readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, it } from "vitest";

const here = import.meta.dirname;

/** Packages that do not speak JSON-RPC. */
const TOOLS = /^(@opentelemetry\/|@types\/|kubernetes-models$|socket\.io|yaml$)/;

async function read(path: string): Promise<string> {
  return readFile(join(here, path), "utf8");
}

it("docs/INTEROP.md names every package with its version, and names only tests that exist", async () => {
  const document = await read("../../docs/INTEROP.md");
  const { dependencies } = JSON.parse(await read("package.json")) as { dependencies: Record<string, string> };
  for (const [name, version] of Object.entries(dependencies))
    if (!TOOLS.test(name)) expect(document).toContain(`${name} ${version}`);
  const tests = [...document.matchAll(/`([^`]+\.test\.ts)`/g)].map(([, path]) => path!);
  expect(tests.length).toBeGreaterThan(10);
  for (const path of tests) await access(join(here, path));
});
