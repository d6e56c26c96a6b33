/** What the types of the package promise, for each version of the compiler. */
import { join } from "node:path";
import { expect, it } from "vitest";
import { tsc } from "../readme/examples.js";

/** Proves with a compiler, given by the path of its command, what a use of the types must and must not compile. */
export function itCompilesWith(compiler?: string): void {
  const filesOf = (project: string, ...flags: string[]): Promise<string> =>
    tsc(["-p", join(import.meta.dirname, project), "--listFiles", ...flags], compiler);

  it("compiles every use that must compile, and none that must not", async () => {
    const files = await filesOf("tsconfig.json");
    expect(files).not.toContain("error TS");
    for (const name of ["app", "use", "wrong", "contract", "jsonify", "bytes"])
      expect(files).toContain(`test/types/${name}.ts`);
  });

  it("needs no types of Node or React for the entry of every runtime", async () => {
    const files = await filesOf("tsconfig.browser.json");
    expect(files).not.toContain("error TS");
    expect(files).toContain("dist/index.d.ts");
    expect(files).not.toContain("@types/node");
    expect(files).not.toContain("@types/react");
  });

  it.each([
    ["the DOM", ["--lib", "ES2020,DOM"]],
    ["Node", ["--lib", "ES2020", "--types", "node"]],
  ])("needs no library newer than ES2020, with the types of %s", async (_what, flags) => {
    const files = await filesOf("tsconfig.es2020.json", ...flags);
    expect(files).not.toContain("error TS");
    expect(files).toContain("dist/index.d.ts");
    expect(files).not.toMatch(/lib\.es2022\.error\.d\.ts/);
  });

  it("needs no DOM types for the entry of Node", async () => {
    const files = await filesOf("tsconfig.node.json");
    expect(files).not.toContain("error TS");
    expect(files).toContain("dist/node.d.ts");
    expect(files).not.toMatch(/lib\.dom\.d\.ts/);
  });
}
