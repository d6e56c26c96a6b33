import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { beforeAll, describe, expect, it } from "vitest";
import { COMPILERS, tscOf, type Compiler } from "../readme/compilers.js";
import { ensurePackages } from "../../scripts/packages.js";

const run = promisify(execFile);
const here = fileURLToPath(new URL(".", import.meta.url));
const root = fileURLToPath(new URL("../..", import.meta.url));

/** Compiles a project with one version of the compiler. Fails with the compiler's output. */
async function compile(compiler: Compiler, project: string, ...flags: string[]): Promise<string> {
  const { stdout } = await run(process.execPath, [tscOf(compiler), "-p", `${here}${project}`, ...flags], { cwd: root });
  return stdout;
}

beforeAll(() => ensurePackages(fileURLToPath(new URL("../readme", import.meta.url))), 600_000);

describe.each(COMPILERS)("%s", (compiler) => {
  it("compiles every use that must compile, and none that must not", async () => {
    const files = await compile(compiler, "tsconfig.json", "--listFiles");
    for (const name of ["app", "use", "wrong", "contract", "jsonify", "bytes"])
      expect(files).toContain(`test/types/${name}.ts`);
  }, 90_000);

  it("needs no types of Node or React for the entry of every runtime", async () => {
    const files = await compile(compiler, "tsconfig.browser.json", "--listFiles");
    expect(files).toContain("dist/index.d.ts");
    expect(files).not.toContain("@types/node");
    expect(files).not.toContain("@types/react");
  }, 90_000);

  it.each([
    ["the DOM", ["--lib", "ES2020,DOM"]],
    ["Node", ["--lib", "ES2020", "--types", "node"]],
  ])(
    "needs no library newer than ES2020, with the types of %s",
    async (_what, flags) => {
      const files = await compile(compiler, "tsconfig.es2020.json", "--listFiles", ...flags);
      expect(files).toContain("dist/index.d.ts");
      expect(files).not.toMatch(/lib\.es2022\.error\.d\.ts/);
    },
    90_000,
  );

  it("needs no DOM types for the entry of Node", async () => {
    const files = await compile(compiler, "tsconfig.node.json", "--listFiles");
    expect(files).toContain("dist/node.d.ts");
    expect(files).not.toMatch(/lib\.dom\.d\.ts/);
  }, 90_000);
});
