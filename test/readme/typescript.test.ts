/** Proves that the examples of the documents are also valid TypeScript. */
import { execFile } from "node:child_process";
import { rename } from "node:fs/promises";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import ts from "typescript-5.9";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { tscOf, type Compiler } from "./compilers.js";
import { clean, extract, folder } from "./examples.js";

const root = fileURLToPath(new URL("../..", import.meta.url));
const FLAGS = "--noEmit --strict --exactOptionalPropertyTypes --skipLibCheck --target es2022 --module nodenext".split(
  " ",
);
const LIBRARIES = ["--types", "node", "--lib", "es2022,dom,dom.iterable,dom.asynciterable,esnext.disposable"];
/** Accepted errors of TypeScript: parameters and variables without a type, and values of an unknown type. */
const ALLOWED = /error TS(7005|7006|7031|7034|18046):/;

let examples: string[];
let guides: string[];

/** Extracts the examples, each as a TypeScript file. */
async function extractAsTypeScript(...documents: string[]): Promise<string[]> {
  const files: string[] = [];
  for (const document of documents) {
    for (const name of await extract(document)) {
      const file = join(folder, name.replace(/\.js$/, ".ts"));
      await rename(join(folder, name), file);
      files.push(file);
    }
  }
  return files;
}

beforeAll(async () => {
  examples = await extractAsTypeScript("README.md", "docs/API.md", "docs/ARCHITECTURE.md");
  guides = await extractAsTypeScript("docs/guides/mcp.md", "docs/guides/metrics.md", "docs/guides/tracing.md");
});
afterAll(clean);

describe("the examples of README.md, API.md and ARCHITECTURE.md, as TypeScript", () => {
  it.each(["typescript", "typescript-6", "typescript-5.9"])(
    "compile with %s",
    async (compiler) => {
      const tsc = tscOf(compiler as Compiler);
      const alone = compiler === "typescript-5.9" ? [] : ["--ignoreConfig"];
      const args = [tsc, ...alone, ...examples, ...FLAGS, ...LIBRARIES, "--listFiles"];
      const said = await promisify(execFile)(process.execPath, args, { cwd: root }).catch(
        (failure: unknown) => failure,
      );
      const { stdout } = said as { stdout: string };
      const errors = stdout.split("\n").filter((line) => /error TS/.test(line));
      expect(errors.filter((line) => !ALLOWED.test(line))).toEqual([]);
      for (const file of examples) expect(stdout).toContain(basename(file));
    },
    60_000,
  );
});

describe("every example of the documents", () => {
  /**
   * Where a handler returns what it gets from the constant that holds its own server, the constant's type depends on itself:
   * error TS7022. Handlers take `server` and `peer` from their context instead.
   */
  it("does not use a constant inside its own initializer", () => {
    const files = [...examples, ...guides];
    // Names resolve to declarations without the libraries.
    const program = ts.createProgram(files, { noEmit: true, noLib: true, noResolve: true });
    const checker = program.getTypeChecker();
    const found: string[] = [];
    let constants = 0;
    const visit = (node: ts.Node, own: readonly ts.Node[]): void => {
      const isMade = ts.isVariableDeclaration(node) && node.initializer !== undefined;
      if (isMade) constants++;
      if (ts.isIdentifier(node)) {
        const declared = checker.getSymbolAtLocation(node)?.valueDeclaration;
        const isName = declared !== undefined && (declared as ts.NamedDeclaration).name === node;
        if (declared !== undefined && !isName && own.includes(declared))
          found.push(`${basename(node.getSourceFile().fileName)}: ${node.text}`);
      }
      node.forEachChild((child) => visit(child, isMade ? [...own, node] : own));
    };
    for (const file of files) visit(program.getSourceFile(file)!, []);
    expect(constants).toBeGreaterThan(80);
    expect(found).toEqual([]);
  });
});
